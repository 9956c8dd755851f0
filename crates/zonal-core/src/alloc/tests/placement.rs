//! Which page comes next, and which goes back first (LB E.6 to E.8, M.8).

use std::vec::Vec;

use super::platform::{LISTS_ALONE, Script, Shape, distances, zone};
use crate::alloc::{Allocator, Request};
use crate::buddy::{Buddy, FreeFlags};
use crate::frame::{Frames, PageState, PageWord};
use crate::gfp::Gfp;
use crate::pcp::size::HighFraction;
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::sync::{AtomicU8, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, NodeId, Order, Pfn, ZoneId, ZoneKind};

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

fn take(pool: &Allocator<'_, Script>, order: Order, n: usize) -> Vec<Pfn> {
    (0..n).map(|_| pool.alloc(Request::new(order)).unwrap()).collect()
}

fn give(pool: &Allocator<'_, Script>, order: Order, blocks: &[Pfn]) {
    blocks.iter().for_each(|pfn| pool.free(*pfn, order).unwrap());
}

/// Whether the block waits on a pcp. The zone starts at pfn 0.
fn is_cached(pool: &Allocator<'_, Script>, pfn: Pfn) -> bool {
    let word = PageWord(pool.words()[pfn.0 as usize].load(Relaxed));
    matches!(word.state(), PageState::Cached { .. })
}

/// One CPU, 4096 pages, a chunk of 1 page; pcps that hold 512 pages whatever happens.
fn fixed() -> Allocator<'static, Script> {
    let high_fraction = HighFraction::new(8).unwrap();
    let pcp = PcpPolicy { high_fraction, ..LISTS_ALONE.pcp };
    Shape::uniform(1, 4096, 1).boot(Policy { pcp, ..LISTS_ALONE })
}

#[test]
fn the_last_block_freed_is_the_first_allocated() {
    for &policy in Policy::PRESETS {
        let lists = policy.pcp.map(false);
        let has_lists = |o: &u32| lists.get(order(*o), Migratetype::Unmovable).is_some();
        for o in [0, 1, 2, 3].into_iter().filter(has_lists).map(order) {
            let pool = Shape::uniform(1, 1 << 18, 1).boot(policy);
            let mut blocks = take(&pool, o, 4);
            give(&pool, o, &blocks);
            blocks.reverse();
            assert_eq!(take(&pool, o, 4), blocks, "{}, {o:?}", policy.name);
        }
    }
}

#[test]
fn a_refill_is_handed_out_in_the_order_it_left_the_buddy() {
    let pool = Shape::uniform(1, 1 << 18, 1).boot(Policy::LINUX_6_18);
    // Refills of 63, 126 and 252 pages, all from the first block of a fresh zone.
    let pages = take(&pool, Order::ZERO, 63 + 126 + 252);
    assert!(pages.iter().map(|pfn| pfn.0).eq(0..441), "{pages:?}");
    // An order-2 refill fetches 63 / 4 = 15 blocks. The smallest that fits is behind those pages.
    let blocks = take(&pool, order(2), 15);
    assert!(blocks.iter().map(|pfn| pfn.0).eq((444..504).step_by(4)), "{blocks:?}");
}

#[test]
fn a_full_pcp_gives_back_the_coldest_pages_of_the_list_freed_to() {
    let pool = fixed();
    let (pages, small) = (take(&pool, Order::ZERO, 508), take(&pool, order(1), 2));
    pool.drain_all();
    give(&pool, order(1), &small);
    give(&pool, Order::ZERO, &pages[..507]);
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).count(), 511);
    assert!(pages[..507].iter().all(|pfn| is_cached(&pool, *pfn)));
    // The 512th page: 32 go, as many as were freed in a row up to 32 chunks (LB E.7).
    give(&pool, Order::ZERO, &pages[507..]);
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).count(), 480);
    assert!(pages[..32].iter().all(|pfn| !is_cached(&pool, *pfn)));
    assert!(pages[32..].iter().all(|pfn| is_cached(&pool, *pfn)));
    assert!(small.iter().all(|pfn| is_cached(&pool, *pfn)), "older, but on another list");
    pool.validate().unwrap();
}

#[test]
fn a_drain_goes_on_with_the_lists_behind_the_one_freed_to_and_round() {
    let pool = fixed();
    let (pages, pairs) = (take(&pool, Order::ZERO, 483), take(&pool, order(1), 3));
    let (quads, large) = (take(&pool, order(2), 2), take(&pool, order(4), 1));
    pool.drain_all();
    give(&pool, order(1), &pairs);
    give(&pool, Order::ZERO, &pages);
    give(&pool, order(4), &large);
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).count(), 505);
    // Two order-2 blocks make 513. Their own list of 8 pages goes first, then order 3, which is
    // empty, then the order-4 block, and of order 0 the oldest 8 pages; 32 in all.
    give(&pool, order(2), &quads);
    assert!(quads.iter().all(|pfn| !is_cached(&pool, *pfn)));
    assert!(!is_cached(&pool, large[0]));
    assert!(pages[..8].iter().all(|pfn| !is_cached(&pool, *pfn)));
    assert!(pages[8..].iter().all(|pfn| is_cached(&pool, *pfn)));
    assert!(pairs.iter().all(|pfn| is_cached(&pool, *pfn)));
    pool.validate().unwrap();
}

#[test]
fn pages_drained_in_one_go_merge_again() {
    let pool = Shape::uniform(1, 1 << 14, 2).boot(LISTS_ALONE);
    let pages = take(&pool, Order::ZERO, 3000);
    give(&pool, Order::ZERO, &pages);
    pool.drain_all();
    let stats = pool.zone_stats(ZoneId(0));
    assert_eq!((stats.nr_free[10], stats.free_pages), (16, 1 << 14));
}

#[test]
fn bulk_calls_take_and_give_pages_as_single_ones_do() {
    let single = Shape::uniform(1, 1 << 18, 1).boot(Policy::LINUX_6_18);
    let bulk = Shape::uniform(1, 1 << 18, 1).boot(Policy::LINUX_6_18);
    let pages = take(&single, Order::ZERO, 1000);
    let mut got = std::vec![Pfn(0); 1000];
    assert_eq!(bulk.alloc_bulk(Request::new(Order::ZERO), &mut got), Ok(1000));
    assert_eq!(got, pages);
    give(&single, Order::ZERO, &pages);
    bulk.free_bulk(&pages, Order::ZERO).unwrap();
    assert_eq!(take(&single, Order::ZERO, 1000), take(&bulk, Order::ZERO, 1000));
}

/// LB D.3 step 3, D.4 step 3, M.17.
#[test]
fn a_request_goes_to_dma32_rather_than_mix_types_and_mixes_rather_than_leave_its_node() {
    let zones = std::vec![
        zone(0, ZoneKind::Dma32, 0, 2048),
        zone(0, ZoneKind::Normal, 2048, 2048),
        zone(1, ZoneKind::Normal, 4096, 2048),
    ];
    let cpus = std::vec![NodeId(0)];
    let shape =
        Shape { distances: distances(2), zones, cpus, cache_slice_bytes: 0, caches: Vec::new() };
    let min_free = MinFreeRule::Kbytes(0);
    let linux = Policy::LINUX_6_18;
    // Without the boost, which would hold the nearer zone back once types are mixed.
    let watermark = WatermarkPolicy { min_free, boost_factor: 0, ..linux.watermark };
    let pool = shape.boot(Policy { watermark, mobility_grouping: Grouping::On, ..linux });
    let movable = |gfp: Gfp, n: usize| {
        let request = Request::new(Order::ZERO).gfp(gfp | Gfp::MOVABLE);
        for _ in 0..n {
            pool.alloc(request).unwrap();
        }
        pool.drain_all();
    };
    let unmovable = || {
        let pfn = pool.alloc(Request::new(order(1))).unwrap();
        pool.zones().iter().find(|zone| zone.contains(pfn)).unwrap().id()
    };
    // No whole pageblock is left in Normal.
    movable(Gfp::KERNEL, 1700);
    assert_eq!(unmovable(), ZoneId(0));
    // Nor in DMA32, and what the request before claimed there is used up.
    movable(Gfp::KERNEL | Gfp::DMA32, 1300);
    while unmovable() == ZoneId(0) {}
    assert_eq!(unmovable(), ZoneId(1));
    assert_eq!(pool.zone_stats(ZoneId(2)).allocs, 0);
    pool.validate().unwrap();
}

/// The zone's frame words, pageblock types and buddy, copied.
struct Copy {
    words: Vec<AtomicU64>,
    blocks: Vec<AtomicU8>,
    buddy: Buddy,
}

impl Copy {
    fn of(pool: &Allocator<'_, Script>) -> Copy {
        let zone = &pool.zones()[0];
        Copy {
            words: pool
                .tables
                .words
                .iter()
                .map(|word| AtomicU64::new(word.load(Relaxed)))
                .collect(),
            blocks: pool.tables.blocks.iter().map(|mt| AtomicU8::new(mt.load(Relaxed))).collect(),
            buddy: pool.zone_ops(zone.id()).lock().buddy.clone(),
        }
    }

    fn words(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Relaxed)).collect()
    }
}

/// Runs of pages may go back as larger blocks; nobody must be able to tell.
#[test]
fn a_drain_leaves_the_buddy_as_single_frees_would() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    let policy = Policy { mobility_grouping: Grouping::On, ..Policy::LINUX_6_12 };
    for (policy, start) in [(LISTS_ALONE, 0), (policy, 0), (LISTS_ALONE, 777)] {
        let mut shape = Shape::uniform(1, 1 << 14, 1);
        shape.zones[0].start_pfn = start;
        let pool = shape.boot(policy);
        let mut held = Vec::new();
        for _ in 0..150 {
            for _ in 0..below(400) {
                let order = order([0, 0, 0, 0, 1, 2, 3][below(7) as usize]);
                held.extend(pool.alloc(Request::new(order)).map(|pfn| (pfn, order)));
            }
            // Sorted, reversed, shuffled: runs of all kinds and none.
            match below(4) {
                0 => held.sort_unstable(),
                1 => held.sort_unstable_by(|a, b| b.cmp(a)),
                _ => held.sort_unstable_by_key(|(pfn, _)| pfn.0.wrapping_mul(0x9e37_79b9) >> 8),
            }
            for _ in 0..below(held.len() as u64 + 1).min(500) {
                let (pfn, order) = held.pop().unwrap();
                pool.free(pfn, order).unwrap();
            }
            let mut plain = Copy::of(&pool);
            let frames = Frames::new(&plain.words, &plain.blocks, start).unwrap();
            let zone = &pool.zones()[0];
            let closed =
                pool.pcp(ZoneId(0), CpuId(0)).close(&pool.tables.platform, zone, pool.tables.slots);
            let closed = closed.unwrap();
            for list in 0..pool.tables().lists().len() {
                let (order, _) = pool.tables().lists().of(list);
                for slot in closed.frames(list).unwrap() {
                    let idx = slot.load(Relaxed);
                    plain.buddy.free_block(&frames, idx, order, FreeFlags::default()).unwrap();
                }
            }
            drop(closed);
            pool.drain_all();
            let real = Copy::of(&pool);
            assert_eq!(real.words(), plain.words());
            assert!(real.buddy == plain.buddy);
        }
        pool.validate().unwrap();
    }
}
