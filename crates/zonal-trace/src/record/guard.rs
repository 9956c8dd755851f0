//! The process that undoes what a recorder changed: the recorder's end of it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::error::{RecordError, Step};
use super::host::Host;
use super::tracefs::Tracefs;
use super::undo::{Journal, Undo, one_line, same_words};
use super::values::write;

/// A guard in a process of its own, on a host that is taken.
#[derive(Debug)]
pub struct Guard {
    host: Host,
    changes: File,
    /// Settings that were changed and not put back, the first one first.
    set: Vec<Undo>,
    /// `None` once it was waited for.
    child: Option<Child>,
}

impl Guard {
    /// Starts a guard: `command` must come to [`serve`](super::serve) on its standard input. It
    /// runs in its own process group, so that Ctrl-C on the recorder's terminal does not reach it.
    ///
    /// # Errors
    /// If it cannot be started, or the list of changes cannot be begun.
    pub fn start(host: Host, command: &mut Command) -> Result<Guard, RecordError> {
        use std::os::unix::process::CommandExt;
        let list = host.changes();
        let in_list = |error| RecordError::new(Step::Guard, &list, error);
        let changes = host.begin_changes().map_err(in_list)?;
        // Its standard output is the lock, which nobody writes to (HOST-1).
        let lock = host.share().map_err(in_list)?;
        command.process_group(0).stdin(Stdio::piped()).stdout(lock).stderr(Stdio::piped());
        let path = Path::new(command.get_program()).to_owned();
        let in_guard = |error| RecordError::new(Step::Guard, &path, error);
        let child = command.spawn().map_err(in_guard)?;
        let mut guard = Guard { host, changes, set: Vec::new(), child: Some(child) };
        guard.send(&format!("list\t{}\n", list.display())).map_err(in_guard)?;
        Ok(guard)
    }

    /// Sets a file of settings, such as one below `/proc/sys`, until [`restore`](Self::restore) or
    /// the guard's end, whatever comes first.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the kernel keeps another value than this; then
    /// the old one is put back. [`Step::Restore`]: that failed too, and the guard tries again at
    /// its end.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), RecordError> {
        let failed = |error| RecordError::new(Step::Setting, path, error);
        let old = one_line(&fs::read_to_string(path).map_err(failed)?);
        let ours = one_line(value);
        // UNDO-4: killed before the value is read back, the guard puts the old one back.
        let tried = Undo::Try { path: path.to_owned(), value: old.clone(), ours: ours.clone() };
        self.note(&tried).map_err(failed)?;
        write(path, &ours).map_err(failed)?;
        let now = fs::read_to_string(path).map_err(|error| not_back(&tried, error))?;
        let now = one_line(&now);
        let kept = Undo::Write { path: path.to_owned(), value: old.clone(), ours: now.clone() };
        let noted = self.note(&kept);
        if same_words(&now, &ours) {
            self.set.push(kept);
            return noted.map_err(failed);
        }
        // The old one is put back even if this line cannot be written down.
        write(path, &old).map_err(|error| not_back(&kept, error))?;
        noted.and_then(|()| self.done(path)).map_err(failed)?;
        let text = format!("the kernel made `{now}` of `{ours}`");
        Err(failed(io::Error::other(text)))
    }

    /// Puts the files of settings back that [`set`](Self::set) changed.
    ///
    /// # Errors
    /// If one cannot be written; the guard tries again at its end.
    pub fn restore(&mut self) -> Result<(), RecordError> {
        while let Some(undo) = self.set.last() {
            let path = undo.path().to_owned();
            if let Err(error) = undo.run(self.host.tracefs.remove) {
                return Err(not_back(undo, error));
            }
            let failed = |error| RecordError::new(Step::Setting, &path, error);
            self.done(&path).map_err(failed)?;
            self.set.pop();
        }
        Ok(())
    }

    /// Ends the list, waits until everything is put back, and returns what could not be.
    ///
    /// # Errors
    /// If the guard cannot be waited for.
    pub fn finish(mut self) -> io::Result<Vec<String>> {
        let Some(child) = self.child.take() else { return Ok(Vec::new()) };
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let mut failures: Vec<String> = text.lines().map(str::to_owned).collect();
        if !output.status.success() && failures.is_empty() {
            // It was killed, and the list is still there.
            failures.extend(self.host.recover().err().map(|error| error.to_string()));
        }
        Ok(failures)
    }

    pub(super) fn tracefs(&self) -> Tracefs {
        self.host.tracefs.clone()
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        let pipe = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        let Some(pipe) = pipe else { return Err(io::ErrorKind::BrokenPipe.into()) };
        pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush())
    }

    fn write_down(&mut self, line: &str) -> io::Result<()> {
        self.changes.write_all(line.as_bytes())?;
        self.send(line)
    }
}

/// A setting that could not be put back.
fn not_back(undo: &Undo, error: io::Error) -> RecordError {
    let now = match fs::read_to_string(undo.path()) {
        Ok(now) => format!("is `{}` now", one_line(&now)),
        Err(_) => "cannot be read".to_owned(),
    };
    let text = format!("{error}: it {now}, and somebody must {}", undo.words());
    RecordError::new(Step::Restore, undo.path(), io::Error::new(error.kind(), text))
}

impl Journal for Guard {
    fn note(&mut self, undo: &Undo) -> io::Result<()> {
        self.write_down(&undo.line())
    }

    fn done(&mut self, path: &Path) -> io::Result<()> {
        self.write_down(&format!("done\t{}\n", path.display()))
    }
}

impl Drop for Guard {
    /// A recorder that panics or returns early waits too until everything is put back.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
