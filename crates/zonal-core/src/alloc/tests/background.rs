//! The background reclaimer: when it is woken, how hard it works, when it sleeps and gives up (LB
//! H.2, H.3), and requests that wait for it (LB H.5).

mod liveness;
mod widen;

use std::boxed::Box;
use std::cell::Cell;
use std::sync::{Mutex, OnceLock};
use std::vec::Vec;

use super::platform::{Behaviour, Shape, Stage};
use crate::alloc::{Allocator, BackgroundReclaimer, NAP_NS, Next, Request, Sysctl};
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Holdings, OutOfMemory, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::background::{Background, FAILURES_MAX, Found, Wanted};
use crate::zone::state::RECLAIM_ACTIVE;
use crate::zone::watermark::Watermark;

type Pool = Allocator<'static, Stage<Cache>>;

/// A cache of blocks of one page, the oldest first. Gives up what a pass asks for, times `part`.
#[derive(Default)]
struct Cache {
    pool: OnceLock<&'static Pool>,
    held: Mutex<Vec<Pfn>>,
    /// Pages that one pass frees at most.
    most: AtomicU64,
    /// Pages that it says it freed besides.
    lie: AtomicU64,
    passes: Mutex<Vec<Pass>>,
    wakes: Mutex<Vec<(NodeId, ZoneId)>>,
    progress: AtomicU64,
    throttled: AtomicU64,
    now_ns: AtomicU64,
    /// What a request that waits for progress lets happen.
    meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// Blocks for the last resort.
    spare: Mutex<Vec<Pfn>>,
    last_resorts: AtomicU64,
}

std::thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Behaviour for Cache {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
    fn wake_reclaim(&self, node: NodeId, zone: ZoneId) {
        self.wakes.lock().unwrap().push((node, zone));
    }
    fn reclaim_progress(&self) {
        self.progress.fetch_add(1, Relaxed);
    }
    fn wait_for_progress(&self, most_ns: u64) {
        self.throttled.fetch_add(1, Relaxed);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        match meanwhile {
            Some(mut meanwhile) => {
                meanwhile();
                self.meanwhile.lock().unwrap().get_or_insert(meanwhile);
            }
            None => {
                self.now_ns.fetch_add(most_ns, Relaxed);
            }
        }
    }
    fn wait_for_memory(&self) -> bool {
        let spare = self.spare.lock().unwrap().pop();
        spare.inspect(|pfn| self.pool().free(*pfn, Order::ZERO).unwrap()).is_some()
    }
}

impl Cache {
    fn pool(&self) -> &'static Pool {
        self.pool.get().unwrap()
    }
    fn in_cache(&self) -> u64 {
        self.held.lock().unwrap().len() as u64
    }
}

impl Reclaimer for Cache {
    fn holdings(&self, _unit: Unit) -> Holdings {
        let pages = self.in_cache();
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        self.passes.lock().unwrap().push(*pass);
        let mut held = self.held.lock().unwrap();
        let most = (held.len() as u64 >> pass.priority).min(self.most.load(Relaxed));
        for pfn in held.drain(..most as usize) {
            self.pool().free(pfn, Order::ZERO).unwrap();
        }
        let lie = self.lie.load(Relaxed);
        Shrunk { scanned: most, reclaimed: most + lie, slab: 0 }
    }
    fn out_of_memory(&self, request: &OutOfMemory) -> bool {
        assert_eq!((request.node, request.order), (NodeId(0), Order::ZERO));
        self.last_resorts.fetch_add(1, Relaxed);
        let spare = self.spare.lock().unwrap().pop();
        spare.inspect(|pfn| self.pool().free(*pfn, Order::ZERO).unwrap()).is_some()
    }
    fn is_reclaiming(&self) -> bool {
        INSIDE.get()
    }
}

/// One node of one zone; watermarks of 1000, 1250 and 1500 pages.
fn boot() -> &'static Pool {
    let mut policy = Policy {
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(4000);
    boot_with(policy)
}

fn boot_with(policy: Policy) -> &'static Pool {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 16384, 1)));
    let pool: &'static Pool =
        Box::leak(Box::new(shape.boot_on(policy, Stage::with(Cache::default()))));
    assert!(pool.platform().pool.set(pool).is_ok());
    pool.platform().most.store(u64::MAX, Relaxed);
    let watermarks = pool.zones()[0].watermarks();
    assert_eq!((watermarks.min, watermarks.low, watermarks.high), (1000, 1250, 1500));
    pool
}

fn free_pages(pool: &Pool) -> u64 {
    pool.drain_all();
    pool.refresh(CpuId(0));
    pool.zones()[0].free_counter()
}

/// Leaves this many pages free; the rest is in the cache, or lost to it.
fn leave(pool: &Pool, free: u64, in_cache: bool) {
    let mut got = Vec::new();
    let request = Request::new(Order::ZERO).gfp(Gfp::MEMALLOC);
    while free_pages(pool) > free {
        let many = (free_pages(pool) - free).min(1000);
        got.extend((0..many).map(|_| pool.alloc(request).unwrap()));
    }
    if in_cache {
        pool.platform().held.lock().unwrap().extend(got);
    }
}

/// Steps until it naps or sleeps. Returns the steps.
fn run(pool: &Pool, reclaimer: &mut BackgroundReclaimer) -> (u32, Next) {
    for steps in 1..10_000 {
        match pool.background_step(reclaimer) {
            Next::Again => {}
            next => return (steps, next),
        }
    }
    panic!("it never sleeps");
}

/// Past the nap.
fn put_to_sleep(pool: &Pool, reclaimer: &mut BackgroundReclaimer) {
    assert_eq!(run(pool, reclaimer).1, Next::Nap(NAP_NS));
    assert_eq!(pool.background_step(reclaimer), Next::Sleep);
    assert!(pool.stats().background(NodeId(0)).is_asleep());
}

#[test]
fn it_is_woken_below_low_and_sleeps_again_above_high() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1400, true);
    assert_eq!(*pool.platform().wakes.lock().unwrap(), [], "nobody was below low");
    let request = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    while pool.platform().wakes.lock().unwrap().is_empty() {
        pool.alloc(request).unwrap();
    }
    pool.alloc(request).unwrap();
    assert_eq!(*pool.platform().wakes.lock().unwrap(), [(NodeId(0), ZoneId(0))], "once");
    let zone = &pool.zones()[0];
    let before = free_pages(pool);
    // The counter does not see what waits on the CPU's list.
    assert!(before <= 1250 + 63, "{before}");
    assert_eq!(pool.background_step(&mut reclaimer), Next::Again);
    assert!(zone.has(RECLAIM_ACTIVE));
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    assert!(!zone.has(RECLAIM_ACTIVE));
    // It stops when it is above high, and a pass is asked for no more than that.
    let after = free_pages(pool);
    assert!((1501..=1250 + 2 * 1500).contains(&after), "{after}");
    let passes = pool.platform().passes.lock().unwrap();
    assert!(passes.iter().all(|pass| pass.by == By::Background && pass.wanted == 1500));
    // A part of 1 in 4096 first, then twice as much each time, until a pass frees enough.
    let priorities: Vec<u32> = passes.iter().map(|pass| pass.priority).collect();
    assert!(priorities.is_sorted_by(|a, b| *a == b + 1) && priorities[0] == 12, "{priorities:?}");
    let scans = pool.nodes()[0].scans().background;
    assert_eq!(scans.reclaimed, after - before);
    let stats = pool.reclaim_stats();
    assert_eq!((stats.background_runs, stats.direct), (1, [0; 5]));
    drop(passes);
    put_to_sleep_after_nap(pool, &mut reclaimer);
    pool.validate().unwrap();
}

fn put_to_sleep_after_nap(pool: &Pool, reclaimer: &mut BackgroundReclaimer) {
    assert_eq!(pool.background_step(reclaimer), Next::Sleep);
}

/// LB H.2: a nap that somebody ends, and one that ends below the watermark.
#[test]
fn naps_that_end_early_are_counted() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    assert_eq!(run(pool, &mut reclaimer), (1, Next::Nap(NAP_NS)));
    leave(pool, 1200, true);
    assert!(pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).is_ok());
    assert_eq!(pool.platform().wakes.lock().unwrap().len(), 1);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    let stats = pool.reclaim_stats();
    assert_eq!((stats.low_hit_quickly, stats.high_hit_quickly), (1, 0));
    // Nobody wakes it, but when the nap ends the node is low again.
    leave(pool, 1400, true);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    let stats = pool.reclaim_stats();
    assert_eq!((stats.low_hit_quickly, stats.high_hit_quickly), (1, 1));
    assert!(free_pages(pool) > 1500);
}

/// 16 runs that free nothing, then it is not woken; whoever frees a page brings it back.
#[test]
fn a_node_that_gives_nothing_is_given_up_until_somebody_frees() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 1200, false);
    let nowait = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    pool.alloc(nowait).unwrap();
    put_to_sleep(pool, &mut reclaimer);
    let record = pool.stats().background(NodeId(0));
    assert_eq!(record.failures(), FAILURES_MAX);
    assert_eq!(pool.reclaim_stats().background_runs, u64::from(FAILURES_MAX));
    // Each fruitless run has a pass of every priority from 12 down to 1.
    assert_eq!(pool.platform().passes.lock().unwrap().len(), FAILURES_MAX as usize * 12);
    pool.alloc(nowait).unwrap();
    assert_eq!(pool.platform().wakes.lock().unwrap().len(), 1, "hopeless: left asleep");
    assert!(!pool.background_check(NodeId(0)), "nobody holds anything");
    // The platform's clock finds that there is something again.
    let pfn = pool.alloc(Request::new(Order::ZERO).gfp(Gfp::MEMALLOC)).unwrap();
    pool.platform().held.lock().unwrap().extend([pfn]);
    assert!(pool.background_check(NodeId(0)));
    assert_eq!(record.failures(), FAILURES_MAX - 1);
    // So does a direct reclaim that frees.
    record.set_failures(FAILURES_MAX);
    put_to_sleep(pool, &mut reclaimer);
    let free = free_pages(pool);
    leave(pool, free - 300, true);
    assert!(pool.alloc(Request::new(Order::ZERO)).is_ok());
    assert_eq!(record.failures(), 0);
}

/// A platform that tells of progress where there is none.
#[test]
fn progress_that_nobody_sees_is_not_believed() {
    let pool = boot();
    pool.platform().lie.store(u64::MAX / 2, Relaxed);
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 900, false);
    assert!(pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL)).is_err());
    put_to_sleep(pool, &mut reclaimer);
    assert_eq!(pool.stats().background(NodeId(0)).failures(), FAILURES_MAX);
    assert_eq!(pool.nodes()[0].scans().background.reclaimed, 0);
}

/// LB H.3, C.4: the boost seen at the start is worked off without pages being written, no harder
/// than priority 10, and taken off the watermarks.
#[test]
fn a_boost_is_worked_off() {
    let pool = boot();
    let zone = &pool.zones()[0];
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 3000, true);
    let mut watermarks = zone.watermarks();
    watermarks.boost = 512;
    zone.set_watermarks(&watermarks);
    pool.node_ops(NodeId(0)).wake(zone, Order::ZERO, ZoneKind::Normal);
    assert_eq!(pool.platform().wakes.lock().unwrap().len(), 1, "balanced, but boosted");
    assert_eq!(pool.background_step(&mut reclaimer), Next::Again);
    // Another fallback meanwhile: only what was seen goes.
    let mut watermarks = zone.watermarks();
    watermarks.boost += 100;
    zone.set_watermarks(&watermarks);
    pool.platform().most.store(100, Relaxed);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    assert_eq!(zone.watermarks().boost, 100);
    let passes = pool.platform().passes.lock().unwrap();
    assert!(passes.iter().all(|pass| pass.priority >= 10 && !pass.may_write && !pass.may_swap));
    let freed: u64 = pool.nodes()[0].scans().background.reclaimed;
    assert!((512..612).contains(&freed), "{freed}");
}

/// LB H.3: an order above 0 is given up once twice its pages are free.
#[test]
fn an_order_is_given_up_when_enough_is_free_in_single_pages() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    put_to_sleep(pool, &mut reclaimer);
    leave(pool, 0, true);
    // Every second page is in the cache; of the others the last 1450 are free. Nothing merges.
    let every = std::mem::take(&mut *pool.platform().held.lock().unwrap());
    let (even, odd): (Vec<Pfn>, Vec<Pfn>) = every.iter().partition(|pfn| pfn.0 % 2 == 0);
    odd.iter().rev().take(1450).for_each(|pfn| pool.free(*pfn, Order::ZERO).unwrap());
    *pool.platform().held.lock().unwrap() = even;
    pool.drain_all();
    let nowait = Request::new(Order::new(9).unwrap()).gfp(Gfp::NOWAIT);
    let _ = pool.alloc(nowait);
    assert_eq!(pool.stats().background(NodeId(0)).wanted().order, nowait.order);
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    let orders: Vec<u32> =
        pool.platform().passes.lock().unwrap().iter().map(|pass| pass.order.get()).collect();
    assert_eq!(orders.first(), Some(&9));
    assert!(pool.nodes()[0].scans().background.reclaimed >= 2 << 9);
    assert!(free_pages(pool) > 1500);
    assert!(pool.platform().in_cache() > 0, "it did not free all for a block that cannot be");
}

/// LB H.5: below half the min watermark a request waits for the background reclaimer.
#[test]
fn a_request_waits_for_the_background_reclaimer_when_the_reserve_is_half_gone() {
    for (free, waits) in [(501, 0), (500, 1)] {
        let pool = boot();
        let mut reclaimer = pool.background_start(NodeId(0));
        put_to_sleep(pool, &mut reclaimer);
        leave(pool, free, true);
        *pool.platform().meanwhile.lock().unwrap() = Some(Box::new(move || {
            run(pool, &mut reclaimer);
        }));
        assert!(pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL)).is_ok());
        let stats = pool.reclaim_stats();
        assert_eq!(
            (stats.direct_throttled, pool.platform().throttled.load(Relaxed)),
            (waits, waits)
        );
        assert_eq!(*pool.platform().wakes.lock().unwrap(), [(NodeId(0), ZoneId(0))]);
        pool.platform().meanwhile.lock().unwrap().take();
    }
}

/// Nobody wakes up to help: a second later the request reclaims itself.
#[test]
fn a_request_waits_at_most_a_second() {
    let pool = boot();
    let _reclaimer = pool.background_start(NodeId(0));
    leave(pool, 300, true);
    assert!(pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL)).is_ok());
    assert_eq!(pool.platform().throttled.load(Relaxed), 1);
    assert_eq!(pool.platform().now_ns(), 1_000_000_000);
}

/// However long it waited, and it may have slept longer than it wanted: what reclaim can free is
/// tried as often as ever. And not more often: the answer comes.
#[test]
fn a_wait_does_not_count_as_reclaim_without_progress() {
    let pool = boot();
    let _reclaimer = pool.background_start(NodeId(0));
    leave(pool, 300, true);
    pool.platform().most.store(0, Relaxed);
    *pool.platform().meanwhile.lock().unwrap() = Some(Box::new(move || {
        pool.platform().now_ns.fetch_add(1_500_000_000, Relaxed);
    }));
    assert!(pool.alloc(Request::new(Order::ZERO).gfp(Gfp::KERNEL)).is_err());
    assert_eq!(pool.platform().throttled.load(Relaxed), 1);
    let stats = pool.reclaim_stats();
    assert_eq!(stats.direct.iter().sum::<u64>(), 17, "16 without progress are allowed");
    let passes = pool.platform().passes.lock().unwrap().len();
    assert_eq!(passes, 17 * 13, "each from priority 12 down to 0");
    pool.platform().meanwhile.lock().unwrap().take();
}

/// LB D.5: which requests ask for the last resort, and that it comes last.
#[test]
fn the_last_resort_is_for_requests_that_would_not_give_up() {
    for (gfp, order, asked) in [
        (Gfp::KERNEL, 0, true),
        (Gfp::KERNEL | Gfp::NORETRY, 0, false),
        (Gfp::KERNEL | Gfp::RETRY_MAYFAIL, 0, false),
        (Gfp::KERNEL | Gfp::THISNODE, 0, false),
        (Gfp::NOFS, 0, false),
        (Gfp::KERNEL, 4, false),
        (Gfp::ATOMIC, 0, false),
        (Gfp::NOWAIT, 0, false),
    ] {
        let pool = boot();
        leave(pool, 0, false);
        let request = Request::new(Order::new(order).unwrap()).gfp(gfp);
        assert!(pool.alloc(request).is_err());
        let resorts = pool.platform().last_resorts.load(Relaxed);
        assert_eq!(resorts, u64::from(asked), "{gfp} {order}");
        assert_eq!(pool.reclaim_stats().out_of_memory, resorts);
    }
    // What it frees is the request's; while the cache gives, it is not asked.
    let pool = boot();
    leave(pool, 1000, true);
    let mut held = pool.platform().held.lock().unwrap();
    let last = held.len() - 5;
    let spare = held.split_off(last);
    drop(held);
    *pool.platform().spare.lock().unwrap() = spare;
    let mut got = 0;
    while pool.alloc(Request::new(Order::ZERO)).is_ok() {
        got += 1;
        assert!(pool.platform().in_cache() == 0 || pool.platform().last_resorts.load(Relaxed) == 0);
    }
    assert_eq!(got, 16384 - 1000, "all but the min watermark");
    assert_eq!(pool.platform().last_resorts.load(Relaxed), 6);
}

/// LB D.5: it gets what others free, and half of the reserve.
#[test]
fn a_request_that_must_not_fail_waits_for_others() {
    let pool = boot();
    leave(pool, 1000, false);
    let nofail = |gfp| Request::new(Order::ZERO).gfp(gfp | Gfp::NOFAIL);
    let mut got = Vec::new();
    while let Ok(pfn) = pool.alloc(nofail(Gfp::NOFS)) {
        got.push(pfn);
    }
    assert_eq!(free_pages(pool), 500);
    *pool.platform().spare.lock().unwrap() = got;
    assert!(pool.alloc(nofail(Gfp::NOFS)).is_ok(), "one that came while it waited");
    assert_eq!(pool.platform().spare.lock().unwrap().len(), 499);
    assert!(pool.alloc(nofail(Gfp::NOWAIT)).is_err(), "it must not wait");
    assert_eq!(pool.platform().spare.lock().unwrap().len(), 499);
}

/// A reclaimer that stops in the middle of a run leaves the zones as they were.
#[test]
fn a_reclaimer_that_is_stopped_leaves_no_mark() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    leave(pool, 1200, true);
    assert_eq!(pool.background_step(&mut reclaimer), Next::Again);
    assert!(pool.zones()[0].has(RECLAIM_ACTIVE));
    pool.background_stop(reclaimer);
    assert!(!pool.zones()[0].has(RECLAIM_ACTIVE));
    pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).unwrap();
    assert_eq!(pool.platform().wakes.lock().unwrap().len(), 1, "as if there had been none");
    pool.validate().unwrap();
}

/// The watermarks move while it sleeps: nothing wakes it but a request.
#[test]
fn higher_marks_alone_wake_nobody() {
    let pool = boot();
    let mut reclaimer = pool.background_start(NodeId(0));
    leave(pool, 2000, true);
    put_to_sleep(pool, &mut reclaimer);
    pool.set(Sysctl::MinFreeKbytes, 7000).unwrap();
    assert!(pool.zones()[0].watermarks().of(Watermark::Low) > 2000);
    assert_eq!(pool.background_step(&mut reclaimer), Next::Sleep);
    pool.alloc(Request::new(Order::ZERO).gfp(Gfp::NOWAIT)).unwrap();
    assert_eq!(run(pool, &mut reclaimer).1, Next::Nap(NAP_NS));
    assert!(free_pages(pool) > 2625);
}

// Beside the other tests, not in its file: that is compiled for the interleaving model too.
#[test]
fn requests_add_up_until_they_are_taken() {
    let node = Background::default();
    let wanted = |order, highest| Wanted { order: Order::new(order).unwrap(), highest };
    assert_eq!(node.request(wanted(3, Some(ZoneKind::Dma32))), Found::Nobody);
    node.set_present(true);
    assert_eq!(node.request(wanted(0, Some(ZoneKind::Movable))), Found::Awake);
    assert_eq!(node.wanted(), wanted(3, Some(ZoneKind::Movable)));
    node.lie_down();
    assert_eq!(node.request(wanted(10, Some(ZoneKind::Dma))), Found::Asleep);
    assert_eq!(node.take(), wanted(10, Some(ZoneKind::Movable)));
    assert_eq!(node.take(), Wanted::default());
    assert!(node.is_asleep() && node.wake(), "the first wakes it");
    assert!(!node.wake(), "the second need not");
    node.lie_down();
    node.set_present(false);
    assert_eq!((node.is_asleep(), node.request(wanted(0, None))), (false, Found::Nobody));
}
