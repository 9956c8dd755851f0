//! Power fails. Everything after the last acknowledged sync may be gone, or there in any set of its
//! 512-byte sectors; what was acknowledged is there.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::device::{DeviceStore, SECTOR};
use support::{PAGE, end, pattern, pool};
use zonal_cache::{Builder, Cache, CachedFile};

const PAGES: u64 = 30;

/// The file as it was acknowledged, and as it was after each step since.
struct Versions(Vec<Vec<u8>>);

impl Versions {
    /// Checks what is left of the file.
    fn check(&self, image: &[u8]) {
        // Behind this, somebody has cut the file since, or it was not that long.
        let certain = self.0.iter().map(Vec::len).min().unwrap_or(0);
        assert!(image.len() >= certain, "{} bytes of {certain} are left", image.len());
        for start in (0..certain).step_by(SECTOR) {
            let sector = start..certain.min(start + SECTOR);
            let left = &image[sector.clone()];
            assert!(
                self.0.iter().any(|version| version[sector.clone()] == *left),
                "the sector at {start} holds what it never held: {:?}, page {}",
                &left[..16.min(left.len())],
                start as u64 / PAGE,
            );
        }
    }
}

fn replay(file: &CachedFile, model: &[u8]) {
    for range in file.lost() {
        let range = range.start as usize..model.len().min(range.end as usize);
        if !range.is_empty() {
            let _ = file.write_at(&model[range.clone()], range.start as u64);
        }
    }
}

/// A random program, with power losses all the time. Returns syncs that worked and that failed.
fn run(seed: u64, configure: impl Fn(Builder) -> Builder) -> (u32, u32) {
    let pool = pool();
    let cache = configure(Cache::builder(pool.clone()).max_pages(10)).build().unwrap();
    let mut model = pattern(seed, 20 * PAGE as usize);
    let store = DeviceStore::new(model.clone(), seed);
    let file = cache.open_store(store.clone()).unwrap();
    let mut random = Pcg64::seed_from_u64(seed);
    let mut versions = Versions(vec![model.clone()]);
    let (mut worked, mut failed) = (0, 0);
    for _ in 0..120 {
        let offset = random.next_u64() % (PAGES * PAGE);
        match random.next_u64() % 24 {
            0..10 => {
                let len = [64, 512, 4096, 12_000][(random.next_u64() % 4) as usize];
                let bytes = pattern(random.next_u64(), len);
                let done = file.write_at(&bytes, offset).unwrap_or(0);
                if done > 0 {
                    let end = offset as usize + done;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&bytes[..done]);
                }
            }
            10..15 => {
                let mut buffer = vec![0; 20_000];
                if let Ok(done) = file.read_at(&mut buffer, offset) {
                    let from = model.get(offset as usize..).unwrap_or(&[]);
                    assert!(buffer[..done] == from[..done]);
                }
            }
            15 => {
                if file.set_len(offset).is_ok() {
                    model.resize(offset as usize, 0);
                }
            }
            16 => store.0.failing_syncs.store(random.next_u64() % 3, SeqCst),
            17 => store.0.failing_writes.store(random.next_u64() % 3, SeqCst),
            18 => drop(cache.evict(random.next_u64() % 10)),
            _ => match file.sync() {
                Ok(()) => {
                    worked += 1;
                    versions.0.clear();
                    // Nothing else can be left now.
                    assert!(store.safe() == model);
                }
                Err(_) => {
                    failed += 1;
                    replay(&file, &model);
                }
            },
        }
        versions.0.push(model.clone());
        for _ in 0..3 {
            versions.check(&store.after_power_loss());
        }
    }
    store.0.failing_syncs.store(0, SeqCst);
    store.0.failing_writes.store(0, SeqCst);
    let mut tries = 0;
    while file.sync().is_err() {
        replay(&file, &model);
        tries += 1;
        assert!(tries < 5, "it does not get well");
    }
    assert!(store.safe() == model);
    drop(file);
    end(cache, &pool);
    (worked, failed)
}

fn many(configure: impl Fn(Builder) -> Builder + Copy) {
    let (mut worked, mut failed) = (0, 0);
    for seed in 0..120 {
        let (more, less) = run(seed, configure);
        (worked, failed) = (worked + more, failed + less);
    }
    assert!(worked > 500 && failed > 200, "{worked} syncs worked, {failed} failed");
}

#[test]
fn what_was_acknowledged_survives_a_power_loss() {
    many(|cache| cache.read_ahead(4).writeback_every(Duration::from_secs(3600)));
}

#[test]
fn what_was_acknowledged_survives_with_write_back_all_the_time() {
    many(|cache| {
        cache
            .dirty_percent(1, 50)
            .dirty_expire(Duration::ZERO)
            .writeback_every(Duration::from_micros(300))
    });
}

/// A thread's own pages of a file that several write.
struct Own<'a> {
    file: &'a CachedFile,
    store: &'a DeviceStore,
    start: u64,
    model: Vec<u8>,
}

impl Own<'_> {
    fn step(&mut self, random: &mut Pcg64) -> bool {
        let offset = random.next_u64() % self.model.len() as u64;
        let at = offset as usize;
        match random.next_u64() % 12 {
            0..6 => {
                let bytes = pattern(random.next_u64(), (self.model.len() - at).min(3000));
                match self.file.write_at(&bytes, self.start + offset) {
                    Ok(done) => self.model[at..at + done].copy_from_slice(&bytes[..done]),
                    Err(_) => self.replay(),
                }
            }
            6..10 => {
                let mut bytes = vec![0; (self.model.len() - at).min(9000)];
                match self.file.read_at(&mut bytes, self.start + offset) {
                    Ok(done) if bytes[..done] == self.model[at..at + done] => {}
                    // The kernel has dropped what it could not write, and has not said so yet.
                    Ok(_) => assert!(!self.sync(), "wrong bytes, and nothing is told"),
                    Err(_) => self.replay(),
                }
            }
            10 => self.store.0.failing_syncs.store(random.next_u64() % 2, SeqCst),
            _ => return self.sync(),
        }
        false
    }

    /// Whether it worked: then nobody but this thread can have changed its pages since.
    fn sync(&mut self) -> bool {
        let synced = self.file.sync().is_ok();
        if synced {
            let safe = self.store.safe();
            let mine = &safe[self.start as usize..][..self.model.len()];
            assert!(*mine == self.model, "called safe, and is not");
        } else {
            self.replay();
        }
        synced
    }

    fn replay(&self) {
        let all = self.start..self.start + self.model.len() as u64;
        for range in self.file.lost() {
            let (start, end) = (range.start.max(all.start), range.end.min(all.end));
            if start < end {
                let bytes = &self.model[(start - all.start) as usize..(end - all.start) as usize];
                // Else the next one.
                let _ = self.file.write_at(bytes, start);
            }
        }
    }
}

#[test]
fn threads_are_told_the_truth_by_a_device_that_fails_now_and_then() {
    const THREADS: u64 = 3;
    const OWN: u64 = 12 * PAGE;
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .max_pages(24)
        .dirty_percent(20, 80)
        .dirty_expire(Duration::ZERO)
        .writeback_every(Duration::from_millis(1))
        .build()
        .unwrap();
    let store = DeviceStore::new(vec![0; (THREADS * OWN) as usize], 1);
    let file = cache.open_store(store.clone()).unwrap();
    let synced: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                let (file, store) = (&file, &store);
                scope.spawn(move || {
                    let mut random = Pcg64::seed_from_u64(me);
                    let model = vec![0; OWN as usize];
                    let mut own = Own { file, store, start: me * OWN, model };
                    let mut synced = 0;
                    for _ in 0..3000 {
                        synced += u32::from(own.step(&mut random));
                    }
                    // All threads try at once, and each repeats what the others' syncs lose.
                    let mut tries = 0;
                    store.0.failing_syncs.store(0, SeqCst);
                    while !own.sync() {
                        tries += 1;
                        assert!(tries < 10_000, "it does not get well: {:?}", own.file.lost());
                    }
                    synced
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(synced > 20, "only {synced} syncs worked");
    drop(file);
    end(cache, &pool);
}

/// The model has teeth: a store that acknowledges too early is found.
#[test]
fn a_sync_that_is_acknowledged_too_early_is_found() {
    let found = std::panic::catch_unwind(|| {
        for seed in 0..50 {
            let store = DeviceStore::new(vec![0; 8 * PAGE as usize], seed);
            let bytes = pattern(seed, PAGE as usize);
            zonal_cache::Store::write_at(&store, &[std::io::IoSlice::new(&bytes)], 0).unwrap();
            let mut model = vec![0; 8 * PAGE as usize];
            model[..PAGE as usize].copy_from_slice(&bytes);
            Versions(vec![model]).check(&store.after_power_loss());
        }
    });
    assert!(found.is_err());
}
