//! A request is refused only if it is true, and says why (LB C.5, D.5, K.5).

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::platform::{
    LISTS_ALONE, Script, Shape, before_the_next_lock, distances, on_cpu, while_waiting, zone,
};
use crate::alloc::range::{RangeRefusal, RangeRequest};
use crate::alloc::{AllocError, Allocator, Refusal, Request, Sysctl};
use crate::gfp::Gfp;
use crate::policy::{Grouping, MinFreeRule, Policy, WatermarkPolicy};
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, NodeId, Order, PageRules, Pfn, ZoneId, ZoneKind};
use crate::zone::state::LockedZone;
use crate::zone::watermark::Watermark;

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

fn kbytes(policy: Policy, kbytes: u32) -> Policy {
    let min_free = MinFreeRule::Kbytes(kbytes);
    Policy { watermark: WatermarkPolicy { min_free, ..policy.watermark }, ..policy }
}

/// Takes blocks until a request is refused.
fn exhaust(pool: &Allocator<'_, Script>, request: Request) -> (Vec<Pfn>, AllocError) {
    let mut blocks = Vec::new();
    loop {
        match pool.alloc(request) {
            Ok(pfn) => blocks.push(pfn),
            Err(error) => return (blocks, error),
        }
    }
}

fn free_of(pool: &Allocator<'_, Script>, zone: u16) -> u64 {
    let stats = pool.zone_stats(ZoneId(zone));
    stats.free_pages + stats.cached_pages
}

/// "Out of memory with 5 % of frames free": the frames are on the pcps of other CPUs, which also
/// hold back the counters of free pages.
#[test]
fn blocks_on_other_cpus_pcps_are_had_by_every_kind_of_request() {
    let kinds = [Gfp::KERNEL, Gfp::NOWAIT, Gfp::KERNEL | Gfp::NORETRY, Gfp::NONE];
    for policy in [Policy::ZONAL, kbytes(Policy::ZONAL, 0), Policy::LINUX_6_18] {
        for o in Order::all() {
            let pool = Shape::uniform(1, 1 << 14, 4).boot(policy);
            let (blocks, _) = exhaust(&pool, Request::new(o));
            let gone = blocks.len().div_ceil(20);
            for (i, pfn) in blocks[..gone].iter().enumerate() {
                on_cpu(1 + i as u32 % 3);
                pool.free(*pfn, o).unwrap();
            }
            on_cpu(0);
            let min = pool.zones()[0].watermarks().min;
            let mut served = 0;
            while free_of(&pool, 0) + 1 > min + o.pages() && served < gone {
                let request = Request::new(o).gfp(kinds[served % kinds.len()]);
                let got = pool.alloc(request);
                assert!(got.is_ok(), "{o:?}, {served} of {gone}, {}: {got:?}", policy.name);
                served += 1;
            }
            // The counters may let a block or two more pass than the watermark allows, as in Linux.
            let slack = u64::from(pool.zones()[0].stat_threshold()).div_ceil(o.pages());
            let more = exhaust(&pool, Request::new(o)).0.len();
            assert!((gone - served).max(more) as u64 <= slack, "{served} of {gone}, {more} more");
            pool.validate().unwrap();
        }
    }
}

/// LB K.5: min 1000, reserve 200.
fn k5() -> Allocator<'static, Script> {
    let zones = vec![zone(0, ZoneKind::Dma32, 0, 38_000), zone(0, ZoneKind::Normal, 38_000, 2_000)];
    let cpus = vec![NodeId(0)];
    let shape =
        Shape { distances: distances(1), zones, cpus, cache_slice_bytes: 0, caches: Vec::new() };
    let policy = Policy { mobility_grouping: Grouping::Off, ..Policy::LINUX_6_18 };
    let pool = shape.boot(kbytes(policy, 4212));
    pool.set(Sysctl::LowmemReserveRatio(ZoneKind::Dma32), 10).unwrap();
    let low = &pool.zones()[0];
    assert_eq!((low.watermarks().min, low.reserve(ZoneKind::Normal)), (1000, 200));
    pool
}

#[test]
fn each_right_goes_as_deep_as_linux_lets_it() {
    let pool = k5();
    // From the weakest right to the strongest; each goes on where the one before had to stop.
    let steps = [
        (0, Gfp::KERNEL, 1200),
        (0, Gfp::NOWAIT, 1200),
        (0, Gfp::KERNEL | Gfp::NORETRY, 1200),
        (0, Gfp::KERNEL | Gfp::MEMALLOC | Gfp::NOMEMALLOC, 1200),
        (0, Gfp::KERNEL | Gfp::HIGH, 700),
        (0, Gfp::ATOMIC | Gfp::NOMEMALLOC, 700),
        (0, Gfp::ATOMIC, 575),
        (0, Gfp::KERNEL | Gfp::MEMALLOC, 0),
    ];
    for (o, gfp, left) in steps {
        let (_, error) = exhaust(&pool, Request::new(order(o)).gfp(gfp));
        assert_eq!(free_of(&pool, 0), left, "{gfp}");
        let (zone, node, kind) = (ZoneId(0), NodeId(0), ZoneKind::Dma32);
        let expected = match left {
            0 => Refusal::Fragmented { zone, node, kind, free: 0 },
            _ => {
                let (free, needed) = (left, left);
                Refusal::Watermark { zone, node, kind, watermark: Watermark::Min, free, needed }
            }
        };
        assert_eq!(error.why, expected, "{gfp}");
    }
    pool.validate().unwrap();
}

/// LB K.5: which reserve counts is a matter of the request's highest kind, not of the zone's.
#[test]
fn a_request_for_the_low_zone_itself_leaves_no_reserve() {
    for (gfp, left) in [(Gfp::KERNEL, 1200), (Gfp::KERNEL | Gfp::DMA32, 1000)] {
        let pool = k5();
        exhaust(&pool, Request::new(Order::ZERO).gfp(gfp));
        assert_eq!(free_of(&pool, 0), left, "{gfp}");
    }
}

#[test]
fn larger_blocks_leave_what_they_cannot_use() {
    for (gfp, left) in [(Gfp::KERNEL, 1207), (Gfp::ATOMIC, 582)] {
        let pool = k5();
        let (_, error) = exhaust(&pool, Request::new(order(3)).gfp(gfp));
        let free = free_of(&pool, 0);
        assert!(free <= left && free + 8 > left, "{gfp}: {free}");
        let Refusal::Watermark { free: usable, needed, .. } = error.why else { panic!("{error}") };
        assert_eq!((usable, needed), (free, left));
    }
}

#[test]
fn a_request_that_would_be_granted_a_smaller_block_is_told_so() {
    let pool = Shape::uniform(1, 4096, 1).boot(kbytes(Policy::ZONAL, 0));
    let (pages, _) = exhaust(&pool, Request::new(Order::ZERO));
    // Every second page, so that nothing merges.
    for pfn in pages.iter().filter(|pfn| pfn.0 % 2 == 0) {
        pool.free(*pfn, Order::ZERO).unwrap();
    }
    for gfp in [Gfp::KERNEL, Gfp::ATOMIC, Gfp::KERNEL | Gfp::MEMALLOC] {
        let error = pool.alloc(Request::new(order(1)).gfp(gfp)).unwrap_err();
        let (zone, node, kind) = (ZoneId(0), NodeId(0), ZoneKind::Normal);
        assert_eq!(error.why, Refusal::Fragmented { zone, node, kind, free: 2048 });
    }
    pool.alloc(Request::new(Order::ZERO)).unwrap();
}

#[test]
fn a_refusal_names_the_last_zone_the_request_could_use() {
    let zones = vec![
        zone(0, ZoneKind::Dma, 0, 300),
        zone(0, ZoneKind::Normal, 300, 3000),
        zone(1, ZoneKind::Normal, 4096, 2000),
    ];
    let cpus = vec![NodeId(0), NodeId(1)];
    let shape =
        Shape { distances: distances(2), zones, cpus, cache_slice_bytes: 0, caches: Vec::new() };
    let pool = shape.boot(Policy::LINUX_6_18);
    let named = |request| match exhaust(&pool, request).1.why {
        Refusal::Watermark { zone, .. } => zone,
        why => panic!("{why:?}"),
    };
    let kernel = Request::new(Order::ZERO);
    let this_node = kernel.gfp(Gfp::KERNEL | Gfp::THISNODE);
    // Each on its own node first: then other zones have pages left.
    assert_eq!(named(this_node.on(NodeId(1))), ZoneId(2));
    assert_eq!(free_of(&pool, 1), 3000);
    assert_eq!(named(kernel.gfp(Gfp::KERNEL | Gfp::DMA).on(NodeId(1))), ZoneId(0));
    assert_eq!(free_of(&pool, 1), 3000);
    assert_eq!(named(this_node), ZoneId(0));
    assert_eq!(named(kernel), ZoneId(2));
    on_cpu(1);
    assert_eq!(named(kernel), ZoneId(0));
    let nowhere = kernel.gfp(Gfp::KERNEL | Gfp::DMA | Gfp::THISNODE).on(NodeId(1));
    assert_eq!(pool.alloc(nowhere).unwrap_err().why, Refusal::NoZone(NodeId(1)));
    let missing = Refusal::NoNode { node: NodeId(2), nodes: 2 };
    assert_eq!(pool.alloc(kernel.on(NodeId(2))).unwrap_err().why, missing);
    let gfp = Gfp::KERNEL | Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert_eq!(pool.alloc(kernel.gfp(gfp)).unwrap_err().why, Refusal::BadGfp(gfp));
    let gfp = Gfp::DMA | Gfp::DMA32;
    assert_eq!(pool.alloc(kernel.gfp(gfp)).unwrap_err().why, Refusal::BadGfp(gfp));
}

/// What is too long for every zone is refused before anything is drained, reclaimed or waited for.
#[test]
fn a_range_that_no_zone_can_hold_is_told_how_long_one_may_be() {
    let zones = vec![zone(0, ZoneKind::Dma, 0, 300), zone(0, ZoneKind::Normal, 300, 3000)];
    let cpus = vec![NodeId(0)];
    let shape =
        Shape { distances: distances(1), zones, cpus, cache_slice_bytes: 0, caches: Vec::new() };
    let pool = shape.boot(kbytes(Policy::ZONAL, 0));
    let held = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let moved = || {
        let zones = [0, 1].map(|zone| pool.zone_stats(ZoneId(zone)));
        zones.map(|stats| (stats.drains, stats.free_pages, stats.cached_pages))
    };
    let before = moved();
    let dma = Gfp::KERNEL | Gfp::DMA;
    let must = Gfp::KERNEL | Gfp::NOFAIL;
    for (pages, align, gfp, longest) in [
        (3001, 1, Gfp::KERNEL, 3000),
        (u64::MAX, 1, Gfp::KERNEL, 3000),
        (301, 1, dma, 300),
        (512, 512, dma, 300),
        (2277, 1024, Gfp::KERNEL, 3300 - 1024),
        (3001, 4096, Gfp::KERNEL, 300),
        (3001, 1, must, 3000),
    ] {
        let request = RangeRequest::new(pages).aligned(align).gfp(gfp);
        let error = pool.ranges().alloc(request).unwrap_err();
        assert_eq!(error.why, RangeRefusal::TooLong { longest, align }, "{request:?}");
    }
    assert_eq!(moved(), before);
    pool.free(held, Order::ZERO).unwrap();
    // As long as the zone, and not there for another reason: the watermark.
    let min = Policy::LINUX_6_18;
    let pool = Shape::uniform(1, 4096, 1).boot(min);
    let error = pool.ranges().alloc(RangeRequest::new(4096)).unwrap_err();
    let RangeRefusal::Refused(Refusal::Watermark { free, needed, .. }) = error.why else {
        panic!("{error}")
    };
    let kept = pool.zones()[0].watermarks().min + pool.zones()[0].reserve(ZoneKind::Normal);
    assert_eq!((free, needed), (4096, kept + 4095));
}

/// Deltas of 64 CPUs hide up to 125 pages each (LB F.2).
#[test]
fn free_pages_hidden_in_counter_deltas_are_found_before_a_refusal() {
    let cpus = 16;
    let pool = Shape::uniform(1, 1 << 13, cpus).boot(kbytes(Policy::ZONAL, 0));
    let (pages, _) = exhaust(&pool, Request::new(Order::ZERO));
    // As many on each CPU as its delta can hide.
    let hidden = pool.zones()[0].stat_threshold() as usize;
    for (i, pfn) in pages[..cpus * hidden].iter().enumerate() {
        on_cpu((i / hidden) as u32);
        pool.free(*pfn, Order::ZERO).unwrap();
        pool.drain(ZoneId(0), CpuId((i / hidden) as u32));
    }
    assert_eq!(pool.zones()[0].free_counter(), 0);
    on_cpu(0);
    for _ in 0..cpus * hidden {
        pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).unwrap();
    }
    assert!(pool.alloc(Request::new(Order::ZERO)).is_err());
}

/// Emptying a pcp interrupts its CPU; a request that must not wait asks for it where it can win
/// by it, and not otherwise.
#[test]
fn a_request_that_must_not_wait_empties_pcps_only_where_that_can_help() {
    let pool = Shape::uniform(1, 1 << 14, 2).boot(kbytes(LISTS_ALONE, 4000));
    let nowait = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    let (pages, _) = exhaust(&pool, nowait);
    let min = pool.zones()[0].watermarks().min;
    assert_eq!(free_of(&pool, 0), min);
    on_cpu(1);
    pages[..40].iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    on_cpu(0);
    // Forty pages above the watermark are on the other CPU's pcp, and are found.
    let before = pool.stats().whole_drains();
    for _ in 0..40 {
        pool.alloc(nowait).unwrap();
    }
    assert!(pool.stats().whole_drains() > before);
    let before = pool.stats().whole_drains();
    for _ in 0..100 {
        assert!(pool.alloc(nowait).is_err());
    }
    assert_eq!(pool.stats().whole_drains(), before, "nothing to win");
    assert_eq!(free_of(&pool, 0), min);
    pool.validate().unwrap();
}

/// A CPU in the middle of a refill holds pages that are in no pcp yet.
#[test]
fn a_request_waits_for_pages_on_their_way_into_another_pcp() {
    for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
        let pool = Shape::uniform(1, 4096, 2).boot(kbytes(Policy::ZONAL, 0));
        let (pages, _) = exhaust(&pool, Request::new(Order::ZERO));
        let zone = &pool.zones()[0];
        pages[..8].iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
        pool.drain_all();
        // CPU 1 has closed its pcp, and takes all there is.
        let pcp = pool.pcp(ZoneId(0), CpuId(1));
        let mut closed = pcp.close(&pool.tables.platform, zone, pool.tables.slots).unwrap();
        let mut sink = closed.refill(0, 8);
        let mut locked = pool.zone_ops(zone.id()).lock();
        for _ in 0..8 {
            let LockedZone { buddy, frames, .. } = &mut locked;
            let mt = Migratetype::Unmovable;
            let idx = buddy.take_smallest(frames, Order::ZERO, mt).unwrap();
            pool.tables.words[idx as usize].store(pcp.lists[0].cached, Relaxed);
            sink.give(idx);
        }
        locked.account(&pcp.free_diff, -1, 8);
        drop(locked);
        while_waiting(move || {
            closed.refilled(0, sink);
            drop(closed);
        });
        pool.alloc(Request::new(Order::ZERO).gfp(gfp)).unwrap();
        pool.validate().unwrap();
    }
}

/// Every store was looked at and empty; then pages were freed to one of them.
#[test]
fn pages_freed_to_a_pcp_that_was_just_drained_are_found() {
    let pool: &'static _ =
        Box::leak(Box::new(Shape::uniform(1, 4096, 2).boot(kbytes(Policy::ZONAL, 0))));
    let (pages, _) = exhaust(pool, Request::new(Order::ZERO));
    let page = pages[0];
    before_the_next_lock(move || {
        on_cpu(1);
        pool.free(page, Order::ZERO).unwrap();
    });
    assert_eq!(pool.alloc(Request::new(Order::ZERO)), Ok(page));
    pool.validate().unwrap();
}

/// Boosted watermarks are lent until the reclaimer has run; without one they must not last for
/// ever.
#[test]
fn a_boost_refuses_nobody() {
    let pool = Shape::uniform(1, 1 << 14, 1).boot(Policy::LINUX_6_18);
    let zone = &pool.zones()[0];
    let mut watermarks = zone.watermarks();
    assert!(watermarks.raise_boost(zone.managed(), 15_000, PageRules::OWN));
    zone.set_watermarks(&watermarks);
    exhaust(&pool, Request::new(Order::ZERO));
    assert_eq!(free_of(&pool, 0), watermarks.min);
}

/// LB B.8, D.5: the reserve for atomic requests is given up before an ordinary one is refused.
#[test]
fn the_last_reserved_pageblock_is_given_back_before_a_refusal() {
    let policy = Policy { mobility_grouping: Grouping::On, ..Policy::LINUX_6_18 };
    let pool = Shape::uniform(1, 60_000, 1).boot(kbytes(policy, 4000));
    let (pages, _) = exhaust(&pool, Request::new(Order::ZERO));
    let min = pool.zones()[0].watermarks().min;
    pool.alloc(Request::new(order(1)).gfp(Gfp::ATOMIC)).unwrap();
    let kept = pool.zone_ops(ZoneId(0)).lock().buddy.free_highatomic();
    assert!(kept > 100, "{kept}");
    pages[..50].iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    exhaust(&pool, Request::new(Order::ZERO).gfp(Gfp::NOWAIT | Gfp::NOMEMALLOC));
    assert_eq!(free_of(&pool, 0), min + 48, "one that may not wait leaves the reserve alone");
    exhaust(&pool, Request::new(Order::ZERO));
    assert_eq!(free_of(&pool, 0), min);
    pool.validate().unwrap();
}

/// Without grouping there is one type, so nothing can be set aside.
#[test]
fn without_grouping_an_atomic_request_reserves_nothing() {
    let pool = Shape::uniform(1, 60_000, 1).boot(kbytes(Policy::ZONAL, 4000));
    exhaust(&pool, Request::new(Order::ZERO));
    let (blocks, _) = exhaust(&pool, Request::new(order(1)).gfp(Gfp::ATOMIC));
    assert!(blocks.len() > 100);
    let zone = &pool.zones()[0];
    for block in zone.start_pfn().0 >> 9..(zone.start_pfn().0 + zone.spanned()) >> 9 {
        assert_eq!(
            pool.zone_ops(zone.id()).pageblock_type(Pfn(block << 9)),
            Migratetype::Unmovable
        );
    }
    pool.validate().unwrap();
}

#[test]
fn refusals_say_it_in_words() {
    let pool = Shape::uniform(1, 1 << 14, 1).boot(Policy::ZONAL);
    let error = exhaust(&pool, Request::new(order(2))).1;
    let text = std::format!("{error}");
    assert!(text.contains("order 2 (16 KiB)"), "{text}");
    assert!(text.contains("node 0, zone Normal") && text.contains("min watermark"), "{text}");
}

/// Each path to memory, refused at its nth block for every n: what was served stays, what was
/// refused changed nothing, and all of it comes back.
#[test]
fn every_path_may_fail_at_any_block() {
    const PAGES: u64 = 1024;
    let kernel = |order| Request::new(Order::new(order).unwrap());
    for request in [
        kernel(0),
        kernel(0).gfp(Gfp::ATOMIC),
        kernel(0).gfp(Gfp::NOWAIT),
        kernel(0).gfp(Gfp::KERNEL | Gfp::NORETRY),
        kernel(0).gfp(Gfp::KERNEL | Gfp::NOFAIL),
        kernel(0).gfp(Gfp::MEMALLOC | Gfp::THISNODE).on(NodeId(1)),
        kernel(2),
        kernel(3).gfp(Gfp::ATOMIC),
        kernel(5),
    ] {
        for (left, bulk) in (0..24).flat_map(|left| [(left, false), (left, true)]) {
            if bulk && request.order != Order::ZERO {
                continue;
            }
            Shape::uniform(2, PAGES, 1).scoped(Policy::ZONAL, 0, |pool| {
                fails_at(pool, request, left, bulk);
                pool.validate().unwrap();
                pool.drain_all();
                assert_eq!(pool.free_pages(), 2 * PAGES, "{request:?} {left} {bulk}");
            });
        }
    }
}

/// Fills the pool, gives `left` blocks back, and takes what can be had.
fn fails_at(pool: &Allocator<'_, Script>, request: Request, left: usize, bulk: bool) {
    let all = Request { gfp: Gfp::MEMALLOC, node: None, ..request };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| pool.alloc(all).ok()).collect();
    for pfn in held.drain(..left) {
        pool.free(pfn, request.order).unwrap();
    }
    let mut got = vec![Pfn(0); left + 1];
    let served = if bulk {
        pool.alloc_bulk(request, &mut got).unwrap_or(0)
    } else {
        let served = core::iter::from_fn(|| pool.alloc(request).ok()).zip(&mut got);
        served.map(|(pfn, slot)| *slot = pfn).count()
    };
    assert!(served <= left, "{served} of {left}");
    pool.validate().unwrap();
    for pfn in held.iter().chain(&got[..served]) {
        pool.free(*pfn, request.order).unwrap();
    }
}
