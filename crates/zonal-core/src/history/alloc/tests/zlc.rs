//! The two bugs of node reclaim with the zonelist cache, each fix alone, and none of it (LB G.5,
//! G.6): how often an allocation reclaims, counted.

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

use super::platform::{Behaviour, Shape, Stage, distances, on_cpu, zone};
use crate::alloc::{Allocator, Request, Sysctl};
use crate::gfp::Gfp;
use crate::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::walk::ZonelistCaching;
use crate::policy::{Grouping, MinFreeRule, PcpPolicy, Policy};
use crate::types::{Choice, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::vmstat::variant::{NumaPolicy, Update};

/// Blocks of an order without per-CPU lists: each allocation is seen by the watermarks.
const ORDER: u32 = 4;
const SECOND: u64 = 1_000_000_000;

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static PASSES: RefCell<Vec<Unit>> = const { RefCell::new(Vec::new()) };
    static AT_DIRECT: RefCell<Option<Box<dyn FnOnce() -> u64>>> = const { RefCell::new(None) };
}

/// Node reclaim looks at much and frees nothing; direct reclaim does what the test says.
#[derive(Default)]
struct Stubborn;

impl Behaviour for Stubborn {
    fn now_ns(&self) -> u64 {
        NOW.get()
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
}

impl Reclaimer for Stubborn {
    fn holdings(&self, _unit: Unit) -> Holdings {
        Holdings { file: 4000, inactive_file: 4000, ..Holdings::default() }
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        if pass.by == By::Direct {
            let reclaimed = AT_DIRECT.take().map_or(0, |free| free());
            return Shrunk { scanned: reclaimed, reclaimed, slab: 0 };
        }
        PASSES.with_borrow_mut(|passes| passes.push(pass.unit));
        Shrunk::default()
    }
}

type Pool = Allocator<'static, Stage<Stubborn>>;

fn policy(caching: ZonelistCaching) -> Policy {
    let mut policy = Policy {
        pcp: PcpPolicy { orders: 1, ..Policy::LINUX_6_18.pcp },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };
    policy.watermark.min_free = MinFreeRule::Kbytes(256);
    for (key, value) in [
        ("zlc", caching.name()),
        ("zlc.mark", "always"),
        ("node_reclaim.mode", "1"),
        ("node_reclaim.unit", "zone"),
        ("node_reclaim.distance", "none"),
    ] {
        policy.set(key, value).unwrap();
    }
    policy
}

/// Node 0 has DMA32 (zone 0) and Normal (zone 1), node 1 has Normal (zone 2); a CPU each.
fn boot(caching: ZonelistCaching) -> &'static Pool {
    let shape = Shape {
        distances: distances(2),
        zones: std::vec![
            zone(0, ZoneKind::Dma32, 0, 4096),
            zone(0, ZoneKind::Normal, 4096, 4096),
            zone(1, ZoneKind::Normal, 8192, 4096),
        ],
        cpus: std::vec![NodeId(0), NodeId(1)],
        cache_slice_bytes: 0,
        caches: Vec::new(),
    };
    on_cpu(0);
    NOW.set(100 * SECOND);
    PASSES.take();
    let shape: &'static Shape = Box::leak(Box::new(shape));
    Box::leak(Box::new(shape.boot_on(policy(caching), Stage::with(Stubborn))))
}

fn request() -> Request {
    Request::new(Order::new(ORDER).unwrap())
}

fn zone_of(pool: &Pool, pfn: Pfn) -> u16 {
    pool.zones().iter().find(|zone| zone.contains(pfn)).unwrap().id().0
}

/// Takes all blocks of the zone, whatever its watermarks say, without reclaim and past the cache.
fn fill(pool: &Pool, zone: u16) -> Vec<Pfn> {
    let zone = &pool.zones()[usize::from(zone)];
    let kind = if zone.kind() == ZoneKind::Dma32 { Gfp::DMA32 } else { Gfp::default() };
    let request = request().gfp(Gfp::MEMALLOC | Gfp::THISNODE | kind).on(zone.node());
    let mut held = Vec::new();
    while zone.free_counter() > 0 {
        held.push(pool.alloc(request).unwrap());
    }
    assert!(held.iter().all(|pfn| zone.contains(*pfn)));
    assert!(PASSES.take().is_empty());
    held
}

/// Tries of node reclaim in each zone; each makes the five passes of a scan that frees nothing.
fn tries() -> [usize; 3] {
    let passes = PASSES.take();
    let of = |zone: u16| passes.iter().filter(|unit| **unit == Unit::Zone(ZoneId(zone))).count();
    let passes = [of(0), of(1), of(2)];
    assert!(passes.iter().all(|passes| passes % 5 == 0));
    passes.map(|passes| passes / 5)
}

/// Allocates `count` blocks and says from which zone they came.
fn allocate(pool: &Pool, count: usize, from: u16) {
    for _ in 0..count {
        let pfn = pool.alloc(request()).unwrap();
        assert_eq!(zone_of(pool, pfn), from);
    }
}

/// Bug 1: node 0 is full of pages that nobody can free. Every request should notice that once, not
/// each time.
#[test]
fn the_preferred_zone_is_reclaimed_for_every_request_until_the_first_fix() {
    for (caching, first_second, next_second) in [
        (ZonelistCaching::None, [20, 20, 0], [20, 20, 0]),
        // The cache saves the second zone of the list, never the first.
        (ZonelistCaching::Original, [1, 20, 0], [1, 20, 0]),
        (ZonelistCaching::Reconsider, [1, 20, 0], [1, 20, 0]),
        (ZonelistCaching::FirstZone, [1, 1, 0], [1, 1, 0]),
        (ZonelistCaching::FirstZoneReconsider, [1, 1, 0], [1, 1, 0]),
    ] {
        let pool = boot(caching);
        fill(pool, 0);
        fill(pool, 1);
        let slow_paths = pool.stats().slow_paths();
        allocate(pool, 20, 2);
        assert_eq!(tries(), first_second, "{}", caching.name());
        // A second is over only when more than a second has passed.
        NOW.set(NOW.get() + SECOND);
        allocate(pool, 1, 2);
        let again = matches!(caching, ZonelistCaching::None).into();
        let first =
            !matches!(caching, ZonelistCaching::FirstZone | ZonelistCaching::FirstZoneReconsider);
        assert_eq!(tries(), [again, first.into(), 0], "{}", caching.name());
        NOW.set(NOW.get() + 1);
        allocate(pool, 20, 2);
        assert_eq!(tries(), next_second, "{}", caching.name());
        assert_eq!(pool.stats().slow_paths(), slow_paths, "node 1 has room");
        pool.validate().unwrap();
    }
}

/// Bug 2: every zone is full and marked. Direct reclaim then frees half of DMA32. Without the
/// second fix DMA32 stays marked, so each request finds nothing at first and reclaims the first
/// zone again on its second round.
#[test]
fn zones_that_direct_reclaim_freed_stay_full_until_the_second_fix() {
    for (caching, expected) in [
        (ZonelistCaching::None, [0, 20, 0]),
        (ZonelistCaching::Original, [0, 20 + 20, 0]),
        (ZonelistCaching::FirstZone, [0, 20, 0]),
        (ZonelistCaching::Reconsider, [0, 20, 0]),
        (ZonelistCaching::FirstZoneReconsider, [0, 0, 0]),
    ] {
        let pool = boot(caching);
        let mut dma32 = fill(pool, 0);
        fill(pool, 1);
        fill(pool, 2);
        AT_DIRECT.set(Some(Box::new(move || {
            PASSES.take();
            let freed = dma32.split_off(dma32.len() / 2);
            for pfn in &freed {
                pool.free(*pfn, Order::new(ORDER).unwrap()).unwrap();
            }
            (freed.len() as u64) << ORDER
        })));
        allocate(pool, 1, 0);
        let stats = pool.reclaim_stats();
        assert_eq!((stats.direct, stats.direct_pages), ([0, 0, 1, 0, 0], 2048));
        // The retry itself: with the cache emptied, Normal is looked at once more.
        tries();
        allocate(pool, 20, 0);
        assert_eq!(tries(), expected, "{}", caching.name());
        pool.validate().unwrap();
    }
}

/// A request that stays on its node has no cache, and may not mark for others.
#[test]
fn a_request_for_this_node_neither_uses_nor_fills_the_cache() {
    let pool = boot(ZonelistCaching::FirstZone);
    fill(pool, 0);
    fill(pool, 1);
    let this_node = request().gfp(Gfp::KERNEL | Gfp::THISNODE | Gfp::NORETRY);
    assert!(pool.alloc(this_node).is_err());
    // Each walk, with the low watermark, the min watermark, and after the drain, goes two rounds
    // over Normal and DMA32.
    assert_eq!(tries(), [6, 6, 0]);
    assert!((0..3).all(|position| pool.nodes()[0].cache.worth(position)));
    allocate(pool, 1, 2);
    assert_eq!(tries(), [1, 1, 0]);
    assert!(!pool.nodes()[0].cache.worth(0) && !pool.nodes()[0].cache.worth(1));
    assert!((0..3).all(|position| pool.nodes()[1].cache.worth(position)), "each list has its own");
}

/// Since 3.2 a walk that does not use the cache does not fill it either.
#[test]
fn full_zones_are_marked_by_walks_that_use_the_cache_or_by_all() {
    for (mark, first_is_marked) in [("always", true), ("active", false)] {
        let mut with = policy(ZonelistCaching::Original);
        with.set("zlc.mark", mark).unwrap();
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(2, 4096, 1)));
        NOW.set(0);
        PASSES.take();
        let pool: &'static Pool = Box::leak(Box::new(shape.boot_on(with, Stage::with(Stubborn))));
        fill(pool, 0);
        allocate(pool, 1, 1);
        assert_eq!(!pool.nodes()[0].cache.worth(0), first_is_marked);
    }
}

/// A machine with one node has nobody to go to: the cache never comes into use.
#[test]
fn on_one_node_nothing_is_remembered() {
    for caching in [ZonelistCaching::Original, ZonelistCaching::FirstZone] {
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, 4096, 1)));
        PASSES.take();
        let pool: &'static Pool =
            Box::leak(Box::new(shape.boot_on(policy(caching), Stage::with(Stubborn))));
        let held = fill(pool, 0);
        for _ in 0..2 {
            assert!(pool.alloc(request().gfp(Gfp::KERNEL | Gfp::NORETRY)).is_err());
            assert_eq!(tries(), [3, 0, 0], "one round for each walk");
        }
        held.iter().for_each(|pfn| pool.free(*pfn, request().order).unwrap());
        allocate(pool, 1, 0);
    }
}

/// The cache remembers the zones that the first walk finds full, and the second walk passes them.
/// `explain` remembers nothing, so it is not certain of what comes on the second walk.
#[test]
fn an_explanation_is_not_certain_of_what_a_cache_would_remember() {
    use super::programs::{Op, run};
    let zones = [
        zone(0, ZoneKind::Dma, 0, 244),
        zone(0, ZoneKind::Normal, 244, 39),
        zone(1, ZoneKind::Normal, 283, 480),
    ];
    let shape = Shape {
        distances: distances(2),
        zones: zones.to_vec(),
        cpus: [NodeId(0)].to_vec(),
        cache_slice_bytes: 0,
        caches: Vec::new(),
    };
    let mut policy = Policy::LINUX_3_1;
    policy.watermark.min_free = MinFreeRule::Kbytes(0);
    policy.numa = NumaPolicy::EXACT;
    policy.stat.update = Update::Irq;
    policy.mobility_grouping = Grouping::On;
    policy.zonelist.cache = ZonelistCaching::FirstZoneReconsider;
    let (cpu, gfp) = (0, 0);
    let alloc = |order, node, times| Op::Alloc { cpu, order, gfp, node, times };
    let program = [
        Op::Fast { cpu, order: 0, times: 25 },
        alloc(3, Some(1), 35),
        alloc(3, None, 31),
        alloc(2, None, 13),
        Op::Free { cpu, which: 15192552465798336562, times: 22 },
        Op::Write { sysctl: Sysctl::WatermarkScaleFactor, value: 3000 },
        Op::Fast { cpu, order: 2, times: 17 },
    ];
    run(&shape, policy, &program);
}
