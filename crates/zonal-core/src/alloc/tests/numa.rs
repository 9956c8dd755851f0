//! NUMA events in every storage (LB F.6, F.7): the sum laws, how far a read may be off, and
//! switching while pages go in and out.

use std::vec::Vec;

use proptest::prelude::*;

use super::platform::{LISTS_ALONE, Script, Shape, on_cpu, steps_of};
use super::word_path;
use crate::alloc::{Allocator, NumaEvents, Request, Sysctl};
use crate::platform::{Instruction, Line, Step};
use crate::policy::{MinFreeRule, Policy, WatermarkPolicy};
use crate::types::{Choice, CpuId, NodeId, Order, Pfn};
use crate::vmstat::variant::{NumaEnable, NumaFold, NumaPolicy, NumaStorage, StatPolicy, Update};

/// Updates that count everything.
fn counting() -> impl Strategy<Value = Update> {
    let all = prop::sample::select(Update::ALL).prop_map(|(_, update)| update);
    all.prop_filter("counts nothing", |update| update.name() != "local_inc_posted")
}

fn any_numa() -> BoxedStrategy<NumaPolicy> {
    let storage = prop::sample::select(NumaStorage::ALL).prop_map(|(_, storage)| storage);
    let fold_site = prop::sample::select(NumaFold::ALL).prop_map(|(_, site)| site);
    let threshold = prop::sample::select(&[0u16, 1, 2, 13, 125][..]);
    (storage, fold_site, threshold)
        .prop_map(|(storage, fold_site, threshold)| NumaPolicy {
            storage,
            threshold,
            fold_site,
            enable: NumaEnable::Sysctl,
        })
        .boxed()
}

/// Every way to count in which whoever reads a zone sees everything; often the exact storage, the
/// one that leaves the fast paths open.
pub fn seen_whole() -> BoxedStrategy<(Update, NumaPolicy)> {
    let seen = any_numa().prop_filter("reads without the deltas", |numa| {
        !numa.records() || numa.fold_site.name() != "worker"
    });
    (counting(), prop_oneof![Just(NumaPolicy::EXACT), seen]).boxed()
}

/// Every preset with other counters, and without watermarks in the way of small machines.
fn policy(update: Update, numa: NumaPolicy) -> Policy {
    let watermark = WatermarkPolicy { min_free: MinFreeRule::Kbytes(0), ..Policy::ZONAL.watermark };
    let stat = StatPolicy { update, ..Policy::ZONAL.stat };
    Policy { watermark, stat, numa, ..Policy::ZONAL }
}

/// One request: CPU, order, node, pages of it, and whether a page is freed instead.
type Op = (u32, u32, Option<u16>, usize, bool);

/// Runs the requests. Returns how many allocations there were.
fn run(pool: &Allocator<'_, Script>, ops: &[Op]) -> u64 {
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let mut allocs = 0;
    for (cpu, order, node, times, free) in ops {
        on_cpu(cpu % pool.cpus() as u32);
        let order = Order::new(*order).unwrap();
        let node = node.map(|node| NodeId(node % pool.nodes().len() as u16));
        let request = Request { node, ..Request::new(order) };
        if *free {
            let keep = held.len().saturating_sub(*times);
            held.drain(keep..).for_each(|(pfn, order)| pool.free(pfn, order).unwrap());
        } else if order == Order::ZERO && *times > 40 {
            let mut pages = std::vec![Pfn(0); *times];
            let got = pool.alloc_bulk(request, &mut pages).unwrap_or(0);
            held.extend(pages[..got].iter().map(|pfn| (*pfn, order)));
            allocs += got as u64;
        } else {
            for _ in 0..*times {
                let Ok(pfn) = pool.alloc(request) else { break };
                held.push((pfn, order));
                allocs += 1;
            }
        }
    }
    allocs
}

fn numbers(events: NumaEvents) -> [u64; 5] {
    let NumaEvents { hit, miss, foreign, local, other } = events;
    [hit, miss, foreign, local, other]
}

/// LB F.6, the sum law.
fn laws_hold(events: NumaEvents, allocs: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(events.hit + events.miss, allocs);
    prop_assert_eq!(events.local + events.other, allocs);
    prop_assert_eq!(events.miss, events.foreign);
    Ok(())
}

fn sum(pool: &Allocator<'_, Script>) -> NumaEvents {
    let nodes = (0..pool.nodes().len()).map(|node| pool.numa_events(NodeId(node as u16)));
    nodes.fold(NumaEvents::default(), NumaEvents::plus)
}

/// Words without a threshold fold when they are read.
fn threshold_of(_numa: &NumaPolicy, _zone: u32) -> u64 {
    #[cfg(feature = "history")]
    let threshold = _numa.threshold(_zone);
    #[cfg(not(feature = "history"))]
    let threshold = i64::MAX;
    threshold as u64
}

fn off_by(one: NumaEvents, other: NumaEvents) -> u64 {
    let pairs = numbers(one).into_iter().zip(numbers(other));
    pairs.map(|(one, other)| one.abs_diff(other)).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn sums_and_errors_are_as_the_storage_says(
        (nodes, pages, cpus) in (1usize..4, 200u64..1500, 1usize..4),
        update in counting(),
        numa in any_numa(),
        ops in prop::collection::vec(
            (0u32..12, prop_oneof![4 => Just(0u32), 1 => 1u32..5], prop::option::of(0u16..3),
                1usize..90, prop::bool::weighted(0.3)),
            1..60),
    ) {
        let shape = Shape::uniform(nodes, pages, cpus);
        let exact = Policy { numa: NumaPolicy::EXACT, ..policy(update, numa) };
        let truth = shape.scoped(exact, 0, |pool| {
            let allocs = run(pool, &ops);
            laws_hold(sum(pool), allocs)?;
            prop_assert_eq!(pool.stats().machine_numa_events(), sum(pool));
            Ok((0..nodes).map(|node| pool.numa_events(NodeId(node as u16))).collect::<Vec<_>>())
        })?;
        shape.scoped(policy(update, numa), 0, |pool| {
            let allocs = run(pool, &ops);
            let cpus = pool.cpus() as u64;
            let threshold = threshold_of(&numa, pool.zones()[0].stat_threshold());
            let zones = pool.zones().len() as u64;
            let whole = truth.iter().fold(NumaEvents::default(), |sum, node| sum.plus(*node));
            // Error bound: CPUs * zones * threshold; words without a threshold fold when read.
            if threshold <= 125 {
                let off = off_by(pool.stats().machine_numa_events(), whole);
                prop_assert!(off <= cpus * zones * threshold, "off by {}", off);
            }
            for (node, truth) in truth.iter().enumerate() {
                let read = pool.numa_events(NodeId(node as u16));
                if !numa.records() || numa.fold_site.name() != "worker" {
                    prop_assert_eq!(read, *truth);
                } else if threshold <= 125 {
                    prop_assert!(off_by(read, *truth) <= cpus * threshold);
                }
            }
            for cpu in 0..pool.cpus() {
                pool.refresh(CpuId(cpu as u32));
            }
            prop_assert_eq!(pool.stats().machine_numa_events(), whole);
            prop_assert_eq!(sum(pool), whole);
            laws_hold(sum(pool), allocs)
        })?;
    }
}

fn alloc(pool: &Allocator<'_, Script>, pages: usize) -> Vec<Pfn> {
    (0..pages).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect()
}

#[test]
fn a_storage_that_records_closes_the_fast_paths_and_no_other_does() {
    for (name, storage) in NumaStorage::ALL {
        let numa = NumaPolicy { storage: *storage, ..NumaPolicy::EXACT };
        let pool = Shape::uniform(2, 1 << 14, 2).boot(Policy { numa, ..Policy::ZONAL });
        let pages = alloc(&pool, 100);
        pages.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
        let fast = word_path::alloc(&pool, CpuId(0), Order::ZERO);
        assert_eq!(fast.is_some(), *storage == NumaStorage::UlongExact, "{name}");
    }
}

#[test]
fn switched_off_all_counts_are_gone_and_switched_on_they_begin_at_zero() {
    for (name, storage) in NumaStorage::ALL {
        let fold_site = NumaFold::named("worker_and_snapshot").unwrap_or_default();
        let numa = NumaPolicy { storage: *storage, fold_site, ..NumaPolicy::EXACT };
        let pool = Shape::uniform(2, 1 << 14, 1).boot(Policy { numa, ..LISTS_ALONE });
        on_cpu(0);
        alloc(&pool, 300);
        pool.alloc(Request::new(Order::ZERO).on(NodeId(1))).unwrap();
        assert_eq!(sum(&pool).hit, 301, "{name}");
        pool.set(Sysctl::NumaStat, 0).unwrap();
        assert_eq!(sum(&pool), NumaEvents::default(), "{name}");
        assert_eq!(pool.stats().machine_numa_events(), NumaEvents::default());
        // Nothing is counted, and every way is open at once.
        assert!(word_path::alloc(&pool, CpuId(0), Order::ZERO).is_some(), "{name}");
        alloc(&pool, 50);
        assert_eq!(sum(&pool), NumaEvents::default(), "{name}");
        pool.set(Sysctl::NumaStat, 1).unwrap();
        assert_eq!(sum(&pool), NumaEvents::default(), "{name}");
        let exact = !numa.records();
        assert_eq!(word_path::alloc(&pool, CpuId(0), Order::ZERO).is_some(), exact, "{name}");
        alloc(&pool, 7);
        pool.alloc(Request::new(Order::ZERO).on(NodeId(1))).unwrap();
        let fast = u64::from(exact);
        let expected = NumaEvents { hit: 8 + fast, local: 7 + fast, other: 1, ..sum(&pool) };
        assert_eq!(sum(&pool), expected, "{name}");
        assert_eq!(expected.miss, 0, "{name}");
        // Written once more, it changes nothing.
        pool.set(Sysctl::NumaStat, 1).unwrap();
        assert_eq!(sum(&pool), expected, "{name}");
        assert!(pool.set(Sysctl::NumaStat, 2).is_err() && pool.set(Sysctl::NumaStat, -1).is_err());
        pool.validate().unwrap();
    }
}

#[cfg(feature = "history")]
#[test]
fn a_kernel_without_the_sysctl_always_counts() {
    let pool = Shape::uniform(1, 4096, 1).boot(Policy { numa: NumaPolicy::V4_13, ..Policy::ZONAL });
    let refused = pool.set(Sysctl::NumaStat, 0).unwrap_err();
    assert_eq!(refused.accepted, "1: this policy always counts");
    assert!(pool.set(Sysctl::NumaStat, 1).is_ok() && pool.stats().counts_numa());
}

#[test]
fn switched_off_from_the_start_nothing_is_counted() {
    for numa in [
        #[cfg(feature = "history")]
        NumaPolicy::V4_15,
        NumaPolicy::V5_14,
        NumaPolicy::EXACT,
    ] {
        let off = Policy { numa, numa_stat: false, ..Policy::ZONAL };
        let pool = Shape::uniform(1, 4096, 1).boot(off);
        alloc(&pool, 100);
        assert_eq!(sum(&pool), NumaEvents::default());
        pool.set(Sysctl::NumaStat, 1).unwrap();
        alloc(&pool, 10);
        assert_eq!((sum(&pool).hit, sum(&pool).local), (10, 10));
    }
}

/// Which reads of a node show what no refresh and no threshold has folded.
#[test]
fn readers_see_what_their_release_showed_them() {
    let cases = [
        #[cfg(feature = "history")]
        (NumaPolicy::V4_13, 0, 0),
        #[cfg(feature = "history")]
        (NumaPolicy::SPLIT_V1, 10, 0),
        #[cfg(feature = "history")]
        (NumaPolicy::V4_14, 10, 0),
        (NumaPolicy::V5_14, 10, 10),
        (NumaPolicy::EXACT, 10, 10),
    ];
    for (numa, of_node, of_machine) in cases {
        // Enough pages for a threshold above 10.
        let pool = Shape::uniform(1, 1 << 18, 2).boot(Policy { numa, ..Policy::ZONAL });
        assert!(pool.zones()[0].stat_threshold() > 10);
        alloc(&pool, 10);
        assert_eq!(pool.stats().machine_numa_events().hit, of_machine, "{numa:?}");
        assert_eq!(pool.numa_events(NodeId(0)).hit, of_node, "{numa:?}");
        alloc(&pool, 1);
        let steps = steps_of(|| {
            pool.refresh(CpuId(0));
        });
        let folds = count(&steps, |step| *step == Step::Fold(Line::MachineNuma));
        let by_refresh = numa.fold_site.name() == "worker_and_snapshot";
        assert_eq!(folds, usize::from(by_refresh), "{numa:?}");
        assert_eq!(pool.stats().machine_numa_events().hit, 11, "{numa:?}");
    }
}

fn count(steps: &[Step], is: impl Fn(&Step) -> bool) -> usize {
    steps.iter().filter(|step| is(step)).count()
}

/// What a platform charges for: with a threshold of 32 of 16 signed bits a fold every 49 events
/// after the first 33 (LB K.4), of the zone's line and the machine's; an allocation counts two
/// events.
#[cfg(feature = "history")]
#[test]
fn each_event_is_an_update_and_each_fold_two_lines() {
    let numa = NumaPolicy { threshold: 32, ..NumaPolicy::SPLIT_V1 };
    let pool = Shape::uniform(1, 1 << 16, 1).boot(Policy { numa, ..Policy::ZONAL });
    let steps = steps_of(|| drop(alloc(&pool, 10_000)));
    let zone_id = crate::types::ZoneId(0);
    let zone = Line::ZoneNuma(zone_id);
    assert_eq!(count(&steps, |step| *step == Step::Fold(zone)), 2 * 204);
    assert_eq!(count(&steps, |step| *step == Step::Fold(Line::MachineNuma)), 2 * 204);
    let event = Step::Update { zone: zone_id, by: Instruction::Plain, times: 1 };
    assert!(count(&steps, |step| *step == event) >= 20_000);
}

/// The exact storage asks for nothing; the one of 5.14 for additions, and for the readers'
/// exchanges.
#[test]
fn words_of_a_cpu_cost_additions_and_exchanges_and_the_exact_storage_nothing() {
    let only_refills = |numa| {
        let pool = Shape::uniform(1, 1 << 16, 2).boot(Policy { numa, ..Policy::ZONAL });
        let steps = steps_of(|| {
            alloc(&pool, 1000);
            pool.numa_events(NodeId(0));
        });
        let adds = count(&steps, |step| {
            matches!(step, Step::Update { by: Instruction::Add, times: 1, .. })
        });
        (adds, count(&steps, |step| matches!(step, Step::Collect { taken: true, .. })))
    };
    assert_eq!(only_refills(NumaPolicy::EXACT), (0, 0));
    assert_eq!(only_refills(NumaPolicy::V5_14), (2000, 2));
}
