//! The gate of a pcp under every interleaving: the very file of the core, `zonal_core::pcp::gated`,
//! compiled a second time with loom's atomics, against a closer (`zonal_core::pcp::closed`) on
//! another CPU, against a thread that was moved away with the pcp in its hands, and against a zone
//! that has something to decide from some moment on (`zonal_core::zone::epoch`).
//!
//! # The canaries
//! Each leaves out one step of the closer, or takes the steps of an epoch the wrong way round. All
//! must be found: pages handed out twice, or lost, or by a pcp that had to ask. They
//! run in processes of their own, since loom cannot always unwind.
#![allow(missing_docs, missing_debug_implementations, reason = "a model")]

/// Stands for the core's module.
pub mod sync {
    pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
}
/// Stands for the core's module.
pub mod pcp {
    pub use crate::gate::state;
    pub use crate::ready;
    pub use crate::word;
}
pub use gate::frame;

#[path = "../../zonal-core/src/frame/claim.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod claim;
#[path = "../../zonal-core/src/zone/epoch.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod epoch;
#[path = "../../zonal-core/src/pcp/gated.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod gated;
#[path = "../../zonal-core/src/pcp/ready.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod ready;
#[path = "../../zonal-core/src/pcp/word.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod word;

#[path = "support/gate.rs"]
pub mod gate;
mod support;

use gate::{Fault, Machine, assert_once};
use support::interleavings::{assert_each_is_found, explore, fault_of_child};

const FAULTS: [Fault; 6] = [
    Fault::NoGate,
    Fault::OpenedTooEarly,
    Fault::NoRelease,
    Fault::StaysReady,
    Fault::ZoneFirst,
    Fault::LostLate,
];

/// Pops, and pushes and pops again; the pages it holds in the end.
fn program(machine: &'static Machine, list: usize) -> Vec<u32> {
    let mut held: Vec<_> = machine.pop(list).into_iter().collect();
    if held.last().is_some_and(|page| machine.push(list, *page)) {
        held.pop();
    }
    held.extend(machine.pop(list));
    held
}

/// The owner against a closer on another CPU.
fn drained(fault: Fault, close: fn(&Machine) -> Vec<u32>) {
    let machine = Machine::new(fault);
    let closer = loom::thread::spawn(move || close(machine));
    let held = program(machine, 0);
    let taken = closer.join().unwrap();
    assert_once([held, taken, machine.rest()]);
}

/// Two threads on one pcp, one of which was moved away, each with a list of its own: each pop makes
/// its list the active one.
fn shared(fault: Fault, lists: [usize; 2]) {
    let machine = Machine::new(fault);
    let other = loom::thread::spawn(move || machine.pop(lists[1]).into_iter().collect());
    let held = program(machine, lists[0]);
    let others = other.join().unwrap();
    assert_once([held, others, machine.rest()]);
}

/// Two threads free one block at the same time: one of them does.
fn freed_twice(fault: Fault) {
    let machine = Machine::new(fault);
    let page = machine.pop(0).unwrap();
    let other = loom::thread::spawn(move || machine.push(0, page));
    let mine = machine.push(0, page);
    let theirs = other.join().unwrap();
    assert!(mine != theirs, "freed by one of them");
    assert_once([machine.rest()]);
}

/// The zone has something to decide from some moment on: whoever comes behind it asks the core,
/// whatever the pcp was ready for.
fn zone_says_no(fault: Fault) {
    let machine = Machine::new(fault);
    let flag = loom::thread::spawn(move || machine.lose());
    let mut held = program(machine, 0);
    flag.join().unwrap();
    let late = machine.pop(0);
    assert_eq!(late, None, "READY-1");
    held.extend(late);
    assert_once([held, machine.rest()]);
}

/// The same while somebody closes the pcp and would leave it ready.
fn zone_says_no_to_a_closer(fault: Fault) {
    let machine = Machine::new(fault);
    let flag = loom::thread::spawn(move || machine.lose());
    let taken = machine.drain_and_stay_ready();
    flag.join().unwrap();
    assert_eq!(machine.pop(0), None, "READY-1");
    assert_once([taken, machine.rest()]);
}

/// All scenes with one fault. Returns the number of interleavings.
fn all_scenes(fault: Fault) -> u64 {
    explore(Some(3), move || drained(fault, Machine::drain))
        + explore(Some(3), move || drained(fault, Machine::drain_and_stay_ready))
        + explore(Some(3), move || shared(fault, [0, 0]))
        + explore(Some(3), move || shared(fault, [0, 1]))
        + explore(Some(3), move || freed_twice(fault))
        + explore(Some(3), move || zone_says_no(fault))
        + explore(Some(3), move || zone_says_no_to_a_closer(fault))
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    if let Some(fault) = fault_of_child(Fault::Sound, &FAULTS) {
        all_scenes(fault);
    }
}

#[test]
fn no_page_is_lost_or_handed_out_twice_under_the_gate() {
    let interleavings = all_scenes(Fault::Sound);
    eprintln!("{interleavings} interleavings");
    assert!(interleavings > 100);
}

#[test]
fn each_step_is_needed() {
    assert_each_is_found(Fault::Sound, &FAULTS);
}
