//! A range at a place, with something in it that goes away: what is drained, waited for or
//! reclaimed, and what is not.

use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::platform::{Shape, zone};
use crate::alloc::range::{Obstacle, RangeRefusal, RangeRequest};
use crate::alloc::{Allocator, Refusal, Request};
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::Policy;
use crate::sync::{LockWord, Wait};
use crate::types::{CpuId, Order, Pfn, ZoneId, ZoneKind};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Counts direct reclaim, which frees nothing, and does something when the core first waits.
#[derive(Default)]
struct TestPlatform {
    direct: AtomicU64,
    at_relax: Mutex<Option<Meanwhile>>,
}

impl Wait for TestPlatform {
    fn wait(&self, _word: &LockWord, _value: u32) {
        std::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for TestPlatform {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn relax(&self) {
        let meanwhile = self.at_relax.lock().unwrap().take();
        meanwhile.into_iter().for_each(|meanwhile| meanwhile());
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
}

impl Reclaimer for TestPlatform {
    fn holdings(&self, _unit: Unit) -> Holdings {
        Holdings { file: 4000, inactive_file: 4000, ..Holdings::default() }
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        if pass.by == By::Direct {
            self.direct.fetch_add(1, Relaxed);
        }
        Shrunk::default()
    }
    fn is_reclaiming(&self) -> bool {
        false
    }
}

type Pool = Allocator<'static, TestPlatform>;

/// One zone of 4096 pages from pfn 0 on.
fn boot() -> &'static Pool {
    let zones = std::vec![zone(0, ZoneKind::Normal, 0, 4096)];
    let shape: &'static Shape = Box::leak(Box::new(Shape { zones, ..Shape::uniform(1, 64, 1) }));
    Box::leak(Box::new(shape.boot_on(Policy::ZONAL, TestPlatform::default())))
}

fn direct(pool: &Pool) -> u64 {
    pool.platform().direct.load(Relaxed)
}

#[test]
fn pages_on_lists_are_drained_from_a_place_and_nothing_is_reclaimed_for_them() {
    let pool = boot();
    let pages: std::vec::Vec<Pfn> =
        (0..300).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
    let first = *pages.iter().min().unwrap();
    pages.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
    assert!(pool.zone_stats(ZoneId(0)).cached_pages > 0);
    let place = first..Pfn(first.0 + 300);
    pool.ranges().alloc_at(place.clone(), Gfp::KERNEL).unwrap();
    assert_eq!(direct(pool), 0);
    pool.ranges().free(place).unwrap();
    // The same for a range that grows over them.
    pool.drain_all();
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let front = Pfn(page.0 / 8 * 8 + 8);
    pool.ranges().alloc_at(front..Pfn(front.0 + 1), Gfp::KERNEL).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    pool.ranges().grow(front..Pfn(front.0 + 1), 200, Gfp::KERNEL).unwrap();
    assert_eq!(direct(pool), 0);
    pool.validate().unwrap();
}

#[test]
fn a_packed_range_is_at_the_lowest_address_that_has_it() {
    let pool = boot();
    let alloc = |pages| pool.ranges().alloc(RangeRequest::new(pages).packed()).unwrap();
    let firsts = [5, 3, 8, 1000].map(alloc);
    assert_eq!(firsts, [0, 5, 8, 16].map(Pfn));
    pool.ranges().free(Pfn(5)..Pfn(8)).unwrap();
    pool.drain_all();
    assert_eq!([4, 2, 1].map(alloc), [1016, 5, 7].map(Pfn));
    pool.validate().unwrap();
}

#[test]
fn a_packed_range_passes_by_a_block_on_a_list_that_lies_higher() {
    let pool = boot();
    let high = Pfn(2048)..Pfn(2056);
    pool.ranges().alloc_at(high.clone(), Gfp::KERNEL).unwrap();
    pool.ranges().free(high).unwrap();
    assert_eq!(pool.zone_stats(ZoneId(0)).cached_pages, 8);
    let packed = [8, 7].map(|n| pool.ranges().alloc(RangeRequest::new(n).packed()).unwrap());
    assert_eq!(packed, [0, 8].map(Pfn));
    assert_eq!(pool.ranges().alloc(RangeRequest::new(8)), Ok(Pfn(2048)), "it waited on the list");
    pool.validate().unwrap();
}

#[test]
fn nothing_is_reclaimed_for_what_reclaim_cannot_remove() {
    let pool = boot();
    let held = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let place = Pfn(held.0 / 8 * 8)..Pfn(held.0 / 8 * 8 + 8);
    let error = pool.ranges().alloc_at(place, Gfp::KERNEL).unwrap_err();
    assert_eq!(error.why, RangeRefusal::InTheWay(held, Obstacle::Held(held, Order::ZERO)));
    assert_eq!(direct(pool), 0);
    // Where pages are missing it may help, and is asked.
    let error = pool.ranges().alloc_at(Pfn(1024)..Pfn(4096), Gfp::KERNEL);
    assert!(error.is_ok() || direct(pool) > 0);
    let error = pool.ranges().alloc_at(Pfn(512)..Pfn(1024), Gfp::KERNEL);
    let rest = pool.ranges().alloc_at(Pfn(8)..Pfn(512), Gfp::KERNEL);
    let refused = [error, rest].into_iter().filter_map(Result::err);
    let watermark = |why| matches!(why, RangeRefusal::Refused(Refusal::Watermark { .. }));
    assert!(refused.map(|error| error.why).any(watermark));
    assert!(direct(pool) > 0, "the zone has too few pages left, so reclaim is asked");
    pool.validate().unwrap();
}

/// The block is out of the buddy when the page is looked at, and comes back while the request
/// waits: it was never anybody's.
#[test]
fn a_block_that_was_isolated_for_a_moment_is_not_in_the_way() {
    for is_behind in [false, true] {
        let pool = boot();
        let isolate = || pool.isolate_block(ZoneId(0), Order::MAX).unwrap();
        // The block at 0 goes to the end of its list, so the next one is taken then.
        pool.restore_block(ZoneId(0), isolate(), Order::MAX);
        pool.ranges().alloc_at(Pfn(1020)..Pfn(1024), Gfp::KERNEL).unwrap();
        let block = isolate();
        assert_eq!(block, Pfn(1024));
        let back = move || assert!(pool.restore_block(ZoneId(0), block, Order::MAX));
        *pool.platform().at_relax.lock().unwrap() = Some(Box::new(back));
        let got = match is_behind {
            true => pool.ranges().grow(Pfn(1020)..block, 7, Gfp::KERNEL),
            false => pool.ranges().alloc_at(Pfn(1100)..Pfn(1110), Gfp::KERNEL),
        };
        assert_eq!(got, Ok(()), "grows: {is_behind}");
        assert_eq!(direct(pool), 0);
        pool.validate().unwrap();
    }
}

/// Gives the block back, takes the next one, and comes again at the next wait: one is always out.
fn trim_on(pool: &'static Pool, block: Pfn, turns: &'static AtomicU64) {
    let next = move || {
        turns.fetch_add(1, Relaxed);
        pool.restore_block(ZoneId(0), block, Order::MAX);
        trim_on(pool, pool.isolate_block(ZoneId(0), Order::MAX).unwrap(), turns);
    };
    *pool.platform().at_relax.lock().unwrap() = Some(Box::new(next));
}

#[test]
fn a_request_that_is_refused_does_not_wait_for_the_end_of_a_trim() {
    let (pool, turns) = (boot(), &*Box::leak(Box::new(AtomicU64::new(0))));
    trim_on(pool, pool.isolate_block(ZoneId(0), Order::MAX).unwrap(), turns);
    pool.ranges().alloc(RangeRequest::new(4000)).unwrap_err();
    assert!((1..1000).contains(&turns.load(Relaxed)), "{turns:?} waits");
}
