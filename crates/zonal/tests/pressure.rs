//! Pools at the edge of their memory: the background reclaimer keeps up, requests of all rights are
//! served or refused in time, and nothing is lost.

mod support;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::order;
use zonal::reclaim::{Answer, By, Holdings, PageLru, Pass, Scanned, Shrinker, Shrunk, Unit};
use zonal::text::Layout;
use zonal::{CpuMap, Gfp, NodeId, Order, Policy, Pool, Request, Sysctl};

const MIB: usize = 1 << 20;
/// What takes longer hangs: nothing here says how fast it is.
const PATIENCE: Duration = Duration::from_secs(180);

/// A cache of pages for each node, oldest first.
struct Cache {
    pool: Arc<Pool>,
    nodes: Vec<Mutex<VecDeque<usize>>>,
    /// Passes by background and other reclaim.
    by: [AtomicU64; 2],
}

impl Cache {
    fn new(pool: &Arc<Pool>) -> Arc<Cache> {
        let nodes = (0..pool.nodes()).map(|_| Mutex::default()).collect();
        Arc::new(Cache { pool: Arc::clone(pool), nodes, by: Default::default() })
    }
    fn node(&self, node: usize) -> MutexGuard<'_, VecDeque<usize>> {
        self.nodes[node].lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes a page in.
    fn push(&self, page: NonNull<u8>) {
        let node = self.pool.node_of(page.as_ptr()).unwrap();
        self.node(usize::from(node.0)).push_back(page.as_ptr() as usize);
    }
    fn free(&self, node: usize, count: u64) -> u64 {
        let mut pages = self.node(node);
        let count = count.min(pages.len() as u64);
        let going: Vec<usize> = pages.drain(..count as usize).collect();
        drop(pages);
        for page in going {
            // SAFETY: (1) the page was the cache's.
            unsafe { self.pool.free_pages(start(page), Order::ZERO) }.unwrap();
        }
        count
    }
    fn empty(&self) {
        (0..self.nodes.len()).for_each(|node| {
            self.free(node, u64::MAX);
        });
    }
}

fn start(page: usize) -> NonNull<u8> {
    NonNull::new(page as *mut u8).unwrap()
}

impl PageLru for Cache {
    fn name(&self) -> &str {
        "cache"
    }
    fn holdings(&self, unit: Unit) -> Holdings {
        let node = match unit {
            Unit::Node(node) => node,
            Unit::Zone(zone) => self.pool.view().zone(zone).unwrap().node(),
        };
        let pages = self.node(usize::from(node.0)).len() as u64;
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink_inactive(&self, pages: u64, pass: &Pass) -> Shrunk {
        self.by[usize::from(pass.by != By::Background)].fetch_add(1, Relaxed);
        let Unit::Node(node) = pass.unit else { return Shrunk::default() };
        let reclaimed = self.free(usize::from(node.0), pages);
        Shrunk { scanned: pages, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

fn free_pages(pool: &Pool, node: NodeId) -> u64 {
    let zones = pool.view().zones().filter(|zone| zone.node() == node);
    zones.map(|zone| zone.free_snapshot()).sum()
}

fn high_watermark(pool: &Pool, node: NodeId) -> u64 {
    let zones = pool.view().zones().filter(|zone| zone.node() == node);
    zones.map(|zone| zone.watermarks().of(zonal_core::zone::watermark::Watermark::High)).sum()
}

/// Waits until the condition holds. `false`: it never will.
fn comes(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Requests that must not wait never reclaim: all their pages come from the background.
#[test]
fn the_background_reclaimer_feeds_requests_that_must_not_wait() {
    let pool = Arc::new(Pool::builder().size(64 * MIB).build().unwrap());
    assert!(!pool.reclaims_in_background(), "a pool without consumers has no such thread");
    let cache = Cache::new(&pool);
    let registered = pool.register_lru(cache.clone());
    assert!(pool.reclaims_in_background());
    let (mut got, mut refused) = (0_u64, 0_u64);
    let start = Instant::now();
    while got < 100_000 && start.elapsed() < PATIENCE {
        match pool.alloc_pages(Order::ZERO, Gfp::NOWAIT) {
            Ok(page) => {
                cache.push(page);
                got += 1;
            }
            Err(_) => {
                refused += 1;
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(got, 100_000, "{refused} refused");
    let vmstat = pool.state().vmstat(Layout::Linux6_12);
    let value = |name| vmstat.value(name).unwrap();
    assert!(value("pgsteal_kswapd") > 70_000, "{}", value("pgsteal_kswapd"));
    assert!(value("pgscan_kswapd") >= value("pgsteal_kswapd") && value("pageoutrun") > 0);
    assert_eq!((value("pgscan_direct"), value("allocstall_normal")), (0, 0));
    assert_eq!(cache.by[1].load(Relaxed), 0);
    drop(registered);
    cache.empty();
    pool.validate().unwrap();
    assert!(comes(|| pool.free_page_count() == 64 * 256), "{}", pool.free_page_count());
}

/// Wherever the load stops, there is room for the next burst, without anybody asking for it. In how
/// many steps: `alloc/tests/background/liveness.rs` of the core.
#[test]
fn when_the_load_stops_free_pages_return_above_the_high_mark() {
    let pool =
        Arc::new(Pool::builder().size(64 * MIB).fake_nodes(2, CpuMap::RoundRobin).build().unwrap());
    let cache = Cache::new(&pool);
    let _registered = pool.register_lru(cache.clone());
    for (round, gfp) in [Gfp::KERNEL, Gfp::ATOMIC, Gfp::NOWAIT].into_iter().enumerate() {
        for node in [0, 1].map(NodeId) {
            let request = Request::new(Order::ZERO).gfp(gfp | Gfp::THISNODE).on(node);
            for _ in 0..10_000 + 777 * round {
                if let Ok(page) = pool.alloc_with(request) {
                    cache.push(page.into_raw().0);
                }
            }
        }
        for node in [0, 1].map(NodeId) {
            let well = || free_pages(&pool, node) > high_watermark(&pool, node);
            assert!(comes(well), "round {round} {node:?}");
        }
    }
    cache.empty();
}

/// A request's reclaim goes on with a shrinker for 20 ms in each of its 13 passes, and ends a
/// second after it last freed something. Calls that take 25 ms are one in a pass, and 40 in a
/// second; the reclaim that is under way then comes to its end. A busy machine makes fewer of them.
#[test]
fn a_refusal_comes_after_a_few_calls_of_a_consumer_that_is_slow_and_frees_nothing() {
    const CALL: Duration = Duration::from_millis(25);
    let pool = Arc::new(Pool::builder().size(32 * MIB).build().unwrap());
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let slow = Shrinker::new(
        "slow",
        |_| 1 << 20,
        move |ask| {
            if ask.by == By::Direct {
                counted.fetch_add(1, Relaxed);
                std::thread::sleep(CALL);
            }
            Scanned::Freed(0)
        },
    );
    let _registered = pool.register_shrinker(slow);
    let mut pages = Vec::new();
    while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::NOWAIT) {
        pages.push(page);
    }
    assert_eq!(calls.load(Relaxed), 0, "who must not wait calls nobody");
    let in_a_second = 1000 / CALL.as_millis() as u64;
    let all = 1..=in_a_second + 13;
    for (gfp, few) in [
        (Gfp::KERNEL, all.clone()),
        (Gfp::KERNEL | Gfp::RETRY_MAYFAIL, all.clone()),
        (Gfp::KERNEL | Gfp::NORETRY, 1..=13),
        (Gfp::NOFS, all),
        (Gfp::ATOMIC, 0..=0),
    ] {
        let mut refused = false;
        while !refused {
            let before = calls.load(Relaxed);
            match pool.alloc_pages(Order::ZERO, gfp) {
                Ok(page) => pages.push(page),
                Err(_) => refused = true,
            }
            let calls = calls.load(Relaxed) - before;
            assert!(calls <= *few.end(), "{gfp}: {calls} calls");
            assert!(!refused || few.contains(&calls), "{gfp}: {calls} calls, and refused");
        }
    }
    for page in pages {
        // SAFETY: (1) the page is ours.
        unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
    }
    pool.validate().unwrap();
}

#[test]
fn the_last_resort_is_asked_last_and_its_answer_is_tried() {
    let spare: Arc<Mutex<Vec<usize>>> = Arc::default();
    let slot: Arc<Mutex<Option<Arc<Pool>>>> = Arc::default();
    let calls = Arc::new(AtomicU64::new(0));
    let (spares, slots, counted) = (Arc::clone(&spare), Arc::clone(&slot), Arc::clone(&calls));
    // No thread moves pages between two requests: the calls are counted.
    let pool =
        Pool::builder().size(32 * MIB).refresh_every(None).on_out_of_memory(move |request| {
            assert_eq!(request.order, Order::ZERO);
            counted.fetch_add(1, Relaxed);
            let Some(page) = spares.lock().unwrap().pop() else { return Answer::Refuse };
            let pool = slots.lock().unwrap().clone().unwrap();
            // SAFETY: (1) the page was put aside for this.
            unsafe { pool.free_pages(start(page), Order::ZERO) }.unwrap();
            Answer::Retry
        });
    let pool = Arc::new(pool.build().unwrap());
    *slot.lock().unwrap() = Some(Arc::clone(&pool));
    let mut pages = Vec::new();
    while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
        pages.push(page);
    }
    assert_eq!(calls.load(Relaxed), 1, "before, it was not needed");
    let aside = pages.split_off(pages.len() - 3);
    spare.lock().unwrap().extend(aside.iter().map(|page| page.as_ptr() as usize));
    let before = pages.len();
    while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
        pages.push(page);
    }
    // Or some more: the watermarks look at a counter that lags behind by what CPUs hold back.
    assert!(pages.len() >= before + 3);
    assert_eq!(calls.load(Relaxed), 1 + 3 + 1);
    // Nobody asks for those who would rather fail.
    assert!(pool.alloc_pages(Order::ZERO, Gfp::KERNEL | Gfp::NORETRY).is_err());
    assert!(pool.alloc_pages(Order::ZERO, Gfp::NOWAIT).is_err());
    assert_eq!(calls.load(Relaxed), 5);
    for page in pages {
        // SAFETY: (1) the page is ours.
        unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
    }
    pool.validate().unwrap();
    slot.lock().unwrap().take();
}

#[test]
fn a_request_that_must_not_fail_waits_until_somebody_frees() {
    let pool = Pool::builder().size(32 * MIB).refresh_every(None).build().unwrap();
    let mut pages = Vec::new();
    // Again with the lists emptied: one of another CPU may hold some for whoever runs there next.
    while pages.is_empty() || pool.drain_all() > 0 {
        while let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::ATOMIC) {
            pages.push(page.as_ptr() as usize);
        }
    }
    std::thread::scope(|threads| {
        let pool = &pool;
        let waiting = threads.spawn(|| {
            let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL | Gfp::NOFAIL).unwrap();
            page.as_ptr() as usize
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        for page in pages.drain(..) {
            // SAFETY: (1) the page is ours.
            unsafe { pool.free_pages(start(page), Order::ZERO) }.unwrap();
        }
        let page = waiting.join().unwrap();
        // SAFETY: (1) the page is ours.
        unsafe { pool.free_pages(start(page), Order::ZERO) }.unwrap();
    });
    pool.validate().unwrap();
}

/// LB G: with node reclaim a near cache makes room before a far node is used; without it the far
/// node is filled first. Under every form of the zonelist cache.
#[test]
fn node_reclaim_keeps_requests_on_their_node() {
    use zonal_core::policy::walk::ZonelistCaching;
    use zonal_core::types::Choice;
    for (name, caching) in ZonelistCaching::ALL {
        let far = [0, 1].map(|mode| {
            let mut policy = Policy::ZONAL;
            policy.zonelist.cache = *caching;
            let builder = Pool::builder().size(64 * MIB).policy(policy).background_reclaim(false);
            // All CPUs are on node 0, wherever the test runs.
            let cpus =
                CpuMap::Explicit(vec![
                    0;
                    zonal::sys::topology::Topology::read().unwrap().cpus().len()
                ]);
            let pool = Arc::new(builder.fake_nodes(2, cpus).build().unwrap());
            pool.set(Sysctl::ZoneReclaimMode, mode).unwrap();
            let cache = Cache::new(&pool);
            let _registered = pool.register_lru(cache.clone());
            let mut far = 0;
            for _ in 0..20_000 {
                let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap();
                far += u64::from(pool.node_of(page.as_ptr()) == Some(NodeId(1)));
                cache.push(page);
            }
            let vmstat = pool.state().vmstat(Layout::Linux6_12);
            let successes = vmstat.value("zone_reclaim_success").unwrap();
            assert_eq!(successes > 0, mode == 1, "{name} mode {mode}");
            cache.empty();
            pool.validate().unwrap();
            far
        });
        assert!(far[0] > 7000, "{name}: {far:?}");
        // The forms since 3.1 pass a node for a second once a try gave too little.
        let passes = !matches!(*name, "none" | "original");
        assert!(far[1] < if passes { far[0] } else { 2000 }, "{name}: {far:?}");
    }
}

/// Whoever forks at any moment gets a child that allocates, without consumers.
#[test]
fn a_child_goes_on_without_its_parents_consumers() {
    let pool = Arc::new(Pool::builder().size(32 * MIB).build().unwrap());
    let cache = Cache::new(&pool);
    let _registered = pool.register_lru(cache.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, other) = (Arc::clone(&stop), Arc::clone(&cache));
    let load = std::thread::spawn(move || {
        while !stopping.load(Relaxed) {
            if let Ok(page) = other.pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
                other.push(page);
            }
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..20 {
        // SAFETY: (1) the child calls what is safe after a fork of a pool, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let served = pool.alloc_pages(Order::ZERO, Gfp::ATOMIC).is_ok();
            // Nobody makes room, and nobody is waited for.
            while pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_ok() {}
            let alone = !pool.reclaims_in_background();
            // SAFETY: (1) ends the child without the parent's handlers.
            unsafe { libc::_exit(i32::from(!(served && alone))) };
        }
        let status = support::wait_child(child, PATIENCE);
        assert_eq!(status.map(|status| status >> 8), Some(0), "{status:?}");
    }
    stop.store(true, Relaxed);
    load.join().unwrap();
    cache.empty();
    pool.validate().unwrap();
}

/// A list of pages, given up from its end, slowly and only while nobody else is at it.
fn slow_objects(pool: &Arc<Pool>, kept: &Arc<Mutex<Vec<usize>>>) -> Shrinker {
    let (counted, scanned, owner) = (Arc::clone(kept), Arc::clone(kept), Arc::clone(pool));
    let objects = Shrinker::new(
        "objects",
        move |_| counted.try_lock().map_or(0, |kept| kept.len() as u64),
        move |ask| {
            let Ok(mut kept) = scanned.try_lock() else { return Scanned::Stop };
            std::thread::sleep(Duration::from_micros(200));
            let keep = kept.len().saturating_sub(ask.objects as usize);
            let going = kept.split_off(keep);
            drop(kept);
            going.iter().for_each(|page| free(&owner, start(*page), Order::ZERO));
            Scanned::Freed(going.len() as u64)
        },
    );
    objects.batch(16)
}

/// Frees a block that the caller owns.
fn free(pool: &Pool, block: NonNull<u8>, order: Order) {
    // SAFETY: (1) the caller owns it, and does not use it any more.
    unsafe { pool.free_pages(block, order) }.unwrap();
}

/// Allocates with all rights and orders; what it gets goes to itself, the cache, or the list.
fn allocate(cache: &Cache, kept: &Mutex<Vec<usize>>, seed: u64, until: Instant) {
    let pool = &*cache.pool;
    let gfps = [
        Gfp::KERNEL,
        Gfp::NOWAIT,
        Gfp::ATOMIC,
        Gfp::NOFS,
        Gfp::NOIO,
        Gfp::KERNEL | Gfp::NORETRY,
        Gfp::KERNEL | Gfp::RETRY_MAYFAIL,
        Gfp::KERNEL | Gfp::HIGH,
        Gfp::NOWAIT | Gfp::MEMALLOC,
        Gfp::KERNEL | Gfp::THISNODE,
    ];
    let mut own: Vec<(NonNull<u8>, Order)> = Vec::new();
    for step in seed.. {
        if Instant::now() >= until {
            break;
        }
        let order = order([0, 0, 0, 0, 1, 3, 9][(step % 7) as usize]);
        let gfp = gfps[(step / 7) as usize % gfps.len()];
        if let Ok(block) = pool.alloc_pages(order, gfp) {
            match step % 5 {
                _ if order > Order::ZERO => own.push((block, order)),
                0 | 1 => cache.push(block),
                2 => kept.lock().unwrap().push(block.as_ptr() as usize),
                _ => own.push((block, order)),
            }
        }
        if own.len() > 200 {
            own.drain(..100).for_each(|(block, order)| free(pool, block, order));
        }
    }
    own.into_iter().for_each(|(block, order)| free(pool, block, order));
}

/// Drains, trims, new settings and budgets.
fn disturb(pool: &Pool, until: Instant) {
    for turn in 0_i64.. {
        if Instant::now() >= until {
            break;
        }
        pool.drain_all();
        let _ = pool.trim(4 * MIB);
        let set = |sysctl, value| pool.set(sysctl, value).unwrap();
        set(Sysctl::MinFreeKbytes, 512 + turn % 3 * 512);
        set(Sysctl::ZoneReclaimMode, [0, 1, 3, 7][turn as usize % 4]);
        set(Sysctl::WatermarkScaleFactor, [10, 100, 1000][turn as usize % 3]);
        set(Sysctl::WatermarkBoostFactor, turn % 2 * 15_000);
        set(Sysctl::HighFraction, [0, 8, 100][turn as usize % 3]);
        set(Sysctl::MinUnmappedRatio, turn % 5);
        // What is in use stays in use.
        let _ = pool.set_budget(if turn % 4 == 3 { 40 * MIB } else { usize::MAX });
        let _ = pool.state();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Allocators of all rights, consumers slow and fast, drains, trims and new settings at once.
#[test]
fn pressure_from_every_side_loses_no_page() {
    for nodes in [1, 2] {
        let builder = Pool::builder().size(48 * MIB).fake_nodes(nodes, CpuMap::RoundRobin);
        let pool = Arc::new(builder.build().unwrap());
        let cache = Cache::new(&pool);
        let kept = Arc::new(Mutex::new(Vec::<usize>::new()));
        let registered = pool.register_lru(cache.clone());
        let objects = pool.register_shrinker(slow_objects(&pool, &kept));
        for phase in 0..3_u64 {
            let until = Instant::now() + Duration::from_millis(400);
            std::thread::scope(|threads| {
                for worker in 0..4_u64 {
                    let (cache, kept) = (&cache, &kept);
                    threads.spawn(move || allocate(cache, kept, phase * 31 + worker * 7, until));
                }
                threads.spawn(|| disturb(&pool, until));
            });
            pool.validate().unwrap_or_else(|fault| panic!("{nodes} nodes, phase {phase}: {fault}"));
        }
        drop((registered, objects));
        pool.set_budget(usize::MAX).unwrap();
        cache.empty();
        kept.lock().unwrap().drain(..).for_each(|page| free(&pool, start(page), Order::ZERO));
        pool.validate().unwrap();
        assert!(comes(|| pool.free_page_count() == 48 * 256), "{}", pool.free_page_count());
    }
}
