//! Hot and cold lists of about 2.6.24 (LB E.11): two pcps for each zone and CPU, chosen by a
//! hint.

use std::vec::Vec;

use super::platform::{Script, Shape, on_cpu};
use crate::alloc::{Allocator, FreeError, Request};
use crate::gfp::Gfp;
use crate::policy::{PcpPolicy, Policy};
use crate::types::{CpuId, Order, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const OLD: Policy = Policy { pcp: PcpPolicy::LINUX_2_6_24, ..Policy::LINUX_6_18 };

fn alloc(pool: &Allocator<'_, Script>, cold: bool) -> Pfn {
    let gfp = if cold { Gfp::KERNEL | Gfp::COLD } else { Gfp::KERNEL };
    pool.alloc(Request::new(Order::ZERO).gfp(gfp)).unwrap()
}

/// Pages on the hot and on the cold pcp.
fn counts(pool: &Allocator<'_, Script>, cpu: u32) -> (u32, u32) {
    let cold = pool.tables().cold_pcp(ZONE, CpuId(cpu)).expect("the policy has cold lists");
    (pool.pcp(ZONE, CpuId(cpu)).count(), cold.count())
}

#[test]
fn the_hint_chooses_the_lists_and_each_has_its_size() {
    let pool = Shape::uniform(1, 1 << 18, 2).boot(OLD);
    // The batch is capped at 31: hot lists hold 6 of them, cold ones 2, half a batch at a time.
    let hot = alloc(&pool, false);
    assert_eq!(counts(&pool, 0), (30, 0));
    let cold = alloc(&pool, true);
    assert_eq!(counts(&pool, 0), (30, 14));
    pool.free_cold(hot, Order::ZERO).unwrap();
    pool.free(cold, Order::ZERO).unwrap();
    assert_eq!(counts(&pool, 0), (31, 15));
    // What was freed last comes first, from the list that the hint names.
    assert_eq!(alloc(&pool, true), hot);
    assert_eq!(alloc(&pool, false), cold);
    let pages: Vec<Pfn> = (0..400).map(|_| alloc(&pool, false)).collect();
    pool.drain_all();
    assert_eq!(counts(&pool, 0), (0, 0));
    for (freed, pfn) in pages.iter().enumerate() {
        let (hot, cold) = counts(&pool, 0);
        match freed {
            0..200 => pool.free(*pfn, Order::ZERO).unwrap(),
            _ => pool.free_cold(*pfn, Order::ZERO).unwrap(),
        }
        let expected = match freed {
            0..200 if hot + 1 == 186 => (186 - 31, cold),
            0..200 => (hot + 1, cold),
            _ if cold + 1 == 62 => (hot, 62 - 15),
            _ => (hot, cold + 1),
        };
        assert_eq!(counts(&pool, 0), expected);
    }
    pool.validate().unwrap();
}

#[test]
fn one_set_of_lists_reads_no_hint() {
    let pool = Shape::uniform(1, 1 << 15, 1).boot(Policy::LINUX_6_18);
    assert!(pool.tables().cold_pcp(ZONE, CpuId(0)).is_none());
    let page = alloc(&pool, true);
    pool.free_cold(page, Order::ZERO).unwrap();
    assert_eq!(alloc(&pool, false), page);
}

#[test]
fn a_page_on_cold_lists_is_as_safe_as_any() {
    let pool = Shape::uniform(1, 1 << 15, 1).boot(OLD);
    let page = alloc(&pool, false);
    pool.free_cold(page, Order::ZERO).unwrap();
    let again = FreeError::DoubleFree { pfn: page, order: Order::ZERO, zone: ZONE };
    assert_eq!(pool.free(page, Order::ZERO), Err(again));
    assert_eq!(pool.free_cold(page, Order::ZERO), Err(again));
    // A CPU that dies takes its cold pages along, and a zone is emptied to the last one.
    pool.validate().unwrap();
    let all: u64 = pool.free_pages();
    let mut held = Vec::new();
    while let Ok(page) = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL | Gfp::COLD)) {
        held.push(page);
    }
    assert!(held.len() as u64 + pool.zones()[0].watermarks().min + 1 >= all);
    assert_eq!(counts(&pool, 0), (0, 0));
    held.into_iter().for_each(|page| pool.free_cold(page, Order::ZERO).unwrap());
    pool.cpu_dead(CpuId(0));
    assert_eq!(counts(&pool, 0), (0, 0));
    assert_eq!(pool.zone_stats(ZONE).free_pages, all);
    pool.validate().unwrap();
}

#[test]
fn random_programs_on_both_sets_lose_nothing() {
    let pool = Shape::uniform(2, 1 << 14, 2).boot(OLD);
    let all = pool.free_pages();
    let mut held = Vec::new();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for step in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        on_cpu((random >> 32) as u32 % 4);
        let cold = random & 1 != 0;
        match random >> 8 & 15 {
            0..8 => held.push(alloc(&pool, cold)),
            8..15 if !held.is_empty() => {
                let page = held.swap_remove((random >> 16) as usize % held.len());
                let freed = if cold { Allocator::free_cold } else { Allocator::free };
                freed(&pool, page, Order::ZERO).unwrap();
            }
            _ => drop(pool.refresh(CpuId((random >> 40) as u32 % 4))),
        }
        if step % 1000 == 0 {
            pool.validate().unwrap();
        }
    }
    held.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), all);
    let stats = [0, 1].map(|zone| pool.zone_stats(ZoneId(zone)));
    let sum = |of: fn(&crate::alloc::ZoneStats) -> u64| stats.iter().map(of).sum::<u64>();
    assert_eq!(sum(|s| s.allocs), sum(|s| s.freed_pages));
    assert_eq!(sum(|s| s.refilled_pages), sum(|s| s.drained_pages));
}
