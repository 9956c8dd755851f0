//! Owned pages and handles: whoever goes last takes the pool with it, and nobody before.

mod support;

use std::sync::{Arc, Barrier};

use support::refused::later_drops_are_told;
use support::{Rng, alone, exit_now, is_mapped, wait_child};
use zonal::{Gfp, Order, OwnedPages, PAGE_SIZE, Pages, Pool};

const MIB: usize = 1 << 20;

fn base(pool: &Pool) -> usize {
    pool.base() as usize
}

/// Pools as they may be, each with nothing handed out.
fn pools() -> Vec<(&'static str, Pool)> {
    let small = || Pool::builder().size(16 * MIB);
    let made = [
        ("default", small()),
        ("locks", small().rseq(false)),
        ("no worker", small().refresh_every(None)),
        ("budget", small().budget(8 * MIB)),
        ("poison", small().poison(true)),
        ("deferred", Pool::builder().size(256 * MIB).deferred(true)),
        ("two nodes", small().fake_nodes(2, zonal::CpuMap::RoundRobin)),
    ];
    made.into_iter().map(|(name, builder)| (name, builder.build().unwrap())).collect()
}

#[test]
fn owned_pages_and_handles_go_to_any_thread() {
    let _alone = alone();
    fn travels<T: Send + Sync + 'static>() {}
    travels::<OwnedPages>();
    travels::<Pool>();
    for (name, pool) in pools() {
        let start = base(&pool);
        let threads: Vec<_> = (0..4u8)
            .map(|number| {
                let pool = pool.clone();
                std::thread::spawn(move || {
                    let mut page = pool.alloc(Order::ZERO).unwrap().into_owned();
                    page.fill(number);
                    page
                })
            })
            .collect();
        drop(pool);
        let pages: Vec<OwnedPages> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        for (number, page) in pages.iter().enumerate() {
            assert!(page.iter().all(|byte| *byte == number as u8), "{name}");
        }
        assert!(is_mapped(start), "{name}");
        drop(pages);
        assert!(!is_mapped(start), "{name}: the last page takes the pool");
    }
}

#[test]
fn the_last_of_handles_and_blocks_takes_the_pool_in_any_order() {
    let _alone = alone();
    let orders = [0, 0, 1, 3, 9, 10, 0].map(|order| Order::new(order).unwrap());
    for seed in 0..16 {
        for (name, pool) in pools() {
            let mut rng = Rng::new(seed);
            let start = base(&pool);
            // Ends of life: handles and blocks.
            let mut left: Vec<Box<dyn Send>> = Vec::new();
            for order in orders {
                if let Ok(block) = pool.alloc(order) {
                    left.push(Box::new(block.into_owned()));
                }
            }
            left.extend([pool.clone(), pool].map(|pool| Box::new(pool) as Box<dyn Send>));
            while !left.is_empty() {
                assert!(is_mapped(start), "{name}, seed {seed}: {} left", left.len());
                let going = left.swap_remove(rng.below(left.len()));
                // Poison is filled in, and each kind of free happens, on other threads too.
                match rng.below(2) {
                    0 => drop(going),
                    _ => std::thread::spawn(move || drop(going)).join().unwrap(),
                }
            }
            assert!(!is_mapped(start), "{name}, seed {seed}");
        }
    }
}

/// The end of the last handle meets frees of all kinds.
#[test]
fn a_pool_goes_once_while_threads_free_at_full_speed() {
    let _alone = alone();
    for round in 0..60 {
        let builder = Pool::builder().size(32 * MIB).rseq(round % 3 != 0);
        let pool = builder.build().unwrap();
        let start = base(&pool);
        let line = Arc::new(Barrier::new(5));
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let (pool, line) = (pool.clone(), Arc::clone(&line));
                std::thread::spawn(move || {
                    let mut rng = Rng::new(round * 8 + number);
                    let mut held: Vec<OwnedPages> = Vec::new();
                    for _ in 0..200 {
                        let order = Order::new([0, 0, 0, 1, 2, 3, 4][rng.below(7)]).unwrap();
                        held.extend(pool.alloc(order).map(Pages::into_owned));
                    }
                    drop(pool);
                    line.wait();
                    while !held.is_empty() {
                        let at = rng.below(held.len());
                        drop(held.swap_remove(at));
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
fn a_handle_more_changes_nothing_and_the_first_may_go() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).build().unwrap();
    let other = pool.clone();
    let page = pool.alloc(Order::ZERO).unwrap().into_owned();
    drop(pool);
    assert!(other.reclaims_in_background() || other.misuses() == 0);
    let (start, order) = other.alloc(Order::ZERO).unwrap().into_raw();
    // SAFETY: (1) handed out above; (2) nobody else has it.
    drop(unsafe { OwnedPages::from_raw(&other, start, order) });
    drop(page);
    assert_eq!(other.free_page_count() as usize * PAGE_SIZE, other.bytes());
    other.validate().unwrap();
}

#[test]
fn blocks_change_between_borrowed_and_owned_and_know_their_pool() {
    let _alone = alone();
    let [pool, other] = [(); 2].map(|()| Pool::builder().size(16 * MIB).build().unwrap());
    let mut page = pool.alloc_zeroed(Order::new(2).unwrap()).unwrap().into_owned();
    page[5] = 5;
    assert!(page.is_of(&pool) && page.is_of(&pool.clone()) && !page.is_of(&other));
    let page = page.into_pages(&other).unwrap_err();
    let page: Pages<'_> = page.into_pages(&pool).unwrap();
    assert_eq!((page[5], page.len(), page.order().get()), (5, 4 * PAGE_SIZE, 2));
    let (start, order) = page.into_owned().into_raw();
    // SAFETY: (1) handed out above; (2) nobody else has it.
    let page = unsafe { OwnedPages::from_raw(&pool, start, order) };
    assert_eq!(page.as_ptr(), start.as_ptr());
    drop(page);
    assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
}

#[test]
fn a_drop_that_is_refused_is_told_with_and_without_handles() {
    let _alone = alone();
    let page = |pool: &Pool| pool.alloc(Order::ZERO).unwrap().into_owned();
    later_drops_are_told(page, |pool| {
        let (page, order) = pool.alloc(Order::ZERO).unwrap().into_raw();
        // SAFETY: not kept, which is what is tested: the later drops are refused, and nobody uses
        // the memory.
        [(); 3].map(|()| unsafe { OwnedPages::from_raw(pool, page, order) })
    });
}

#[test]
fn raw_blocks_alone_keep_no_pool() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).build().unwrap();
    let start = base(&pool);
    pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap();
    std::mem::forget(pool.alloc(Order::ZERO).unwrap());
    drop(pool);
    assert!(!is_mapped(start));
}

#[test]
fn a_forgotten_owned_block_keeps_the_memory_and_nothing_else() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).build().unwrap();
    let start = base(&pool);
    let page = pool.alloc(Order::ZERO).unwrap().into_owned();
    let kept: &'static mut [u8] = {
        let (start, order) = page.into_raw();
        // SAFETY: (1) the block is handed out for good, and its pool stays with it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), order.bytes()) }
    };
    drop(pool);
    kept.fill(7);
    assert!(is_mapped(start) && kept.iter().all(|byte| *byte == 7));
}

/// A child has the blocks of the thread that forked; those of others stay handed out there.
#[test]
fn a_forked_child_frees_its_blocks_of_a_pool_without_handles() {
    let _alone = alone();
    let pool = Pool::builder().size(16 * MIB).build().unwrap();
    let start = base(&pool);
    let mine: Vec<_> = (0..8).map(|_| pool.alloc(Order::ZERO).unwrap().into_owned()).collect();
    drop(pool);
    // SAFETY: (1) the child calls nothing but the pool and `exit_now`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(mine);
        exit_now(i32::from(is_mapped(start)));
    }
    assert_eq!(wait_child(child, std::time::Duration::from_secs(60)), Some(0));
    assert!(is_mapped(start), "the parent's is another");
    drop(mine);
    assert!(!is_mapped(start));
}

/// What takes buffers of others (Arrow, thread pools) may ask for this.
#[test]
fn pools_and_their_pages_may_be_seen_after_a_panic() {
    fn may<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    may::<Pool>();
    may::<zonal::Pages<'_>>();
    may::<OwnedPages>();
    may::<zonal::PageRange<'_>>();
    may::<zonal::OwnedRange>();
    may::<zonal::View<'_>>();
    may::<zonal::Ranges<'_>>();
    may::<zonal::HotPages<'_>>();
    may::<zonal::Resident>();
    may::<zonal::adapt::PageBuf>();
    may::<zonal::buffers::BufferPool>();
    may::<zonal::buffers::Buffer>();
    may::<zonal::reclaim::Registration>();
}
