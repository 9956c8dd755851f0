//! Marks that stand further apart while a node is short again and again.
//!
//! Waking the background reclaimer costs the request that does it as long as the reclaimer then has
//! its CPU, and a request between low and min lives on what is left until pages come. In Linux the
//! distance between the marks is a part of the zone's size (LB C.2), whatever the rate at which
//! pages go: 0.1 %, which two busy CPUs take from 256 MiB in a twentieth of a millisecond. Here the
//! distance grows with the rate. A reclaimer that is woken soon after it has finished doubles it,
//! up to `watermark.scale_factor_max` and an eighth of what could be free; one that may sleep takes
//! it back.
//!
//! Min, which is what requests are refused by, and the sizes of per-CPU lists stay as they are.

use super::Allocator;
use crate::platform::Platform;
use crate::types::{NodeId, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::{FACTOR_UNIT, Watermarks};

/// A reclaimer that is woken again within this time wakes too often. What a wake-up costs a
/// request, some hundred microseconds where it has to give its CPU away, is then 2 % of the time.
pub const WOKEN_SOON_NS: u64 = 5_000_000;

/// The distance is at most this part of what a node has free or could get back: high is two of them
/// above min, so caches keep three quarters.
const KEPT_PART_MIN: u64 = 8;

impl<'a, P: Platform> Allocator<'a, P> {
    /// The node's reclaimer was woken again so soon after its last run. Returns the factor that its
    /// zones' marks now have; `factor` is the one they had, 0 for the sysctl's.
    pub(super) fn widen_marks(&self, node: NodeId, factor: u32, after_ns: u64) -> u32 {
        let most = self.policy.watermark.scale_factor_max.min(self.worth_keeping(node));
        let now = factor.max(self.scale_factor());
        if after_ns > WOKEN_SOON_NS || now >= most {
            return factor;
        }
        let wider = now.saturating_mul(2).clamp(1, most);
        self.set_node_marks(node, wider);
        wider
    }

    /// The factor with which the distance is a part of what the node has free or could get back.
    /// The rest of its memory is others', who give nothing up.
    fn worth_keeping(&self, node: NodeId) -> u32 {
        let zones = || self.zones_of(node, ZoneKind::Movable);
        let managed: u64 = zones().map(Zone::managed).sum();
        let free: u64 = zones().map(|zone| self.free_snapshot(zone.id)).sum();
        let pages = free.saturating_add(self.could_free(node)).min(managed);
        (pages * FACTOR_UNIT / KEPT_PART_MIN / managed.max(1)) as u32
    }

    /// The node's marks as the sysctl has them; `factor` is the one they had.
    pub(super) fn narrow_marks(&self, node: NodeId, factor: u32) {
        if factor != 0 {
            self.set_node_marks(node, self.scale_factor());
        }
    }

    fn set_node_marks(&self, node: NodeId, factor: u32) {
        let lowmem = self.marks_lowmem();
        for zone in self.zones.iter().filter(|zone| zone.node == node && zone.managed() > 0) {
            // Under the zone lock (LB C.2): an allocation may be raising the boost.
            let _locked = zone.lock(&self.platform, self.words, self.blocks);
            self.change_marks(zone, lowmem, factor);
        }
    }

    /// The marks with another distance; a boost stays.
    pub(super) fn change_marks(&self, zone: &Zone, lowmem: u64, factor: u32) {
        let boost = zone.marks().boost;
        zone.set_marks(&Watermarks { boost, ..self.marks_with(zone, lowmem, factor) });
    }
}
