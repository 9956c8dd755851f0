//! What a command makes for the time of its work, and what becomes of it when a signal ends the
//! command: it is removed.
//!
//! A thread waits for the signals that end programs. It renames the leftovers first, so that
//! threads that still work there create nothing new, removes them, and lets the signal end the
//! program as usual; not where the command ends in order by itself, with what it made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

/// Files and directories that go with the program.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();
/// So many more signals are for the command, which looks at them itself.
static FOR_COMMAND: AtomicUsize = AtomicUsize::new(0);

/// A file or directory that a signal removes, while this lives.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    directory: Option<TempDir>,
}

impl Scratch {
    /// Removes `path`, which need not be there yet, if a signal ends the program. Otherwise its
    /// creator removes it.
    ///
    /// # Errors
    /// If signals cannot be waited for.
    pub fn file(path: PathBuf) -> io::Result<Scratch> {
        watch()?;
        left().push(path.clone());
        Ok(Scratch { path, directory: None })
    }

    /// A new directory in `place`, which is removed when this is dropped too.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn directory_in(place: &Path) -> io::Result<Scratch> {
        watch()?;
        // Held while it is made: a signal then waits until it is registered.
        let mut left = left();
        let directory = tempfile::tempdir_in(place)?;
        let path = directory.path().to_owned();
        left.push(path.clone());
        Ok(Scratch { path, directory: Some(directory) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.directory.take());
        left().retain(|path| *path != self.path);
    }
}

/// From here on a signal does not end the program: the command does, in order.
pub fn command_ends_itself() {
    // Relaxed: the number carries no data.
    FOR_COMMAND.store(usize::MAX, Relaxed);
}

/// From here on the first signal is for the command, which ends in order. Another one ends the
/// program.
///
/// # Errors
/// If signals cannot be waited for.
pub fn command_ends_itself_once() -> io::Result<()> {
    // Relaxed: the number carries no data.
    FOR_COMMAND.store(1, Relaxed);
    watch()
}

fn left() -> MutexGuard<'static, Vec<PathBuf>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that waits for signals, once.
fn watch() -> io::Result<()> {
    let mut started = Ok(());
    WATCH.call_once(|| {
        started = Signals::new([SIGINT, SIGTERM, SIGHUP]).and_then(|signals| {
            let thread = std::thread::Builder::new().name("zonal-signals".to_owned());
            thread.spawn(move || end_on(signals)).map(drop)
        });
    });
    started
}

fn end_on(mut signals: Signals) {
    for signal in &mut signals {
        match FOR_COMMAND.load(Relaxed) {
            0 => {}
            usize::MAX => continue,
            // Only this thread takes any away.
            more => {
                FOR_COMMAND.store(more - 1, Relaxed);
                continue;
            }
        }
        // Held to the end: nothing is added after this.
        let left = left();
        left.iter().for_each(|path| remove(path));
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Removes a file or directory; that it cannot be removed changes nothing.
fn remove(path: &Path) {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.removed", std::process::id()));
    let aside = path.with_file_name(name);
    let path = if fs::rename(path, &aside).is_ok() { &aside } else { path };
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}
