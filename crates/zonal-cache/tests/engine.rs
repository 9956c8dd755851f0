//! The cache of an engine that brings its own I/O.

mod support;

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};

use support::backing::{Call, HeapBacking, PAGE, end, fill, quiet};
use support::{EIO, pattern, pool};
use zonal::Order;
use zonal_cache::{EngineCache, Pager, Replacement};

#[test]
fn a_page_has_the_size_that_was_asked_for_and_is_aligned_to_it() {
    for bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache =
            EngineCache::builder(pool.clone()).page_bytes(bytes).max_pages(8).build().unwrap();
        let pager = cache.open(heap.clone()).unwrap();
        for page in 0..20 {
            fill(&pager, page * 1000, page);
        }
        for page in 0..20 {
            let pinned = pager.pin(page * 1000).unwrap();
            assert_eq!(pinned.len(), bytes);
            assert!(pinned[..] == pattern(page, bytes));
            assert!(pinned.as_ptr().addr().is_multiple_of(bytes));
        }
        assert!(cache.stats().pages <= 8);
        assert_eq!(cache.page_bytes(), bytes);
        drop(pager);
        assert_eq!(heap.safe(19_000).unwrap(), pattern(19, bytes));
        end(cache, &pool);
    }
}

#[test]
fn a_page_size_that_no_page_has_is_refused_with_the_sizes_that_are() {
    for bytes in [0, 1, 2048, 4095, 12 << 10, 128 << 10, usize::MAX] {
        let error = EngineCache::builder(pool()).page_bytes(bytes).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("4096 to 65536"), "{error}");
    }
}

#[test]
fn numbers_that_no_page_has_are_refused() {
    let pool = pool();
    let cache = quiet(&pool).build().unwrap();
    let pager = Arc::new(cache.open(HeapBacking::new()).unwrap());
    fill(&pager, (1 << 47) - 1, 3);
    for page in [1 << 47, u64::MAX] {
        assert_eq!(pager.pin(page).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pager.pin_mut(page).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pager.pin_new(page).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(pager.pin_owned(page).is_err() && pager.pin_mut_owned(page).is_err());
        pager.prefetch(page..u64::MAX);
    }
    pager.truncate(u64::MAX).unwrap();
    pager.checkpoint().unwrap();
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_new_page_is_zero_and_is_not_read() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    heap.0.unreadable.store(true, SeqCst);
    fill(&pager, 5, 1);
    assert!(pager.pin_new(5).unwrap().iter().all(|byte| *byte == 0), "in memory or not");
    assert_eq!(pager.pin(6).unwrap_err().raw_os_error(), EIO);
    assert_eq!(pager.pin_mut(6).unwrap_err().raw_os_error(), EIO);
    heap.0.unreadable.store(false, SeqCst);
    assert!(pager.pin(6).unwrap().iter().all(|byte| *byte == 0));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn pages_of_several_backings_share_one_cache_and_are_kept_apart() {
    let (pool, heaps) = (pool(), [(); 3].map(|()| HeapBacking::new()));
    let cache = quiet(&pool).max_pages(8).build().unwrap();
    let pagers: Vec<Pager> = heaps.iter().map(|heap| cache.open(heap.clone()).unwrap()).collect();
    for page in 0..10 {
        for (at, pager) in pagers.iter().enumerate() {
            fill(pager, page, page * 10 + at as u64);
        }
    }
    cache.checkpoint().unwrap();
    for (at, heap) in heaps.iter().enumerate() {
        for page in 0..10 {
            assert_eq!(heap.safe(page).unwrap(), pattern(page * 10 + at as u64, PAGE));
        }
    }
    drop(pagers);
    end(cache, &pool);
}

#[test]
fn a_pinned_page_is_not_evicted_and_a_cache_of_pinned_pages_refuses() {
    let pool = pool();
    let cache = quiet(&pool).max_pages(4).build().unwrap();
    let pager = Arc::new(cache.open(HeapBacking::new()).unwrap());
    (0..4).for_each(|page| fill(&pager, page, page));
    let pins: Vec<_> = (0..3).map(|page| pager.pin(page).unwrap()).collect();
    let mut owned = vec![pager.pin_mut_owned(3).unwrap()];
    for page in 10..20 {
        assert_eq!(pager.pin(page).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(pager.pin_new(page).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
    assert_eq!(cache.evict(10), 0);
    for (page, pin) in pins.iter().enumerate() {
        assert!(pin[..] == pattern(page as u64, PAGE));
    }
    owned.clear();
    fill(&pager, 10, 10);
    drop(pins);
    for page in 0..4 {
        assert!(pager.pin(page).unwrap()[..] == pattern(page, PAGE));
    }
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_thread_that_tries_waits_for_nobody_who_holds_the_page() {
    let pool = pool();
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(HeapBacking::new()).unwrap();
    let held = pager.try_pin_mut(1).unwrap().expect("nobody has it");
    assert!(pager.try_pin(1).unwrap().is_none() && pager.try_pin_mut(1).unwrap().is_none());
    assert!(pager.try_pin(2).unwrap().is_some(), "read, and nobody has it");
    drop(held);
    let (first, second) = (pager.try_pin(1).unwrap(), pager.try_pin(1).unwrap());
    assert!(first.is_some() && second.is_some() && pager.try_pin_mut(1).unwrap().is_none());
    drop((first, second));
    assert!(pager.try_pin_mut(1).unwrap().is_some());
    drop(pager);
    end(cache, &pool);
}

#[test]
fn an_owned_pin_keeps_the_cache_and_goes_to_another_thread() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = Arc::new(cache.open(heap.clone()).unwrap());
    fill(&pager, 1, 1);
    let (first, mut second) = (pager.pin_owned(1).unwrap(), pager.pin_mut_owned(2).unwrap());
    drop((pager, cache));
    std::thread::spawn(move || {
        assert!(first[..] == pattern(1, PAGE));
        second.set_lsn(9);
        second.copy_from_slice(&first);
    })
    .join()
    .unwrap();
    assert_eq!(heap.safe(2).unwrap(), pattern(1, PAGE));
    assert_eq!(heap.0.log.load(SeqCst), 9);
    assert_eq!(pool.free_page_count() << 12, pool.bytes() as u64, "pages are lost");
}

/// The pool takes pages of the cache back, as many of its own pages as they have.
#[test]
fn the_pool_reclaims_from_the_cache_when_it_runs_low() {
    for rule in [Replacement::ActiveInactive, Replacement::SecondChance] {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache = quiet(&pool).replacement(rule).build().unwrap();
        let pager = cache.open(heap.clone()).unwrap();
        for page in 0..3000 {
            assert!(pager.pin(page).unwrap()[0] == 0);
        }
        let full = cache.stats().pages;
        assert!(full > 200 && full < 512, "{full} pages of 8 KiB in 4 MiB");
        let taken: Vec<_> = (0..600).map(|_| pool.alloc(Order::ZERO).unwrap()).collect();
        assert!(cache.stats().pages < 512 - 280, "{}", cache.stats());
        drop((taken, pager));
        end(cache, &pool);
    }
}

/// A hot page is used between scans of many pages that are used once.
#[test]
fn each_rule_keeps_what_is_used_again_and_drops_what_is_not() {
    for rule in [Replacement::ActiveInactive, Replacement::SecondChance] {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache = quiet(&pool).replacement(rule).max_pages(64).build().unwrap();
        let pager = cache.open(heap.clone()).unwrap();
        let use_hot = || (0..8).for_each(|hot| drop(pager.pin(hot).unwrap()));
        use_hot();
        use_hot();
        for page in 100..1100 {
            drop(pager.pin(page).unwrap());
            if page % 10 == 0 {
                use_hot();
            }
        }
        let reads = heap.0.reads.load(SeqCst);
        assert_eq!(reads, 1008, "{rule:?}: hot pages were read again");
        assert_eq!(cache.stats().active > 0, rule == Replacement::ActiveInactive);
        drop(pager);
        end(cache, &pool);
    }
}

#[test]
fn pages_that_will_be_wanted_are_read_in_one_call_by_another_thread() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let (sent, asked) = channel();
    let sent = Mutex::new(sent);
    heap.hook(move |call| {
        sent.lock().unwrap().send((call, std::thread::current().id())).unwrap();
        Ok(())
    });
    pager.prefetch(30..34);
    for page in 30..34 {
        let (call, thread) = asked.recv().unwrap();
        assert_eq!(call, Call::Read(page));
        assert_ne!(thread, std::thread::current().id());
    }
    (30..34).for_each(|page| drop(pager.pin(page).unwrap()));
    assert!(asked.try_recv().is_err(), "a page was read twice");
    assert_eq!((cache.stats().hits, cache.stats().misses), (4, 0));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn a_truncated_page_is_neither_written_nor_there() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    (0..10).for_each(|page| fill(&pager, page, page));
    pager.truncate(4).unwrap();
    pager.checkpoint().unwrap();
    assert!(heap.safe(3).is_some() && heap.safe(4).is_none());
    assert!(pager.pin(4).unwrap().iter().all(|byte| *byte == 0));
    assert!(pager.pin(3).unwrap()[..] == pattern(3, PAGE));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn other_threads_change_pages_while_a_checkpoint_syncs() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    fill(&pager, 1, 1);
    let gate = Arc::new(Barrier::new(2));
    let wait = gate.clone();
    heap.hook(move |call| {
        if call == Call::Sync {
            wait.wait();
            wait.wait();
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| pager.checkpoint());
        gate.wait();
        // In the middle of the sync: the page that it is about, and others.
        fill(&pager, 1, 2);
        fill(&pager, 2, 2);
        assert!(pager.pin(1).unwrap()[..] == pattern(2, PAGE));
        gate.wait();
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(heap.safe(1).unwrap(), pattern(1, PAGE), "as it was when the checkpoint began");
    assert_eq!(cache.stats().dirty, 2);
    heap.hook(|_| Ok(()));
    pager.checkpoint().unwrap();
    assert_eq!(heap.safe(1).unwrap(), pattern(2, PAGE));
    drop(pager);
    end(cache, &pool);
}

#[test]
fn while_a_page_is_written_others_read_it_and_change_its_neighbours() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = quiet(&pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    fill(&pager, 1, 1);
    let gate = Arc::new(Barrier::new(2));
    let wait = gate.clone();
    heap.hook(move |call| {
        if call == Call::Write(1) {
            wait.wait();
            wait.wait();
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| pager.checkpoint());
        gate.wait();
        assert!(pager.pin(1).unwrap()[..] == pattern(1, PAGE));
        fill(&pager, 2, 2);
        drop(pager.pin(3).unwrap());
        gate.wait();
        checkpoint.join().unwrap().unwrap();
    });
    drop(pager);
    end(cache, &pool);
}

/// Arrow, thread pools and others that take what may panic meanwhile ask for this.
#[test]
fn pins_may_be_seen_after_a_panic() {
    fn may<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    may::<zonal_cache::PinnedPage<'_>>();
    may::<zonal_cache::OwnedPinnedPage>();
    may::<zonal_cache::OwnedPinnedPageMut>();
    may::<Pager>();
    may::<EngineCache>();
    may::<zonal_cache::Cache>();
    may::<zonal_cache::CachedFile>();
}
