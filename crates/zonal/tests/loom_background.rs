//! Sleep and wake-up of a background reclaimer under every interleaving (BG-1): the very file of
//! the core, `zonal_core::zone::background`, compiled a second time with loom's atomics, and the
//! bell of `zonal::reclaim` with loom's mutex and condition variable.
//!
//! A free-page counter falls below the mark, and whoever sees it asks. The reclaimer must come to
//! see it: one that sleeps for ever is a deadlock, which loom reports. The nap that ends by itself
//! is left out, since it would hide a lost wake-up for a tenth of a second.
//!
//! The canaries each leave out a step, and must be found. They run in processes of their own,
//! because loom cannot unwind from a deadlock.

/// Stands for the core's module of that name.
mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
}
/// Stands for the core's module of that name.
mod types {
    pub use zonal_core::types::{Order, ZoneKind};
}

#[path = "../../zonal-core/src/zone/background.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod background;
mod support;

use std::sync::Arc;

use background::{Background, Found, Wanted};
use loom::sync::{Condvar, Mutex};
use support::interleavings::{self, is_found};
use sync::{AtomicU32, Ordering::Relaxed};
use types::{Order, ZoneKind};

/// What is left out.
const SOUND: u32 = 0;
/// The reclaimer looks at the mark first and lies down then.
const LOOKS_TOO_EARLY: u32 = 1;
/// Who wakes it leaves no token.
const RINGS_WITHOUT_A_TOKEN: u32 = 2;
/// Who finds it asleep does not ring.
const DOES_NOT_RING: u32 = 3;

const MARK: u32 = 2;
const PLENTY: u32 = 10;

struct Node<const FAULT: u32> {
    record: Background,
    /// The zone's counter: relaxed, as it is there.
    free: AtomicU32,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl<const FAULT: u32> Node<FAULT> {
    fn is_well(&self) -> bool {
        self.free.load(Relaxed) > MARK
    }

    /// `Allocator::wake_background` and the platform's `ring`.
    fn ask(&self) {
        let wanted = Wanted { order: Order::ZERO, highest: Some(ZoneKind::Normal) };
        let found = self.record.request(wanted);
        let rings = found == Found::Asleep && !self.is_well() && self.record.wake();
        if rings && FAULT != DOES_NOT_RING {
            let mut rung = self.rung.lock().unwrap();
            *rung = FAULT != RINGS_WITHOUT_A_TOKEN;
            self.bell.notify_all();
        }
    }

    /// `Allocator::background_step` and the platform's `listen`, until it has reclaimed once.
    fn reclaim_once(&self) {
        loop {
            let well = if FAULT == LOOKS_TOO_EARLY {
                let well = self.is_well();
                self.record.lie_down();
                well
            } else {
                self.record.lie_down();
                self.is_well()
            };
            if !well {
                self.record.wake();
                self.record.take();
                self.free.store(PLENTY, Relaxed);
                return;
            }
            let mut rung = self.rung.lock().unwrap();
            if FAULT == RINGS_WITHOUT_A_TOKEN {
                rung = self.bell.wait(rung).unwrap();
            } else {
                while !*rung {
                    rung = self.bell.wait(rung).unwrap();
                }
            }
            *rung = false;
        }
    }
}

/// One reclaimer, and threads that find the node low.
fn explore<const FAULT: u32>(askers: usize, preemptions: Option<usize>) -> u64 {
    let interleavings = interleavings::explore(preemptions, move || {
        let node = Arc::new(Node::<FAULT> {
            record: Background::default(),
            free: AtomicU32::new(MARK + askers as u32),
            rung: Mutex::new(false),
            bell: Condvar::new(),
        });
        node.record.set_present(true);
        let threads: Vec<_> = (0..askers)
            .map(|_| {
                let node = Arc::clone(&node);
                loom::thread::spawn(move || {
                    node.free.fetch_sub(1, Relaxed);
                    if !node.is_well() {
                        node.ask();
                    }
                })
            })
            .collect();
        node.reclaim_once();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    eprintln!("{askers} threads that ask: {interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    match interleavings::canary().and_then(|fault| fault.parse().ok()) {
        Some(SOUND) => explore::<SOUND>(1, None),
        Some(LOOKS_TOO_EARLY) => explore::<LOOKS_TOO_EARLY>(1, None),
        Some(RINGS_WITHOUT_A_TOKEN) => explore::<RINGS_WITHOUT_A_TOKEN>(1, None),
        Some(DOES_NOT_RING) => explore::<DOES_NOT_RING>(1, None),
        _ => return,
    };
}

#[test]
fn no_wake_up_is_lost() {
    assert!(explore::<SOUND>(1, None) > 10);
    assert!(explore::<SOUND>(2, Some(3)) > 100);
}

#[test]
fn each_step_of_the_protocol_is_needed() {
    assert!(!is_found(SOUND));
    for fault in [LOOKS_TOO_EARLY, RINGS_WITHOUT_A_TOKEN, DOES_NOT_RING] {
        assert!(is_found(fault), "fault {fault}");
    }
}
