//! Where an allocation reclaims: a node before the next one is tried (LB D.4 steps d and e), and
//! everything when no zone has room (LB D.5, H.4).

use super::Allocator;
use super::scan::{Context, mark_of};
use super::setup::total_reserve_of;
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Pass, Reclaimer, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{
    NodeReclaim, PASS_PAGES_MIN, PRIORITY_GENTLE, ReclaimStats, Try, node_reclaim,
};
use crate::types::{NodeId, Order, Pfn, ZoneKind};
use crate::zone::reclaim::Reclaiming;
use crate::zone::state::Zone;
use crate::zone::watermark::{Mark, ZoneSnapshot};

/// Direct reclaims in a row that freed nothing before a request gives up (LB D.5).
const NO_PROGRESS_MAX: u32 = 16;
/// The same in time: consumers may be slow, and the answer is to come all the same.
const NO_PROGRESS_NS: u64 = 1_000_000_000;
/// Longest wait of a request for the background reclaimer, before it reclaims itself (LB H.5).
const THROTTLE_NS: u64 = 1_000_000_000;
/// The same in waits, for homes whose clock stands still.
const THROTTLE_WAITS_MAX: u32 = 64;
/// Direct reclaims of one request, whatever they free: others may take all of it each time.
const DIRECT_MAX: u32 = 1 << 12;
/// Orders up to this are worth reclaiming for again and again (`PAGE_ALLOC_COSTLY_ORDER`).
pub(super) const COSTLY_ORDER: u32 = 3;

impl<'a, P: Platform> Allocator<'a, P> {
    /// What node reclaim and direct reclaim did so far.
    pub fn reclaim_stats(&self) -> ReclaimStats {
        self.reclaim.events.stats()
    }

    /// The right to reclaim in a zone or node, as node reclaim takes it (RECLAIM-1), unless
    /// somebody has it: for a home in virtual time, where others come while a try goes on.
    pub fn hold_reclaim(&self, unit: Unit) -> Option<Reclaiming<'a>> {
        match unit {
            Unit::Zone(zone) => self.zones[usize::from(zone.0)].reclaim.try_lock(),
            Unit::Node(node) => self.nodes[usize::from(node.0)].reclaim.try_lock(),
        }
    }

    /// Whether the zone is near enough to be reclaimed rather than passed (LB D.4 step d).
    pub(super) fn reclaims(&self, zone: &Zone, preferred: &Zone) -> bool {
        self.reclaim.is_on()
            && self.reclaim.distance.allows(self.distance(preferred.node, zone.node))
    }

    /// Tries to make room in the zone or its node (LB G.3).
    #[cold]
    pub(super) fn reclaim_for(&self, zone: &Zone, ctx: &Context<'a>) -> NodeReclaim {
        // Nobody who could: then there is nothing to reclaim.
        let Some(reclaimer) = self.platform.reclaimer() else { return NodeReclaim::Full };
        let node = &self.nodes[zone.node.0 as usize];
        let (unit, record) = match self.reclaim.unit {
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => (Unit::Zone(zone.id), &zone.reclaim),
            ReclaimUnit::Node => (Unit::Node(zone.node), &node.reclaim),
        };
        let here = self.node_of(self.platform.cpu());
        let ask = Try {
            reclaimer,
            record,
            scans: &node.scans,
            unit,
            mode: self.reclaim.mode(),
            others_cpus: node.cpus() > 0 && zone.node != here,
            gfp: ctx.gfp,
            order: ctx.order,
            highest: ctx.highest,
        };
        let came = node_reclaim(&ask, &self.reclaim.events);
        if came == NodeReclaim::Success {
            node.background.set_failures(0);
        }
        came
    }

    /// Whether the node may have one more dirty page (LB D.4 step 2, `node_dirty_ok`).
    #[cold]
    pub(super) fn may_dirty(&self, node: NodeId) -> bool {
        let Some(reclaimer) = self.platform.reclaimer() else { return true };
        let zones = || self.zones.iter().filter(|zone| zone.node == node);
        let free: u64 = zones().map(Zone::free_counter).sum();
        let kept: u64 = zones().map(total_reserve_of).sum();
        reclaimer.may_dirty(node, free.saturating_sub(kept))
    }

    /// Whether the zone is above the mark asked for (LB D.4 step e).
    pub(super) fn above_mark(&self, zone: &Zone, ctx: &Context<'_>, flags: AllocFlags) -> bool {
        let mark = zone.marks().mark(mark_of(flags));
        zone.snapshot(ctx.highest).ok(ctx.order, mark, flags)
    }

    /// Whether the request may reclaim, and there is somebody who can.
    pub(super) fn may_reclaim_directly(&self, ctx: &Context<'a>) -> bool {
        let idle = |reclaimer: &dyn Reclaimer| !reclaimer.is_reclaiming();
        ctx.gfp.contains(Gfp::DIRECT_RECLAIM) && self.platform.reclaimer().is_some_and(idle)
    }

    /// Reclaims directly and asks again, as long as that may help (LB D.5).
    pub(super) fn reclaim_and_retry(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        let reclaimer = self.platform.reclaimer().filter(|_| self.may_reclaim_directly(ctx))?;
        let gfp = ctx.gfp;
        let costly = ctx.order.get() > COSTLY_ORDER;
        let mut fruitless = 0;
        // Linux waits before each direct reclaim, and has no bound on an answer.
        self.throttle(ctx, reclaimer);
        // From here on: that others were slow says nothing about what reclaim can free.
        let mut progress_ns = self.platform.now_ns();
        for _ in 0..DIRECT_MAX {
            let freed = self.direct(ctx, flags, reclaimer);
            if freed > 0
                && let Some(pfn) = self.retry(ctx, flags)
            {
                return Some(pfn);
            }
            let may_repeat = !gfp.contains(Gfp::NORETRY)
                && (!costly || gfp.contains(Gfp::RETRY_MAYFAIL))
                && self.may_help(ctx, flags, reclaimer);
            fruitless = if freed > 0 && !costly { 0 } else { fruitless + 1 };
            let now_ns = self.platform.now_ns();
            if freed > 0 {
                progress_ns = now_ns;
            }
            let slow = now_ns.saturating_sub(progress_ns) > NO_PROGRESS_NS;
            if fruitless > NO_PROGRESS_MAX || slow || !may_repeat {
                return None;
            }
            self.platform.relax();
        }
        None
    }

    /// Before a request reclaims: where the reserve is half gone, it waits for the background
    /// reclaimer, which knows better what to free (LB H.5).
    fn throttle(&self, ctx: &Context<'a>, reclaimer: &dyn Reclaimer) {
        let mut zones = self.allowed(ctx);
        let Some(zone) = zones.find(|zone| zone.kind() <= ZoneKind::Normal && zone.managed() > 0)
        else {
            return;
        };
        // Nobody to wait for, or nothing that waiting is for.
        if !self.background(zone.node).is_present() || self.allows(zone.node, reclaimer) {
            return;
        }
        self.reclaim.events.count_throttled();
        let start_ns = self.platform.now_ns();
        for _ in 0..THROTTLE_WAITS_MAX {
            self.wake_background(zone, Order::ZERO, ZoneKind::Normal);
            let waited = self.platform.now_ns().saturating_sub(start_ns);
            let Some(left) = THROTTLE_NS.checked_sub(waited).filter(|left| *left > 0) else {
                return;
            };
            self.platform.wait_for_progress(zone.node, left);
            if self.allows(zone.node, reclaimer) {
                return;
            }
        }
    }

    /// Whether requests may reclaim in the node by themselves (LB H.5 `allow_direct_reclaim`).
    pub(super) fn allows_direct(&self, node: NodeId) -> bool {
        self.platform.reclaimer().is_none_or(|reclaimer| self.allows(node, reclaimer))
    }

    fn allows(&self, node: NodeId, reclaimer: &dyn Reclaimer) -> bool {
        if self.background(node).is_hopeless() {
            return true;
        }
        let (mut reserve, mut free) = (0, 0);
        for zone in self.zones_of(node, ZoneKind::Normal) {
            if self.reclaimable(zone, reclaimer) > 0 {
                reserve += zone.marks().mark(Mark::Min);
                free += self.free_snapshot(zone.id);
            }
        }
        reserve == 0 || free > reserve / 2
    }

    /// Pages of the zone that reclaim may free.
    fn reclaimable(&self, zone: &Zone, reclaimer: &dyn Reclaimer) -> u64 {
        let held = reclaimer.holdings(Unit::Zone(zone.id));
        [held.inactive_file, held.active_file, held.anon].into_iter().fold(0, u64::saturating_add)
    }

    /// One direct reclaim (LB H.4): passes over all nodes of the request, harder and harder, until
    /// 32 pages are free. Returns the pages freed.
    fn direct(&self, ctx: &Context<'a>, flags: AllocFlags, reclaimer: &dyn Reclaimer) -> u64 {
        let (mut freed, mut ready) = (0_u64, false);
        for priority in (0..=PRIORITY_GENTLE).rev() {
            let mut last = None;
            for zone in self.allowed(ctx) {
                let unit = match self.reclaim.unit {
                    #[cfg(feature = "history")]
                    ReclaimUnit::Zone => Unit::Zone(zone.id),
                    ReclaimUnit::Node => Unit::Node(zone.node),
                };
                // Once for each run of zones of one node.
                if last == Some(unit) {
                    continue;
                }
                // Others freed such a block meanwhile: no need for more.
                if ctx.order.get() > COSTLY_ORDER && self.above_mark(zone, ctx, flags) {
                    ready = true;
                    continue;
                }
                last = Some(unit);
                let pass = Pass {
                    by: By::Direct,
                    unit,
                    priority,
                    wanted: ctx.order.pages().max(PASS_PAGES_MIN),
                    gfp: ctx.gfp,
                    order: ctx.order,
                    highest: ctx.highest,
                    may_write: true,
                    may_unmap: true,
                    may_swap: true,
                };
                let before = self.pages_freed();
                let came = reclaimer.shrink(&pass);
                let came = self.count_reclaimed(zone.node, By::Direct, came, before);
                freed = freed.saturating_add(came.freed());
            }
            if freed >= PASS_PAGES_MIN || ready {
                break;
            }
        }
        self.reclaim.events.count_direct(freed, ctx.highest);
        freed.max(u64::from(ready))
    }

    /// Walks again after reclaim freed pages; the second time with the stores emptied.
    fn retry(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        if self.policy.zonelist.cache.reconsiders()
            && let Some(cache) = ctx.cache
        {
            // The zones were marked before there was this progress (LB G.6, patch B).
            cache.reconsider(self.platform.now_ns());
        }
        self.scan(ctx, flags).or_else(|| {
            self.unreserve_highatomic(ctx, false);
            self.drain_all();
            self.scan(ctx, flags)
        })
    }

    /// Whether some zone would have room if all that it could give up were free (LB D.5,
    /// `should_reclaim_retry`).
    fn may_help(&self, ctx: &Context<'a>, flags: AllocFlags, reclaimer: &dyn Reclaimer) -> bool {
        self.allowed(ctx).any(|zone| {
            // Linux leaves objects out, and refuses while caches of them could still give way.
            let slab = slab_of(reclaimer, Unit::Zone(zone.id), zone.node);
            let available = self
                .free_snapshot(zone.id)
                .saturating_add(self.reclaimable(zone, reclaimer))
                .saturating_add(slab)
                .min(zone.managed());
            let snapshot = ZoneSnapshot { free: available, ..zone.snapshot(ctx.highest) };
            snapshot.ok(ctx.order, zone.marks().mark(Mark::Min), flags)
        })
    }

    /// Whether the calling thread is reclaiming: then its requests ignore the marks (LB D.5).
    pub(super) fn is_reclaiming(&self) -> bool {
        self.platform.reclaimer().is_some_and(Reclaimer::is_reclaiming)
    }
}

/// Pages of objects that a pass over the node may free, as far as anybody knows.
pub(super) fn slab_of(reclaimer: &dyn Reclaimer, unit: Unit, node: NodeId) -> u64 {
    let elsewhere = if node == NodeId(0) { 0 } else { reclaimer.anywhere() };
    reclaimer.holdings(unit).slab.saturating_add(elsewhere)
}
