//! What stays and what goes.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use support::{MemStore, PAGE, end, pattern, pool};
use zonal_cache::{Cache, CachedFile};

fn touch(file: &CachedFile, pages: impl Iterator<Item = u64>) {
    let mut byte = [0];
    pages.for_each(|page| assert_eq!(file.read_at(&mut byte, page * PAGE).unwrap(), 1));
}

/// The misses of one round over `pages`.
fn misses(cache: &Cache, file: &CachedFile, pages: impl Iterator<Item = u64>) -> u64 {
    let before = cache.stats().misses;
    touch(file, pages);
    cache.stats().misses - before
}

#[test]
fn a_hot_set_survives_a_scan() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(200).read_ahead(0).build().unwrap();
    let file = cache.open_store(MemStore::new(vec![0; 4096 * PAGE as usize])).unwrap();
    let hot = 0..60;
    touch(&file, hot.clone());
    touch(&file, hot.clone());
    assert_eq!(cache.stats().active, 60, "a second use makes a page active");
    touch(&file, 1000..3000);
    assert_eq!(misses(&cache, &file, hot), 0, "a scan of ten times the cache took hot pages");
    drop(file);
    end(cache, &pool);
}

/// A hot set that comes in during a scan, each page once: only refaults can tell it from the scan.
#[test]
fn pages_that_come_back_soon_become_active() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(200).read_ahead(0).build().unwrap();
    let file = cache.open_store(MemStore::new(vec![0; 8192 * PAGE as usize])).unwrap();
    // An old hot set fills the active list.
    touch(&file, 0..150);
    touch(&file, 0..150);
    let old = cache.stats().active;
    assert!(old >= 100, "{old} active pages");
    // The new one does not fit in what is left for inactive pages.
    let new = || 1000..1090;
    for _ in 0..12 {
        touch(&file, new());
    }
    let stats = cache.stats();
    assert!(stats.refault_activations > 0, "{stats:?}");
    assert_eq!(misses(&cache, &file, new()), 0, "the new hot set does not stay: {stats:?}");
    drop(file);
    end(cache, &pool);
}

#[test]
fn pinned_pages_stay() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(8).read_ahead(0).build().unwrap();
    let store = MemStore::new(pattern(3, 64 * PAGE as usize));
    let file = cache.open_store(store.clone()).unwrap();
    let pins: Vec<_> = (0..4).map(|page| file.pin(page).unwrap()).collect();
    let before: Vec<*const u8> = pins.iter().map(|page| page.as_ptr()).collect();
    touch(&file, 4..64);
    assert_eq!(cache.evict(100), 4, "the pinned ones are not given up");
    assert_eq!(misses(&cache, &file, 0..4), 0);
    for (page, (pin, address)) in pins.iter().zip(before).enumerate() {
        assert_eq!(pin.as_ptr(), address);
        assert_eq!(**pin, pattern(3, 64 * PAGE as usize)[page * 4096..][..4096]);
    }
    // Nothing but pinned pages: reads go past the cache, and say what they should.
    let rest: Vec<_> = (4..8).map(|page| file.pin(page).unwrap()).collect();
    let mut buffer = [0; 4096];
    file.read_at(&mut buffer, 9 * PAGE).unwrap();
    assert_eq!(buffer, pattern(3, 64 * PAGE as usize)[9 * 4096..][..4096]);
    assert_eq!(cache.stats().bypassed, 1);
    let refused = file.pin(9).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory, "{refused}");
    drop((pins, rest));
    assert!(file.pin(9).is_ok());
    drop(file);
    end(cache, &pool);
}

#[test]
fn mapped_pages_outlast_one_look_after_each_use() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(100).read_ahead(0).build().unwrap();
    let file = cache.open_store(MemStore::new(vec![0; 4096 * PAGE as usize])).unwrap();
    let mapped = cache.open_store(MemStore::new(vec![0; 64 * PAGE as usize])).unwrap().mapped(true);
    (0..20).for_each(|page| drop(mapped.pin(page).unwrap()));
    touch(&file, 0..80);
    // The mapped ones are the oldest: each is looked at once before others are given up.
    assert!((40..=80).contains(&cache.evict(40)));
    assert_eq!(misses(&cache, &mapped, 0..20), 0);
    drop((file, mapped));
    end(cache, &pool);
}

#[test]
fn a_sequential_reader_is_read_ahead_of() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).read_ahead(16).build().unwrap();
    let bytes = pattern(4, 256 * PAGE as usize);
    let store = MemStore::new(bytes.clone());
    let file = cache.open_store(store.clone()).unwrap();
    let mut buffer = [0; 1024];
    for at in 0..1024_u64 {
        assert_eq!(file.read_at(&mut buffer, at * 1024).unwrap(), 1024);
        assert_eq!(buffer, bytes[at as usize * 1024..][..1024]);
    }
    let (stats, reads) = (cache.stats(), store.0.reads.load(SeqCst));
    assert_eq!(stats.read, 256);
    assert!(reads < 64, "{reads} reads of the store for 256 pages");
    assert!(stats.read_ahead >= 192, "{stats:?}");
    assert_eq!(stats.activations, 0, "reading a page in pieces is one use");
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_random_reader_is_not() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let file = cache.open_store(MemStore::new(vec![0; 256 * PAGE as usize])).unwrap();
    touch(&file, (0..64).map(|at| at * 37 % 256));
    let stats = cache.stats();
    // Page 0 may be the start of a scan.
    assert!(stats.read <= 64 + 3, "{stats:?}");
    drop(file);
    end(cache, &pool);
}

#[test]
fn old_dirty_pages_are_written_without_being_asked() {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .writeback_every(Duration::from_millis(5))
        .dirty_expire(Duration::from_millis(20))
        .build()
        .unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(b"written by nobody", 0).unwrap();
    let since = Instant::now();
    while cache.stats().dirty > 0 {
        assert!(since.elapsed() < Duration::from_secs(180), "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.bytes(), b"written by nobody");
    drop(file);
    end(cache, &pool);
}

#[test]
fn dirty_pages_stay_below_the_limit() {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .dirty_percent(5, 10)
        .writeback_every(Duration::from_secs(3600))
        .dirty_expire(Duration::from_secs(3600))
        .build()
        .unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    let (_, hard) = cache.dirty_limits();
    for page in 0..4000_u64 {
        file.write_at(&pattern(page, PAGE as usize), page * PAGE).unwrap();
        let dirty = cache.stats().dirty;
        assert!(dirty <= hard + 1, "{dirty} dirty pages, limit {hard}");
    }
    drop(file);
    assert_eq!(store.bytes().len() as u64, 4000 * PAGE);
    end(cache, &pool);
}
