//! Consumers of a pool's pages: who is asked, and what a bad one can do.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use zonal::reclaim::{Holdings, PageLru, Pass, Scanned, Shrinker, Shrunk, Unit};
use zonal::{CpuMap, Gfp, NodeId, Order, Pool, Request};

const POOL_BYTES: usize = 32 << 20;
const POOL_PAGES: u64 = POOL_BYTES as u64 / 4096;

/// Requests reclaim for themselves and no thread moves pages, so that counts are exact. With
/// threads beside: `pressure.rs`.
fn pool() -> Arc<Pool> {
    let builder = Pool::builder().size(POOL_BYTES).background_reclaim(false);
    Arc::new(builder.refresh_every(None).build().unwrap())
}

/// Owned pages as numbers, oldest first.
#[derive(Default)]
struct Pages(Mutex<VecDeque<usize>>);

impl Pages {
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn push(&self, page: NonNull<u8>) {
        self.lock().push_back(page.as_ptr() as usize);
    }
    fn len(&self) -> u64 {
        self.lock().len() as u64
    }
    /// Frees the oldest; returns how many there were.
    fn free(&self, pool: &Pool, count: u64) -> u64 {
        let mut pages = self.lock();
        let count = count.min(pages.len() as u64);
        let going: Vec<usize> = pages.drain(..count as usize).collect();
        drop(pages);
        for page in going {
            let start = NonNull::new(page as *mut u8).unwrap();
            // SAFETY: (1) the page was in the list, which owned it.
            unsafe { pool.free_pages(start, Order::ZERO) }.unwrap();
        }
        count
    }
}

/// A cache that gives up whatever it is asked for.
struct Willing {
    pool: Arc<Pool>,
    pages: Pages,
}

impl PageLru for Willing {
    fn name(&self) -> &str {
        "willing"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        let pages = self.pages.len();
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
        assert!(pages <= 32);
        let reclaimed = self.pages.free(&self.pool, pages);
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        unreachable!("its active list is empty")
    }
}

fn willing() -> Arc<Willing> {
    Arc::new(Willing { pool: pool(), pages: Pages::default() })
}

/// Allocates until refused, into `pages`. Returns how many it got.
fn fill(pool: &Pool, pages: &Pages, gfp: Gfp) -> u64 {
    let got = std::iter::from_fn(|| pool.alloc_pages(Order::ZERO, gfp).ok());
    got.map(|page| pages.push(page)).count() as u64
}

#[test]
fn a_cache_makes_room_for_requests_that_may_wait_and_leaves_with_its_registration() {
    let cache = willing();
    let pool = &cache.pool;
    let registered = pool.register_lru(cache.clone());
    for _ in 0..4 * POOL_PAGES {
        let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL).expect("the cache makes room");
        cache.pages.push(page);
    }
    let report = pool.reclaim_report();
    assert_eq!((report.len(), &*report[0].name, report[0].objects), (1, "willing", false));
    assert!(report[0].freed >= 3 * POOL_PAGES, "{report:?}");
    drop(registered);
    assert_eq!(pool.reclaim_report(), []);
    let more = Pages::default();
    fill(pool, &more, Gfp::KERNEL);
    assert!(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_err(), "nobody to make room");
    pool.validate().unwrap();
    more.free(pool, u64::MAX);
    cache.pages.free(pool, u64::MAX);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count(), POOL_PAGES);
}

/// A cache of objects over a list of pages, which does as `scan` says.
fn shrinker(pages: &Arc<Pages>, scan: impl Fn(u64) -> Scanned + Send + Sync + 'static) -> Shrinker {
    let counted = Arc::clone(pages);
    Shrinker::new("objects", move |_| counted.len(), move |ask| scan(ask.objects))
}

#[test]
fn a_shrinker_makes_room_as_a_cache_of_pages_does() {
    let (pool, pages) = (pool(), Arc::new(Pages::default()));
    let (owner, owned) = (Arc::clone(&pool), Arc::clone(&pages));
    let _registered = pool.register_shrinker(shrinker(&pages, move |objects| {
        Scanned::Freed(owned.free(&owner, objects))
    }));
    for _ in 0..4 * POOL_PAGES {
        pages.push(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).expect("the objects make room"));
    }
    let report = &pool.reclaim_report()[0];
    assert!(report.objects && report.freed >= 3 * POOL_PAGES, "{report:?}");
    pages.free(&pool, u64::MAX);
    pool.validate().unwrap();
}

/// A request that may use one node only gets a page of a consumer that does not know which node its
/// objects are on, and asks one that knows for those of that node (LB H.7).
#[test]
fn a_shrinker_makes_room_on_every_node_whether_it_knows_nodes_or_not() {
    for node_aware in [false, true] {
        let builder = Pool::builder().size(2 * POOL_BYTES).fake_nodes(2, CpuMap::RoundRobin);
        let builder = builder.background_reclaim(false).refresh_every(None);
        let pool = Arc::new(builder.build().unwrap());
        let pages = Arc::new([Pages::default(), Pages::default()]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (counted, scanned, owner) = (pages.clone(), pages.clone(), pool.clone());
        let log = asked.clone();
        let shrinker = Shrinker::new(
            "objects",
            move |node| match node_aware {
                true => counted[usize::from(node.0)].len(),
                false => counted.iter().map(Pages::len).sum(),
            },
            move |ask| {
                log.lock().unwrap().push(ask.node);
                // Who does not know nodes gives up what comes first, of the other node too.
                let lists =
                    if node_aware { &scanned[usize::from(ask.node.0)..] } else { &scanned[..] };
                let mut freed = lists[0].free(&owner, ask.objects);
                freed += lists.get(1).map_or(0, |list| list.free(&owner, ask.objects - freed));
                Scanned::Freed(freed)
            },
        );
        let registered = pool.register_shrinker(shrinker.node_aware(node_aware));
        let get = |node: u16, gfp| {
            let request = Request::new(Order::ZERO).gfp(gfp | Gfp::THISNODE).on(NodeId(node));
            let (page, order) = pool.alloc_with(request).ok()?.into_raw();
            assert_eq!((pool.node_of(page.as_ptr()), order), (Some(NodeId(node)), Order::ZERO));
            Some(page)
        };
        let fill = |node: u16| {
            while let Some(page) = get(node, Gfp::NOWAIT) {
                pages[usize::from(node)].push(page);
            }
        };
        fill(0);
        for node in [1, 0, 1] {
            fill(node);
            asked.lock().unwrap().clear();
            for _ in 0..500 {
                let page = get(node, Gfp::KERNEL).expect("the objects make room on each node");
                pages[usize::from(node)].push(page);
            }
            let name = if node_aware { NodeId(node) } else { NodeId(0) };
            let asked = asked.lock().unwrap();
            assert!(!asked.is_empty() && asked.iter().all(|node| *node == name), "{asked:?}");
        }
        // Each object counts once in the pool's report, whatever node it is on.
        let held = pages.iter().map(Pages::len).sum::<u64>() * 4096;
        assert_eq!((pool.held().consumers, pool.held().users), (held, 0));
        drop(registered);
        pages.iter().for_each(|list| _ = list.free(&pool, u64::MAX));
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count(), 2 * POOL_PAGES);
    }
}

/// Frees nothing; says it freed much; says impossible counts; allocates; is asked by itself.
#[test]
fn shrinkers_that_lie_or_allocate_end_in_a_refusal_and_lose_nothing() {
    type Lie = fn(&Pool, &Pages, u64) -> Scanned;
    let lies: [(&str, Lie); 6] = [
        ("frees nothing", |_, _, _| Scanned::Freed(0)),
        ("frees nothing and says so much", |_, _, objects| Scanned::Freed(objects)),
        ("says more than there is", |_, _, _| Scanned::Some { scanned: u64::MAX, freed: u64::MAX }),
        ("looks at nothing", |_, _, _| Scanned::Some { scanned: 0, freed: 0 }),
        ("stops", |_, _, _| Scanned::Stop),
        ("allocates", |pool, pages, _| {
            for _ in 0..8 {
                if let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
                    pages.push(page);
                }
            }
            Scanned::Freed(8)
        }),
    ];
    for (what, lie) in lies {
        for claims in [100, u64::MAX] {
            let (pool, own) = (pool(), Arc::new(Pages::default()));
            let (owner, owned) = (Arc::downgrade(&pool), Arc::clone(&own));
            let registered = pool.register_shrinker(Shrinker::new(
                what,
                move |_| claims,
                move |ask| {
                    let owner = owner.upgrade().expect("the pool asks");
                    lie(&owner, &owned, ask.objects)
                },
            ));
            let pages = Pages::default();
            fill(&pool, &pages, Gfp::KERNEL);
            assert!(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).is_err(), "{what}");
            drop(registered);
            pool.validate().unwrap();
            pages.free(&pool, u64::MAX);
            own.free(&pool, u64::MAX);
            assert_eq!(pool.free_page_count(), POOL_PAGES, "{what}");
        }
    }
}

#[test]
fn a_consumer_that_panics_is_reported_and_not_called_again() {
    let pool = pool();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let bad = Shrinker::new(
        "bad",
        |_| 1000,
        move |_| {
            counted.fetch_add(1, Relaxed);
            panic!("on purpose")
        },
    );
    // Half of it in each pass.
    let _bad = pool.register_shrinker(bad.seeks(0));
    let cache = Arc::new(Willing { pool: Arc::clone(&pool), pages: Pages::default() });
    let _good = pool.register_lru(cache.clone());
    for _ in 0..2 * POOL_PAGES {
        cache.pages.push(pool.alloc_pages(Order::ZERO, Gfp::KERNEL).unwrap());
    }
    let report = pool.reclaim_report();
    assert_eq!(report[0].panicked.as_deref(), Some("on purpose"));
    assert_eq!(report[1].panicked, None);
    assert_eq!(calls.load(Relaxed), 1);
    cache.pages.free(&pool, u64::MAX);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count(), POOL_PAGES);
}

#[test]
fn nobody_is_called_once_a_registration_is_gone() {
    let pool = pool();
    let pages = Pages::default();
    fill(&pool, &pages, Gfp::KERNEL);
    let stop = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        let pool = &pool;
        threads.spawn(move || {
            while !stop.load(Relaxed) {
                let _ = pool.alloc_pages(Order::ZERO, Gfp::KERNEL | Gfp::NORETRY);
            }
        });
        for _ in 0..200 {
            let alive = Arc::new(AtomicBool::new(true));
            let (counts, scans) = (Arc::clone(&alive), Arc::clone(&alive));
            let registered = pool.register_shrinker(Shrinker::new(
                "short",
                move |_| {
                    assert!(counts.load(Relaxed));
                    1000
                },
                move |_| {
                    assert!(scans.load(Relaxed));
                    Scanned::Freed(0)
                },
            ));
            std::thread::yield_now();
            let report = pool.reclaim_report();
            assert!(report.iter().all(|one| one.panicked.is_none()), "{report:?}");
            drop(registered);
            alive.store(false, Relaxed);
        }
        stop.store(true, Relaxed);
    });
    pages.free(&pool, u64::MAX);
    pool.validate().unwrap();
}

#[test]
fn a_consumer_may_leave_during_its_own_call() {
    let pool = pool();
    let own: Arc<Mutex<Option<zonal::reclaim::Registration>>> = Arc::default();
    let leaving = Arc::clone(&own);
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let registered = pool.register_shrinker(Shrinker::new(
        "shy",
        |node| u64::from(node == NodeId(0)) * 10,
        move |_| {
            counted.fetch_add(1, Relaxed);
            drop(leaving.lock().unwrap().take());
            Scanned::Freed(0)
        },
    ));
    *own.lock().unwrap() = Some(registered);
    let pages = Pages::default();
    fill(&pool, &pages, Gfp::KERNEL);
    assert_eq!(calls.load(Relaxed), 1);
    pages.free(&pool, u64::MAX);
    pool.validate().unwrap();
}

/// A cache that gives nothing to those who ask for less than 32 pages, and keeps all others until
/// the gate opens.
struct Gated {
    cache: Arc<Willing>,
    /// Calls so far, and whether they may end.
    gate: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl PageLru for Gated {
    fn name(&self) -> &str {
        "gated"
    }
    fn holdings(&self, unit: Unit) -> Holdings {
        self.cache.holdings(unit)
    }
    fn shrink_inactive(&self, pages: u64, pass: &Pass) -> Shrunk {
        if pages < 32 {
            return Shrunk { scanned: pages, ..Shrunk::default() };
        }
        let mut gate = self.gate.lock().unwrap();
        gate.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(gate, |gate| !gate.1).unwrap());
        self.cache.shrink_inactive(pages, pass)
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

/// LB H.4: while others have an eighth of a list in hand, a request that may use files leaves the
/// list alone, and does not take it for an empty one for ever.
#[test]
fn a_request_leaves_a_list_alone_while_others_have_much_of_it_in_hand() {
    let pool = pool();
    let cache = Arc::new(Willing { pool: Arc::clone(&pool), pages: Pages::default() });
    let others = Pages::default();
    fill(&pool, &others, Gfp::KERNEL);
    // 200 pages are the cache's: an eighth is less than the 32 of one pass.
    (0..200).for_each(|_| cache.pages.lock().extend(others.lock().pop_back()));
    let gated = Arc::new(Gated { cache, gate: Mutex::default(), changed: Condvar::new() });
    let registered = pool.register_lru(gated.clone());
    let calls = || gated.gate.lock().unwrap().0;
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| {
            let page = pool.alloc_pages(Order::ZERO, Gfp::KERNEL).expect("the cache makes room");
            page.as_ptr() as usize
        });
        let entered = gated.gate.lock().unwrap();
        drop(gated.changed.wait_while(entered, |gate| gate.0 == 0).unwrap());
        let second = pool.alloc_pages(Order::ZERO, Gfp::KERNEL | Gfp::NORETRY);
        assert!(second.is_err(), "the first has what there is in hand");
        assert_eq!(calls(), 1, "nobody else was let in");
        // Once in each of the passes from priority 7 on, which is the first with a part of 200.
        let stalls = pool.reclaim_report()[0].stalls;
        assert_eq!(stalls, 8);
        // Who may not use files has the whole list as its limit.
        let nofs = threads.spawn(|| {
            let page = pool.alloc_pages(Order::ZERO, Gfp::NOFS).expect("the cache makes room");
            page.as_ptr() as usize
        });
        let entered = gated.gate.lock().unwrap();
        drop(gated.changed.wait_while(entered, |gate| gate.0 < 2).unwrap());
        assert_eq!(pool.reclaim_report()[0].stalls, stalls);
        gated.gate.lock().unwrap().1 = true;
        gated.changed.notify_all();
        for page in [waits.join().unwrap(), nofs.join().unwrap()] {
            others.lock().push_back(page);
        }
    });
    drop(registered);
    others.free(&pool, u64::MAX);
    gated.cache.pages.free(&pool, u64::MAX);
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count(), POOL_PAGES);
}
