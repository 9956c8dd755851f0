//! NUMA events of a pool in every storage, with threads, both modes and a refresh thread that folds
//! all the time: nothing is lost and nothing counted twice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use zonal::{CpuMap, NodeId, Order, Policy, Pool};
use zonal_core::alloc::{NumaEvents, Sysctl};
use zonal_core::types::Choice;
use zonal_core::vmstat::variant::{NumaFold, NumaPolicy, NumaStorage, StatPolicy, Update};

const MIB: usize = 1 << 20;
const THREADS: u64 = 4;
const ROUNDS: u64 = 3000;

fn pool(rseq: bool, policy: Policy) -> Pool {
    let builder = Pool::builder().size(64 * MIB).rseq(rseq).policy(policy);
    let builder = builder.fake_nodes(2, CpuMap::RoundRobin);
    builder.refresh_every(Some(Duration::from_millis(1))).build().unwrap()
}

/// Pages in and out on all threads, singly, in blocks and in bulk. Returns the allocations.
fn work(pool: &Pool) -> u64 {
    let allocs = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    let order = Order::new(if round % 7 == 0 { 2 } else { 0 }).unwrap();
                    held.push(pool.alloc(order).unwrap());
                    if round % 3 == 0 {
                        held.swap_remove(round as usize % held.len());
                    }
                    if round % 64 == 63 {
                        held.clear();
                    }
                }
                allocs.fetch_add(ROUNDS, Relaxed);
            });
        }
    });
    allocs.into_inner()
}

fn sum(pool: &Pool) -> NumaEvents {
    [0, 1]
        .map(NodeId)
        .into_iter()
        .fold(NumaEvents::default(), |sum, node| sum.plus(pool.numa_events(node)))
}

#[test]
fn every_storage_counts_each_allocation_once() {
    for rseq in [true, false] {
        for (name, storage) in NumaStorage::ALL {
            // Readers come when the work is done: the storage of 5.14 promises no more.
            let fold_site = match storage {
                NumaStorage::UlongFoldOnRead => NumaFold::Reader,
                _ => NumaFold::named("worker_and_snapshot").unwrap_or_default(),
            };
            let numa = NumaPolicy { storage: *storage, fold_site, ..NumaPolicy::EXACT };
            let counts = |name: &str| ["thiscpu_cmpxchg", "local_inc_intended"].contains(&name);
            for &(_, update) in Update::ALL.iter().filter(|(name, _)| counts(name)) {
                let stat = StatPolicy { update, ..Policy::ZONAL.stat };
                let pool = pool(rseq, Policy { numa, stat, ..Policy::ZONAL });
                let allocs = work(&pool);
                let events = sum(&pool);
                let text = format!("{name} {update:?} {}: {events:?}", pool.mode());
                assert_eq!(events.hit + events.miss, allocs, "{text}");
                assert_eq!(events.local + events.other, allocs, "{text}");
                assert_eq!(events.miss, events.foreign, "{text}");
                pool.validate().unwrap();
            }
        }
    }
}

#[test]
fn events_are_switched_while_threads_work() {
    for (name, storage) in NumaStorage::ALL {
        let numa = NumaPolicy { storage: *storage, ..NumaPolicy::EXACT };
        let pool = pool(true, Policy { numa, ..Policy::ZONAL });
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| work(&pool));
            let mut on = 0;
            while !worker.is_finished() {
                pool.set(Sysctl::NumaStat, on).unwrap();
                on = 1 - on;
            }
        });
        for on in [0, 1] {
            pool.set(Sysctl::NumaStat, on).unwrap();
            assert_eq!(sum(&pool), NumaEvents::default(), "{name}");
        }
        let allocs = work(&pool);
        assert_eq!(sum(&pool).hit + sum(&pool).miss, allocs, "{name}");
        pool.validate().unwrap();
    }
}
