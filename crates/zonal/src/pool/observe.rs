//! A pool that shows itself to other programs, in a file ([`crate::observed`]).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::platform::Platform as _;

use super::builder::{BuildError, Builder};
use super::{Pool, Shared};
use crate::observed::{MAGIC, print};
use crate::process::Process;
use crate::sys::files::exchange;
use crate::text::{State, layout_of};

/// Numbers of this process's observers: two pools with one path have a next file each.
static OBSERVERS: AtomicU64 = AtomicU64::new(0);

/// Where a pool shows itself.
#[derive(Debug)]
pub(super) struct Observer {
    path: PathBuf,
    /// The next file, before it takes the place of the last one.
    next: PathBuf,
    /// A forked child leaves its parent's file alone.
    process: Process,
    last: Mutex<Last>,
}

/// What became of the last file.
#[derive(Debug)]
enum Last {
    /// None is written yet.
    None,
    /// This one, open: its inode number is not given to another file meanwhile.
    Written(File),
    /// The pool went, and its file with it.
    Removed,
}

/// Whether this is the file at a path. It is open, so no other file has its inode.
fn is_the_same(file: &File, there: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }
    // Systems without inodes: every file is ours.
    #[cfg(not(unix))]
    {
        let _ = (file, there);
        true
    }
}

impl Builder {
    /// The file in which the refresh thread shows the pool to other programs, such as `zonal top
    /// --pool FILE`: every counter and the kernel's texts ([`crate::observed`]), written anew in
    /// each refresh interval. Only its owner may read it. It is removed when the last handle of the
    /// pool goes; a forked child does not write to it. Default: none.
    ///
    /// A file of another pool that is there is replaced, and that pool writes no more. Anything
    /// else that is there makes [`build`](Builder::build) fail, and stays.
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
        let number = OBSERVERS.fetch_add(1, Relaxed);
        next.push(format!(".{}.{number}.next", std::process::id()));
        let (path, process) = (path.to_owned(), Process::this());
        Observer { path, next: next.into(), process, last: Mutex::new(Last::None) }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file anew. One that another pool put there meanwhile stays as it is.
    fn write(&self, shared: &Shared) -> io::Result<()> {
        // First: a forked child may find the lock taken for ever.
        if !self.process.is_this() {
            return Ok(());
        }
        let mut last = self.last();
        if !self.may_write(&last)? {
            return Ok(());
        }
        let allocator = &shared.allocator;
        let state = State::of(allocator).with_misuses(shared.misuses.count());
        let at_ms = allocator.platform().now_ns() / 1_000_000;
        let text = print(&state, layout_of(allocator.policy()), (std::process::id(), at_ms));
        let put = self.put(&text, &last);
        // What was there before, or what could not be put there.
        drop(fs::remove_file(&self.next));
        if let Some(file) = put? {
            *last = Last::Written(file);
        }
        Ok(())
    }

    /// Whether the path is free, or has a file of a pool that may be replaced.
    ///
    /// # Errors
    /// There is something else, when the first file is to be written.
    fn may_write(&self, last: &Last) -> io::Result<bool> {
        let there = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(!matches!(last, Last::Removed));
            }
            there => there?,
        };
        match last {
            Last::None if is_of_a_pool(&self.path, &there)? => Ok(true),
            Last::None => Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "what is there was not written by a pool, and stays; expected a path that is free",
            )),
            Last::Written(file) => Ok(is_the_same(file, &there)),
            Last::Removed => Ok(false),
        }
    }

    /// Writes the next file and puts it in the place of the last one. None if another pool's came
    /// there since [`may_write`](Self::may_write): it stays.
    ///
    /// The two files change names, so that what was there is still there to be looked at. Without
    /// such a call, a pool whose file came in between writes no more.
    fn put(&self, text: &str, last: &Last) -> io::Result<Option<File>> {
        // What a killed process of this number left; a link that somebody put there stays as it is.
        let _ = fs::remove_file(&self.next);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.next)?;
        file.write_all(text.as_bytes())?;
        if let Last::Written(own) = last
            && exchange(&self.next, &self.path).is_ok()
        {
            if is_the_same(own, &fs::symlink_metadata(&self.next)?) {
                return Ok(Some(file));
            }
            // The path may be free by now.
            exchange(&self.next, &self.path).or_else(|_| fs::rename(&self.next, &self.path))?;
            return Ok(None);
        }
        fs::rename(&self.next, &self.path)?;
        Ok(Some(file))
    }

    /// Removes the file, if it is still the one that this pool wrote, and writes no other.
    pub(super) fn remove(&self) {
        if !self.process.is_this() {
            return;
        }
        let last = std::mem::replace(&mut *self.last(), Last::Removed);
        let there = fs::symlink_metadata(&self.path);
        if there
            .is_ok_and(|there| matches!(&last, Last::Written(file) if is_the_same(file, &there)))
        {
            // It may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a file begins as a pool writes it.
fn is_of_a_pool(path: &Path, there: &Metadata) -> io::Result<bool> {
    if !there.is_file() {
        return Ok(false);
    }
    let mut text = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64 + 1).read_to_end(&mut text)?;
    Ok(text.strip_suffix(b"\n") == Some(MAGIC.as_bytes()))
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
        let pool = small().observe(&path).build().unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(pool);
        let victim = directory.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let observer = Observer::new(&path);
        std::os::unix::fs::symlink(&victim, &observer.next).unwrap();
        observer.put("text", &Last::None).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
        assert_eq!(fs::read_to_string(path).unwrap(), "text");
    }

    #[test]
    fn what_no_pool_wrote_is_refused_and_stays() {
        let directory = directory();
        let path = directory.path().join("data.db");
        for text in ["", "rows", "zonal-observed 12\n"] {
            fs::write(&path, text).unwrap();
            let error = small().observe(&path).build().unwrap_err().to_string();
            assert!(error.contains("data.db") && error.contains("expected a path"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(small().observe(&path).build().is_err());
        #[cfg(unix)]
        {
            let link = directory.path().join("link");
            std::os::unix::fs::symlink("/dev/null", &link).unwrap();
            assert!(small().observe(&link).build().is_err());
            assert!(link.is_symlink());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pool_leaves_the_file_of_its_successor_alone() {
        let directory = directory();
        let path = directory.path().join("pool");
        let old = small().observe(&path).build().unwrap();
        let new = small().observe(&path).build().unwrap();
        let shown = || free_pages(&fs::read_to_string(&path).unwrap());
        let expected = shown() - Order::MAX.pages();
        let page = new.alloc(Order::MAX).unwrap();
        let begin = Instant::now();
        while shown() != expected {
            assert!(begin.elapsed() < Duration::from_secs(60), "never written again");
        }
        // The old one writes no more, not even when it is asked to.
        old.shared.show().unwrap();
        assert_eq!(shown(), expected);
        drop(old);
        assert_eq!(shown(), expected, "the file of the new one stays");
        drop(page);
        drop(new);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    /// The new one's first file comes between the old one's look at the path and its writing.
    #[cfg(all(target_os = "linux", not(zonal_portable)))]
    #[test]
    fn a_successor_that_comes_while_a_pool_writes_keeps_its_file() {
        let directory = directory();
        let path = directory.path().join("pool");
        let (old, new) = (Observer::new(&path), Observer::new(&path));
        // What begins as a pool's file.
        let text = |name: &str| format!("{MAGIC}\n{name}");
        let of_old = Last::Written(old.put(&text("old"), &Last::None).unwrap().unwrap());
        assert!(old.may_write(&of_old).unwrap());
        let of_new = Last::Written(new.put(&text("new"), &Last::None).unwrap().unwrap());
        assert!(old.put(&text("old again"), &of_old).unwrap().is_none());
        assert_eq!(fs::read_to_string(&path).unwrap(), text("new"));
        assert!(!old.may_write(&of_old).unwrap() && new.may_write(&of_new).unwrap());
        let of_new = Last::Written(new.put(&text("new again"), &of_new).unwrap().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text("new again"));
        // Somebody removed it: it comes back.
        fs::remove_file(&path).unwrap();
        assert!(new.may_write(&of_new).unwrap());
        assert!(new.put(&text("new again"), &of_new).unwrap().is_some());
        assert_eq!(fs::read_to_string(&path).unwrap(), text("new again"));
    }

    #[test]
    fn the_file_goes_with_the_last_handle_though_pages_outlive_it() {
        let directory = directory();
        let path = directory.path().join("pool");
        let pool = small().observe(&path).build().unwrap();
        let page = pool.alloc(Order::ZERO).unwrap().into_owned();
        drop(pool);
        assert!(!path.exists());
        drop(page);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
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
