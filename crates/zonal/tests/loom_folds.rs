//! A reader who adds up deltas and counters while others fold, under every interleaving with few
//! preemptions: the very file of the core, `zonal_core::vmstat::folds`, compiled a second time with
//! loom's atomics. The canary begins a fold after it has taken the delta, and must be found.

/// Stands for the core's module of that name.
mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../../zonal-core/src/vmstat/folds.rs"]
#[allow(unreachable_pub, reason = "the core uses it so")]
mod folds;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as StdU64, Ordering::Relaxed as StdRelaxed};

use folds::Folds;
use loom::sync::atomic::AtomicI64;
use sync::Ordering::{Acquire, Release};

/// Most threads interrupted in one execution, by choice; with all of them it takes minutes.
const PREEMPTIONS: usize = 3;

#[derive(Default)]
struct Zone {
    delta: AtomicI64,
    counter: AtomicI64,
    folds: Folds,
}

impl Zone {
    fn fold(&self, late: bool) {
        if !late {
            self.folds.begin();
        }
        let taken = self.delta.swap(0, Release);
        if late {
            self.folds.begin();
        }
        self.counter.fetch_add(taken, Release);
        self.folds.end();
    }

    /// The sum, if no fold was under way.
    fn read(&self) -> Option<i64> {
        let done = self.folds.done();
        let sum = self.delta.load(Acquire) + self.counter.load(Acquire);
        self.folds.none_since(done).then_some(sum)
    }
}

/// Two folders and a reader; returns how many executions had a settled reading.
fn explore(late: bool) -> u64 {
    let settled = Arc::new(StdU64::new(0));
    let seen = settled.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let zone = Arc::new(Zone { delta: AtomicI64::new(5), ..Zone::default() });
        let folders: Vec<_> = (0..2)
            .map(|_| {
                let zone = zone.clone();
                loom::thread::spawn(move || zone.fold(late))
            })
            .collect();
        if let Some(sum) = zone.read() {
            assert_eq!(sum, 5, "a delta on its way was missed or counted twice");
            seen.fetch_add(1, StdRelaxed);
        }
        folders.into_iter().for_each(|folder| folder.join().unwrap());
        assert_eq!(zone.read(), Some(5));
    });
    settled.load(StdRelaxed)
}

#[test]
fn a_settled_reading_is_whole() {
    assert!(explore(false) > 0, "no reading ever settled");
}

#[test]
#[should_panic(expected = "missed or counted twice")]
fn a_fold_that_begins_too_late_is_found() {
    explore(true);
}
