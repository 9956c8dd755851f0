//! What [`calls`](super::calls) waits with: the futex of `sys`. The interleaving model
//! (`tests/loom_fork.rs`) has another.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};

use std::time::Duration;

use crate::sys::futex;

/// Sleeps while the word holds `value`; may return early.
pub(super) fn park(word: &AtomicU32, value: u32, most: Option<Duration>) {
    // However the wait ends, the caller looks at its word again.
    let _ = futex::wait(word, value, most);
}

/// Wakes everybody who sleeps on the word.
pub(super) fn unpark_all(word: &AtomicU32) {
    futex::wake(word, u32::MAX);
}
