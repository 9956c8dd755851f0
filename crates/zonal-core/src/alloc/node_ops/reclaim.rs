//! Node reclaim (LB D.4 steps d and e, G.3), and what counts as progress of any reclaim.

use super::NodeOps;
use crate::alloc::limits::total_reserve_of;
use crate::alloc::tables::Tables;
use crate::gfp::Gfp;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Reclaimer, Shrunk, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{NodeReclaim, Try, node_reclaim};
use crate::sync::Ordering::Relaxed;
use crate::types::{NodeId, Order, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::Watermark;

impl<'a, P: Platform> NodeOps<'_, 'a, P> {
    /// Tries to make room in one of the node's zones, or in all of it (LB G.3).
    #[cold]
    pub fn reclaim(
        self,
        zone: &Zone,
        (gfp, order, highest): (Gfp, Order, ZoneKind),
    ) -> NodeReclaim {
        let on = self.on;
        // No reclaimer: nothing to reclaim.
        let Some(reclaimer) = on.platform.reclaimer() else { return NodeReclaim::Full };
        let node = self.record();
        let (unit, record) = match on.reclaim.unit {
            #[cfg(feature = "history")]
            ReclaimUnit::Zone => (Unit::Zone(zone.id), &zone.reclaim),
            ReclaimUnit::Node => (Unit::Node(zone.node), &node.reclaim),
        };
        let here = on.node_of(on.platform.cpu());
        let ask = Try {
            reclaimer,
            record,
            scans: &node.scans,
            unit,
            mode: on.reclaim.mode(),
            others_cpus: node.cpus() > 0 && zone.node != here,
            gfp,
            order,
            highest,
        };
        let came = node_reclaim(&ask, &on.reclaim.events);
        if came == NodeReclaim::Success {
            node.background.set_failures(0);
        }
        came
    }

    /// Whether the node may have one more dirty page (LB D.4 step 2, `node_dirty_ok`).
    #[cold]
    pub fn may_dirty(self) -> bool {
        let Some(reclaimer) = self.on.platform.reclaimer() else { return true };
        let zones = || self.on.zones_of(self.node);
        let free: u64 = zones().map(Zone::free_counter).sum();
        let kept: u64 = zones().map(total_reserve_of).sum();
        reclaimer.may_dirty(self.node, free.saturating_sub(kept))
    }

    /// Whether requests may reclaim in the node by themselves (LB H.5 `allow_direct_reclaim`).
    pub fn allows_direct(self) -> bool {
        self.on.platform.reclaimer().is_none_or(|reclaimer| self.allows(reclaimer))
    }

    /// The same, with a platform that reclaims.
    pub fn allows(self, reclaimer: &dyn Reclaimer) -> bool {
        if self.background().is_hopeless() {
            return true;
        }
        let (mut reserve, mut free) = (0, 0);
        for zone in self.zones(ZoneKind::Normal) {
            if reclaimable(zone, reclaimer) > 0 {
                reserve += zone.watermark(Watermark::Min);
                free += self.zone_ops(zone).free_snapshot();
            }
        }
        reserve == 0 || free > reserve / 2
    }

    /// Counts the result of a pass; no more is believed than was freed since
    /// [`pages_freed`] said `before`: a platform that tells of progress where there is none would
    /// keep the reclaimer, or a request, busy for ever. A free by any thread resets the background
    /// reclaimer's failures.
    pub fn count_reclaimed(self, by: By, came: Shrunk, before: u64) -> Shrunk {
        let most = match came.freed() {
            0 => 0,
            // Below `before` where another CPU refills at this moment, whose refill is counted and
            // its blocks are not yet: it wraps, and the claim is believed this once.
            _ => pages_freed(self.on).wrapping_sub(before),
        };
        let reclaimed = came.reclaimed.min(most);
        let came = Shrunk { reclaimed, slab: came.slab.min(most - reclaimed), ..came };
        let node = self.record();
        node.scans.count(by, came);
        if came.freed() > 0 && node.background.failures() != 0 {
            node.background.set_failures(0);
        }
        came
    }
}

/// Pages freed so far by all threads, in all zones; for
/// [`count_reclaimed`](NodeOps::count_reclaimed).
pub fn pages_freed<P: Platform>(on: &Tables<'_, P>) -> u64 {
    let freed = |pcp: &Pcp| pcp.totals().pushed_pages + pcp.events.direct_freed.load(Relaxed);
    let pcps = on.zones.iter().flat_map(|zone| on.pcps_of(zone.id));
    pcps.map(freed).fold(0, u64::wrapping_add)
}

/// Pages of the zone that reclaim may free.
pub fn reclaimable(zone: &Zone, reclaimer: &dyn Reclaimer) -> u64 {
    let held = reclaimer.holdings(Unit::Zone(zone.id));
    [held.inactive_file, held.active_file, held.anon].into_iter().fold(0, u64::saturating_add)
}

/// Pages of objects that a pass over the node may free, as far as is known.
pub fn slab_of(reclaimer: &dyn Reclaimer, unit: Unit, node: NodeId) -> u64 {
    let elsewhere = if node == NodeId(0) { 0 } else { reclaimer.anywhere() };
    reclaimer.holdings(unit).slab.saturating_add(elsewhere)
}
