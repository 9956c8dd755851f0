//! A pool under fire, in both modes: see `support/storm.rs`. Some seconds by default; as long as
//! `ZONAL_STRESS_SECONDS` says, for each storm, if it is set.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use support::storm::{Plan, Report, assert_calm, storm};
use support::{Watchdog, pool, pool_with};
use zonal::{Gfp, Mode, Order, PAGE_SIZE, Policy, Pool};

const MIB: usize = 1 << 20;

/// How long one storm blows, and the most the whole test may take.
fn times(by_default: Duration, storms: u32) -> (Duration, Duration) {
    let seconds = std::env::var("ZONAL_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    let each = seconds.map_or(by_default, Duration::from_secs_f64);
    (each, (each + Duration::from_secs(5)) * storms + Duration::from_secs(120))
}

/// Signals must have used the pcps, or the storm proves nothing about them.
fn assert_signals_worked(pool: &Pool, report: &Report) {
    if *pool.mode() == Mode::Rseq {
        assert!(report.signals > 0);
        assert!(report.signal_operations > 0);
    }
}

#[test]
fn no_page_is_lost_or_handed_out_twice_in_a_storm() {
    let (time, limit) = times(Duration::from_millis(800), 3);
    let _watchdog = Watchdog::new("the storm", limit);
    // Its bulk calls are short: with blocks of 8 pages some are moved whole.
    let mut whole = Policy::ZONAL;
    whole.pcp.bulk_block = 3;
    for (rseq, policy) in [(true, Policy::ZONAL), (true, whole), (false, whole)] {
        let pool = pool_with(64 * MIB, rseq, policy);
        let plan = Plan { time, ..Plan::default() };
        let report = storm(&pool, plan);
        assert_calm(&pool, &report);
        assert_signals_worked(&pool, &report);
        assert!(report.lives > 0);
        assert!(report.drained > 0);
    }
}

#[test]
fn no_page_is_handed_out_twice_at_any_single_order() {
    let (time, limit) = times(Duration::from_millis(70), 22);
    let _watchdog = Watchdog::new("the storm at one order", limit);
    for rseq in [true, false] {
        for order in Order::all() {
            let pool = pool(64 * MIB, rseq);
            let (order_max, one_order, weather) = (order.get(), true, false);
            let plan = Plan { workers: 2, time, order_max, one_order, weather, ..Plan::default() };
            let report = storm(&pool, plan);
            assert_calm(&pool, &report);
            assert!(report.operations > 0);
        }
    }
}

/// A block of 512 KiB is more than the lists of a pool this small may hold.
#[test]
fn a_storm_ends_where_lists_hold_no_block() {
    let _watchdog = Watchdog::new("the storm past the lists", Duration::from_secs(180));
    let pool = pool(16 * MIB, false);
    let (time, order_max, signal_every) = (Duration::from_millis(50), 7, Duration::ZERO);
    let plan = Plan { time, order_max, one_order: true, signal_every, ..Plan::default() };
    let report = storm(&pool, Plan { lists_served: false, ..plan });
    assert_calm(&pool, &report);
    assert_eq!(report.drained, 0, "a list holds a block of this order: this tests nothing");
}

#[test]
fn a_page_is_never_refused_while_one_in_twenty_is_free() {
    let (time, limit) = times(Duration::from_millis(400), 2);
    let _watchdog = Watchdog::new("the storm on a full pool", limit);
    for rseq in [true, false] {
        let pool = pool(32 * MIB, rseq);
        // Nine tenths are gone for good, in the smallest pieces; the storm is about the rest.
        let outside = (pool.bytes() / PAGE_SIZE / 10 * 9) as u64;
        let pages: Vec<_> = (0..outside).map(|_| pool.alloc(Order::ZERO).unwrap()).collect();
        let report = storm(&pool, Plan { time, order_max: 0, outside, ..Plan::default() });
        drop(pages);
        assert_calm(&pool, &report);
        assert!(report.full > 0, "the pool was never as full as it may be");
    }
}

#[test]
fn a_page_is_never_refused_because_free_memory_is_being_trimmed() {
    if cfg!(any(zonal_portable, not(target_os = "linux"))) {
        eprintln!("SKIPPED: a pool gives nothing back here before it ends");
        return;
    }
    let _watchdog = Watchdog::new("trims", Duration::from_secs(180));
    let pool = pool(8 * MIB, true);
    let half = pool.alloc(Order::MAX).unwrap();
    for _ in 0..100 {
        // All that is left becomes resident, and one free block again.
        let mut pages = vec![std::ptr::null_mut::<u8>(); 1024];
        let got = pool.alloc_bulk(Gfp::KERNEL, &mut pages).unwrap();
        // SAFETY: (1) the pages are ours.
        pages[..got].iter().for_each(|page| unsafe { page.write(1) });
        // SAFETY: (1) the pages are ours and not used any more.
        unsafe { pool.free_bulk(&pages[..got], Order::ZERO) }.unwrap();
        pool.drain_all();
        let trimming = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let trimmed = pool.trim(usize::MAX);
                trimming.store(false, Relaxed);
                trimmed.unwrap();
            });
            while trimming.load(Relaxed) {
                drop(pool.alloc(Order::ZERO).unwrap());
                pool.drain_all();
            }
        });
    }
    drop(half);
    assert!(pool.trimmed_bytes() > 0);
    pool.validate().unwrap();
}
