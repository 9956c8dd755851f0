//! Depots: one CPU gets what another gives back, and no page is kept from a CPU that needs it.

use std::vec::Vec;

use proptest::prelude::*;

use super::exhaustive;
use super::platform::{Shape, before_the_next_lock, on_cpu, steps_of};
use super::programs::{self, Op};
use crate::alloc::{Allocator, FreeError, Request};
use crate::pcp::depot::{DepotGroup, DepotPolicy};
use crate::platform::{Platform, Step};
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, Pfn, ZoneId};
use crate::zone::state::{BELOW_HIGH, RECLAIM_ACTIVE};

/// A zone of this size moves 7 pages at a time.
const PAGES: u64 = 1 << 15;
const BATCH: usize = 7;
/// Pages of its magazines: a line of page words.
const MAGAZINE: usize = 8;

fn with_depot(policy: Policy, magazines: u16, group: DepotGroup) -> Policy {
    let depot = DepotPolicy { magazines, group, ..DepotPolicy::OFF };
    Policy { pcp: PcpPolicy { depot, ..policy.pcp }, ..policy }
}

/// Refills take blocks of up to this order whole.
fn filled(policy: Policy, block: u8) -> Policy {
    let depot = DepotPolicy { block, ..policy.pcp.depot };
    Policy { pcp: PcpPolicy { depot, ..policy.pcp }, ..policy }
}

/// No reserve and short lists, so that little is needed to fill one.
pub(super) fn short(magazines: u16) -> Policy {
    let zonal = with_depot(Policy::ZONAL, magazines, DepotGroup::Node);
    let watermark = WatermarkPolicy { min_free: MinFreeRule::Kbytes(0), ..zonal.watermark };
    let pcp = PcpPolicy { scale_max: 0, ..zonal.pcp };
    Policy { pcp, watermark, ..zonal }
}

pub(super) fn take<P: Platform>(
    pool: &Allocator<'_, P>,
    cpu: u32,
    order: Order,
    times: usize,
) -> Vec<Pfn> {
    on_cpu(cpu);
    (0..times).map(|_| pool.alloc(Request::new(order)).expect("there is enough")).collect()
}

pub(super) fn give<P: Platform>(pool: &Allocator<'_, P>, cpu: u32, order: Order, blocks: Vec<Pfn>) {
    on_cpu(cpu);
    blocks.into_iter().for_each(|pfn| pool.free(pfn, order).expect("it is ours"));
}

/// The most blocks that a hold of the zone lock moved.
fn largest_hold(run: impl FnOnce()) -> u32 {
    let steps = steps_of(run);
    let blocks = steps.iter().filter_map(|step| match step {
        Step::ZoneUnlock { blocks, .. } => Some(*blocks),
        _ => None,
    });
    blocks.max().unwrap_or(0)
}

/// Pages of which no two are neighbours, so that none of them are freed as one block.
fn apart(pages: &[Pfn]) -> (Vec<Pfn>, Vec<Pfn>) {
    pages.iter().partition(|pfn| pfn.0.is_multiple_of(2))
}

#[test]
fn a_hold_of_the_zone_lock_moves_so_many_blocks_at_most() {
    for (hold, bound) in [(0, u32::MAX), (5, 5), (16, 16)] {
        // Short lists: what is freed comes to the depot.
        let pcp = PcpPolicy { hold, high_batches: 4, ..Policy::ZONAL.pcp };
        let policy = Policy { pcp, ..Policy::ZONAL };
        let pool = Shape::uniform(1, 1 << 18, 2).boot(policy);
        // Under pressure refills pass the depot by, and take most.
        pool.zone_ops(ZoneId(0)).set_flag(RECLAIM_ACTIVE);
        let mut pages = Vec::new();
        let refill = largest_hold(|| pages = take(&pool, 0, Order::ZERO, 4000));
        pool.zones()[0].clear_flag(RECLAIM_ACTIVE);
        let (one, other) = apart(&pages);
        let drain = largest_hold(|| {
            give(&pool, 0, Order::ZERO, one);
            while pool.zone_stats(ZoneId(0)).cached_pages > 0 {
                pool.drain_all();
            }
        });
        // Single pages are all there is for a while.
        let mut again = Vec::new();
        let whole = largest_hold(|| again = take(&pool, 0, Order::ZERO, 1000));
        give(&pool, 0, Order::ZERO, again);
        // What waits in a depot goes the same way.
        give(&pool, 0, Order::ZERO, other);
        let mut depot = 0;
        while pool.zone_stats(ZoneId(0)).depot_pages > 0 {
            depot = depot.max(largest_hold(|| _ = pool.drain_all()));
            pool.validate().unwrap();
        }
        for (what, most) in
            [("refill", refill), ("drain", drain), ("whole", whole), ("depot", depot)]
        {
            assert!(most <= bound, "{what}: {most} blocks, {bound} at most");
            assert!(most >= 4, "{what}: {most} blocks");
            assert!(hold > 0 || most > 16, "{what}: {most} blocks: the bound is not tried");
        }
        assert_eq!(pool.zone_stats(ZoneId(0)).cached_pages, 0);
    }
}

#[test]
fn what_one_cpu_gives_back_another_gets_without_the_zone_lock() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(16));
    let pages = take(&pool, 0, Order::ZERO, 20 * BATCH);
    pool.drain(ZoneId(0), CpuId(0));
    let mut freed: Vec<u64> = pages.iter().map(|pfn| pfn.0).collect();
    let locks = pool.zone_stats(ZoneId(0)).lock_holds;
    give(&pool, 1, Order::ZERO, pages);
    let stats = pool.zone_stats(ZoneId(0));
    assert!(stats.depot_puts > 0);
    assert_eq!(stats.depot_pages, stats.depot_puts * MAGAZINE as u64);
    let back = take(&pool, 0, Order::ZERO, stats.depot_pages as usize);
    let after = pool.zone_stats(ZoneId(0));
    // What looks at the zone takes the lock too.
    assert_eq!(after.lock_holds, locks + 2, "nothing went to the buddy");
    assert_eq!((after.depot_pages, after.depot_takes), (0, stats.depot_puts));
    assert_eq!(
        (after.refilled_pages, after.drained_pages),
        (stats.refilled_pages, stats.drained_pages)
    );
    freed.sort_unstable();
    assert!(back.iter().all(|pfn| freed.binary_search(&pfn.0).is_ok()));
    pool.validate().unwrap();
}

#[test]
fn blocks_of_the_high_orders_move_whole() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(64));
    for order in [2, 4, 6].map(|order| Order::new(order).unwrap()) {
        let blocks = take(&pool, 0, order, 12);
        give(&pool, 1, order, blocks);
        assert!(pool.stats().depot_pages(ZoneId(0)) > 0, "{order:?}");
        pool.validate().unwrap();
        let again = take(&pool, 0, order, 12);
        pool.validate().unwrap();
        give(&pool, 0, order, again);
        pool.drain_all();
        assert_eq!(pool.zone_stats(ZoneId(0)).free_pages, PAGES);
    }
}

#[test]
fn a_full_depot_lets_the_rest_through_to_the_buddy() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(2));
    let pages = take(&pool, 0, Order::ZERO, 3000);
    give(&pool, 1, Order::ZERO, pages);
    let stats = pool.zone_stats(ZoneId(0));
    // Two magazines for each of the two CPUs.
    assert_eq!(stats.depot_pages, 4 * MAGAZINE as u64);
    assert!(stats.drained_pages > 0);
    pool.validate().unwrap();
}

/// The first CPU that runs empty again and again leaves for the others what it does not need of a
/// block, and the zone lock is not held for each page.
#[test]
fn a_refill_takes_whole_blocks_and_fills_the_depot() {
    let plain = Policy { pcp: PcpPolicy { scale_max: 5, ..short(64).pcp }, ..short(64) };
    let run = |policy| {
        let pool = Shape::uniform(1, PAGES, 2).boot(policy);
        let mut pages = take(&pool, 0, Order::ZERO, 4000);
        let left = pool.stats().depot_pages(ZoneId(0)) as usize;
        let before = pool.zone_stats(ZoneId(0));
        assert!(left.is_multiple_of(MAGAZINE));
        pages.extend(take(&pool, 1, Order::ZERO, left));
        let after = pool.zone_stats(ZoneId(0));
        let refilled = after.refilled_pages;
        assert_eq!(refilled, before.refilled_pages, "the other CPU needs nothing of the buddy");
        assert_eq!(PAGES - after.free_pages, refilled, "what left the buddy is counted once");
        pool.validate().unwrap();
        pages.sort_unstable();
        assert!(pages.windows(2).all(|two| two[0] != two[1]), "each page once");
        give(&pool, 1, Order::ZERO, pages);
        pool.drain_all();
        assert_eq!(pool.zone_stats(ZoneId(0)).free_pages, PAGES);
        pool.validate().unwrap();
        (left > 0, before.lock_holds)
    };
    let (left, holds) = run(plain);
    assert!(!left);
    let (left, fewer) = run(filled(plain, 9));
    assert!(left, "a half of each block");
    assert!(fewer < holds);
}

/// Of a zone cut into single pages a refill takes no more blocks in one hold than elsewhere, and of
/// one that is short only what the list needs.
#[test]
fn whole_blocks_are_not_to_be_had_everywhere() {
    let policy = filled(short(64), 9);
    let pool = Shape::uniform(1, PAGES, 2).boot(policy);
    let mut pages = take(&pool, 0, Order::ZERO, PAGES as usize);
    pages.sort_unstable();
    let (odd, even): (Vec<Pfn>, Vec<Pfn>) = pages.into_iter().partition(|pfn| pfn.0 % 2 == 1);
    give(&pool, 0, Order::ZERO, even);
    pool.drain_all();
    let before = pool.zone_stats(ZoneId(0)).refilled_pages;
    let some = take(&pool, 1, Order::ZERO, 1);
    assert_eq!(pool.zone_stats(ZoneId(0)).refilled_pages - before, BATCH as u64 + 1);
    pool.validate().unwrap();
    give(&pool, 0, Order::ZERO, odd);
    give(&pool, 0, Order::ZERO, some);
    pool.drain_all();
    pool.zone_ops(ZoneId(0)).set_flag(BELOW_HIGH);
    let kept = take(&pool, 1, Order::ZERO, 1);
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), 0);
    give(&pool, 1, Order::ZERO, kept);
}

/// What one moment brought to a depot goes back while it is used by fewer.
#[test]
fn a_depot_gives_back_what_its_use_does_not_need() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(64));
    let many = take(&pool, 0, Order::ZERO, 2000);
    give(&pool, 1, Order::ZERO, many);
    let full = pool.stats().depot_pages(ZoneId(0));
    assert!(full > 50 * BATCH as u64);
    for _ in 0..100_000 / BATCH {
        let few = take(&pool, 0, Order::ZERO, BATCH);
        give(&pool, 1, Order::ZERO, few);
    }
    let rest = pool.stats().depot_pages(ZoneId(0));
    assert!(rest < full / 2, "{rest} of {full}");
    pool.validate().unwrap();
}

#[test]
fn without_batches_there_is_no_depot() {
    for &policy in Policy::PRESETS {
        let has = policy.pcp.depot.magazines != 0;
        assert_eq!(has, policy.name == "zonal", "{}", policy.name);
    }
    let pool = Shape::uniform(1, PAGES, 2).boot(short(0));
    let pages = take(&pool, 0, Order::ZERO, 3000);
    give(&pool, 1, Order::ZERO, pages);
    let stats = pool.zone_stats(ZoneId(0));
    assert_eq!((stats.depot_puts, stats.depot_pages), (0, 0));
}

#[test]
fn lists_that_may_hold_little_leave_the_rest_to_the_depot() {
    let short = short(200);
    let policy = Policy { pcp: PcpPolicy { high_batches: 4, ..short.pcp }, ..short };
    let pool = Shape::uniform(1, PAGES, 1).boot(policy);
    // What blocks of 2 MiB may bring them to is of no use to pages.
    assert_eq!(pool.zones()[0].pcp_sizes(), (BATCH as u32, 28, 70));
    for _ in 0..3 {
        let pages = take(&pool, 0, Order::ZERO, 400);
        give(&pool, 0, Order::ZERO, pages);
        assert!(pool.pcp(ZoneId(0), CpuId(0)).count() <= 28);
    }
    let stats = pool.zone_stats(ZoneId(0));
    // A magazine and what came behind it go at once.
    let left = stats.cached_pages - stats.depot_pages;
    assert!((28 - MAGAZINE as u64..=28).contains(&left), "{left}");
    pool.validate().unwrap();
}

/// However many CPUs want however much, lists and depots hold no more than the budget, and who
/// needs it gets what others had.
#[test]
fn lists_and_depots_together_keep_to_the_budget() {
    let part = 64;
    let limit = PAGES / u64::from(part);
    let pcp = PcpPolicy { budget_fraction: part, scale_max: 5, ..short(200).pcp };
    let pool = Shape::uniform(1, PAGES, 16).boot(Policy { pcp, ..short(200) });
    let stats = || pool.zone_stats(ZoneId(0));
    assert_eq!(stats().budget_pages, limit);
    let round = |cpu| {
        let pages = take(&pool, cpu, Order::ZERO, 600);
        assert!(stats().cached_pages <= limit);
        for pfn in pages {
            give(&pool, cpu, Order::ZERO, std::vec![pfn]);
            assert!(stats().cached_pages <= limit);
        }
        pool.validate().unwrap();
    };
    for cpu in (0..16).chain(0..16).chain(0..16) {
        round(cpu);
    }
    assert_eq!(stats().reserved_pages, limit, "all of it is somebody's");
    // All but one do nothing, and their lists decay by an eighth in each refresh. It gets what
    // they have.
    let granted = || pool.pcp(ZoneId(0), CpuId(3)).granted.load(Relaxed);
    let before = granted();
    for _ in 0..24 {
        round(3);
        for cpu in 0..16 {
            pool.refresh(CpuId(cpu));
        }
    }
    assert!(granted() > 3 * before.max(1) && granted() > 200, "{before} to {}", granted());
    pool.drain_all();
    let depots: u64 =
        pool.zone_ops(ZoneId(0)).depots().map(|(_, depot)| u64::from(depot.limit())).sum();
    assert_eq!(stats().reserved_pages, depots, "an empty list is granted nothing");
    pool.validate().unwrap();
}

/// Blocks that no list may hold go to the buddy and come from there.
#[test]
fn a_budget_that_is_too_small_for_a_block_refuses_none() {
    let policy = Policy { pcp: PcpPolicy { budget_fraction: 30_000, ..short(4).pcp }, ..short(4) };
    let pool = Shape::uniform(1, PAGES, 2).boot(policy);
    for order in [0, 3, 9].map(|order| Order::new(order).unwrap()) {
        let blocks = take(&pool, 0, order, 20);
        give(&pool, 1, order, blocks);
        assert!(pool.zone_stats(ZoneId(0)).cached_pages <= 1);
        pool.validate().unwrap();
    }
}

/// A block that no list may hold is nobody's on its way to the buddy, by each way of freeing it.
#[test]
fn a_block_for_which_there_is_no_room_is_freed_once() {
    let policy = Policy { pcp: PcpPolicy { budget_fraction: 30_000, ..short(4).pcp }, ..short(4) };
    let order = Order::new(9).unwrap();
    let pool: &'static _ =
        std::boxed::Box::leak(std::boxed::Box::new(Shape::uniform(1, PAGES, 2).boot(policy)));
    for way in 0..3 {
        let block = take(pool, 0, order, 1)[0];
        if way == 2 {
            pool.ranges().split_block(block, order, Order::ZERO).unwrap();
        }
        before_the_next_lock(move || {
            on_cpu(1);
            let twice = FreeError::DoubleFree { pfn: block, order, zone: ZoneId(0) };
            assert_eq!(pool.free(block, order), Err(twice), "way {way}");
            on_cpu(0);
        });
        let pages: Vec<Pfn> = (block.0..block.0 + order.pages()).map(Pfn).collect();
        match way {
            0 => pool.free(block, order).unwrap(),
            1 => pool.free_bulk(&[block], order).unwrap(),
            _ => pool.free_bulk(&pages, Order::ZERO).unwrap(),
        }
        pool.drain_all();
        pool.validate().unwrap();
        assert_eq!(pool.free_pages(), PAGES);
    }
}

#[test]
fn a_refresh_leaves_lists_below_their_lower_bound_alone() {
    let linux = Shape::uniform(1, PAGES, 1).boot(Policy::LINUX_6_18);
    let pages = take(&linux, 0, Order::ZERO, 20);
    give(&linux, 0, Order::ZERO, pages);
    let before = linux.pcp(ZoneId(0), CpuId(0)).count();
    for _ in 0..60 {
        linux.refresh(CpuId(0));
    }
    assert_eq!(linux.pcp(ZoneId(0), CpuId(0)).count(), before, "below its lower bound it stays");
}

#[test]
fn a_refresh_gives_back_what_nobody_needed_since_the_last() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(8));
    let pages = take(&pool, 0, Order::ZERO, 200);
    give(&pool, 1, Order::ZERO, pages);
    let full = pool.stats().depot_pages(ZoneId(0));
    assert!(full >= 8 * BATCH as u64);
    pool.refresh(CpuId(0));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), full, "it came since");
    // Two batches are used, and come back.
    let used = take(&pool, 0, Order::ZERO, 200 - full as usize + 2 * BATCH);
    let least = pool.stats().depot_pages(ZoneId(0));
    give(&pool, 1, Order::ZERO, used);
    let before = pool.stats().depot_pages(ZoneId(0));
    assert!(0 < least && least < before);
    pool.refresh(CpuId(1));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), before, "it is the first CPU's to look after");
    pool.refresh(CpuId(0));
    assert_eq!(
        pool.stats().depot_pages(ZoneId(0)),
        before - least.next_multiple_of(MAGAZINE as u64)
    );
    pool.refresh(CpuId(0));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), 0, "idle for a whole interval");
    assert!(!pool.refresh(CpuId(0)) || pool.stats().depot_pages(ZoneId(0)) == 0);
    pool.validate().unwrap();
}

#[test]
fn others_look_after_the_depot_of_a_cpu_that_is_gone() {
    let pool = Shape::uniform(1, PAGES, 3).boot(short(8));
    let pages = take(&pool, 1, Order::ZERO, 200);
    pool.cpu_dead(CpuId(0));
    give(&pool, 2, Order::ZERO, pages);
    assert!(pool.stats().depot_pages(ZoneId(0)) > 0);
    pool.refresh(CpuId(2));
    pool.refresh(CpuId(1));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), 0);
    pool.validate().unwrap();
}

/// Nobody refreshes it any more: it kept its pages until a request found nothing else.
#[test]
fn the_depot_of_a_group_whose_cpus_are_all_gone_is_empty() {
    let mut shape = Shape::uniform(1, PAGES, 4);
    shape.caches = std::vec![5, 7, 5, 7];
    let pool = shape.boot(with_depot(short(8), 8, DepotGroup::Cache));
    let pages = take(&pool, 0, Order::ZERO, 200);
    give(&pool, 2, Order::ZERO, pages);
    let full = pool.stats().depot_pages(ZoneId(0));
    assert!(full > 0);
    on_cpu(1);
    pool.cpu_dead(CpuId(0));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), full, "one is left");
    pool.cpu_dead(CpuId(2));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), 0);
    assert_eq!(pool.zone_stats(ZoneId(0)).free_pages, pool.free_pages());
    pool.cpu_online(CpuId(2));
    let pages = take(&pool, 2, Order::ZERO, 200);
    give(&pool, 2, Order::ZERO, pages);
    pool.validate().unwrap();
}

#[test]
fn cpus_of_one_cache_share_and_those_of_another_do_not() {
    let mut shape = Shape::uniform(1, PAGES, 4);
    shape.caches = std::vec![5, 7, 5, 7];
    let policy = with_depot(short(8), 8, DepotGroup::Cache);
    let pool = shape.boot(policy);
    let pages = take(&pool, 0, Order::ZERO, 200);
    give(&pool, 2, Order::ZERO, pages);
    let held = pool.stats().depot_pages(ZoneId(0));
    let steps = steps_of(|| drop(take(&pool, 1, Order::ZERO, 30)));
    assert!(!steps.iter().any(|step| matches!(step, Step::Depot { .. })));
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), held);
    drop(take(&pool, 0, Order::ZERO, 100));
    assert!(pool.stats().depot_pages(ZoneId(0)) < held);
}

/// A CPU of another node returns pages to their zone's depot, where the zone's CPUs find them.
#[test]
fn pages_freed_on_another_node_return_in_magazines() {
    let pool = Shape::uniform(2, PAGES, 1).boot(short(64));
    let pages = take(&pool, 0, Order::ZERO, 200);
    let locks = || pool.zones()[0].lock_holds().0;
    let before = locks();
    give(&pool, 1, Order::ZERO, pages);
    assert_eq!(locks(), before);
    let kept = pool.stats().depot_pages(ZoneId(0));
    assert!(kept > 0);
    assert_eq!(pool.stats().depot_pages(ZoneId(1)), 0);
    drop(take(&pool, 0, Order::ZERO, kept as usize));
    pool.validate().unwrap();
}

#[test]
fn no_request_is_refused_while_a_depot_has_pages() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(64));
    let mut all = Vec::new();
    on_cpu(0);
    while let Ok(pfn) = pool.alloc(Request::new(Order::ZERO)) {
        all.push(pfn);
    }
    assert_eq!(all.len() as u64, PAGES);
    // Freed while the zone is short, so by flags that are still up; clear them as a refresh does.
    give(&pool, 1, Order::ZERO, all.split_off(all.len() - 12_000));
    pool.drain_all();
    pool.refresh(CpuId(1));
    assert!(!pool.zones()[0].has(BELOW_HIGH));
    let some = take(&pool, 1, Order::ZERO, 6000);
    give(&pool, 1, Order::ZERO, some);
    assert!(pool.stats().depot_pages(ZoneId(0)) > 0);
    let mut got = 0;
    on_cpu(0);
    while pool.alloc(Request::new(Order::ZERO)).is_ok() {
        got += 1;
    }
    assert_eq!(got, 12_000);
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), 0);
    pool.validate().unwrap();
}

/// A batch that comes to the depot between the draining of its zone and the last look does not go
/// unseen.
#[test]
fn a_batch_that_comes_during_the_last_look_is_found() {
    let pool: &'static _ =
        std::boxed::Box::leak(std::boxed::Box::new(Shape::uniform(1, PAGES, 2).boot(short(64))));
    let mut all = Vec::new();
    on_cpu(0);
    while let Ok(pfn) = pool.alloc(Request::new(Order::ZERO)) {
        all.push(pfn);
    }
    let back = all.split_off(all.len() - 100);
    before_the_next_lock(move || give(pool, 1, Order::ZERO, back));
    on_cpu(0);
    pool.alloc(Request::new(Order::ZERO)).expect("pages came back");
    pool.validate().unwrap();
}

#[test]
fn pages_in_a_depot_are_no_strays() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(8));
    let pages = take(&pool, 0, Order::ZERO, 200);
    give(&pool, 1, Order::ZERO, pages);
    assert!(pool.stats().depot_pages(ZoneId(0)) > 0);
    pool.expect_strays();
    pool.validate().unwrap();
    assert_eq!(pool.zones()[0].strays(), 0);
}

#[test]
fn a_page_in_a_depot_cannot_be_freed() {
    let pool = Shape::uniform(1, PAGES, 2).boot(short(8));
    let pages = take(&pool, 0, Order::ZERO, 200);
    give(&pool, 1, Order::ZERO, pages.clone());
    assert!(pool.stats().depot_pages(ZoneId(0)) > 0);
    for page in pages {
        pool.free(page, Order::ZERO).unwrap_err();
    }
    pool.validate().unwrap();
}

/// Two CPUs, a depot of two batches of one page: runs of allocations and frees on either side.
#[test]
fn every_short_program_with_a_depot_is_right() {
    let alloc = |cpu, times| Op::Alloc { cpu, order: 0, gfp: 0, node: None, times };
    let free = |cpu, times| Op::Free { cpu, which: 0, times };
    let ops = [
        alloc(0, 9),
        alloc(1, 120),
        Op::Alloc { cpu: 1, order: 2, gfp: 0, node: None, times: 4 },
        free(0, 9),
        free(1, 120),
        Op::Refresh { cpu: 0, times: 1 },
        Op::DrainAll,
    ];
    let shape = Shape::uniform(1, 128, 2);
    exhaustive::run_all(&shape, short(4), &ops, 5);
    exhaustive::run_all(&shape, filled(short(4), 4), &ops, 4);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        rng_seed: prop::test_runner::RngSeed::Fixed(6),
        ..ProptestConfig::default()
    })]
    /// Zones that are large enough for batches of several pages.
    #[test]
    fn random_programs_with_depots_match_a_model_of_ownership(
        cpus in 1usize..4,
        magazines in 1u16..20,
        group in prop::sample::select(std::vec![DepotGroup::Cache, DepotGroup::Node]),
        grouping in prop::sample::select(std::vec![Grouping::On, Grouping::Off]),
        linux in any::<bool>(),
        block in prop::sample::select(std::vec![0u8, 3, 9, 10]),
        budget in prop::sample::select(std::vec![0u32, 8, 100, 1000, 20_000]),
        ops in prop::collection::vec(programs::op(), 20..50),
    ) {
        let base = if linux { Policy::LINUX_6_18 } else { short(1) };
        let policy = filled(with_depot(base, magazines, group), block);
        let pcp = PcpPolicy { budget_fraction: budget, ..policy.pcp };
        let policy = Policy { pcp, mobility_grouping: grouping, ..policy };
        let mut shape = Shape::uniform(1, 14_000, cpus);
        shape.caches = (0..cpus as u16).map(|cpu| cpu % 2).collect();
        programs::run(&shape, policy, &ops);
    }
}

#[test]
fn under_pressure_chunks_are_as_large_as_without_depots() {
    let scale_max = |policy: Policy, flag: u32| {
        let pool = Shape::uniform(1, PAGES, 1).boot(policy);
        let zone = &pool.zones()[0];
        pool.zone_ops(zone.id()).set_flag(flag);
        pool.zone_ops(ZoneId(0)).params(pool.pcp(ZoneId(0), CpuId(0))).scale_max
    };
    let small = Policy { pcp: PcpPolicy { scale_max: 3, ..Policy::ZONAL.pcp }, ..Policy::ZONAL };
    let large = Policy { pcp: PcpPolicy { scale_max: 6, ..Policy::ZONAL.pcp }, ..Policy::ZONAL };
    for flag in [BELOW_HIGH, RECLAIM_ACTIVE] {
        assert_eq!(scale_max(small, 0), 3);
        assert_eq!(scale_max(small, flag), 5);
        assert_eq!(scale_max(large, flag), 6);
        assert_eq!(scale_max(with_depot(small, 0, DepotGroup::Cache), flag), 3, "no depots");
    }
}
