//! Threads that meet at one zone: where magazines are when all is held still (DEPOT-1), and who
//! changes the words of ranges (RANGE-2).

use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::vec::Vec;

use super::depot::short;
use super::platform::{Plain, Script, Shape, Stage, meet, on_cpu, stagger, zone};
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, Request};
use crate::gfp::Gfp;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, Pfn, ZoneId, ZoneKind};

const ZONE: ZoneId = ZoneId(0);
/// Ignores the watermarks: who has which pages, not how many.
const ANY: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);

/// One zone of `pages` pages and two CPUs that are threads.
fn boot(pages: u64, policy: Policy) -> Allocator<'static, Script> {
    let zones = std::vec![zone(0, ZoneKind::Normal, 0, pages)];
    let shape = Box::leak(Box::new(Shape { zones, ..Shape::uniform(1, 64, 2) }));
    shape.boot_on(policy, Stage::for_threads(Plain))
}

fn pages(start: u64, pages: u64) -> core::ops::Range<Pfn> {
    Pfn(start)..Pfn(start + pages)
}

/// DEPOT-1: one CPU frees what the other takes, so magazines are on their way all the time, but
/// none while everything is held.
#[test]
fn who_holds_everything_finds_every_magazine_on_a_stack() {
    let pool = &boot(1 << 15, short(16));
    let (stop, passed) = (&AtomicBool::new(false), &Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            on_cpu(0);
            while !stop.load(Relaxed) {
                if passed.lock().unwrap().len() > 1000 {
                    std::thread::yield_now();
                    continue;
                }
                let got = [(); 64].map(|()| pool.alloc(Request::new(Order::ZERO)).unwrap());
                passed.lock().unwrap().extend(got);
            }
        });
        scope.spawn(move || {
            on_cpu(1);
            while !stop.load(Relaxed) {
                let got = core::mem::take(&mut *passed.lock().unwrap());
                got.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
                std::thread::yield_now();
            }
        });
        let depots = || pool.zone_ops(ZONE).depots().map(|(_, depot)| depot);
        let mut changes = 0;
        let mut changed = 0;
        for _ in 0..200_000 {
            let mut held = Vec::new();
            pool.hold_all(&mut |one| held.push(one));
            for depot in depots() {
                let (stacked, has) = depot.arrays(pool.tables.slots);
                assert_eq!(stacked, has, "a magazine is in somebody's hands");
            }
            while held.pop().is_some() {}
            let now = pool.zone_ops(ZONE).depot_changes();
            changed += u32::from(now != changes);
            changes = now;
            if changed == 100 {
                break;
            }
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        assert_eq!(changed, 100, "magazines came and went between the looks");
    });
    let rest = passed.lock().unwrap().drain(..).collect::<Vec<_>>();
    rest.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
    pool.validate().unwrap();
}

/// RANGE-2: with the zone lock taken by another, each change of a part of a range waits, and has
/// changed nothing by then.
#[test]
fn parts_of_ranges_change_under_the_zone_lock_alone() {
    type Change = fn(&Allocator<'static, Script>);
    let changes: [(&str, Change); 7] = [
        ("free of the front", |pool| pool.ranges().free(pages(64, 3)).unwrap()),
        ("free of the middle", |pool| pool.ranges().free(pages(70, 9)).unwrap()),
        ("free of many blocks", |pool| pool.ranges().free(pages(64, 41)).unwrap()),
        ("split", |pool| pool.ranges().split(pages(64, 41), Pfn(77)).unwrap()),
        ("join", |pool| pool.ranges().join(pages(64, 61), Pfn(105)).unwrap()),
        ("growth", |pool| pool.ranges().grow(pages(105, 20), 7, ANY).unwrap()),
        ("blocks", |pool| pool.ranges().into_blocks(pages(64, 32), Order::COSTLY).unwrap()),
    ];
    for (what, change) in changes {
        let pool = &boot(512, Policy::LINUX_6_18);
        pool.ranges().alloc_at(pages(64, 41), ANY).unwrap();
        pool.ranges().alloc_at(pages(105, 20), ANY).unwrap();
        let words = || pool.words()[64..132].iter().map(|word| word.load(Relaxed));
        let before: Vec<u64> = words().collect();
        let locked = pool.zone_ops(ZONE).lock();
        let waited = pool.platform().waits.load(Relaxed);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| change(pool));
            while pool.platform().waits.load(Relaxed) == waited {
                assert!(!thread.is_finished(), "{what} did not wait for the zone lock");
                std::thread::yield_now();
            }
            assert!(words().eq(before.iter().copied()), "{what} changed a word before");
            drop(locked);
        });
        assert!(!words().eq(before.iter().copied()), "{what} did nothing");
        pool.validate().unwrap();
    }
}

/// RANGE-2: two CPUs give the same range back, all of it or a part each, at the same moment.
#[test]
fn of_two_frees_of_a_range_at_once_each_page_is_freed_by_one() {
    let pool = &boot(512, Policy::ZONAL);
    let free = pool.free_pages();
    let (turn, first, freed) = (&AtomicU32::new(0), &AtomicU64::new(0), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                on_cpu(cpu);
                for round in 0..1_000_u32 {
                    // Few blocks go to the lists without the lock, many go under it.
                    let all = [3, 7, 8, 29][(round % 4) as usize];
                    meet(turn, round * 6 + 2, || {
                        if cpu == 0 {
                            let start = pool.ranges().alloc(RangeRequest::new(all).gfp(ANY));
                            first.store(start.unwrap().0, Relaxed);
                            freed.store(0, Relaxed);
                        }
                    });
                    stagger(round, cpu);
                    let start = first.load(Relaxed);
                    // Both all of it, or one of them a part.
                    let mine = match (round / 4 % 3, cpu) {
                        (1, 1) => pages(start, 2),
                        (2, 1) => pages(start + all - 2, 2),
                        _ => pages(start, all),
                    };
                    let count = mine.end.0 - mine.start.0;
                    if pool.ranges().free(mine).is_ok() {
                        freed.fetch_add(count, Relaxed);
                    }
                    meet(turn, round * 6 + 4, || {});
                    if cpu == 0 {
                        let done = freed.load(Relaxed);
                        assert!(done == all || done == 2, "{done} of {all} pages were freed");
                        if done == 2 {
                            let cut = 2 * u64::from(round / 4 % 3 == 1);
                            pool.ranges().free(pages(start + cut, all - 2)).unwrap();
                        }
                    }
                    meet(turn, round * 6 + 6, || {});
                }
            });
        }
    });
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), free);
}
