//! Requests that fail on purpose: which, how many, and that nothing is lost where one does.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use zonal::reclaim::{Scanned, Shrinker};
use zonal::{FailAlloc, Gfp, NodeId, Order, Pool, Refusal, Request};

const PAGES: u64 = 16 * 256;

fn pool(rule: FailAlloc) -> Pool {
    // No other thread that allocates.
    let builder = Pool::builder().size(16 << 20).refresh_every(None).background_reclaim(false);
    builder.fail_alloc(rule).build().unwrap()
}

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

/// Which of a hundred requests fail, from 1 on.
fn failed(pool: &Pool, gfp: Gfp, order: Order) -> Vec<u64> {
    (1..=100).filter(|_| pool.alloc_with(Request::new(order).gfp(gfp)).is_err()).collect()
}

#[test]
fn the_nth_each_so_many_and_so_many_at_most() {
    assert_eq!(failed(&pool(FailAlloc::nth(7)), Gfp::KERNEL, Order::ZERO), [7]);
    assert_eq!(failed(&pool(FailAlloc::every(30)), Gfp::KERNEL, Order::ZERO), [30, 60, 90]);
    let some = FailAlloc::every(10).times(3);
    assert_eq!(failed(&pool(some), Gfp::KERNEL, Order::ZERO), [10, 20, 30]);
    assert_eq!(failed(&pool(FailAlloc::never()), Gfp::KERNEL, Order::ZERO), []);
    assert_eq!(failed(&pool(FailAlloc::every(1)), Gfp::KERNEL, Order::ZERO).len(), 100);
    // Thirty pages in blocks of four pass while more than a block is left of them: 30 to 2.
    let late = FailAlloc::every(1).after_pages(30);
    assert_eq!(failed(&pool(late), Gfp::KERNEL, order(2))[0], 8);
}

#[test]
fn a_seed_says_which_and_the_share_is_about_right() {
    let drawn = |seed| failed(&pool(FailAlloc::random(20, seed)), Gfp::KERNEL, Order::ZERO);
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    // Of 100 draws at 20 %; eight standard deviations are 32.
    assert!((1..=52).contains(&drawn(3).len()), "{:?}", drawn(3));
}

#[test]
fn orders_and_flags_are_chosen() {
    let pool = pool(FailAlloc::never());
    let fails = |rule, gfp, order| {
        assert!(pool.set_fail_alloc(rule));
        !failed(&pool, gfp, order).is_empty()
    };
    let all = FailAlloc::every(1);
    assert!(fails(all.orders(order(1), order(3)), Gfp::KERNEL, order(3)));
    assert!(!fails(all.orders(order(1), order(3)), Gfp::KERNEL, order(0)));
    assert!(!fails(all.orders(order(1), order(3)), Gfp::KERNEL, order(4)));
    assert!(fails(all.only(Gfp::HIGH), Gfp::ATOMIC, order(0)));
    assert!(!fails(all.only(Gfp::HIGH), Gfp::NOWAIT, order(0)));
    assert!(fails(all.spare(Gfp::DIRECT_RECLAIM), Gfp::NOWAIT, order(0)));
    assert!(!fails(all.spare(Gfp::DIRECT_RECLAIM), Gfp::KERNEL, order(0)));
    assert!(!fails(all, Gfp::KERNEL | Gfp::NOFAIL, order(0)));
    assert!(!fails(all.spare(Gfp::HIGH), Gfp::KERNEL | Gfp::NOFAIL, order(0)));
    let before = pool.fail_counts();
    assert!(fails(FailAlloc::every(3).orders(order(0), order(0)), Gfp::KERNEL, order(0)));
    failed(&pool, Gfp::KERNEL, order(1));
    let after = pool.fail_counts();
    assert_eq!((after.asked - before.asked, after.failed - before.failed), (100, 33));
    let error = {
        pool.set_fail_alloc(all);
        pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap_err()
    };
    assert_eq!(error.details().why, Refusal::Injected);
    assert!(error.to_string().contains("it was to fail"), "{error}");
}

#[test]
fn a_pool_without_the_option_cannot_be_told() {
    let pool = Pool::builder().size(16 << 20).build().unwrap();
    assert!(!pool.set_fail_alloc(FailAlloc::every(1)));
    pool.alloc(Order::ZERO).unwrap();
    assert_eq!(pool.fail_counts(), Default::default());
}

fn free(pool: &Pool, page: NonNull<u8>, order: Order) {
    // SAFETY: (1) the caller owns it, and does not use it any more.
    unsafe { pool.free_pages(page, order) }.unwrap();
}

/// Requests by every call that makes one; what fails is done without.
fn every_path(pool: &Pool) {
    let single = pool.alloc_pages(Order::ZERO, Gfp::KERNEL);
    let raw = NonNull::new(pool.alloc_raw(order(2), Gfp::ATOMIC));
    let zeroed = pool.alloc_zeroed(order(1));
    if let Ok(zeroed) = &zeroed {
        assert!(zeroed.iter().all(|byte| *byte == 0));
    }
    let mut owned: Vec<_> = (0..3).filter_map(|_| pool.alloc(order(3)).ok()).collect();
    if let Some(pages) = owned.first_mut() {
        pages[0] = 1;
    }
    let node = pool.alloc_with(Request::new(Order::ZERO).on(NodeId(0)).gfp(Gfp::NOWAIT));
    let mut bulk = [std::ptr::null_mut(); 40];
    let got = pool.alloc_bulk(Gfp::KERNEL, &mut bulk).unwrap_or(0);
    // SAFETY: (1) the pages are ours.
    unsafe { pool.free_bulk(&bulk[..got], Order::ZERO) }.unwrap();
    let got = pool.alloc_bulk(Gfp::KERNEL | Gfp::ZERO, &mut bulk[..5]).unwrap_or(0);
    // SAFETY: (1) the pages are ours.
    unsafe { pool.free_bulk(&bulk[..got], Order::ZERO) }.unwrap();
    if let Ok(page) = single {
        free(pool, page, Order::ZERO);
    }
    if let Some(block) = raw {
        free(pool, block, order(2));
    }
    drop((zeroed, owned, node));
}

#[test]
fn a_failure_at_any_request_of_any_path_loses_no_page() {
    let pool = pool(FailAlloc::never());
    every_path(&pool);
    let requests = pool.fail_counts().asked;
    assert_eq!(requests, 9);
    for nth in 1..=requests + 1 {
        let before = pool.fail_counts().failed;
        pool.set_fail_alloc(FailAlloc::nth(nth));
        every_path(&pool);
        assert_eq!(pool.fail_counts().failed - before, u64::from(nth <= requests), "{nth}");
        assert_eq!(pool.free_page_count(), PAGES, "{nth}");
        pool.validate().unwrap();
    }
}

/// A consumer that allocates while it gives pages up, and fails to.
#[test]
fn a_failure_inside_a_consumer_loses_no_page() {
    for nth in 1..30 {
        let pool = Arc::new(pool(FailAlloc::never()));
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (counted, scanned, owner) = (kept.clone(), kept.clone(), Arc::downgrade(&pool));
        let shrinker = Shrinker::new(
            "allocates",
            move |_| counted.lock().unwrap().len() as u64,
            move |ask| {
                let owner = owner.upgrade().expect("the pool asks");
                let scratch = owner.alloc(Order::ZERO);
                let mut kept = scanned.lock().unwrap();
                let going = kept.len().min(ask.objects as usize);
                for page in kept.drain(..going) {
                    free(&owner, NonNull::new(page as *mut u8).unwrap(), Order::ZERO);
                }
                drop(scratch);
                Scanned::Freed(going as u64)
            },
        );
        let registered = pool.register_shrinker(shrinker);
        let mut refused = 0;
        for step in 0..PAGES + 200 {
            if step == PAGES - 100 {
                pool.set_fail_alloc(FailAlloc::nth(nth));
            }
            match pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
                Ok(page) => kept.lock().unwrap().push(page.as_ptr() as usize),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(pool.fail_counts().failed, 1);
        assert!(refused <= 1, "{refused}");
        drop(registered);
        let left = std::mem::take(&mut *kept.lock().unwrap());
        left.iter()
            .for_each(|page| free(&pool, NonNull::new(*page as *mut u8).unwrap(), Order::ZERO));
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count(), PAGES, "{nth}");
    }
}
