//! What the cache knows of one file.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::index::Index;
use crate::store::Store;

/// First pause after a failed write, and the longest; each failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One file.
pub struct File {
    pub id: u32,
    pub store: Box<dyn Store>,
    /// Device and inode, where the store is a file of the operating system.
    pub identity: Option<(u64, u64)>,
    pub writable: bool,
    pub index: Index,
    /// Bytes of the file, with what is not written yet.
    pub len: AtomicU64,
    /// Shared by whoever uses `len` and pages below it; exclusive while the file is cut.
    pub resize: RwLock<()>,
    /// Handles of the program. Changed with the list of files locked.
    pub handles: AtomicU32,
    /// The file left the cache: nothing of it is read any more. Set with `resize` held alone.
    pub gone: AtomicBool,
    dirty: Mutex<Dirty>,
    failures: Mutex<Failures>,
}

/// Pages that are dirty or being written.
#[derive(Default)]
struct Dirty {
    pages: BTreeSet<u64>,
    /// When the first of them became so.
    since: Option<Instant>,
}

#[derive(Default)]
struct Failures {
    /// Failed writes so far.
    count: u64,
    last: Option<Failure>,
    retry_at: Option<Instant>,
    pause: Duration,
}

/// A write that failed: enough of the error to tell it more than once.
#[derive(Clone, Debug)]
struct Failure {
    kind: io::ErrorKind,
    errno: Option<i32>,
    text: String,
}

impl Failure {
    fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("id", &self.id).field("len", &self.len).finish()
    }
}

impl File {
    pub fn new(
        id: u32,
        store: Box<dyn Store>,
        identity: Option<(u64, u64)>,
        writable: bool,
    ) -> io::Result<File> {
        let len = store.len()?;
        Ok(File {
            id,
            store,
            identity,
            writable,
            index: Index::default(),
            len: AtomicU64::new(len),
            resize: RwLock::new(()),
            handles: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            dirty: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    fn dirty(&self) -> MutexGuard<'_, Dirty> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a page on the list of dirty ones. Returns whether it was not there.
    pub fn add_dirty(&self, index: u64) -> bool {
        let mut dirty = self.dirty();
        dirty.since.get_or_insert_with(Instant::now);
        dirty.pages.insert(index)
    }

    /// Takes a page off the list. Returns whether it was there.
    pub fn remove_dirty(&self, index: u64) -> bool {
        let mut dirty = self.dirty();
        let was = dirty.pages.remove(&index);
        if dirty.pages.is_empty() {
            dirty.since = None;
        }
        was
    }

    /// Dirty pages now, in order.
    pub fn dirty_pages(&self) -> Vec<u64> {
        self.dirty().pages.iter().copied().collect()
    }

    /// Up to `max` dirty pages that follow one another without a gap, from the first one at or
    /// behind `from`.
    pub fn dirty_run(&self, from: u64, max: usize) -> Vec<u64> {
        let dirty = self.dirty();
        let mut run: Vec<u64> = Vec::new();
        for &index in dirty.pages.range(from..).take(max) {
            if run.last().is_some_and(|last| last + 1 != index) {
                break;
            }
            run.push(index);
        }
        run
    }

    pub fn is_dirty(&self) -> bool {
        !self.dirty().pages.is_empty()
    }

    /// How long the oldest dirty page is so.
    pub fn dirty_for(&self) -> Duration {
        self.dirty().since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// After a write-back that left pages dirty: the oldest of them is as old as that.
    pub fn restart_age(&self) {
        let mut dirty = self.dirty();
        if dirty.since.is_some() {
            dirty.since = Some(Instant::now());
        }
    }

    /// Keeps a failed write's error, and puts the next try off.
    pub fn fail(&self, error: &io::Error) {
        let mut failures = self.failures();
        failures.count += 1;
        failures.last = Some(Failure {
            kind: error.kind(),
            errno: error.raw_os_error(),
            text: error.to_string(),
        });
        failures.pause = (failures.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        failures.retry_at = Some(Instant::now() + failures.pause);
    }

    /// A write worked: the next one need not wait.
    pub fn succeed(&self) {
        let mut failures = self.failures();
        failures.retry_at = None;
        failures.pause = Duration::ZERO;
    }

    /// Whether a write that nobody waits for may be tried now.
    pub fn may_try(&self) -> bool {
        self.failures().retry_at.is_none_or(|at| at <= Instant::now())
    }

    /// Failed writes so far.
    pub fn failed(&self) -> u64 {
        self.failures().count
    }

    /// The last failed write's error, if there were more than `seen`.
    pub fn failure_since(&self, seen: u64) -> Option<io::Error> {
        let failures = self.failures();
        if failures.count == seen {
            return None;
        }
        failures.last.as_ref().map(Failure::error)
    }

    /// The error that keeps the file from being written, if one does.
    pub fn standing_failure(&self) -> Option<io::Error> {
        let failures = self.failures();
        failures.retry_at?;
        failures.last.as_ref().map(Failure::error)
    }
}
