//! A zone's free-page counter where its error matters (LB F.1, C.5).

use super::{ZoneOps, sum_of};
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::ZoneKind;
use crate::vmstat::numa::collected;
use crate::zone::watermark::{ZoneSnapshot, free_pages_safe};

impl<P: Platform> ZoneOps<'_, '_, P> {
    /// The zone's free pages with every CPU's delta (LB F.1 `zone_page_state_snapshot`); 0 if
    /// below.
    pub fn free_snapshot(self) -> u64 {
        let deltas = self.on.each_cpu().map(|cpu| {
            collected(&self.on.platform, self.zone.id, cpu, false);
            self.pcp(cpu).free_diff.load(Relaxed)
        });
        (self.zone.free_counter_raw() + deltas.sum::<i64>()).max(0) as u64
    }

    /// What a test of a watermark looks at where the counter's error must not decide (LB C.5
    /// `zone_watermark_ok_safe`): below the drift mark the deltas are added.
    pub fn safe_snapshot(self, highest: ZoneKind) -> ZoneSnapshot {
        let snapshot = self.zone.snapshot(highest);
        let exact = || self.free_snapshot();
        let free = free_pages_safe(snapshot.free, self.zone.drift_mark(), exact);
        ZoneSnapshot { free, ..snapshot }
    }

    /// Pages of the zone that are free: in its buddy, on its pcps, in the pageblocks that CPUs own.
    #[inline(never)]
    pub fn free_or_cached(self) -> u64 {
        let cached = sum_of(self, |pcp| u64::from(pcp.count()));
        cached + self.owned().pages() + self.free_snapshot()
    }

    /// Makes the free-page counter exact: folds every CPU's delta (LB F.4). Takes the boost off
    /// the watermarks, too, which is lent until the background reclaimer has run (LB C.4).
    pub fn settle(self) {
        let mut locked = self.lock();
        for cpu in self.on.each_cpu() {
            locked.fold(self.pcp(cpu).free_diff.swap(0, Relaxed));
        }
        self.zone.set_boost(0);
    }
}
