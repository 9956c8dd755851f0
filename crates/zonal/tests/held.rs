//! The budget, and the report of where a pool's bytes are.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zonal::reclaim::{Holdings, PageLru, Pass, Shrunk, Unit};
use zonal::{CpuMap, Gfp, HeldReport, NodeId, Order, Pool};

const MIB: u64 = 1 << 20;

/// The sum is checked against what the pool says of itself elsewhere.
fn held(pool: &Pool) -> HeldReport {
    let report = pool.held();
    assert_eq!(report.total(), (pool.bytes() + pool.metadata_bytes()) as u64, "\n{report}");
    report
}

fn free(pool: &Pool, pages: impl IntoIterator<Item = NonNull<u8>>, order: Order) {
    for page in pages {
        // SAFETY: (1) the tests own what they free.
        unsafe { pool.free_pages(page, order) }.unwrap();
    }
}

fn fill(pool: &Pool, gfp: Gfp) -> Vec<NonNull<u8>> {
    std::iter::from_fn(|| pool.alloc_pages(Order::ZERO, gfp).ok()).collect()
}

#[test]
fn every_byte_has_one_reason() {
    if cfg!(zonal_portable) {
        return eprintln!("SKIPPED: no page is given back here");
    }
    // Where transparent huge pages are set to `always`, the kernel would make 2 MiB resident for
    // each page that is touched.
    // SAFETY: (1) takes four numbers; memory mapped from here on is of base pages.
    let rc = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(rc, 0, "prctl: {}", std::io::Error::last_os_error());
    let pool = Pool::builder().size(64 << 20).refresh_every(None).build().unwrap();
    let fresh = held(&pool);
    assert_eq!((fresh.users, fresh.consumers, fresh.lists, fresh.withheld), (0, 0, 0, 0));
    assert_eq!((fresh.free_absent, fresh.elsewhere), (64 * MIB, 0));
    let mut blocks = Vec::new();
    for order in [0, 0, 3, 5, 9, 10].map(|order| Order::new(order).unwrap()) {
        let mut pages = pool.alloc(order).unwrap();
        pages.fill(1);
        blocks.push(pages);
    }
    let bytes: u64 = blocks.iter().map(|pages| pages.len() as u64).sum();
    let busy = held(&pool);
    assert_eq!(busy.users, bytes);
    assert!(busy.lists > 0 && busy.lists <= 8 * MIB, "\n{busy}");
    drop(blocks);
    pool.drain_all();
    let idle = held(&pool);
    assert_eq!((idle.users, idle.lists), (0, 0));
    assert_eq!(idle.free_resident, bytes, "touched, and free");
    assert_eq!(idle.free_resident + idle.free_absent, 64 * MIB);
    let given = pool.trim(usize::MAX).unwrap() as u64;
    assert_eq!(held(&pool).free_resident, bytes - given);
    assert_eq!(given, bytes, "everything has merged into blocks of 2 MiB and more");
    let lines = idle.to_string();
    assert_eq!(lines.lines().count(), idle.lines().len() + 1);
    assert!(lines.ends_with(&idle.total().to_string()));
}

#[test]
fn no_more_than_the_budget_is_ever_in_use() {
    for nodes in [1, 2] {
        let builder = Pool::builder().size(64 << 20).fake_nodes(nodes, CpuMap::RoundRobin);
        // No thread holds a page while the last one is asked for.
        let pool = builder.budget(16 << 20).refresh_every(None).build().unwrap();
        assert_eq!(pool.budget() as u64, 16 * MIB);
        for gfp in [Gfp::KERNEL, Gfp::ATOMIC, Gfp::MEMALLOC] {
            let pages = fill(&pool, gfp);
            let report = held(&pool);
            assert!(report.in_use() <= 16 * MIB, "{gfp}\n{report}");
            assert_eq!(report.withheld, 48 * MIB);
            assert!(pages.len() as u64 * 4096 <= 16 * MIB);
            if gfp == Gfp::MEMALLOC {
                assert_eq!(pages.len(), 4096, "all of it, to the last page");
            }
            free(&pool, pages, Order::ZERO);
        }
        pool.set_budget(20 << 20).unwrap();
        assert_eq!((pool.budget() as u64, held(&pool).withheld), (20 * MIB, 44 * MIB));
        pool.set_budget(usize::MAX).unwrap();
        assert_eq!(held(&pool).withheld, 0);
        pool.set_budget((10 << 20) + 5000).unwrap();
        assert_eq!(pool.budget() as u64, 10 * MIB + 4096);
        pool.validate().unwrap();
    }
}

/// Gives up all that it is asked for.
struct Cache {
    pool: Arc<Pool>,
    pages: Mutex<Vec<usize>>,
}

impl PageLru for Cache {
    fn name(&self) -> &str {
        "cache"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        let pages = self.pages.lock().unwrap().len() as u64;
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
        let mut held = self.pages.lock().unwrap();
        let keep = held.len().saturating_sub(pages as usize);
        let going = held.split_off(keep);
        let reclaimed = going.len() as u64;
        free(&self.pool, going.iter().map(|page| start(*page)), Order::ZERO);
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

fn start(page: usize) -> NonNull<u8> {
    NonNull::new(page as *mut u8).unwrap()
}

#[test]
fn a_lower_budget_takes_from_caches_but_not_from_users() {
    // No thread moves pages between the report's first line and its last one.
    let builder = Pool::builder().size(64 << 20).background_reclaim(false).refresh_every(None);
    let pool = Arc::new(builder.build().unwrap());
    let cache = Arc::new(Cache { pool: Arc::clone(&pool), pages: Mutex::default() });
    let _registered = pool.register_lru(cache.clone());
    let users: Vec<_> =
        (0..2048).map(|_| pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    for _ in 0..8192 {
        let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap();
        cache.pages.lock().unwrap().push(page.as_ptr() as usize);
    }
    let report = held(&pool);
    assert_eq!((report.users, report.consumers), (8 * MIB, 32 * MIB));
    pool.set_budget(24 << 20).unwrap();
    let report = held(&pool);
    assert_eq!(report.users, 8 * MIB);
    assert!(report.in_use() <= 24 * MIB && report.consumers <= 16 * MIB, "\n{report}");
    let error = pool.set_budget(4 << 20).unwrap_err();
    assert_eq!(error.asked as u64, 4 * MIB);
    assert!(error.in_force as u64 >= 8 * MIB, "{error}");
    assert_eq!(error.in_force, pool.budget());
    assert_eq!(held(&pool).users, 8 * MIB);
    free(&pool, users, Order::ZERO);
    pool.set_budget(4 << 20).unwrap();
    assert!(held(&pool).in_use() <= 4 * MIB);
    let left = std::mem::take(&mut *cache.pages.lock().unwrap());
    free(&pool, left.into_iter().map(start), Order::ZERO);
    pool.validate().unwrap();
}

/// Pages in depots count as those on lists do. In small rounds, because a depot gets what lists
/// drain while there is room above the watermarks.
#[test]
fn what_depots_hold_is_reported_and_counts_against_the_budget() {
    let builder = Pool::builder().size(64 << 20).budget(32 << 20).refresh_every(None);
    let pool = builder.build().unwrap();
    let mut most = 0;
    for _ in 0..20 {
        let pages: Vec<_> =
            (0..4096).map(|_| pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
        free(&pool, pages, Order::ZERO);
        let report = held(&pool);
        assert_eq!((report.users, report.withheld, report.elsewhere), (0, 32 * MIB, 0));
        assert!(report.in_use() <= 32 * MIB, "\n{report}");
        most = most.max(report.depots);
    }
    assert!(most > 0, "no list ever drained to a depot\n{}", pool.held());
    // None of it is out of reach: the budget can be had to the last page.
    let pages = fill(&pool, Gfp::MEMALLOC);
    let report = held(&pool);
    assert_eq!((report.users, report.lists, report.depots), (32 * MIB, 0, 0), "\n{report}");
    free(&pool, pages, Order::ZERO);
    pool.drain_all();
    let report = held(&pool);
    assert_eq!((report.in_use(), report.withheld), (0, 32 * MIB), "\n{report}");
    pool.validate().unwrap();
}

/// After a burst the refresh thread gives back what is free, by itself. How fast:
/// `after_a_burst_memory_goes_back_at_the_rate_that_was_asked_for`, by a clock of the test.
#[test]
fn memory_is_handed_back_by_itself_after_a_burst() {
    if cfg!(zonal_portable) {
        return eprintln!("SKIPPED: no page is given back here");
    }
    let builder = Pool::builder().size(128 << 20).trim_rate(256 << 20);
    let pool = builder.refresh_every(Some(Duration::from_millis(200))).build().unwrap();
    let mut pages = fill(&pool, Gfp::KERNEL);
    for page in &mut pages {
        // SAFETY: (1) the page is ours.
        unsafe { page.as_ptr().write_bytes(7, 4096) };
    }
    let burst = held(&pool);
    assert!(burst.users > 100 * MIB);
    free(&pool, pages, Order::ZERO);
    let start = Instant::now();
    // The report is exact only while nothing runs.
    let left = || {
        let report = pool.held();
        report.free_resident + report.in_use()
    };
    while left() > 8 * MIB {
        assert!(start.elapsed() < Duration::from_secs(180), "\n{}", pool.held());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(pool.node_of(pool.base()), Some(NodeId(0)));
    pool.validate().unwrap();
}
