//! What must be put back, and who does it.
//!
//! Before each change the recorder sends a *guard*, a separate process, a line that says how to
//! undo it. When that pipe ends, the guard undoes what is left, the last change first, and reports
//! what it could not undo. The pipe ends when the recorder closes it or is killed by any signal.
//!
//! ```text
//!  recorder ── write /proc/sys/… 0 ──► guard        (then the recorder writes the file)
//!           ── done  /proc/sys/… ────►              (then it has put it back itself)
//!           ── end of pipe ──────────► undoes the rest, says what failed, ends
//! ```
//! - **UNDO-1** a line is written before its change is made: a change without its line does not
//!   exist, and undoing what was never done changes nothing
//! - **UNDO-2** there is one path: a recorder that ends well is undone by the guard too

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::error::{RecordError, Step};

/// How to undo one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Write this value back.
    Write { path: PathBuf, value: String },
    /// Remove this directory, which tracefs empties by itself.
    Remove { path: PathBuf },
}

impl Undo {
    fn path(&self) -> &Path {
        match self {
            Undo::Write { path, .. } | Undo::Remove { path } => path,
        }
    }

    fn line(&self) -> String {
        match self {
            Undo::Write { path, value } => format!("write\t{}\t{value}\n", path.display()),
            Undo::Remove { path } => format!("remove\t{}\n", path.display()),
        }
    }

    fn parse(line: &str) -> Option<Note> {
        let mut words = line.trim_end_matches('\n').split('\t');
        let (verb, path) = (words.next()?, PathBuf::from(words.next()?));
        match verb {
            "write" => Some(Note::Do(Undo::Write { path, value: words.next()?.to_owned() })),
            "remove" => Some(Note::Do(Undo::Remove { path })),
            "done" => Some(Note::Done(path)),
            _ => None,
        }
    }

    fn run(&self, remove: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        match self {
            Undo::Write { path, value } => write(path, value),
            Undo::Remove { path } => match remove(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            },
        }
    }
}

/// A line to the guard.
enum Note {
    Do(Undo),
    Done(PathBuf),
}

/// Writes to a file that must be there: settings are never made.
pub(crate) fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}

/// Keeper of the list of changes.
pub(crate) trait Journal {
    /// Notes how to undo a change that comes next.
    fn note(&mut self, undo: &Undo) -> io::Result<()>;
    /// A change was undone.
    fn done(&mut self, path: &Path) -> io::Result<()>;
}

/// A guard in a separate process.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Starts a guard: `command` must come to [`serve`] on its standard input. It runs in its own
    /// process group, so that Ctrl-C on the recorder's terminal does not reach it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Guard, RecordError> {
        use std::os::unix::process::CommandExt;
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn();
        let path = Path::new(command.get_program());
        Ok(Guard { child: child.map_err(|error| RecordError::new(Step::Guard, path, error))? })
    }

    /// Ends the list, waits until everything is put back, and returns what could not be.
    ///
    /// # Errors
    /// If the guard cannot be waited for.
    pub fn finish(self) -> io::Result<Vec<String>> {
        let output = self.child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let mut failures: Vec<String> = text.lines().map(str::to_owned).collect();
        if !output.status.success() && failures.is_empty() {
            failures.push(format!("the guard ended with {}", output.status));
        }
        Ok(failures)
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        let Some(pipe) = &mut self.child.stdin else { return Ok(()) };
        pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush())
    }
}

impl Journal for Guard {
    fn note(&mut self, undo: &Undo) -> io::Result<()> {
        self.send(&undo.line())
    }

    fn done(&mut self, path: &Path) -> io::Result<()> {
        self.send(&format!("done\t{}\n", path.display()))
    }
}

/// The guard's work: reads the list to its end, undoes what is left, the last change first. Returns
/// what could not be undone, in words.
pub fn serve(input: impl BufRead) -> Vec<String> {
    serve_with(input, |path| fs::remove_dir(path))
}

pub(super) fn serve_with(input: impl BufRead, remove: fn(&Path) -> io::Result<()>) -> Vec<String> {
    let mut list: Vec<Undo> = Vec::new();
    // A line that cannot be read ends the list: the recorder is gone.
    for line in input.lines().map_while(Result::ok) {
        match Undo::parse(&line) {
            Some(Note::Do(undo)) => list.push(undo),
            Some(Note::Done(path)) => list.retain(|undo| undo.path() != path),
            None => {}
        }
    }
    let failed = |undo: &Undo| {
        let error = undo.run(remove).err()?;
        Some(match undo {
            Undo::Write { path, value } => {
                format!("could not write `{value}` back to {}: {error}", path.display())
            }
            Undo::Remove { path } => format!("could not remove {}: {error}", path.display()),
        })
    };
    list.iter().rev().filter_map(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_is_undone_first_and_done_ones_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        for name in ["a", "b"] {
            fs::write(file(name), "now").unwrap();
        }
        fs::create_dir(file("instance")).unwrap();
        let write = |name: &str, value: &str| {
            Undo::Write { path: file(name), value: value.to_owned() }.line()
        };
        let lines = [
            Undo::Remove { path: file("instance") }.line(),
            write("a", "first"),
            write("a", "second"),
            write("b", "old"),
            format!("done\t{}\n", file("b").display()),
            "strange\n".to_owned(),
        ];
        assert_eq!(serve(lines.concat().as_bytes()), Vec::<String>::new());
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "first");
        assert_eq!(fs::read_to_string(file("b")).unwrap(), "now");
        assert!(!file("instance").exists());
    }

    #[test]
    fn what_cannot_be_undone_is_said_and_the_rest_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().join("here");
        fs::write(&here, "now").unwrap();
        let gone = directory.path().join("gone");
        let lines = [
            Undo::Write { path: here.clone(), value: "old".to_owned() }.line(),
            Undo::Write { path: gone.clone(), value: "7".to_owned() }.line(),
            Undo::Remove { path: gone.clone() }.line(),
        ];
        let failures = serve(lines.concat().as_bytes());
        assert_eq!(failures.len(), 1, "a directory that is gone is as wanted: {failures:?}");
        assert!(failures[0].contains("could not write `7` back to"), "{failures:?}");
        assert_eq!(fs::read_to_string(here).unwrap(), "old");
        assert!(!gone.exists(), "settings are never made");
    }
}
