//! Ids that do not exist: every public function of an allocator and its parts that takes an id,
//! called with ids that the machine does not have. It answers that there is nothing, or panics
//! where its documentation says so; either way nothing has changed.

use std::boxed::Box;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::string::{String, ToString};
use std::vec::Vec;

use super::platform::{Script, Shape};
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, Next, OnlineError, Request, hot};
use crate::gfp::Gfp;
use crate::platform::reclaimer::Unit;
use crate::policy::Policy;
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::vmstat::worker::StatWorker;

const PAGES: u64 = 4096;
const NODES: u16 = 2;
/// Of all nodes.
const CPUS: u32 = 4;

type Pool = Allocator<'static, Script>;

/// An id of each kind that does not exist.
#[derive(Clone, Copy, Debug)]
struct Ids {
    cpu: CpuId,
    node: NodeId,
    zone: ZoneId,
    pfn: Pfn,
}

const IDS: [Ids; 3] = [
    Ids { cpu: CpuId(CPUS), node: NodeId(NODES), zone: ZoneId(NODES), pfn: Pfn(PAGES * 2) },
    Ids { cpu: CpuId(CPUS + 1), node: NodeId(3), zone: ZoneId(3), pfn: Pfn(1 << 52) },
    Ids {
        cpu: CpuId(u32::MAX),
        node: NodeId(u16::MAX),
        zone: ZoneId(u16::MAX),
        pfn: Pfn(u64::MAX - 1),
    },
];

/// Says that there is nothing.
type Answer = fn(&Pool, Ids) -> bool;
/// Panics, and says so.
type Panic = fn(&Pool, Ids);

/// What a function that should have panicked told.
fn told<T>(_: T) {}

fn request(ids: Ids) -> Request {
    Request::new(Order::ZERO).on(ids.node)
}
fn pages(ids: Ids) -> core::ops::Range<Pfn> {
    ids.pfn..Pfn(ids.pfn.0 + 1)
}

const ANSWER: &[(&str, Answer)] = &[
    ("Allocator::alloc", |pool, ids| pool.alloc(request(ids)).is_err()),
    ("Allocator::alloc_bulk", |pool, ids| pool.alloc_bulk(request(ids), &mut [ids.pfn]).is_err()),
    ("Allocator::alloc_bulk_at", |pool, ids| {
        pool.alloc_bulk_at(request(ids), 0, &mut [core::ptr::null_mut()]).is_err()
    }),
    ("Allocator::background_check", |pool, ids| !pool.background_check(ids.node)),
    ("Allocator::background_step", |pool, ids| {
        let larger = Shape::uniform(8, PAGES, 1).boot(Policy::LINUX_6_18);
        let mut reclaimer = larger.background_start(NodeId(ids.node.0.min(7)));
        pool.background_step(&mut reclaimer) == Next::Sleep
    }),
    ("Allocator::background_stop", |pool, ids| {
        let larger = Shape::uniform(8, PAGES, 1).boot(Policy::LINUX_6_18);
        pool.background_stop(larger.background_start(NodeId(ids.node.0.min(7))));
        true
    }),
    ("Allocator::count_stray", |pool, ids| {
        let strays = || [0, 1].map(|zone| pool.zone_stats(ZoneId(zone)).double_frees);
        let before = strays();
        pool.count_stray(ids.cpu);
        strays() == before
    }),
    ("Allocator::cpu_dead", |pool, ids| !pool.cpu_dead(ids.cpu)),
    ("Allocator::cpu_online", |pool, ids| !pool.cpu_online(ids.cpu)),
    ("Allocator::drain", |pool, ids| {
        pool.drain(ids.zone, CpuId(0)) + pool.drain(ZoneId(0), ids.cpu) == 0
    }),
    ("Allocator::explain", |pool, ids| {
        matches!(
            pool.explain(&request(ids), &mut |_| ()).outcome,
            crate::alloc::explain::Outcome::Refused(_)
        )
    }),
    ("Allocator::frame_state", |pool, ids| {
        let outside = pool.frame_state(usize::MAX);
        pool.frame_state(ids.pfn.0 as usize) == outside
    }),
    ("Allocator::free", |pool, ids| pool.free(ids.pfn, Order::ZERO).is_err()),
    ("Allocator::free_bulk", |pool, ids| {
        pool.free_bulk(&[ids.pfn; 20], Order::ZERO).is_err_and(|(done, _)| done == 0)
    }),
    ("Allocator::free_bulk_at", |pool, ids| {
        let page = (ids.pfn.0 as usize | 1) as *mut u8;
        pool.free_bulk_at(0, &[page; 20], Order::ZERO).is_err_and(|(done, _)| done == 0)
    }),
    ("Allocator::free_cold", |pool, ids| pool.free_cold(ids.pfn, Order::MAX).is_err()),
    ("Allocator::grow", |pool, ids| pool.grow(ids.node, |_| ()) == Ok(0)),
    ("Allocator::hold_reclaim", |pool, ids| {
        let units = [Unit::Zone(ids.zone), Unit::Node(ids.node)];
        units.into_iter().all(|unit| pool.hold_reclaim(unit).is_none())
    }),
    ("Allocator::isolate_block", |pool, ids| pool.isolate_block(ids.zone, Order::ZERO).is_none()),
    ("Allocator::numa_events", |pool, ids| pool.numa_events(ids.node) == Default::default()),
    ("Allocator::online", |pool, ids| {
        let outside =
            |zone, pages| matches!(pool.online(zone, pages), Err(OnlineError::OutsideZone(..)));
        outside(ids.zone, Pfn(0)..Pfn(1)) && outside(ZoneId(0), pages(ids))
    }),
    ("Allocator::online_deferred", |pool, ids| {
        let outside = |zone, pages| {
            matches!(pool.online_deferred(zone, pages), Err(OnlineError::OutsideZone(..)))
        };
        outside(ids.zone, Pfn(0)..Pfn(1)) && outside(ZoneId(0), pages(ids))
    }),
    ("Allocator::quiet", |pool, ids| !pool.quiet(ids.cpu, &StatWorker::default())),
    ("Allocator::refresh", |pool, ids| !pool.refresh(ids.cpu)),
    ("Allocator::restore_block", |pool, ids| {
        !pool.restore_block(ids.zone, Pfn(0), Order::ZERO)
            && !pool.restore_block(ZoneId(0), ids.pfn, Order::ZERO)
    }),
    ("Allocator::run_worker", |pool, ids| {
        !pool.run_worker(ids.cpu, &mut StatWorker::default(), u64::MAX)
    }),
    ("Allocator::withhold", |pool, ids| pool.withhold(ids.zone, 1).is_err()),
    ("Ranges::alloc", |pool, ids| {
        pool.ranges().alloc(RangeRequest::new(3).on(ids.node)).is_err()
            && pool.ranges().alloc(RangeRequest::new(u64::MAX)).is_err()
    }),
    ("Ranges::alloc_at", |pool, ids| pool.ranges().alloc_at(pages(ids), Gfp::KERNEL).is_err()),
    ("Ranges::check", |pool, ids| pool.ranges().check(pages(ids)).is_err()),
    ("Ranges::free", |pool, ids| pool.ranges().free(pages(ids)).is_err()),
    ("Ranges::from_block", |pool, ids| {
        pool.ranges().from_block(ids.pfn, Order::MAX, u64::MAX).is_err()
    }),
    ("Ranges::grow", |pool, ids| pool.ranges().grow(pages(ids), u64::MAX, Gfp::KERNEL).is_err()),
    ("Ranges::into_blocks", |pool, ids| pool.ranges().into_blocks(pages(ids), Order::MAX).is_err()),
    ("Ranges::join", |pool, ids| pool.ranges().join(pages(ids), ids.pfn).is_err()),
    ("Ranges::keep_block", |pool, ids| !pool.ranges().keep_block(ids.pfn, Order::ZERO)),
    ("Ranges::longest", |pool, ids| pool.ranges().longest(ids.zone) == 0),
    ("Ranges::offline", |pool, ids| pool.ranges().offline(pages(ids)).is_err()),
    ("Ranges::split", |pool, ids| pool.ranges().split(pages(ids), ids.pfn).is_err()),
    ("Ranges::split_block", |pool, ids| {
        pool.ranges().split_block(ids.pfn, Order::MAX, Order::ZERO).is_err()
    }),
    ("Ranges::withdraw", |pool, ids| pool.ranges().withdraw(pages(ids), Gfp::KERNEL).is_err()),
    ("Raw::close", |pool, ids| {
        let raw = pool.raw_of_test();
        raw.close(ids.zone, CpuId(0)).is_none() && raw.close(ZoneId(0), ids.cpu).is_none()
    }),
    ("Raw::lock_zone", |pool, ids| pool.raw_of_test().lock_zone(ids.zone.0.into()).is_none()),
    ("Stats::left_to_grow", |pool, ids| pool.stats().left_to_grow(ids.node) == 0),
    ("Stats::numa_events", |pool, ids| pool.stats().numa_events(ids.node) == Default::default()),
    ("Tables::has_cpu", |pool, ids| !pool.tables().has_cpu(ids.cpu)),
    ("Tables::has_node", |pool, ids| !pool.tables().has_node(ids.node)),
    ("Tables::has_zone", |pool, ids| !pool.tables().has_zone(ids.zone)),
    ("Tables::is_allocated", |pool, ids| !pool.tables().is_allocated(ids.pfn, Order::ZERO)),
    ("Tables::is_online", |pool, ids| !pool.tables().is_online(ids.cpu)),
    ("Tables::look", |pool, ids| {
        let tables = pool.tables();
        tables.look(ids.zone, CpuId(0)).is_none() && tables.look(ZoneId(0), ids.cpu).is_none()
    }),
    ("Tables::online_cpus", |pool, ids| pool.tables().online_cpus(Some(ids.node)) == 0),
    ("Own::free", |pool, ids| own(pool).free(pool, ids.pfn, Order::ZERO).is_err()),
    ("Own::free_range", |pool, ids| own(pool).free_range(pool, ids.pfn, NonZeroU64::MAX).is_err()),
    ("hot::alloc", |pool, ids| hot::alloc(pool, request(ids)).is_none()),
    ("hot::alloc_missed", |pool, ids| hot::alloc_missed(pool, request(ids)).is_err()),
    ("hot::free_missed", |pool, ids| hot::free_missed(pool, ids.pfn, Order::ZERO).is_err()),
    ("hot::free", |pool, ids| hot::free(pool, ids.pfn, Order::ZERO).is_err()),
    ("hot::free_range", |pool, ids| !hot::free_range(pool, ids.pfn, NonZeroU64::MAX)),
];

/// What the first CPU serves itself from.
fn own(pool: &Pool) -> hot::Own<'static> {
    hot::Own::of_test(pool, CpuId(0)).unwrap()
}

const PANIC: &[(&str, Panic)] = &[
    ("Allocator::background_start", |pool, ids| told(pool.background_start(ids.node))),
    ("Allocator::node_of", |pool, ids| told(pool.node_of(ids.cpu))),
    ("Allocator::pcp", |pool, ids| told(pool.pcp(ids.zone, CpuId(0)).count())),
    ("Allocator::pcp", |pool, ids| told(pool.pcp(ZoneId(0), ids.cpu).count())),
    ("Allocator::zone_stats", |pool, ids| told(pool.zone_stats(ids.zone))),
    ("Stats::background", |pool, ids| told(pool.stats().background(ids.node).failures())),
    ("Stats::depot_pages", |pool, ids| told(pool.stats().depot_pages(ids.zone))),
    ("Stats::free_areas", |pool, ids| told(pool.stats().free_areas(ids.zone))),
    ("Stats::free_snapshot", |pool, ids| told(pool.stats().free_snapshot(ids.zone))),
    ("Stats::kept_pages", |pool, ids| told(pool.stats().kept_pages(ids.zone, CpuId(0)))),
    ("Stats::kept_pages", |pool, ids| told(pool.stats().kept_pages(ZoneId(0), ids.cpu))),
    ("Stats::owned_pages", |pool, ids| told(pool.stats().owned_pages(ids.zone))),
    ("Stats::safe_snapshot", |pool, ids| {
        told(pool.stats().safe_snapshot(ids.zone, ZoneKind::Normal));
    }),
    ("Stats::zone", |pool, ids| told(pool.stats().zone(ids.zone))),
    ("Tables::distance", |pool, ids| told(pool.tables().distance(ids.node, NodeId(0)))),
    ("Tables::distance", |pool, ids| told(pool.tables().distance(NodeId(0), ids.node))),
    ("Tables::pcps", |pool, ids| told(pool.tables().pcps(ids.zone, CpuId(1)).count())),
    ("Tables::pcps", |pool, ids| told(pool.tables().pcps(ZoneId(1), ids.cpu).count())),
    ("Tables::preferred_zone", |pool, ids| told(pool.tables().preferred_zone(ids.cpu))),
    ("Tables::zonelist", |pool, ids| told(pool.tables().zonelist(ids.node, false).len())),
];

#[test]
fn every_function_says_that_an_id_does_not_exist() {
    for policy in [Policy::ZONAL, Policy::OWNED_2026, Policy::LINUX_6_18] {
        let platform = Script { gates: Some(true), ..Script::default() };
        let shape = Box::leak(Box::new(Shape::uniform(NODES.into(), PAGES, 2)));
        let pool: Pool = shape.boot_on(policy, platform);
        let held = pool.alloc(Request::new(Order::ZERO)).unwrap();
        let free = pool.free_pages();
        for ids in IDS {
            for (name, answer) in ANSWER {
                assert!(answer(&pool, ids), "{name} with {ids:?} under {}", policy.name);
            }
            for (name, call) in PANIC {
                let call = std::panic::AssertUnwindSafe(|| call(&pool, ids));
                let done = std::panic::catch_unwind(call);
                assert!(done.is_err(), "{name} with {ids:?} under {}", policy.name);
            }
            assert_eq!(pool.free_pages(), free, "{ids:?} under {}", policy.name);
            pool.validate().unwrap();
        }
        pool.free(held, Order::ZERO).unwrap();
        pool.validate().unwrap();
    }
}

/// The functions of `alloc` that take an id, by the list of what the crate offers.
#[test]
fn the_tables_have_every_function_that_takes_an_id() {
    const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/zonal-core.txt");
    const TAKEN: [&str; 10] = [
        "CpuId",
        "NodeId",
        "ZoneId",
        "Pfn",
        "Unit",
        "Request",
        "RangeRequest",
        "usize",
        "u8",
        "BackgroundReclaimer",
    ];
    // A request with an id is checked where it is made.
    let makes = |name: &String| name.ends_with("::on") || name.ends_with("::eq");
    let takes = |line: &&str| {
        let arguments = line.split_once('(').map_or("", |(_, rest)| rest);
        let arguments = arguments.split(") -> ").next().unwrap_or(arguments);
        let mut words = arguments.split(|c: char| !c.is_alphanumeric());
        words.any(|word| TAKEN.contains(&word))
    };
    let list = std::fs::read_to_string(LIST).unwrap();
    let functions = list.lines().filter_map(|line| {
        let line = line.strip_prefix("pub const fn ").or(line.strip_prefix("pub fn "))?;
        line.strip_prefix("zonal_core::alloc::")
    });
    let found: BTreeSet<String> = functions.filter(takes).map(name).collect();
    let found: Vec<_> = found.into_iter().filter(|name| !makes(name)).collect();
    let told = ANSWER.iter().map(|(name, _)| name).chain(PANIC.iter().map(|(name, _)| name));
    let told: BTreeSet<String> = told.map(ToString::to_string).collect();
    assert_eq!(told.into_iter().collect::<Vec<_>>(), found);
}

/// `range::Ranges<'_, '_, P>::alloc(...)` is `Ranges::alloc`.
fn name(line: &str) -> String {
    let (path, _) = line.split_once('(').unwrap();
    let (mut plain, mut depth) = (String::new(), 0);
    for c in path.chars() {
        depth += i32::from(c == '<');
        if depth == 0 {
            plain.push(c);
        }
        depth -= i32::from(c == '>');
    }
    let parts: Vec<&str> = plain.split("::").collect();
    parts[parts.len() - 2..].join("::")
}

/// A second closing waited for the first one for ever.
#[test]
fn what_this_thread_has_closed_already_is_not_closed_again() {
    let pool: Pool = Shape::uniform(1, PAGES, 2).boot(Policy::ZONAL);
    let tables = pool.tables();
    let close = || pool.raw_of_test().close(ZoneId(0), CpuId(0));
    let look = || tables.look(ZoneId(0), CpuId(0));
    let closed = close();
    assert!(closed.is_some() && close().is_none() && look().is_none());
    drop(closed);
    let looked = look();
    assert!(looked.is_some() && close().is_none() && look().is_none());
    drop(looked);
    assert!(close().is_some());
    // A closing that is forgotten loses no page: the CPU goes on without its lists.
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    core::mem::forget(close());
    pool.free(page, Order::ZERO).unwrap();
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    assert_eq!(pool.free_pages(), PAGES);
}
