//! Many threads, far more file than pool.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::{MemStore, PAGE, end, pool};
use zonal_cache::{Cache, CachedFile};

/// Eight words: which record, which version, and their sum in each of the others.
const RECORD: usize = 64;

fn record(number: u64, version: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match at {
            0 => number,
            1 => version,
            _ => (number.wrapping_mul(31) ^ version).wrapping_add(at as u64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn version(number: u64, bytes: &[u8; RECORD]) -> u64 {
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert_eq!(*bytes, record(number, version), "record {number} is torn or another one");
    version
}

fn read(file: &CachedFile, number: u64) -> u64 {
    let mut bytes = [0; RECORD];
    assert_eq!(file.read_at(&mut bytes, number * RECORD as u64).unwrap(), RECORD);
    version(number, &bytes)
}

/// Each thread writes records of its own and reads all of them. A version never goes back.
#[test]
fn readers_and_writers_see_whole_records_that_only_get_newer() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 16 << 20 >> 6; // 16 MiB in a pool of 4
    const STEPS: u64 = 20_000;
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .writeback_every(Duration::from_millis(5))
        .dirty_expire(Duration::from_millis(1))
        .build()
        .unwrap();
    let start: Vec<u8> = (0..RECORDS).flat_map(|number| record(number, 0)).collect();
    let store = MemStore::new(start);
    let file = cache.open_store(store.clone()).unwrap();
    let written: Vec<AtomicU64> = (0..RECORDS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (file, written) = (&file, &written);
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(me);
                for step in 0..STEPS {
                    // A tenth of the records gets most of the load.
                    let range = if random.next_u64() % 4 > 0 { RECORDS / 10 } else { RECORDS };
                    let number = random.next_u64() % range;
                    if step % 3 == 0 {
                        let mine = number - number % THREADS + me;
                        let next = written[mine as usize].load(SeqCst) + 1;
                        let bytes = record(mine, next);
                        file.write_at(&bytes, mine * RECORD as u64).unwrap();
                        written[mine as usize].store(next, SeqCst);
                    } else {
                        let at_least = written[number as usize].load(SeqCst);
                        assert!(read(file, number) >= at_least, "record {number} went back");
                    }
                }
            });
        }
    });
    for number in 0..RECORDS {
        assert_eq!(read(&file, number), written[number as usize].load(SeqCst));
    }
    let stats = cache.stats();
    eprintln!("{stats}");
    assert!(stats.evicted > 0 && stats.pages * PAGE <= pool.bytes() as u64);
    assert_eq!(stats.bypassed, 0, "reads found no page though everything could be given up");
    file.sync().unwrap();
    drop(file);
    for (number, bytes) in (0..).zip(store.bytes().chunks_exact(RECORD)) {
        let version = version(number, bytes.try_into().unwrap());
        assert_eq!(version, written[number as usize].load(SeqCst));
    }
    end(cache, &pool);
}

#[test]
fn readers_of_one_page_wait_for_one_read() {
    const READERS: usize = 8;
    let pool = pool();
    let cache = Cache::builder(pool.clone()).read_ahead(0).build().unwrap();
    let store = MemStore::new(vec![7; 4096]);
    *store.0.delay.lock().unwrap() = Duration::from_millis(50);
    let file = cache.open_store(store.clone()).unwrap();
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut byte = [0];
                assert_eq!(file.read_at(&mut byte, 100).unwrap(), 1);
                assert_eq!(byte, [7]);
            });
        }
    });
    assert_eq!(store.0.reads.load(SeqCst), 1);
    drop(file);
    end(cache, &pool);
}

/// A file is cut and grows while it is read, written, written back and pinned.
#[test]
fn cutting_a_file_disturbs_nobody_who_uses_the_rest() {
    const KEPT: u64 = 8;
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .max_pages(64)
        .writeback_every(Duration::from_millis(1))
        .dirty_expire(Duration::ZERO)
        .build()
        .unwrap();
    let store = MemStore::new(vec![1; (KEPT * PAGE) as usize]);
    let file = Arc::new(cache.open_store(store.clone()).unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (file, done) = (&file, &done);
        scope.spawn(move || {
            for round in 0..300_u64 {
                file.set_len((KEPT + round % 40) * PAGE + round * 13 % PAGE).unwrap();
            }
            done.store(true, SeqCst);
        });
        for me in 0..2_u64 {
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(me);
                while !done.load(SeqCst) {
                    let index = random.next_u64() % (KEPT + 40);
                    if index < KEPT {
                        // Two pins at once, of pages that are never cut off.
                        let first = file.pin(index).unwrap();
                        let second = file.pin(random.next_u64() % KEPT).unwrap();
                        assert!(first.iter().chain(second.iter()).all(|byte| *byte == 1));
                    } else if let Ok(mut page) = file.pin_mut(index) {
                        // Zero, or what somebody wrote.
                        assert!(page.iter().all(|byte| *byte == 0 || *byte == 9));
                        page.fill(9);
                    }
                }
            });
        }
    });
    file.sync().unwrap();
    let bytes = store.bytes();
    assert_eq!(bytes.len() as u64, file.len());
    assert!(bytes[..(KEPT * PAGE) as usize].iter().all(|byte| *byte == 1));
    drop(file);
    end(cache, &pool);
}

/// Allocations of others take the cache's pages, and the cache takes them back.
#[test]
fn others_may_need_the_pool_too() {
    let pool = pool();
    let cache = Cache::new(pool.clone()).unwrap();
    let file = cache.open_store(MemStore::new(vec![3; 16 << 20])).unwrap();
    let mut buffer = vec![0; 16 << 20];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), buffer.len());
    assert!(buffer.iter().all(|byte| *byte == 3));
    let all = pool.bytes() as u64 / PAGE;
    let full = cache.stats().pages;
    assert!(full + 800 > all, "of {all} pages the cache has {full}: 800 more need some of them");
    let pages: Vec<_> = (0..800).map(|_| pool.alloc(zonal::Order::ZERO).unwrap()).collect();
    let left = cache.stats().pages;
    assert!(left + 800 <= all, "{left} pages left, of {full}");
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), buffer.len());
    drop((file, pages));
    end(cache, &pool);
}

/// At a bound of four pages each of two writers finds all pages held by the other one, which writes
/// them to a slow store, or by the threads of the cache.
#[test]
fn writers_at_the_bound_wait_for_pages_that_are_being_written() {
    let pool = pool();
    let cache = Cache::builder(pool.clone())
        .max_pages(4)
        .read_ahead(2)
        .writeback_every(Duration::from_millis(1))
        .dirty_expire(Duration::from_millis(1))
        .build()
        .unwrap();
    let store = MemStore::new(vec![0; 256 * PAGE as usize]);
    *store.0.write_delay.lock().unwrap() = Duration::from_millis(1);
    let file = cache.open_store(store.clone()).unwrap();
    thread::scope(|scope| {
        for me in 0..2_u8 {
            let file = &file;
            scope.spawn(move || {
                for page in (u64::from(me)..256).step_by(2) {
                    let bytes = [me + 1; PAGE as usize];
                    assert_eq!(file.write_at(&bytes, page * PAGE).unwrap(), bytes.len());
                }
            });
        }
    });
    drop(file);
    end(cache, &pool);
    let bytes = store.bytes();
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at / 4096 % 2) as u8 + 1));
}
