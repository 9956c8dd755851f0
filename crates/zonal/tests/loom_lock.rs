//! The zone lock under every interleaving: the very file of the core, `zonal_core::sync`, compiled
//! a second time with loom's atomics in place of the machine's.
//!
//! The futex is the platform's, so here it is a model: a mutex stands for the kernel's hash bucket
//! lock (`wait` compares the word and goes to sleep in one hold of it), a condition variable for
//! the queue of sleepers. A lost wake-up is a deadlock, which loom reports; two threads in the lock
//! are two accesses to one loom cell, which it reports too.
//!
//! The canaries break a rule of [`Wait`] and must be found: else the model proves nothing. Each
//! runs in a process of its own, because loom cannot unwind from a deadlock.

/// Makes `core::...` in that file mean the modules below; macros have their own way to the real
/// one.
extern crate self as core;

/// Stands for `core::sync`.
pub mod sync {
    /// Loom's atomics, under the names that the core uses.
    pub mod atomic {
        pub use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
    }
}
/// Stands for `core::cell`.
pub mod cell {
    pub use std::cell::UnsafeCell;
}
/// Stands for `core::marker`.
pub mod marker {
    pub use std::marker::PhantomData;
}
/// Stands for `core::ops`.
pub mod ops {
    pub use std::ops::{Deref, DerefMut};
}
/// Stands for `core::hint`.
pub mod hint {
    /// Nothing: the model's scheduler goes elsewhere at every access anyway.
    pub fn spin_loop() {}
}

#[path = "../../zonal-core/src/sync.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the core uses all of it")]
mod model;
mod support;

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use model::{Lock, LockWord, Wait};
use support::interleavings::{self, is_found};

/// What is wrong with a futex.
const SOUND: u32 = 0;
const WAKES_NOBODY: u32 = 1;
const SLEEPS_WITHOUT_LOOKING: u32 = 2;

/// The kernel's side of one futex word.
#[derive(Default)]
struct Futex<const FAULT: u32> {
    bucket: Mutex<()>,
    sleepers: Condvar,
}

impl<const FAULT: u32> Wait for Futex<FAULT> {
    const SPINS: u32 = 1;

    fn wait(&self, word: &LockWord, value: u32) {
        let bucket = self.bucket.lock().unwrap();
        if FAULT == SLEEPS_WITHOUT_LOOKING || word.load() == value {
            drop(self.sleepers.wait(bucket).unwrap());
        }
    }
    fn wake_one(&self, _word: &LockWord) {
        if FAULT != WAKES_NOBODY {
            let _bucket = self.bucket.lock().unwrap();
            self.sleepers.notify_one();
        }
    }
}

/// Each thread takes the lock `rounds` times and counts. Returns how many interleavings there were.
fn explore<const FAULT: u32>(threads: usize, rounds: usize, preemptions: Option<usize>) -> u64 {
    let interleavings = interleavings::explore(preemptions, move || {
        let futex = Arc::new(Futex::<FAULT>::default());
        let lock = Arc::new(Lock::new(loom::cell::UnsafeCell::new(0)));
        let run = |futex: Arc<Futex<FAULT>>, lock: Arc<Lock<loom::cell::UnsafeCell<usize>>>| {
            move || {
                for _ in 0..rounds {
                    let guard = lock.lock(&*futex);
                    // SAFETY: (1) the lock is held, which is what loom checks here.
                    guard.with_mut(|count| unsafe { *count += 1 });
                }
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|_| loom::thread::spawn(run(Arc::clone(&futex), Arc::clone(&lock))))
            .collect();
        run(Arc::clone(&futex), Arc::clone(&lock))();
        others.into_iter().for_each(|other| other.join().unwrap());
        let guard = lock.lock(&*futex);
        // SAFETY: (1) the lock is held, and the others have ended.
        let count = guard.with(|count| unsafe { *count });
        assert_eq!(count, threads * rounds);
    });
    eprintln!("{threads} threads, {rounds} rounds: {interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    match interleavings::canary().and_then(|fault| fault.parse().ok()) {
        Some(SOUND) => explore::<SOUND>(2, 1, Some(2)),
        Some(WAKES_NOBODY) => explore::<WAKES_NOBODY>(2, 1, Some(2)),
        Some(SLEEPS_WITHOUT_LOOKING) => explore::<SLEEPS_WITHOUT_LOOKING>(2, 1, Some(2)),
        _ => return,
    };
}

#[test]
fn two_threads_never_share_the_lock_and_never_sleep_for_ever() {
    assert!(explore::<SOUND>(2, 1, None) > 20);
    assert!(explore::<SOUND>(2, 2, Some(4)) > 200);
}

#[test]
fn three_threads_never_share_the_lock_and_never_sleep_for_ever() {
    assert!(explore::<SOUND>(3, 1, Some(3)) > 1000);
}

#[test]
fn a_wake_up_that_is_not_sent_is_found() {
    assert!(!is_found(SOUND));
    assert!(is_found(WAKES_NOBODY));
}

#[test]
fn a_sleep_that_does_not_look_first_is_found() {
    assert!(is_found(SLEEPS_WITHOUT_LOOKING));
}
