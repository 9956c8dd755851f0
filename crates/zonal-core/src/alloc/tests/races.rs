//! Threads that meet at one zone: where magazines are when all is held still (DEPOT-1), who changes
//! the words of ranges (RANGE-2, RANGE-4), and who of several frees gets a page.

use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::vec::Vec;

use super::depot::short;
use super::platform::{LISTS_ALONE, Plain, Script, Shape, Stage, meet, on_cpu, stagger, zone};
use crate::alloc::held::Kind;
use crate::alloc::range::{Owned, RangeRequest};
use crate::alloc::{Allocator, Request};
use crate::frame::{PageState, PageWord};
use crate::gfp::Gfp;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, Pfn, ZoneId, ZoneKind};

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

/// RANGE-5: blocks come apart and together under the gate of a pcp, but not while all are held.
#[test]
fn who_holds_everything_finds_each_page_in_one_block() {
    let (all, pool) = (1 << 14, &boot(1 << 14, LISTS_ALONE));
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicU32::new(0));
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            on_cpu(0);
            while !stop.load(Relaxed) {
                // Joined with its rest, and apart from it.
                for (count, apart) in [(3, false), (5, false), (7, true), (3, true)] {
                    let start = pool.ranges().alloc(RangeRequest::new(count)).unwrap().0;
                    let rest = apart.then(|| pool.alloc(Request::new(Order::ZERO)).unwrap());
                    pool.ranges().free(pages(start, count)).unwrap();
                    rest.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
                }
                rounds.fetch_add(1, Relaxed);
            }
        });
        on_cpu(1);
        let (mut seen, mut looks) = (0, 0);
        let mut wrong = None;
        while looks < 100 && wrong.is_none() && !other.is_finished() {
            let mut held = Vec::new();
            pool.hold_all(&mut |one| held.push(one));
            let out = pool.stats().handed_out_pages(&held).unwrap();
            let free = held.iter().map(|one| match &one.0 {
                Kind::Zone(locked) => locked.buddy.free_pages(),
                Kind::Pcp(closed) => u64::from(closed.count().get()),
                _ => 0,
            });
            let sum = out + free.sum::<u64>();
            wrong = (sum != all).then_some(sum);
            while held.pop().is_some() {}
            let now = rounds.load(Relaxed);
            looks += u32::from(now != seen);
            seen = now;
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        assert_eq!(wrong, None, "pages of {all}, after {looks} looks");
    });
    pool.validate().unwrap();
}

/// RANGE-2, RANGE-5: with the zone lock taken by another, each change by the core of a part of a
/// range, and of where blocks begin, waits; until then it has changed nothing but whose a block is.
#[test]
fn the_core_changes_parts_of_ranges_under_the_zone_lock() {
    type Change = fn(&Allocator<'static, Script>);
    let changes: [(&str, Change); 10] = [
        ("free of the front", |pool| pool.ranges().free(pages(64, 3)).unwrap()),
        ("free of the middle", |pool| pool.ranges().free(pages(70, 9)).unwrap()),
        ("free of many blocks", |pool| pool.ranges().free(pages(64, 41)).unwrap()),
        ("split", |pool| pool.ranges().split(pages(64, 41), Pfn(77)).unwrap()),
        ("join", |pool| pool.ranges().join(pages(64, 61), Pfn(105)).unwrap()),
        ("growth", |pool| pool.ranges().grow(pages(105, 20), 7, ANY).unwrap()),
        ("blocks", |pool| pool.ranges().into_blocks(pages(64, 32), Order::COSTLY).unwrap()),
        ("blocks of a block", |pool| {
            pool.ranges().split_block(Pfn(160), Order::COSTLY, Order::ZERO).unwrap();
        }),
        ("a block but its last page", |pool| {
            pool.ranges().from_block(Pfn(160), Order::COSTLY, 7).unwrap();
        }),
        ("a block but its last pages", |pool| {
            pool.ranges().from_block(Pfn(160), Order::COSTLY, 1).unwrap();
        }),
    ];
    for (what, change) in changes {
        let pool = &boot(512, Policy::LINUX_6_18);
        pool.ranges().alloc_at(pages(64, 41), ANY).unwrap();
        pool.ranges().alloc_at(pages(105, 20), ANY).unwrap();
        pool.ranges().alloc_at(pages(160, 8), ANY).unwrap();
        pool.ranges().into_blocks(pages(160, 8), Order::COSTLY).unwrap();
        let words = || {
            let words = pool.words()[64..168].iter().map(|word| PageWord(word.load(Relaxed)));
            words.enumerate().map(|(at, word)| match at {
                ..96 => word.0,
                // A block may be on its way to be changed, as large as it is.
                _ => u64::from(word.is_held()) << 32 | u64::from(word.order_bits()),
            })
        };
        let before: Vec<u64> = words().collect();
        let locked = pool.zone_ops(ZONE).lock();
        let waited = pool.platform().waits.load(Relaxed);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| change(pool));
            while pool.platform().waits.load(Relaxed) == waited {
                assert!(!thread.is_finished(), "{what} did not wait for the zone lock");
                std::thread::yield_now();
            }
            assert!(words().eq(before.iter().copied()), "{what} changed words before");
            drop(locked);
        });
        assert!(!words().eq(before), "{what} did nothing");
        pool.validate().unwrap();
    }
}

/// RANGE-2: two CPUs give the same range back, all of it or a part each, at the same moment.
#[test]
fn of_two_frees_of_a_range_at_once_each_page_is_freed_by_one() {
    // Few blocks go to the lists without the lock, many go under it.
    two_frees_at_once(&boot(512, Policy::ZONAL), [3, 7, 8, 29]);
}

/// RANGE-6, PARK-3: the same where the CPU that took the range keeps it, by its first word alone.
#[test]
fn of_two_frees_of_a_range_that_a_cpu_keeps_each_page_is_freed_by_one() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 512, 2)));
        for sizes in [[7; 4], [5, 6, 3, 7]] {
            let script = Script { gates: Some(true), ..Stage::for_threads(Plain) };
            two_frees_at_once(&shape.boot_on(policy, script), sizes);
        }
    }
}

fn two_frees_at_once(pool: &Allocator<'static, Script>, sizes: [u64; 4]) {
    let free = pool.free_pages();
    let (turn, first, freed) = (&AtomicU32::new(0), &AtomicU64::new(0), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                on_cpu(cpu);
                for round in 0..1_000_u32 {
                    let all = sizes[(round % 4) as usize];
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

/// RANGE-4: one CPU gives a range back that another makes longer at the same moment, by a growth or
/// a join. Nobody is told that the range is longer while it is gone.
#[test]
fn a_range_that_is_freed_while_it_becomes_longer_leaves_no_block_without_its_front() {
    let pool = &boot(512, Policy::ZONAL);
    let free = pool.free_pages();
    let ranges = pool.ranges();
    let (turn, freed, grown) = (&AtomicU32::new(0), &AtomicBool::new(false), &AtomicU32::new(0));
    let mut both = 0;
    std::thread::scope(|scope| {
        let grower = scope.spawn(move || {
            on_cpu(1);
            for round in 0..4_000_u32 {
                meet(turn, round * 4 + 2, || {});
                stagger(round, 1);
                let done = match round % 2 {
                    0 => ranges.grow(pages(64, 4), 4, ANY).is_ok(),
                    _ => ranges.join(pages(64, 8), Pfn(68)).is_ok(),
                };
                grown.store(u32::from(done), Relaxed);
                meet(turn, round * 4 + 4, || {});
            }
        });
        on_cpu(0);
        for round in 0..4_000_u32 {
            // One block: such a range goes back without the zone lock.
            ranges.alloc_at(pages(64, 4), ANY).unwrap();
            let joins = round % 2 == 1;
            if joins {
                ranges.alloc_at(pages(68, 4), ANY).unwrap();
            }
            meet(turn, round * 4 + 2, || {});
            stagger(round, 0);
            freed.store(ranges.free(pages(64, 4)).is_ok(), Relaxed);
            meet(turn, round * 4 + 4, || {});
            let (freed, grown) = (freed.load(Relaxed), grown.load(Relaxed) == 1);
            both += u32::from(freed && grown);
            let behind = PageWord::from_bits(pool.words()[68].load(Relaxed));
            let front = PageWord::from_bits(pool.words()[64].load(Relaxed)).state();
            let has_front = matches!(front, PageState::Range { .. });
            assert!(has_front || !behind.continues_range(), "round {round}");
            assert_eq!(has_front, !freed, "round {round}");
            let left = [(has_front, 64), (joins || grown, 68)];
            for (_, start) in left.into_iter().filter(|(is_left, _)| *is_left) {
                ranges.free(pages(start, 4)).unwrap();
            }
        }
        grower.join().unwrap();
    });
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), free);
    std::eprintln!("freed, and longer: {both} rounds");
}

/// What is left of ranges and blocks of the pages goes back. No block may continue a range that is
/// not in front of it.
fn free_what_is_left(pool: &Allocator<'static, Script>, frames: core::ops::Range<u64>, what: &str) {
    let (mut at, mut range) = (frames.start, None::<core::ops::Range<Pfn>>);
    let free = |range: Option<core::ops::Range<Pfn>>| {
        range.map_or(Ok(()), |range| pool.ranges().free(range)).unwrap();
    };
    while at < frames.end {
        let word = PageWord::from_bits(pool.words()[at as usize].load(Relaxed)).state();
        let (PageState::Range { order, .. } | PageState::Allocated { order, .. }) = word else {
            free(range.take());
            at += 1;
            continue;
        };
        let block = pages(at, order.pages());
        at = block.end.0;
        range = match (word, range.take()) {
            (PageState::Range { first: false, .. }, before) => {
                let before = before.unwrap_or_else(|| panic!("{what}: no front at {block:?}"));
                Some(before.start..block.end)
            }
            (PageState::Range { .. }, before) => {
                free(before);
                Some(block)
            }
            (_, before) => {
                free(before);
                pool.free(block.start, order).unwrap();
                None
            }
        };
    }
    free(range);
}

type Change = fn(&Allocator<'static, Script>) -> bool;

/// Changes of the rest of a range that has the blocks 72 to 79 and 80 to 87.
const CHANGES: [(&str, Change); 6] = [
    ("growth", |pool| pool.ranges().grow(pages(80, 8), 8, ANY).is_ok()),
    ("join", |pool| pool.ranges().join(pages(80, 16), Pfn(88)).is_ok()),
    ("split", |pool| pool.ranges().split(pages(80, 8), Pfn(86)).is_ok()),
    ("free of the end", |pool| pool.ranges().free(pages(84, 4)).is_ok()),
    ("free of the middle", |pool| pool.ranges().free(pages(82, 2)).is_ok()),
    ("blocks", |pool| pool.ranges().into_blocks(pages(84, 4), Order::ZERO).is_ok()),
];

/// RANGE-4: one CPU gives the front of a range back whose rest another changes at the same moment.
/// Both are done, and no block continues a range that is gone.
#[test]
fn the_front_of_a_range_is_freed_while_the_rest_of_it_changes() {
    let pool = &boot(512, Policy::ZONAL);
    let free = pool.free_pages();
    let (turn, done, rounds) = (&AtomicU32::new(0), &AtomicBool::new(false), 3_000_u32);
    let (begun, wrong) = (&AtomicU32::new(0), &Mutex::new(None));
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            on_cpu(1);
            for round in 0..rounds {
                let (what, change) = CHANGES[round as usize % CHANGES.len()];
                meet(turn, round * 4 + 2, || {});
                while begun.load(Relaxed) <= round {
                    std::thread::yield_now();
                }
                stagger(round, 1);
                if !change(pool) {
                    *wrong.lock().unwrap() = Some((what, round));
                }
                done.store(true, Relaxed);
                meet(turn, round * 4 + 4, || {});
                if wrong.lock().unwrap().is_some() {
                    break;
                }
            }
        });
        on_cpu(0);
        for round in 0..rounds {
            let (what, _) = CHANGES[round as usize % CHANGES.len()];
            done.store(false, Relaxed);
            pool.ranges().alloc_at(pages(72, 16), ANY).unwrap();
            if what == "join" {
                pool.ranges().alloc_at(pages(88, 8), ANY).unwrap();
            }
            meet(turn, round * 4 + 2, || {});
            // The free that takes no lock, again and again: the range goes on all the time.
            let front = Owned::new(pool.tables(), pages(72, 8)).unwrap();
            begun.store(round + 1, Relaxed);
            let mut tries = 0;
            while round % 4 != 0 && !done.load(Relaxed) && wrong.lock().unwrap().is_none() {
                tries += 1;
                (tries % 64 == 0).then(std::thread::yield_now);
                if pool.ranges().free_to_lists(&front) {
                    *wrong.lock().unwrap() = Some((what, round));
                }
            }
            stagger(round, 0);
            if wrong.lock().unwrap().is_none() {
                pool.ranges().free(pages(72, 8)).unwrap();
            }
            meet(turn, round * 4 + 4, || {});
            if wrong.lock().unwrap().is_some() {
                break;
            }
            free_what_is_left(pool, 72..96, what);
        }
        other.join().unwrap();
    });
    assert_eq!(*wrong.lock().unwrap(), None, "the front was freed as all of a range");
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), free);
}

/// How a page is freed by one who may not be its only owner.
#[derive(Clone, Copy)]
enum By {
    Single,
    /// The first, or the last, of a bulk free.
    Bulk,
    Backwards,
    /// As pages in a row.
    Range,
}

/// One CPU frees pages one by one or in bulk, in any way, while another frees the same pages; what
/// was freed is drained and taken again by a third at the same time. Each free that says so has
/// freed a page that nobody else has freed, and no page has two owners.
#[test]
fn of_frees_of_one_page_in_every_way_at_once_one_has_it() {
    const PAGES: usize = 256;
    // Large enough that the lists take pages without a decision, which is the bulk frees' own way.
    let pool = &boot(1 << 15, Policy::ZONAL);
    let free = pool.free_pages();
    let ways = [By::Single, By::Bulk, By::Backwards, By::Range];
    let shared: &[AtomicU64; PAGES] = &core::array::from_fn(|_| AtomicU64::new(0));
    let (turn, freed) = (&AtomicU32::new(0), &AtomicU64::new(0));
    let free_by = |way: By, first: usize| {
        let mut all = core::array::from_fn::<_, PAGES, _>(|i| Pfn(shared[i].load(Relaxed)));
        let bulk = |all: &[Pfn]| match pool.free_bulk(all, Order::ZERO) {
            Ok(()) => all.len(),
            Err((done, _)) => done,
        };
        match way {
            By::Single => {
                // From the end: whoever begins at the front is met in the middle.
                let each = (0..PAGES).map(|i| all[(first + PAGES - i) % PAGES]);
                each.filter(|pfn| pool.free(*pfn, Order::ZERO).is_ok()).count()
            }
            By::Range => {
                let each =
                    all.iter().filter(|pfn| pool.ranges().free(**pfn..Pfn(pfn.0 + 1)).is_ok());
                each.count()
            }
            By::Bulk => bulk(&all),
            By::Backwards => {
                all.reverse();
                bulk(&all)
            }
        }
    };
    std::thread::scope(|scope| {
        for cpu in 0..2_usize {
            let free_by = &free_by;
            scope.spawn(move || {
                on_cpu(cpu as u32);
                for round in 0..600_u32 {
                    meet(turn, round * 6 + 2, || {
                        if cpu == 0 {
                            let mut got = [Pfn(0); PAGES];
                            let request = Request::new(Order::ZERO).gfp(ANY);
                            assert_eq!(pool.alloc_bulk(request, &mut got), Ok(PAGES));
                            // In a row, as far as they are.
                            got.sort();
                            got.iter()
                                .zip(shared)
                                .for_each(|(pfn, cell)| cell.store(pfn.0, Relaxed));
                            freed.store(0, Relaxed);
                        }
                    });
                    stagger(round, cpu as u32);
                    let way = ways[(round as usize / if cpu == 0 { 1 } else { 4 }) % 4];
                    let done = free_by(way, PAGES - 1);
                    freed.fetch_add(done as u64, Relaxed);
                    // Drained at once, while the other may be at the same pages.
                    pool.drain(ZONE, CpuId(cpu as u32));
                    meet(turn, round * 6 + 4, || {});
                    if cpu == 0 {
                        // What a bulk free did not come to, since it stops at the first refusal.
                        let done = freed.load(Relaxed) as usize + free_by(By::Single, 0);
                        assert_eq!(done, PAGES, "round {round}");
                    }
                    meet(turn, round * 6 + 6, || {});
                }
            });
        }
    });
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), free);
    assert_eq!(pool.zone_stats(ZONE).double_frees, 0, "no page was on two lists");
}
