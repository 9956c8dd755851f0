//! What was proposed or merged from 2024 to 2026, as switches of a policy: each against its
//! description.

use core::time::Duration;
use std::boxed::Box;
use std::string::ToString;
use std::vec::Vec;

use super::platform::{Behaviour, Script, Shape, Stage, on_cpu, steps_of};
use crate::alloc::{Allocator, Request};
use crate::gfp::Gfp;
use crate::platform::Step;
use crate::policy::{Grouping, MinFreeRule, Policy, WatermarkPolicy};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, NodeId, Order, PAGEBLOCK_PAGES, Pfn};
use crate::vmstat::worker::StatWorker;
use crate::zone::watermark::Watermarks;

const BASE: Policy = Policy {
    mobility_grouping: Grouping::Off,
    watermark: WatermarkPolicy {
        min_free: MinFreeRule::Kbytes(256),
        ..Policy::LINUX_6_19.watermark
    },
    ..Policy::LINUX_6_19
};

fn with(key: &'static str, value: &'static str) -> Policy {
    let mut policy = BASE;
    policy.set(key, value).unwrap();
    policy
}

/// The node of a page of a machine with nodes of so many pages.
fn node(pfn: Pfn, pages: u64) -> u64 {
    pfn.0 / pages
}

fn page(pool: &Allocator<'_, Script>, gfp: Gfp) -> Option<Pfn> {
    pool.alloc(Request::new(Order::ZERO).gfp(gfp)).ok()
}

/// 2025-09, in 6.18: the first round over the zonelist passes nodes whose reclaimer is awake.
#[test]
fn a_request_passes_nodes_whose_reclaimer_is_awake_unless_it_is_bound_to_one() {
    const PAGES: u64 = 1 << 14;
    for (value, other) in [("used", 0), ("passed", 1)] {
        let pool = Shape::uniform(2, PAGES, 1).boot(with("zonelist.reclaiming", value));
        on_cpu(0);
        let nowait = || node(page(&pool, Gfp::NOWAIT).unwrap(), PAGES);
        assert_eq!(nowait(), 0, "nobody reclaims");
        let reclaimer = pool.background_start(NodeId(0));
        assert!(pool.stats().background(NodeId(0)).is_awake());
        assert_eq!(nowait(), other, "{value}");
        let bound = Gfp::NOWAIT.union(Gfp::THISNODE);
        assert_eq!(node(page(&pool, bound).unwrap(), PAGES), 0, "{value}: bound to its node");
        pool.stats().background(NodeId(0)).lie_down();
        assert_eq!(nowait(), 0, "{value}: its reclaimer sleeps");
        pool.background_stop(reclaimer);
    }
}

#[test]
fn nodes_that_were_passed_are_asked_when_no_other_has_the_block() {
    const PAGES: u64 = 1 << 14;
    let pool = Shape::uniform(2, PAGES, 1).boot(with("zonelist.reclaiming", "passed"));
    on_cpu(0);
    let bound = Request::new(Order::ZERO).gfp(Gfp::NOWAIT.union(Gfp::THISNODE)).on(NodeId(1));
    while pool.alloc(bound).is_ok() {}
    let reclaimer = pool.background_start(NodeId(0));
    let pfn = page(&pool, Gfp::NOWAIT).unwrap();
    assert_eq!(node(pfn, PAGES), 0);
    pool.background_stop(reclaimer);
}

/// 2026-02: memory left out of all default zonelists.
#[test]
fn only_requests_for_a_private_node_alone_get_its_memory() {
    const PAGES: u64 = 1 << 13;
    let pool = Shape::uniform(3, PAGES, 1).boot(with("zonelist.private", "2"));
    let of = |pfn: Pfn| node(pfn, PAGES);
    // A CPU of the private node asks for nothing in particular, and so does a request for it that
    // may leave it.
    on_cpu(2);
    assert_ne!(of(page(&pool, Gfp::NOWAIT).unwrap()), 2);
    let wants = Request::new(Order::ZERO).gfp(Gfp::NOWAIT).on(NodeId(2));
    assert_ne!(of(pool.alloc(wants).unwrap()), 2);
    let alone = wants.gfp(Gfp::NOWAIT.union(Gfp::THISNODE));
    assert_eq!(of(pool.alloc(alone).unwrap()), 2);
    // The others' memory is used up, and the private node's is not touched.
    on_cpu(0);
    let got: Vec<Pfn> = core::iter::from_fn(|| page(&pool, Gfp::NOWAIT)).collect();
    assert!(got.iter().all(|pfn| of(*pfn) < 2) && got.len() as u64 > PAGES);
    assert_eq!(of(pool.alloc(alone).unwrap()), 2);
    got.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
    pool.validate().unwrap();
}

#[test]
fn private_nodes_are_named_by_numbers_and_ranges() {
    for (text, printed) in [("none", "none"), ("1,4-6", "1,4,5,6"), ("63", "63")] {
        assert_eq!(with("zonelist.private", text).zonelist.private.to_string(), printed);
    }
    for wrong in ["", "64", "3-1", "1,", "-1", "all"] {
        assert!(BASE.clone().set("zonelist.private", wrong).is_err(), "{wrong:?}");
    }
}

/// A clock that the test moves.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Behaviour for Clock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// 2026-02: the watermarks are boosted when an atomic request fails, at most once a second.
#[test]
fn an_atomic_request_that_fails_boosts_the_watermarks_once_a_second() {
    for (value, step) in [("off", 0), ("on", PAGEBLOCK_PAGES)] {
        let shape = Box::leak(Box::new(Shape::uniform(1, 1 << 16, 1)));
        let pool =
            shape.boot_on(with("watermark.boost_atomic", value), Stage::with(Clock::default()));
        on_cpu(0);
        let atomic = Request::new(Order::ZERO).gfp(Gfp::ATOMIC);
        while pool.alloc(atomic).is_ok() {}
        let boost = || pool.zones()[0].watermarks().boost;
        assert_eq!(boost(), step, "{value}");
        let worked_off = Watermarks { boost: 0, ..pool.zones()[0].watermarks() };
        pool.zones()[0].set_watermarks(&worked_off);
        assert!(pool.alloc(atomic).is_err());
        assert_eq!(boost(), 0, "{value}: within the same second");
        pool.platform().0.store(2_000_000_000, Relaxed);
        assert!(pool.alloc(atomic).is_err());
        assert_eq!(boost(), step, "{value}: a second later");
    }
}

/// 2024-11: `pcp_batch_scale_max=0` keeps refills and drains at a batch.
#[test]
fn the_batch_scale_bounds_what_a_hold_of_the_zone_lock_moves() {
    let mut largest = [0; 2];
    for (largest, value) in largest.iter_mut().zip(["0", "5"]) {
        let policy = with("pcp.scale_max", value);
        let pool = Shape::uniform(1, 1 << 18, 1).boot(policy);
        on_cpu(0);
        let steps = steps_of(|| {
            for _ in 0..3 {
                let pages: Vec<Pfn> = (0..30_000).map_while(|_| page(&pool, Gfp::NOWAIT)).collect();
                pages.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
            }
        });
        let (batch, ..) = pool.zones()[0].pcp_sizes();
        *largest = steps.iter().fold(0, |most, step| match step {
            Step::ZoneUnlock { pages, .. } => most.max(*pages),
            _ => most,
        });
        let most = if value == "0" { batch } else { batch << 5 };
        assert!(*largest <= most, "{value}: {largest} pages, batch {batch}");
    }
    assert!(largest[0] < largest[1], "{largest:?}");
}

/// 2026-04: refreshes of the CPUs are staggered evenly over the interval.
#[test]
fn staggered_cpus_are_refreshed_evenly_over_the_interval() {
    const CPUS: u64 = 4;
    for (value, moments) in [("off", 1), ("on", CPUS as usize)] {
        let mut policy = with("stat.stagger", value);
        policy.set("stat.refresh", "per_cpu_timer").unwrap();
        let pool = Shape::uniform(1, 1 << 14, CPUS as usize).boot(policy);
        pool.set_stat_interval(Duration::from_millis(400));
        let mut workers = [StatWorker::default(); CPUS as usize];
        pool.shepherd(&mut workers, 0);
        let due = |workers: &[StatWorker]| -> Vec<u64> {
            let mut due: Vec<u64> = workers.iter().filter_map(|worker| worker.due_ns()).collect();
            assert_eq!(due.len(), CPUS as usize);
            due.sort_unstable();
            due.dedup();
            due
        };
        let first = due(&workers);
        assert_eq!(first.len(), moments, "{value}: {first:?}");
        assert!(first.windows(2).all(|two| two[1] - two[0] == 100_000_000), "{first:?}");
        // They keep apart, and to the interval, whoever comes late.
        let now = first[first.len() - 1] + 30_000_000;
        for (cpu, worker) in (0..).map(CpuId).zip(&mut workers) {
            pool.run_worker(cpu, worker, now);
        }
        let next = due(&workers);
        assert_eq!(next.len(), moments, "{value}");
        if value == "on" {
            assert!(next.iter().all(|at| (200_000_000..=600_000_000).contains(&(at - now))));
        }
        // The shepherd leaves a worker that is queued where it is.
        let before = workers;
        pool.shepherd(&mut workers, now);
        assert_eq!(workers, before);
    }
}
