//! tracefs below one path: an instance of our own, its switches and its rings.
//!
//! Tests give a made-up tree; there a directory does not fill itself with files, so how an instance
//! is made is a value.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{RecordError, Step};
use super::values::write;

/// Where tracefs is mounted, by itself and inside debugfs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Names of our instances begin so; the process follows.
pub(crate) const PREFIX: &str = "zonal-";

/// A tracefs.
#[derive(Debug, Clone)]
pub(crate) struct Tracefs {
    pub(crate) root: PathBuf,
    make: fn(&Path) -> io::Result<()>,
    /// How an instance is removed.
    pub(super) remove: fn(&Path) -> io::Result<()>,
}

impl Tracefs {
    /// The tracefs at `root`.
    pub(crate) fn at(root: &Path) -> Tracefs {
        Tracefs {
            root: root.to_owned(),
            make: |path| fs::create_dir(path),
            remove: |path| fs::remove_dir(path),
        }
    }

    /// The same with instances made and removed in other ways.
    #[cfg(test)]
    pub(crate) fn with(
        self,
        make: fn(&Path) -> io::Result<()>,
        remove: fn(&Path) -> io::Result<()>,
    ) -> Tracefs {
        Tracefs { make, remove, ..self }
    }

    /// The one that is mounted.
    pub(crate) fn find() -> Result<Tracefs, (PathBuf, io::Error)> {
        let mut refused = None;
        for place in PLACES.map(Path::new) {
            match fs::read_dir(place.join("instances")) {
                Ok(_) => return Ok(Tracefs::at(place)),
                Err(error) => {
                    refused.get_or_insert((place.to_owned(), error));
                }
            }
        }
        Err(refused.unwrap_or_else(|| (PathBuf::new(), io::ErrorKind::NotFound.into())))
    }

    /// Whether it is there, and this process may look at it.
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        match fs::read_dir(self.instances()) {
            Ok(_) => Ok(()),
            Err(error) => Err(RecordError::new(Step::Find, &self.root, error)),
        }
    }

    /// Where instances are. Recorders lock this directory.
    pub(crate) fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// The instance of this process, which may not exist yet.
    pub(crate) fn instance(&self) -> Instance {
        Instance { path: self.instances().join(format!("{PREFIX}{}", std::process::id())) }
    }

    pub(crate) fn make(&self, instance: &Instance) -> io::Result<()> {
        (self.make)(&instance.path)
    }

    /// Instances of recorders.
    pub(crate) fn own_instances(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.instances());
        let paths = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        paths.filter(|path| process_of(path).is_some()).collect()
    }

    /// Instances of recorders that are gone, guards and all.
    pub(crate) fn abandoned(&self) -> Vec<PathBuf> {
        let is_gone = |path: &PathBuf| {
            let process = process_of(path).unwrap_or_default();
            !Path::new(&format!("/proc/{process}")).exists()
        };
        self.own_instances().into_iter().filter(is_gone).collect()
    }
}

/// The process that made an instance, by the instance's name.
fn process_of(instance: &Path) -> Option<u32> {
    instance.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// Rings and switches of one's own.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) path: PathBuf,
}

impl Instance {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> io::Result<()> {
        write(&self.file(name), value)
    }

    /// The CPUs with a ring.
    pub(crate) fn cpus(&self) -> io::Result<Vec<u32>> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(self.file("per_cpu"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            cpus.extend(name.strip_prefix("cpu").and_then(|cpu| cpu.parse::<u32>().ok()));
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// KiB that all rings take; `None`: the kernel does not say.
    pub(crate) fn ring_kib(&self) -> Option<u64> {
        fs::read_to_string(self.file("buffer_total_size_kb")).ok()?.trim().parse().ok()
    }

    /// Counts of a CPU's ring.
    pub(crate) fn stats(&self, cpu: u32) -> io::Result<RingStats> {
        let text = fs::read_to_string(self.file(&format!("per_cpu/cpu{cpu}/stats")))?;
        Ok(RingStats::parse(&text))
    }

    /// Moves a CPU's pages into `output`; returns how many bytes. Tracing must be off.
    pub(crate) fn take_pages(&self, cpu: u32, page: usize, output: &Path) -> io::Result<u64> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let path = self.file(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let mut ring = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let mut output = io::BufWriter::with_capacity(1 << 18, File::create(output)?);
        let mut buffer = vec![0; page];
        let mut total = 0;
        loop {
            match ring.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    // A page that is not full may come short; in a file all have one size.
                    buffer[bytes..].fill(0);
                    output.write_all(&buffer)?;
                    total += page as u64;
                }
                Err(error) if is_end(&error) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        output.flush()?;
        Ok(total)
    }
}

/// Whether this answer says that a ring has no more pages. A CPU that was off when the rings were
/// made, and since, has none: there it is `ENODEV`.
fn is_end(error: &io::Error) -> bool {
    let no_ring = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(no_ring)
}

/// The header of ring pages. The kernel gives it to the first read alone, however short that is.
pub(crate) fn header_page(root: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(1 << 16);
    File::open(root.join("events/header_page"))?.read_to_end(&mut text)?;
    Ok(text)
}

/// Counts of a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RingStats {
    pub(crate) entries: u64,
    /// Missing events, for any reason.
    pub(crate) dropped: u64,
}

impl RingStats {
    fn parse(text: &str) -> RingStats {
        let mut stats = RingStats::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim().parse().unwrap_or(0);
            match name {
                "entries" => stats.entries = value,
                "overrun" | "commit overrun" | "dropped events" => stats.dropped += value,
                _ => {}
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_are_read() {
        let text = "entries: 19572\noverrun: 2\ncommit overrun: 3\nbytes: 507544\n\
            oldest event ts:  3993.168840\nnow ts:  3994.524349\ndropped events: 4\n\
            read events: 0\n";
        assert_eq!(RingStats::parse(text), RingStats { entries: 19572, dropped: 9 });
    }

    #[test]
    fn a_cpu_that_was_off_has_a_ring_without_pages() {
        let error = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_end(&error(rustix::io::Errno::NODEV)));
        assert!(is_end(&error(rustix::io::Errno::AGAIN)));
        assert!(!is_end(&error(rustix::io::Errno::IO)));
    }

    #[test]
    fn only_instances_of_processes_that_are_gone_are_abandoned() {
        let root = tempfile::tempdir().unwrap();
        let own = format!("{PREFIX}{}", std::process::id());
        // Above the largest process number of 64-bit kernels.
        let gone = format!("{PREFIX}{}", 1 << 23);
        for name in [own.as_str(), &gone, "foo", "zonal-x"] {
            fs::create_dir_all(root.path().join("instances").join(name)).unwrap();
        }
        let found = Tracefs::at(root.path()).abandoned();
        assert_eq!(found, [root.path().join("instances").join(gone)]);
    }
}
