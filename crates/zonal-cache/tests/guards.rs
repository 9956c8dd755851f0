//! What a program may do with pins, and with a cache while it has them.

mod support;

use std::mem::forget;
use std::time::{Duration, Instant};

use support::{MemStore, PAGE, pattern, pool};
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
