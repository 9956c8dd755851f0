//! One thread at a time at something that calls code of the user. No lock: a fork does not wait for
//! it, since the child takes the turn of a thread that it does not have away.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process;
use crate::sys::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and threads may sleep until it is free.
const CONTENDED: u32 = 2;

/// A turn that one thread at a time has.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: AtomicU32,
    /// The thread that has it.
    thread: AtomicU64,
}

/// The running thread's turn, until dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Takes the turn, unless a thread has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        // Acquire: pairs with the Release in the drop of `Taken`.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        self.state.compare_exchange(FREE, TAKEN, order.0, order.1).ok()?;
        Some(self.taken())
    }

    /// Takes the turn, and waits for it: not from inside code of the user, which may have been
    /// called by the thread that has it.
    pub(crate) fn take(&self) -> Taken<'_> {
        if let Some(taken) = self.try_take() {
            return taken;
        }
        // Acquire: pairs with the Release in the drop of `Taken`.
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            let _ = futex::wait(&self.state, CONTENDED, None);
        }
        self.taken()
    }

    fn taken(&self) -> Taken<'_> {
        // Relaxed: for the thread itself, in a forked child.
        self.thread.store(process::thread(), Ordering::Relaxed);
        Taken(self)
    }

    /// In a forked child: a turn of another thread is over.
    pub(crate) fn forked(&self) {
        // Relaxed: the child has one thread.
        if self.thread.load(Ordering::Relaxed) != process::thread() {
            self.state.store(FREE, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Relaxed: as in `taken`.
        self.0.thread.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire of the next one.
        if self.0.state.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake_one(&self.0.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_the_turn_at_a_time() {
        let (turn, count) = (Turn::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _mine = turn.take();
                        // Not an atomic addition: two threads would lose some.
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4000);
    }

    #[test]
    fn a_forked_child_keeps_its_own_turn_and_ends_that_of_others() {
        let turn = Turn::default();
        let mine = turn.take();
        turn.forked();
        assert!(turn.try_take().is_none());
        drop(mine);
        let other = std::thread::scope(|scope| scope.spawn(|| turn.take()).join().unwrap());
        assert!(turn.try_take().is_none());
        turn.forked();
        assert!(turn.try_take().is_some());
        drop(other);
    }
}
