//! Platforms that panic or call back, in each function they have. Where the core calls them in no
//! middle of a change (`Platform`), nothing is lost; elsewhere pages may be, but none has two
//! owners, and no lock stays taken.

mod support;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use support::{Shape, on_cpu};
use zonal_core::alloc::range::RangeRequest;
use zonal_core::alloc::{Allocator, Request, Sysctl};
use zonal_core::gfp::Gfp;
use zonal_core::platform::reclaimer::{Holdings, OutOfMemory, Pass, Reclaimer, Shrunk, Unit};
use zonal_core::platform::{Platform, Step};
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId};
use zonal_core::zone::watermark::Watermark;

thread_local! {
    /// Calls of the platform that are left before something happens; 0: never.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// Only calls count that may panic and call back.
    static FREE_ONLY: Cell<bool> = const { Cell::new(false) };
    /// The allocator is called back rather than that the platform panics.
    static BACK: Cell<bool> = const { Cell::new(false) };
    static WHERE: Cell<&'static str> = const { Cell::new("") };
    static WHAT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static RELAXED: Cell<u32> = const { Cell::new(0) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The functions that may panic, and may call the allocator.
const FREE: [&str; 10] = [
    "now_ns",
    "relax",
    "wake_reclaim",
    "reclaim_progress",
    "wait_for_progress",
    "wait_for_memory",
    "reclaimer",
    "holdings",
    "shrink",
    "out_of_memory",
];

/// A call of the platform: perhaps the one at which something happens.
fn call(name: &'static str) {
    let left = LEFT.get();
    if left == 0 || FREE_ONLY.get() && !FREE.contains(&name) {
        return;
    }
    LEFT.set(left - 1);
    if left == 1 {
        WHERE.set(name);
        match WHAT.take() {
            Some(what) => what(),
            None => panic!("on purpose"),
        }
    }
}

#[derive(Debug)]
struct Bad;

impl Wait for Bad {
    fn wait(&self, _word: &LockWord, _value: u32) {
        panic!("one thread never waits for itself");
    }
    fn wake_one(&self, _word: &LockWord) {}
    fn mask(&self) -> usize {
        call("mask");
        0
    }
}

impl Platform for Bad {
    fn cpu(&self) -> CpuId {
        call("cpu");
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn has_sequences(&self) -> bool {
        call("has_sequences");
        false
    }
    fn uses_gates(&self) -> bool {
        call("uses_gates");
        true
    }
    fn now_ns(&self) -> u64 {
        call("now_ns");
        0
    }
    fn relax(&self) {
        RELAXED.set(RELAXED.get() + 1);
        assert!(RELAXED.get() < 20_000_000, "one thread waits for itself");
        call("relax");
    }
    fn wake_reclaim(&self, _node: NodeId, _zone: ZoneId, _order: u32) {
        call("wake_reclaim");
    }
    fn reclaim_progress(&self, _node: NodeId) {
        call("reclaim_progress");
    }
    fn wait_for_progress(&self, _node: NodeId, _most_ns: u64) {
        call("wait_for_progress");
    }
    fn wait_for_memory(&self) -> bool {
        call("wait_for_memory");
        false
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        call("reclaimer");
        Some(self)
    }
    fn cost(&self, step: Step) {
        call(match step {
            Step::ZoneLock(_) => "cost of a wait",
            Step::ZoneLocked(_) => "cost of a lock",
            Step::ZoneUnlock { .. } => "cost of an unlock",
            Step::Update { .. } | Step::Fold(_) => "cost of an update",
            _ => "cost",
        });
    }
}

impl Reclaimer for Bad {
    fn is_reclaiming(&self) -> bool {
        false
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        call("holdings");
        Holdings { file: 100, inactive_file: 100, ..Holdings::default() }
    }
    fn shrink(&self, pass: &Pass) -> Shrunk {
        call("shrink");
        Shrunk { scanned: pass.wanted, ..Shrunk::default() }
    }
    fn out_of_memory(&self, _: &OutOfMemory) -> bool {
        call("out_of_memory");
        false
    }
}

type Pool<'a> = Allocator<'a, Bad>;

/// What the test has.
#[derive(Default, Clone, Debug)]
struct Hands {
    blocks: Vec<(Pfn, Order)>,
    ranges: Vec<Range<Pfn>>,
    isolated: Vec<(Pfn, Order)>,
}

const PAGES: u64 = 2048;
const ALL: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

impl Hands {
    /// As many blocks as there are, or so many.
    fn take(&mut self, pool: &Pool<'_>, of: Order, most: usize) {
        let some = std::iter::from_fn(|| pool.alloc(Request::new(of).gfp(ALL)).ok());
        self.blocks.extend(some.take(most).map(|pfn| (pfn, of)));
    }
    fn take_range(&mut self, pool: &Pool<'_>, pages: u64) {
        let pfn = pool.ranges().alloc(RangeRequest::new(pages)).unwrap();
        self.ranges.push(pfn..Pfn(pfn.0 + pages));
    }
    fn isolate(&mut self, pool: &Pool<'_>) {
        let pfn = pool.isolate_block(ZoneId(0), order(10)).unwrap();
        self.isolated.push((pfn, order(10)));
    }
    /// What is given up is nobody's from before the call on.
    fn free_blocks(&mut self, pool: &Pool<'_>) {
        while let Some((pfn, order)) = self.blocks.pop() {
            pool.free(pfn, order).unwrap();
        }
    }
    /// Of its one range.
    fn free_part(&mut self, pool: &Pool<'_>, part: Range<u64>) {
        let range = self.ranges.remove(0);
        let rest = [range.start.0..part.start, part.end..range.end.0];
        let rest = rest.into_iter().filter(|rest| !rest.is_empty());
        self.ranges.extend(rest.map(|rest| Pfn(rest.start)..Pfn(rest.end)));
        pool.ranges().free(Pfn(part.start)..Pfn(part.end)).unwrap();
    }
}

/// A range that begins and ends inside blocks.
fn take_at(pool: &Pool<'_>, hands: &mut Hands) {
    pool.ranges().alloc_at(Pfn(100)..Pfn(301), ALL).unwrap();
    hands.ranges.push(Pfn(100)..Pfn(301));
}

/// Two ranges side by side.
fn split_at(pool: &Pool<'_>, hands: &mut Hands) {
    pool.ranges().split(Pfn(100)..Pfn(301), Pfn(150)).unwrap();
    hands.ranges = vec![Pfn(100)..Pfn(150), Pfn(150)..Pfn(301)];
}

/// Pages on lists.
fn fill_lists(pool: &Pool<'_>, hands: &mut Hands) {
    hands.take(pool, Order::ZERO, 60);
    hands.free_blocks(pool);
}

/// Does something to a pool.
type Act = fn(&Pool<'_>, &mut Hands);
/// An operation: its name, what is done before, and what it does.
type Work = (&'static str, Act, Act);

const NOTHING: Act = |_, _| ();

const WORK: &[Work] = &[
    ("alloc", NOTHING, |pool, hands| hands.take(pool, Order::ZERO, 1)),
    ("alloc order 3", NOTHING, |pool, hands| hands.take(pool, order(3), 1)),
    ("alloc order 10", NOTHING, |pool, hands| hands.take(pool, order(10), 1)),
    ("alloc all", NOTHING, |pool, hands| hands.take(pool, order(2), 1000)),
    (
        "alloc atomic",
        |pool, hands| hands.take(pool, order(3), 254),
        |pool, hands| {
            while let Ok(pfn) = pool.alloc(Request::new(order(1)).gfp(Gfp::ATOMIC)) {
                hands.blocks.push((pfn, order(1)));
            }
        },
    ),
    (
        "free",
        |pool, hands| hands.take(pool, Order::ZERO, 40),
        |pool, hands| hands.free_blocks(pool),
    ),
    (
        "free order 3",
        |pool, hands| hands.take(pool, order(3), 40),
        |pool, hands| {
            hands.free_blocks(pool);
        },
    ),
    (
        "free order 10",
        |pool, hands| hands.take(pool, order(10), 1),
        |pool, hands| {
            hands.free_blocks(pool);
        },
    ),
    ("drain", fill_lists, |pool, _| _ = pool.drain_all()),
    ("bulk", NOTHING, |pool, hands| {
        let mut pages = [Pfn(u64::MAX); 70];
        let got = pool.alloc_bulk(Request::new(Order::ZERO), &mut pages).unwrap();
        hands.blocks.extend(pages[..got].iter().map(|pfn| (*pfn, Order::ZERO)));
    }),
    (
        "bulk free",
        |pool, hands| hands.take(pool, Order::ZERO, 70),
        |pool, hands| {
            let pages: Vec<Pfn> = hands.blocks.drain(..).map(|block| block.0).collect();
            pool.free_bulk(&pages, Order::ZERO).unwrap();
        },
    ),
    ("isolate", NOTHING, |pool, hands| hands.isolate(pool)),
    (
        "restore",
        |pool, hands| hands.isolate(pool),
        |pool, hands| {
            let (pfn, order) = hands.isolated.remove(0);
            assert!(pool.restore_block(ZoneId(0), pfn, order));
        },
    ),
    (
        "keep",
        |pool, hands| hands.isolate(pool),
        |pool, hands| {
            let (pfn, order) = hands.isolated[0];
            assert!(pool.ranges().keep_block(pfn, order));
            hands.blocks.push(hands.isolated.remove(0));
        },
    ),
    ("range", NOTHING, |pool, hands| hands.take_range(pool, 5)),
    ("long range", NOTHING, |pool, hands| hands.take_range(pool, 700)),
    ("range of a place", NOTHING, take_at),
    ("range longer", take_at, |pool, hands| {
        pool.ranges().grow(Pfn(100)..Pfn(301), 50, ALL).unwrap();
        hands.ranges[0].end = Pfn(351);
    }),
    ("range free", take_at, |pool, hands| hands.free_part(pool, 100..301)),
    ("range part", take_at, |pool, hands| hands.free_part(pool, 150..200)),
    (
        "range parked",
        |pool, hands| hands.take_range(pool, 5),
        |pool, hands| {
            let range = hands.ranges[0].clone();
            hands.free_part(pool, range.start.0..range.end.0);
            pool.drain_all();
        },
    ),
    ("range split", take_at, split_at),
    (
        "range join",
        |pool, hands| {
            take_at(pool, hands);
            split_at(pool, hands);
        },
        |pool, hands| {
            pool.ranges().join(Pfn(100)..Pfn(301), Pfn(150)).unwrap();
            hands.ranges = vec![Pfn(100)..Pfn(301)];
        },
    ),
    (
        "split block",
        |pool, hands| hands.take(pool, order(5), 1),
        |pool, hands| {
            let (pfn, of) = hands.blocks[0];
            pool.ranges().split_block(pfn, of, order(3)).unwrap();
            hands.blocks = (0..4).map(|i| (Pfn(pfn.0 + 8 * i), order(3))).collect();
        },
    ),
    (
        "into blocks",
        |pool, hands| {
            pool.ranges().alloc_at(Pfn(64)..Pfn(96), ALL).unwrap();
            hands.ranges.push(Pfn(64)..Pfn(96));
        },
        |pool, hands| {
            pool.ranges().into_blocks(Pfn(64)..Pfn(96), order(3)).unwrap();
            hands.ranges.clear();
            hands.blocks = (0..4).map(|i| (Pfn(64 + 8 * i), order(3))).collect();
        },
    ),
    ("refresh", fill_lists, |pool, _| (0..20).for_each(|_| _ = pool.refresh(CpuId(0)))),
    ("setup", NOTHING, |pool, _| pool.setup()),
    ("cpu", NOTHING, |pool, _| {
        pool.cpu_dead(CpuId(1));
        pool.cpu_online(CpuId(1));
    }),
    (
        "background",
        |pool, hands| hands.take(pool, order(3), 250),
        |pool, _| {
            let mut reclaimer = pool.background_start(NodeId(0));
            (0..40).for_each(|_| _ = pool.background_step(&mut reclaimer));
            pool.background_stop(reclaimer);
        },
    ),
];

fn pages_of(hands: &Hands) -> BTreeSet<u64> {
    let blocks = hands.blocks.iter().chain(&hands.isolated);
    let blocks = blocks.flat_map(|(pfn, order)| pfn.0..pfn.0 + order.pages());
    let ranges = hands.ranges.iter().flat_map(|range| range.start.0..range.end.0);
    blocks.chain(ranges).collect()
}

/// What is wrong once something has happened in the middle of an operation; `exact`: pages that are
/// nobody's are wrong, too.
fn wrong(pool: &Pool<'_>, (before, after): (&Hands, &Hands), exact: bool) -> Option<String> {
    RELAXED.set(0);
    if catch_unwind(AssertUnwindSafe(|| pool.drain_all())).is_err() {
        return Some("a lock stays taken".to_owned());
    }
    // Limits are computed again.
    let marks = [1024, 2048].map(|kbytes| {
        pool.set(Sysctl::MinFreeKbytes, kbytes).unwrap();
        pool.zones()[0].watermarks().of(Watermark::Min)
    });
    if marks != [256, 512] {
        return Some(format!("marks are {marks:?}"));
    }
    let known = &pages_of(before) | &pages_of(after);
    if exact {
        let of = |(pfn, order): (Pfn, Order)| pfn.0..pfn.0 + order.pages();
        let out: BTreeSet<u64> = pool.allocated().flat_map(of).collect();
        let isolated: u64 = after.isolated.iter().map(|(_, order)| order.pages()).sum();
        let sum = pool.free_pages() + out.len() as u64 + isolated;
        if sum != PAGES || !out.is_subset(&known) {
            return Some(format!(
                "{} free, {} handed out of {PAGES}",
                pool.free_pages(),
                out.len()
            ));
        }
        if let Err(fault) = pool.validate() {
            return Some(fault.to_string());
        }
    }
    // Both had it: the free that was under way may have been done, or not.
    let held = &pages_of(before) & &pages_of(after);
    let mut got = BTreeSet::new();
    let take = || {
        // What was isolated is waited for.
        RELAXED.set(0);
        pool.alloc(Request::new(Order::ZERO).gfp(ALL)).ok()
    };
    while let Some(pfn) = take() {
        if !got.insert(pfn.0) || held.contains(&pfn.0) {
            return Some(format!("{pfn:?} has two owners"));
        }
    }
    None
}

/// One operation on a new pool, at whose `at`-th call something happens. What was wrong; `Err`: the
/// operation has no such call.
fn at_call(
    pool: &Pool<'_>,
    (name, before, work): Work,
    at: u32,
    exact: bool,
) -> Result<Option<String>, ()> {
    let mut hands = Hands::default();
    before(pool, &mut hands);
    let old = hands.clone();
    LEFT.set(at);
    let done = catch_unwind(AssertUnwindSafe(|| work(pool, &mut hands)));
    if LEFT.replace(0) > 0 {
        return Err(());
    }
    let found = catch_unwind(AssertUnwindSafe(|| wrong(pool, (&old, &hands), exact)));
    let found = found.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        Some(format!("panicked: {:?}", text.or(panic.downcast_ref::<String>().cloned())))
    });
    let wrong = found.or_else(|| {
        // What was called back returned.
        (WHAT.take().is_none() && exact && BACK.get() && done.is_err())
            .then(|| "it panicked".to_owned())
    });
    Ok(wrong.map(|wrong| format!("{}: {name}: {}: {wrong}", pool.policy().name, WHERE.get())))
}

/// Panics of this thread are not printed.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                hook(info);
            }
        }));
    });
    QUIET.set(true);
}

/// Does `run` for each operation, and each of its calls of the platform until there are no more.
fn each_call(run: impl Fn(Policy, Work, u32) -> Result<Option<String>, ()>) {
    silence();
    let mut found = BTreeSet::new();
    for policy in [Policy::ZONAL, Policy::OWNED_2026] {
        for work in WORK {
            on_cpu(0);
            let calls = (1..30).chain((30..).step_by(97));
            let runs = calls.map(|at| run(policy, *work, at)).take_while(Result::is_ok);
            found.extend(runs.flatten().flatten());
        }
    }
    QUIET.set(false);
    let text: Vec<String> = found.into_iter().collect();
    assert!(text.is_empty(), "{}\n{}", text.len(), text.join("\n"));
}

fn panics(exact: bool) {
    FREE_ONLY.set(exact);
    each_call(|policy, work, at| {
        let shape = Shape::uniform(1, PAGES, 2);
        shape.scoped_on(policy, 0, Bad, |pool| at_call(pool, work, at, exact))
    });
}

#[test]
fn a_panic_where_nothing_is_half_done_loses_nothing() {
    panics(true);
}

#[test]
fn a_panic_anywhere_gives_no_page_two_owners_and_leaves_no_lock() {
    panics(false);
}

#[test]
fn the_allocator_may_be_called_where_nothing_is_half_done() {
    FREE_ONLY.set(true);
    BACK.set(true);
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, PAGES, 2)));
    each_call(|policy, work, at| {
        let pool: &'static Pool<'static> = Box::leak(Box::new(shape.boot_on(policy, Bad)));
        WHAT.set(Some(Box::new(|| {
            for order in [0, 3, 9].map(order) {
                if let Ok(pfn) = pool.alloc(Request::new(order)) {
                    pool.free(pfn, order).unwrap();
                }
            }
            if let Ok(pfn) = pool.ranges().alloc(RangeRequest::new(5)) {
                pool.ranges().free(pfn..Pfn(pfn.0 + 5)).unwrap();
            }
            pool.drain_all();
            pool.refresh(CpuId(0));
            pool.set(Sysctl::WatermarkScaleFactor, 20).unwrap();
        })));
        at_call(pool, work, at, true)
    });
}
