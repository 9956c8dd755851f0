//! Node reclaim (LB G): whether a zone below its watermark is made room in before the next zone is
//! tried, and the rules of one such try.
//!
//! ```text
//!  scan ── zone below its watermark ── mode and distance ──► node_reclaim ──► Reclaimer::shrink
//!                                   (eligible)           │ FULL     too little to begin with
//!                                                        │ NOSCAN   not here, not now
//!                                                        │ SOME     tried; too little came of it
//!                                                        └ SUCCESS  as many pages as the request
//! ```
//! Who frees which pages is the platform's business ([`Reclaimer`]). `alloc::search` has the walk's
//! reaction to the answer.
//!
//! # Invariants
//! - **RECLAIM-1** at most one thread reclaims in one unit at a time, direct reclaim apart:
//!   [`ReclaimRecord::try_lock`](crate::zone::reclaim::ReclaimRecord::try_lock).
//! - **RECLAIM-2** a try makes at least one pass and at most
//!   [`PRIORITY_FIRST`]` + 1`, or none if the unit fell to its limits meanwhile.

mod control;
pub mod lists;
pub mod shrinker;

pub use control::ReclaimControl;

use crate::gfp::Gfp;
use crate::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Unit};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::{NR_ZONE_KINDS, Order, ZoneKind};
use crate::zone::reclaim::{ReclaimRecord, ScanCounters};

/// Node reclaim is on (`RECLAIM_ZONE`).
pub const MODE_ON: u32 = 1;
/// It may write dirty pages (`RECLAIM_WRITE`).
pub const MODE_WRITE: u32 = 2;
/// It may unmap and swap (`RECLAIM_UNMAP`).
pub const MODE_UNMAP: u32 = 4;
/// Any of these turns it on (LB G.1).
pub const MODE_ANY: u32 = MODE_ON | MODE_WRITE | MODE_UNMAP;

/// Priority of the first pass of background and direct reclaim (`DEF_PRIORITY`): a pass looks at a
/// `2^12`-th part. Each pass that does too little is followed by one with the priority one lower.
pub const PRIORITY_GENTLE: u32 = 12;
/// Priority of the first pass of node reclaim (`NODE_RECLAIM_PRIORITY`).
pub const PRIORITY_FIRST: u32 = 4;
/// Most passes over the caches of objects in one try: a platform whose objects free no pages of the
/// zone must not keep a request for ever.
const SLAB_PASSES_MAX: u32 = 1 << 10;
/// A pass is asked for at least this many pages, and direct reclaim ends when it has freed as many
/// (`SWAP_CLUSTER_MAX`).
pub const PASS_PAGES_MIN: u64 = 32;

/// Result of a try (LB G.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeReclaim {
    /// Nothing was scanned: this request may not, or another one reclaims here.
    NoScan,
    /// There is too little to reclaim. It does not say that a scan failed (LB M.23).
    Full,
    /// It was tried, and gave less than the request needs.
    Some,
    /// It gave at least as many pages as the request needs.
    Success,
}

/// One try.
#[derive(Clone, Copy)]
pub struct Try<'a> {
    /// Who frees pages.
    pub reclaimer: &'a dyn Reclaimer,
    /// The unit's record.
    pub record: &'a ReclaimRecord,
    /// What its node's passes come to.
    pub scans: &'a ScanCounters,
    /// The unit.
    pub unit: Unit,
    /// `vm.zone_reclaim_mode`.
    pub mode: u32,
    /// Whether another node's CPUs are there for the unit.
    pub others_cpus: bool,
    /// The request's flags.
    pub gfp: Gfp,
    /// The request's order.
    pub order: Order,
    /// The highest zone kind that the request can use.
    pub highest: ZoneKind,
}

/// What node reclaim and direct reclaim did, over all units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimStats {
    /// Tries of node reclaim, with any result.
    pub tries: u64,
    /// Tries that looked at nothing.
    pub no_scan: u64,
    /// Tries that found too little to reclaim.
    pub full: u64,
    /// Tries that gave enough (`zone_reclaim_success`).
    pub success: u64,
    /// Tries that gave too little (`zone_reclaim_failed`).
    pub failed: u64,
    /// Passes over a unit's pages.
    pub passes: u64,
    /// Pages these passes freed.
    pub pages: u64,
    /// Direct reclaims (`allocstall`), by the highest zone kind that the request could use.
    pub direct: [u64; NR_ZONE_KINDS],
    /// Pages these freed.
    pub direct_pages: u64,
    /// Requests that had to wait for the background reclaimer first (`pgscan_direct_throttle`).
    pub direct_throttled: u64,
    /// Runs of the background reclaimers (`pageoutrun`).
    pub background_runs: u64,
    /// Times one of them was woken from its first nap (`kswapd_low_wmark_hit_quickly`).
    pub low_hit_quickly: u64,
    /// Times one of them could not sleep, or not for long (`kswapd_high_wmark_hit_quickly`).
    pub high_hit_quickly: u64,
    /// Times the platform's last resort was asked ([`Reclaimer::out_of_memory`]).
    pub out_of_memory: u64,
}

/// The counters behind [`ReclaimStats`].
#[derive(Debug, Default)]
pub struct ReclaimEvents {
    no_scan: AtomicU64,
    full: AtomicU64,
    success: AtomicU64,
    failed: AtomicU64,
    passes: AtomicU64,
    pages: AtomicU64,
    /// By the highest zone kind of the request.
    direct: [AtomicU64; NR_ZONE_KINDS],
    direct_pages: AtomicU64,
    direct_throttled: AtomicU64,
    background_runs: AtomicU64,
    low_hit_quickly: AtomicU64,
    high_hit_quickly: AtomicU64,
    out_of_memory: AtomicU64,
}

// Relaxed throughout: single counts, for reports.
impl ReclaimEvents {
    /// The counts now.
    pub fn stats(&self) -> ReclaimStats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let (no_scan, full) = (of(&self.no_scan), of(&self.full));
        let (success, failed) = (of(&self.success), of(&self.failed));
        ReclaimStats {
            tries: no_scan + full + success + failed,
            no_scan,
            full,
            success,
            failed,
            passes: of(&self.passes),
            pages: of(&self.pages),
            direct: core::array::from_fn(|kind| of(&self.direct[kind])),
            direct_pages: of(&self.direct_pages),
            direct_throttled: of(&self.direct_throttled),
            background_runs: of(&self.background_runs),
            low_hit_quickly: of(&self.low_hit_quickly),
            high_hit_quickly: of(&self.high_hit_quickly),
            out_of_memory: of(&self.out_of_memory),
        }
    }

    /// Counts a direct reclaim that freed this many pages.
    pub fn count_direct(&self, pages: u64, highest: ZoneKind) {
        self.direct[highest.index()].fetch_add(1, Relaxed);
        self.direct_pages.fetch_add(pages, Relaxed);
    }

    /// Counts a request that had to wait for the background reclaimer.
    pub fn count_throttled(&self) {
        self.direct_throttled.fetch_add(1, Relaxed);
    }
    /// Counts a run of a background reclaimer.
    pub fn count_background_run(&self) {
        self.background_runs.fetch_add(1, Relaxed);
    }
    /// Counts a nap of a background reclaimer that a request ended.
    pub fn count_low_hit_quickly(&self) {
        self.low_hit_quickly.fetch_add(1, Relaxed);
    }
    /// Counts a sleep of a background reclaimer that did not come.
    pub fn count_high_hit_quickly(&self) {
        self.high_hit_quickly.fetch_add(1, Relaxed);
    }
    /// Counts a call of the last resort.
    pub fn count_out_of_memory(&self) {
        self.out_of_memory.fetch_add(1, Relaxed);
    }

    fn count(&self, outcome: NodeReclaim) {
        let counter = match outcome {
            NodeReclaim::NoScan => &self.no_scan,
            NodeReclaim::Full => &self.full,
            NodeReclaim::Some => &self.failed,
            NodeReclaim::Success => &self.success,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn count_pass(&self, pages: u64) {
        self.passes.fetch_add(1, Relaxed);
        self.pages.fetch_add(pages, Relaxed);
    }
}

/// Pages of the page cache that `mode` lets be reclaimed (LB G.3 step 1).
pub fn reclaimable_cache(held: &Holdings, mode: u32) -> u64 {
    let cache = match mode & MODE_UNMAP {
        0 => (held.inactive_file + held.active_file).saturating_sub(held.file_mapped),
        _ => held.file,
    };
    match mode & MODE_WRITE {
        0 => cache.saturating_sub(held.file_dirty),
        _ => cache,
    }
}

/// A node's or a zone's part of `ratio` percent: pages that node reclaim leaves alone (LB G.2).
pub const fn percent(pages: u64, ratio: u32) -> u64 {
    // A zone has fewer than 2^29 pages.
    pages * ratio as u64 / 100
}

/// Tries to make room in one node or zone (LB G.3).
pub fn node_reclaim(ask: &Try<'_>, events: &ReclaimEvents) -> NodeReclaim {
    let outcome = attempt(ask, events);
    events.count(outcome);
    outcome
}

fn attempt(ask: &Try<'_>, events: &ReclaimEvents) -> NodeReclaim {
    let limits = Limits::of(ask.record);
    let held = ask.reclaimer.holdings(ask.unit);
    let given_up = matches!(ask.unit, Unit::Zone(_)) && held.all_unreclaimable;
    if given_up || !(limits.cache_exceeded(&held, ask.mode) || limits.slab_exceeded(&held)) {
        return NodeReclaim::Full;
    }
    if !ask.gfp.contains(Gfp::DIRECT_RECLAIM) || ask.reclaimer.is_reclaiming() || ask.others_cpus {
        return NodeReclaim::NoScan;
    }
    let Some(_reclaiming) = ask.record.try_lock() else { return NodeReclaim::NoScan };
    let wanted = ask.order.pages();
    let reclaimed = match ask.unit {
        Unit::Node(_) => shrink_node(ask, &limits, events),
        Unit::Zone(_) => shrink_zone(ask, &limits, events),
    };
    if reclaimed >= wanted { NodeReclaim::Success } else { NodeReclaim::Some }
}

/// The sizes below which reclaim does not begin.
struct Limits {
    min_unmapped: u64,
    min_slab: u64,
}

impl Limits {
    fn of(record: &ReclaimRecord) -> Limits {
        Limits {
            min_unmapped: record.min_unmapped.load(Relaxed),
            min_slab: record.min_slab.load(Relaxed),
        }
    }
    fn cache_exceeded(&self, held: &Holdings, mode: u32) -> bool {
        reclaimable_cache(held, mode) > self.min_unmapped
    }
    fn slab_exceeded(&self, held: &Holdings) -> bool {
        held.slab > self.min_slab
    }
}

/// Since 4.8: pages and caches in one pass.
fn shrink_node(ask: &Try<'_>, limits: &Limits, events: &ReclaimEvents) -> u64 {
    // Others may have been at it since the first look.
    let held = ask.reclaimer.holdings(ask.unit);
    if limits.cache_exceeded(&held, ask.mode) || limits.slab_exceeded(&held) {
        return passes(ask, events);
    }
    0
}

/// Up to 4.7: pages first, then caches until they shrank by as much as the request needs.
fn shrink_zone(ask: &Try<'_>, limits: &Limits, events: &ReclaimEvents) -> u64 {
    let held = ask.reclaimer.holdings(ask.unit);
    let mut reclaimed = 0_u64;
    if limits.cache_exceeded(&held, ask.mode) {
        reclaimed = passes(ask, events);
    }
    let slab = || ask.reclaimer.holdings(ask.unit).slab;
    let before = slab();
    if before > limits.min_slab {
        let pass = pass(ask, PRIORITY_FIRST);
        let enough = ask.order.pages();
        for _ in 0..SLAB_PASSES_MAX {
            if ask.reclaimer.shrink_slab(&pass) == 0 || slab() + enough <= before {
                break;
            }
        }
        reclaimed = reclaimed.saturating_add(before.saturating_sub(slab()));
    }
    reclaimed
}

/// Harder and harder, until the request is served.
fn passes(ask: &Try<'_>, events: &ReclaimEvents) -> u64 {
    let mut reclaimed = 0_u64;
    for priority in (0..=PRIORITY_FIRST).rev() {
        let came = ask.reclaimer.shrink(&pass(ask, priority));
        ask.scans.count(By::NodeReclaim, came);
        events.count_pass(came.freed());
        reclaimed = reclaimed.saturating_add(came.freed());
        if reclaimed >= ask.order.pages() {
            break;
        }
    }
    reclaimed
}

fn pass(ask: &Try<'_>, priority: u32) -> Pass {
    let unmap = ask.mode & MODE_UNMAP != 0;
    Pass {
        by: By::NodeReclaim,
        unit: ask.unit,
        priority,
        wanted: ask.order.pages().max(PASS_PAGES_MIN),
        gfp: ask.gfp,
        order: ask.order,
        highest: ask.highest,
        may_write: ask.mode & MODE_WRITE != 0,
        may_unmap: unmap,
        // Since 4.8 swapping is left to what the passes come across.
        may_swap: unmap || matches!(ask.unit, Unit::Node(_)),
    }
}

#[cfg(test)]
mod tests;
