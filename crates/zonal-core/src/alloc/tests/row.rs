//! Rows: another CPU's pages go back to it together, and no page in one can be freed again, is
//! kept from a request, or is lost.

use std::collections::BTreeSet;
use std::vec::Vec;

use super::depot::{give, take};
use super::lines::shared_lines;
use super::platform::{Script, Shape, on_cpu};
use crate::alloc::{Allocator, FreeError, Request};
use crate::pcp::row::{NOBODY, UNBOUND};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
/// Lists move 63 pages at a time, so a row is one magazine.
const PAGES: u64 = 1 << 18;
const ROW: usize = 64;
/// `zonal` with rows.
const ROWS: Policy = {
    let mut policy = Policy::ZONAL;
    policy.pcp.depot.row = ROW as u16;
    policy
};

/// A pool with its row's list.
fn boot(cpus: usize, policy: Policy) -> (Allocator<'static, Script>, usize) {
    let pool = Shape::uniform(1, PAGES, cpus).boot(policy);
    let (row, own) = pool.tables.map.row().expect("there is a row");
    assert_eq!(Some(own), pool.tables.map.get(Order::ZERO, crate::types::Migratetype::Unmovable));
    (pool, row)
}

fn in_row(pool: &Allocator<'_, Script>, row: usize, cpu: u32) -> usize {
    pool.pcp(ZONE, CpuId(cpu)).listed(row) as usize
}

/// A CPU that has taken pages and given them back: it does not only free.
fn swing(pool: &Allocator<'_, Script>, cpu: u32) {
    let pages = take(pool, cpu, Order::ZERO, 2 * ROW);
    give(pool, cpu, Order::ZERO, pages);
}

fn numbers(pages: &[Pfn]) -> BTreeSet<u64> {
    pages.iter().map(|pfn| pfn.0).collect()
}

#[test]
fn pages_of_another_cpu_go_back_to_it_whole() {
    let (pool, row) = boot(2, ROWS);
    swing(&pool, 1);
    let mut pages = take(&pool, 0, Order::ZERO, ROW + 1);
    let last = pages.split_off(ROW);
    let freed = numbers(&pages);
    pool.drain(ZONE, CpuId(0));
    give(&pool, 1, Order::ZERO, pages);
    assert_eq!(in_row(&pool, row, 1), ROW, "none of them is on the list of its own pages");
    let mine = take(&pool, 1, Order::ZERO, 3 * ROW);
    assert!(freed.is_disjoint(&numbers(&mine)), "who freed them does not hand them out");
    let put = pool.zone_stats(ZONE).depot_puts;
    give(&pool, 1, Order::ZERO, last);
    assert_eq!(in_row(&pool, row, 1), 1);
    assert_eq!(pool.zone_stats(ZONE).depot_puts, put + 1);
    let back = take(&pool, 0, Order::ZERO, ROW);
    assert_eq!(numbers(&back), freed);
    let stats = pool.zone_stats(ZONE);
    assert_eq!((stats.row_takes, stats.row_pages), (1, 1));
    give(&pool, 0, Order::ZERO, back);
    give(&pool, 1, Order::ZERO, mine);
    pool.validate().unwrap();
}

/// What the bench's cell `shuffled` does.
#[test]
fn after_a_shuffle_no_line_of_page_words_has_pages_in_use_by_two_cpus() {
    let shared = |policy: Policy| {
        let pool = Shape::uniform(1, PAGES, 2).boot(policy);
        let mut random = 7_u64;
        for _ in 0..4 {
            let mut hands = [Vec::new(), Vec::new()];
            for cpu in 0..2 {
                for page in take(&pool, cpu, Order::ZERO, 1024) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    hands[(random >> 63) as usize].push(((random >> 20) as u32, page));
                }
            }
            for (cpu, mut hand) in hands.into_iter().enumerate() {
                hand.sort();
                let pages = hand.into_iter().map(|(_, page)| page).collect();
                give(&pool, cpu as u32, Order::ZERO, pages);
            }
        }
        let hot = [0, 1].map(|cpu| take(&pool, cpu, Order::ZERO, 32));
        let lines = hot.map(|pages| pages.iter().map(|pfn| pfn.0 / 8).collect::<BTreeSet<u64>>());
        pool.validate().unwrap();
        lines[0].intersection(&lines[1]).count()
    };
    let mut without = ROWS;
    without.pcp.depot.row = 0;
    assert_eq!(shared(ROWS), 0);
    assert!(shared(without) > 0, "the shuffle is none");
}

#[test]
fn a_page_in_a_row_or_on_its_way_back_cannot_be_freed_again() {
    let (pool, row) = boot(2, ROWS);
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, ROW + 1);
    let refused = |pfn: Pfn| {
        for cpu in 0..2 {
            on_cpu(cpu);
            let again = pool.free(pfn, Order::ZERO);
            assert_eq!(again, Err(FreeError::DoubleFree { pfn, order: Order::ZERO, zone: ZONE }));
        }
    };
    for (at, pfn) in pages.iter().enumerate() {
        give(&pool, 1, Order::ZERO, std::vec![*pfn]);
        assert_eq!(in_row(&pool, row, 1), if at == ROW { 1 } else { at + 1 });
        refused(*pfn);
    }
    // All but the last one are on the shelf now.
    pages.into_iter().for_each(refused);
    pool.validate().unwrap();
}

#[test]
fn no_request_is_refused_while_a_row_or_a_shelf_has_pages() {
    let (pool, row) = boot(2, ROWS);
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, 2 * ROW + ROW / 2);
    give(&pool, 1, Order::ZERO, pages);
    assert!(in_row(&pool, row, 1) > 0 && pool.zone_stats(ZONE).depot_pages > 0);
    on_cpu(1);
    let mut held = Vec::new();
    while let Ok(page) = pool.alloc(Request::new(Order::ZERO)) {
        held.push(page);
    }
    let waiting = pool.zone_stats(ZONE).depot_pages as usize + in_row(&pool, row, 1);
    assert_eq!((waiting, numbers(&held).len()), (0, held.len()));
    give(&pool, 0, Order::ZERO, held);
    pool.validate().unwrap();
}

#[test]
fn all_of_a_row_and_of_a_shelf_goes_back_to_the_buddy_by_a_drain() {
    let (pool, row) = boot(2, ROWS);
    let free = pool.zone_stats(ZONE).free_pages;
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, 2 * ROW + ROW / 2);
    give(&pool, 1, Order::ZERO, pages);
    assert!(in_row(&pool, row, 1) > 0 && pool.zone_stats(ZONE).depot_pages > 0);
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, free);
    assert_eq!((pool.zone_stats(ZONE).depot_pages, in_row(&pool, row, 1)), (0, 0));
    pool.validate().unwrap();
}

#[test]
fn a_cpu_that_only_frees_keeps_what_it_frees() {
    let (pool, row) = boot(2, ROWS);
    let pages = take(&pool, 0, Order::ZERO, 3 * ROW);
    give(&pool, 1, Order::ZERO, pages);
    assert_eq!((in_row(&pool, row, 1), pool.pcp(ZONE, CpuId(1)).count()), (0, 3 * ROW as u32));
    pool.validate().unwrap();
}

#[test]
fn a_cpu_that_begins_to_free_only_stops_to_give_back_and_begins_again_as_it_takes() {
    let (pool, row) = boot(2, ROWS);
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, 40 * ROW);
    give(&pool, 1, Order::ZERO, pages);
    let rest = (pool.pcp(ZONE, CpuId(1)).fills_row(), in_row(&pool, row, 1));
    assert_eq!(rest, (false, 1));
    swing(&pool, 1);
    pool.refresh(CpuId(1));
    let pages = take(&pool, 0, Order::ZERO, ROW / 2);
    give(&pool, 1, Order::ZERO, pages);
    assert_eq!(in_row(&pool, row, 1), ROW / 2);
    pool.validate().unwrap();
}

#[test]
fn a_row_takes_pages_of_one_cpu_and_of_the_next_once_it_has_left() {
    let (pool, row) = boot(3, ROWS);
    swing(&pool, 2);
    let [first, second] = [0, 1].map(|cpu| take(&pool, cpu, Order::ZERO, ROW + 8));
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut some = |cpu: usize, count: usize| -> Vec<Pfn> {
        [&mut first, &mut second][cpu].by_ref().take(count).collect()
    };
    give(&pool, 2, Order::ZERO, some(0, 1));
    let before = pool.pcp(ZONE, CpuId(2)).count();
    give(&pool, 2, Order::ZERO, some(1, 4));
    assert_eq!(in_row(&pool, row, 2), 1, "the third CPU's stay on the list");
    assert_eq!(pool.pcp(ZONE, CpuId(2)).count(), before + 4);
    give(&pool, 2, Order::ZERO, some(0, ROW - 1));
    give(&pool, 2, Order::ZERO, some(1, 1));
    assert_eq!(in_row(&pool, row, 2), 1, "the full row has left, and this one begins the next");
    let last = some(0, 1);
    give(&pool, 2, Order::ZERO, last);
    assert_eq!(in_row(&pool, row, 2), 1);
    let back = take(&pool, 0, Order::ZERO, 4 * ROW);
    assert_eq!(pool.pcp(ZONE, CpuId(0)).events().row_takes, 1);
    give(&pool, 0, Order::ZERO, back);
    give(&pool, 2, Order::ZERO, some(0, ROW).into_iter().chain(some(1, ROW)).collect());
    pool.validate().unwrap();
}

#[test]
fn pages_of_a_cpu_that_has_gone_are_anybodys() {
    let (pool, row) = boot(2, ROWS);
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, ROW + 8);
    let mut pages = pages.into_iter();
    give(&pool, 1, Order::ZERO, pages.by_ref().take(8).collect());
    assert_eq!(in_row(&pool, row, 1), 8);
    on_cpu(1);
    pool.cpu_dead(CpuId(0));
    give(&pool, 1, Order::ZERO, pages.collect());
    assert_eq!(in_row(&pool, row, 1), 8, "no more go to it");
    pool.drain_all();
    pool.validate().unwrap();
}

#[test]
fn a_full_row_leaves_with_a_page_of_a_cpu_that_takes_no_rows() {
    for gone in [false, true] {
        let mut shape = Shape::uniform(1, PAGES, 4);
        shape.caches = std::vec![0, 0, 1, 1];
        let pool = shape.boot(ROWS);
        let (row, _) = pool.tables.map.row().unwrap();
        swing(&pool, 0);
        let mut pages = take(&pool, 1, Order::ZERO, ROW + 1);
        let last = pages.split_off(ROW);
        let other = take(&pool, 2, Order::ZERO, 1);
        give(&pool, 0, Order::ZERO, pages);
        assert_eq!(in_row(&pool, row, 0), ROW);
        let put = pool.zone_stats(ZONE).depot_puts;
        if gone {
            pool.cpu_dead(CpuId(1));
            give(&pool, 0, Order::ZERO, last);
        } else {
            give(&pool, 0, Order::ZERO, other);
        }
        assert_eq!(in_row(&pool, row, 0), 0);
        assert_eq!(pool.zone_stats(ZONE).depot_puts, put + 1);
        let word = pool.pcp(ZONE, CpuId(0)).row_word.load(Relaxed);
        assert_eq!(word == NOBODY, gone, "sequences ask for no page of a CPU that is gone");
        pool.validate().unwrap();
    }
}

#[test]
fn a_refresh_gives_a_part_of_a_row_back_and_the_next_one_is_for_any_cpu() {
    let (pool, row) = boot(3, ROWS);
    let free = pool.zone_stats(ZONE).free_pages;
    swing(&pool, 2);
    let [first, second] = [0, 1].map(|cpu| take(&pool, cpu, Order::ZERO, 8));
    give(&pool, 2, Order::ZERO, first);
    assert_eq!(in_row(&pool, row, 2), 8);
    pool.refresh(CpuId(2));
    assert_eq!((in_row(&pool, row, 2), pool.zone_stats(ZONE).depot_pages), (0, 8));
    let word = || pool.pcp(ZONE, CpuId(2)).row_word.load(Relaxed);
    assert_eq!(word(), UNBOUND, "sequences ask whose pages it takes");
    give(&pool, 2, Order::ZERO, second);
    assert_eq!(in_row(&pool, row, 2), 8);
    // Nobody takes them.
    pool.refresh(CpuId(2));
    (0..2).for_each(|_| _ = pool.refresh(CpuId(0)));
    let held: u32 = (0..3).map(|cpu| pool.pcp(ZONE, CpuId(cpu)).count()).sum();
    assert_eq!(pool.zone_stats(ZONE).depot_pages, 0);
    assert_eq!(pool.zone_stats(ZONE).free_pages + u64::from(held), free);
    pool.validate().unwrap();
}

#[test]
fn a_refresh_says_to_sequences_whether_the_cpu_fills_its_row() {
    let (pool, _) = boot(2, ROWS);
    swing(&pool, 1);
    let pcp = pool.pcp(ZONE, CpuId(1));
    // As when sequences alone have run since the CPU only freed, or handed out.
    for (idle, before, after) in [(0, pcp.frames, 0), (u8::MAX, 0, pcp.frames)] {
        pcp.rows_idle.store(idle, Relaxed);
        pcp.near_frames.store(before, Relaxed);
        // Nothing to decay, so the refresh does not close the pcp.
        pcp.high_min.store(pcp.high(), Relaxed);
        pool.refresh(CpuId(1));
        assert_eq!(pcp.near_frames.load(Relaxed), after);
    }
    pool.validate().unwrap();
}

#[test]
fn pages_go_back_to_cpus_of_the_zones_node_only() {
    let pool = Shape::uniform(2, PAGES, 2).boot(ROWS);
    let (row, _) = pool.tables.map.row().unwrap();
    let near: Vec<u32> = (0..4).filter(|cpu| pool.node_of(CpuId(*cpu)) == NodeId(0)).collect();
    let far = (0..4).find(|cpu| pool.node_of(CpuId(*cpu)) == NodeId(1)).unwrap();
    on_cpu(far);
    let request = Request { node: Some(NodeId(0)), ..Request::new(Order::ZERO) };
    let pages = |cpu: u32| -> Vec<Pfn> {
        on_cpu(cpu);
        (0..8).map(|_| pool.alloc(request).unwrap()).collect()
    };
    swing(&pool, near[0]);
    let of_far = pages(far);
    assert_eq!(pool.pcp(ZONE, CpuId(far)).depot_cpu, pool.pcp(ZONE, CpuId(near[0])).depot_cpu);
    give(&pool, near[0], Order::ZERO, of_far);
    assert_eq!(in_row(&pool, row, near[0]), 0);
    let of_near = pages(near[1]);
    give(&pool, near[0], Order::ZERO, of_near);
    assert_eq!(in_row(&pool, row, near[0]), 8);
    pool.validate().unwrap();
}

/// CPU 1 frees pages of CPU 0, and does not only free.
fn send_rows(pool: &Allocator<'_, Script>, pages: Vec<Pfn>) {
    for pages in pages.chunks(ROW) {
        swing(pool, 1);
        give(pool, 1, Order::ZERO, pages.to_vec());
    }
}

#[test]
fn rows_that_nobody_takes_leave_the_rest_of_the_group_a_depot() {
    let mut policy = ROWS;
    policy.pcp.depot.magazines = 8;
    let (pool, _) = boot(2, policy);
    let taken = || {
        pool.drain(ZONE, CpuId(1));
        let before = pool.pcp(ZONE, CpuId(1)).events().depot_takes;
        let page = take(&pool, 1, Order::ZERO, 1);
        give(&pool, 1, Order::ZERO, page);
        pool.pcp(ZONE, CpuId(1)).events().depot_takes - before
    };
    // Whatever is for anybody goes first.
    pool.drain_all();
    let mut pages = take(&pool, 0, Order::ZERO, 12 * ROW + 1);
    send_rows(&pool, pages.split_off(8 * ROW));
    (0..3).for_each(|_| _ = taken());
    assert_eq!(taken(), 0, "they are for CPU 0");
    send_rows(&pool, pages);
    (0..40).for_each(|_| _ = taken());
    assert!(pool.zone_stats(ZONE).depot_pages <= 8 * ROW as u64, "half of it is for anybody");
    pool.validate().unwrap();
}

#[test]
fn a_refresh_takes_what_is_for_anybody_first_and_rows_last() {
    let (pool, _) = boot(2, ROWS);
    let depot = || pool.zone_stats(ZONE).depot_pages;
    let pages = take(&pool, 0, Order::ZERO, 2 * ROW + 1);
    let others = take(&pool, 1, Order::ZERO, 140 * ROW);
    give(&pool, 1, Order::ZERO, others);
    assert!(depot() >= 4 * ROW as u64, "for anybody");
    pool.refresh(CpuId(0));
    let before = depot();
    send_rows(&pool, pages);
    assert_eq!(depot(), before + 2 * ROW as u64);
    pool.refresh(CpuId(0));
    assert_eq!(depot(), 2 * ROW as u64, "what was there before was not needed");
    pool.drain(ZONE, CpuId(0));
    let back = take(&pool, 0, Order::ZERO, 2 * ROW);
    assert_eq!(pool.zone_stats(ZONE).row_takes, 2);
    give(&pool, 0, Order::ZERO, back);
    pool.validate().unwrap();
}

#[test]
fn pages_of_another_cache_are_not_kept_for_it_and_a_pool_without_depots_has_no_row() {
    let mut shape = Shape::uniform(1, PAGES, 4);
    shape.caches = std::vec![0, 0, 1, 1];
    let pool = shape.boot(ROWS);
    let (row, _) = pool.tables.map.row().unwrap();
    swing(&pool, 0);
    let pages = take(&pool, 2, Order::ZERO, 8);
    give(&pool, 0, Order::ZERO, pages);
    assert_eq!(in_row(&pool, row, 0), 0);
    assert_eq!(pool.pcp(ZONE, CpuId(0)).row_word.load(Relaxed), NOBODY, "sequences need not ask");
    pool.validate().unwrap();
    let small = Shape::uniform(1, 32, 2).boot(ROWS);
    assert!(!small.pcp(ZONE, CpuId(0)).has_row && !small.pcp(ZONE, CpuId(1)).has_row);
}

#[test]
fn every_line_of_a_pool_without_rows_may_be_shared() {
    let mut policy = ROWS;
    policy.pcp.depot.row = 0;
    let pool = Shape::uniform(1, PAGES, 2).boot(policy);
    assert!(pool.tables.map.row().is_none());
    swing(&pool, 1);
    let pages = take(&pool, 0, Order::ZERO, 12);
    give(&pool, 1, Order::ZERO, pages.into_iter().step_by(2).collect());
    assert!(!shared_lines(&pool, 8).is_empty());
    pool.validate().unwrap();
}
