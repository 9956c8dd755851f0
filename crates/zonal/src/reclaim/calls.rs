//! How many calls are under way, and who waits for them to end.
//!
//! ```text
//!  caller   enter ── call ── leave ─────────────► wakes ──┐
//!  other    keep_out ── wait_idle ............. no call ◄─┘ ── ... ── let_in
//! ```
//! Nothing is locked while a call runs. Who keeps calls out only delays those that have not begun,
//! so a call under way may do anything that does not wait for other calls.
//!
//! # Invariants
//! - **CALLS-1** one word holds the calls under way and the number of those who keep calls out, so
//!   a call either began before, and is waited for, or does not begin.
//! - **CALLS-2** a thread that changes the word so that a sleeper may go on wakes all: the last
//!   call that ends while calls are kept out, and the last thread to let calls in.

use std::time::Duration;

use super::parking::{AtomicU32, Ordering, park, unpark_all};

/// One who keeps calls out; below it is the number of calls: a million threads, 4095 forks at once.
const KEPT_OUT: u32 = 1 << 20;
const CALLS: u32 = KEPT_OUT - 1;

/// Calls under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    word: AtomicU32,
}

impl Calls {
    /// Begins a call, once no thread keeps calls out. [`leave`](Self::leave) ends it.
    pub(crate) fn enter(&self) {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word >= KEPT_OUT {
                park(&self.word, word, None);
                continue;
            }
            // Acquire: pairs with the Release in `let_in`.
            let (new, order) = (word + 1, Ordering::Acquire);
            if self.word.compare_exchange_weak(word, new, order, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// A call is over.
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `wait_idle`.
        let before = self.word.fetch_sub(1, Ordering::Release);
        if before >= KEPT_OUT && before & CALLS == 1 {
            unpark_all(&self.word);
        }
    }

    /// No call begins from now on, until [`let_in`](Self::let_in).
    pub(crate) fn keep_out(&self) {
        // Relaxed: the work that needs it follows `wait_idle`.
        self.word.fetch_add(KEPT_OUT, Ordering::Relaxed);
    }

    /// Lets calls begin again, unless another thread keeps them out.
    pub(crate) fn let_in(&self) {
        // Release: pairs with the Acquire in `enter`.
        let before = self.word.fetch_sub(KEPT_OUT, Ordering::Release);
        if before < 2 * KEPT_OUT {
            unpark_all(&self.word);
        }
    }

    /// While calls are kept out: waits until none is under way, as long as `left` says how much
    /// longer. Returns whether none is.
    pub(crate) fn wait_idle(&self, mut left: impl FnMut() -> Option<Duration>) -> bool {
        loop {
            // Acquire: pairs with the Release in `leave`: this thread sees the call's writes.
            let word = self.word.load(Ordering::Acquire);
            if word & CALLS == 0 {
                return true;
            }
            let Some(left) = left() else { return false };
            park(&self.word, word, Some(left));
        }
    }

    /// In a forked child: only the calls in `own` are under way, and no thread keeps calls out.
    pub(crate) fn forked(&self, own: u32) {
        // Relaxed: the child has one thread.
        self.word.store(own, Ordering::Relaxed);
    }
}
