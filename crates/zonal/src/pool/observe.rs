//! A pool that shows itself to other programs, in a file ([`crate::observed`]).

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use zonal_core::platform::Platform as _;

use super::builder::{BuildError, Builder};
use super::{Pool, Shared};
use crate::observed::print;
use crate::process::Process;
use crate::text::{State, layout_of};

/// Where a pool shows itself.
#[derive(Debug)]
pub(super) struct Observer {
    path: PathBuf,
    /// The next file, before it takes the place of the last one.
    next: PathBuf,
    /// A forked child leaves its parent's file alone.
    process: Process,
}

impl Builder {
    /// The file in which the refresh thread shows the pool to other programs, such as `zonal top
    /// --pool FILE`: every counter and the kernel's texts ([`crate::observed`]), written anew in
    /// each refresh interval. Only its owner may read it. It is removed when the pool goes; a
    /// forked child does not write to it. Default: none.
    ///
    /// Each writing takes every zone's lock twice and walks the free lists under it.
    pub fn observe(mut self, file: impl Into<PathBuf>) -> Builder {
        self.observe = Some(file.into());
        self
    }
}

impl Observer {
    /// A file that is not written yet.
    pub(super) fn new(path: &Path) -> Observer {
        let mut next = path.as_os_str().to_owned();
        next.push(format!(".{}.next", std::process::id()));
        Observer { path: path.to_owned(), next: next.into(), process: Process::this() }
    }

    /// Writes the file anew.
    fn write(&self, shared: &Shared) -> io::Result<()> {
        if !self.process.is_this() {
            return Ok(());
        }
        let allocator = &shared.allocator;
        let state = State::of(allocator).with_misuses(shared.misuses.count());
        let at_ms = allocator.platform().now_ns() / 1_000_000;
        let text = print(&state, layout_of(allocator.policy()), (std::process::id(), at_ms));
        // What a killed process of this number left; a link that somebody put there stays as it is.
        let _ = fs::remove_file(&self.next);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options
            .open(&self.next)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&self.next, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&self.next);
        }
        written
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if self.process.is_this() {
            // It may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Shared {
    /// Shows the pool as it is, if anybody asked for that.
    pub(super) fn show(&self) -> io::Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer.write(self))
    }

    /// Shows the pool for the first time.
    pub(super) fn show_first(&self) -> Result<(), BuildError> {
        let path = || self.observer.as_ref().map(|one| one.path.clone()).unwrap_or_default();
        self.show().map_err(|why| BuildError::Observe { path: path(), why })
    }
}

impl Pool {
    /// A reading of everything that the kernel's texts tell: `/proc/zoneinfo` of the pool is
    /// `pool.state().zoneinfo(layout)`. Takes each zone's lock twice, and walks the free lists
    /// under it.
    pub fn state(&self) -> State {
        State::of(self.allocator()).with_misuses(self.misuses())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Order;
    use crate::observed::Observed;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn small() -> Builder {
        Pool::builder().size(16 << 20).refresh_every(Some(Duration::from_millis(2)))
    }

    /// Value of a metric without labels.
    fn free_pages(text: &str) -> u64 {
        let observed = Observed::parse(text).unwrap();
        let line = observed.vmstat.lines().find_map(|line| line.strip_prefix("nr_free_pages "));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn the_file_follows_the_pool_and_goes_with_it() {
        let directory = directory();
        let path = directory.path().join("pool");
        let pool = small().observe(&path).build().unwrap();
        let before = free_pages(&fs::read_to_string(&path).unwrap());
        let page = pool.alloc(Order::MAX).unwrap();
        let begin = Instant::now();
        // Whole at every moment.
        while free_pages(&fs::read_to_string(&path).unwrap()) != before - Order::MAX.pages() {
            assert!(begin.elapsed() < Duration::from_secs(60), "never written again");
        }
        drop(page);
        drop(pool);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_may_read_it_and_links_are_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = directory();
        let path = directory.path().join("pool");
        let victim = directory.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let next = directory.path().join(format!("pool.{}.next", std::process::id()));
        std::os::unix::fs::symlink(&victim, &next).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let pool = small().observe(&path).build().unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(pool);
        assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
    }

    #[test]
    fn what_cannot_be_written_and_what_nobody_would_write_is_refused() {
        let error = small().observe("/nowhere/at/all").build().unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let path = directory().path().join("pool");
        let error = small().refresh_every(None).observe(path).build().unwrap_err().to_string();
        assert!(error.contains("refresh_every"), "{error}");
    }
}
