//! The free-page counter in every variant (LB F.1 to F.5): how far it may be off, who folds it, and
//! what is done about its error near the watermarks.

use std::vec::Vec;

use proptest::prelude::*;

use super::platform::{LISTS_ALONE, Script, Shape, on_cpu, steps_of};
use crate::alloc::limits::Limits;
use crate::alloc::{Allocator, Request, Sysctl};
use crate::policy::{MinFreeRule, Policy, WatermarkPolicy};
use crate::sync::Ordering::Relaxed;
use crate::types::{Choice, CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::vmstat::threshold;
use crate::vmstat::variant::{NumaPolicy, Pressure, Refresh, StatPolicy, ThresholdPages, Update};
use crate::vmstat::worker::StatWorker;
use crate::zone::watermark::Watermark;

pub(super) const ZONE: ZoneId = ZoneId(0);
const SECOND: u64 = 1_000_000_000;

pub(super) fn with(update: Update) -> Policy {
    Policy { stat: StatPolicy { update, ..LISTS_ALONE.stat }, ..LISTS_ALONE }
}

pub(super) fn alloc(pool: &Allocator<'_, Script>, order: u32, blocks: usize) -> Vec<Pfn> {
    let order = Order::new(order).unwrap();
    (0..blocks).map(|_| pool.alloc(Request::new(order)).unwrap()).collect()
}

proptest! {
    /// LB F.3: NCPU * zones * threshold; and with all deltas there is no error.
    #[test]
    fn the_counter_is_off_by_no_more_than_the_thresholds_allow(
        nodes in 1usize..3,
        cpus in 1u32..5,
        variant in 0..Update::ALL.len(),
        ops in prop::collection::vec((0u32..10, 0u32..5, 1usize..60, any::<bool>()), 1..50),
    ) {
        let update = Update::ALL[variant].1;
        Shape::uniform(nodes, 3000, cpus as usize).scoped(with(update), 0, |pool| {
            let mut held = Vec::new();
            for (cpu, order, times, free) in &ops {
                on_cpu(cpu % pool.cpus() as u32);
                let order = Order::new(*order).unwrap();
                for _ in 0..*times {
                    match (free, held.pop()) {
                        (true, Some((pfn, order))) => pool.free(pfn, order).unwrap(),
                        (_, back) => {
                            held.extend(back);
                            let got = pool.alloc(Request::new(order));
                            held.extend(got.ok().map(|pfn| (pfn, order)));
                        }
                    }
                }
            }
            pool.validate().unwrap(); // ZONE-1, whatever was lost
            if update.name() == "local_inc_posted" {
                return Ok(());
            }
            let mut whole = 0;
            for zone in pool.zones() {
                let free = pool.zone_stats(zone.id()).free_pages;
                let bound = u64::from(zone.stat_threshold()) * pool.cpus() as u64;
                prop_assert!(zone.free_counter().abs_diff(free) <= bound);
                prop_assert_eq!(pool.stats().free_snapshot(zone.id()), free);
                whole += free;
            }
            let zones = pool.zones();
            let bound: u64 = zones.iter().map(|zone| u64::from(zone.stat_threshold())).sum();
            prop_assert!(pool.stats().free_counter().abs_diff(whole) <= bound * pool.cpus() as u64);
            Ok(())
        })?;
    }
}

fn workers(pool: &Allocator<'_, Script>) -> Vec<StatWorker> {
    std::vec![StatWorker::default(); pool.cpus()]
}

#[test]
fn the_shepherd_queues_cpus_with_deltas_and_not_those_with_pages_alone() {
    let pool = Shape::uniform(1, 1 << 16, 3).boot(Policy::LINUX_6_18);
    let mut workers = workers(&pool);
    on_cpu(1);
    let page = alloc(&pool, 0, 1)[0];
    pool.free(page, Order::ZERO).unwrap();
    pool.shepherd(&mut workers, 0);
    let queued = |workers: &[StatWorker]| -> Vec<bool> {
        workers.iter().map(|worker| worker.due_ns().is_some()).collect()
    };
    assert_eq!(queued(&workers), [false, true, false]);
    assert!(pool.run_worker(CpuId(1), &mut workers[1], 0));
    assert_eq!(workers[1].due_ns(), Some(SECOND), "it folded something");
    assert!(!pool.run_worker(CpuId(1), &mut workers[1], SECOND - 1), "not before its time");
    let mut now = SECOND;
    while pool.run_worker(CpuId(1), &mut workers[1], now) {
        now += SECOND;
        assert!(now < 100 * SECOND, "it never rests");
    }
    assert!(pool.pcp(ZONE, CpuId(1)).count() > 0 && !pool.cpu_ops(CpuId(1)).has_deltas());
    pool.shepherd(&mut workers, now);
    assert_eq!(queued(&workers), [false; 3], "pages on lists alone call nobody");
}

#[test]
fn numa_events_call_the_shepherd_where_the_refresh_folds_them() {
    for (numa, calls) in [
        #[cfg(feature = "history")]
        (NumaPolicy::V4_13, true),
        #[cfg(feature = "history")]
        (NumaPolicy::V4_14, true),
        (NumaPolicy::V5_14, false),
        (NumaPolicy::EXACT, false),
    ] {
        let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy { numa, ..Policy::LINUX_6_18 });
        alloc(&pool, 0, 1);
        pool.refresh(CpuId(0));
        assert!(!pool.cpu_ops(CpuId(0)).has_deltas());
        // From the list: the free-page counter does not move.
        alloc(&pool, 0, 1);
        assert_eq!(pool.cpu_ops(CpuId(0)).has_deltas(), calls, "{numa:?}");
    }
}

#[test]
fn every_cpus_timer_runs_in_every_interval() {
    let stat = StatPolicy { refresh: Refresh::PerCpuTimer, ..StatPolicy::V6_6 };
    let pool = Shape::uniform(1, 1 << 14, 2).boot(Policy { stat, ..Policy::LINUX_6_18 });
    pool.set(Sysctl::StatInterval, 2).unwrap();
    let mut workers = workers(&pool);
    pool.shepherd(&mut workers, 0);
    for second in 1..=8 {
        for cpu in [0, 1] {
            let ran = pool.run_worker(CpuId(cpu), &mut workers[cpu as usize], second * SECOND);
            assert_eq!(ran, second % 2 == 0, "second {second}");
        }
    }
    assert!(pool.set(Sysctl::StatInterval, 0).is_err());
    assert_eq!(pool.stat_interval().as_secs(), 2, "the old value is kept");
}

#[test]
fn a_cpu_that_goes_idle_folds_and_keeps_its_pages() {
    let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy::LINUX_6_18);
    let mut workers = workers(&pool);
    alloc(&pool, 0, 1);
    let count = pool.pcp(ZONE, CpuId(0)).count();
    assert!(!pool.quiet(CpuId(0), &workers[0]), "no worker is queued");
    pool.shepherd(&mut workers, 0);
    assert!(pool.quiet(CpuId(0), &workers[0]) && !pool.cpu_ops(CpuId(0)).has_deltas());
    assert!(!pool.quiet(CpuId(0), &workers[0]), "nothing to fold");
    assert_eq!(pool.pcp(ZONE, CpuId(0)).count(), count);
    pool.validate().unwrap();
}

#[test]
fn what_a_dead_cpu_had_counted_and_cached_is_kept() {
    for numa in [
        #[cfg(feature = "history")]
        NumaPolicy::V4_13,
        #[cfg(feature = "history")]
        NumaPolicy::V4_14,
        NumaPolicy::V5_14,
        NumaPolicy::EXACT,
    ] {
        let pool = Shape::uniform(1, 1 << 16, 4).boot(Policy { numa, ..LISTS_ALONE });
        let before = pool.zones()[0].stat_threshold();
        on_cpu(3);
        alloc(&pool, 0, 5);
        pool.cpu_dead(CpuId(3));
        assert!(!pool.cpu_ops(CpuId(3)).has_deltas() && pool.pcp(ZONE, CpuId(3)).count() == 0);
        assert_eq!(pool.stats().machine_numa_events().hit, 5);
        assert_eq!(pool.zones()[0].free_counter(), (1 << 16) - 5);
        assert!(pool.zones()[0].stat_threshold() < before, "three CPUs, a smaller threshold");
        pool.validate().unwrap();
    }
}

#[test]
fn the_threshold_follows_from_the_pages_that_the_policy_names() {
    for (_, threshold_pages) in ThresholdPages::ALL {
        let stat = StatPolicy { threshold_pages: *threshold_pages, ..LISTS_ALONE.stat };
        let policy = Policy { stat, ..LISTS_ALONE };
        // The zone is said to have less than the buddy is given.
        let mut shape = Shape::uniform(1, 4 << 15, 4);
        shape.zones[0].present = 3 << 15;
        let pool = shape.boot(policy);
        let expected = match threshold_pages {
            #[cfg(feature = "history")]
            ThresholdPages::Present => threshold::normal(3 << 15, 4),
            ThresholdPages::Managed => threshold::normal(4 << 15, 4),
        };
        assert_eq!(pool.zones()[0].stat_threshold(), expected);
    }
    assert_ne!(threshold::normal(4 << 15, 4), threshold::normal(3 << 15, 4));
}

/// A zone of 160 MiB with 64 CPUs, whose deltas may hide more than the gap between its watermarks.
fn drifting(pressure: Pressure) -> Allocator<'static, Script> {
    let stat = StatPolicy { pressure, ..LISTS_ALONE.stat };
    let watermark =
        WatermarkPolicy { min_free: MinFreeRule::Kbytes(1000), ..LISTS_ALONE.watermark };
    Shape::uniform(1, 40_000, 64).boot(Policy { stat, watermark, ..LISTS_ALONE })
}

#[test]
fn the_drift_mark_and_the_pressure_threshold_follow_the_policy() {
    for (_, pressure) in Pressure::ALL {
        let pool = drifting(*pressure);
        let zone = &pool.zones()[0];
        let [min, low, high] =
            [Watermark::Min, Watermark::Low, Watermark::High].map(|m| zone.watermarks().of(m));
        let normal = threshold::normal(40_000, 64);
        assert!(64 * u64::from(normal) > low - min, "such a zone drifts");
        assert_eq!(zone.stat_threshold(), normal);
        let watermark = (pressure.name() != "off").then_some(high + 64 * u64::from(normal));
        assert_eq!(zone.drift_mark(), watermark, "{pressure:?}");
        Limits::new(&pool.tables).set_stat_pressure(NodeId(0), true);
        let awake = match pressure {
            Pressure::DriftMarkAndThreshold => ((low - min) / 64).max(1) as u32,
            #[cfg(feature = "history")]
            _ => normal,
        };
        assert_eq!(zone.stat_threshold(), awake, "{pressure:?}");
        Limits::new(&pool.tables).set_stat_pressure(NodeId(0), false);
        assert_eq!(zone.stat_threshold(), normal);
        // LB M.11: it stays, and a written mark does not move it.
        pool.set(Sysctl::MinFreeKbytes, 80_000).unwrap();
        assert_eq!(zone.drift_mark(), watermark);
    }
}

#[test]
fn a_zone_that_cannot_drift_keeps_its_threshold_under_pressure() {
    let pool = Shape::uniform(1, 1 << 18, 2).boot(Policy::LINUX_6_18);
    let before = pool.zones()[0].stat_threshold();
    assert_eq!(pool.zones()[0].drift_mark(), None);
    Limits::new(&pool.tables).set_stat_pressure(NodeId(0), true);
    assert_eq!(pool.zones()[0].stat_threshold(), before);
    let free = pool.stats().safe_snapshot(ZONE, ZoneKind::Normal).free;
    assert_eq!(free, pool.zones()[0].free_counter(), "nor are its deltas looked at");
}

#[test]
fn below_the_drift_mark_a_safe_test_adds_up_the_deltas() {
    // LB K.5: drift mark 5000, counter 4000, true 3800: uses 3800.
    let pool = drifting(Pressure::named("drift_mark").unwrap_or_default());
    let zone = &pool.zones()[0];
    zone.drift_mark.store(5000, Relaxed);
    let counter = |pages: i64| {
        let mut locked = pool.zone_ops(zone.id()).lock();
        locked.fold(pages - zone.free_counter_raw());
    };
    counter(4000);
    pool.pcp(ZONE, CpuId(7)).free_diff.store(-200, Relaxed);
    assert_eq!(pool.stats().safe_snapshot(ZONE, ZoneKind::Normal).free, 3800);
    counter(5000);
    assert_eq!(
        pool.stats().safe_snapshot(ZONE, ZoneKind::Normal).free,
        5000,
        "at the watermark it need not"
    );
    let steps = steps_of(|| assert_eq!(pool.stats().free_snapshot(ZONE), 4800));
    assert_eq!(steps.len(), 64, "a look at each CPU");
    counter(100);
    assert_eq!(
        (pool.stats().free_snapshot(ZONE), pool.stats().free_counter()),
        (0, 100),
        "below zero reads as 0"
    );
}

#[test]
fn a_counter_below_zero_is_told_after_a_refresh_of_all() {
    let pool = Shape::uniform(1, 1 << 14, 2).boot(LISTS_ALONE);
    alloc(&pool, 0, 10);
    let told = |pool: &Allocator<'_, Script>| {
        let mut told = Vec::new();
        pool.stat_refresh(|name, count| told.push((name, count)));
        told
    };
    assert_eq!(told(&pool), []);
    assert!(!pool.cpu_ops(CpuId(0)).has_deltas());
    let free = pool.zones()[0].free_counter_raw();
    pool.pcp(ZONE, CpuId(1)).free_diff.store(-free - 3, Relaxed);
    assert_eq!(told(&pool), [("nr_free_pages", -3)]);
    assert_eq!(pool.stats().free_counter(), 0, "readers see no negative number");
}
