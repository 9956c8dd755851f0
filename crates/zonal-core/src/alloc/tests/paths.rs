//! Single requests along every path, and the counters they leave.

use std::vec::Vec;

use super::platform::{LISTS_ALONE, Shape, on_cpu, zone};
use crate::alloc::range::RangeRequest;
use crate::alloc::{FreeError, Refusal, Request};
use crate::buddy::{HighAtomicCount, HighAtomicPolicy};
use crate::gfp::{AllocFlags, Gfp};
use crate::policy::Policy;
use crate::types::{NodeId, Order, Pfn, ZoneId, ZoneKind};

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

#[test]
fn every_order_comes_and_goes() {
    for &policy in Policy::PRESETS {
        let pool = Shape::uniform(1, 1 << 16, 2).boot(policy);
        pool.validate().unwrap();
        for o in Order::all() {
            let blocks: Vec<Pfn> = (0..4).map(|_| pool.alloc(Request::new(o)).unwrap()).collect();
            pool.validate().unwrap();
            for pfn in &blocks {
                assert_eq!(pfn.0 % o.pages(), 0);
                pool.free(*pfn, o).unwrap();
            }
            pool.validate().unwrap();
        }
        pool.drain_all();
        pool.validate().unwrap();
        assert_eq!(pool.zone_stats(ZoneId(0)).free_pages, 1 << 16);
        assert_eq!(pool.zone_stats(ZoneId(0)).nr_free[10], 64);
    }
}

/// LB K.3 V1, level 9: the refills of 10,000 allocations, and no drain while they come back.
#[test]
fn refills_double_as_linux_doubles_them() {
    let pool = Shape::uniform(1, 1 << 20, 8).boot(Policy::LINUX_6_18);
    let before = pool.zone_stats(ZoneId(0));
    let pages: Vec<Pfn> =
        (0..10_000).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
    let stats = pool.zone_stats(ZoneId(0));
    assert_eq!(
        stats.refilled_pages - before.refilled_pages,
        63 + 126 + 252 + 504 + 1008 + 4 * 2016
    );
    assert_eq!(stats.refills, 9);
    for page in pages {
        pool.free(page, Order::ZERO).unwrap();
    }
    let stats = pool.zone_stats(ZoneId(0));
    assert_eq!((stats.drains, stats.cached_pages), (0, 10_017));
    assert_eq!((stats.allocated_pages, stats.freed_pages), (10_000, 10_000));
    pool.validate().unwrap();
}

#[test]
fn a_refusal_names_zone_and_mark_and_nothing_is_lost() {
    let pool = Shape::uniform(1, 4096, 1).boot(Policy::LINUX_6_18);
    let mut pages = Vec::new();
    let error = loop {
        match pool.alloc(Request::new(Order::ZERO)) {
            Ok(pfn) => pages.push(pfn),
            Err(error) => break error,
        }
    };
    let Refusal::Watermark { zone, free, needed, .. } = error.why else { panic!("{error}") };
    // A refill takes a chunk, so the zone may end a few pages below its watermark, as in Linux.
    let chunk_max = u64::from(pool.zones()[0].pcp_sizes().0) << 5;
    assert_eq!(zone, ZoneId(0));
    assert!(free <= needed && free + chunk_max > needed, "{free} {needed}");
    // The reserve is there for those who may use it.
    let atomic = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::ATOMIC)).unwrap();
    pages.push(atomic);
    pool.validate().unwrap();
    for page in pages {
        pool.free(page, Order::ZERO).unwrap();
    }
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZoneId(0)).free_pages, 4096);
    pool.validate().unwrap();
}

#[test]
fn misuse_is_refused_by_name() {
    let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy::ZONAL);
    let page = pool.alloc(Request::new(order(2))).unwrap();
    let zone = ZoneId(0);
    assert_eq!(
        pool.free(page, order(1)),
        Err(FreeError::WrongOrder { pfn: page, given: order(1), actual: order(2), zone })
    );
    let inside = Pfn(page.0 + 1);
    let expected = FreeError::NotABlock { pfn: inside, order: order(0), zone };
    assert_eq!(pool.free(inside, order(0)), Err(expected));
    assert_eq!(pool.free(Pfn(1 << 40), order(0)), Err(FreeError::Foreign(Pfn(1 << 40))));
    pool.free(page, order(2)).unwrap();
    let twice = FreeError::DoubleFree { pfn: page, order: order(2), zone };
    assert_eq!(pool.free(page, order(2)), Err(twice));
    pool.drain_all();
    assert!(pool.free(page, order(2)).is_err());
    pool.validate().unwrap();
}

#[test]
fn numa_events_are_exact() {
    let pool = Shape::uniform(2, 1 << 14, 1).boot(Policy::LINUX_6_18);
    on_cpu(1);
    let local = Request::new(Order::ZERO);
    let first = pool.alloc(local).unwrap();
    assert!(first.0 >= 1 << 14, "a CPU of node 1 gets pages of node 1");
    let far = pool.alloc(local.on(NodeId(0))).unwrap();
    assert!(far.0 < 1 << 14);
    // Fill node 1 until requests fall back to node 0.
    let mut pages = std::vec![first, far];
    while pages.last().unwrap().0 >= 1 << 14 || pages.len() == 2 {
        pages.push(pool.alloc(local).unwrap());
    }
    let (zero, one) = (pool.numa_events(NodeId(0)), pool.numa_events(NodeId(1)));
    assert_eq!((zero.hit, zero.miss, zero.foreign), (1, 1, 0));
    assert_eq!((zero.local, zero.other), (0, 2));
    assert_eq!((one.miss, one.foreign, one.other), (0, 1, 0));
    assert_eq!(one.hit + zero.hit + zero.miss, pages.len() as u64);
    assert_eq!(one.local, one.hit);
    on_cpu(0);
    for page in pages {
        pool.free(page, Order::ZERO).unwrap();
    }
    pool.validate().unwrap();
}

#[test]
fn this_node_stays_on_the_node() {
    let pool = Shape::uniform(2, 4096, 1).boot(Policy::ZONAL);
    let request = Request::new(Order::ZERO).gfp(Gfp::KERNEL | Gfp::THISNODE).on(NodeId(1));
    let mut got = 0;
    while let Ok(page) = pool.alloc(request) {
        assert!(page.0 >= 4096);
        got += 1;
    }
    assert!(got > 3900);
    assert!(pool.alloc(Request::new(Order::ZERO).on(NodeId(1))).unwrap().0 < 4096);
}

#[test]
fn bulk_gives_as_many_as_there_are() {
    let pool = Shape::uniform(1, 1 << 16, 2).boot(Policy::ZONAL);
    let mut pages = std::vec![Pfn(0); 5000];
    let mut got = 0;
    while got < pages.len() {
        got += pool.alloc_bulk(Request::new(Order::ZERO), &mut pages[got..]).unwrap();
    }
    let mut sorted = pages.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 5000);
    pool.validate().unwrap();
    pool.free_bulk(&pages, Order::ZERO).unwrap();
    assert_eq!(pool.free_bulk(&pages[..1], Order::ZERO).unwrap_err().0, 0);
    pool.validate().unwrap();
    let stats = pool.zone_stats(ZoneId(0));
    assert_eq!((stats.allocs, stats.freed_pages), (5000, 5000));
}

#[test]
fn refresh_lets_lists_decay_and_remote_pages_return() {
    let pool = Shape::uniform(2, 1 << 18, 2).boot(Policy::LINUX_6_18);
    let pages: Vec<Pfn> =
        (0..9000).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
    on_cpu(2);
    for page in pages {
        pool.free(page, Order::ZERO).unwrap();
    }
    assert!(pool.pcp(ZoneId(0), crate::types::CpuId(2)).count() > 0);
    let mut rounds = 0;
    while pool.refresh(crate::types::CpuId(2)) {
        rounds += 1;
        assert!(rounds < 10_000, "a refresh without end");
    }
    assert_eq!(pool.pcp(ZoneId(0), crate::types::CpuId(2)).count(), 0);
    pool.validate().unwrap();
}

/// LB C.5: up to 6.12.0 all reserved pages are out of reach of the others, later the free ones.
#[test]
fn what_the_atomic_reserve_keeps_from_others_is_the_policys_choice() {
    for (count, kept) in [(HighAtomicCount::Reserved, 512), (HighAtomicCount::Free, 510)] {
        let highatomic = HighAtomicPolicy { count, ..Policy::LINUX_6_18.highatomic };
        let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy { highatomic, ..Policy::LINUX_6_18 });
        let order = Order::new(1).unwrap();
        let pfn = pool.alloc(Request::new(order)).unwrap();
        pool.drain_all();
        let zone = &pool.zones()[0];
        pool.zone_ops(zone.id()).reserve_highatomic(pfn, order);
        let snapshot = zone.snapshot(ZoneKind::Normal);
        assert_eq!(snapshot.unusable(Order::ZERO, AllocFlags::WMARK_LOW), kept);
        assert_eq!(snapshot.unusable(Order::ZERO, AllocFlags::MIN_RESERVE), 0);
    }
}

/// No block of order 2 is free, nor can any be made; three pages side by side are there, so a
/// request that must not fail gets them at once, as one that may.
#[test]
fn a_request_that_must_not_fail_takes_what_is_no_block() {
    let shape =
        Shape { zones: std::vec![zone(0, ZoneKind::Normal, 0, 64)], ..Shape::uniform(1, 64, 2) };
    shape.scoped(LISTS_ALONE, 0, |pool| {
        let any = Gfp::KERNEL | Gfp::MEMALLOC;
        pool.ranges().alloc_at(Pfn(0)..Pfn(64), any).unwrap();
        for at in (0..64).step_by(4) {
            pool.ranges().free(Pfn(at)..Pfn(at + 3)).unwrap();
        }
        let request = RangeRequest::new(3).gfp(any | Gfp::NOFAIL);
        for at in (0..64).step_by(4) {
            assert_eq!(pool.ranges().alloc(request), Ok(Pfn(at)));
        }
        pool.validate().unwrap();
    });
}
