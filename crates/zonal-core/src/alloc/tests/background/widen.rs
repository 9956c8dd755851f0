//! Marks that move apart while the reclaimer is woken again and again, and back when it may sleep.

use super::*;
use crate::alloc::WOKEN_SOON_NS;

/// As [`boot`], with a distance that may grow to 4 % of the 16384 pages.
fn boot_widening() -> &'static Pool {
    let mut policy = Policy {
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(4000);
    policy.watermark.scale_factor_max = 400;
    boot_with(policy)
}

/// (min, low, high).
fn watermarks(pool: &Pool) -> (u64, u64, u64) {
    let watermarks = pool.zones()[0].watermarks();
    (watermarks.min, watermarks.low, watermarks.high)
}

/// Takes pages until somebody wakes the reclaimer, this long after it has finished.
fn use_up(pool: &Pool, after_ns: u64) {
    pool.platform().now_ns.fetch_add(after_ns, Relaxed);
    let wakes = || pool.platform().wakes.lock().unwrap().len();
    let before = wakes();
    while wakes() == before {
        let got = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).unwrap();
        pool.platform().held.lock().unwrap().push(got);
    }
}

#[test]
fn marks_move_apart_while_it_is_woken_soon_and_back_when_it_may_sleep() {
    let pool = boot_widening();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1400, true);
    // Woken from its sleep: that is what it is for.
    use_up(pool, 0);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    assert_eq!(watermarks(pool), (1000, 1250, 1500));
    // A quarter of min, or the factor's part of the zone if that is more; the factor doubles.
    for factor in [20, 40, 80, 160, 320, 400, 400] {
        use_up(pool, WOKEN_SOON_NS);
        assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
        let gap = (16384 * factor / 10000).max(250);
        assert_eq!(watermarks(pool), (1000, 1000 + gap, 1000 + 2 * gap), "factor {factor}");
        assert!(free_pages(pool) > 1000 + 2 * gap, "it works up to the watermark that is in force");
    }
    // Woken later than soon: the distance is enough.
    use_up(pool, WOKEN_SOON_NS + 1);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    assert_eq!(watermarks(pool).1, 1000 + 655);
    // Not woken at all.
    assert_eq!(run(pool, &mut reclaimer).1, Next::Sleep);
    assert_eq!(watermarks(pool), (1000, 1250, 1500));
    pool.validate().unwrap();
}

/// What others hold for good is not what the watermarks are a part of.
#[test]
fn marks_take_no_more_than_a_part_of_what_could_be_free() {
    let pool = boot_widening();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    // 4096 pages for the cache, and what is free.
    leave(pool, 5496, false);
    leave(pool, 1400, true);
    use_up(pool, 0);
    run(pool, &mut reclaimer);
    for _ in 0..10 {
        use_up(pool, 0);
        run(pool, &mut reclaimer);
    }
    let (min, low, high) = watermarks(pool);
    let most = 5496 / 8;
    assert!(low - min > most / 2 && low - min <= most, "{:?}", (min, low, high));
    assert!(pool.platform().in_cache() >= 2000);
}

#[test]
fn what_is_written_meanwhile_and_a_boost_stay() {
    let pool = boot_widening();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1400, true);
    use_up(pool, 0);
    run(pool, &mut reclaimer);
    pool.set(Sysctl::WatermarkScaleFactor, 200).unwrap();
    assert_eq!(watermarks(pool), (1000, 1327, 1654));
    use_up(pool, 0);
    run(pool, &mut reclaimer);
    assert_eq!(watermarks(pool), (1000, 1655, 2310), "from what was written on");
    let mut boosted = pool.zones()[0].watermarks();
    boosted.boost = 300;
    pool.zones()[0].set_watermarks(&boosted);
    pool.background_stop(reclaimer);
    assert_eq!(watermarks(pool), (1000, 1327, 1654), "as it was written");
    assert_eq!(pool.zones()[0].watermarks().boost, 300);
}

#[test]
fn marks_of_linux_stay_where_they_are() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1400, true);
    for _ in 0..5 {
        use_up(pool, 0);
        run(pool, &mut reclaimer);
        assert_eq!(watermarks(pool), (1000, 1250, 1500));
    }
}
