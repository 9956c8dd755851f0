//! The background reclaimer of a node, as a state machine (LB H.2, H.3).
//!
//! ```text
//!              request below low                 every zone below its high mark
//!   ASLEEP ───────────────────────► BALANCING ◄──────────────────────────────┐
//!     ▲                             pass by pass, harder and harder          │
//!     │ still well after 100 ms         │ one zone above high, or no hope    │
//!     └────────────── NAP ◄─────────────┴───────► not well after all ────────┘
//! ```
//! A home runs it on a thread or a virtual CPU: [`Allocator::background_step`] does one pass and
//! says how long to wait before the next call. While it balances, its zones carry
//! `RECLAIM_ACTIVE`, which keeps per-CPU lists short (LB E.6, E.7).

use super::Allocator;
use super::reclaim::slab_of;
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Pass, Reclaimer, Shrunk, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use crate::sync::Ordering::Relaxed;
use crate::types::{NR_ZONE_KINDS, NodeId, Order, ZoneKind};
use crate::zone::background::{Background, FAILURES_MAX, Found, Wanted};
use crate::zone::state::{RECLAIM_ACTIVE, Zone};
use crate::zone::watermark::Mark;

/// How long the reclaimer naps before it sleeps for good: a tenth of a second.
pub const NAP_NS: u64 = 100_000_000;
/// Below this priority pages are written even where the mode says no; while a boost is worked off
/// the passes do not get harder than this (LB H.3).
const PRIORITY_HARD: u32 = 10;

/// What a home does before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next step at once.
    Again,
    /// Sleep until woken, but at most this many nanoseconds.
    Nap(u64),
    /// Sleep until woken ([`Platform::wake_reclaim`]).
    Sleep,
}

/// A node's reclaimer between two steps. Its home keeps it.
#[derive(Clone, Copy, Debug)]
pub struct BackgroundReclaimer {
    node: NodeId,
    /// The last highest kind that was asked for.
    highest: ZoneKind,
    phase: Phase,
    /// What the marks' distance is now (`alloc::widen`); 0 is the sysctl's.
    factor: u32,
    /// When the last run ended.
    rested_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// About to look whether it may sleep, for this order and what is asked for besides.
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
    /// Boosts seen at the start, by zone kind, and what of them is still to be reclaimed.
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

impl<'a, P: Platform> Allocator<'a, P> {
    /// A reclaimer for the node, which from now on is woken by [`Platform::wake_reclaim`]. One at a
    /// time for each node, until [`background_stop`](Self::background_stop).
    pub fn background_start(&self, node: NodeId) -> BackgroundReclaimer {
        self.background(node).set_present(true);
        // As Linux starts: nothing was asked for, so the first thing is to look at the marks.
        let phase = Phase::Check(Order::ZERO);
        BackgroundReclaimer { node, highest: ZoneKind::Movable, phase, factor: 0, rested_ns: 0 }
    }

    /// The node has no reclaimer any more.
    pub fn background_stop(&self, reclaimer: BackgroundReclaimer) {
        if let Phase::Balancing(_) = reclaimer.phase {
            self.set_reclaim_active(reclaimer.node, reclaimer.highest, false);
        }
        self.narrow_marks(reclaimer.node, reclaimer.factor);
        self.background(reclaimer.node).set_present(false);
    }

    /// All nodes' reclaimers are gone without having stopped, as in a forked child. Takes no lock.
    pub fn background_gone(&self) {
        let lowmem = self.marks_lowmem();
        self.zones.iter().for_each(|zone| self.change_marks(zone, lowmem, self.scale_factor()));
        for (node, record) in self.nodes.iter().enumerate() {
            self.set_reclaim_active(NodeId(node as u16), ZoneKind::Device, false);
            record.background.set_present(false);
        }
    }

    /// What the node's reclaimer knows and was asked for.
    pub fn background(&self, node: NodeId) -> &'a Background {
        &self.nodes[usize::from(node.0)].background
    }

    /// One step: at most one pass over the node's pages.
    pub fn background_step(&self, reclaimer: &mut BackgroundReclaimer) -> Next {
        let node = reclaimer.node;
        let record = self.background(node);
        match reclaimer.phase {
            Phase::Check(order) => {
                record.lie_down();
                if self.may_sleep(reclaimer, order) {
                    reclaimer.phase = Phase::Napping(order);
                    reclaimer.rested_ns = self.platform.now_ns();
                    return Next::Nap(NAP_NS);
                }
                record.wake();
                self.reclaim.events.count_high_hit_quickly();
                self.begin_run(reclaimer);
            }
            Phase::Napping(order) if !record.is_asleep() => {
                // Woken early: what it napped for is asked for again.
                let highest = Some(reclaimer.highest);
                record.request(Wanted { order, highest });
                self.reclaim.events.count_low_hit_quickly();
                let napped_ns = self.platform.now_ns().saturating_sub(reclaimer.rested_ns);
                reclaimer.factor = self.widen_marks(node, reclaimer.factor, napped_ns);
                self.begin_run(reclaimer);
            }
            Phase::Napping(order) => {
                if self.may_sleep(reclaimer, order) {
                    reclaimer.phase = Phase::Asleep;
                    self.narrow_marks(node, core::mem::take(&mut reclaimer.factor));
                    self.set_stat_pressure(node, false);
                    return Next::Sleep;
                }
                record.wake();
                self.reclaim.events.count_high_hit_quickly();
                self.begin_run(reclaimer);
            }
            Phase::Asleep if record.is_asleep() => return Next::Sleep,
            Phase::Asleep => {
                self.set_stat_pressure(node, true);
                self.begin_run(reclaimer);
            }
            Phase::Balancing(mut run) => {
                if self.balance_pass(node, reclaimer.highest, &mut run) {
                    reclaimer.phase = Phase::Balancing(run);
                } else {
                    self.finish_run(reclaimer, &run);
                }
            }
        }
        Next::Again
    }

    /// The home's clock says that the reclaimer slept long: wakes it if its node is below the high
    /// mark and somebody holds pages to give up. Linux waits for the next request that finds the
    /// node low; a pool gives back what a burst left low once the burst has ended. Returns whether
    /// it was woken.
    pub fn background_check(&self, node: NodeId) -> bool {
        let record = self.background(node);
        let highest = ZoneKind::Movable;
        if !record.is_asleep() || self.is_balanced(node, Order::ZERO, highest) {
            return false;
        }
        if self.could_free(node) == 0 {
            return false;
        }
        // A node given up gets one more try.
        record.set_failures(record.failures().min(FAILURES_MAX - 1));
        record.request(Wanted { order: Order::ZERO, highest: Some(highest) });
        record.wake()
    }

    /// Pages of the node that somebody holds and could give up.
    pub(super) fn could_free(&self, node: NodeId) -> u64 {
        let held = |reclaimer: &dyn Reclaimer| {
            let held = reclaimer.holdings(Unit::Node(node));
            let pages = held.inactive_file.saturating_add(held.active_file);
            pages.saturating_add(slab_of(reclaimer, Unit::Node(node), node))
        };
        self.platform.reclaimer().map_or(0, held)
    }

    /// Asks for background reclaim in the zone's node (LB H.2 `wakeup`).
    pub(super) fn wake_background(&self, zone: &Zone, order: Order, highest: ZoneKind) {
        if zone.managed() == 0 {
            return;
        }
        let record = self.background(zone.node);
        let found = record.request(Wanted { order, highest: Some(highest) });
        let wakes = match found {
            Found::Nobody => true,
            Found::Awake => false,
            // Without compaction there is nobody else to wake for a node given up, or well already.
            Found::Asleep => {
                let well = || {
                    self.is_balanced(zone.node, order, highest)
                        && !self.zones_of(zone.node, highest).any(|zone| zone.marks().boost != 0)
                };
                !record.is_hopeless() && !well() && record.wake()
            }
        };
        if wakes {
            self.platform.wake_reclaim(zone.node, zone.id, order.get());
        }
    }

    /// The node's zones with memory, up to this kind.
    pub(super) fn zones_of(
        &self,
        node: NodeId,
        highest: ZoneKind,
    ) -> impl Iterator<Item = &'a Zone> + use<'a, P> {
        let zones = self.zones.iter();
        zones.filter(move |zone| zone.node == node && zone.kind() <= highest && zone.managed() > 0)
    }

    /// Whether some zone up to `highest` is above its high mark (LB H.2 `balanced`).
    pub(super) fn is_balanced(&self, node: NodeId, order: Order, highest: ZoneKind) -> bool {
        let mut zones = self.zones_of(node, highest).peekable();
        zones.peek().is_none()
            || zones.any(|zone| {
                let mark = zone.marks().mark(Mark::High);
                self.safe_snapshot(zone.id, highest).ok(order, mark, AllocFlags::WMARK_MIN)
            })
    }

    fn may_sleep(&self, reclaimer: &BackgroundReclaimer, order: Order) -> bool {
        let record = self.background(reclaimer.node);
        let wanted = record.wanted();
        let highest = wanted.highest.unwrap_or(reclaimer.highest);
        let well = record.is_hopeless()
            || self.is_balanced(reclaimer.node, order.max(wanted.order), highest);
        if well {
            // Whoever waits for pages finds them, or that there is no hope.
            self.platform.reclaim_progress(reclaimer.node);
        }
        well
    }

    /// Takes what was asked for, and begins a run.
    fn begin_run(&self, reclaimer: &mut BackgroundReclaimer) {
        let wanted = self.background(reclaimer.node).take();
        let highest = wanted.highest.unwrap_or(reclaimer.highest);
        reclaimer.highest = highest;
        self.reclaim.events.count_background_run();
        let mut boosts = [0; NR_ZONE_KINDS];
        for zone in self.zones_of(reclaimer.node, highest) {
            boosts[zone.kind().index()] = zone.marks().boost;
        }
        self.set_reclaim_active(reclaimer.node, highest, true);
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
    fn balance_pass(&self, node: NodeId, highest: ZoneKind, run: &mut Balance) -> bool {
        let balanced = self.is_balanced(node, run.order, highest);
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
            .zones_of(node, highest)
            .map(|zone| zone.marks().mark(Mark::High).max(PASS_PAGES_MIN))
            .sum();
        let came = self.background_pass(node, highest, run, wanted);
        run.freed = run.freed.saturating_add(came.freed());
        if run.order > Order::ZERO && run.freed >= 2 * run.order.pages() {
            // Enough for a block, if they lie well: the rest is about single pages.
            run.order = Order::ZERO;
        }
        if came.scanned.max(came.freed()) >= wanted {
            raise = false;
        }
        if self.allows_direct(node) {
            self.platform.reclaim_progress(node);
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
    fn background_pass(
        &self,
        node: NodeId,
        highest: ZoneKind,
        run: &Balance,
        wanted: u64,
    ) -> Shrunk {
        let Some(reclaimer) = self.platform.reclaimer() else { return Shrunk::default() };
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
        let before = self.pages_freed();
        let came = match self.reclaim.unit {
            ReclaimUnit::Node => reclaimer.shrink(&pass(Unit::Node(node), wanted)),
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => self
                .zones_of(node, highest)
                .map(|zone| {
                    let wanted = zone.marks().mark(Mark::High).max(PASS_PAGES_MIN);
                    reclaimer.shrink(&pass(Unit::Zone(zone.id), wanted))
                })
                .fold(Shrunk::default(), Shrunk::plus),
        };
        self.count_reclaimed(node, By::Background, came, before)
    }

    /// Pages freed so far by anybody, in all zones; for [`count_reclaimed`](Self::count_reclaimed).
    pub(super) fn pages_freed(&self) -> u64 {
        let stores = self
            .zones
            .iter()
            .flat_map(|zone| self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu)));
        let freed = stores
            .map(|pcp: &Pcp| pcp.totals().pushed_pages + pcp.events.direct_freed.load(Relaxed));
        freed.fold(0, u64::wrapping_add)
    }

    /// Counts what a pass came to, of which no more is believed than was freed since
    /// [`pages_freed`](Self::pages_freed) said `before`: a home that tells of progress where there
    /// is none would keep the reclaimer, or a request, busy for ever. Whoever frees a page gives
    /// the background reclaimer new hope.
    pub(super) fn count_reclaimed(
        &self,
        node: NodeId,
        by: By,
        came: Shrunk,
        before: u64,
    ) -> Shrunk {
        let most = match came.freed() {
            0 => 0,
            _ => self.pages_freed().wrapping_sub(before),
        };
        let reclaimed = came.reclaimed.min(most);
        let came = Shrunk { reclaimed, slab: came.slab.min(most - reclaimed), ..came };
        let node = &self.nodes[usize::from(node.0)];
        node.scans.count(by, came);
        if came.freed() > 0 && node.background.failures() != 0 {
            node.background.set_failures(0);
        }
        came
    }

    fn finish_run(&self, reclaimer: &mut BackgroundReclaimer, run: &Balance) {
        let node = reclaimer.node;
        let record = self.background(node);
        if run.freed == 0 {
            record.set_failures(record.failures().saturating_add(1));
        }
        self.set_reclaim_active(node, reclaimer.highest, false);
        for zone in self.zones_of(node, reclaimer.highest) {
            let seen = run.boosts[zone.kind().index()];
            if seen > 0 {
                let _locked = zone.lock(&self.platform, self.words, self.blocks);
                let mut marks = zone.marks();
                marks.lower_boost(seen);
                zone.set_marks(&marks);
            }
        }
        // Where it gave up the order, it sleeps although the order is asked for still; otherwise
        // it looks at what came meanwhile.
        let gave_up = run.order < run.asked;
        reclaimer.phase = Phase::Check(if gave_up { run.order } else { Order::ZERO });
    }

    /// LB H.3: lists of these zones are kept short while their node is reclaimed.
    fn set_reclaim_active(&self, node: NodeId, highest: ZoneKind, active: bool) {
        for zone in self.zones_of(node, highest) {
            if active && !zone.has(RECLAIM_ACTIVE) {
                zone.set_flag(RECLAIM_ACTIVE);
                self.slow_down(zone);
                self.drain_depots(zone);
            } else if !active && zone.clear_flag(RECLAIM_ACTIVE) {
                zone.refresh_fast();
            }
        }
    }
}
