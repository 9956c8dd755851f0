//! Streams of large frees, which leave a CPU's lists at once, and what is none.

use std::vec;
use std::vec::Vec;

use super::depot::{give, short, take};
use super::platform::Shape;
use super::word_path;
use crate::pcp::size::CacheSlice;
use crate::policy::{PcpPolicy, Policy};
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, ZoneId};

/// Zones of this size move 7 pages at a time, and know swings of 28 pages.
const PAGES: u64 = 1 << 15;
const STREAM: u32 = 16;

fn streaming(stream: u32) -> Policy {
    let short = short(64);
    let slice = CacheSlice::Bytes(0);
    Policy { pcp: PcpPolicy { stream, slice, scale_max: 5, ..short.pcp }, ..short }
}

/// A stream of large frees spreads over several orders, of none a batch: they go to the
/// depot, and the sender gets them back from there.
#[test]
fn a_stream_of_large_frees_goes_to_the_depot_whole() {
    for stream in [0, STREAM] {
        let pool = Shape::uniform(1, PAGES, 2).boot(streaming(stream));
        let orders = [3, 2, 1, 0].map(|order| Order::new(order).unwrap());
        let receiver = pool.pcp(ZoneId(0), CpuId(1));
        let round = |times| {
            let mut most = 0;
            for _ in 0..times {
                let message = orders.map(|order| take(&pool, 0, order, 1));
                for (order, blocks) in orders.into_iter().zip(message) {
                    give(&pool, 1, order, blocks);
                    most = most.max(receiver.count());
                }
            }
            most
        };
        round(200);
        let before = pool.zone_stats(ZoneId(0));
        let forced = receiver.events.forced.load(Relaxed);
        assert!(forced > 0);
        let most = round(100);
        assert!(stream == 0 || most < 2 * STREAM, "{most}");
        let after = pool.zone_stats(ZoneId(0));
        let passed: u64 = orders.map(Order::pages).iter().sum::<u64>() * 100;
        // But for what a depot in use gives back at times.
        assert!(after.drained_pages - before.drained_pages < passed / 10);
        assert!(after.refilled_pages - before.refilled_pages < passed / 10);
        pool.validate().unwrap();
    }
}

/// Large blocks that a CPU takes and gives back in turn stay with it, although it frees more of
/// them in a row than make a stream.
#[test]
fn who_gives_back_what_it_took_is_no_stream() {
    for (order, times) in [(1, 14), (2, 8), (3, 4)] {
        let order = Order::new(order).unwrap();
        let pool = Shape::uniform(1, PAGES, 1).boot(streaming(STREAM));
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        let moved = || {
            let stats = pool.zone_stats(ZoneId(0));
            stats.depot_puts + stats.drains + stats.refills
        };
        let rounds = || {
            for _ in 0..8 {
                let blocks = take(&pool, 0, order, times);
                give(&pool, 0, order, blocks);
            }
        };
        rounds();
        let before = moved();
        rounds();
        assert_eq!(moved(), before, "{order:?}");
        assert_eq!(pcp.events.forced.load(Relaxed), 0, "{order:?}");
        pool.validate().unwrap();
    }
}

/// A CPU that gives back in a row what it took frees on the fast path: it asks the core only once
/// its lists can hold a stream, not once for every few pages.
#[test]
fn bursts_of_large_blocks_do_not_ask_whether_they_are_a_stream() {
    for (order, times) in [(1, 14), (2, 7), (3, 3)] {
        let order = Order::new(order).unwrap();
        let pool = Shape::uniform(1, PAGES, 1).boot(streaming(STREAM));
        let cpu = CpuId(0);
        give(&pool, 0, order, take(&pool, 0, order, times));
        for _ in 0..8 {
            let blocks: Vec<_> =
                (0..times).map(|_| word_path::alloc(&pool, cpu, order).unwrap()).collect();
            for pfn in blocks {
                let freed = word_path::free(&pool, ZoneId(0), cpu, (pfn, order));
                assert!(freed, "{order:?}: pages in a row {} of {STREAM}", times << order.get());
            }
        }
        pool.validate().unwrap();
    }
}

/// A CPU that frees more than it took is a stream as soon as the lists hold that much, whether it
/// frees by the fast path or by the core.
#[test]
fn a_stream_behind_a_swing_is_found_when_the_lists_hold_both() {
    for fast in [false, true] {
        let order = Order::new(3).unwrap();
        let pool = Shape::uniform(1, PAGES, 2).boot(streaming(STREAM));
        let pcp = pool.pcp(ZoneId(0), CpuId(1));
        give(&pool, 1, order, take(&pool, 1, order, 3));
        let (swing, mut most) = (pcp.swing.load(Relaxed), 0);
        assert!(swing > 0);
        for pfn in take(&pool, 0, order, 16) {
            let done = fast && word_path::free(&pool, ZoneId(0), CpuId(1), (pfn, order));
            if !done {
                give(&pool, 1, order, vec![pfn]);
            }
            most = most.max(pcp.count());
        }
        let forced = pcp.events.forced.load(Relaxed);
        assert!(forced > 0, "fast {fast}: {most} pages on the lists, swing {swing}");
        let largest = 1 << order.get();
        assert!(most < swing + STREAM + largest, "fast {fast}: {most}, swing {swing}");
        pool.validate().unwrap();
    }
}
