//! Forks while consumers are called, under every interleaving: `zonal::reclaim`'s own count of
//! calls, compiled a second time with loom's atomics, and the steps of `pool/fork.rs` around it.
//!
//! Consumers do what their pool allows: one takes a lock that a fork takes (a report, a new pool),
//! one forks. Whoever waits for ever is a deadlock, which loom reports. A fork that found no call
//! under way looks at what calls change, without a lock: loom reports a call that was not waited
//! for.
//!
//! The canaries each do one step otherwise, and must be found. They run in processes of their own,
//! because loom cannot unwind from a deadlock.

/// Stands for the crate's module of that name: a mutex for the kernel's hash bucket, a condition
/// variable for the queue of sleepers.
mod parking {
    pub use loom::sync::atomic::{AtomicU32, Ordering};

    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    loom::lazy_static! {
        static ref BUCKET: loom::sync::Mutex<()> = loom::sync::Mutex::new(());
        static ref SLEEPERS: loom::sync::Condvar = loom::sync::Condvar::new();
    }

    pub fn park(word: &AtomicU32, value: u32, _most: Option<Duration>) {
        let bucket = BUCKET.lock().unwrap();
        if word.load(Relaxed) == value {
            drop(SLEEPERS.wait(bucket).unwrap());
        }
    }

    pub fn unpark_all(_word: &AtomicU32) {
        if super::FAULT.load(Relaxed) != super::WAKES_NOBODY {
            let _bucket = BUCKET.lock().unwrap();
            SLEEPERS.notify_all();
        }
    }
}

#[path = "../src/reclaim/calls.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses all of it")]
mod calls;
mod support;

use std::sync::Arc;
use std::time::Duration;

use calls::Calls;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use support::interleavings::{self, is_found};

/// What is done otherwise.
const SOUND: u32 = 0;
/// A fork takes the locks first and waits for consumers then.
const LOCKS_FIRST: u32 = 1;
/// A fork from inside a consumer waits for calls under way.
const WAITS_INSIDE: u32 = 2;
/// A fork does not wait for calls.
const DOES_NOT_WAIT: u32 = 3;
/// Whoever changes the count wakes nobody.
const WAKES_NOBODY: u32 = 4;
/// A consumer that leaves waits without keeping calls out, so that the last one does not wake it.
const LEAVES_QUIETLY: u32 = 5;

/// Of this process: canaries have one of their own.
static FAULT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(SOUND);

fn is(fault: u32) -> bool {
    FAULT.load(std::sync::atomic::Ordering::Relaxed) == fault
}

#[derive(Default)]
struct Process {
    calls: Calls,
    /// Stands for the list of pools, and for every lock that a fork holds.
    locks: Mutex<()>,
    /// What consumers change: one call at a time, by its own lock.
    consumer: Mutex<()>,
    state: UnsafeCell<u32>,
    /// The consumer has left the list.
    left: Mutex<bool>,
}

impl Process {
    /// The handlers around a fork (`pool/fork.rs`).
    fn fork(&self, inside: bool) {
        let early = is(LOCKS_FIRST).then(|| self.locks.lock().unwrap());
        self.calls.keep_out();
        if !is(DOES_NOT_WAIT) && (!inside || is(WAITS_INSIDE)) {
            // Here for ever: that the wait is bounded is for consumers that never end.
            assert!(self.calls.wait_idle(|| Some(Duration::MAX)));
        }
        let locks = early.or_else(|| Some(self.locks.lock().unwrap()));
        if !inside {
            // SAFETY: (1) no call is under way, which is what loom checks here.
            self.state.with(|state| assert!(unsafe { *state } < 10));
        }
        drop(locks);
        self.calls.let_in();
    }

    /// A call of a consumer that does `what`.
    fn call(&self, what: impl FnOnce()) {
        self.calls.enter();
        let own = self.consumer.lock().unwrap();
        // SAFETY: (1) the consumer's lock is held.
        self.state.with_mut(|state| unsafe { *state += 1 });
        drop(own);
        what();
        self.calls.leave();
    }

    /// A visit of the consumer, if it is on the list.
    fn visit(&self) {
        let left = self.left.lock().unwrap();
        if !*left {
            self.calls.enter();
            drop(left);
            // SAFETY: (1) the consumer waits for the visit, which is what loom checks here.
            self.state.with(|state| assert!(unsafe { *state } < 10));
            self.calls.leave();
        }
    }

    /// The consumer leaves, and is dropped.
    fn leave(&self) {
        *self.left.lock().unwrap() = true;
        if !is(LEAVES_QUIETLY) {
            self.calls.keep_out();
        }
        self.calls.wait_idle(|| Some(Duration::MAX));
        // SAFETY: (1) no visit is under way, which is what loom checks here.
        self.state.with_mut(|state| unsafe { *state = 0 });
    }

    fn report(&self) {
        drop(self.locks.lock().unwrap());
    }
}

/// Two threads, by what each does.
#[derive(Clone, Copy)]
enum Scene {
    /// A fork, and a consumer that takes a lock.
    Report,
    /// A fork, and a consumer that forks.
    Fork,
    /// Two consumers that fork.
    BothInside,
    /// A consumer that leaves, and a visit of it: the same count, of visits.
    Leave,
}

#[expect(clippy::arc_with_non_send_sync, reason = "loom runs its threads on one of the system's")]
fn explore(scene: Scene, preemptions: Option<usize>) -> u64 {
    interleavings::explore(preemptions, move || {
        let process = Arc::new(Process::default());
        let other = Arc::clone(&process);
        let thread = loom::thread::spawn(move || match scene {
            Scene::Report => other.call(|| other.report()),
            Scene::Fork | Scene::BothInside => other.call(|| other.fork(true)),
            Scene::Leave => other.visit(),
        });
        match scene {
            Scene::Report | Scene::Fork => process.fork(false),
            Scene::BothInside => process.call(|| process.fork(true)),
            Scene::Leave => process.leave(),
        }
        thread.join().unwrap();
    })
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    let Some(fault) = interleavings::canary().and_then(|fault| fault.parse().ok()) else { return };
    FAULT.store(fault, std::sync::atomic::Ordering::Relaxed);
    for scene in [Scene::Report, Scene::Fork, Scene::BothInside, Scene::Leave] {
        explore(scene, Some(2));
    }
}

#[test]
fn a_fork_and_a_consumer_that_does_as_it_likes_both_go_on() {
    assert!(explore(Scene::Report, Some(3)) > 20);
    assert!(explore(Scene::Fork, Some(3)) > 20);
    assert!(explore(Scene::BothInside, Some(3)) > 20);
    assert!(explore(Scene::Leave, None) > 5);
}

#[test]
fn each_step_done_otherwise_is_found() {
    assert!(!is_found(SOUND));
    for fault in [LOCKS_FIRST, WAITS_INSIDE, DOES_NOT_WAIT, WAKES_NOBODY, LEAVES_QUIETLY] {
        assert!(is_found(fault), "fault {fault}");
    }
}
