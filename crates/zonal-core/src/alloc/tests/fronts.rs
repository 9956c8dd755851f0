//! Ranges that are the front of a block, under the gate of a pcp.

use std::boxed::Box;
use std::vec::Vec;
use std::{format, vec};

use super::platform::{Script, Shape, zone};
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, FreeError, Request};
use crate::gfp::Gfp;
use crate::pcp::ready;
use crate::pcp::state::PcpTotals;
use crate::pcp::word::PcpWord;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, Pfn, ZoneId, ZoneKind};

const POLICIES: [Policy; 3] = [Policy::ZONAL, Policy::KERNEL, Policy::LINUX_6_18];

fn boot(policy: Policy) -> Allocator<'static, Script> {
    boot_zone(policy, 0, 1 << 18)
}

/// One zone of these pages.
fn boot_zone(policy: Policy, start: u64, end: u64) -> Allocator<'static, Script> {
    let zones = vec![zone(0, ZoneKind::Normal, start, end - start)];
    let shape = Shape { zones, ..Shape::uniform(1, 0, 2) };
    let shape: &'static Shape = Box::leak(Box::new(shape));
    shape.boot_on(policy, Script { gates: Some(true), ..Script::default() })
}

fn alloc(pool: &Allocator<'_, Script>, pages: u64) -> core::ops::Range<Pfn> {
    let first = pool.ranges().alloc(RangeRequest::new(pages)).unwrap();
    first..Pfn(first.0 + pages)
}

/// Blocks on each list, and what closes the pcp or takes the zone lock.
fn figures(pool: &Allocator<'_, Script>) -> (Vec<u32>, u64, u64) {
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    let listed = (0..pool.tables().lists().len()).map(|list| pcp.listed(list)).collect();
    let events = pcp.events();
    (listed, pool.zones()[0].lock_holds().0, events.refills + events.drains)
}

#[test]
fn ranges_that_come_back_in_turn_leave_the_lists_as_they_were() {
    for policy in POLICIES {
        let pool = boot(policy);
        // Linux' policies have no list for order 4; larger ones have few blocks.
        let most = if policy.name == Policy::ZONAL.name { 15 } else { 7 };
        for pages in (3..=most).filter(|pages: &u64| !pages.is_power_of_two()) {
            // The first ones refill the lists.
            let warm: Vec<_> = (0..3).map(|_| alloc(&pool, pages)).collect();
            warm.into_iter().rev().for_each(|range| pool.ranges().free(range).unwrap());
            let before = figures(&pool);
            let first = alloc(&pool, pages);
            let two = [alloc(&pool, pages), alloc(&pool, pages)];
            assert!(two[0].end <= two[1].start || two[1].end <= two[0].start, "{two:?}");
            let [one, other] = two;
            pool.ranges().free(other.clone()).unwrap();
            let twice = pool.ranges().free(other).unwrap_err();
            assert!(matches!(twice, FreeError::DoubleFree { .. }), "{twice}");
            pool.ranges().free(one).unwrap();
            pool.ranges().free(first).unwrap();
            let (after, name) = (figures(&pool), policy.name);
            assert_eq!(after.0, before.0, "{name}, {pages} pages");
            // A refused free takes the zone lock once, to say why.
            assert!(after.1 <= before.1 + 1, "{name}, {pages} pages: {before:?} {after:?}");
            assert_eq!(after.2, before.2, "{name}, {pages} pages");
            pool.validate().unwrap();
        }
        pool.validate().unwrap();
        pool.drain_all();
        assert_eq!(pool.free_pages(), 1 << 18);
    }
}

#[test]
fn a_range_whose_rest_is_gone_goes_to_the_lists_of_its_blocks() {
    for policy in POLICIES {
        let pool = boot(policy);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        let small = Order::new(1).unwrap();
        let pair = pool.alloc(Request::new(small)).unwrap();
        pool.free(pair, small).unwrap();
        let range = alloc(&pool, 3);
        // The hottest page is the rest of the block.
        let rest = pool.alloc(Request::new(Order::ZERO)).unwrap();
        assert_eq!(rest, range.end);
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        let (before, count) = (figures(&pool), pcp.count());
        pool.ranges().free(range.clone()).unwrap();
        let after = figures(&pool);
        assert_eq!(pcp.count(), count + 3, "{}", policy.name);
        assert_eq!((after.1, after.2), (before.1, before.2), "{}: nothing else", policy.name);
        pool.validate().unwrap();
        let first = pool.alloc(Request::new(small)).unwrap();
        let third = pool.alloc(Request::new(Order::ZERO)).unwrap();
        assert_eq!((first, third), (range.start, Pfn(range.start.0 + 2)));
        pool.free(first, small).unwrap();
        for page in [third, rest, page] {
            pool.free(page, Order::ZERO).unwrap();
        }
        pool.validate().unwrap();
        pool.drain_all();
        assert_eq!(pool.free_pages(), 1 << 18);
    }
}

/// Pages that are no whole range never go by the fast path.
#[test]
fn parts_of_a_range_are_not_taken_for_ranges() {
    let pool = boot(Policy::ZONAL);
    let r = pool.ranges();
    // The lists are warm, and the rest of the block is on top of them.
    for _ in 0..2 {
        r.free(alloc(&pool, 3)).unwrap();
    }
    let seven = alloc(&pool, 7);
    let at = |page: u64| Pfn(seven.start.0 + page);
    r.free(at(0)..at(3)).unwrap();
    r.check(at(3)..at(7)).unwrap();
    assert!(r.free(at(0)..at(3)).is_err());
    r.free(at(4)..at(7)).unwrap();
    assert!(r.free(at(4)..at(7)).is_err());
    r.free(at(3)..at(4)).unwrap();
    pool.validate().unwrap();
    // Any part of three pages, in any order.
    for (part, rest) in [(0..1, 1..3), (1..2, 0..1), (2..3, 0..2), (0..2, 2..3), (1..3, 0..1)] {
        let three = alloc(&pool, 3);
        let pages = |part: core::ops::Range<u64>| {
            Pfn(three.start.0 + part.start)..Pfn(three.start.0 + part.end)
        };
        r.free(pages(part.clone())).unwrap();
        assert!(r.free(three.clone()).is_err(), "{part:?} is free already");
        r.free(pages(rest)).unwrap();
        if part == (1..2) {
            r.free(pages(2..3)).unwrap();
        }
        pool.validate().unwrap();
    }
    // Neither a block of three pages nor pages of two owners are a range.
    let two = Order::new(2).unwrap();
    let block = pool.alloc(Request::new(two)).unwrap();
    assert!(r.free(block..Pfn(block.0 + 3)).is_err());
    pool.free(block, two).unwrap();
    for pages in [0, 3, 6, u64::MAX - 2] {
        for first in [0, 1 << 18, (1 << 18) - 2, u64::MAX - 3] {
            assert!(r.free(Pfn(first)..Pfn(first.wrapping_add(pages))).is_err());
        }
    }
    pool.validate().unwrap();
}

/// A CPU's pcp is asked about any pages, also those that are in no zone: the words of what is in
/// front of the first zone and behind the last one do not exist.
#[test]
fn pages_outside_of_the_zone_are_no_part_of_a_range() {
    for (policy, behind) in [(0, 4), (1, 4), (2, 4), (0, 100), (1, 100)] {
        let (policy, start, end) = (POLICIES[policy], 100, (1 << 17) + behind);
        let pool = boot_zone(policy, start, end);
        let (r, free) = (pool.ranges(), pool.free_pages());
        // The first and the last pages are ranges, up to the border.
        let ours = [Pfn(start)..Pfn(start + 4), Pfn(end - 4)..Pfn(end)];
        ours.iter().for_each(|range| r.alloc_at(range.clone(), Gfp::MOVABLE).unwrap());
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        for (order, is_ready) in (2..=4).flat_map(|order| [(order, true), (order, false)]) {
            let order = Order::new(order).unwrap();
            for first in (start - 8..start + 4).chain(end - 8..end + 12) {
                for pages in order.pages() / 2 + 1..order.pages() {
                    if first >= start && first + pages <= end {
                        continue;
                    }
                    let block = pool.alloc(Request::new(order)).unwrap();
                    pool.free(block, order).unwrap();
                    if !is_ready {
                        pool.drain_all();
                    } else if pool.tables().lists().get(order, Migratetype::Movable).is_some() {
                        assert!(ready::is_ready(pcp.gate.load(Relaxed)), "{order:?}");
                    }
                    let range = Pfn(first)..Pfn(first + pages);
                    let before = (figures(&pool).0, pcp.count(), pool.free_pages());
                    let result = r.free(range.clone());
                    let what = format!("{} {range:?} of {start}..{end}", policy.name);
                    assert!(result.is_err(), "{what}, ready: {is_ready}");
                    let after = (figures(&pool).0, pcp.count(), pool.free_pages());
                    assert_eq!(after, before, "{what}, ready: {is_ready}");
                }
            }
            pool.validate().unwrap();
        }
        ours.into_iter().for_each(|range| r.free(range).unwrap());
        pool.validate().unwrap();
        pool.drain_all();
        assert_eq!(pool.free_pages(), free);
    }
}

/// A range at the border is taken back as any other, without the zone lock.
#[test]
fn ranges_at_the_ends_of_a_zone_go_to_the_lists() {
    let (start, end) = (100, (1 << 17) + 100);
    let pool = boot_zone(Policy::ZONAL, start, end);
    let free = pool.free_pages();
    for (first, pages) in [(start, 3), (end - 4, 3), (start + 4, 5), (end - 12, 7)] {
        let range = Pfn(first)..Pfn(first + pages);
        pool.ranges().alloc_at(range.clone(), Gfp::MOVABLE).unwrap();
        let order = Order::new(pages.next_power_of_two().ilog2()).unwrap();
        let block = pool.alloc(Request::new(order)).unwrap();
        pool.free(block, order).unwrap();
        let before = figures(&pool);
        pool.ranges().free(range.clone()).unwrap();
        let after = figures(&pool);
        assert_eq!((after.1, after.2), (before.1, before.2), "{range:?}");
        let twice = pool.ranges().free(range).unwrap_err();
        assert!(matches!(twice, FreeError::DoubleFree { .. }), "{twice}");
        pool.validate().unwrap();
    }
    pool.drain_all();
    assert_eq!(pool.free_pages(), free);
}

/// What a pool counted since it began: allocations, base pages allocated and freed, and the NUMA
/// events of allocations; by its statistics and by the pcp.
fn counted(pool: &Allocator<'_, Script>) -> [u64; 8] {
    let (stats, totals) = (pool.zone_stats(ZoneId(0)), pool.pcp(ZoneId(0), CpuId(0)).totals());
    let PcpTotals { pops, popped_pages, pushed_pages, .. } = totals;
    let (numa, pages) = (stats.numa, [stats.allocated_pages, stats.freed_pages]);
    [stats.allocs, pages[0], pages[1], numa.hit, numa.local, pops, popped_pages, pushed_pages]
}

/// What three ranges and their frees add to [`counted`]; `apart`: none is joined with its rest.
fn counted_of_three(policy: Policy, pages: u64, gates: bool, apart: bool) -> [u64; 8] {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 1 << 18, 2)));
    let pool = shape.boot_on(policy, Script { gates: Some(gates), ..Script::default() });
    let take = || (0..3).map(|_| alloc(&pool, pages)).collect::<Vec<_>>();
    let give = |range| pool.ranges().free(range).unwrap();
    take().into_iter().rev().for_each(give);
    let (before, work) = (counted(&pool), figures(&pool));
    let ranges = take();
    if apart {
        ranges.into_iter().for_each(give);
    } else {
        ranges.into_iter().rev().for_each(give);
    }
    if gates && !apart {
        assert_eq!(figures(&pool), work, "the fast path serves, the lists are as they were");
    }
    let after = counted(&pool);
    pool.validate().unwrap();
    core::array::from_fn(|at| after[at] - before[at])
}

#[test]
fn a_range_counts_as_one_allocation_and_one_free_with_its_pages_as_by_the_core() {
    for policy in POLICIES {
        for pages in [3, 5, 6, 7_u64] {
            let block = pages.next_power_of_two();
            // All of the block is allocated, and freed: the rest at once, the range afterwards.
            let expected = [3, 3 * block, 3 * block, 3, 3, 3, 3 * block, 3 * block];
            for (gates, apart) in [(true, false), (true, true), (false, false), (false, true)] {
                let got = counted_of_three(policy, pages, gates, apart);
                let what = (policy.name, pages, gates, apart);
                assert_eq!(got, expected, "{what:?}: policy, pages, gates, apart");
            }
        }
    }
}

/// `free_count` and `prev` of the CPU's pcp.
fn tuning(pool: &Allocator<'_, Script>) -> (u32, bool) {
    let word = PcpWord(pool.pcp(ZoneId(0), CpuId(0)).word.load(Relaxed));
    (word.free_count(), word.prev_high_order())
}

/// The tuning once a block is popped.
fn popped((count, prev): (u32, bool)) -> (u32, bool) {
    (count >> 1, prev)
}

/// The tuning once so many pages are freed at once, the last block of this order.
fn freed((count, _): (u32, bool), cap: u32, (pages, order): (u32, u32)) -> (u32, bool) {
    (if count < cap { count + pages } else { count }, (1..=3).contains(&order))
}

/// What a parked range becomes once the CPU serves another order: a page is taken and freed.
fn put_away(pool: &Allocator<'_, Script>) {
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
}

/// To the tuning a front is one operation; the core frees its block piece by piece. One that is
/// parked and taken again is none.
#[test]
fn the_tuning_sees_one_allocation_and_one_free_of_a_front_and_each_block_by_the_core() {
    // Pages of the range, the blocks of its rest and its own ones, by their orders.
    let fronts = [
        (3, &[0][..], &[1, 0][..]),
        (5, &[0, 1], &[2, 0]),
        (6, &[1], &[2, 1]),
        (7, &[0], &[2, 1, 0]),
    ];
    for ((pages, rest, own), gates) in fronts.iter().flat_map(|f| [(*f, true), (*f, false)]) {
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 1 << 18, 2)));
        let script = Script { gates: Some(gates), ..Script::default() };
        let pool = shape.boot_on(Policy::KERNEL, script);
        pool.ranges().free(alloc(&pool, pages)).unwrap();
        let cap = pool.pcp(ZoneId(0), CpuId(0)).free_count_cap.load(Relaxed);
        let one_by_one = |state, orders: &[u32]| {
            orders.iter().fold(state, |state, order| freed(state, cap, (1 << order, *order)))
        };
        let block = pages.next_power_of_two();
        let joined = (block as u32, block.ilog2());
        let what = |when| format!("{pages} pages, gates: {gates}: {when}");
        let single = |state| freed(popped(state), cap, (1, 0));
        // The range is parked, and joined with its rest.
        let before = tuning(&pool);
        let range = alloc(&pool, pages);
        let taken = if gates { before } else { one_by_one(popped(before), rest) };
        assert_eq!(tuning(&pool), taken, "{}", what("taken"));
        pool.ranges().free(range).unwrap();
        let given = if gates { taken } else { one_by_one(taken, own) };
        assert_eq!(tuning(&pool), given, "{}", what("given back"));
        put_away(&pool);
        let joined = if gates { freed(given, cap, joined) } else { given };
        assert_eq!(tuning(&pool), single(joined), "{}", what("joined"));
        // The rest is gone when the range comes back.
        let before = tuning(&pool);
        let range = alloc(&pool, pages);
        let taken = if gates { popped(before) } else { one_by_one(popped(before), rest) };
        assert_eq!(tuning(&pool), taken, "{}", what("cut"));
        let order = Order::new(rest[rest.len() - 1]).unwrap();
        let gone = pool.alloc(Request::new(order)).unwrap();
        assert!(range.end <= gone && gone.0 < range.start.0 + block, "{}", what("the rest"));
        let before = tuning(&pool);
        pool.ranges().free(range).unwrap();
        let given = if gates { before } else { one_by_one(before, own) };
        assert_eq!(tuning(&pool), given, "{}", what("its rest is gone"));
        put_away(&pool);
        let last = own[own.len() - 1];
        let apart = if gates { freed(given, cap, (pages as u32, last)) } else { given };
        assert_eq!(tuning(&pool), single(apart), "{}", what("apart"));
        pool.free(gone, order).unwrap();
        pool.validate().unwrap();
    }
}

#[test]
fn a_full_list_is_left_to_the_core() {
    let pool = boot(Policy::KERNEL);
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    let ranges: Vec<_> = (0..2000).map(|_| alloc(&pool, 3)).collect();
    for range in ranges {
        pool.ranges().free(range).unwrap();
        assert!(pcp.count() <= pcp.high_max.load(Relaxed), "the lists keep within their limit");
    }
    pool.validate().unwrap();
    pool.drain_all();
    assert_eq!(pool.free_pages(), 1 << 18);
}
