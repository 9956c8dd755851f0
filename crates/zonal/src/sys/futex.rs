//! Parking on a 32-bit word.
//!
//! What a zone lock needs to sleep: [`wait`] while the word holds a value, [`wake`] who waits.
//! Words are private to the process (`FUTEX_PRIVATE_FLAG`), which saves the kernel a lookup of the
//! page behind the word.
//!
//! # Invariants
//! - **FUTEX-1** [`wait`] may return early for any reason. The caller looks at its word again, in a
//!   loop; the outcome is for statistics and for deadlines only.
//! - **FUTEX-2** A waker changes the word *before* it calls [`wake`]; the kernel compares the word
//!   under its own lock, so a change between the caller's look and the sleep is not lost.
//!
//! It does not order memory: the caller's own accesses to the word do.

use super::{Errno, os};
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use zonal_core::sync::LockWord;

/// Why [`wait`] returned. See FUTEX-1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// A thread woke this word (or the kernel did so spuriously).
    Woken,
    /// The word did not hold the expected value: nothing was waited for.
    Changed,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// The kernel refuses futex calls: the caller must poll. One `sched_yield` was done instead.
    Refused(Errno),
}

/// Sleeps while `word` holds `expected`, until woken or `timeout` has passed.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitOutcome {
    match os::wait(word, expected, timeout) {
        Ok(()) => WaitOutcome::Woken,
        Err(Errno::AGAIN) => WaitOutcome::Changed,
        Err(Errno::TIMEDOUT) => WaitOutcome::TimedOut,
        Err(Errno::INTR) => WaitOutcome::Interrupted,
        Err(errno) => {
            std::thread::yield_now();
            WaitOutcome::Refused(errno)
        }
    }
}

/// Wakes at most `waiters_max` threads that wait on `word`, and says how many it woke.
///
/// A kernel that refuses futex calls has no sleepers either, so the answer is then 0.
pub fn wake(word: &AtomicU32, waiters_max: u32) -> usize {
    os::wake(word, waiters_max)
}

/// Wakes one thread that waits on `word`; true if there was one.
pub fn wake_one(word: &AtomicU32) -> bool {
    wake(word, 1) == 1
}

/// A core's lock word, for [`wait`] and [`wake`].
pub(crate) fn word_of(word: &LockWord) -> &AtomicU32 {
    // SAFETY: (1) the address of an atomic that is borrowed for as long; (2) nothing in this module
    // writes to the word (LOCK-3), and the kernel only reads it.
    unsafe { &*word.as_ptr() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    const SOON: Option<Duration> = Some(Duration::from_millis(20));

    #[test]
    fn a_changed_word_is_not_waited_for() {
        let word = AtomicU32::new(1);
        let outcome = wait(&word, 0, None);
        assert!(matches!(outcome, WaitOutcome::Changed | WaitOutcome::Refused(_)), "{outcome:?}");
    }

    #[test]
    fn a_wait_without_waker_ends_at_its_timeout() {
        let word = AtomicU32::new(0);
        let start = Instant::now();
        match wait(&word, 0, SOON) {
            WaitOutcome::TimedOut => assert!(start.elapsed() >= Duration::from_millis(20)),
            WaitOutcome::Interrupted | WaitOutcome::Woken | WaitOutcome::Refused(_) => {}
            WaitOutcome::Changed => panic!("nobody changed the word"),
        }
    }

    #[test]
    fn the_longest_timeout_is_taken() {
        let word = AtomicU32::new(1);
        let outcome = wait(&word, 0, Some(Duration::MAX));
        assert!(matches!(outcome, WaitOutcome::Changed | WaitOutcome::Refused(_)), "{outcome:?}");
    }

    #[test]
    fn every_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        let awake = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        wait(&word, 0, Some(Duration::from_secs(10)));
                    }
                    awake.fetch_add(1, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(5));
            word.store(1, Ordering::Release); // FUTEX-2: the word first
            wake(&word, u32::MAX);
        });
        assert_eq!(awake.load(Ordering::Relaxed), 3);
        assert!(!wake_one(&word), "nobody is left to wake");
    }
}
