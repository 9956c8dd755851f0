//! One process at a time has the file of a sweep.
//!
//! The lock is that of the system, which ends with the process. Where a file system has none (NFS
//! without its lock service, some of clusters), a file beside it, `FILE.lock`, is made, which only
//! one process can make. It stays if its process is killed, so it says whose it is. Hosts that have
//! locks look for it once, when they begin: all hosts that share a file must be of one kind.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::file::{unwritable, wrong};
use crate::LabError;

/// `ENOLCK` of Linux: no lock service answers.
const NO_LOCK_SERVICE: i32 = 37;

/// The file of a sweep, which no other process has meanwhile.
#[derive(Debug)]
pub struct Held {
    pub(super) file: File,
    /// The file that says so where the file system has no locks.
    _beside: Option<Beside>,
}

/// Takes the file of a sweep, which is made if there is none.
///
/// # Errors
/// Another process has it, or it cannot be written.
pub fn hold(path: &Path) -> Result<Held, LabError> {
    hold_by(path, &File::try_lock)
}

fn hold_by(
    path: &Path,
    lock: &dyn Fn(&File) -> Result<(), TryLockError>,
) -> Result<Held, LabError> {
    loop {
        let file = open(path)?;
        match lock(&file) {
            Ok(()) if !is_at(&file, path) => {
                // Its last owner put a finished file in its place meanwhile.
            }
            Ok(()) => {
                let beside = name_beside(path);
                if beside.exists() {
                    return Err(taken(path, &beside));
                }
                return Ok(Held { file, _beside: None });
            }
            Err(TryLockError::WouldBlock) => {
                let what = "another sweep is writing it; expected its end, or another file";
                return Err(wrong(path, &what));
            }
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                let beside = Beside::make(path)?;
                // Opened again: what was there before may have been replaced by its last owner.
                return Ok(Held { file: open(path)?, _beside: Some(beside) });
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(path, &error)),
        }
    }
}

fn open(path: &Path) -> Result<File, LabError> {
    let mut options = OpenOptions::new();
    let file = options.create(true).read(true).append(true).open(path);
    file.map_err(|error| unwritable(path, &error))
}

fn has_no_locks(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        || cfg!(target_os = "linux") && error.raw_os_error() == Some(NO_LOCK_SERVICE)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    // An open file cannot be replaced there.
    true
}

/// A file that says who writes the one beside it; gone with its owner's value.
#[derive(Debug)]
struct Beside(PathBuf);

impl Beside {
    fn make(path: &Path) -> Result<Beside, LabError> {
        let at = name_beside(path);
        let mut file = match OpenOptions::new().write(true).create_new(true).open(&at) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(taken(path, &at)),
            file => file.map_err(|error| unwritable(&at, &error))?,
        };
        let beside = Beside(at);
        let whose = format!("process {} of {}\n", std::process::id(), host());
        file.write_all(whose.as_bytes()).map_err(|error| unwritable(&beside.0, &error))?;
        Ok(beside)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // If it cannot be removed, the next sweep names it.
        let _ = fs::remove_file(&self.0);
    }
}

fn name_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn taken(path: &Path, beside: &Path) -> LabError {
    let whose = fs::read_to_string(beside).unwrap_or_default();
    let whose: String = whose.trim().chars().take(80).collect();
    let whose = if whose.is_empty() { "another process".to_owned() } else { whose };
    let what = format!(
        "{whose} is writing it, says {0}; expected its end, or another file. If that process is no \
         more, remove {0}",
        beside.display()
    );
    wrong(path, &what)
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "a host without a name".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(io::Error::from_raw_os_error(NO_LOCK_SERVICE)))
    }

    fn unsupported(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(ErrorKind::Unsupported.into()))
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn without_locks_a_file_beside_it_keeps_others_out_whether_they_have_locks_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let beside = folder.path().join("a.csv.lock");
        let held = hold_by(&path, &none).unwrap();
        assert!(held._beside.is_some() && beside.exists());
        for lock in [&none as &dyn Fn(&File) -> Result<(), TryLockError>, &unsupported, &|file| {
            file.try_lock()
        }] {
            let error = hold_by(&path, lock).unwrap_err().to_string();
            let own = format!("a.csv: process {} of ", std::process::id());
            assert!(error.contains(&own) && error.contains("a.csv.lock; expected"), "{error}");
        }
        drop(held);
        assert!(!beside.exists());
        assert!(hold(&path).unwrap()._beside.is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_killed_process_left_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("a.csv"), folder.path().join("a.csv.lock"));
        fs::write(&beside, "process 7 of node12\n").unwrap();
        let error = hold_by(&path, &none).unwrap_err().to_string();
        assert!(error.contains("process 7 of node12 is writing it"), "{error}");
        assert!(error.contains("remove ") && beside.exists(), "{error}");
        fs::remove_file(&beside).unwrap();
        hold_by(&path, &none).unwrap();
    }

    #[test]
    fn what_fails_otherwise_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let broken = |_: &File| Err(TryLockError::Error(io::Error::other("on fire")));
        let error = hold_by(&path, &broken).unwrap_err().to_string();
        assert!(error.contains("a.csv: cannot be written: on fire"), "{error}");
        assert!(!folder.path().join("a.csv.lock").exists());
    }
}
