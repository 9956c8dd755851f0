//! Consumers that panic or lie, in each function they have: the pool is told, and loses nothing.
//! Shrinkers that lie: `reclaim.rs`.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use zonal::reclaim::{Holdings, PageLru, Pass, Registration, Scanned, Shrinker, Shrunk, Unit};
use zonal::{Gfp, Order, Pool};

const POOL_BYTES: usize = 32 << 20;
const POOL_PAGES: u64 = POOL_BYTES as u64 / 4096;

/// Requests reclaim for themselves and no thread moves pages, so that counts are exact.
fn pool() -> Arc<Pool> {
    let builder = Pool::builder().size(POOL_BYTES).background_reclaim(false);
    Arc::new(builder.refresh_every(None).build().unwrap())
}

/// The oldest pages of a list that owns them; returns how many there were.
fn free(pool: &Pool, pages: &Mutex<Vec<usize>>, count: u64) -> u64 {
    let mut owned = pages.lock().unwrap();
    let count = owned.len().min(count as usize);
    let going: Vec<usize> = owned.drain(..count).collect();
    drop(owned);
    for page in going {
        let page = NonNull::new(page as *mut u8).unwrap();
        // SAFETY: (1) the list owned the page.
        unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
    }
    count as u64
}

/// A cache whose functions do as they are told.
struct Told {
    holdings: fn() -> Holdings,
    inactive: fn(u64) -> Shrunk,
    active: fn(u64) -> u64,
    calls: Arc<AtomicU64>,
}

impl PageLru for Told {
    fn name(&self) -> &str {
        "bad"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        (self.holdings)()
    }
    fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
        self.calls.fetch_add(1, Relaxed);
        (self.inactive)(pages)
    }
    fn shrink_active(&self, pages: u64, _pass: &Pass) -> u64 {
        self.calls.fetch_add(1, Relaxed);
        (self.active)(pages)
    }
}

fn lists(inactive_file: u64, active_file: u64) -> Holdings {
    let file = inactive_file.saturating_add(active_file);
    Holdings { file, inactive_file, active_file, ..Holdings::default() }
}

/// Nothing in hand: whatever is called without being told to is wrong.
fn told() -> Told {
    Told {
        holdings: || lists(0, 0),
        inactive: |_| Shrunk::default(),
        active: |_| 0,
        calls: Arc::default(),
    }
}

/// A consumer of objects that gives up what it has.
fn good(pool: &Arc<Pool>, pages: &Arc<Mutex<Vec<usize>>>) -> Registration {
    let (counted, scanned, owner) = (Arc::clone(pages), Arc::clone(pages), Arc::clone(pool));
    pool.register_shrinker(Shrinker::new(
        "good",
        move |_| counted.lock().unwrap().len() as u64,
        move |ask| Scanned::Freed(free(&owner, &scanned, ask.objects)),
    ))
}

fn panics<R>() -> R {
    panic!("on purpose")
}

/// Registers a bad consumer.
type Register = fn(&Pool) -> Registration;

#[test]
fn a_panic_in_any_function_is_reported_and_the_others_go_on() {
    let bad: [(&str, Register); 5] = [
        ("count", |pool| pool.register_shrinker(Shrinker::new("bad", |_| panics(), |_| panics()))),
        ("scan", |pool| {
            pool.register_shrinker(Shrinker::new("bad", |_| 1000, |_| panics()).seeks(0))
        }),
        ("holdings", |pool| pool.register_lru(Arc::new(Told { holdings: panics, ..told() }))),
        ("inactive", |pool| {
            let holdings = || lists(1000, 0);
            pool.register_lru(Arc::new(Told { holdings, inactive: |_| panics(), ..told() }))
        }),
        ("active", |pool| {
            let holdings = || lists(0, 4000);
            pool.register_lru(Arc::new(Told { holdings, active: |_| panics(), ..told() }))
        }),
    ];
    for (function, register) in bad {
        let (pool, pages) = (pool(), Arc::new(Mutex::new(Vec::new())));
        let registered = (register(&pool), good(&pool, &pages));
        for _ in 0..2 * POOL_PAGES {
            let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL);
            let page = page.unwrap_or_else(|error| panic!("{function}: {error}"));
            pages.lock().unwrap().push(page.as_ptr() as usize);
        }
        let report = pool.reclaim_report();
        assert_eq!(report[0].panicked.as_deref(), Some("on purpose"), "{function}");
        let (line, good) = (report[0].to_string(), report[1].to_string());
        assert!(line.ends_with("; panicked and is not called since: on purpose"), "{line}");
        assert!(good.contains(&format!("freed {}, stalls 0", report[1].freed)), "{good}");
        assert!(!good.contains("not called") && good.lines().count() == 1, "{good}");
        assert_eq!((report[0].freed, &report[1].panicked), (0, &None), "{function}");
        // What it says it holds is nobody's: the rest of the report is right without it.
        let held = pages.lock().unwrap().len() as u64 * 4096;
        assert_eq!((pool.held().users, pool.held().consumers), (0, held), "{function}");
        drop(registered);
        assert_eq!(pool.reclaim_report(), []);
        free(&pool, &pages, u64::MAX);
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count(), POOL_PAGES, "{function}");
    }
}

/// What a cache says of its lists is bounded by what the pool has, and what it says it freed by
/// what came free: a request ends in a refusal, and not in a search without end.
#[test]
fn caches_of_pages_that_lie_end_in_a_refusal_and_lose_nothing() {
    type Claim = fn() -> Holdings;
    let claims: [(&str, Claim); 4] = [
        ("some", || lists(100, 100)),
        ("more than there is", || lists(u64::MAX, u64::MAX)),
        ("an active list only", || lists(0, u64::MAX)),
        ("mapped and dirty only", || Holdings {
            file_mapped: u64::MAX,
            file_dirty: u64::MAX,
            ..lists(u64::MAX, 0)
        }),
    ];
    type Lie = fn(u64) -> Shrunk;
    let lies: [(&str, Lie); 4] = [
        ("nothing", |_| Shrunk::default()),
        ("all", |pages| Shrunk { scanned: pages, reclaimed: pages, slab: 0 }),
        ("impossible", |_| Shrunk { scanned: u64::MAX, reclaimed: u64::MAX, slab: u64::MAX }),
        ("more freed than looked at", |pages| Shrunk { scanned: 0, reclaimed: pages, slab: 9 }),
    ];
    for (claim, holdings) in claims {
        for (lie, inactive) in lies {
            let pool = pool();
            let cache = Told { holdings, inactive, active: |_| u64::MAX, ..told() };
            let calls = Arc::clone(&cache.calls);
            let registered = pool.register_lru(Arc::new(cache));
            let pages = Mutex::new(Vec::new());
            while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
                pages.lock().unwrap().push(page.as_ptr() as usize);
            }
            assert!(calls.load(Relaxed) > 0, "{claim}, {lie}: never asked");
            assert!(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_err(), "{claim}, {lie}");
            let held = pool.held();
            let all = (pool.bytes() + pool.metadata_bytes()) as u64;
            assert_eq!(held.total(), all, "{claim}, {lie}\n{held}");
            drop(registered);
            free(&pool, &pages, u64::MAX);
            pool.validate().unwrap();
            assert_eq!(pool.free_page_count(), POOL_PAGES, "{claim}, {lie}");
        }
    }
}
