//! Free pages are counted once, wherever they are on their way (STEADY-1, STEADY-2).

use std::boxed::Box;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use super::depot::{give, short, take};
use super::platform::{Plain, Script, Shape, Stage, before_the_next_lock, on_cpu};
use crate::alloc::Allocator;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const PAGES: u64 = 1 << 15;

/// Policies whose free pages lie in different places, and whether CPUs have lists.
fn policies() -> [Policy; 3] {
    let owned = Policy { numa_stat: false, ..Policy::OWNED_2026 };
    [short(16), Policy { pcp: Policy::LINUX_6_18.pcp, ..short(0) }, owned]
}

fn used(policy: Policy) -> &'static Allocator<'static, Script> {
    let shape = Box::leak(Box::new(Shape::uniform(1, PAGES, 2)));
    let pool = Box::leak(Box::new(shape.boot_on(policy, Stage::for_threads(Plain))));
    use_both(pool);
    pool
}

/// Pages come to the lists of both CPUs, and to their depot.
fn use_both(pool: &Allocator<'static, Script>) {
    for (taker, giver) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let pages = take(pool, taker, Order::ZERO, 300);
        give(pool, giver, Order::ZERO, pages);
        let blocks = take(pool, taker, Order::new(3).unwrap(), 8);
        give(pool, giver, Order::new(3).unwrap(), blocks);
    }
    on_cpu(0);
}

#[test]
fn a_drain_in_the_middle_of_a_count_changes_nothing() {
    for policy in policies() {
        for cpu in 0..2 {
            let pool = &*Box::leak(Box::new(Shape::uniform(1, PAGES, 2).boot(policy)));
            for (taker, giver) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                let pages = take(pool, taker, Order::ZERO, 300);
                give(pool, giver, Order::ZERO, pages);
            }
            before_the_next_lock(move || {
                pool.drain(ZONE, CpuId(cpu));
            });
            assert_eq!(pool.free_pages(), PAGES, "{} {cpu}", policy.name);
            before_the_next_lock(move || {
                pool.drain_all();
            });
            assert_eq!(pool.free_pages(), PAGES, "{} {cpu}", policy.name);
            // The figures of a zone are read one after the other.
            let pages = take(pool, cpu, Order::ZERO, 300);
            give(pool, cpu, Order::ZERO, pages);
            before_the_next_lock(move || {
                pool.drain_all();
            });
            let figures = pool.zone_stats(ZONE);
            assert!(figures.free_pages + figures.cached_pages > PAGES, "{}", policy.name);
        }
    }
}

/// The pool's own threads drain and refresh, as far as they like; nobody allocates or frees.
#[test]
fn what_others_move_meanwhile_is_counted_once() {
    for policy in policies() {
        let pool = used(policy);
        let (begin, stop) = (&Barrier::new(2), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    begin.wait();
                    if stop.load(Relaxed) {
                        return;
                    }
                    for cpu in 0..2 {
                        on_cpu(cpu);
                        pool.refresh(CpuId(cpu));
                        pool.drain(ZONE, CpuId(cpu));
                    }
                    pool.drain_all();
                    begin.wait();
                }
            });
            for _ in 0..if cfg!(miri) { 2 } else { 500 } {
                use_both(pool);
                begin.wait();
                for _ in 0..40 {
                    assert_eq!(pool.free_pages(), PAGES, "{}", policy.name);
                }
                begin.wait();
            }
            stop.store(true, Relaxed);
            begin.wait();
        });
        pool.validate().unwrap();
    }
}
