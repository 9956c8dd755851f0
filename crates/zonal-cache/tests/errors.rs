//! Stores that fail. Nothing that was written to the cache is lost, and every error is told.

mod support;

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use support::{EIO, ENOSPC, MemStore, PAGE, end, pattern, pool};
use zonal_cache::Cache;

/// A program of reads, writes, syncs and evictions, where the `nth` read or write of the store
/// fails. Returns whether there were that many.
fn with_failure(nth: i64) -> bool {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .max_pages(6)
        .read_ahead(4)
        .dirty_percent(1, 100)
        .writeback_every(Duration::from_secs(3600))
        .build()
        .unwrap();
    let mut model = pattern(1, 20 * PAGE as usize);
    let store = MemStore::new(model.clone());
    let file = cache.open_store(store.clone()).unwrap();
    store.0.fail_in.store(nth, SeqCst);
    let mut told = 0;
    for step in 0..40_u64 {
        let offset = step * 7 % 19 * PAGE + step * 100;
        if step % 3 == 0 {
            let bytes = pattern(step, 3000);
            match file.write_at(&bytes, offset) {
                Ok(done) => {
                    let offset = offset as usize;
                    model.resize(model.len().max(offset + done), 0);
                    model[offset..offset + done].copy_from_slice(&bytes[..done]);
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), EIO);
                    told += 1;
                }
            }
        } else {
            let mut buffer = vec![0; 5000];
            match file.read_at(&mut buffer, offset) {
                Ok(done) => {
                    let from = &model[(offset as usize).min(model.len())..];
                    assert_eq!(&buffer[..done], &from[..done], "step {step}");
                    assert_eq!(done, from.len().min(5000));
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), EIO);
                    told += 1;
                }
            }
        }
        if step % 10 == 9
            && let Err(error) = file.sync()
        {
            assert_eq!(error.raw_os_error(), EIO);
            told += 1;
        }
    }
    let (failed, stats) = (store.0.fail_in.load(SeqCst) < 0, cache.stats());
    if let Err(error) = file.sync() {
        assert_eq!(error.raw_os_error(), EIO);
        told += 1;
    }
    // A failed read ahead of its use is nobody's; the page is read again when it is wanted.
    let unseen = told == 0 && stats.write_errors == 0;
    assert!(!failed || told > 0 || unseen, "{stats:?}");
    assert!(stats.write_errors == 0 || told > 0, "a failed write was told to nobody");
    file.sync().expect("the store works again");
    assert!(store.bytes() == model, "failure {nth}: the store differs");
    drop(file);
    end(cache, &pool);
    failed
}

#[test]
fn whichever_read_or_write_fails_nothing_is_lost() {
    let failures = (0..).take_while(|nth| with_failure(*nth)).count();
    assert!(failures > 20, "only {failures} reads and writes");
}

#[test]
fn what_cannot_be_written_stays_dirty_and_each_handle_is_told_once() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    store.0.broken.store(true, SeqCst);
    for _ in 0..2 {
        // Each time it is tried again.
        assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    }
    assert_eq!(cache.evict(100), 0, "dirty pages are not given up");
    assert_eq!(cache.stats().dirty, 3);
    let mut buffer = [0; 10_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000);
    assert_eq!(buffer, [1; 10_000]);
    store.0.broken.store(false, SeqCst);
    file.sync().unwrap();
    assert_eq!(store.bytes(), [1; 10_000]);
    drop(file);
    end(cache, &pool);
}

#[test]
fn an_error_in_the_background_reaches_the_next_sync() {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .writeback_every(Duration::from_millis(2))
        .dirty_expire(Duration::ZERO)
        .build()
        .unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    store.0.broken.store(true, SeqCst);
    file.write_at(b"kept", 0).unwrap();
    let since = Instant::now();
    while cache.stats().write_errors == 0 {
        assert!(since.elapsed() < Duration::from_secs(180), "the thread does not write");
        std::thread::sleep(Duration::from_millis(2));
    }
    store.0.broken.store(false, SeqCst);
    // It may work again by itself before that.
    assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    file.sync().unwrap();
    assert_eq!(store.bytes(), b"kept");
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_failed_read_is_told_and_tried_again() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let store = MemStore::new(vec![5; 8 * PAGE as usize]);
    let file = cache.open_store(store.clone()).unwrap();
    store.0.unreadable.store(true, SeqCst);
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap_err().raw_os_error(), EIO);
    assert_eq!(file.pin(3).unwrap_err().raw_os_error(), EIO);
    assert_eq!(file.pin_mut(3).unwrap_err().raw_os_error(), EIO);
    // Part of a page: the rest cannot be had.
    assert_eq!(file.write_at(b"x", 10).unwrap_err().raw_os_error(), EIO);
    assert_eq!(cache.stats().pages, 0, "nothing is left of pages that could not be read");
    file.write_at(&[6; PAGE as usize], PAGE).expect("a whole page needs no read");
    store.0.unreadable.store(false, SeqCst);
    assert_eq!(&*file.pin(3).unwrap(), [5; PAGE as usize]);
    drop(file);
    end(cache, &pool);
    assert_eq!(store.bytes()[PAGE as usize..2 * PAGE as usize], [6; PAGE as usize]);
}

#[test]
fn a_full_store_stops_writers_with_its_error() {
    let pool = pool();
    let cache = Cache::builder(pool.clone()).max_pages(64).dirty_percent(10, 50).build().unwrap();
    let store = MemStore::new(Vec::new());
    let room = 10 * PAGE;
    store.0.capacity.store(room, SeqCst);
    let file = cache.open_store(store.clone()).unwrap();
    let mut accepted = 0;
    let error = loop {
        assert!(accepted <= 64 * PAGE, "writers are never stopped");
        match file.write_at(&pattern(9, PAGE as usize), accepted) {
            Ok(done) => accepted += done as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), ENOSPC, "{error}");
    assert!(accepted > room && accepted <= 64 * PAGE);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), ENOSPC);
    // All that was accepted is there, and goes to the store once there is room.
    for page in 0..accepted / PAGE {
        assert_eq!(&*file.pin(page).unwrap(), pattern(9, PAGE as usize));
    }
    store.0.capacity.store(0, SeqCst);
    let cache = match cache.close() {
        Ok(()) => None,
        Err(refused) => Some(refused.cache),
    };
    assert!(cache.is_none());
    assert_eq!(store.bytes().len() as u64, accepted);
    drop(file);
    assert_eq!(pool.free_page_count() * PAGE, pool.bytes() as u64);
}

#[test]
fn a_cache_that_cannot_write_does_not_close() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let store = MemStore::new(Vec::new());
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(b"data", 0).unwrap();
    store.0.broken.store(true, SeqCst);
    // The last handle goes; the data stays.
    drop(file);
    let refused = cache.close().unwrap_err();
    assert_eq!(refused.error.raw_os_error(), EIO);
    assert!(refused.to_string().contains("cannot be written"), "{refused}");
    store.0.broken.store(false, SeqCst);
    refused.cache.close().unwrap();
    assert_eq!(store.bytes(), b"data");
    assert_eq!(pool.free_page_count() * PAGE, pool.bytes() as u64);
}

#[test]
fn what_cannot_be_is_refused() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let file = cache.open_store(MemStore::new(vec![1; 5000])).unwrap();
    assert_eq!(file.pin(2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.pin_mut(u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.pin(1).unwrap().len(), 904);
    assert_eq!(file.read_at(&mut [0; 10], u64::MAX).unwrap(), 0);
    assert_eq!(file.write_at(&[0], u64::MAX).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(cache.open("/").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(cache.open_file(null).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    drop(file);
    end(cache, &pool);
}
