//! One recorder at a time, and what a killed one left.
//!
//! ```text
//!  take ──► flock of tracefs/instances     one per kernel, whatever containers see of /run
//!       ├─► /run/zonal/changes             of a recorder that was killed: undone, then removed
//!       └─► /run/zonal/recorder            who holds the lock: process, since, command
//! ```
//! - **HOST-1** the lock is held until everything is undone: recorder and guard share one open file
//!   of it, and the kernel frees the lock when both have ended, in whatever way
//! - **HOST-2** a setting is read as the old one only under the lock, after `changes` was undone,
//!   and never if it is the recorder's own temporary value
//! - **HOST-3** a line of `changes` is written before its change (UNDO-1), and the file is removed
//!   only when everything in it is undone

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use super::error::{RecordError, Step};
use super::machine::Roots;
use super::tracefs::Tracefs;
use super::undo;

/// Time between two tries to get the lock.
const RETRY: Duration = Duration::from_millis(50);
/// A killed recorder's guard needs this long at most to put settings back.
const GUARD_ENDS: Duration = Duration::from_secs(5);
/// Which boot of the kernel a list of changes belongs to.
const BOOT: &str = "sys/kernel/random/boot_id";

/// This host, held by one recorder. Dropped, it is free for the next.
#[derive(Debug)]
pub struct Host {
    lock: File,
    pub(super) tracefs: Tracefs,
    state: PathBuf,
    boot: String,
    /// What was found and undone, for people.
    pub notes: Vec<String>,
}

impl Host {
    /// Takes the lock, and undoes what a killed recorder left. `command` is what others are told
    /// about the holder; `wait` is how long to wait for another recorder to end.
    ///
    /// # Errors
    /// If tracefs is not there, another recorder has the lock, or something that was left cannot
    /// be undone.
    pub fn take(roots: &Roots, command: &str, wait: Duration) -> Result<Host, RecordError> {
        let tracefs = match &roots.tracefs {
            Some(root) => Tracefs::at(root),
            None => Tracefs::find()
                .map_err(|(path, error)| RecordError::new(Step::Find, &path, error))?,
        };
        Host::take_at(tracefs, roots, command, wait)
    }

    pub(super) fn take_at(
        tracefs: Tracefs,
        roots: &Roots,
        command: &str,
        wait: Duration,
    ) -> Result<Host, RecordError> {
        let state = roots.state_directory();
        let lock = lock(&tracefs, &state, wait)?;
        let failed = |error| RecordError::new(Step::Lock, &state, error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(failed)?;
        let boot = boot(roots);
        let mut host = Host { lock, tracefs, state, boot, notes: Vec::new() };
        host.recover()?;
        let holder =
            Holder { process: std::process::id(), since: now_s(), command: command.to_owned() };
        let path = holder_file(&host.state);
        create(&path)
            .and_then(|mut file| file.write_all(holder.text().as_bytes()))
            .map_err(|error| RecordError::new(Step::Lock, &path, error))?;
        Ok(host)
    }

    /// Undoes what is still in the list of changes.
    pub(super) fn recover(&mut self) -> Result<(), RecordError> {
        let path = self.changes();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(RecordError::new(Step::Recover, &path, error)),
        };
        // After a boot every setting is the kernel's own again.
        if text.lines().next() == Some(self.boot.as_str()) {
            let changes = undo::parse_all(text.as_bytes());
            if let Some(unknown) = changes.unknown().first() {
                let error = io::Error::other(format!("{unknown}; then remove this file"));
                return Err(RecordError::new(Step::Recover, &path, error));
            }
            let undone = changes.undo(self.tracefs.remove);
            self.notes.extend(undone.remarks);
            if let Some(failure) = undone.failures.first() {
                let error = io::Error::other(format!("{failure}; then remove this file"));
                return Err(RecordError::new(Step::Recover, &path, error));
            }
        }
        let removed = fs::remove_file(&path);
        removed.map_err(|error| RecordError::new(Step::Recover, &path, error))
    }

    /// The list of changes that are not undone.
    pub(super) fn changes(&self) -> PathBuf {
        changes_file(&self.state)
    }

    /// Begins an empty list of changes.
    pub(super) fn begin_changes(&self) -> io::Result<File> {
        let mut file = create(&self.changes())?;
        file.write_all(format!("{}\n", self.boot).as_bytes())?;
        Ok(file)
    }

    /// The lock for one more process (HOST-1).
    pub(super) fn share(&self) -> io::Result<File> {
        self.lock.try_clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A guard that is still at work keeps the lock; who waits then reads of a process that is
        // gone. That the file cannot be removed changes nothing.
        let _ = fs::remove_file(holder_file(&self.state));
    }
}

/// Where the lock and the lists of a host are, and what they say now: nothing is taken.
pub(super) fn look(tracefs: &Tracefs, roots: &Roots) -> Look {
    let state = roots.state_directory();
    let changes = fs::read(changes_file(&state)).unwrap_or_default();
    let left = undo::parse_all(&changes[..]).describe();
    // Shared, and for a moment: a recorder that begins now tries again.
    let held = File::open(tracefs.instances()).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    });
    let held_by = held.then(|| holder(&state, tracefs));
    Look { lock: tracefs.instances(), state, held_by, left }
}

/// What [`look`] found.
#[derive(Debug)]
pub(super) struct Look {
    pub lock: PathBuf,
    pub state: PathBuf,
    pub held_by: Option<String>,
    pub left: Vec<String>,
}

/// Waits for the lock as long as that is wanted.
fn lock(tracefs: &Tracefs, state: &Path, wait: Duration) -> Result<File, RecordError> {
    let path = tracefs.instances();
    let failed = |error| RecordError::new(Step::Lock, &path, error);
    let file = File::open(&path).map_err(failed)?;
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {}
            Err(error) => return Err(failed(error.into())),
        }
        let only_guard = Holder::read(state).is_some_and(|holder| !holder.is_there());
        let least = if only_guard { GUARD_ENDS } else { 2 * RETRY };
        let wait = wait.max(least);
        if begin.elapsed() >= wait {
            let text = format!("another recorder is at work: {}", holder(state, tracefs));
            return Err(failed(io::Error::new(io::ErrorKind::WouldBlock, text)));
        }
        std::thread::sleep(RETRY);
    }
}

/// Who has the lock, in words.
fn holder(state: &Path, tracefs: &Tracefs) -> String {
    Holder::read(state).map(|holder| holder.words()).unwrap_or_else(|| {
        // Its /run is another: a container's, or another user's.
        let names = tracefs.own_instances();
        let names: Vec<_> = names.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        match names[..] {
            [] => "it has not said which".to_owned(),
            _ => format!("its trace instance is {}", names.join(", ")),
        }
    })
}

/// Who has the lock.
struct Holder {
    process: u32,
    /// Seconds since 1970.
    since: u64,
    command: String,
}

impl Holder {
    fn text(&self) -> String {
        format!("{}\t{}\t{}\n", self.process, self.since, self.command.replace('\n', " "))
    }

    fn read(state: &Path) -> Option<Holder> {
        let text = fs::read_to_string(holder_file(state)).ok()?;
        let mut words = text.trim_end().splitn(3, '\t');
        let process = words.next()?.parse().ok()?;
        let since = words.next()?.parse().ok()?;
        Some(Holder { process, since, command: words.next()?.to_owned() })
    }

    fn is_there(&self) -> bool {
        Path::new(&format!("/proc/{}", self.process)).exists()
    }

    fn words(&self) -> String {
        let state = if self.is_there() { "" } else { ", which was killed; its guard is at work" };
        let Holder { process, since, command } = self;
        format!("process {process}{state} (`{command}`), since {}", utc(*since))
    }
}

fn holder_file(state: &Path) -> PathBuf {
    state.join("recorder")
}

fn changes_file(state: &Path) -> PathBuf {
    state.join("changes")
}

/// An empty file that only its owner reads.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// The first line of a list of changes.
fn boot(roots: &Roots) -> String {
    let id = fs::read_to_string(roots.proc.join(BOOT)).unwrap_or_default();
    format!("boot\t{}", id.trim())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A time of day and its date, in UTC.
///
/// Dates repeat every 400 years, of 146,097 days. Years are counted from March, so that the leap
/// day is the last one of its year.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March have 153 days in each five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_798_761_599), "2026-12-31 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn a_damaged_time_is_printed_at_once() {
        assert_eq!(utc(u64::MAX), "584554051223-11-09 07:00:15 UTC");
    }
}
