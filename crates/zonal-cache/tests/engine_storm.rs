//! Threads that use every call of an engine's cache at once, over a backing that fails and panics:
//! nothing is lost, no page is torn or another's, and no frame is gone at the end.

mod support;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::backing::{Call, HeapBacking, end, failed};
use support::pool;
use zonal_cache::{EngineCache, Pager, Replacement};

const PAGES: u64 = 40;
const THREADS: u64 = 4;

/// What a page says: whose it is, and how often it was written. All of it says the same.
fn stamp(pager: u64, page: u64, version: u64) -> u64 {
    pager << 56 | page << 40 | version
}

fn write(bytes: &mut [u8], stamp: u64) {
    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = stamp.to_le_bytes());
}

/// The version of a whole page of this pager.
fn version(bytes: &[u8], pager: u64, page: u64) -> u64 {
    let words = bytes.as_chunks::<8>().0;
    let first = u64::from_le_bytes(words[0]);
    assert!(words.iter().all(|word| *word == words[0]), "page {page} of {pager} is torn");
    assert!(
        first == 0 || first >> 40 == stamp(pager, page, 0) >> 40,
        "{first:x} is another page's"
    );
    first & ((1 << 40) - 1)
}

/// One table of the engine.
struct Table {
    number: u64,
    heap: HeapBacking,
    pager: Arc<Pager>,
    /// Versions that were written last. Held while a page is changed.
    last: Vec<Mutex<u64>>,
}

impl Table {
    fn change(&self, page: u64, is_new: bool, owned: bool) -> io::Result<()> {
        let mut last = self.last[page as usize].lock().unwrap();
        let next = stamp(self.number, page, *last + 1);
        if owned {
            let mut pin = self.pager.pin_mut_owned(page)?;
            assert_eq!(version(&pin, self.number, page), *last);
            pin.set_lsn(next);
            write(&mut pin, next);
            // Dropped by another thread.
            std::thread::scope(|scope| drop(scope.spawn(move || drop(pin))));
        } else {
            let mut pin =
                if is_new { self.pager.pin_new(page)? } else { self.pager.pin_mut(page)? };
            pin.set_lsn(next);
            write(&mut pin, next);
        }
        *last += 1;
        Ok(())
    }

    fn look(&self, page: u64) -> io::Result<()> {
        let pin = self.pager.pin_owned(page)?;
        let before = version(&pin, self.number, page);
        std::thread::yield_now();
        assert_eq!(version(&pin, self.number, page), before, "a pinned page changed");
        Ok(())
    }
}

/// One random call. The error is the backing's, or that of a cache in which all is pinned or dirty.
fn step(cache: &EngineCache, tables: &[Table], random: &mut Pcg64) -> io::Result<()> {
    let table = &tables[random.next_u64() as usize % tables.len()];
    let page = random.next_u64() % PAGES;
    match random.next_u64() % 20 {
        0..5 => table.change(page, false, false),
        5..8 => table.change(page, true, false),
        8 => table.change(page, false, true),
        9..15 => table.look(page),
        15 => table.pager.try_pin(page).map(|pin| {
            pin.map(|pin| version(&pin, table.number, page));
        }),
        16 => {
            table.pager.prefetch(page..page + 5);
            Ok(())
        }
        17 => {
            cache.evict(random.next_u64() % 16);
            Ok(())
        }
        18 => table.pager.checkpoint(),
        _ => {
            // A table of a moment, which ends with what it wrote.
            let heap = HeapBacking::new();
            let pager = cache.open(heap.clone())?;
            write(&mut pager.pin_new(page)?, stamp(9, page, 1));
            pager.close()?;
            assert_eq!(version(&heap.safe(page).expect("written"), 9, page), 1);
            Ok(())
        }
    }
}

/// A backing whose calls fail, or panic, one in so many; syncs work, so nothing may be lost.
fn unreliable(heap: &HeapBacking, broken: Arc<AtomicBool>) {
    let calls = AtomicU64::new(0);
    heap.hook(move |call| {
        let number = calls.fetch_add(1, Relaxed);
        if call == Call::Sync || !broken.load(Relaxed) {
            return Ok(());
        }
        match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 {
            0 | 1 => Err(failed()),
            2 => panic!("planted"),
            _ => Ok(()),
        }
    });
}

fn storm(rule: Replacement, page_bytes: usize, seed: u64, time: Duration) -> u64 {
    let pool = pool();
    let broken = Arc::new(AtomicBool::new(true));
    let cache = EngineCache::builder(pool.clone())
        .page_bytes(page_bytes)
        .max_pages(24)
        .replacement(rule)
        .writeback_every(Duration::from_millis(1))
        .build()
        .unwrap();
    let tables: Vec<Table> = (1..3)
        .map(|number| {
            let heap = HeapBacking::new();
            unreliable(&heap, broken.clone());
            let pager = Arc::new(cache.open(heap.clone()).unwrap());
            let last = (0..PAGES).map(|_| Mutex::new(0)).collect();
            Table { number, heap, pager, last }
        })
        .collect();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let (cache, tables, done) = (&cache, &tables, &done);
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(seed * THREADS + me);
                let end = Instant::now() + time;
                while Instant::now() < end {
                    let _ = step(cache, tables, &mut random);
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    broken.store(false, Relaxed);
    // All of them first: dirty pages of one leave no room to pin those of another.
    for table in &tables {
        // Errors of before, once.
        let _ = table.pager.checkpoint();
        table.pager.checkpoint().unwrap();
    }
    for table in tables {
        for (page, last) in (0..).zip(&table.last) {
            let last = *last.lock().unwrap();
            assert_eq!(version(&table.pager.pin(page).unwrap(), table.number, page), last);
            let safe = table.heap.safe(page).map_or(0, |bytes| version(&bytes, table.number, page));
            assert_eq!(safe, last, "page {page} of {}", table.number);
        }
        assert!(table.pager.lost().is_empty());
    }
    end(cache, &pool);
    done.into_inner()
}

/// How long each storm blows: `ZONAL_STORM_MS`, for long runs.
fn time() -> Duration {
    let given = std::env::var("ZONAL_STORM_MS").ok().and_then(|ms| ms.parse().ok());
    Duration::from_millis(given.unwrap_or(700))
}

#[test]
fn a_backing_that_fails_and_panics_under_a_storm_loses_no_page_and_no_frame() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |told| {
        if told.payload().downcast_ref::<&str>() != Some(&"planted") {
            others(told);
        }
    }));
    for (seed, rule) in [(1, Replacement::ActiveInactive), (2, Replacement::SecondChance)] {
        for page_bytes in [4 << 10, 16 << 10] {
            let done = storm(rule, page_bytes, seed, time());
            eprintln!("{rule:?}, pages of {page_bytes}: {done} calls");
        }
    }
}
