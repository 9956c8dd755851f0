//! The background reclaimer of a node, as a state machine (LB H.2, H.3).
//!
//! ```text
//!              request below low                 every zone below its high watermark
//!   ASLEEP ───────────────────────► BALANCING ◄──────────────────────────────┐
//!     ▲                             pass by pass, harder and harder          │
//!     │ still well after 100 ms         │ one zone above high, or no hope    │
//!     └────────────── NAP ◄─────────────┴───────► not well after all ────────┘
//! ```
//! A platform runs it on a thread or a virtual CPU: [`NodeOps::step`] does one pass and
//! says how long to wait before the next call. While it balances, its zones carry
//! `RECLAIM_ACTIVE`, which keeps per-CPU lists short (LB E.6, E.7).

use super::NodeOps;
use super::reclaim::pages_freed;
use crate::alloc::limits::Limits;
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Pass, Shrunk, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use crate::types::{NR_ZONE_KINDS, NodeId, Order, ZoneKind};
use crate::zone::background::Wanted;
use crate::zone::state::RECLAIM_ACTIVE;
use crate::zone::watermark::Watermark;

/// How long the reclaimer naps before it sleeps: a tenth of a second.
pub const NAP_NS: u64 = 100_000_000;
/// Below this priority pages are written even where the mode says no; while a boost is worked off
/// the passes do not get harder than this (LB H.3).
const PRIORITY_HARD: u32 = 10;

/// The platform's action before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next step at once.
    Again,
    /// Sleep until woken, but at most this many nanoseconds.
    Nap(u64),
    /// Sleep until woken ([`Platform::wake_reclaim`]).
    Sleep,
}

/// A node's reclaimer between two steps. The platform keeps it.
#[derive(Clone, Copy, Debug)]
pub struct BackgroundReclaimer {
    node: NodeId,
    /// The last highest kind that was asked for.
    highest: ZoneKind,
    phase: Phase,
    /// What the watermarks' distance is now (`alloc::widen`); 0 is the sysctl's.
    factor: u32,
    /// When the last run ended.
    rested_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// About to test whether it may sleep, for this order and new requests.
    Check(Order),
    Napping(Order),
    Asleep,
    Balancing(Balance),
}

/// One run (LB H.3).
#[derive(Clone, Copy, Debug)]
struct Balance {
    /// The order asked for, and the order still cared for.
    asked: Order,
    order: Order,
    /// Boosts seen at the start, by zone kind, and the part still to be reclaimed.
    boosts: [u64; NR_ZONE_KINDS],
    boost_left: u64,
    priority: u32,
    freed: u64,
}

impl BackgroundReclaimer {
    /// The node it works for.
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// Priority of the pass that comes next, while it balances.
    pub fn priority(&self) -> Option<u32> {
        match self.phase {
            Phase::Balancing(run) => Some(run.priority),
            _ => None,
        }
    }
}

impl<P: Platform> NodeOps<'_, '_, P> {
    /// A reclaimer for the node, which from now on is woken by [`Platform::wake_reclaim`]. One at a
    /// time for each node, until [`stop`](Self::stop).
    pub fn start(self) -> BackgroundReclaimer {
        let node = self.node;
        self.background().set_present(true);
        // As Linux starts: nothing was asked for, so the first thing is to look at the watermarks.
        let phase = Phase::Check(Order::ZERO);
        BackgroundReclaimer { node, highest: ZoneKind::Movable, phase, factor: 0, rested_ns: 0 }
    }

    /// The node has no reclaimer any more.
    pub fn stop(self, reclaimer: BackgroundReclaimer) {
        if let Phase::Balancing(_) = reclaimer.phase {
            self.set_reclaim_active(reclaimer.highest, false);
        }
        self.narrow_watermarks(reclaimer.factor);
        self.background().set_present(false);
    }

    /// The node's reclaimer is gone without having stopped, as in a forked child, and so are other
    /// threads that reclaimed in the node. Takes no lock.
    pub fn gone(self) {
        let limits = Limits::new(self.on);
        let (lowmem, factor) = (limits.watermark_lowmem(), self.on.tunables.scale_factor());
        self.on.zones_of(self.node).for_each(|zone| limits.change_watermarks(zone, lowmem, factor));
        self.set_reclaim_active(ZoneKind::Device, false);
        self.background().set_present(false);
        self.on.node(self.node).reclaim.abandon();
        self.on.zones_of(self.node).for_each(|zone| zone.reclaim.abandon());
    }

    /// One step: at most one pass over the node's pages.
    pub fn step(self, reclaimer: &mut BackgroundReclaimer) -> Next {
        let record = self.background();
        let events = &self.on.reclaim.events;
        let limits = Limits::new(self.on);
        match reclaimer.phase {
            Phase::Check(order) => {
                record.lie_down();
                if self.may_sleep(reclaimer, order) {
                    reclaimer.phase = Phase::Napping(order);
                    reclaimer.rested_ns = self.on.platform.now_ns();
                    return Next::Nap(NAP_NS);
                }
                record.wake();
                events.count_high_hit_quickly();
                self.begin_run(reclaimer);
            }
            Phase::Napping(order) if !record.is_asleep() => {
                // Woken early: its request is repeated.
                let highest = Some(reclaimer.highest);
                record.request(Wanted { order, highest });
                events.count_low_hit_quickly();
                let napped_ns = self.on.platform.now_ns().saturating_sub(reclaimer.rested_ns);
                reclaimer.factor = self.widen_watermarks(reclaimer.factor, napped_ns);
                self.begin_run(reclaimer);
            }
            Phase::Napping(order) => {
                if self.may_sleep(reclaimer, order) {
                    reclaimer.phase = Phase::Asleep;
                    self.narrow_watermarks(core::mem::take(&mut reclaimer.factor));
                    limits.set_stat_pressure(self.node, false);
                    return Next::Sleep;
                }
                record.wake();
                events.count_high_hit_quickly();
                self.begin_run(reclaimer);
            }
            Phase::Asleep if record.is_asleep() => return Next::Sleep,
            Phase::Asleep => {
                limits.set_stat_pressure(self.node, true);
                self.begin_run(reclaimer);
            }
            Phase::Balancing(mut run) => {
                if self.balance_pass(reclaimer.highest, &mut run) {
                    reclaimer.phase = Phase::Balancing(run);
                } else {
                    self.finish_run(reclaimer, &run);
                }
            }
        }
        Next::Again
    }

    fn may_sleep(self, reclaimer: &BackgroundReclaimer, order: Order) -> bool {
        let record = self.background();
        let wanted = record.wanted();
        let highest = wanted.highest.unwrap_or(reclaimer.highest);
        let well = record.is_hopeless() || self.is_balanced(order.max(wanted.order), highest);
        if well {
            // Waiting requests find pages, or that none will come.
            self.on.platform.reclaim_progress(self.node);
        }
        well
    }

    /// Takes the request and begins a run.
    fn begin_run(self, reclaimer: &mut BackgroundReclaimer) {
        let wanted = self.background().take();
        let highest = wanted.highest.unwrap_or(reclaimer.highest);
        reclaimer.highest = highest;
        self.on.reclaim.events.count_background_run();
        let mut boosts = [0; NR_ZONE_KINDS];
        for zone in self.zones(highest) {
            boosts[zone.kind().index()] = zone.boost();
        }
        self.set_reclaim_active(highest, true);
        reclaimer.phase = Phase::Balancing(Balance {
            asked: wanted.order,
            order: wanted.order,
            boosts,
            boost_left: boosts.iter().sum(),
            priority: PRIORITY_GENTLE,
            freed: 0,
        });
    }

    /// One round of the loop of LB H.3. `false`: the run is over.
    fn balance_pass(self, highest: ZoneKind, run: &mut Balance) -> bool {
        let balanced = self.is_balanced(run.order, highest);
        if !balanced && run.boost_left > 0 {
            // Short of pages: the boost must wait.
            run.boost_left = 0;
            run.priority = PRIORITY_GENTLE;
        }
        let for_boost = run.boost_left > 0;
        if !for_boost && balanced {
            return false;
        }
        let mut raise = !(for_boost && run.priority == PRIORITY_HARD);
        let wanted: u64 = self
            .zones(highest)
            .map(|zone| zone.watermark(Watermark::High).max(PASS_PAGES_MIN))
            .sum();
        let came = self.pass(highest, run, wanted);
        run.freed = run.freed.saturating_add(came.freed());
        if run.order > Order::ZERO && run.freed >= 2 * run.order.pages() {
            // Enough for a block, if they lie well: the rest is about single pages.
            run.order = Order::ZERO;
        }
        if came.scanned.max(came.freed()) >= wanted {
            raise = false;
        }
        if self.allows_direct() {
            self.on.platform.reclaim_progress(self.node);
        }
        let freed = came.freed();
        run.boost_left -= run.boost_left.min(freed);
        if run.boost_left > 0 && freed == 0 {
            return false;
        }
        if raise || freed == 0 {
            run.priority -= 1;
        }
        run.priority >= 1
    }

    /// One pass over the node, or over each of its zones where zones are reclaimed.
    fn pass(self, highest: ZoneKind, run: &Balance, wanted: u64) -> Shrunk {
        let Some(reclaimer) = self.on.platform.reclaimer() else { return Shrunk::default() };
        let for_boost = run.boost_left > 0;
        let pass = |unit, wanted| Pass {
            by: By::Background,
            unit,
            priority: run.priority,
            wanted,
            gfp: Gfp::KERNEL,
            order: run.order,
            highest,
            may_write: !for_boost || run.priority < PRIORITY_HARD,
            may_unmap: true,
            may_swap: !for_boost,
        };
        let before = pages_freed(self.on);
        let came = match self.on.reclaim.unit {
            ReclaimUnit::Node => reclaimer.shrink(&pass(Unit::Node(self.node), wanted)),
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => self
                .zones(highest)
                .map(|zone| {
                    let wanted = zone.watermark(Watermark::High).max(PASS_PAGES_MIN);
                    reclaimer.shrink(&pass(Unit::Zone(zone.id), wanted))
                })
                .fold(Shrunk::default(), Shrunk::plus),
        };
        self.count_reclaimed(By::Background, came, before)
    }

    fn finish_run(self, reclaimer: &mut BackgroundReclaimer, run: &Balance) {
        let record = self.background();
        if run.freed == 0 {
            record.set_failures(record.failures().saturating_add(1));
        }
        self.set_reclaim_active(reclaimer.highest, false);
        for zone in self.zones(reclaimer.highest) {
            let seen = run.boosts[zone.kind().index()];
            if seen > 0 {
                let _locked = self.zone_ops(zone).lock();
                let mut watermarks = zone.watermarks();
                watermarks.lower_boost(seen);
                zone.set_watermarks(&watermarks);
            }
        }
        // If it gave up on the order, it sleeps although the order is still requested; otherwise it
        // tests new requests.
        let gave_up = run.order < run.asked;
        reclaimer.phase = Phase::Check(if gave_up { run.order } else { Order::ZERO });
    }

    /// LB H.3: lists of these zones are kept short while their node is reclaimed.
    pub fn set_reclaim_active(self, highest: ZoneKind, active: bool) {
        for zone in self.zones(highest) {
            if active && !zone.has(RECLAIM_ACTIVE) {
                self.zone_ops(zone).set_flag(RECLAIM_ACTIVE);
                self.zone_ops(zone).slow_down();
                self.zone_ops(zone).drain_depots();
            } else if !active && zone.clear_flag(RECLAIM_ACTIVE) {
                self.zone_ops(zone).refresh_fast();
            }
        }
    }
}
