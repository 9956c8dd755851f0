//! Node reclaim in an allocation: which zones, when, by whom (LB D.4 steps d and e, G.1 to G.3),
//! and direct reclaim behind it (LB D.5).

use std::boxed::Box;
use std::cell::Cell;
use std::sync::{Barrier, Mutex, OnceLock};
use std::vec::Vec;

use super::platform::{Behaviour, Shape, Stage, on_cpu};
use crate::alloc::explain::Note;
use crate::alloc::{Allocator, Refusal, Request, Sysctl};
use crate::gfp::Gfp;
use crate::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::walk::{
    DirtySpread, DistanceRule, NodeReclaimMode, ReclaimUnit, ZonelistPolicy,
};
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy};
use crate::sync::Ordering::Relaxed;
use crate::types::{Choice, NodeId, Order, Pfn};
use crate::zone::watermark::Watermark;

std::thread_local! {
    static IN_RECLAIM: Cell<bool> = const { Cell::new(false) };
}

type AtPass = Box<dyn Fn(&Pass) -> u64 + Send + Sync>;
type AtDirect = Box<dyn FnMut(&Pass) -> u64 + Send + Sync>;

/// Reclaims as the test says.
#[derive(Default)]
struct Reclaiming {
    passes: Mutex<Vec<Unit>>,
    held: Mutex<Option<Holdings>>,
    /// Nodes with as much dirty as they may have, and what was asked about them.
    too_dirty: Mutex<Vec<NodeId>>,
    asked_dirty: Mutex<Vec<(NodeId, u64)>>,
    at_pass: OnceLock<AtPass>,
    at_direct: Mutex<Option<AtDirect>>,
}

impl Behaviour for Reclaiming {
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
}

impl Reclaimer for Reclaiming {
    fn holdings(&self, _unit: Unit) -> Holdings {
        let plenty = Holdings { file: 4000, inactive_file: 4000, ..Holdings::default() };
        self.held.lock().unwrap().unwrap_or(plenty)
    }
    fn may_dirty(&self, node: NodeId, free: u64) -> bool {
        self.asked_dirty.lock().unwrap().push((node, free));
        !self.too_dirty.lock().unwrap().contains(&node)
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        if pass.by == By::Direct {
            // Out of the lock while it runs: it may allocate.
            let Some(mut at_direct) = self.at_direct.lock().unwrap().take() else {
                return Shrunk::default();
            };
            let reclaimed = at_direct(pass);
            self.at_direct.lock().unwrap().get_or_insert(at_direct);
            return Shrunk { scanned: reclaimed, reclaimed, slab: 0 };
        }
        self.passes.lock().unwrap().push(pass.unit);
        let reclaimed = self.at_pass.get().map_or(0, |at_pass| at_pass(pass));
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn is_reclaiming(&self) -> bool {
        IN_RECLAIM.get()
    }
}

type Pool = Allocator<'static, Stage<Reclaiming>>;

/// Nodes whose reclaimer is awake are not passed, so that the tries of each walk can be counted.
fn policy() -> Policy {
    let mut policy = Policy {
        zonelist: ZonelistPolicy::LINUX,
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(256);
    policy.node_reclaim.mode = NodeReclaimMode::Bits(1);
    policy
}

/// Two nodes at this distance with a CPU each, CPU 2 on node 0 too; the platform as
/// `Reclaiming::default()`.
fn boot(distance: u8, policy: Policy) -> &'static Pool {
    let mut shape = Shape::uniform(2, 4096, 1);
    shape.distances = std::vec![10, distance, distance, 10];
    shape.cpus.push(NodeId(0));
    let shape: &'static Shape = Box::leak(Box::new(shape));
    on_cpu(0);
    Box::leak(Box::new(shape.boot_on(policy, Stage::for_threads(Reclaiming::default()))))
}

fn request() -> Request {
    Request::new(Order::new(4).unwrap())
}

fn directs(pool: &Pool) -> u64 {
    pool.reclaim_stats().direct.iter().sum()
}

/// Takes every block of a node, past watermarks and reclaim.
fn fill(pool: &Pool, node: u16) -> Vec<Pfn> {
    let request = request().gfp(Gfp::MEMALLOC | Gfp::THISNODE).on(NodeId(node));
    let mut held = Vec::new();
    let mode = pool.tables.reclaim.mode();
    pool.tables.reclaim.set_mode(0);
    while pool.zones()[usize::from(node)].free_counter() > 0 {
        held.push(pool.alloc(request).unwrap());
    }
    pool.tables.reclaim.set_mode(mode);
    held
}

fn tries(pool: &Pool, unit: Unit) -> usize {
    let mut passes = pool.platform().passes.lock().unwrap();
    let (of, others): (Vec<_>, Vec<_>) = passes.drain(..).partition(|pass| *pass == unit);
    *passes = others;
    assert_eq!(of.len() % 5, 0, "a try that frees nothing makes five passes");
    of.len() / 5
}

#[test]
fn off_unless_asked_for() {
    let mut off = policy();
    off.node_reclaim.mode = NodeReclaimMode::Bits(0);
    let pool = boot(20, off);
    fill(pool, 0);
    pool.alloc(request()).unwrap();
    assert_eq!(pool.reclaim_stats().tries, 0);
    pool.set(Sysctl::ZoneReclaimMode, 8).unwrap();
    pool.alloc(request()).unwrap();
    assert_eq!(pool.reclaim_stats().tries, 0, "only the three bits turn it on");
    for mode in [1, 2, 4] {
        pool.set(Sysctl::ZoneReclaimMode, mode).unwrap();
        pool.alloc(request()).unwrap();
        assert_eq!(tries(pool, Unit::Node(NodeId(0))), 1);
    }
}

#[test]
fn sysctls_have_the_kernels_ranges() {
    let pool = boot(20, policy());
    for (sysctl, accepted, refused) in [
        (Sysctl::ZoneReclaimMode, [0, 7, i64::from(i32::MAX)], [-1, 1 << 31]),
        (Sysctl::MinUnmappedRatio, [0, 50, 100], [-1, 101]),
        (Sysctl::MinSlabRatio, [0, 50, 100], [-1, 101]),
        (Sysctl::DefragMode, [0, 1, 1], [-1, 2]),
        (Sysctl::HighFraction, [0, 8, i64::from(i32::MAX)], [-8, 7]),
        (Sysctl::HighFraction, [8, 9, 1000], [1, (1 << 32) + 8]),
        (Sysctl::WatermarkScaleFactor, [1, 10, 3000], [0, 3001]),
        (Sysctl::StatInterval, [1, 2, i64::from(i32::MAX)], [0, i64::MIN]),
    ] {
        assert!(accepted.into_iter().all(|value| pool.set(sysctl, value).is_ok()));
        assert!(refused.into_iter().all(|value| pool.set(sysctl, value).is_err()));
        assert!(accepted.into_iter().all(|value| sysctl.check(value).is_ok()));
        assert!(refused.into_iter().all(|value| sysctl.check(value).is_err()));
    }
}

/// Limits of 1 and 5 percent of a node of 4096 pages, and what the sysctls make of them.
#[test]
fn limits_follow_the_ratios() {
    let pool = boot(20, policy());
    let limits = |unit: ReclaimUnit| {
        let record = match unit {
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => &pool.zones()[0].reclaim,
            ReclaimUnit::Node => &pool.nodes()[0].reclaim,
        };
        [record.min_unmapped.load(Relaxed), record.min_slab.load(Relaxed)]
    };
    for &(_, unit) in ReclaimUnit::ALL {
        assert_eq!(limits(unit), [40, 204]);
    }
    pool.set(Sysctl::MinUnmappedRatio, 100).unwrap();
    pool.set(Sysctl::MinSlabRatio, 0).unwrap();
    assert_eq!(limits(ReclaimUnit::Node), [4096, 0]);
    fill(pool, 0);
    pool.alloc(request()).unwrap();
    assert_eq!(pool.reclaim_stats().full, 1, "4000 pages of files are less than all");
}

/// The nearer a rule wants zones to be, the sooner they are passed. Only the remote node is full of
/// reclaimable pages; nobody runs there.
#[test]
fn distance_decides_which_nodes_are_reclaimed() {
    for (rule, distance, reclaimed) in [
        (DistanceRule::None, 200, true),
        (DistanceRule::AtMost(30), 30, true),
        (DistanceRule::AtMost(30), 31, false),
        (DistanceRule::Below(30), 29, true),
        (DistanceRule::Below(30), 30, false),
        (DistanceRule::AtMost(32), 32, true),
    ] {
        let mut with = policy();
        with.node_reclaim.distance = rule;
        let mut shape = Shape::uniform(2, 4096, 1);
        shape.distances = std::vec![10, distance, distance, 10];
        shape.cpus.pop(); // node 1 has no CPU, so anybody may reclaim it
        let shape: &'static Shape = Box::leak(Box::new(shape));
        on_cpu(0);
        let pool: &Pool =
            Box::leak(Box::new(shape.boot_on(with, Stage::for_threads(Reclaiming::default()))));
        fill(pool, 0);
        fill(pool, 1);
        assert!(pool.alloc(request().gfp(Gfp::KERNEL | Gfp::NORETRY)).is_err());
        // Three walks: with the low watermark, with the min watermark, and behind the drain.
        assert_eq!(tries(pool, Unit::Node(NodeId(0))), 3);
        let remote = tries(pool, Unit::Node(NodeId(1)));
        assert_eq!(remote, if reclaimed { 3 } else { 0 }, "{rule} at {distance}");
    }
}

#[test]
fn a_node_with_cpus_is_left_to_them() {
    let pool = boot(20, policy());
    fill(pool, 1);
    let remote = request().on(NodeId(1));
    pool.alloc(remote).unwrap();
    assert_eq!(pool.reclaim_stats().no_scan, 1);
    on_cpu(1);
    pool.alloc(remote).unwrap();
    assert_eq!(tries(pool, Unit::Node(NodeId(1))), 1);
}

#[test]
fn who_must_not_wait_does_not_reclaim() {
    let pool = boot(20, policy());
    fill(pool, 0);
    for gfp in [Gfp::ATOMIC, Gfp::NOWAIT] {
        pool.alloc(request().gfp(gfp)).unwrap();
    }
    let stats = pool.reclaim_stats();
    assert_eq!((stats.tries, stats.no_scan), (2, 2));
}

/// Reclaim that gives enough makes the zone serve after all.
#[test]
fn a_node_that_gave_enough_serves_the_request() {
    for &(_, unit) in ReclaimUnit::ALL {
        let mut with = policy();
        with.node_reclaim.unit = unit;
        let pool = boot(20, with);
        let held = Mutex::new(fill(pool, 0));
        let at_pass = move |_: &Pass| {
            let freed: Vec<Pfn> = held.lock().unwrap().drain(..100).collect();
            freed.iter().for_each(|pfn| pool.free(*pfn, request().order).unwrap());
            100 << 4
        };
        assert!(pool.platform().at_pass.set(Box::new(at_pass)).is_ok());
        let pfn = pool.alloc(request()).unwrap();
        assert!(pool.zones()[0].contains(pfn));
        let stats = pool.reclaim_stats();
        assert_eq!((stats.success, stats.passes, stats.pages), (1, 1, 1600));
        pool.alloc(request()).unwrap();
        assert_eq!(pool.reclaim_stats().tries, 1, "the node is above its watermark again");
    }
}

/// RECLAIM-1: while one thread reclaims a node, another of the same node goes elsewhere at once.
#[test]
fn one_thread_reclaims_a_node_at_a_time() {
    static INSIDE: Barrier = Barrier::new(2);
    static OUT: Barrier = Barrier::new(2);
    let pool = boot(20, policy());
    fill(pool, 0);
    let at_pass = |pass: &Pass| {
        if pass.priority == 4 {
            INSIDE.wait();
            OUT.wait();
        }
        0
    };
    assert!(pool.platform().at_pass.set(Box::new(at_pass)).is_ok());
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| pool.alloc(request()).unwrap());
        scope.spawn(|| {
            on_cpu(2);
            INSIDE.wait();
            let got = pool.alloc(request());
            let stats = pool.reclaim_stats();
            OUT.wait();
            assert!(pool.zones()[1].contains(got.unwrap()), "served from the other node");
            assert_eq!((stats.no_scan, stats.passes), (1, 0));
        });
        assert!(pool.zones()[1].contains(slow.join().unwrap()));
    });
    let stats = pool.reclaim_stats();
    assert_eq!((stats.tries, stats.no_scan, stats.failed, stats.passes), (2, 1, 1, 5));
    pool.validate().unwrap();
}

/// A machine with a distance above the limit turns it on by itself, up to 3.15.
/// RECLAIM-1, with a try that goes on between two requests, as in virtual time.
#[test]
fn while_a_platform_holds_a_unit_no_other_reclaims_there() {
    for &(_, unit) in ReclaimUnit::ALL {
        let held = match unit {
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => Unit::Zone(crate::types::ZoneId(0)),
            ReclaimUnit::Node => Unit::Node(NodeId(0)),
        };
        let mut policy = policy();
        policy.node_reclaim.unit = unit;
        let pool = boot(20, policy);
        fill(pool, 0);
        let going_on = pool.hold_reclaim(held).unwrap();
        assert!(pool.hold_reclaim(held).is_none());
        assert!(pool.zones()[1].contains(pool.alloc(request()).unwrap()));
        assert_eq!((pool.reclaim_stats().no_scan, pool.reclaim_stats().passes), (1, 0));
        drop(going_on);
        assert!(pool.zones()[1].contains(pool.alloc(request()).unwrap()));
        assert_eq!((pool.reclaim_stats().no_scan, pool.reclaim_stats().passes), (1, 5));
    }
}

#[test]
fn far_nodes_turn_it_on_by_themselves() {
    for (above, distance, on) in [(20, 20, false), (20, 21, true), (30, 21, false)] {
        let mut with = policy();
        with.node_reclaim.mode = NodeReclaimMode::Auto { above };
        assert_eq!(boot(distance, with).tables.reclaim.mode(), u32::from(on));
    }
}

/// Direct reclaim repeats while it frees, and hears what the request may use.
#[test]
fn direct_reclaim_repeats_until_the_request_is_served() {
    let pool = boot(20, policy());
    pool.set(Sysctl::ZoneReclaimMode, 0).unwrap();
    let mut held = fill(pool, 0);
    fill(pool, 1);
    let mut nodes = [NodeId(0), NodeId(1)].into_iter().cycle();
    let at_direct = move |pass: &Pass| {
        // Each pass goes to both nodes, and what it frees is enough for one direct reclaim.
        assert_eq!((Some(pass.unit), pass.priority), (nodes.next().map(Unit::Node), 12));
        assert_eq!((pass.order.get(), pass.gfp), (3, Gfp::KERNEL));
        let freed: Vec<Pfn> = held.drain(..1).collect();
        freed.iter().for_each(|pfn| pool.free(*pfn, Order::new(4).unwrap()).unwrap());
        freed.len() as u64 * 16
    };
    *pool.platform().at_direct.lock().unwrap() = Some(Box::new(at_direct));
    let pfn = pool.alloc(Request::new(Order::new(3).unwrap())).unwrap();
    assert!(pool.zones()[0].contains(pfn));
    // The min watermark of a zone is 32 pages; 32 more are free each time, and 7 are not counted.
    let stats = pool.reclaim_stats();
    assert_eq!(pool.zones()[0].watermarks().min, 32);
    assert_eq!((stats.direct, stats.direct_pages), ([0, 0, 2, 0, 0], 64));
    let freed = |node: usize| pool.nodes()[node].scans().direct.reclaimed;
    assert_eq!((freed(0), freed(1)), (32, 32));
}

/// Orders above 3 get one try, unless they insist; requests that must not wait get none.
#[test]
fn direct_reclaim_gives_up_by_the_rules() {
    let plenty = || Some(Box::new(|_: &Pass| 0_u64) as AtDirect);
    for (order, gfp, expected) in [
        (4, Gfp::KERNEL, 1),
        (4, Gfp::KERNEL | Gfp::RETRY_MAYFAIL, 17),
        (0, Gfp::KERNEL, 17),
        (0, Gfp::KERNEL | Gfp::NORETRY, 1),
        (0, Gfp::ATOMIC, 0),
        (0, Gfp::NOWAIT, 0),
    ] {
        let pool = boot(20, policy());
        pool.set(Sysctl::ZoneReclaimMode, 0).unwrap();
        fill(pool, 0);
        let held = fill(pool, 1);
        // A block for the test of the watermarks to see, which the watermarks refuse.
        pool.free(held[0], request().order).unwrap();
        *pool.platform().at_direct.lock().unwrap() = plenty();
        let request = Request::new(Order::new(order).unwrap()).gfp(gfp);
        let error = pool.alloc(request).err();
        if expected > 0 {
            assert!(matches!(error.unwrap().why, Refusal::Watermark { .. }));
        }
        assert_eq!(directs(pool), expected, "order {order} {gfp}");
        // Nothing that could be freed is left: it does not repeat.
        *pool.platform().held.lock().unwrap() = Some(Holdings::default());
        *pool.platform().at_direct.lock().unwrap() = plenty();
        let _ = pool.alloc(request);
        let again = directs(pool) - expected;
        assert_eq!(again, expected.min(1), "order {order} {gfp}");
    }
}

/// A reclaimer that allocates gets what there is, and does not reclaim for itself.
#[test]
fn reclaim_does_not_call_itself() {
    let pool = boot(20, policy());
    let mut held = fill(pool, 0);
    held.extend(fill(pool, 1));
    pool.free(held.pop().unwrap(), request().order).unwrap();
    let at_direct = move |pass: &Pass| {
        if pass.unit != Unit::Node(NodeId(0)) {
            return 0;
        }
        IN_RECLAIM.set(true);
        let own = pool.alloc(request()).expect("the last block, below every watermark");
        assert!(pool.alloc(request()).is_err());
        IN_RECLAIM.set(false);
        pool.free(own, request().order).unwrap();
        for pfn in held.drain(..100) {
            pool.free(pfn, request().order).unwrap();
        }
        1600
    };
    *pool.platform().at_direct.lock().unwrap() = Some(Box::new(at_direct));
    pool.alloc(request()).unwrap();
    assert_eq!(directs(pool), 1);
}

/// LB D.4 step 2, since 4.8: a page that is about to be written to comes from a node that may have
/// more dirty, as long as there is one; other pages come from where they always do.
#[test]
fn pages_for_writing_pass_nodes_with_too_much_dirty() {
    let write = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE | Gfp::WRITE);
    let other = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE);
    for (spread, taken_from) in [(DirtySpread::Node, [1, 0]), (DirtySpread::Off, [0, 0])] {
        let mut policy = policy();
        policy.zonelist.dirty = spread;
        let pool = boot(20, policy);
        let node_of = |request| {
            let page = pool.alloc(request).unwrap();
            pool.zones().iter().find(|zone| zone.contains(page)).unwrap().node().0
        };
        assert_eq!([node_of(write), node_of(other)], [0, 0], "{spread:?}");
        *pool.platform().too_dirty.lock().unwrap() = std::vec![NodeId(0)];
        assert_eq!([node_of(write), node_of(other)], taken_from, "{spread:?}");
        let mut notes = Vec::new();
        pool.explain(&write, &mut |note| notes.push(note));
        let told = notes.iter().filter(|note| matches!(note, Note::Dirty(_))).count();
        assert_eq!(told, usize::from(spread == DirtySpread::Node));
        // Nowhere else either: then it is as if nobody had asked.
        *pool.platform().too_dirty.lock().unwrap() = std::vec![NodeId(0), NodeId(1)];
        assert_eq!(node_of(write), 0, "{spread:?}");
        let asked = core::mem::take(&mut *pool.platform().asked_dirty.lock().unwrap());
        assert_eq!(asked.is_empty(), spread == DirtySpread::Off);
        let zone = &pool.zones()[0];
        for (_, free) in asked.iter().filter(|(node, _)| *node == NodeId(0)) {
            assert!(*free <= zone.managed() - zone.watermarks().of(Watermark::High), "{free}");
        }
    }
}
