//! Commits the transitions of a page's state word, and waits for it to change.
//!
//! A waiter says so in the word (`WAITERS`) under the lock of one of a few queues, and sleeps
//! there. Whoever takes the flag away takes the queue's lock after that, so it finds the waiter
//! asleep: **LOCK-1** no wake-up is lost. A waiter holds nothing of the page, so the page may be
//! another one when it wakes: it looks it up again.
//!
//! No fairness: a page with users all the time keeps out whoever wants it for itself. A user may
//! thus come back to a page that it uses already.

use crate::state::PageState;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::{AtomicU32, Condvar, Mutex};

/// Where threads sleep that wait for pages.
#[derive(Debug, Default)]
pub struct Queue {
    lock: Mutex<()>,
    changed: Condvar,
}

/// Why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Nobody has the page for itself.
    Shareable,
    /// Nobody uses it at all.
    Unused,
    /// It is not being written.
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
    // Acquire: pairs with the AcqRel of whoever changed the word before, so that this thread sees
    // the page's bytes and what was written about it.
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

/// Makes a transition that is always possible, and wakes those whom it lets go on. Returns the
/// state before it.
pub fn change(
    word: &AtomicU32,
    queue: &Queue,
    mut transition: impl FnMut(PageState) -> PageState,
) -> PageState {
    let mut woken = false;
    let changed = try_change(word, |state| {
        let next = transition(state);
        woken = state.has(PageState::WAITERS) && !next.has(PageState::WAITERS);
        Some(next)
    });
    if woken {
        // Whoever set the flag sleeps when this lock can be had (LOCK-1).
        drop(queue.lock.lock());
        queue.changed.notify_all();
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
