//! `validate` finds each fault that is planted, by its name, and nothing before or after.

use super::platform::{Script, Shape};
use crate::alloc::pcp_ops::PcpOps;
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, Fault, Request};
use crate::frame::PageWord;
use crate::frame::claim::First;
use crate::pcp::state::Pcp;
use crate::pcp::word::PcpWord;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, PageCount, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const CPU: CpuId = CpuId(0);

/// A pool whose CPU 0 has order-0 pages on its active list and blocks on others.
fn used(policy: Policy) -> Allocator<'static, Script> {
    let pool = Shape::uniform(1, 1 << 16, 2).boot(policy);
    for order in [3, 0] {
        let order = Order::new(order).unwrap();
        let blocks = [(); 4].map(|()| pool.alloc(Request::new(order)).unwrap());
        blocks.iter().for_each(|pfn| pool.free(*pfn, order).unwrap());
    }
    pool.validate().unwrap();
    pool
}

fn active(pcp: &Pcp) -> usize {
    PcpWord(pcp.word.load(Relaxed)).active()
}

/// Plants a fault, expects it, takes it back with the value that was there.
macro_rules! planted {
    ($pool:expr, $cell:expr, $value:expr, $fault:pat) => {
        let cell = &$cell;
        let was = cell.load(Relaxed);
        cell.store($value, Relaxed);
        let found = $pool.validate();
        assert!(matches!(found, Err($fault)), "{found:?}");
        cell.store(was, Relaxed);
    };
}

#[test]
fn a_hot_end_behind_the_last_slot_is_found() {
    let pool = used(Policy::LINUX_6_18);
    let pcp = pool.pcp(ZONE, CPU);
    let list = &pcp.lists[active(pcp)];
    planted!(pool, list.hi, list.cap - list.lo.load(Relaxed) + 1, Fault::StackEnds(ZONE, CPU, _));
    pool.validate().unwrap();
}

#[test]
fn an_address_that_is_not_the_coldest_slots_is_found_on_every_list() {
    let pool = used(Policy::LINUX_6_18);
    let pcp = pool.pcp(ZONE, CPU);
    for index in 0..pool.tables().lists().len() {
        let list = &pcp.lists[index];
        let wrong = list.slots_lo.load(Relaxed) + 4;
        planted!(pool, list.slots_lo, wrong, Fault::StackEnds(ZONE, CPU, _));
        planted!(pool, list.lo, list.cap + 1, Fault::StackEnds(ZONE, CPU, _));
    }
    pool.validate().unwrap();
}

#[test]
fn pages_that_fast_operations_may_add_beyond_what_was_granted_are_found() {
    let pool = used(Policy::ZONAL);
    assert!(pool.zones()[0].budget.is_on());
    let pcp = pool.pcp(ZONE, CPU);
    let granted = pcp.granted.load(Relaxed);
    let list = &pcp.lists[active(pcp)];
    // Each in its turn: what is held, the active list's limit, the limit of the next one.
    planted!(pool, pcp.granted, pcp.count() - 1, Fault::Granted(ZONE, CPU, _, _));
    let more = (granted >> list.order_bits) + 1;
    planted!(pool, list.hi, more, Fault::Granted(ZONE, CPU, _, _));
    planted!(pool, pcp.limit, granted + 2, Fault::Granted(ZONE, CPU, _, _));
    pool.validate().unwrap();
}

#[test]
fn a_state_of_the_buddy_that_others_do_not_see_is_found() {
    let pool = used(Policy::LINUX_6_18);
    let counters = &pool.zones()[0].counters;
    let orders = counters.listed.load(Relaxed) ^ 1 << 10;
    planted!(pool, counters.listed, orders, Fault::Published(ZONE));
    planted!(pool, counters.highatomic_free, 512, Fault::Published(ZONE));
    pool.validate().unwrap();
}

#[test]
fn a_magazine_that_is_on_no_stack_is_found() {
    let pool = used(super::depot::short(16));
    let (_, depot) = pool.zone_ops(ZONE).depots().next().unwrap();
    let mut closed = PcpOps::close(pool.zone_ops(ZONE), pool.pcp(ZONE, CPU)).unwrap().closed;
    let room = PageCount::new(1);
    let lost = depot.reserve(&mut closed, pool.tables.slots, room).expect("there is room");
    drop(closed);
    let found = pool.validate();
    assert!(matches!(found, Err(Fault::Magazines(ZONE, CPU, most, has)) if most + 1 == has));
    let mut locked = pool.zone_ops(ZONE).lock();
    depot.emptied(&mut locked, pool.tables.slots, lost);
    drop(locked);
    pool.validate().unwrap();
}

#[test]
fn a_range_that_tells_another_length_than_it_has_is_found() {
    let pool = Shape::uniform(1, 1 << 16, 2).boot(Policy::KERNEL);
    let start = pool.ranges().alloc(RangeRequest::new(7)).unwrap();
    let word = &pool.words()[pool.zones()[0].frame(start) as usize];
    for pages in [3, 6, 8, 511] {
        let First::Told(plain) = PageWord(word.load(Relaxed)).first() else { panic!("untold") };
        let told = PageWord(plain).as_told(pages).bits();
        planted!(pool, word, told, Fault::RangeLength(ZONE, _));
    }
    pool.validate().unwrap();
}

/// The buddy never hands out what lies in a pageblock whose type nobody can read, nor do the lists.
#[test]
fn a_page_of_a_pageblock_without_a_type_goes_to_no_list() {
    let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy::LINUX_6_18);
    let pfn = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let frames = pool.zone_ops(ZONE).frames();
    let block = frames.pageblock_index(frames.index(pfn).unwrap());
    let free = pool.pcp(ZONE, CPU).count();
    pool.tables.blocks[block].store(0xee, Relaxed);
    assert_eq!(pool.zone_ops(ZONE).pageblock_type(pfn), Migratetype::Isolate);
    assert_eq!(frames.pageblock_type(frames.index(pfn).unwrap()), Migratetype::Isolate);
    pool.free(pfn, Order::ZERO).unwrap();
    assert_eq!(pool.pcp(ZONE, CPU).count(), free, "on no list");
    let outside = Pfn(pool.zones()[0].start_pfn + pool.zones()[0].spanned);
    assert_eq!(pool.zone_ops(ZONE).pageblock_type(outside), Migratetype::Isolate);
}
