//! What a program may do with pins, and with a cache while it has them.

mod support;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use support::{MemStore, PAGE, end, pattern, pool};
use zonal_cache::Cache;

/// Guards that are never dropped are leaks: the rest of the file is written, and nothing hangs.
#[test]
fn a_forgotten_pin_leaks_its_page_and_nothing_else() {
    for writable in [false, true] {
        let pool = pool();
        let cache = Cache::builder(pool.clone())
            .writeback_every(Duration::from_millis(1))
            .dirty_expire(Duration::ZERO)
            .build()
            .unwrap();
        let store = MemStore::new(vec![0; 4 * PAGE as usize]);
        let file = cache.open_store(store.clone()).unwrap();
        file.write_at(&pattern(1, PAGE as usize), PAGE).unwrap();
        match writable {
            true => forget(file.pin_mut(0).unwrap()),
            false => forget(file.pin(0).unwrap()),
        }
        drop(file);
        // The threads still work for others.
        let other = cache.open_store(MemStore::new(Vec::new())).unwrap();
        other.write_at(b"other", 0).unwrap();
        let since = Instant::now();
        while cache.stats().dirty > u64::from(writable) {
            assert!(since.elapsed() < Duration::from_secs(180), "{:?}", cache.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
        other.sync().unwrap();
        drop(other);
        drop(cache);
        assert_eq!(store.bytes()[PAGE as usize..2 * PAGE as usize], pattern(1, PAGE as usize));
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count() * PAGE, pool.bytes() as u64 - PAGE);
    }
}

#[test]
fn a_pin_outlives_every_handle_of_the_cache_and_of_the_pool() {
    let pool = pool();
    let weak = Arc::downgrade(&pool);
    let cache = Cache::new(pool.clone()).unwrap();
    let file = cache.open_store(MemStore::new(pattern(3, 3 * PAGE as usize))).unwrap();
    let (first, mut last) = (file.pin(0).unwrap(), file.pin_mut(2).unwrap());
    cache.evict(100);
    drop((cache, pool));
    last.fill(7);
    std::thread::scope(|scope| {
        // Guards may be used, and dropped, by another thread.
        scope.spawn(move || {
            assert_eq!(first[..], pattern(3, PAGE as usize));
            assert!(last.iter().all(|byte| *byte == 7));
        });
    });
    assert!(weak.upgrade().is_some(), "the file keeps the pool");
    drop(file);
    assert!(weak.upgrade().is_none());
}

/// Threads that change a page, or read it, are never in it at the same time.
#[test]
fn nobody_is_in_a_page_beside_the_one_who_changes_it() {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .max_pages(8)
        .writeback_every(Duration::from_millis(1))
        .dirty_expire(Duration::ZERO)
        .build()
        .unwrap();
    let file = cache.open_store(MemStore::new(vec![0; 16 * PAGE as usize])).unwrap();
    // By page: readers, or a writer as 1000.
    let inside: [AtomicU32; 16] = std::array::from_fn(|_| AtomicU32::new(0));
    std::thread::scope(|scope| {
        for me in 0..3_u64 {
            let (file, inside) = (&file, &inside);
            scope.spawn(move || {
                for step in 0..4000_u64 {
                    let index = (step * 7 + me * 5) % 16;
                    let inside = &inside[index as usize];
                    if (step + me).is_multiple_of(3) {
                        let mut page = file.pin_mut(index).unwrap();
                        assert_eq!(inside.fetch_add(1000, SeqCst), 0);
                        page.fill(step as u8);
                        inside.fetch_sub(1000, SeqCst);
                    } else {
                        let page = file.pin(index).unwrap();
                        assert!(inside.fetch_add(1, SeqCst) < 1000);
                        assert!(page.iter().all(|byte| *byte == page[0]), "a torn page");
                        inside.fetch_sub(1, SeqCst);
                    }
                }
            });
        }
    });
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_thread_that_panics_with_a_pin_lets_go_of_it() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let store = MemStore::new(vec![0; 2 * PAGE as usize]);
    let file = cache.open_store(store.clone()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _other = file.pin(1).unwrap();
        file.pin_mut(0).unwrap()[0] = 1;
        let mut page = file.pin_mut(0).unwrap();
        page[1] = 2;
        panic!("with two pins");
    }));
    assert!(panicked.is_err());
    file.sync().unwrap();
    assert_eq!(store.bytes()[..3], [1, 2, 0]);
    file.set_len(0).unwrap();
    drop(file);
    end(cache, &pool);
}

#[test]
fn an_owned_pin_keeps_its_file_cache_and_pool_on_any_thread() {
    let pool = pool();
    let weak = Arc::downgrade(&pool);
    let store = MemStore::new(pattern(3, 3 * PAGE as usize));
    let cache = Cache::new(pool.clone()).unwrap();
    let file = Arc::new(cache.open_store(store.clone()).unwrap());
    let (first, mut last) = (file.pin_owned(0).unwrap(), file.pin_mut_owned(2).unwrap());
    assert!(file.pin_owned(3).is_err(), "behind the end");
    // What is pinned stays where it is, whatever is wanted of the cache.
    cache.evict(100);
    drop((file, cache, pool));
    let thread = std::thread::spawn(move || {
        last.fill(7);
        assert_eq!(first[..], pattern(3, PAGE as usize));
        drop(last);
        first
    });
    let first = thread.join().unwrap();
    assert!(weak.upgrade().is_some());
    assert_eq!(first[1], pattern(3, PAGE as usize)[1]);
    drop(first);
    assert!(weak.upgrade().is_none(), "the last pin takes all with it");
    assert_eq!(store.bytes()[2 * PAGE as usize..], [7; PAGE as usize]);
}
