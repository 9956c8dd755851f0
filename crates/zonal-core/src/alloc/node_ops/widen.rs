//! Marks that stand further apart while a node is short again and again.
//!
//! Waking the background reclaimer costs the waking request the time for which the reclaimer has
//! its CPU, and requests between low and min live on the rest until pages come. In Linux the
//! distance between the watermarks is a part of the zone's size (LB C.2), for any rate of
//! allocation: 0.1 %, which two busy CPUs take from 256 MiB in a twentieth of a millisecond. Here
//! the distance grows with the rate. A reclaimer that is woken soon after it has finished doubles
//! it, up to `watermark.scale_factor_max` and an eighth of what could be free; one that may sleep
//! takes it back.
//!
//! Min, which is what requests are refused by, and the sizes of per-CPU lists stay as they are.

use super::NodeOps;
use crate::alloc::limits::Limits;
use crate::platform::Platform;
use crate::types::ZoneKind;
use crate::zone::state::Zone;
use crate::zone::watermark::FACTOR_UNIT;

/// A reclaimer that is woken again within this time wakes too often. What a wake-up costs a
/// request, some hundred microseconds where it has to give its CPU away, is then 2 % of the time.
pub const WOKEN_SOON_NS: u64 = 5_000_000;

/// The distance is at most this part of what a node has free or could get back: high is two of them
/// above min, so caches keep three quarters.
const KEPT_PART_MIN: u64 = 8;

impl<P: Platform> NodeOps<'_, '_, P> {
    /// The node's reclaimer was woken again so soon after its last run. Returns the factor that its
    /// zones' watermarks now have; `factor` is the one they had, 0 for the sysctl's.
    pub fn widen_watermarks(self, factor: u32, after_ns: u64) -> u32 {
        let most = self.on.policy().watermark.scale_factor_max.min(self.worth_keeping());
        let now = factor.max(self.on.tunables.scale_factor());
        if after_ns > WOKEN_SOON_NS || now >= most {
            return factor;
        }
        let wider = now.saturating_mul(2).clamp(1, most);
        self.set_node_watermarks(wider);
        wider
    }

    /// The factor of the distance, limited to a part of the pages that the node has free or could
    /// reclaim. The rest of its memory is others', who give nothing up.
    fn worth_keeping(self) -> u32 {
        let zones = || self.zones(ZoneKind::Movable);
        let managed: u64 = zones().map(Zone::managed).sum();
        let free: u64 = zones().map(|zone| self.zone_ops(zone).free_snapshot()).sum();
        let pages = free.saturating_add(self.could_free()).min(managed);
        (pages * FACTOR_UNIT / KEPT_PART_MIN / managed.max(1)) as u32
    }

    /// The node's marks as the sysctl has them; `factor` is the one they had.
    pub fn narrow_watermarks(self, factor: u32) {
        if factor != 0 {
            self.set_node_watermarks(self.on.tunables.scale_factor());
        }
    }

    fn set_node_watermarks(self, factor: u32) {
        let limits = Limits::new(self.on);
        let lowmem = limits.watermark_lowmem();
        for zone in self.on.zones_of(self.node).filter(|zone| zone.managed() > 0) {
            // Under the zone lock (LB C.2): an allocation may be raising the boost.
            let _locked = self.zone_ops(zone).lock();
            limits.change_watermarks(zone, lowmem, factor);
        }
    }
}
