//! Random programs of an engine against a plain map of pages, with a backing that fails; with
//! power losses, and with a log that must come first.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::backing::{Call, HeapBacking, end, failed};
use support::{pattern, pool};
use zonal_cache::{EngineCache, Pager, Replacement};

const PAGES: u64 = 40;

#[derive(Clone, Debug)]
enum Op {
    Pin(u64),
    Change { page: u64, seed: u64, at: usize },
    New { page: u64, seed: u64 },
    Evict(u64),
    Checkpoint,
    Truncate(u64),
    Prefetch(u64),
    FailWrites(u64),
    FailSyncs(u64),
    Unreadable(bool),
    Reopen,
}

fn op() -> BoxedStrategy<Op> {
    let page = 0..PAGES;
    prop_oneof![
        5 => page.clone().prop_map(Op::Pin),
        5 => (page.clone(), any::<u64>(), 0..4000_usize)
            .prop_map(|(page, seed, at)| Op::Change { page, seed, at }),
        3 => (page.clone(), any::<u64>()).prop_map(|(page, seed)| Op::New { page, seed }),
        1 => (0..12_u64).prop_map(Op::Evict),
        2 => Just(Op::Checkpoint),
        1 => page.clone().prop_map(Op::Truncate),
        1 => page.prop_map(Op::Prefetch),
        1 => (0..3_u64).prop_map(Op::FailWrites),
        1 => (0..2_u64).prop_map(Op::FailSyncs),
        1 => any::<bool>().prop_map(Op::Unreadable),
        1 => Just(Op::Reopen),
    ]
    .boxed()
}

/// The pages that are not zero, by number.
type Pages = BTreeMap<u64, Vec<u8>>;

fn page_of(pages: &Pages, page: u64, bytes: usize) -> Vec<u8> {
    pages.get(&page).cloned().unwrap_or_else(|| vec![0; bytes])
}

/// An engine does not try longer than this; the longest pause after failed writes is 5 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// The engine replays what was lost.
fn replay(pager: &Pager, model: &Pages) {
    let since = Instant::now();
    for page in pager.accept_loss().unwrap().into_iter().flatten() {
        let bytes = page_of(model, page, pager.page_bytes());
        while let Err(error) = pager.pin_new(page).map(|mut pin| pin.copy_from_slice(&bytes)) {
            assert!(!error.to_string().contains("panicked"), "{error}");
            assert!(since.elapsed() < PATIENCE, "it does not get well: {error}");
        }
    }
}

fn heal(pager: &Pager, heap: &HeapBacking, model: &Pages) {
    heap.0.failing_writes.store(0, SeqCst);
    heap.0.failing_syncs.store(0, SeqCst);
    heap.0.unreadable.store(false, SeqCst);
    let mut tries = 0;
    while pager.checkpoint().is_err() {
        replay(pager, model);
        tries += 1;
        assert!(tries < 5, "it does not get well");
    }
}

/// An engine, its backing, and what its pages should be.
struct Engine {
    cache: EngineCache,
    pager: Pager,
    heap: HeapBacking,
    model: Pages,
}

impl Engine {
    fn page(&self, page: u64) -> Vec<u8> {
        page_of(&self.model, page, self.cache.page_bytes())
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Pin(page) => {
                if let Ok(pin) = self.pager.pin(page) {
                    prop_assert!(*pin == self.page(page)[..], "{:?}", op);
                }
            }
            Op::Change { page, seed, at } => {
                let mut bytes = self.page(page);
                if let Ok(mut pin) = self.pager.pin_mut(page) {
                    prop_assert!(*pin == bytes[..], "{:?}", op);
                    bytes[at..at + 96].copy_from_slice(&pattern(seed, 96));
                    pin[at..at + 96].copy_from_slice(&pattern(seed, 96));
                    self.model.insert(page, bytes);
                }
            }
            Op::New { page, seed } => {
                if let Ok(mut pin) = self.pager.pin_new(page) {
                    prop_assert!(pin.iter().all(|byte| *byte == 0));
                    let bytes = pattern(seed, pin.len());
                    pin.copy_from_slice(&bytes);
                    self.model.insert(page, bytes);
                }
            }
            Op::Evict(pages) => drop(self.cache.evict(pages)),
            Op::Checkpoint => match self.pager.checkpoint() {
                Ok(()) => {
                    let safe = self.heap.0.safe.lock().unwrap().clone();
                    let is_safe = |(page, bytes): (&u64, &Vec<u8>)| safe.get(page) == Some(bytes);
                    prop_assert!(self.model.iter().all(is_safe), "acknowledged, and not safe");
                }
                Err(_) => replay(&self.pager, &self.model),
            },
            Op::Truncate(first) => {
                self.pager.truncate(first).unwrap();
                // The engine cuts its storage too.
                self.heap.0.safe.lock().unwrap().retain(|page, _| *page < first);
                self.heap.0.pending.lock().unwrap().retain(|(page, _)| *page < first);
                self.model.retain(|page, _| *page < first);
            }
            Op::Prefetch(page) => self.pager.prefetch(page..page + 6),
            Op::FailWrites(n) => self.heap.0.failing_writes.store(n, SeqCst),
            Op::FailSyncs(n) => self.heap.0.failing_syncs.store(n, SeqCst),
            Op::Unreadable(broken) => self.heap.0.unreadable.store(broken, SeqCst),
            Op::Reopen => {
                heal(&self.pager, &self.heap, &self.model);
                let next = self.cache.open(self.heap.clone()).unwrap();
                std::mem::replace(&mut self.pager, next).close().unwrap();
            }
        }
        Ok(())
    }
}

fn run(
    ops: &[Op],
    page_bytes: usize,
    max_pages: u64,
    rule: Replacement,
) -> Result<(), TestCaseError> {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = EngineCache::builder(pool.clone())
        .page_bytes(page_bytes)
        .max_pages(max_pages)
        .replacement(rule)
        .dirty_percent(10, 60)
        .build()
        .unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let mut engine = Engine { cache, pager, heap, model: Pages::new() };
    for op in ops {
        engine.step(op)?;
        prop_assert!(engine.cache.stats().pages <= max_pages);
    }
    let Engine { cache, pager, heap, model } = engine;
    heal(&pager, &heap, &model);
    for (page, bytes) in &model {
        let safe = heap.safe(*page);
        prop_assert_eq!(safe.as_ref(), Some(bytes));
    }
    drop(pager);
    end(cache, &pool);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_an_engine_are_a_map(
        ops in prop::collection::vec(op(), 1..60),
        order in 0..5_u32,
        max_pages in 4..24_u64,
        rule in prop_oneof![Just(Replacement::ActiveInactive), Just(Replacement::SecondChance)],
    ) {
        run(&ops, 4096 << order, max_pages, rule)?;
    }
}

/// What a page held since it was last acknowledged.
type Versions = BTreeMap<u64, Vec<Vec<u8>>>;

/// A random program, with power losses all the time. Returns checkpoints that worked and failed.
fn with_power_losses(seed: u64, writeback: Duration) -> (u32, u32) {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = EngineCache::builder(pool)
        .max_pages(10)
        .dirty_percent(1, 80)
        .dirty_expire(Duration::ZERO)
        .writeback_every(writeback)
        .build()
        .unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let (mut random, mut model) = (Pcg64::seed_from_u64(seed), Pages::new());
    let mut versions: Versions = (0..PAGES).map(|page| (page, vec![vec![0; 4096]])).collect();
    let (mut worked, mut failures) = (0, 0);
    for _ in 0..150 {
        let page = random.next_u64() % PAGES;
        match random.next_u64() % 20 {
            0..12 => {
                let bytes = pattern(random.next_u64(), 4096);
                if let Ok(mut pin) = pager.pin_new(page) {
                    pin.copy_from_slice(&bytes);
                    versions.entry(page).or_default().push(bytes.clone());
                    model.insert(page, bytes);
                }
            }
            12 => heap.0.failing_syncs.store(random.next_u64() % 2, SeqCst),
            13 => heap.0.failing_writes.store(random.next_u64() % 2, SeqCst),
            14 => drop(cache.evict(random.next_u64() % 10)),
            _ => match pager.checkpoint() {
                Ok(()) => {
                    worked += 1;
                    for (page, versions) in &mut versions {
                        *versions = vec![page_of(&model, *page, 4096)];
                    }
                }
                Err(_) => {
                    failures += 1;
                    replay(&pager, &model);
                }
            },
        }
        for page in heap.after_power_loss(random.next_u64()) {
            assert!(versions[&page.0].contains(&page.1), "page {} is what it never was", page.0);
        }
        let left = heap.after_power_loss(random.next_u64());
        for (page, versions) in &versions {
            let now = page_of(&left, *page, 4096);
            assert!(versions.contains(&now), "page {page}: what was acknowledged is gone");
        }
    }
    (worked, failures)
}

#[test]
fn what_a_checkpoint_acknowledged_survives_a_power_loss() {
    for writeback in [Duration::from_secs(3600), Duration::from_micros(300)] {
        let (mut worked, mut failures) = (0, 0);
        for seed in 0..60 {
            let (more, less) = with_power_losses(seed, writeback);
            (worked, failures) = (worked + more, failures + less);
        }
        assert!(worked > 500 && failures > 100, "{worked} worked, {failures} failed");
    }
}

/// Threads change pages and log it first; the log fails now and then. No page reaches the backing
/// before the log has its last change.
#[test]
fn no_page_is_written_before_the_log_has_its_last_change() {
    const THREADS: u64 = 3;
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = EngineCache::builder(pool.clone())
        .max_pages(12)
        .dirty_percent(1, 90)
        .dirty_expire(Duration::ZERO)
        .writeback_every(Duration::from_millis(1))
        .build()
        .unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    let (next, calls) = (AtomicU64::new(1), Arc::new(AtomicU64::new(0)));
    let counted = calls.clone();
    heap.hook(move |call| match call {
        Call::Log(_) if counted.fetch_add(1, SeqCst) % 7 == 3 => Err(failed()),
        _ => Ok(()),
    });
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let (pager, next, heap) = (&pager, &next, &heap);
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(me);
                for _ in 0..2000 {
                    let page = random.next_u64() % PAGES;
                    if let Ok(mut pin) = pager.pin_mut(page) {
                        let lsn = next.fetch_add(1, SeqCst);
                        pin.set_lsn(lsn);
                        pin[..8].copy_from_slice(&lsn.to_le_bytes());
                    }
                    if random.next_u64().is_multiple_of(64) {
                        let _ = pager.checkpoint();
                    }
                    let log = || heap.0.log.load(SeqCst);
                    for (page, bytes) in heap.0.pending.lock().unwrap().iter() {
                        let lsn = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert!(lsn <= log(), "page {page} has {lsn}, the log {}", log());
                    }
                }
            });
        }
    });
    assert!(calls.load(SeqCst) > 100);
    heap.hook(|_| Ok(()));
    heal(&pager, &heap, &Pages::new());
    drop(pager);
    end(cache, &pool);
}

/// The models have teeth: a backing that writes pages before the log has them is found.
#[test]
fn a_page_that_passes_its_log_would_be_found() {
    let (pool, heap) = (pool(), HeapBacking::new());
    let cache = EngineCache::builder(pool).build().unwrap();
    let pager = cache.open(heap.clone()).unwrap();
    // An engine that forgets `set_lsn`.
    pager.pin_new(1).unwrap()[..8].copy_from_slice(&5_u64.to_le_bytes());
    cache.checkpoint().unwrap();
    let page = heap.safe(1).unwrap();
    assert!(u64::from_le_bytes(page[..8].try_into().unwrap()) > heap.0.log.load(SeqCst));
}

/// Threads fill whole pages with one byte, and read, evict, prefetch and checkpoint meanwhile, in a
/// cache of a few pages, one of them held.
#[test]
fn threads_see_whole_pages_and_the_last_write_of_each() {
    for (order, rule) in [(0, Replacement::ActiveInactive), (2, Replacement::SecondChance)] {
        let (pool, heap) = (pool(), HeapBacking::new());
        let cache = EngineCache::builder(pool.clone())
            .page_bytes(4096 << order)
            .max_pages(16)
            .replacement(rule)
            .writeback_every(Duration::from_millis(1))
            .build()
            .unwrap();
        let pager = Arc::new(cache.open(heap.clone()).unwrap());
        pager.pin_new(1000).unwrap().fill(7);
        let held = pager.pin_owned(1000).unwrap();
        let last: Vec<_> = (0..PAGES).map(|_| std::sync::Mutex::new(0_u8)).collect();
        std::thread::scope(|scope| {
            for me in 0..4 {
                let (cache, pager, last) = (&cache, &pager, &last);
                scope.spawn(move || {
                    let mut random = Pcg64::seed_from_u64(me);
                    for _ in 0..1500 {
                        let page = random.next_u64() % PAGES;
                        match random.next_u64() % 16 {
                            0..6 => {
                                let mut last = last[page as usize].lock().unwrap();
                                *last = last.wrapping_add(1);
                                pager.pin_new(page).unwrap().fill(*last);
                            }
                            6..14 => {
                                let pin = pager.pin(page).unwrap();
                                assert!(pin.iter().all(|byte| *byte == pin[0]), "a torn page");
                            }
                            14 => drop(cache.evict(random.next_u64() % 8)),
                            _ if me == 0 => pager.checkpoint().unwrap(),
                            _ => pager.prefetch(page..page + 3),
                        }
                    }
                });
            }
        });
        assert!(held.iter().all(|byte| *byte == 7));
        drop(held);
        for (page, last) in last.iter().enumerate() {
            let pin = pager.pin(page as u64).unwrap();
            let last = *last.lock().unwrap();
            assert!(pin.iter().all(|byte| *byte == last), "page {page}: a write is gone");
        }
        drop(pager);
        end(cache, &pool);
    }
}
