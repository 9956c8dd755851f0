//! NUMA events of a CPU's allocations, in the storage that the policy chose (LB F.6, F.7).

use super::CpuOps;
use crate::alloc::zone_ops::Want;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::ZoneId;
use crate::vmstat::numa::{NumaItem, NumaRule, events_of};
use crate::zone::state::Zone;

impl<P: Platform> CpuOps<'_, '_, P> {
    /// NUMA events of `count` allocations that the pops do not already tell (LB F.6).
    #[inline]
    pub fn count_event(self, zone: &Zone, want: Want, count: u64) {
        if self.on.policy().numa.records() {
            return self.record_event(zone, want, count);
        }
        if zone.node == self.on.zone(want.preferred).node {
            return;
        }
        self.on.pcp(zone.id, self.cpu).events.miss.fetch_add(count, Relaxed);
        self.on.pcp(want.preferred, self.cpu).events.foreign.fetch_add(count, Relaxed);
    }

    /// Records the events of a block from the zone that the CPU prefers, where a policy records
    /// them.
    pub fn record_own(self, zone: ZoneId) {
        if self.on.tunables.counts_numa() {
            let zone = self.on.zone(zone);
            // A node without memory prefers another's.
            let local = zone.node == self.on.node_of(self.cpu);
            let (of_zone, _) = events_of(true, local);
            of_zone.into_iter().for_each(|item| self.record_item(zone, item, 1));
        }
    }

    fn record_event(self, zone: &Zone, want: Want, count: u64) {
        if count == 0 || !self.on.tunables.counts_numa() {
            return;
        }
        let preferred = self.on.zone(want.preferred);
        let local = zone.node == self.on.node_of(self.cpu);
        let (of_zone, of_preferred) = events_of(zone.node == preferred.node, local);
        for item in of_zone {
            self.record_item(zone, item, count);
        }
        if let Some(item) = of_preferred {
            self.record_item(preferred, item, count);
        }
    }

    fn record_item(self, zone: &Zone, item: NumaItem, count: u64) {
        let rule = NumaRule {
            policy: self.on.policy().numa,
            update: zone.update,
            zone_threshold: zone.stat_threshold(),
            zone: zone.id,
        };
        let deltas = self.on.numa_deltas(zone, self.cpu);
        deltas.record(&self.on.platform, &rule, item, count as u32, zone.numa());
    }
}
