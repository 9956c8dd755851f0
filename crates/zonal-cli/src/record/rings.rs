//! Ring pages of a recording, in a folder `.NAME.PROCESS.rings` beside its file until that is made.
//!
//! A recorder that is killed leaves its folder. The next one that records into the same place takes
//! it away, unless all of a recording is in it, which can still be made into a file.
//!
//! - **RINGS-1** a recorder holds a lock on its folder while it lives: what is locked, or of a
//!   process that is there, is left alone

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use zonal_trace::place;

use super::load::is_running;
use crate::output::folder_of;

/// Written last: with it a folder is a recording.
const LAST: &str = "meta.json";
const ENDING: &str = ".rings";
/// Least digits of a window's number.
pub const DIGITS: usize = 6;

/// The folder of this recording.
pub struct Rings {
    path: PathBuf,
    /// RINGS-1; `None` where the file system has no locks.
    _lock: Option<File>,
}

impl Rings {
    /// A new folder beside `output`.
    ///
    /// # Errors
    /// If it cannot be made, by the name of the output.
    pub fn beside(output: &Path) -> anyhow::Result<Rings> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let path = output.with_file_name(format!(".{name}.{}{ENDING}", std::process::id()));
        fs::create_dir(&path).with_context(|| {
            format!("{}: cannot make a folder for ring pages beside it", output.display())
        })?;
        let lock = lock(&path);
        Ok(Rings { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

/// Whether there is a whole recording in a folder.
pub fn is_whole(folder: &Path) -> bool {
    fs::metadata(folder.join(LAST)).is_ok_and(|last| last.is_file() && last.len() > 0)
}

/// Whether a file's name is one of a window.
fn is_window(name: &str) -> bool {
    let number = name.strip_suffix(".zonal").and_then(|name| name.rsplit_once('-'));
    number.is_some_and(|(_, number)| {
        number.len() >= DIGITS && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// What to do with ring pages of which no file was made.
pub fn remedy(folder: &Path) -> String {
    format!(
        "the ring pages are kept in {0}: `zonal trace convert {0} FILE.zonal` makes a trace of \
         them, `rm -r {0}` removes them",
        folder.display()
    )
}

/// Removes what killed recorders left beside `output`, and says so. Of windows nothing is kept:
/// many of them would fill the disk. Nobody else records on this host meanwhile.
pub fn clean(output: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder_of(output)) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter_map(|path| clean_one(&path)).collect()
}

fn clean_one(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (of, process) = name.strip_prefix('.')?.strip_suffix(ENDING)?.rsplit_once('.')?;
    let process: i32 = process.parse().ok().filter(|process| *process > 0)?;
    // RINGS-1. A link is nobody's folder.
    if path.is_symlink() || !path.is_dir() || is_running(process) {
        return None;
    }
    let _lock = lock(path)?;
    // What it had begun to write: it has neither an end nor a reader.
    let part = place::part_of(&path.with_file_name(of), process.unsigned_abs())?;
    let _ = if part.is_dir() { fs::remove_dir_all(&part) } else { fs::remove_file(&part) };
    let shown = path.display();
    if is_whole(path) && !is_window(of) {
        return Some(format!("process {process} did not make a file of {of}: {}", remedy(path)));
    }
    Some(match fs::remove_dir_all(path) {
        Ok(()) => format!("removed {shown}, left by a recorder that was killed"),
        Err(error) => {
            format!("could not remove {shown}, left by a recorder that was killed: {error}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is no more.
    fn gone() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn the_next_recorder_removes_what_a_killed_one_left_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.zonal");
        let make = |name: &str, process: u32, is_whole: bool| {
            let path = folder.path().join(format!(".{name}.{process}{ENDING}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("cpu0"), "pages").unwrap();
            if is_whole {
                fs::write(path.join(LAST), "{}").unwrap();
            }
            path
        };
        let (dead, own) = (gone(), std::process::id());
        let killed = make("a.zonal", dead, false);
        let killed_window = make("day-000007.zonal", dead, true);
        let whole = make("b.zonal", dead, true);
        let alive = make("c.zonal", own, false);
        let part = folder.path().join(format!(".a.zonal.{dead}.part"));
        fs::write(&part, "half").unwrap();
        // One of another process number space: its process is not seen here, its lock is.
        let locked = make("d.zonal", dead, false);
        let lock = lock(&locked).unwrap();
        let notes = clean(&output);
        assert!(!killed.exists() && !killed_window.exists() && !part.exists(), "{notes:?}");
        assert!(whole.exists() && alive.exists() && locked.exists(), "{notes:?}");
        assert_eq!(notes.len(), 3, "{notes:?}");
        let said = |what: &str| notes.iter().filter(|note| note.contains(what)).count();
        assert_eq!((said("removed "), said("zonal trace convert")), (2, 1), "{notes:?}");
        drop(lock);
        assert_eq!(clean(&output).len(), 2, "what is not locked any more, and the whole one again");
        assert!(!locked.exists());
    }

    #[test]
    fn a_recorders_own_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let rings = Rings::beside(&folder.path().join("a.zonal")).unwrap();
        assert!(lock(rings.path()).is_none(), "RINGS-1");
        assert_eq!(clean(&folder.path().join("b.zonal")), Vec::<String>::new());
        assert!(rings.path().is_dir());
        let error = Rings::beside(Path::new("/nowhere/a.zonal")).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/a.zonal: "), "{error}");
    }
}
