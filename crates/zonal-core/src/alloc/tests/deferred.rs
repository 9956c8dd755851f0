//! Memory that comes online while requests are served (LB A.8), and what becomes of the sizes of
//! the pcps (LB E.11).

use std::boxed::Box;
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::vec::Vec;

use super::platform::{Plain, Script, Shape, Stage, distances, on_cpu, zone};
use crate::alloc::{Allocator, OnlineError, Request};
use crate::gfp::Gfp;
use crate::machine::{Layout, ZoneSpec};
use crate::platform::Platform;
use crate::policy::recompute::Recompute;
use crate::policy::{PcpPolicy, Policy};
use crate::sync::Ordering::Relaxed;
use crate::types::{Choice, NodeId, Order, PAGEBLOCK_PAGES, Pfn, ZoneId, ZoneKind};
use crate::zone::deferred::{DEFERRED_MAX, SECTION_PAGES};

const SECTION: u64 = SECTION_PAGES;

/// Node 0 has DMA32 of two sections and Normal of four, node 1 Normal of three and a half.
fn shape() -> Shape {
    Shape {
        distances: distances(2),
        zones: std::vec![
            zone(0, ZoneKind::Dma32, 0, 2 * SECTION),
            zone(0, ZoneKind::Normal, 2 * SECTION, 4 * SECTION),
            zone(1, ZoneKind::Normal, 6 * SECTION, 3 * SECTION + SECTION / 2),
        ],
        cpus: std::vec![NodeId(0), NodeId(1)],
        cache_slice_bytes: 0,
        caches: Vec::new(),
    }
}

fn managed<P: Platform>(pool: &Allocator<'_, P>) -> Vec<u64> {
    pool.zones().iter().map(|zone| zone.managed()).collect()
}

fn sizes<P: Platform>(pool: &Allocator<'_, P>) -> Vec<(u32, u32, u32)> {
    pool.zones().iter().map(|zone| zone.pcp_sizes()).collect()
}

#[test]
fn only_a_nodes_highest_zone_starts_small() {
    let pool = shape().boot_deferred(Policy::LINUX_6_18, Script::default(), 0);
    assert_eq!(managed(&pool), [2 * SECTION, SECTION, SECTION]);
    assert_eq!(pool.stats().left_to_grow(NodeId(0)), 3 * SECTION);
    assert_eq!(pool.stats().left_to_grow(NodeId(1)), 2 * SECTION + SECTION / 2);
    assert!(pool.is_growing());
    // Marks come when all memory is there; lists have sizes from the start.
    assert!(pool.zones().iter().all(|zone| zone.watermarks() == Default::default()));
    assert!(sizes(&pool).iter().all(|(batch, ..)| *batch > 0));
    pool.validate().unwrap();
}

#[test]
fn a_zone_that_does_not_start_with_a_section_starts_with_more_than_one() {
    let mut shape = Shape::uniform(1, 0, 1);
    shape.zones = std::vec![zone(0, ZoneKind::Normal, SECTION / 2, 3 * SECTION)];
    let pool = shape.clone().boot_deferred(Policy::ZONAL, Script::default(), 100);
    // Up to the second section that begins in it; its reserved pages are not in the buddy.
    assert_eq!(managed(&pool), [SECTION + SECTION / 2 - 100]);
    shape.zones = std::vec![zone(0, ZoneKind::Normal, 0, SECTION)];
    let small = shape.boot_deferred(Policy::ZONAL, Script::default(), 0);
    assert!(!small.is_growing(), "one section is all there is");
    assert!(small.zones()[0].watermarks().min > 0);
}

#[test]
fn a_zones_memory_is_put_off_inside_the_zone_in_as_many_ranges_as_there_is_room_for() {
    let mut shape = Shape::uniform(1, 0, 1);
    let spanned = zone(0, ZoneKind::Normal, 0, 40 * SECTION);
    shape.zones = std::vec![ZoneSpec { present: SECTION, ..spanned }];
    // The last section is put off as the first range.
    let pool = shape.boot_deferred(Policy::ZONAL, Script::default(), 0);
    assert_eq!((managed(&pool)[0], pool.stats().left_to_grow(NodeId(0))), (0, SECTION));
    let range = |n: usize| Pfn(2 * n as u64 * SECTION)..Pfn((2 * n + 1) as u64 * SECTION);
    for n in 1..DEFERRED_MAX {
        assert_eq!(pool.online_deferred(ZoneId(0), range(n)), Ok(()));
    }
    let full = pool.online_deferred(ZoneId(0), range(DEFERRED_MAX));
    assert_eq!(full, Err(OnlineError::DeferredFull(ZoneId(0))));
    for (from, to) in [(39, 41), (3, 2)] {
        let outside = pool.online_deferred(ZoneId(0), Pfn(from * SECTION)..Pfn(to * SECTION));
        assert!(matches!(outside, Err(OnlineError::OutsideZone(..))), "{from} to {to}");
    }
    pool.finish_growth().unwrap();
    assert_eq!(managed(&pool), [DEFERRED_MAX as u64 * SECTION]);
    pool.validate().unwrap();
}

/// What was put off comes with its section. A part that came before left the rest of the section
/// offline for good.
#[test]
fn pages_that_were_put_off_come_with_their_section_and_by_no_other_call() {
    let pool = shape().boot_deferred(Policy::LINUX_6_18, Script::default(), 0);
    // The second section that was put off, and pages on both sides of its begin.
    let begin = 8 * SECTION;
    for (start, end) in [(begin + 5, begin + 7), (begin - 1, begin + 1), (begin, 9 * SECTION)] {
        let refused = pool.online(ZoneId(2), Pfn(start)..Pfn(end));
        assert_eq!(refused, Err(OnlineError::PutOff(ZoneId(2), start, end)));
    }
    assert_eq!(managed(&pool), [2 * SECTION, SECTION, SECTION]);
    pool.finish_growth().unwrap();
    assert_eq!(managed(&pool), managed(&shape().boot(Policy::LINUX_6_18)));
    let there = pool.online(ZoneId(2), Pfn(begin + 5)..Pfn(begin + 7));
    assert!(matches!(there, Err(OnlineError::InUse(_))), "{there:?}");
    pool.validate().unwrap();
}

/// However it came online, the machine ends as if all memory had been there.
#[test]
fn a_machine_that_has_grown_is_as_one_that_was_complete() {
    for &policy in Policy::PRESETS {
        let complete = shape().boot(policy);
        let by_workers = shape().boot_deferred(policy, Script::default(), 0);
        while by_workers.grow(NodeId(1), |_| {}).unwrap() > 0 {}
        let at_once = shape().boot_deferred(policy, Script::default(), 0);
        for pool in [&by_workers, &at_once] {
            pool.finish_growth().unwrap();
            assert!(!pool.is_growing());
            assert_eq!(managed(pool), managed(&complete));
            assert_eq!(pool.stats().min_free_kbytes(), complete.stats().min_free_kbytes());
            for (zone, same) in pool.zones().iter().zip(complete.zones()) {
                assert_eq!(zone.watermarks(), same.watermarks());
                assert_eq!(zone.stat_threshold(), same.stat_threshold());
                let sized_again = policy.pcp.recompute.name() != "creation";
                let complete_before = zone.kind() == ZoneKind::Dma32;
                let sizes_agree = zone.pcp_sizes() == same.pcp_sizes();
                assert_eq!(sizes_agree, sized_again || complete_before, "{}", policy.name);
                assert_eq!(zone.fast.load(Relaxed), same.fast.load(Relaxed));
            }
            pool.validate().unwrap();
            pool.finish_growth().unwrap();
        }
    }
}

/// A request that finds its zone used up gets its block from a section that comes online for it:
/// always a whole one, and none before the zone has failed.
#[test]
fn a_zone_grows_by_sections_as_requests_fail() {
    for order in [0, 4, 9, 10] {
        let order = Order::new(order).unwrap();
        let pool = shape().boot_deferred(Policy::LINUX_6_18, Script::default(), 0);
        on_cpu(1);
        let node1 = &pool.zones()[2];
        let mut seen = HashSet::new();
        let mut got = 0;
        loop {
            let pfn = pool.alloc(Request::new(order)).unwrap();
            if !node1.contains(pfn) {
                break;
            }
            assert!(seen.insert(pfn));
            got += order.pages();
            let needed = got.div_ceil(SECTION).max(1) * SECTION;
            // Lists refill ahead of requests, and the watermarks do not see what waits on them.
            let ahead = pool.zone_stats(ZoneId(2)).cached_pages;
            let managed = node1.managed();
            assert!(managed >= needed.min(node1.spanned()));
            assert!(managed <= ((got + ahead) / SECTION + 1) * SECTION);
        }
        // The other node is asked when this one has nothing to come.
        assert_eq!(node1.managed(), node1.spanned());
        assert_eq!(got + pool.zone_stats(ZoneId(2)).cached_pages, node1.spanned());
        assert!(pool.stats().left_to_grow(NodeId(0)) > 0);
        pool.validate().unwrap();
    }
}

/// A bulk request keeps to its node as long as that can grow.
#[test]
fn a_bulk_request_makes_its_node_grow() {
    let pool = shape().boot_deferred(Policy::LINUX_6_18, Script::default(), 0);
    on_cpu(1);
    let node1 = &pool.zones()[2];
    let mut pages = std::vec![Pfn(0); 1024];
    while node1.managed() < node1.spanned() {
        assert_eq!(pool.alloc_bulk(Request::new(Order::ZERO), &mut pages), Ok(1024));
        assert!(pages.iter().all(|pfn| node1.contains(*pfn)));
    }
    pool.validate().unwrap();
}

/// Each value of `pcp.recompute`: the sizes before and after the memory came, against those of a
/// machine that was complete from the start.
#[test]
fn sizes_are_computed_again_when_the_policy_says() {
    let with = |recompute| Policy {
        pcp: PcpPolicy { recompute, ..Policy::LINUX_6_18.pcp },
        ..Policy::LINUX_6_18
    };
    let batches = |sizes: &[(u32, u32, u32)]| sizes.iter().map(|s| s.0).collect::<Vec<_>>();
    let complete = sizes(&shape().boot(Policy::LINUX_6_18));
    assert_eq!(batches(&complete), [15, 31, 31]);
    for &(_, recompute) in Recompute::ALL {
        let pool = shape().boot_deferred(with(recompute), Script::default(), 0);
        let before = sizes(&pool);
        assert_eq!(batches(&before), [15, 7, 7]);
        pool.finish_growth().unwrap();
        let after = sizes(&pool);
        match recompute {
            #[cfg(feature = "history")]
            Recompute::Creation => assert_eq!(after, before),
            // Before the watermarks are there, lists may hold four batches at least (LB E.11).
            #[cfg(feature = "history")]
            Recompute::DeferredInit => {
                assert_eq!(batches(&after), [15, 31, 31]);
                assert!(after.iter().all(|(batch, high_min, _)| *high_min == 4 * batch));
            }
            Recompute::Watermarks | Recompute::Cpus => assert_eq!(after, complete),
        }
        // A change of the watermarks alone.
        let fresh = shape().boot(with(recompute));
        fresh.set(crate::alloc::Sysctl::MinFreeKbytes, 100_000).unwrap();
        let follows =
            sizes(&fresh) != complete && sizes(&fresh) != sizes(&shape().boot(with(recompute)));
        assert_eq!(follows, recompute >= Recompute::Watermarks);
    }
}

/// GROW-1: workers and requests together bring each page online once.
#[test]
fn workers_and_requests_grow_a_node_together() {
    let mut shape = Shape::uniform(2, 6 * SECTION, 2);
    shape.cache_slice_bytes = 0;
    let pool = shape.boot_deferred(Policy::ZONAL, Stage::for_threads(Plain), 0);
    let prepared = AtomicUsize::new(0);
    let order = Order::new(10).unwrap();
    let blocks: Vec<Vec<Pfn>> = std::thread::scope(|scope| {
        for node in [0, 0, 1] {
            let (pool, prepared) = (&pool, &prepared);
            scope.spawn(move || {
                let grow = || {
                    pool.grow(NodeId(node), |range| {
                        assert_eq!(range.start.0 % SECTION, 0);
                        prepared.fetch_add((range.end.0 - range.start.0) as usize, Relaxed);
                    })
                };
                while grow().unwrap() > 0 {
                    std::thread::yield_now();
                }
            });
        }
        let takers: Vec<_> = (0..4u32)
            .map(|cpu| {
                let pool = &pool;
                scope.spawn(move || {
                    on_cpu(cpu);
                    let take = |_| pool.alloc(Request::new(order)).unwrap();
                    (0..48).map(take).collect::<Vec<Pfn>>()
                })
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    pool.finish_growth().unwrap();
    assert!(prepared.load(Relaxed) as u64 <= 10 * SECTION);
    assert_eq!(managed(&pool), [6 * SECTION; 2]);
    let all: HashSet<Pfn> = blocks.iter().flatten().copied().collect();
    assert_eq!(all.len(), 4 * 48, "no block twice");
    assert_eq!(pool.free_pages() + (all.len() as u64) * order.pages(), 12 * SECTION);
    pool.validate().unwrap();
}

/// GROW-2: a worker has the last section; a request that may wait is not refused meanwhile.
#[test]
fn a_request_waits_for_memory_that_a_worker_has_claimed() {
    static CLAIMED: Barrier = Barrier::new(2);
    static GO: Barrier = Barrier::new(2);
    let pool: &'static Allocator<'static, Script> =
        Box::leak(Box::new(Shape::uniform(1, 2 * SECTION, 1).boot_deferred(
            Policy::ZONAL,
            Stage::for_threads(Plain),
            0,
        )));
    let order = Order::new(10).unwrap();
    let first: Vec<Pfn> =
        (0..SECTION / 1024).map(|_| pool.alloc(Request::new(order)).unwrap()).collect();
    assert_eq!(first.len(), 32);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pool.grow(NodeId(0), |_| {
                CLAIMED.wait();
                GO.wait();
            })
        });
        CLAIMED.wait();
        let atomic = pool.alloc(Request::new(order).gfp(Gfp::NOWAIT));
        let patient = scope.spawn(|| pool.alloc(Request::new(order)));
        GO.wait();
        assert!(atomic.is_err(), "nothing is there, and it must not wait");
        assert!(patient.join().unwrap().is_ok());
        assert_eq!(worker.join().unwrap(), Ok(SECTION));
    });
    pool.finish_growth().unwrap();
    pool.validate().unwrap();
}

#[test]
fn a_section_whose_preparation_panics_stays_away_and_nobody_waits_for_it() {
    let pool = Shape::uniform(1, 3 * SECTION, 1).boot_deferred(Policy::ZONAL, Script::default(), 0);
    let panics = std::panic::AssertUnwindSafe(|| pool.grow(NodeId(0), |_| panic!("on purpose")));
    std::panic::catch_unwind(panics).unwrap_err();
    pool.finish_growth().unwrap();
    assert!(!pool.is_growing());
    assert_eq!(pool.free_pages(), 2 * SECTION);
    pool.validate().unwrap();
}

/// The pages of the last pageblock of a zone: all that is online there.
const LAST: std::ops::Range<Pfn> = Pfn(2 * SECTION - PAGEBLOCK_PAGES)..Pfn(2 * SECTION);

/// Memory that is there was put off all the same, and a request brought it online once more: where
/// a CPU owned the pageblock, whose free pages have no words, two owners got its pages.
#[test]
fn memory_that_is_there_is_not_put_off() {
    for policy in [Policy::OWNED_2026, Policy::ZONAL, Policy::LINUX_6_18] {
        let shape = Box::leak(Box::new(Shape::uniform(1, 2 * SECTION, 1)));
        let layout = Layout::of(&shape.machine(), &policy).unwrap();
        let pool = shape.try_make(policy, &layout, Script::default()).unwrap();
        on_cpu(0);
        pool.online(ZoneId(0), LAST).unwrap();
        pool.setup();
        let take = |order: u32| {
            let order = Order::new(order).unwrap();
            pool.alloc(Request::new(order).gfp(Gfp::KERNEL | Gfp::MEMALLOC)).ok()
        };
        let page = take(0).unwrap();
        for _ in 0..2 {
            for wrong in [LAST, Pfn(SECTION)..LAST.end, LAST.start..Pfn(LAST.start.0 + 1)] {
                let done = pool.online_deferred(ZoneId(0), wrong.clone());
                assert!(matches!(done, Err(OnlineError::InUse(_))), "{wrong:?}: {done:?}");
                assert!(!pool.is_growing() && pool.stats().left_to_grow(NodeId(0)) == 0);
            }
            // Once more, with every page of it free.
            _ = pool.free(page, Order::ZERO);
        }
        assert_eq!(take(9).into_iter().chain(take(9)).count(), 1, "{}", policy.name);
        pool.validate().unwrap();
    }
}

/// A range that is to come by another way before its turn comes is brought once.
#[test]
fn memory_that_was_asked_for_meanwhile_is_brought_once() {
    for policy in [Policy::OWNED_2026, Policy::ZONAL] {
        let shape = Box::leak(Box::new(Shape::uniform(1, 2 * SECTION, 1)));
        let layout = Layout::of(&shape.machine(), &policy).unwrap();
        let pool = shape.try_make(policy, &layout, Script::default()).unwrap();
        on_cpu(0);
        pool.online_deferred(ZoneId(0), LAST).unwrap();
        let refused = pool.online(ZoneId(0), LAST);
        assert_eq!(refused, Err(OnlineError::PutOff(ZoneId(0), LAST.start.0, LAST.end.0)));
        pool.setup();
        let take = |order: u32| {
            let order = Order::new(order).unwrap();
            pool.alloc(Request::new(order).gfp(Gfp::KERNEL | Gfp::MEMALLOC)).ok()
        };
        // The CPU has all pages of the pageblock, and none of them a word.
        pool.free(take(0).unwrap(), Order::ZERO).unwrap();
        assert_eq!(take(9).into_iter().chain(take(9)).count(), 1, "{}", policy.name);
        pool.validate().unwrap();
    }
}
