//! Bursts of large blocks: several of them in a magazine.

use super::depot::{give, take};
use super::platform::Shape;
use crate::policy::Policy;
use crate::types::{CpuId, PAGEBLOCK_ORDER, ZoneId};

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
