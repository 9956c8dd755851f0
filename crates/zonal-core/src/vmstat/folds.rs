//! Whether deltas are on their way: taken from a CPU and not yet added to the counters that all
//! share. A reader who adds both up in that moment misses them, or counts them twice.
//!
//! ```text
//!  fold    begin ── take a delta ── add it ── end
//!  reader  done ──── read deltas and counters ──── none_since(done)? else once more
//! ```
//! Taking and adding are Release, reading both is Acquire: who sees a part of a fold sees that it
//! began.

use crate::sync::{AtomicU64, Ordering};

/// Counts folds.
#[derive(Debug, Default)]
pub struct Folds {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Folds {
    /// A fold begins.
    pub fn begin(&self) {
        // Relaxed: the Release of the fold's writes carries it.
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over.
    pub fn end(&self) {
        // Release: pairs with the Acquire in `done`.
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Folds that are over; all of them is seen from here on.
    pub fn done(&self) -> u64 {
        // Acquire: pairs with the Release in `end`.
        self.done.load(Ordering::Acquire)
    }

    /// Whether what was read since [`done`](Self::done) returned this holds no part of a fold.
    pub fn none_since(&self, done: u64) -> bool {
        // Relaxed: Acquire loads of the fold's writes make its beginning visible.
        self.begun.load(Ordering::Relaxed) == done
    }
}
