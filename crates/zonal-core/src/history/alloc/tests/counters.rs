//! What old updates of the free-page counter cost, and where NUMA events of 4.14 are folded.

use std::vec::Vec;

use super::counters::{ZONE, alloc, with};
use super::platform::{LISTS_ALONE, Shape, on_cpu, steps_of};
use crate::alloc::Request;
use crate::platform::{Instruction, Line, Step};
use crate::policy::Policy;
use crate::types::{CpuId, NodeId, Order, ZoneId};
use crate::vmstat::threshold;
use crate::vmstat::variant::{NumaPolicy, Update};

#[test]
fn as_posted_the_local_increment_counts_no_single_page_and_the_rest_goes_past_the_delta() {
    let pool = Shape::uniform(1, 1 << 14, 1).boot(with(Update::LocalIncPosted));
    let before = pool.zones()[0].free_counter();
    alloc(&pool, 0, 500);
    assert_eq!(pool.zones()[0].free_counter(), before, "single pages are not counted");
    let pairs = alloc(&pool, 1, 1).len();
    let taken = pool.pcp(ZONE, CpuId(0)).totals().refilled_pages + 500;
    assert!(pairs == 1 && taken > 500);
    assert!(pool.zones()[0].free_counter() < before, "blocks of two are");
    assert!(!pool.cpu_ops(CpuId(0)).has_deltas());
    pool.validate().unwrap();
}

/// LB F.5: the sign bug folds every booking, the intended forms one in many.
#[test]
fn the_variants_cost_what_they_fold() {
    let folds = |update| {
        let pool = Shape::uniform(1, 1 << 18, 1).boot(with(update));
        let steps = steps_of(|| drop(alloc(&pool, 0, 5000)));
        let on = |line| steps.iter().filter(|step| **step == Step::Fold(line)).count();
        assert_eq!(on(Line::Zone(ZONE)), on(Line::Machine), "each fold writes both");
        let updates = steps.iter().filter_map(|step| match step {
            Step::Update { by, times, .. } => Some((*by, *times as usize)),
            _ => None,
        });
        let updates: Vec<_> = updates.collect();
        let by = updates[0].0;
        assert!(updates.iter().all(|(other, _)| *other == by));
        (by, updates.iter().map(|(_, times)| times).sum::<usize>(), on(Line::Machine))
    };
    let (by, updates, base) = folds(Update::Irq);
    // The zone lock masks interrupts: the plain steps are enough there.
    assert_eq!(by, Instruction::Plain);
    let threshold = threshold::normal(1 << 18, 1) as usize;
    assert_eq!(base, updates / (threshold + 1), "__mod folds without overstep");
    assert_eq!(folds(Update::CmpxchgSigned), (Instruction::Cmpxchg, updates, base));
    let posted = (Instruction::Cmpxchg, updates, updates);
    assert_eq!(folds(Update::CmpxchgPostedUnsigned), posted);
    // On reaching the threshold, and from there every one and a half.
    let (by, _, local) = folds(Update::LocalIncIntended);
    let first = updates - threshold;
    assert_eq!((by, local), (Instruction::LocalInc, 1 + first / (threshold + threshold / 2)));
    assert_eq!(folds(Update::LocalIncPosted), (Instruction::LocalInc, updates, 0));
}

#[test]
fn a_refresh_writes_the_machines_line_once() {
    let pool =
        Shape::uniform(2, 1 << 16, 1).boot(Policy { numa: NumaPolicy::V4_14, ..LISTS_ALONE });
    on_cpu(0);
    alloc(&pool, 0, 3);
    pool.alloc(Request::new(Order::ZERO).on(NodeId(1))).unwrap();
    let steps = steps_of(|| assert!(pool.refresh(CpuId(0))));
    let on = |line| steps.iter().filter(|step| **step == Step::Fold(line)).count();
    for zone in [0, 1].map(ZoneId) {
        assert_eq!((on(Line::Zone(zone)), on(Line::ZoneNuma(zone))), (1, 1));
    }
    assert_eq!((on(Line::Machine), on(Line::MachineNuma)), (1, 1));
}
