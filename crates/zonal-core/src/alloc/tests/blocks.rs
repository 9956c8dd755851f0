//! Whole blocks in the bulk calls.

use std::vec::Vec;

use super::platform::{Script, Shape};
use crate::alloc::{Allocator, FreeError, Request};
use crate::frame::{PageState, PageWord};
use crate::gfp::Gfp;
use crate::policy::{PcpPolicy, Policy};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::{Order, PAGEBLOCK_ORDER, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const BLOCK: usize = 512;

type Pool = Allocator<'static, Script>;

fn boot(pages: u64) -> Pool {
    Shape::uniform(1, pages, 1).boot(Policy::ZONAL)
}

fn bulk(pool: &Pool, n: usize) -> Vec<Pfn> {
    let mut pages = std::vec![Pfn(0); n];
    assert_eq!(pool.alloc_bulk(Request::new(Order::ZERO), &mut pages), Ok(n));
    pages
}

fn is_block(pages: &[Pfn]) -> bool {
    pages[0].0.is_multiple_of(BLOCK as u64) && pages.windows(2).all(|w| w[0].0 + 1 == w[1].0)
}

/// The pages of every second place, then the others: no two neighbours follow each other.
fn shuffled(pages: &[Pfn]) -> Vec<Pfn> {
    let halves = [0, 1].map(|odd| pages.iter().skip(odd).step_by(2).copied());
    halves.into_iter().flatten().collect()
}

/// Blocks of an order on lists and in depots.
fn cached(pool: &Pool, of: Order) -> usize {
    let state = |word: &AtomicU64| PageWord(word.load(Relaxed)).state();
    let cached =
        |word: &&AtomicU64| matches!(state(word), PageState::Cached { order, .. } if order == of);
    pool.words().iter().filter(cached).count()
}

#[test]
fn pages_come_in_order_whatever_order_the_lists_are_in() {
    let pool = &boot(1 << 16);
    let used: Vec<Pfn> =
        (0..2000).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
    shuffled(&used).iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    for _ in 0..5 {
        let pages = bulk(pool, 3 * BLOCK + 100);
        assert!(pages.chunks_exact(BLOCK).all(is_block));
        pool.validate().unwrap();
        let before = cached(pool, Order::ZERO);
        pool.free_bulk(&pages, Order::ZERO).unwrap();
        pool.validate().unwrap();
        assert!(cached(pool, Order::ZERO) <= before + 100, "they came back whole");
    }
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, 1 << 16);
}

#[test]
fn a_block_comes_back_in_either_direction_and_behind_other_pages() {
    let pool = &boot(1 << 16);
    let block = bulk(pool, BLOCK);
    let down: Vec<Pfn> = block.iter().rev().copied().collect();
    let before = cached(pool, PAGEBLOCK_ORDER);
    pool.free_bulk(&down, Order::ZERO).unwrap();
    assert_eq!(cached(pool, PAGEBLOCK_ORDER), before + 1);
    // Two blocks that lie side by side, but for the first ten pages of the first.
    let mut two = bulk(pool, 4 * BLOCK);
    two.sort_unstable();
    let two = two.windows(2 * BLOCK).find(|w| w[2 * BLOCK - 1].0 - w[0].0 == 2 * BLOCK as u64 - 1);
    let two = two.expect("neighbours among four").to_vec();
    let before = cached(pool, PAGEBLOCK_ORDER);
    pool.free_bulk(&two[10..], Order::ZERO).unwrap();
    assert_eq!(cached(pool, PAGEBLOCK_ORDER), before + 1, "the second is whole, the first is not");
    pool.validate().unwrap();
}

#[test]
fn pages_of_a_block_are_pages_like_any_other() {
    let pool = &boot(1 << 16);
    let order9 = PAGEBLOCK_ORDER;
    let pages = bulk(pool, BLOCK);
    // None of them is the block.
    assert!(matches!(pool.free(pages[0], order9), Err(FreeError::WrongOrder { .. })));
    // One by one, and in bulk in another order.
    pool.free(pages[7], Order::ZERO).unwrap();
    let twice = FreeError::DoubleFree { pfn: pages[7], order: Order::ZERO, zone: ZONE };
    assert_eq!(pool.free(pages[7], Order::ZERO), Err(twice));
    assert_eq!(pool.free_bulk(&pages, Order::ZERO), Err((7, twice)), "the first seven are free");
    pool.validate().unwrap();
    let rest: Vec<Pfn> = shuffled(&pages[8..]);
    let before = cached(pool, PAGEBLOCK_ORDER);
    pool.free_bulk(&rest, Order::ZERO).unwrap();
    assert_eq!(cached(pool, PAGEBLOCK_ORDER), before, "in pieces");
    // A block that came together is no longer its pages.
    let pages = bulk(pool, BLOCK);
    pool.free_bulk(&pages, Order::ZERO).unwrap();
    for page in [pages[0], pages[1], pages[BLOCK - 1]] {
        assert!(pool.free(page, Order::ZERO).is_err());
    }
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, 1 << 16);
    pool.validate().unwrap();
}

#[test]
fn pages_that_are_none_stop_a_bulk_free_where_they_are() {
    let pool = &boot(1 << 16);
    for none in [u64::MAX, u64::MAX - 600, 1 << 16, 1 << 52] {
        for place in [0, 1, BLOCK - 1, BLOCK, BLOCK + 5] {
            let mut pages = bulk(pool, 2 * BLOCK);
            let kept = core::mem::replace(&mut pages[place], Pfn(none));
            let (done, error) = pool.free_bulk(&pages, Order::ZERO).unwrap_err();
            assert_eq!((done, error), (place, FreeError::Foreign(Pfn(none))));
            pages[place] = kept;
            pool.free_bulk(&pages[place..], Order::ZERO).unwrap();
            pool.validate().unwrap();
        }
    }
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, 1 << 16);
}

#[test]
fn each_page_is_counted_once() {
    let pool = &boot(1 << 16);
    let pages = bulk(pool, 2 * BLOCK + 30);
    let stats = pool.zone_stats(ZONE);
    let n = pages.len() as u64;
    assert_eq!((stats.allocs, stats.allocated_pages), (n, n));
    assert_eq!(pool.stats().machine_numa_events().hit, n);
    pool.free_bulk(&pages, Order::ZERO).unwrap();
    assert_eq!(pool.zone_stats(ZONE).freed_pages, n);
}

#[test]
fn where_memory_is_in_pieces_large_blocks_are_left_alone() {
    // Every second page of three quarters of the memory is held: what is free there is in pieces.
    let pool = &boot(1 << 14);
    let mut held: Vec<Pfn> = Vec::new();
    while held.len() < 3 << 12 {
        held.push(pool.alloc(Request::new(Order::ZERO)).unwrap());
    }
    held.sort_unstable();
    let (free, keep): (Vec<Pfn>, Vec<Pfn>) = held.iter().partition(|pfn| pfn.0 % 2 == 0);
    free.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    pool.drain_all();
    let pages = bulk(pool, BLOCK);
    assert!(!is_block(&pages), "pieces first");
    // With most of it in one piece again, blocks.
    pool.free_bulk(&pages, Order::ZERO).unwrap();
    keep.iter().for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    pool.drain_all();
    assert!(is_block(&bulk(pool, BLOCK)));
}

/// With mobility grouping, too: a block lies in one pageblock, whose type says which list is its.
#[test]
fn blocks_of_each_type_come_and_go_whole() {
    let pool = &Shape::uniform(1, 1 << 16, 1).boot(Policy::KERNEL);
    assert!(pool.policy().pcp.bulk_block > 0 && pool.tables().grouping());
    let take = |gfp| {
        let mut pages = std::vec![Pfn(0); BLOCK];
        let request = Request::new(Order::ZERO).gfp(gfp);
        assert_eq!(pool.alloc_bulk(request, &mut pages), Ok(BLOCK));
        pages
    };
    let (mut whole, mut kept) = (0, 0);
    for round in 0..60 {
        let (kernel, user) = (take(Gfp::KERNEL), take(Gfp::KERNEL | Gfp::MOVABLE));
        whole += usize::from(is_block(&kernel) && is_block(&user));
        // All of the one and then the other, or in turns; the last ones from behind.
        let mut back: Vec<Pfn> = match round % 2 {
            0 => [kernel, user].concat(),
            _ => kernel.into_iter().zip(user).flat_map(|(one, two)| [one, two]).collect(),
        };
        back[BLOCK..].reverse();
        pool.free_bulk(&back, Order::ZERO).unwrap();
        pool.validate().unwrap();
        kept = kept.max(cached(pool, PAGEBLOCK_ORDER));
    }
    assert!(whole > 0 && kept > 0, "{whole} rounds with whole blocks, {kept} kept");
    pool.drain_all();
    assert_eq!(pool.zone_stats(ZONE).free_pages, 1 << 16);
    pool.validate().unwrap();
}

#[test]
fn page_by_page_where_the_policy_says_so() {
    let pcp = PcpPolicy { bulk_block: 0, ..Policy::ZONAL.pcp };
    let pool = &Shape::uniform(1, 1 << 16, 1).boot(Policy { pcp, ..Policy::ZONAL });
    let pages = bulk(pool, BLOCK);
    pool.free_bulk(&pages, Order::ZERO).unwrap();
    assert_eq!(cached(pool, PAGEBLOCK_ORDER), 0);
    let mut policy = Policy::ZONAL;
    policy.set("pcp.bulk_block", "8").unwrap();
    policy.check().unwrap();
    policy.pcp.bulk_block = 2;
    assert!(policy.check().is_err(), "less than what is looked at together");
}
