//! A device sync that fails. Nothing is said to be safe that is not.

mod support;

use std::error::Error;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use support::device::{Call, DeviceStore, Fault};
use support::{EIO, PAGE, end, pattern, pool};
use zonal::Pool;
use zonal_cache::{Builder, Cache, CachedFile, LostWrites, Store};

/// A cache whose thread does nothing by itself.
fn quiet(pool: &Arc<Pool>) -> Builder {
    Cache::builder(pool.clone()).read_ahead(0).writeback_every(Duration::from_secs(3600))
}

fn lost_in(error: &io::Error) -> Option<&LostWrites> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

#[test]
fn after_a_failed_device_sync_the_data_is_written_again() {
    for seed in 0..20 {
        let pool = pool();
        let cache = quiet(&pool).build().unwrap();
        let store = DeviceStore::new(vec![0; 8 * PAGE as usize], seed);
        let file = cache.open_store(store.clone()).unwrap();
        file.write_at(&pattern(1, 20_000), 100).unwrap();
        store.0.failing_syncs.store(1, SeqCst);
        assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
        assert_eq!(cache.stats().dirty, 5, "the kernel may have dropped all five pages");
        file.sync().unwrap();
        assert_eq!(store.safe()[100..20_100], pattern(1, 20_000));
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn a_sync_that_fails_again_and_again_never_loses_what_is_in_memory() {
    let pool = pool();
    let cache = quiet(&pool).build().unwrap();
    let store = DeviceStore::new(Vec::new(), 1);
    let file = cache.open_store(store.clone()).unwrap();
    let mut model = Vec::new();
    for round in 0..10_usize {
        let bytes = pattern(round as u64, 6000);
        file.write_at(&bytes, (round * 5000) as u64).unwrap();
        model.resize(round * 5000 + 6000, 0);
        model[round * 5000..].copy_from_slice(&bytes);
        if round == 4 {
            store.0.failing_syncs.store(5, SeqCst);
        }
        assert_eq!(file.sync().is_err(), (4..9).contains(&round), "round {round}");
        let mut back = vec![0; model.len()];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), model.len());
        assert!(back == model);
    }
    assert!(store.safe() == model);
    drop(file);
    end(cache, &pool);
}

/// Writes more than the cache holds, then a sync fails.
fn with_losses(seed: u64) -> (Arc<Pool>, Cache, DeviceStore, CachedFile) {
    let pool = pool();
    let cache = quiet(&pool).max_pages(8).build().unwrap();
    let store = DeviceStore::new(vec![0xaa; 40 * PAGE as usize], seed);
    let file = cache.open_store(store.clone()).unwrap();
    file.sync().unwrap();
    assert_eq!(file.write_at(&pattern(3, 40 * PAGE as usize), 0).unwrap(), 40 * PAGE as usize);
    assert!(cache.stats().evicted >= 32);
    store.0.failing_syncs.store(1, SeqCst);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    (pool, cache, store, file)
}

#[test]
fn what_was_given_up_before_the_failed_sync_is_lost_until_that_is_accepted() {
    for seed in 0..10 {
        let (pool, cache, store, file) = with_losses(seed);
        let lost = file.lost();
        let bytes: u64 = lost.iter().map(|range| range.end - range.start).sum();
        assert!((32 * PAGE..40 * PAGE).contains(&bytes), "{lost:?}");
        for _ in 0..3 {
            let error = file.sync().unwrap_err();
            let told = lost_in(&error).expect("the loss is in the error");
            assert_eq!(told.ranges, lost);
            assert_eq!(told.cause.raw_os_error(), EIO);
            assert!(
                told.source().is_some() && error.to_string().contains("accept_loss"),
                "{error}"
            );
        }
        assert!(lost_in(&cache.sync().unwrap_err()).is_some());
        // What is lost is not read, nor written in part; the rest is there.
        let mut page = vec![0; PAGE as usize];
        for at in 0..40 {
            let is_lost = lost.iter().any(|range| range.contains(&(at * PAGE)));
            let read = file.read_at(&mut page, at * PAGE);
            assert_eq!(read.is_err(), is_lost, "page {at}");
            assert_eq!(file.pin(at).is_err(), is_lost);
            assert_eq!(file.pin_mut(at).is_err(), is_lost);
            assert_eq!(file.write_at(b"part", at * PAGE + 10).is_err(), is_lost);
            if !is_lost {
                file.write_at(
                    &pattern(3, 40 * PAGE as usize)[(at * PAGE) as usize..][..14],
                    at * PAGE,
                )
                .unwrap();
            }
        }
        assert_eq!(file.accept_loss(), lost);
        assert!(file.lost().is_empty());
        file.sync().unwrap();
        let seen = store.seen();
        let mut all = vec![0; 40 * PAGE as usize];
        assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
        assert!(all == seen, "after the loss is accepted, the file is what the store has");
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn a_page_that_is_written_anew_is_not_lost() {
    let (pool, cache, store, file) = with_losses(1);
    for at in 0..40 {
        file.write_at(&pattern(9, PAGE as usize), at * PAGE).unwrap();
    }
    assert!(file.lost().is_empty());
    file.sync().unwrap();
    assert!(store.safe().chunks(PAGE as usize).all(|page| page == pattern(9, PAGE as usize)));
    drop(file);
    end(cache, &pool);
}

#[test]
fn what_is_cut_off_is_not_lost() {
    let (pool, cache, store, file) = with_losses(2);
    file.set_len(0).unwrap();
    assert!(file.lost().is_empty());
    file.write_at(b"anew", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(store.safe(), b"anew");
    drop(file);
    end(cache, &pool);
}

/// A page that came back from the store between write and failed sync may be an old one.
#[test]
fn what_was_read_back_before_the_failed_sync_is_lost_too() {
    let pool = pool();
    let cache = quiet(&pool).max_pages(8).build().unwrap();
    let store = DeviceStore::new(vec![0; 40 * PAGE as usize], 3);
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&[1; PAGE as usize], 0).unwrap();
    file.read_at(&mut vec![0; 39 * PAGE as usize], PAGE).unwrap();
    assert_eq!(file.pin(0).unwrap()[..], [1; PAGE as usize]);
    store.0.failing_syncs.store(1, SeqCst);
    file.sync().unwrap_err();
    assert_eq!(file.lost(), std::iter::once(0..PAGE).collect::<Vec<_>>());
    assert!(lost_in(&file.pin(0).unwrap_err()).is_some());
    file.accept_loss();
    assert_eq!(file.pin(0).unwrap()[..], store.seen()[..PAGE as usize]);
    drop(file);
    end(cache, &pool);
}

/// A device whose first sync fails after a write of page 4 has begun, and before that ends.
struct Racing {
    device: DeviceStore,
    step: Mutex<u32>,
    changed: Condvar,
}

impl Racing {
    fn reach(&self, step: u32) {
        *self.step.lock().unwrap() = step;
        self.changed.notify_all();
    }
    fn wait_for(&self, step: u32) {
        let now = self.step.lock().unwrap();
        drop(self.changed.wait_while(now, |now| *now < step).unwrap());
    }
    fn is_at(&self, step: u32) -> bool {
        *self.step.lock().unwrap() == step
    }
}

struct RacingStore(Arc<Racing>);

impl Store for RacingStore {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.0.device.read_at(buffers, offset)
    }
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let written = self.0.device.write_at(buffers, offset);
        if offset == 4 * PAGE && self.0.is_at(1) {
            self.0.reach(2);
            self.0.wait_for(3);
        }
        written
    }
    fn len(&self) -> io::Result<u64> {
        self.0.device.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.device.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        if self.0.is_at(0) {
            self.0.reach(1);
            self.0.wait_for(2);
        }
        let synced = self.0.device.sync();
        self.0.reach(3);
        synced
    }
}

/// The kernel may drop what is written while a sync fails; that the write worked says nothing.
#[test]
fn a_write_that_runs_while_a_sync_fails_does_not_count() {
    for seed in 0..10 {
        let pool = pool();
        let cache = quiet(&pool).build().unwrap();
        let device = DeviceStore::new(vec![0; 8 * PAGE as usize], seed);
        let racing = Arc::new(Racing {
            device: device.clone(),
            step: Mutex::default(),
            changed: Condvar::new(),
        });
        let file = cache.open_store(RacingStore(racing.clone())).unwrap();
        file.write_at(&[1; PAGE as usize], 0).unwrap();
        device.0.failing_syncs.store(1, SeqCst);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| file.sync());
            racing.wait_for(1);
            file.write_at(&[2; PAGE as usize], 4 * PAGE).unwrap();
            // Its own device sync works, and says nothing of its page.
            assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
            assert_eq!(first.join().unwrap().unwrap_err().raw_os_error(), EIO);
        });
        file.sync().unwrap();
        let safe = device.safe();
        assert!(safe[..PAGE as usize] == [1; PAGE as usize]);
        assert!(safe[4 * PAGE as usize..5 * PAGE as usize] == [2; PAGE as usize], "{seed}");
        drop(file);
        end(cache, &pool);
    }
}

#[test]
fn every_handle_and_every_clone_of_the_cache_is_told_once() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let device = DeviceStore::new(Vec::new(), 7);
    let make = {
        let device = device.clone();
        move |_| Box::new(device.clone()) as Box<dyn Store>
    };
    let cache = quiet(&pool).stores(make).build().unwrap();
    let clone = cache.clone();
    let path = dir.path().join("file");
    let [writer, other, reader] = [(); 3].map(|()| {
        std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        cache.open(&path).unwrap()
    });
    writer.write_at(&pattern(1, 9000), 0).unwrap();
    device.0.failing_syncs.store(1, SeqCst);
    assert_eq!(writer.sync().unwrap_err().raw_os_error(), EIO);
    let late = cache.open(&path).unwrap();
    writer.sync().expect("told, and all of it is written again");
    assert!(device.safe() == pattern(1, 9000));
    for handle in [&other, &reader] {
        assert_eq!(handle.sync().unwrap_err().raw_os_error(), EIO);
        handle.sync().expect("once");
    }
    late.sync().expect("it was opened after the error was told");
    for cache in [&cache, &clone] {
        assert_eq!(cache.sync().unwrap_err().raw_os_error(), EIO);
        cache.sync().expect("once");
    }
    clone.clone().sync().expect("a clone knows what its original knows");
    drop((writer, other, reader, late, clone));
    end(cache, &pool);
}

#[test]
fn an_error_that_no_handle_was_told_of_is_told_to_the_next_one() {
    let (pool, dir) = (pool(), tempfile::tempdir().unwrap());
    let device = DeviceStore::new(Vec::new(), 8);
    let make = {
        let device = device.clone();
        move |_| Box::new(device.clone()) as Box<dyn Store>
    };
    let cache = Cache::builder(pool.clone())
        .stores(make)
        .writeback_every(Duration::from_millis(2))
        .dirty_expire(Duration::ZERO)
        .build()
        .unwrap();
    let path = dir.path().join("file");
    let file = cache.create(&path).unwrap();
    device.0.failing_writes.store(1, SeqCst);
    file.write_at(b"written behind the program's back", 0).unwrap();
    let since = Instant::now();
    while cache.stats().write_errors == 0 || cache.stats().dirty > 0 {
        assert!(since.elapsed() < Duration::from_secs(180), "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(file);
    let next = cache.open(&path).unwrap();
    let third = cache.open(&path).unwrap();
    assert_eq!(next.sync().unwrap_err().raw_os_error(), EIO);
    next.sync().unwrap();
    assert_eq!(third.sync().unwrap_err().raw_os_error(), EIO, "it was open when it was told");
    cache.open(&path).unwrap().sync().expect("it has been told");
    drop((next, third));
    end(cache, &pool);
}

#[test]
fn an_error_of_a_write_by_reclaim_is_told() {
    let pool = pool();
    let cache = quiet(&pool).max_pages(8).dirty_percent(100, 100).build().unwrap();
    let store = DeviceStore::new(vec![0; 40 * PAGE as usize], 9);
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&[1; 6 * PAGE as usize], 0).unwrap();
    store.0.failing_writes.store(1, SeqCst);
    // Reading needs pages, and only dirty ones are left to give up.
    while cache.stats().write_errors == 0 {
        let before = cache.stats();
        let _ = file.read_at(&mut vec![0; 30 * PAGE as usize], 8 * PAGE);
        assert!(cache.stats() != before, "nothing happens: {before:?}");
    }
    assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    file.sync().unwrap();
    assert_eq!(store.safe()[..6 * PAGE as usize], [1; 6 * PAGE as usize]);
    drop(file);
    end(cache, &pool);
}

#[test]
fn a_file_leaves_the_cache_when_what_was_written_to_it_is_safe() {
    let pool = pool();
    let cache = quiet(&pool).build().unwrap();
    let store = DeviceStore::new(Vec::new(), 10);
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&pattern(4, 9000), 0).unwrap();
    drop(file);
    assert!(store.safe() == pattern(4, 9000), "{:?}", store.calls());
    assert_eq!(store.calls().last(), Some(&Call::Sync));
    // A file whose sync fails stays, with its data.
    let store = DeviceStore::new(Vec::new(), 11);
    let file = cache.open_store(store.clone()).unwrap();
    file.write_at(&pattern(5, 9000), 0).unwrap();
    store.fail_after(1, Fault::Errno(5));
    drop(file);
    assert!(store.has_failed());
    assert_eq!(cache.stats().dirty, 3);
    assert_eq!(cache.sync().unwrap_err().raw_os_error(), EIO);
    cache.close().unwrap();
    assert!(store.safe() == pattern(5, 9000));
    assert_eq!(pool.free_page_count() * PAGE, pool.bytes() as u64);
}
