//! What one thread uses behind a shared reference, without a lock's locked instructions: a run of
//! the lab is played by one thread, and looks at its meter several times a call.
//!
//! - **ONE-1** only the thread that made the value gets a reference to it.
//! - **ONE-2** there is one reference at a time.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A value of one thread.
pub(crate) struct OneThread<T> {
    /// The thread that made it.
    owner: NonZeroU64,
    /// Whether there is a reference. Looked at by the owner alone.
    taken: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: ONE-1, checked by `with` before it looks at `taken` or at the value: other threads read
// `owner` alone, which nobody writes. A value that another thread may drop is `Send`.
unsafe impl<T: Send> Sync for OneThread<T> {}

thread_local! {
    /// This thread's number; 0 until it needs one.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread has or had.
#[inline]
fn this_thread() -> NonZeroU64 {
    NonZeroU64::new(NUMBER.get()).unwrap_or_else(numbered)
}

#[cold]
fn numbered() -> NonZeroU64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // 2^64 threads are more than there will be; the number 0 is nobody's.
    let number = NonZeroU64::new(NEXT.fetch_add(1, Relaxed)).expect("threads are fewer");
    NUMBER.set(number.get());
    number
}

impl<T> OneThread<T> {
    /// A value of this thread.
    pub(crate) fn new(value: T) -> OneThread<T> {
        OneThread { owner: this_thread(), taken: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// Uses the value.
    ///
    /// # Panics
    /// On another thread than the one that made it, and within itself.
    #[inline]
    pub(crate) fn with<R>(&self, uses: impl FnOnce(&mut T) -> R) -> R {
        assert!(self.owner == this_thread(), "a run of the lab stays on the thread that began it");
        assert!(!self.taken.replace(true), "the lab's meter is used within itself");
        let release = Release(&self.taken);
        // SAFETY: ONE-1 and ONE-2 were checked above; `taken` stays until `release` is dropped,
        // also if `uses` panics.
        let result = uses(unsafe { &mut *self.value.get() });
        drop(release);
        result
    }
}

/// Ends a reference.
struct Release<'a>(&'a Cell<bool>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<T> fmt::Debug for OneThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneThread").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn the_thread_that_made_it_uses_it_and_others_are_refused() {
        let one = OneThread::new(1);
        one.with(|value| *value += 1);
        thread::scope(|scope| {
            for _ in 0..2 {
                let refused = scope.spawn(|| one.with(|value| *value += 1)).join();
                assert!(refused.is_err(), "another thread");
            }
        });
        assert_eq!(one.with(|value| *value), 2);
    }

    #[test]
    fn there_is_one_reference_and_a_panic_ends_it() {
        let one = OneThread::new(1);
        let twice = catch_unwind(AssertUnwindSafe(|| one.with(|_| one.with(|value| *value))));
        assert!(twice.is_err(), "within itself");
        assert_eq!(one.with(|value| *value), 1, "it ended with the panic");
    }
}
