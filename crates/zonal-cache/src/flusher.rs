//! The write-back thread: when it wakes, and which writers wait for it. Its work is a [`Round`], so
//! this file depends on neither pages nor files.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A writer that waits looks again after this long.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A writer goes on if no page became clean for this long: the program itself holds the dirty ones.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that waits for a kick alone looks up now and then.
const LONG: Duration = Duration::from_secs(3600);

/// The thread's work each time it wakes.
pub trait Round {
    /// Writes what is due.
    fn round(&self);
}

/// State that the write-back thread shares with waiting writers.
#[derive(Debug, Default)]
pub struct Flusher {
    asked: Mutex<Asked>,
    wake: Condvar,
    /// Pages became clean, or cannot become so.
    progress: Condvar,
    /// Pages that became clean so far.
    pub cleaned: AtomicU64,
    /// Reclaim wants dirty pages written.
    pub wanted: AtomicBool,
    /// The last round met only files that cannot be written.
    pub stuck: AtomicBool,
    pub background: AtomicU64,
    pub hard: AtomicU64,
    pub soiled: AtomicU32,
}

#[derive(Debug, Default)]
struct Asked {
    kicked: bool,
    stopped: bool,
}

impl Flusher {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread.
    pub fn kick(&self) {
        let mut asked = self.asked();
        if !asked.kicked {
            asked.kicked = true;
            self.wake.notify_one();
        }
    }

    /// Makes the thread write however few pages are dirty: reclaim meets only dirty ones.
    pub fn kick_for_reclaim(&self) {
        self.wanted.store(true, Relaxed);
        self.kick();
    }

    /// The thread: a round at each kick, and after each `interval`, until it is stopped.
    pub fn run(&self, interval: Duration, work: &impl Round) {
        while self.wait(interval) {
            work.round();
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.asked().stopped = true;
        self.wake.notify_all();
        self.progress.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.asked().stopped
    }

    /// Waits for a kick or for the time to pass. `false`: the thread is to end.
    fn wait(&self, interval: Duration) -> bool {
        let mut asked = self.asked();
        // `None`: longer than any clock counts.
        let end = Instant::now().checked_add(interval);
        while !asked.kicked && !asked.stopped {
            let now = Instant::now();
            let left = end.map_or(LONG, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                break;
            }
            let waited = self.wake.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        asked.kicked = false;
        !asked.stopped
    }

    /// Wakes writers: pages became clean.
    pub fn tell_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits a bounded time for pages to become clean.
    pub fn wait_progress(&self, at_most: Duration) {
        let asked = self.asked();
        if !asked.stopped {
            drop(self.progress.wait_timeout(asked, at_most));
        }
    }
}
