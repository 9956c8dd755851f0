use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

use super::*;
use crate::platform::reclaimer::Shrunk;
use crate::types::{NodeId, ZoneId};

/// Holds what it is told to and frees what it is told to, pass by pass.
#[derive(Default)]
struct Scripted {
    held: Cell<Holdings>,
    /// Pages freed by each pass to come; none when it is empty.
    frees: RefCell<Vec<u64>>,
    /// Slab pages that each pass over caches frees.
    slab_frees: Cell<u64>,
    passes: RefCell<Vec<Pass>>,
    slab_passes: Cell<u32>,
    is_reclaiming: Cell<bool>,
}

impl Reclaimer for Scripted {
    fn holdings(&self, _unit: Unit) -> Holdings {
        self.held.get()
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        self.passes.borrow_mut().push(*pass);
        let reclaimed = self.frees.borrow_mut().pop().unwrap_or(0);
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_slab(&self, _pass: &Pass) -> u64 {
        self.slab_passes.set(self.slab_passes.get() + 1);
        let mut held = self.held.get();
        let freed = self.slab_frees.get().min(held.slab);
        held.slab -= freed;
        self.held.set(held);
        freed * 20
    }
    fn is_reclaiming(&self) -> bool {
        self.is_reclaiming.get()
    }
}

const NODE: Unit = Unit::Node(NodeId(0));
const ZONE: Unit = Unit::Zone(ZoneId(0));
/// Far above the limits of [`record`].
const MUCH: Holdings = Holdings {
    file: 1000,
    inactive_file: 700,
    active_file: 300,
    file_mapped: 100,
    file_dirty: 50,
    anon: 0,
    slab: 0,
    all_unreclaimable: false,
};

/// Leaves 10 pages of files and 50 of caches alone.
fn record() -> ReclaimRecord {
    let record = ReclaimRecord::default();
    record.min_unmapped.store(10, Relaxed);
    record.min_slab.store(50, Relaxed);
    record
}

fn ask<'a>(reclaimer: &'a Scripted, record: &'a ReclaimRecord, unit: Unit) -> Try<'a> {
    Try {
        reclaimer,
        record,
        scans: Box::leak(Box::default()),
        unit,
        mode: MODE_ON,
        others_cpus: false,
        gfp: Gfp::KERNEL,
        order: Order::ZERO,
        highest: ZoneKind::Normal,
    }
}

#[test]
fn what_counts_as_reclaimable_follows_the_mode() {
    assert_eq!(reclaimable_cache(&MUCH, MODE_ON), 1000 - 100 - 50);
    assert_eq!(reclaimable_cache(&MUCH, MODE_WRITE), 1000 - 100);
    assert_eq!(reclaimable_cache(&MUCH, MODE_UNMAP), 1000 - 50);
    assert_eq!(reclaimable_cache(&MUCH, MODE_UNMAP | MODE_WRITE), 1000);
    let mapped = Holdings { file_mapped: 2000, file_dirty: 3, ..MUCH };
    assert_eq!(reclaimable_cache(&mapped, MODE_ON), 0, "never below nothing");
}

#[test]
fn ratios_are_percent_and_truncate() {
    assert_eq!([percent(99, 1), percent(100, 1), percent(1 << 29, 100)], [0, 1, 1 << 29]);
}

/// Equality is full: both sizes must be strictly above their limit to begin, and one is enough.
#[test]
fn a_unit_at_its_limits_is_full_whoever_asks() {
    let (record, events) = (record(), ReclaimEvents::default());
    for unit in [NODE, ZONE] {
        let platform = Scripted::default();
        let file = |pages| Holdings { inactive_file: pages, file: pages, ..Holdings::default() };
        platform.held.set(Holdings { slab: 50, ..file(10) });
        let denied = Try { gfp: Gfp::ATOMIC, others_cpus: true, ..ask(&platform, &record, unit) };
        for ask in [ask(&platform, &record, unit), denied] {
            assert_eq!(node_reclaim(&ask, &events), NodeReclaim::Full);
        }
        assert!(platform.passes.borrow().is_empty());
        platform.held.set(Holdings { slab: 50, ..file(11) });
        assert_eq!(node_reclaim(&ask(&platform, &record, unit), &events), NodeReclaim::Some);
        platform.held.set(Holdings { slab: 51, ..file(10) });
        assert_eq!(node_reclaim(&ask(&platform, &record, unit), &events), NodeReclaim::Some);
    }
    assert_eq!(events.stats().full, 4);
}

#[test]
fn a_zone_that_gave_nothing_for_long_is_full_and_a_node_never_is() {
    let (record, events) = (record(), ReclaimEvents::default());
    let platform = Scripted::default();
    platform.held.set(Holdings { all_unreclaimable: true, ..MUCH });
    assert_eq!(node_reclaim(&ask(&platform, &record, ZONE), &events), NodeReclaim::Full);
    assert_eq!(node_reclaim(&ask(&platform, &record, NODE), &events), NodeReclaim::Some);
}

#[test]
fn nobody_scans_who_may_not() {
    let (record, events) = (record(), ReclaimEvents::default());
    let platform = Scripted::default();
    platform.held.set(MUCH);
    let usual = ask(&platform, &record, NODE);
    let no_scan = |ask: &Try<'_>| {
        assert_eq!(node_reclaim(ask, &events), NodeReclaim::NoScan);
        assert!(platform.passes.borrow().is_empty());
    };
    no_scan(&Try { gfp: Gfp::ATOMIC, ..usual });
    no_scan(&Try { gfp: Gfp::NOWAIT, ..usual });
    no_scan(&Try { others_cpus: true, ..usual });
    platform.is_reclaiming.set(true);
    no_scan(&usual);
    platform.is_reclaiming.set(false);
    let other = record.try_lock().expect("nobody is at it");
    no_scan(&usual);
    drop(other);
    assert_eq!(node_reclaim(&usual, &events), NodeReclaim::Some);
    assert!(record.try_lock().is_some(), "the right ends with the try");
    let stats = events.stats();
    assert_eq!((stats.tries, stats.no_scan, stats.failed, stats.passes), (6, 5, 1, 5));
}

#[test]
fn passes_get_harder_until_the_request_is_served() {
    let (record, events) = (record(), ReclaimEvents::default());
    let platform = Scripted::default();
    platform.held.set(MUCH);
    platform.frees.replace(std::vec![5, 0, 3]); // 3, then 0, then 5
    let ask = Try { order: Order::new(3).unwrap(), mode: 3, ..ask(&platform, &record, NODE) };
    assert_eq!(node_reclaim(&ask, &events), NodeReclaim::Success);
    let passes = platform.passes.borrow();
    assert_eq!(passes.iter().map(|pass| pass.priority).collect::<Vec<_>>(), [4, 3, 2]);
    let first = passes[0];
    assert_eq!((first.wanted, first.highest, first.unit), (32, ZoneKind::Normal, NODE));
    assert!(first.may_write && !first.may_unmap && first.may_swap);
    let stats = events.stats();
    assert_eq!((stats.success, stats.passes, stats.pages), (1, 3, 8));
}

#[test]
fn a_large_request_asks_each_pass_for_all_of_its_pages() {
    let (record, events) = (record(), ReclaimEvents::default());
    let platform = Scripted::default();
    platform.held.set(MUCH);
    platform.frees.replace(std::vec![1; 9]);
    let ask = Try { order: Order::new(9).unwrap(), ..ask(&platform, &record, ZONE) };
    assert_eq!(node_reclaim(&ask, &events), NodeReclaim::Some);
    let passes = platform.passes.borrow();
    assert_eq!(passes.iter().map(|pass| pass.priority).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    assert!(passes.iter().all(|pass| pass.wanted == 512 && !pass.may_swap && !pass.may_write));
}

/// Up to 4.7 caches were shrunk behind the pages, by what the request needs.
#[test]
fn a_zones_caches_shrink_until_they_gave_what_the_request_needs() {
    let (record, events) = (record(), ReclaimEvents::default());
    for (slab_frees, slab, expected, passes) in [
        (1, 100, NodeReclaim::Success, 4), // one page each time
        (9, 100, NodeReclaim::Success, 1),
        (0, 100, NodeReclaim::Some, 1),   // nothing to free
        (1, 53, NodeReclaim::Success, 4), // the limit is looked at before, not between
        (1, 50, NodeReclaim::Full, 0),
    ] {
        let platform = Scripted::default();
        platform.held.set(Holdings { slab, ..Holdings::default() });
        platform.slab_frees.set(slab_frees);
        let ask = Try { order: Order::new(2).unwrap(), ..ask(&platform, &record, ZONE) };
        assert_eq!(node_reclaim(&ask, &events), expected);
        assert_eq!(platform.slab_passes.get(), passes);
        assert!(platform.passes.borrow().is_empty(), "there are no pages of files");
    }
    let platform = Scripted::default();
    platform.held.set(Holdings { slab: 100, ..Holdings::default() });
    assert_eq!(node_reclaim(&ask(&platform, &record, NODE), &events), NodeReclaim::Some);
    assert_eq!(
        (platform.slab_passes.get(), platform.passes.borrow().len()),
        (0, 5),
        "since 4.8: one pass"
    );
}

/// Objects are freed for ever, and no page of the zone with them.
#[test]
fn caches_that_give_no_pages_are_left_in_the_end() {
    struct Endless(Cell<u32>);
    impl Reclaimer for Endless {
        fn holdings(&self, _unit: Unit) -> Holdings {
            Holdings { slab: 100, ..Holdings::default() }
        }
        fn shrink(&self, _pass: &Pass) -> Shrunk {
            Shrunk::default()
        }
        fn shrink_slab(&self, _pass: &Pass) -> u64 {
            self.0.set(self.0.get() + 1);
            1
        }
    }
    let (record, events, platform) = (record(), ReclaimEvents::default(), Endless(Cell::new(0)));
    let unused = Scripted::default();
    let ask = Try { reclaimer: &platform, ..ask(&unused, &record, ZONE) };
    assert_eq!(node_reclaim(&ask, &events), NodeReclaim::Some);
    assert_eq!(platform.0.get(), SLAB_PASSES_MAX);
}
