//! The fast paths close when a zone runs low, and open again (ZONE-3).

use std::vec::Vec;

use super::platform::{Shape, on_cpu};
use super::word_path;
use crate::alloc::Request;
use crate::pcp::word::PcpWord;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, Pfn, ZoneId};
use crate::vmstat::variant::NumaPolicy;
use crate::zone::state::{BELOW_HIGH, FAST_FREE, RECORDED, RETIRED};

const ALL_FAST: u32 = FAST_FREE | 0x3ff;

#[test]
fn a_fresh_zone_lets_every_order_pass() {
    for &policy in Policy::PRESETS {
        let pool = Shape::uniform(2, 1 << 14, 2).boot(policy);
        let is_fast = |fast: u32| fast & !RECORDED == ALL_FAST;
        assert!(pool.zones().iter().all(|zone| is_fast(zone.fast.load(Relaxed))));
    }
}

#[test]
fn the_first_request_that_finds_the_zone_low_slows_every_cpu_down() {
    let pool = Shape::uniform(1, 1 << 14, 3).boot(Policy::ZONAL);
    let zone = &pool.zones()[0];
    for cpu in [0, 1, 2] {
        on_cpu(cpu);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(page, Order::ZERO).unwrap();
        assert!(word_path::alloc(&pool, CpuId(cpu), Order::ZERO).is_some());
    }
    let slow = |cpu| PcpWord(pool.pcp(ZoneId(0), CpuId(cpu)).word.load(Relaxed)).is_slow();
    while !zone.has(BELOW_HIGH) {
        assert!(!slow(0) && !slow(1));
        pool.alloc(Request::new(Order::ZERO)).unwrap();
    }
    assert_eq!(zone.fast.load(Relaxed), BELOW_HIGH);
    assert!(slow(0) && slow(1) && slow(2));
}

/// A retired allocator takes and gives pages as before, and never by the fast path.
#[test]
fn a_retired_allocator_has_no_fast_path_whatever_happens_to_its_zones() {
    let pool = Shape::uniform(1, 1 << 14, 2).boot(Policy::ZONAL);
    on_cpu(1);
    let first = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let fast = |cpu| word_path::alloc(&pool, CpuId(cpu), Order::ZERO);
    assert!(fast(1).is_some());
    assert!(pool.retire());
    for round in 0..3 {
        assert_eq!((fast(0), fast(1)), (None, None), "round {round}");
        let mut pages: Vec<Pfn> = Vec::new();
        while let Ok(page) = pool.alloc(Request::new(Order::ZERO)) {
            pages.push(page);
        }
        assert!(pool.zones()[0].has(BELOW_HIGH));
        pages.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
        assert!(!pool.zones()[0].has(BELOW_HIGH), "the pressure has ended");
        assert_eq!(pool.zones()[0].fast.load(Relaxed), ALL_FAST | RETIRED);
    }
    pool.free(first, Order::ZERO).unwrap();
    pool.validate().unwrap();
}

/// However the pages come back: through pcps, past them, or in one call.
#[test]
fn after_pressure_has_ended_the_fast_paths_open_again() {
    for (policy, order, bulk) in [
        (Policy::ZONAL, 0, false),
        (Policy::ZONAL, 0, true),
        (Policy::ZONAL, 9, false),
        (Policy::ZONAL, 10, false),
        (Policy::LINUX_6_18, 3, false),
        (Policy::LINUX_6_12, 5, true),
    ] {
        let order = Order::new(order).unwrap();
        let policy = Policy { numa: NumaPolicy::EXACT, ..policy };
        let pool = Shape::uniform(1, 1 << 15, 2).boot(policy);
        let mut blocks: Vec<Pfn> = Vec::new();
        while let Ok(pfn) = pool.alloc(Request::new(order)) {
            blocks.push(pfn);
        }
        let zone = &pool.zones()[0];
        assert!(zone.has(BELOW_HIGH));
        if bulk {
            pool.free_bulk(&blocks, order).unwrap();
        } else {
            blocks.iter().for_each(|pfn| pool.free(*pfn, order).unwrap());
        }
        // At the latest when the statistics are refreshed.
        pool.refresh(CpuId(0));
        assert_eq!(zone.fast.load(Relaxed), ALL_FAST, "{} {order:?}", policy.name);
        for cpu in [0, 1] {
            on_cpu(cpu);
            let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
            pool.free(page, Order::ZERO).unwrap();
            let again = word_path::alloc(&pool, CpuId(cpu), Order::ZERO);
            assert_eq!(again, Some(page), "cpu {cpu} is fast again");
        }
        pool.validate().unwrap();
    }
}

/// A request for a block that does not exist is no reason to slow everybody down for ever.
#[test]
fn one_request_for_a_block_too_large_does_not_close_the_fast_paths_for_good() {
    let pool = Shape::uniform(1, 1 << 12, 1).boot(Policy::ZONAL);
    let blocks: Vec<Pfn> =
        (0..4).filter_map(|_| pool.alloc(Request::new(Order::MAX)).ok()).collect();
    assert!(blocks.len() < 4, "the last block is not served");
    for pfn in blocks {
        pool.free(pfn, Order::MAX).unwrap();
    }
    pool.refresh(CpuId(0));
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    assert!(word_path::alloc(&pool, CpuId(0), Order::ZERO).is_some());
}
