//! Every safe function of a pool, called from inside each kind of code that a pool calls, alone and
//! while other threads fork, validate, change the budget, and come and go: none hangs.
//!
//! Each kind is a process of its own, which its watchdog ends: [`EXIT_HUNG`](support::EXIT_HUNG).

mod support;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use support::{Watchdog, exit_now, run_child, wait_child};
use zonal::Sysctl;
use zonal::reclaim::{
    Answer, By, Holdings, PageLru, Pass, Registration, Scanned, Shrinker, Shrunk, Unit,
};
use zonal::text::Layout;
use zonal::{
    BudgetFault, CpuId, FailAlloc, Gfp, HotPages, NodeId, OnMisuse, Order, Pages, Pool, Request,
};

const MIB: usize = 1 << 20;
const POOL_BYTES: usize = 16 * MIB;
/// Says to the child which kind it is.
const KIND: &str = "ZONAL_INSIDE";
/// A kind takes seconds.
const LIMIT: Duration = Duration::from_secs(240);
/// How often each function is called while other threads are at it.
const ROUNDS: usize = 6;

/// The code that calls back into the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Count,
    Scan,
    Holdings,
    Inactive,
    Active,
    /// `shrink_inactive`, by the pool's own thread.
    Background,
    /// `scan`, called by a change of the budget.
    Budget,
    LastResort,
    /// The destructor of a consumer that leaves during its own call.
    Destructor,
    /// The hook of pages that cannot be freed.
    Misuse,
}

const KINDS: [Kind; 10] = {
    use Kind::*;
    [Count, Scan, Holdings, Inactive, Active, Background, Budget, LastResort, Destructor, Misuse]
};

thread_local! {
    /// Whether the running thread changes the budget of the scene's pool.
    static CHANGES_BUDGET: Cell<bool> = const { Cell::new(false) };
    /// Whether what the running thread drops is dropped by the pool.
    static BY_POOL: Cell<bool> = const { Cell::new(true) };
}

/// Changes the budget. What a consumer is called for meanwhile, by this thread, is that change.
fn change_budget(scene: &Scene, bytes: usize) {
    CHANGES_BUDGET.set(true);
    let _ = scene.pool.set_budget(bytes);
    CHANGES_BUDGET.set(false);
}

/// What the functions are called on.
struct Scene {
    kind: Kind,
    pool: Arc<Pool>,
    /// Another one, with threads and a consumer of its own.
    other: Arc<Pool>,
    others: Mutex<Option<Registration>>,
    /// All of the pool's pages that a request can have.
    pages: Mutex<Vec<usize>>,
    /// Functions still to be called, by their places in the table.
    todo: Mutex<VecDeque<usize>>,
    done: AtomicU64,
    /// The consumer that leaves during its own call.
    leaving: Mutex<Option<Registration>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page by the fast path, or by what follows it, and back.
fn pop_and_push(pool: &Pool) {
    let pages = HotPages::of(pool);
    let Ok(page) = pages.pop().or_else(|missed| pages.pop_missed(missed)) else { return };
    // SAFETY: (1) the page is ours.
    if let Err(missed) = unsafe { pages.push(page.as_ptr()) } {
        // SAFETY: (1) still ours.
        unsafe { pages.push_missed(missed) }.unwrap();
    }
}

/// A function by its name, and how it is called.
type Method = (&'static str, fn(&Scene));

/// Public functions of `Pool` by their names; what is no function of a pool begins with a dash.
const METHODS: &[Method] = &[
    ("alloc", |on| drop(on.pool.alloc(Order::ZERO))),
    ("alloc_zeroed", |on| drop(on.pool.alloc_zeroed(Order::MAX))),
    ("alloc_with", |on| drop(on.pool.alloc_with(Request::new(Order::ZERO)))),
    ("alloc_pages", |on| {
        // Until there is nothing: what must not fail is refused here, for nobody else would free.
        let request = || on.pool.alloc_pages(Order::ZERO, Gfp::KERNEL | Gfp::NOFAIL).ok();
        let got: Vec<_> = std::iter::from_fn(request).collect();
        got.into_iter().for_each(|page| free(&on.pool, page));
    }),
    ("alloc_raw", |on| {
        let page = on.pool.alloc_raw(Order::ZERO, Gfp::KERNEL | Gfp::NOFAIL);
        NonNull::new(page).into_iter().for_each(|page| free(&on.pool, page));
    }),
    ("-hot pages", |on| pop_and_push(&on.pool)),
    ("try_alloc_cached", |on| {
        on.pool.try_alloc_cached(Order::ZERO).into_iter().for_each(|page| free(&on.pool, page));
    }),
    ("free_pages", |on| {
        let got = on.pool.alloc_pages(Order::ZERO, Gfp::KERNEL);
        got.into_iter().for_each(|page| free(&on.pool, page));
    }),
    ("try_free_cached", |on| {
        let Ok(page) = on.pool.alloc_pages(Order::ZERO, Gfp::KERNEL) else { return };
        // SAFETY: (1) the page is ours.
        if !unsafe { on.pool.try_free_cached(page, Order::ZERO) } {
            free(&on.pool, page);
        }
    }),
    ("alloc_bulk", |on| bulk(&on.pool)),
    ("free_bulk", |on| bulk(&on.pool)),
    ("builder", |on| {
        let pool = Pool::builder().size(8 * MIB).budget(4 * MIB).build().unwrap();
        pool.restart_worker(Duration::from_millis(1), 1).unwrap();
        drop(pool.register_shrinker(idle()));
        bulk(&on.pool);
    }),
    ("mode", |on| drop(on.pool.mode().to_string())),
    ("notices", |on| assert!(on.pool.notices().len() < 100)),
    ("policy", |on| assert!(on.pool.policy().check().is_ok())),
    ("bytes", |on| assert_eq!(on.pool.bytes(), POOL_BYTES)),
    ("metadata_bytes", |on| assert!(on.pool.metadata_bytes() > 0)),
    ("base", |on| assert!(!on.pool.base().is_null())),
    ("nodes", |on| assert_eq!(on.pool.nodes(), 1)),
    ("view", |on| {
        let view = on.pool.view();
        drop((view.reclaim_stats(), view.zones().map(|zone| zone.stats()).collect::<Vec<_>>()));
        drop(view.nodes().map(|node| (node.numa_events(), node.scans())).collect::<Vec<_>>());
        _ = (view.blocks().count(), view.total_reserve(), view.check_memory());
    }),
    ("set", |on| {
        for (sysctl, values) in [
            (Sysctl::MinFreeKbytes, [512, 1024]),
            (Sysctl::WatermarkScaleFactor, [10, 100]),
            (Sysctl::NumaStat, [0, 1]),
        ] {
            values.iter().for_each(|value| _ = on.pool.set(sysctl, *value));
        }
    }),
    ("refresh", |on| _ = on.pool.refresh(CpuId(0))),
    ("zone_stats", |on| assert_eq!(on.pool.zone_stats().count(), 1)),
    ("numa_events", |on| _ = on.pool.numa_events(NodeId(0))),
    ("free_page_count", |on| _ = on.pool.free_page_count()),
    ("drain_all", |on| _ = (on.pool.drain_all(), on.other.drain_all())),
    ("node_of", |on| assert_eq!(on.pool.node_of(on.pool.base()), Some(NodeId(0)))),
    ("poison_hits", |on| assert_eq!(on.pool.poison_hits(), 0)),
    // What it finds while others are at work means nothing.
    ("validate", |on| _ = (on.pool.validate(), on.other.validate())),
    ("restart_worker", |on| {
        for pool in [&on.pool, &on.other] {
            pool.restart_worker(Duration::from_millis(1), MIB).unwrap();
        }
    }),
    ("restart_reclaim", |on| {
        on.pool.restart_reclaim().unwrap();
        on.other.restart_reclaim().unwrap();
    }),
    ("set_background_check", |on| on.pool.set_background_check(true)),
    ("reclaims_in_background", |on| _ = on.pool.reclaims_in_background()),
    ("budget", |on| assert!(on.pool.budget() <= POOL_BYTES)),
    ("set_budget", |on| {
        for bytes in [POOL_BYTES - MIB, POOL_BYTES] {
            if let Err(error) = on.pool.set_budget(bytes) {
                let text = error.to_string();
                let changing = error.why == BudgetFault::BeingChanged;
                assert_eq!(text.contains("is being changed"), changing, "{text}");
            } else {
                assert_ne!(on.kind, Kind::Budget, "the caller's caller is at it");
            }
            let _ = on.other.set_budget(bytes);
        }
    }),
    ("explain", |on| drop(on.pool.explain(&Request::new(Order::ZERO)))),
    ("set_fail_alloc", |on| assert!(!on.pool.set_fail_alloc(FailAlloc::never()))),
    ("fail_counts", |on| assert_eq!(on.pool.fail_counts().asked, 0)),
    ("is_growing", |on| assert!(!on.pool.is_growing())),
    ("finish_growth", |on| on.pool.finish_growth().unwrap()),
    ("held", |on| assert!(on.pool.held().total() > on.other.held().metadata)),
    ("trim", |on| _ = (on.pool.trim(usize::MAX), on.other.trim(usize::MAX))),
    ("trimmed_bytes", |on| _ = on.pool.trimmed_bytes()),
    ("register_lru", |on| {
        for pool in [&on.pool, &on.other] {
            drop(pool.register_lru(Arc::new(Idle)));
        }
    }),
    ("register_shrinker", |on| {
        // One that stays while another leaves, and comes to be dropped here or elsewhere.
        *locked(&on.others) = Some(on.other.register_shrinker(idle()));
        drop(on.pool.register_shrinker(idle()));
    }),
    ("ranges", |on| {
        for pool in [&on.pool, &on.other] {
            // Within the lists, past them, and larger than any block.
            for pages in [3, 100, 2000] {
                if let Ok(mut range) = pool.ranges().alloc(pages) {
                    let _ = (range.shrink(pages - 1), range.try_grow(1));
                }
            }
        }
    }),
    ("misuses", |on| assert_eq!(on.pool.misuses() > 0, on.kind == Kind::Misuse)),
    ("reclaim_report", |on| {
        let report = on.pool.reclaim_report();
        assert!(report.iter().all(|one| !one.interrupted));
    }),
    ("state", |on| drop(on.pool.state())),
    ("- zoneinfo", |on| drop(on.pool.state().zoneinfo(Layout::default()).to_string())),
    ("- buddyinfo", |on| drop(on.pool.state().buddyinfo().to_string())),
    ("- pagetypeinfo", |on| drop(on.pool.state().pagetypeinfo().to_string())),
    ("- vmstat", |on| drop(on.pool.state().vmstat(Layout::default()).to_string())),
    ("- numastat", |on| drop(on.pool.state().numastat(NodeId(0)).to_string())),
    ("- node_meminfo", |on| drop(on.pool.state().node_meminfo(NodeId(0), Layout::default()))),
    ("- node_vmstat", |on| drop(on.pool.state().node_vmstat(NodeId(0), Layout::default()))),
    ("- openmetrics", |on| drop(on.pool.state().openmetrics())),
    ("- a debug print", |on| drop(format!("{:?}", on.pool))),
    ("- a fork", |on| fork(on)),
    ("- the drop of a pool that reclaims", |on| {
        let pool = Arc::new(Pool::builder().size(8 * MIB).build().unwrap());
        let owner = Arc::clone(&pool);
        let shrinker = Shrinker::new("owner", move |_| owner.nodes() as u64, |_| Scanned::Stop);
        let registered = pool.register_shrinker(shrinker);
        let _ = on.pool.alloc(Order::ZERO);
        drop(pool);
        drop(registered);
    }),
];

fn free(pool: &Pool, page: NonNull<u8>) {
    support::free(pool, page.as_ptr() as usize, Order::ZERO).unwrap();
}

fn bulk(pool: &Pool) {
    let mut pages = [std::ptr::null_mut(); 16];
    let got = pool.alloc_bulk(Gfp::KERNEL, &mut pages).unwrap_or(0);
    // SAFETY: (1) the pages are ours.
    unsafe { pool.free_bulk(&pages[..got], Order::ZERO) }.unwrap();
}

/// Forks; the child uses the pool as far as it can, and ends.
fn fork(on: &Scene) {
    // SAFETY: (1) the child uses the pools, which are made for it, the heap, which libc keeps
    // usable, and no lock that another thread may have held.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // Locks of the scene may be held here, so its consumers are not called again.
        let wrong = [&on.pool, &on.other].iter().find_map(|pool| {
            let _ = pool.alloc_pages(Order::ZERO, Gfp::KERNEL);
            let _ = (pool.set_budget(POOL_BYTES), pool.drain_all(), pool.held());
            drop(pool.register_shrinker(idle()));
            let (valid, short) = (pool.validate().is_ok(), pool.reclaim_report().len() < 100);
            let right = [valid, short, pool.restart_worker(Duration::from_millis(1), 0).is_ok()];
            right.iter().position(|right| !right)
        });
        let wrong = wrong.or_else(|| on.other.restart_reclaim().err().map(|_| 3));
        exit_now(wrong.map_or(0, |wrong| wrong as i32 + 1));
    }
    let status = wait_child(pid, LIMIT / 4).expect("the child hung");
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}

/// A consumer with nothing to give.
struct Idle;

impl PageLru for Idle {
    fn name(&self) -> &str {
        "idle"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        Holdings::default()
    }
    fn shrink_inactive(&self, _pages: u64, _pass: &Pass) -> Shrunk {
        Shrunk::default()
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

fn idle() -> Shrinker {
    Shrinker::new("idle", |_| 0, |_| Scanned::Stop)
}

impl Scene {
    /// This code is of the kind `at`: calls the next function, if it is this kind's turn.
    fn inside(&self, at: Kind) {
        if at != self.kind || !BY_POOL.get() {
            return;
        }
        let next = locked(&self.todo).pop_front();
        if let Some(index) = next {
            METHODS[index].1(self);
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// The shrinker goes. With the lock free again: that waits for calls of other threads, which
    /// come here, too.
    fn leave(&self) {
        let leaving = locked(&self.leaving).take();
        drop(leaving);
    }

    /// Pages of the pool, back to it.
    fn give(&self, count: u64) -> u64 {
        let mut pages = locked(&self.pages);
        let keep = pages.len().saturating_sub(count as usize);
        let going = pages.split_off(keep);
        drop(pages);
        let count = going.len() as u64;
        going.into_iter().for_each(|page| free(&self.pool, NonNull::new(page as _).unwrap()));
        count
    }

    fn fill(&self, gfp: Gfp) {
        while let Ok(page) = self.pool.alloc_pages(Order::ZERO, gfp) {
            locked(&self.pages).push(page.as_ptr() as usize);
        }
    }

    fn take_one(&self) {
        if let Ok(page) = self.pool.alloc_pages(Order::ZERO, Gfp::KERNEL) {
            locked(&self.pages).push(page.as_ptr() as usize);
        }
    }
}

/// The consumer of each kind, over the scene's pages.
struct Cache(Arc<Scene>);

impl PageLru for Cache {
    fn name(&self) -> &str {
        "cache"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        self.0.inside(Kind::Holdings);
        let pages = locked(&self.0.pages).len() as u64;
        match self.0.kind {
            Kind::Active => Holdings { file: pages, active_file: pages, ..Holdings::default() },
            _ => Holdings { file: pages, inactive_file: pages, ..Holdings::default() },
        }
    }
    fn shrink_inactive(&self, pages: u64, pass: &Pass) -> Shrunk {
        match pass.by {
            By::Background => self.0.inside(Kind::Background),
            _ => self.0.inside(Kind::Inactive),
        }
        let reclaimed = self.0.give(pages);
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, pages: u64, _pass: &Pass) -> u64 {
        self.0.inside(Kind::Active);
        self.0.give(pages)
    }
}

/// Calls the next function when it is dropped.
struct Last(Arc<Scene>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.inside(Kind::Destructor);
    }
}

fn shrinker(scene: &Arc<Scene>, last: Option<Last>) -> Shrinker {
    let (counted, scanned) = (Arc::clone(scene), Arc::clone(scene));
    Shrinker::new(
        "objects",
        move |_| {
            counted.inside(Kind::Count);
            locked(&counted.pages).len() as u64
        },
        move |ask| {
            scanned.inside(Kind::Scan);
            // Not for requests of other threads, which reclaim too. Some at once: changes are slow.
            if CHANGES_BUDGET.get() {
                (0..8).for_each(|_| scanned.inside(Kind::Budget));
            }
            if last.is_some() {
                scanned.leave();
            }
            Scanned::Freed(scanned.give(ask.objects))
        },
    )
}

fn scene(kind: Kind) -> Arc<Scene> {
    let answers: Arc<Mutex<Option<Arc<Scene>>>> = Arc::default();
    let asked = Arc::clone(&answers);
    let mut builder = Pool::builder().size(POOL_BYTES).background_reclaim(kind == Kind::Background);
    if kind == Kind::LastResort {
        builder = builder.on_out_of_memory(move |_| {
            let scene = locked(&asked).clone();
            let Some(scene) = scene else { return Answer::Refuse };
            scene.inside(Kind::LastResort);
            if scene.give(64) > 0 { Answer::Retry } else { Answer::Refuse }
        });
    }
    if kind == Kind::Misuse {
        let asked = Arc::clone(&answers);
        builder = builder.on_misuse(OnMisuse::Call(Arc::new(move |_| {
            let scene = locked(&asked).clone();
            scene.into_iter().for_each(|scene| scene.inside(Kind::Misuse));
        })));
    }
    let pool = Arc::new(builder.build().unwrap());
    let other = Arc::new(Pool::builder().size(POOL_BYTES).build().unwrap());
    let others = Mutex::new(Some(other.register_shrinker(idle())));
    let scene = Arc::new(Scene {
        kind,
        pool,
        other,
        others,
        pages: Mutex::default(),
        todo: Mutex::default(),
        done: AtomicU64::new(0),
        leaving: Mutex::default(),
    });
    scene.fill(Gfp::KERNEL);
    *locked(&answers) = Some(Arc::clone(&scene));
    scene
}

/// Lets the pool call the kind's code once or more.
fn provoke(scene: &Arc<Scene>) {
    match scene.kind {
        Kind::Budget => {
            scene.fill(Gfp::NOWAIT);
            change_budget(scene, POOL_BYTES - 2 * MIB);
            change_budget(scene, POOL_BYTES);
        }
        Kind::Misuse => {
            let Ok(foreign) = scene.other.alloc(Order::ZERO) else { return };
            let (start, order) = foreign.into_raw();
            // SAFETY: not kept, which is what is tested: the block is another pool's. Nobody uses
            // it, and this pool refuses it.
            drop(unsafe { Pages::from_raw(&scene.pool, start, order) });
            free(&scene.other, start);
        }
        Kind::Destructor => {
            let last = Some(Last(Arc::clone(scene)));
            let registered = scene.pool.register_shrinker(shrinker(scene, last).seeks(0));
            *locked(&scene.leaving) = Some(registered);
            scene.fill(Gfp::NOWAIT);
            scene.take_one();
            // If it was not called, its owner drops it: outside, where NOFAIL waits for others.
            BY_POOL.set(false);
            scene.leave();
            BY_POOL.set(true);
        }
        // Some more than the watermarks lie apart.
        _ => (0..64).for_each(|_| scene.take_one()),
    }
}

/// Calls each function `rounds` times.
fn play(scene: &Arc<Scene>, rounds: usize) {
    let all = (0..rounds).flat_map(|_| 0..METHODS.len());
    locked(&scene.todo).extend(all);
    let end = scene.done.load(Relaxed) + (rounds * METHODS.len()) as u64;
    while scene.done.load(Relaxed) < end {
        provoke(scene);
    }
}

/// What other threads do again and again.
const OTHERS: [fn(&Scene); 6] = [
    fork,
    |on| _ = (on.pool.validate(), on.other.validate()),
    |on| {
        change_budget(on, POOL_BYTES - MIB);
        change_budget(on, POOL_BYTES);
    },
    |on| {
        drop(on.pool.register_lru(Arc::new(Idle)));
        let before = locked(&on.others).replace(on.other.register_shrinker(idle()));
        drop(before);
    },
    |on| {
        on.pool.restart_worker(Duration::from_millis(1), MIB).unwrap();
        _ = (on.pool.trim(MIB), on.pool.held());
    },
    |on| drop((on.pool.alloc(Order::ZERO), on.other.alloc(Order::ZERO))),
];

fn run(kind: Kind) {
    let scene = scene(kind);
    let registered = match kind {
        Kind::Count | Kind::Scan | Kind::Budget => {
            Some(scene.pool.register_shrinker(shrinker(&scene, None).seeks(0)))
        }
        Kind::LastResort | Kind::Destructor | Kind::Misuse => None,
        _ => Some(scene.pool.register_lru(Arc::new(Cache(Arc::clone(&scene))))),
    };
    play(&scene, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for other in OTHERS {
            let (scene, stop) = (&scene, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    other(scene);
                }
            });
        }
        play(&scene, ROUNDS);
        stop.store(true, Relaxed);
    });
    drop(registered);
    scene.give(u64::MAX);
    scene.pool.set_budget(POOL_BYTES).unwrap();
    scene.pool.validate().unwrap();
    // The worker holds a block while it gives its memory to the kernel.
    let whole = || scene.pool.free_page_count() as usize * 4096 == POOL_BYTES;
    assert!(support::soon(whole), "{} of {POOL_BYTES}", scene.pool.free_page_count() * 4096);
    assert!(scene.pool.reclaim_report().iter().all(|one| one.panicked.is_none()));
}

/// The other process. Without the variable it is no test.
#[test]
fn kind_of_the_child() {
    let Ok(name) = std::env::var(KIND) else { return };
    let _watchdog = Watchdog::new("the functions", LIMIT);
    run(*KINDS.iter().find(|kind| format!("{kind:?}") == name).unwrap());
}

#[test]
fn no_function_hangs_inside_what_a_pool_calls() {
    for kind in KINDS {
        let code = run_child("kind_of_the_child", KIND, &format!("{kind:?}"));
        assert_eq!(code, Some(0), "{kind:?}");
    }
}

/// The functions that the source has, by the names in the table.
#[test]
fn the_table_has_every_public_function_of_a_pool() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![source];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.extend(functions(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    let mut told: Vec<_> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
    told.retain(|name| !name.starts_with('-'));
    told.sort();
    assert_eq!(told, found);
}

/// Public functions in the `impl` blocks of `Pool`.
fn functions(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in text.lines() {
        if !line.is_empty() && !line.starts_with(' ') {
            inside = matches!(line, "impl Pool {" | "impl crate::Pool {" | "impl super::Pool {");
        }
        let line = line.trim_start().replace("unsafe ", "");
        if let Some(rest) = line.strip_prefix("pub fn ").filter(|_| inside) {
            names.extend(rest.split(['(', '<']).next().map(str::to_owned));
        }
    }
    names
}
