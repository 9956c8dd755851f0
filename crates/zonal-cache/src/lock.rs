//! Commits the transitions of a page's state word, and waits for it to change.
//!
//! A waiter sets `WAITERS` in the word under the lock of one of a few queues, and sleeps there. A
//! thread that clears the flag takes the queue's lock after that, so it finds the waiter asleep:
//! **LOCK-1** no wake-up is lost. A waiter holds no right, so the frame may hold another page when
//! it wakes: it looks the page up again.
//!
//! No fairness: a page that always has users starves exclusive waiters. So a thread may take a
//! second shared right to a page.

use crate::state::PageState;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::{AtomicU32, Condvar, Mutex};

/// Queues of threads that wait for pages.
#[derive(Debug, Default)]
pub struct Queue {
    lock: Mutex<()>,
    changed: Condvar,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// No exclusive user.
    Shareable,
    /// No user at all.
    Unused,
    /// No write-back.
    Written,
}

impl Until {
    fn is_met(self, state: PageState) -> bool {
        match self {
            Until::Shareable => !state.has(PageState::EXCLUSIVE),
            Until::Unused => !state.has(PageState::EXCLUSIVE) && state.users() == 0,
            Until::Written => !state.has(PageState::WRITEBACK),
        }
    }
}

/// Makes one transition, if there is one. Returns the state before it.
pub fn try_change(
    word: &AtomicU32,
    mut transition: impl FnMut(PageState) -> Option<PageState>,
) -> Result<PageState, PageState> {
    // Acquire: pairs with the AcqRel of the last change of the word, so that this thread sees the
    // page's bytes and record.
    let mut seen = word.load(Acquire);
    loop {
        let Some(next) = transition(PageState(seen)) else { return Err(PageState(seen)) };
        // AcqRel: pairs with itself, in the next thread that changes the word. Acquire on failure,
        // as for the load.
        match word.compare_exchange_weak(seen, next.0, AcqRel, Acquire) {
            Ok(_) => return Ok(PageState(seen)),
            Err(now) => seen = now,
        }
    }
}

/// Begins the write-back of a page. `Err`: whether another thread writes it; if not, it is clean.
/// A second look at the word would not tell: that write may fail in between.
pub fn begin_writeback(word: &AtomicU32) -> Result<(), bool> {
    let begun = try_change(word, PageState::begin_writeback);
    begun.map(drop).map_err(|state| state.has(PageState::WRITEBACK))
}

impl Queue {
    /// Wakes the threads that wait.
    pub fn wake(&self) {
        // The thread that set the flag sleeps once this lock is free (LOCK-1).
        drop(self.lock.lock());
        self.changed.notify_all();
    }
}

/// Makes a transition that is always possible, and calls `wake` if it lets threads go on. Returns
/// the state before it.
pub fn change(
    word: &AtomicU32,
    wake: impl FnOnce(),
    mut transition: impl FnMut(PageState) -> PageState,
) -> PageState {
    let mut woken = false;
    let changed = try_change(word, |state| {
        let next = transition(state);
        woken = state.has(PageState::WAITERS) && !next.has(PageState::WAITERS);
        Some(next)
    });
    if woken {
        wake();
    }
    match changed {
        Ok(before) | Err(before) => before,
    }
}

/// Waits until the word may be what is waited for. Returns at once if it is; may return early.
pub fn wait(word: &AtomicU32, queue: &Queue, until: Until) {
    let Ok(queued) = queue.lock.lock() else { return };
    let asks = |state: PageState| {
        let waits = !until.is_met(state) && !state.has(PageState::WAITERS);
        waits.then(|| state.with(PageState::WAITERS))
    };
    let state = match try_change(word, asks) {
        Ok(before) | Err(before) => before,
    };
    if !until.is_met(state) {
        // Relaxed would do for a word that is looked at again under the same lock; the flag is
        // what keeps the wake-up from being lost.
        drop(queue.changed.wait(queued));
    }
}

/// The state now, for decisions that are made again under a right to the page.
pub fn peek(word: &AtomicU32) -> PageState {
    PageState(word.load(Relaxed))
}
