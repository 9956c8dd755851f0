//! Node reclaim (LB G) over a page cache in real memory: what each bit of the mode lets be given
//! up, the ratios, and the four answers.

mod support;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use support::{MemStore, PAGE};
use zonal::reclaim::{Scanned, Shrinker};
use zonal::sys::topology::Topology;
use zonal::{CpuMap, Gfp, NodeId, Order, Pool, Sysctl};
use zonal_cache::{Cache, CachedFile};
use zonal_core::reclaim::ReclaimStats;

const MODE_ON: i64 = 1;
const MODE_WRITE: i64 = 2;
const MODE_UNMAP: i64 = 4;
/// Pages of a node.
const NODE_PAGES: u64 = 4096;

/// Two nodes; all CPUs are on node 0, wherever the test runs.
fn pool() -> Arc<Pool> {
    let cpus = Topology::read().unwrap().cpus().len();
    let builder = Pool::builder().size(2 * (NODE_PAGES * PAGE) as usize).refresh_every(None);
    let builder = builder.fake_nodes(2, CpuMap::Explicit(vec![0; cpus])).background_reclaim(false);
    Arc::new(builder.build().unwrap())
}

/// A pool whose node 0 is full of pages of one file.
struct Full {
    pool: Arc<Pool>,
    cache: Cache,
    file: CachedFile,
    store: MemStore,
    /// What was taken to find out.
    held: Vec<NonNull<u8>>,
}

fn is_near(pool: &Pool, page: NonNull<u8>) -> bool {
    pool.node_of(page.as_ptr()) == Some(NodeId(0))
}

fn free(pool: &Pool, pages: &mut Vec<NonNull<u8>>) {
    for page in pages.drain(..) {
        // SAFETY: (1) the page is ours.
        unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
    }
}

/// Takes pages until the near node has none left above its watermark.
fn use_up(pool: &Pool) -> Vec<NonNull<u8>> {
    let mut held = Vec::new();
    loop {
        pool.drain_all();
        let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap();
        held.push(page);
        if !is_near(pool, page) {
            return held;
        }
    }
}

impl Full {
    /// `take` brings a page into the cache.
    fn new(mapped: bool, take: impl Fn(&CachedFile, u64)) -> Full {
        let pool = pool();
        let cache = Cache::builder(pool.clone())
            .read_ahead(0)
            .dirty_percent(100, 100)
            .writeback_every(Duration::from_secs(3600))
            .build()
            .unwrap();
        let store = MemStore::new(vec![7; (NODE_PAGES * PAGE) as usize]);
        let file = cache.open_store(store.clone()).unwrap().mapped(mapped);
        (0..NODE_PAGES - 300).for_each(|page| take(&file, page));
        store.0.writes.store(0, SeqCst);
        let held = use_up(&pool);
        Full { pool, cache, file, store, held }
    }

    /// Fifty requests in this mode. Returns how many were served near, and what node reclaim did.
    fn ask(&mut self, mode: i64, gfp: Gfp) -> (usize, ReclaimStats) {
        self.pool.set(Sysctl::ZoneReclaimMode, mode).unwrap();
        let got = ask(&self.pool, gfp, &mut self.held);
        self.pool.set(Sysctl::ZoneReclaimMode, 0).unwrap();
        got
    }

    fn end(mut self) {
        free(&self.pool, &mut self.held);
        drop(self.file);
        support::end(self.cache, &self.pool);
    }
}

fn ask(pool: &Pool, gfp: Gfp, held: &mut Vec<NonNull<u8>>) -> (usize, ReclaimStats) {
    let before = pool.view().reclaim_stats();
    let got: Vec<_> =
        (0..50).map(|_| pool.alloc_pages(Order::ZERO, gfp).expect("a node has room")).collect();
    let near = got.iter().filter(|page| is_near(pool, **page)).count();
    held.extend(got);
    let after = pool.view().reclaim_stats();
    let did = ReclaimStats {
        tries: after.tries - before.tries,
        no_scan: after.no_scan - before.no_scan,
        full: after.full - before.full,
        success: after.success - before.success,
        failed: after.failed - before.failed,
        ..ReclaimStats::default()
    };
    assert_eq!(after.direct, before.direct, "the other node has room");
    (near, did)
}

/// Answer of each of fifty tries.
fn all_of(count: u64, did: &ReclaimStats) {
    assert_eq!((count, did.tries), (50, 50), "{did:?}");
}

fn read(file: &CachedFile, page: u64) {
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, page * PAGE).unwrap(), 1);
}

#[test]
fn clean_pages_make_room_in_every_mode_and_not_without() {
    let mut full = Full::new(false, read);
    let (near, did) = full.ask(0, Gfp::KERNEL);
    assert_eq!((near, did.tries), (0, 0));
    for mode in [MODE_ON, MODE_WRITE, MODE_UNMAP, 7] {
        let before = full.cache.stats().pages;
        let (near, did) = full.ask(mode, Gfp::KERNEL);
        assert_eq!(near, 50, "mode {mode}: {did:?}");
        assert!(did.success > 0 && did.success == did.tries, "mode {mode}: {did:?}");
        let gone = before - full.cache.stats().pages;
        assert!(gone >= 32 * did.success, "mode {mode}: {gone} pages");
    }
    assert_eq!(full.store.0.writes.load(SeqCst), 0);
    full.end();
}

#[test]
fn dirty_pages_are_left_alone_but_by_the_mode_that_writes() {
    let mut full = Full::new(false, |file, page| {
        file.write_at(&[page as u8; PAGE as usize], page * PAGE).unwrap();
    });
    let dirty = full.cache.stats().dirty;
    assert!(dirty > NODE_PAGES / 2, "{dirty}");
    for mode in [MODE_ON, MODE_ON | MODE_UNMAP] {
        let (near, did) = full.ask(mode, Gfp::KERNEL);
        assert_eq!(near, 0, "mode {mode}");
        all_of(did.full, &did);
    }
    assert_eq!((full.cache.stats().dirty, full.store.0.writes.load(SeqCst)), (dirty, 0));
    let (near, did) = full.ask(MODE_ON | MODE_WRITE, Gfp::KERNEL);
    assert!(near > 0 && did.success > 0 && did.full == 0, "{near} near, {did:?}");
    assert!(full.store.0.writes.load(SeqCst) > 0);
    assert!(full.cache.stats().dirty < dirty);
    full.file.sync().unwrap();
    let bytes = full.store.bytes();
    let pages = bytes.chunks(PAGE as usize).take((NODE_PAGES - 300) as usize);
    for (page, bytes) in pages.enumerate() {
        assert!(bytes.iter().all(|byte| *byte == page as u8), "page {page}");
    }
    full.end();
}

#[test]
fn mapped_pages_are_left_alone_but_by_the_mode_that_unmaps() {
    let mut full = Full::new(true, |file, page| drop(file.pin(page).unwrap()));
    let before = full.cache.stats().pages;
    for mode in [MODE_ON, MODE_ON | MODE_WRITE] {
        let (near, did) = full.ask(mode, Gfp::KERNEL);
        assert_eq!(near, 0, "mode {mode}");
        all_of(did.full, &did);
    }
    assert_eq!(full.cache.stats().pages, before);
    let (near, did) = full.ask(MODE_ON | MODE_UNMAP, Gfp::KERNEL);
    assert!(near > 0 && did.success > 0 && did.full == 0, "{near} near, {did:?}");
    assert!(full.cache.stats().pages < before);
    full.end();
}

#[test]
fn pages_that_are_being_written_are_tried_in_vain() {
    let mut full = Full::new(false, |file, page| {
        file.write_at(&[page as u8; PAGE as usize], page * PAGE).unwrap();
    });
    let (_, did) = full.ask(MODE_ON, Gfp::KERNEL);
    all_of(did.full, &did);
    // The write that the lock holds up has more pages than are left alone.
    let stuck = full.store.0.bytes.lock().unwrap();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| full.file.sync());
        while full.store.0.writes.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        full.pool.set(Sysctl::ZoneReclaimMode, MODE_ON).unwrap();
        let mut held = Vec::new();
        let (near, did) = ask(&full.pool, Gfp::KERNEL, &mut held);
        full.pool.set(Sysctl::ZoneReclaimMode, 0).unwrap();
        drop(stuck);
        written.join().unwrap().unwrap();
        assert_eq!(near, 0);
        all_of(did.failed, &did);
        free(&full.pool, &mut held);
    });
    full.end();
}

#[test]
fn a_request_that_must_not_wait_looks_at_nothing_and_pinned_pages_give_too_little() {
    let mut full = Full::new(false, read);
    let (near, did) = full.ask(MODE_ON, Gfp::NOWAIT);
    assert_eq!(near, 0);
    all_of(did.no_scan, &did);
    let pins: Vec<_> = (0..NODE_PAGES - 300).map(|page| full.file.pin(page).unwrap()).collect();
    let before = full.pool.view().reclaim_stats();
    full.pool.set(Sysctl::ZoneReclaimMode, MODE_ON).unwrap();
    let (near, did) = ask(&full.pool, Gfp::KERNEL, &mut full.held);
    full.pool.set(Sysctl::ZoneReclaimMode, 0).unwrap();
    assert_eq!(near, 0);
    all_of(did.failed, &did);
    // Each made all its passes, harder and harder.
    assert_eq!(full.pool.view().reclaim_stats().passes - before.passes, 50 * 5);
    drop(pins);
    full.end();
}

#[test]
fn ratios_say_how_much_is_left_alone() {
    let mut full = Full::new(false, read);
    let set = |pool: &Pool, sysctl, percent| pool.set(sysctl, percent).unwrap();
    // All of the node's pages, and more than the cache has.
    set(&full.pool, Sysctl::MinUnmappedRatio, 100);
    let (near, did) = full.ask(MODE_ON, Gfp::KERNEL);
    assert_eq!(near, 0);
    all_of(did.full, &did);
    // A tenth of them.
    set(&full.pool, Sysctl::MinUnmappedRatio, 10);
    assert_eq!(full.ask(MODE_ON, Gfp::KERNEL).0, 50);
    full.end();
}

#[test]
fn the_slab_ratio_is_for_caches_of_objects() {
    let pool = pool();
    let mut objects: Vec<NonNull<u8>> = Vec::new();
    for _ in 0..1000 {
        objects.push(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap());
    }
    let kept = Arc::new(std::sync::Mutex::new(
        objects.iter().map(|page| page.as_ptr() as usize).collect::<Vec<_>>(),
    ));
    let (counted, scanned, owner) = (kept.clone(), kept.clone(), Arc::downgrade(&pool));
    let registered = pool.register_shrinker(Shrinker::new(
        "objects",
        move |_| counted.lock().unwrap().len() as u64,
        move |ask| {
            let owner = owner.upgrade().expect("the pool asks");
            let mut kept = scanned.lock().unwrap();
            let keep = kept.len().saturating_sub(ask.objects as usize);
            let mut going: Vec<_> =
                kept.drain(keep..).filter_map(|page| NonNull::new(page as *mut u8)).collect();
            let count = going.len() as u64;
            free(&owner, &mut going);
            Scanned::Freed(count)
        },
    ));
    let mut held = use_up(&pool);
    pool.set(Sysctl::ZoneReclaimMode, MODE_ON).unwrap();
    // A thousand pages are 24 % of the node.
    pool.set(Sysctl::MinSlabRatio, 30).unwrap();
    let (near, did) = ask(&pool, Gfp::KERNEL, &mut held);
    assert_eq!(near, 0);
    all_of(did.full, &did);
    pool.set(Sysctl::MinSlabRatio, 5).unwrap();
    let (near, did) = ask(&pool, Gfp::KERNEL, &mut held);
    assert!(near == 50 && did.success == did.tries, "{near} near, {did:?}");
    drop(registered);
    free(&pool, &mut held);
    let mut left: Vec<_> =
        kept.lock().unwrap().drain(..).filter_map(|page| NonNull::new(page as *mut u8)).collect();
    free(&pool, &mut left);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count(), 2 * NODE_PAGES);
}
