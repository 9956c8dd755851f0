//! Bursts of blocks: several large ones in a magazine, and which list makes room.

use std::vec::Vec;

use super::depot::{give, take};
use super::platform::Shape;
use crate::alloc::Allocator;
use crate::pcp::state::PcpList;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, PAGEBLOCK_ORDER, ZoneId};

#[test]
fn large_blocks_come_to_the_depot_and_leave_it_several_at_a_time() {
    // The depot holds eight blocks of 2 MiB here.
    let pool = Shape::uniform(1, 1 << 18, 2).boot(Policy::ZONAL);
    let order = PAGEBLOCK_ORDER;
    for _ in 0..3 {
        let blocks = take(&pool, 0, order, 22);
        give(&pool, 0, order, blocks);
        pool.validate().unwrap();
    }
    let events = pool.pcp(ZoneId(0), CpuId(0)).events();
    assert!(events.depot_puts > 0 && events.depot_takes > 0, "{events:?}");
    assert!(events.depot_put_pages > events.depot_puts * order.pages(), "{events:?}");
    assert!(events.depot_taken_pages > events.depot_takes * order.pages(), "{events:?}");
    pool.drain_all();
    let blocks = take(&pool, 1, order, 22);
    pool.validate().unwrap();
    give(&pool, 1, order, blocks);
    assert_eq!(pool.free_pages(), 1 << 18);
    pool.validate().unwrap();
}

/// Holds of the zone lock in ten rounds of bursts of 32 blocks of these orders, after as many
/// rounds as `before` says.
fn holds<P: Platform>(pool: &Allocator<'_, P>, orders: &[Order], before: u32) -> u64 {
    let count = || {
        let stats = pool.zone_stats(ZoneId(0));
        stats.refills + stats.drains
    };
    let round = || {
        for order in orders {
            let blocks = take(pool, 0, *order, 32);
            give(pool, 0, *order, blocks);
        }
    };
    (0..before).for_each(|_| round());
    let counted = count();
    (0..10).for_each(|_| round());
    count() - counted
}

#[test]
fn blocks_of_an_order_get_room_where_another_one_that_is_not_used_fills_lists_and_depot() {
    let pool = Shape::uniform(1, 1 << 18, 2).boot(Policy::ZONAL);
    holds(&pool, &[PAGEBLOCK_ORDER], 4);
    for order in [8, 7, 4].map(|order| Order::new(order).unwrap()) {
        let holds = holds(&pool, &[order], 30);
        assert!(holds <= 4, "{holds} in ten bursts of {order:?}");
    }
    pool.validate().unwrap();
}

#[test]
fn a_list_that_is_used_now_and_then_makes_no_room() {
    for is_used in [true, false] {
        let pool = Shape::uniform(1, 1 << 18, 2).boot(Policy::ZONAL);
        holds(&pool, &[PAGEBLOCK_ORDER], 4);
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        let large = |list: &&PcpList| list.cap > 0 && list.order() == PAGEBLOCK_ORDER;
        let large = pcp.lists.iter().find(large).unwrap();
        let drained = || large.drained.load(Relaxed);
        let (before, mut kept) = (drained(), Vec::new());
        for _ in 0..12 {
            if is_used {
                kept.extend(take(&pool, 0, PAGEBLOCK_ORDER, 1));
            }
            let order = Order::new(8).unwrap();
            let blocks = take(&pool, 0, order, 32);
            give(&pool, 0, order, blocks);
        }
        assert_eq!(drained() == before, is_used, "{} blocks", drained() - before);
        give(&pool, 0, PAGEBLOCK_ORDER, kept);
        pool.validate().unwrap();
    }
}
