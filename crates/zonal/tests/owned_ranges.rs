//! Owned ranges: of any thread, in parts, and the last of them takes a pool without handles.

mod support;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use support::refused::later_drops_are_told;
use support::{Rng, alone, exit_now, is_mapped, wait_child};
use zonal::{CpuMap, FreeFault, Gfp, Obstacle, Order, OwnedRange, PAGE_SIZE, Pool, RangeRefusal};

const MIB: usize = 1 << 20;

fn pools() -> Vec<(&'static str, Pool)> {
    let small = || Pool::builder().size(16 * MIB);
    let made = [
        ("default", small()),
        ("locks", small().rseq(false)),
        ("budget", small().budget(12 * MIB)),
        ("poison", small().poison(true)),
        ("deferred", Pool::builder().size(256 * MIB).deferred(true)),
        ("two nodes", small().fake_nodes(2, CpuMap::RoundRobin)),
    ];
    made.into_iter().map(|(name, builder)| (name, builder.build().unwrap())).collect()
}

fn base(pool: &Pool) -> usize {
    pool.base() as usize
}

fn range(pool: &Pool, pages: usize) -> OwnedRange {
    pool.ranges().alloc(pages).unwrap().into_owned()
}

#[test]
fn ranges_go_to_any_thread_and_keep_their_pool() {
    let _alone = alone();
    fn travels<T: Send + Sync + 'static>() {}
    travels::<OwnedRange>();
    for (name, pool) in pools() {
        let start = base(&pool);
        let threads: Vec<_> = [3, 5, 100, 700]
            .map(|pages| {
                let pool = pool.clone();
                std::thread::spawn(move || {
                    let mut range = range(&pool, pages);
                    range.fill(pages as u8);
                    range
                })
            })
            .into();
        drop(pool);
        let ranges: Vec<OwnedRange> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        for range in &ranges {
            assert!(range.iter().all(|byte| *byte == range.pages() as u8), "{name}");
        }
        assert!(is_mapped(start), "{name}");
        drop(ranges);
        assert!(!is_mapped(start), "{name}: the last range takes the pool");
    }
}

/// Random programs over the ranges of a pool that loses its handles on the way. The pool is there
/// as long as one page is, and not longer; no two ranges share a page.
#[test]
fn ranges_come_apart_grow_and_shrink_with_and_without_handles() {
    let _alone = alone();
    for seed in 0..8 {
        for (name, pool) in pools() {
            let mut rng = Rng::new(seed);
            let (start, mut tag) = (base(&pool), 0u8);
            let mut handles = vec![pool.clone(), pool];
            let mut held: Vec<(OwnedRange, u8)> = Vec::new();
            for pages in [1, 2, 3, 7, 40, 300, 513] {
                tag += 1;
                let mut range = range(&handles[0], pages);
                range.fill(tag);
                held.push((range, tag));
            }
            while !held.is_empty() {
                assert!(is_mapped(start), "{name}, seed {seed}: {} left", held.len());
                if rng.below(6) == 0 {
                    handles.pop();
                }
                let (mut range, mark) = held.swap_remove(rng.below(held.len()));
                assert!(range.iter().all(|byte| *byte == mark), "{name}, seed {seed}");
                let pages = range.pages();
                match rng.below(5) {
                    0 if range.try_grow(rng.below(4) + 1).is_ok() => {
                        range.fill(mark);
                        held.push((range, mark));
                    }
                    1 => {
                        range.shrink(rng.below(pages + 1)).unwrap();
                        held.push((range, mark));
                    }
                    2 if pages > 1 => {
                        let (front, back) = range.split(rng.below(pages - 1) + 1).unwrap();
                        held.extend([(front, mark), (back, mark)]);
                    }
                    3 => {
                        let from = rng.below(pages);
                        let to = from + 1 + rng.below(pages - from);
                        let (front, back) = range.free_part(from..to).unwrap();
                        held.extend([front, back].into_iter().flatten().map(|rest| (rest, mark)));
                    }
                    _ => std::thread::spawn(move || drop(range)).join().unwrap(),
                }
            }
            if let Some(pool) = handles.pop() {
                drop(handles);
                pool.validate().unwrap();
                assert_eq!((pool.misuses(), pool.poison_hits()), (0, 0), "{name}, seed {seed}");
                // A pool that grows has pages that are nobody's yet.
                let free = pool.free_page_count() as usize * PAGE_SIZE;
                assert!(free == pool.bytes() || name == "budget" || name == "deferred");
                drop(pool);
            }
            assert!(!is_mapped(start), "{name}, seed {seed}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_frees_the_range_or_leaves_it() {
    let _alone = alone();
    for is_orphan in [false, true] {
        for wrong in [0, 5, usize::MAX] {
            let pool = Pool::builder().size(16 * MIB).build().unwrap();
            let start = base(&pool);
            let (first, other) = (range(&pool, 5), range(&pool, 5));
            let mut grows = range(&pool, 4);
            let end = grows.as_ptr().wrapping_add(grows.len());
            let behind = pool.ranges().alloc_at(end, 1, Gfp::KERNEL).ok().map(|r| r.into_owned());
            let kept = (!is_orphan).then_some(pool);
            assert_eq!(first.split(wrong).unwrap_err().details(), FreeFault::NoPages);
            assert_eq!(other.free_part(wrong..wrong).unwrap_err().details(), FreeFault::NoPages);
            if behind.is_some() {
                let why = grows.try_grow(1).unwrap_err().why();
                assert!(matches!(why, RangeRefusal::InTheWay(_, Obstacle::Held(..))), "{why:?}");
            }
            grows.try_grow(usize::MAX / PAGE_SIZE).unwrap_err();
            grows.try_grow(0).unwrap_err();
            assert_eq!(grows.pages(), 4);
            grows.fill(1);
            assert!(is_mapped(start));
            drop((behind, grows));
            if let Some(pool) = kept {
                pool.validate().unwrap();
                assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
            }
            assert!(!is_mapped(start));
        }
    }
}

#[test]
fn ranges_change_between_borrowed_owned_and_raw_and_know_their_pool() {
    let _alone = alone();
    let [pool, other] = [(); 2].map(|()| Pool::builder().size(16 * MIB).build().unwrap());
    let mut owned = range(&pool, 3);
    owned[5] = 5;
    assert!(owned.is_of(&pool) && owned.is_of(&pool.clone()) && !owned.is_of(&other));
    let owned = owned.into_range(&other).unwrap_err();
    let mut borrowed = owned.into_range(&pool).unwrap();
    borrowed.try_grow(1).unwrap();
    assert_eq!((borrowed[5], borrowed.pages(), borrowed.len()), (5, 4, 4 * PAGE_SIZE));
    let (start, pages) = borrowed.into_owned().into_raw();
    let third = std::ptr::NonNull::new(start.as_ptr().wrapping_add(3 * PAGE_SIZE)).unwrap();
    // SAFETY: (1) three of the four pages; (2) nobody else has them.
    let front = unsafe { OwnedRange::from_raw(&pool, start, pages - 1) };
    // SAFETY: (1) the fourth; (2) as above.
    let back = unsafe { OwnedRange::from_raw(&pool, third, 1) };
    assert_eq!((front.as_ptr(), front.pages(), back.pages()), (start.as_ptr().cast_const(), 3, 1));
    assert!(format!("{front:?}").contains("pages: 3"));
    drop((front, back));
    assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
}

#[test]
fn a_pool_goes_once_while_threads_free_and_cut_ranges_at_full_speed() {
    let _alone = alone();
    for round in 0..30 {
        let pool = Pool::builder().size(32 * MIB).rseq(round % 3 != 0).build().unwrap();
        let start = base(&pool);
        let line = Arc::new(Barrier::new(5));
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let (pool, line) = (pool.clone(), Arc::clone(&line));
                std::thread::spawn(move || {
                    let mut rng = Rng::new(round * 8 + number);
                    let mut held: Vec<OwnedRange> = Vec::new();
                    for _ in 0..100 {
                        let range = pool.ranges().alloc(rng.below(12) + 1);
                        held.extend(range.map(|range| range.into_owned()));
                    }
                    drop(pool);
                    line.wait();
                    while !held.is_empty() {
                        let mut range = held.swap_remove(rng.below(held.len()));
                        match rng.below(4) {
                            0 => _ = range.try_grow(1),
                            1 => range.shrink(range.pages() / 2).unwrap(),
                            2 if range.pages() > 1 => {
                                let (front, back) = range.split(1).unwrap();
                                drop(front);
                                drop(back);
                            }
                            _ => drop(range),
                        }
                    }
                })
            })
            .collect();
        line.wait();
        drop(pool);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!is_mapped(start), "round {round}");
    }
}

#[test]
fn a_second_drop_is_told_with_and_without_handles() {
    let _alone = alone();
    later_drops_are_told(
        |pool| range(pool, 5),
        |pool| {
            let (first, pages) = range(pool, 9).into_raw();
            // SAFETY: not kept, which is what is tested: the later drops are refused.
            [(); 3].map(|()| unsafe { OwnedRange::from_raw(pool, first, pages) })
        },
    );
}

#[test]
fn a_forked_child_cuts_and_frees_its_ranges_of_a_pool_without_handles() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).build().unwrap();
    let start = base(&pool);
    let mine: Vec<OwnedRange> = (1..8).map(|pages| range(&pool, pages)).collect();
    drop(pool);
    // SAFETY: (1) the child calls nothing but the pool and `exit_now`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        for mut range in mine {
            range.shrink(range.pages() / 2).unwrap();
        }
        exit_now(i32::from(is_mapped(start)));
    }
    assert_eq!(wait_child(child, Duration::from_secs(60)), Some(0));
    assert!(is_mapped(start), "the parent's is another");
    drop(mine);
    assert!(!is_mapped(start));
}

/// What poison keeps out of use is nobody's: a pool without handles does not wait for it.
#[test]
fn a_page_that_was_written_to_after_its_free_keeps_no_pool() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).poison(true).build().unwrap();
    let start = base(&pool);
    let written = {
        let mut pages = pool.alloc(Order::ZERO).unwrap();
        pages.as_mut_ptr()
    };
    // SAFETY: not kept, which is what poison is to find: the page is free.
    unsafe { written.write(1) };
    let mut pages = Vec::new();
    while let Ok(page) = pool.alloc(Order::ZERO) {
        pages.push(page.into_owned());
    }
    assert!(pages.len() > 1000 && pages.iter().all(|page| page.as_ptr() != written));
    assert_eq!(pool.poison_hits(), 1);
    drop(pool);
    assert!(is_mapped(start));
    drop(pages);
    assert!(!is_mapped(start), "one page is out of use and keeps nothing");
}
