//! What must be put back, and who does it.
//!
//! Before a recorder changes anything it writes down how to undo the change: a line in the host's
//! list of changes, and the same line to a *guard*, a process of its own, on its standard input.
//! When that pipe ends, the guard undoes everything that is left, the last change first, and says
//! what it could not. It ends when the recorder closes it, and also when the recorder is killed, by
//! whatever signal: the kernel closes the pipe. If the guard is killed too, the list is what the
//! next recorder begins with.
//!
//! ```text
//!  recorder ── write /proc/sys/… 0 9 ──► list, guard   (then the recorder writes 9 to the file)
//!           ── done  /proc/sys/… ──────►               (then it has put 0 back itself)
//!           ── end of pipe ────────────► guard undoes the rest, removes the list, ends
//! ```
//! - **UNDO-1** a line is written before its change is made: a change without its line does not
//!   exist, and undoing what was never done changes nothing
//! - **UNDO-2** there is one path: a recorder that ends well is undone by the guard too
//! - **UNDO-3** a setting is put back only while it has the value that the recorder gave it, or
//!   that the kernel made of that: what somebody else set meanwhile stays
//! - **UNDO-4** where the kernel may keep another value than it is given, the first line says
//!   `try`, and a `write` line with the value that the kernel kept takes its place once that is
//!   read. A recorder that is killed in between leaves a value that nobody knows: the guard, which
//!   comes at once, takes it for the recorder's; the next recorder, which may come days later, asks
//!   a person
//! - **UNDO-5** a recorder that is killed may still have files of its instance open when its pipe
//!   has ended: the instance is busy then, and its removal is tried again for some seconds
//! - **UNDO-6** what the kernel computes from a value that is put back is as without the recorder:
//!   lists that follow watermarks do not keep bounds from boosted ones (`values`)

use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::values::put_back;

/// How long an instance may be busy (UNDO-5); others wait for the guard a little longer.
const BUSY: Duration = Duration::from_secs(4);

/// How to undo one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Write `value` back, if the file still says `ours`.
    Write { path: PathBuf, value: String, ours: String },
    /// Write `value` back: `ours` is being written, and what the kernel makes of it is not known.
    Try { path: PathBuf, value: String, ours: String },
    /// Remove this directory, which tracefs empties by itself.
    Remove { path: PathBuf },
}

impl Undo {
    pub(super) fn path(&self) -> &Path {
        match self {
            Undo::Write { path, .. } | Undo::Try { path, .. } | Undo::Remove { path } => path,
        }
    }

    /// The line of the list.
    pub(crate) fn line(&self) -> String {
        match self {
            Undo::Write { path, value, ours } => {
                format!("write\t{}\t{value}\t{ours}\n", path.display())
            }
            Undo::Try { path, value, ours } => {
                format!("try\t{}\t{value}\t{ours}\n", path.display())
            }
            Undo::Remove { path } => format!("remove\t{}\n", path.display()),
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Undo::Write { path, value, .. } | Undo::Try { path, value, .. } => {
                format!("write `{value}` back to {}", path.display())
            }
            Undo::Remove { path } => format!("remove {}", path.display()),
        }
    }

    fn parse(line: &str) -> Option<Note> {
        let mut words = line.trim_end_matches('\n').split('\t');
        let (verb, path) = (words.next()?, PathBuf::from(words.next()?));
        match verb {
            "write" | "try" => {
                let (value, ours) = (words.next()?.to_owned(), words.next()?.to_owned());
                Some(Note::Do(match verb {
                    "try" => Undo::Try { path, value, ours },
                    _ => Undo::Write { path, value, ours },
                }))
            }
            "remove" => Some(Note::Do(Undo::Remove { path })),
            "done" => Some(Note::Done(path)),
            "list" => Some(Note::List(path)),
            _ => None,
        }
    }

    /// Undoes the change. What was found already undone is `false`.
    pub(crate) fn run(&self, remove: fn(&Path) -> io::Result<()>) -> io::Result<bool> {
        match self {
            Undo::Write { path, value, ours } => {
                let is_ours = same_words(&fs::read_to_string(path)?, ours);
                if is_ours {
                    put_back(path, value)?;
                }
                Ok(is_ours)
            }
            Undo::Try { path, value, .. } => {
                let is_changed = !same_words(&fs::read_to_string(path)?, value);
                if is_changed {
                    put_back(path, value)?;
                }
                Ok(is_changed)
            }
            Undo::Remove { path } => match remove_free(path, remove) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                other => other.map(|()| true),
            },
        }
    }
}

/// Removes what is, or becomes, free (UNDO-5).
fn remove_free(path: &Path, remove: fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match remove(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < BUSY => {
                thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// A line of the list, or to the guard.
enum Note {
    Do(Undo),
    Done(PathBuf),
    /// Where the list is.
    List(PathBuf),
}

/// A value on one line, with one space between its numbers: tabs separate the list's fields.
pub(super) fn one_line(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether two values are the same but for the blanks between their numbers.
pub(super) fn same_words(one: &str, other: &str) -> bool {
    one.split_ascii_whitespace().eq(other.split_ascii_whitespace())
}

/// Keeper of the list of changes.
pub(crate) trait Journal {
    /// Notes how to undo a change that comes next.
    fn note(&mut self, undo: &Undo) -> io::Result<()>;
    /// A change was undone.
    fn done(&mut self, path: &Path) -> io::Result<()>;
}

/// The guard's work: reads the list to its end, undoes what is left, the last change first. Returns
/// what could not be undone, in words.
pub fn serve(input: impl BufRead) -> Vec<String> {
    serve_with(input, |path| fs::remove_dir(path))
}

pub(super) fn serve_with(input: impl BufRead, remove: fn(&Path) -> io::Result<()>) -> Vec<String> {
    let changes = parse_all(input);
    let undone = changes.undo(remove);
    if let Some(list) = changes.list.filter(|_| undone.failures.is_empty()) {
        // HOST-3. If it cannot be removed, the next recorder finds everything undone.
        let _ = fs::remove_file(list);
    }
    undone.failures
}

/// Changes that are not undone, the first one first.
#[derive(Debug, Default)]
pub(super) struct Changes {
    list: Option<PathBuf>,
    undos: Vec<Undo>,
}

/// What came of undoing.
#[derive(Debug, Default)]
pub(super) struct Undone {
    /// What was put back, in words.
    pub remarks: Vec<String>,
    /// What could not be.
    pub failures: Vec<String>,
}

/// Reads a list of changes.
pub(super) fn parse_all(input: impl BufRead) -> Changes {
    let mut changes = Changes::default();
    // A line that cannot be read ends the list: the recorder is gone.
    for line in input.lines().map_while(Result::ok) {
        match Undo::parse(&line) {
            Some(Note::Do(undo)) => {
                // UNDO-4: what the kernel kept is known now.
                let is_settled = |last: &mut Undo| {
                    matches!(last, Undo::Try { .. }) && last.path() == undo.path()
                };
                changes.undos.pop_if(is_settled);
                changes.undos.push(undo);
            }
            // The last change of it: an earlier one may still be on.
            Some(Note::Done(path)) => {
                let last = changes.undos.iter().rposition(|undo| undo.path() == path);
                last.map(|last| changes.undos.remove(last));
            }
            Some(Note::List(path)) => changes.list = Some(path),
            None => {}
        }
    }
    changes
}

impl Changes {
    /// What is to do, in words, in the order in which it is done.
    pub(super) fn describe(&self) -> Vec<String> {
        self.undos.iter().rev().map(Undo::words).collect()
    }

    /// Settings whose value may be a killed recorder's or somebody else's, in words (UNDO-4).
    pub(super) fn unknown(&self) -> Vec<String> {
        let words = |undo: &Undo| {
            let Undo::Try { path, value, ours } = undo else { return None };
            let now = one_line(&fs::read_to_string(path).ok()?);
            let is_known = [value, ours].iter().any(|known| same_words(&now, known));
            (!is_known).then(|| {
                format!(
                    "{} is `{now}`, which the kernel made of `{ours}` or somebody has set since: \
                     write `{value}` to it, which it was, or leave it",
                    path.display()
                )
            })
        };
        self.undos.iter().filter_map(words).collect()
    }

    /// Undoes the last change first.
    pub(super) fn undo(&self, remove: fn(&Path) -> io::Result<()>) -> Undone {
        let mut undone = Undone::default();
        for undo in self.undos.iter().rev() {
            let words = undo.words();
            match undo.run(remove) {
                Ok(true) => undone.remarks.push(format!("a recorder was killed: had to {words}")),
                Ok(false) => {}
                Err(error) => undone.failures.push(format!("could not {words}: {error}")),
            }
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo_write(path: &Path, value: &str, ours: &str) -> String {
        Undo::Write { path: path.to_owned(), value: value.to_owned(), ours: ours.to_owned() }.line()
    }

    #[test]
    fn the_last_change_is_undone_first_and_done_ones_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        for name in ["a", "b", "list"] {
            fs::write(file(name), "now\n").unwrap();
        }
        fs::create_dir(file("instance")).unwrap();
        let lines = [
            format!("list\t{}\n", file("list").display()),
            Undo::Remove { path: file("instance") }.line(),
            undo_write(&file("a"), "first", "second"),
            undo_write(&file("a"), "second", "now"),
            undo_write(&file("b"), "old", "now"),
            format!("done\t{}\n", file("b").display()),
            "strange\n".to_owned(),
        ];
        assert_eq!(serve(lines.concat().as_bytes()), Vec::<String>::new());
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "first");
        assert_eq!(fs::read_to_string(file("b")).unwrap(), "now\n");
        assert!(!file("instance").exists());
        assert!(!file("list").exists(), "HOST-3: everything is undone");
    }

    #[test]
    fn what_cannot_be_undone_is_said_and_the_rest_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().join("here");
        let list = directory.path().join("list");
        fs::write(&here, "now").unwrap();
        fs::write(&list, "").unwrap();
        let gone = directory.path().join("gone");
        let lines = [
            format!("list\t{}\n", list.display()),
            undo_write(&here, "old", "now"),
            undo_write(&gone, "7", "now"),
            Undo::Remove { path: gone.clone() }.line(),
        ];
        let failures = serve(lines.concat().as_bytes());
        assert_eq!(failures.len(), 1, "a directory that is gone is as wanted: {failures:?}");
        assert!(failures[0].contains("could not write `7` back to"), "{failures:?}");
        assert_eq!(fs::read_to_string(here).unwrap(), "old");
        assert!(!gone.exists(), "settings are never made");
        assert!(list.exists(), "HOST-3: something is not undone");
    }

    #[test]
    fn an_instance_that_a_dying_recorder_still_has_open_is_removed_once_it_is_free() {
        use std::sync::atomic::{AtomicU32, Ordering};

        static TRIES: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("instance");
        fs::create_dir(&path).unwrap();
        let line = Undo::Remove { path: path.clone() }.line();
        let failures =
            serve_with(line.as_bytes(), |path| match TRIES.fetch_add(1, Ordering::Relaxed) {
                0..3 => Err(io::ErrorKind::ResourceBusy.into()),
                _ => fs::remove_dir(path),
            });
        assert_eq!(failures, Vec::<String>::new(), "UNDO-5");
        assert!(!path.exists());
    }

    #[test]
    fn a_change_inside_another_of_the_same_file_is_undone_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fraction");
        fs::write(&path, "8").unwrap();
        let lines = [
            undo_write(&path, "0", "8"),
            undo_write(&path, "8", "1000000"),
            format!("done\t{}\n", path.display()),
        ];
        assert_eq!(serve(lines.concat().as_bytes()), Vec::<String>::new());
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
    }

    #[test]
    fn a_value_that_the_kernel_made_of_an_unfinished_try_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("setting");
        let (value, ours) = ("5".to_owned(), "99".to_owned());
        let tried = Undo::Try { path: path.clone(), value, ours };
        // Killed before the write, after it, and after a write of which the kernel made 7.
        for now in ["5\n", "99\n", "7\n"] {
            fs::write(&path, now).unwrap();
            assert_eq!(serve(tried.line().as_bytes()), Vec::<String>::new());
            let after = fs::read_to_string(&path).unwrap();
            assert_eq!(after.trim(), "5", "UNDO-4: it was {now}");
        }
        // Once what the kernel kept is written down, UNDO-3 holds again.
        fs::write(&path, "8").unwrap();
        let settled = tried.line() + &undo_write(&path, "5", "7");
        assert_eq!(serve(settled.as_bytes()), Vec::<String>::new());
        assert_eq!(fs::read_to_string(&path).unwrap(), "8");
        assert_eq!(parse_all(settled.as_bytes()).unknown(), Vec::<String>::new());
    }

    #[test]
    fn who_comes_later_asks_a_person_about_a_value_that_nobody_knows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("setting");
        let (value, ours) = ("5".to_owned(), "99".to_owned());
        let changes = parse_all(Undo::Try { path: path.clone(), value, ours }.line().as_bytes());
        for (now, is_known) in [("5", true), ("99", true), ("7", false)] {
            fs::write(&path, now).unwrap();
            let unknown = changes.unknown();
            assert_eq!(unknown.is_empty(), is_known, "{now}: {unknown:?}");
            let said = |words: &String| words.contains("is `7`") && words.contains("write `5`");
            assert!(unknown.iter().all(said), "{unknown:?}");
        }
    }

    #[test]
    fn what_somebody_else_set_meanwhile_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fraction");
        fs::write(&path, "8\n").unwrap();
        assert_eq!(serve(undo_write(&path, "0", "1000000").as_bytes()), Vec::<String>::new());
        assert_eq!(fs::read_to_string(&path).unwrap(), "8\n", "UNDO-3");
    }
}
