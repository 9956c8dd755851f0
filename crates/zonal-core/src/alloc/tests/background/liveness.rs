//! After any load that stops, free pages are above the high watermark in a bounded number of steps.

use super::*;
use crate::alloc::WOKEN_SOON_NS;

/// Steps from being woken to the nap: to look whether it may sleep, to begin, one pass for each
/// priority from 12 down to 1, to end, and to look again.
const STEPS_MAX: u32 = 1 + 1 + 12 + 1 + 1;

#[test]
fn free_pages_are_above_high_a_few_steps_after_the_load() {
    // How few pages a load leaves, and how many of the cache's a pass may free.
    for free in [1, 200, 600, 1100, 1249] {
        for most in [u64::MAX, 3000, 700, 150] {
            let pool = boot();
            let mut reclaimer = pool.background_start(NodeId(0));
            put_to_sleep(pool, &mut reclaimer);
            leave(pool, free, true);
            pool.platform().most.store(most, Relaxed);
            // The last request of the load.
            let _ = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT));
            assert!(!pool.stats().background(NodeId(0)).is_asleep(), "{free} free");
            let (steps, next) = run(pool, &mut reclaimer);
            assert_eq!(next, Next::Nap(NAP_NS), "{free} free, {most} a pass");
            // The last six passes of a run, from priority 6 on, look at 200 pages and more each.
            let runs = 1500 / most.saturating_mul(6) + 1;
            let limit = runs as u32 * STEPS_MAX;
            assert!(steps <= limit, "{free} free, {most} a pass: {steps} steps, {runs} runs");
            assert!(free_pages(pool) > 1500, "{free} free, {most} a pass");
            assert_eq!(pool.background_step(&mut reclaimer), Next::Sleep);
            pool.validate().unwrap();
        }
    }
}

/// The same while the watermarks have moved apart: it is the watermarks in force that are reached,
/// and the old ones are back when it sleeps.
#[test]
fn marks_that_moved_apart_take_no_more_steps() {
    let mut policy = Policy {
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(4000);
    policy.watermark.scale_factor_max = 3000;
    let pool = boot_with(policy);
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1240, true);
    let platform = pool.platform();
    for _ in 0..40 {
        let wakes = platform.wakes.lock().unwrap().len();
        while platform.wakes.lock().unwrap().len() == wakes {
            let got = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).unwrap();
            platform.held.lock().unwrap().push(got);
        }
        platform.now_ns.fetch_add(WOKEN_SOON_NS / 2, Relaxed);
        let (steps, next) = run(pool, &mut reclaimer);
        assert_eq!(next, Next::Nap(NAP_NS));
        assert!(steps <= STEPS_MAX, "{steps} steps");
        assert!(free_pages(pool) > pool.zones()[0].watermarks().of(Watermark::High));
    }
    assert!(pool.zones()[0].watermarks().low > 2000, "they did move apart");
    assert_eq!(pool.background_step(&mut reclaimer), Next::Sleep);
    assert_eq!(pool.zones()[0].watermarks().low, 1250);
    pool.validate().unwrap();
}

/// Nobody has anything to give: it gives up, in a bounded number of steps too, and sleeps.
#[test]
fn without_anything_to_reclaim_it_gives_up_in_bounded_steps() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 600, false);
    let _ = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT));
    let (steps, next) = run(pool, &mut reclaimer);
    assert_eq!(next, Next::Nap(NAP_NS));
    assert!(steps <= FAILURES_MAX * STEPS_MAX, "{steps} steps");
    assert!(pool.stats().background(NodeId(0)).is_hopeless());
}
