//! NUMA events of allocations, in the storage that the policy chose (LB F.6, F.7).

use super::Allocator;
use super::stats::NumaEvents;
use super::take::Want;
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NodeId};
use crate::vmstat::numa::{NumaCounts, NumaDeltas, NumaItem, NumaRule, collected, events_of, plus};
use crate::vmstat::variant::NumaFold;
use crate::zone::state::Zone;

impl<'a, P: Platform> Allocator<'a, P> {
    /// NUMA events of `count` allocations that the pops do not already tell (LB F.6).
    pub(super) fn count_event(&self, zone: &Zone, pcp: &Pcp, cpu: CpuId, want: Want, count: u64) {
        if self.policy.numa.records() {
            return self.record_event(zone, cpu, want, count);
        }
        if zone.node == self.zone(want.preferred).node {
            return;
        }
        pcp.events.miss.fetch_add(count, Relaxed);
        self.pcp(want.preferred, cpu).events.foreign.fetch_add(count, Relaxed);
    }

    fn record_event(&self, zone: &Zone, cpu: CpuId, want: Want, count: u64) {
        if count == 0 || !self.counts_numa() {
            return;
        }
        let preferred = self.zone(want.preferred);
        let local = zone.node == self.node_of(cpu);
        let (of_zone, of_preferred) = events_of(zone.node == preferred.node, local);
        for item in of_zone {
            self.record_item(zone, cpu, item, count);
        }
        if let Some(item) = of_preferred {
            self.record_item(preferred, cpu, item, count);
        }
    }

    fn record_item(&self, zone: &Zone, cpu: CpuId, item: NumaItem, count: u64) {
        let rule = NumaRule {
            policy: self.policy.numa,
            update: zone.update,
            zone_threshold: zone.stat_threshold(),
            zone: zone.id,
        };
        let deltas = self.numa_deltas(zone, cpu);
        deltas.record(&self.platform, &rule, item, count as u32, zone.numa());
    }

    /// The deltas of a (zone, CPU), where the policy records events.
    pub(super) fn numa_deltas(&self, zone: &Zone, cpu: CpuId) -> &'a NumaDeltas {
        &self.numa[cpu.0 as usize * self.zones.len() + zone.id.0 as usize]
    }

    /// Whether NUMA events are counted now: `vm.numa_stat`.
    pub fn counts_numa(&self) -> bool {
        self.numa_on.load(Relaxed) != 0
    }

    /// Switches NUMA events on or off (LB F.7). Off, all counts are 0; on, they begin at 0.
    pub(super) fn set_numa_stat(&self, on: bool) {
        if self.counts_numa() == on {
            return;
        }
        self.numa_on.store(u32::from(on), Relaxed);
        if !self.policy.numa.records() {
            // What the words have counted so far is subtracted from now on.
            for zone in self.zones {
                zone.numa().set(self.derived_events(zone).map(i64::wrapping_neg));
            }
            return;
        }
        for zone in self.zones {
            zone.set_recorded(on);
            zone.numa().set(NumaCounts::default());
        }
        self.numa.iter().for_each(NumaDeltas::clear);
        // A store opens with or without leave for fast operations, as the zone now says.
        for pcp in self.pcps {
            pcp.make_slow();
            drop(pcp.close(&self.platform, self.zone(pcp.zone), self.slots));
        }
    }

    /// NUMA events of one zone, as a reader of it sees them.
    pub(super) fn zone_events(&self, zone: &Zone) -> NumaEvents {
        if !self.counts_numa() {
            return NumaEvents::default();
        }
        NumaEvents::of(match self.policy.numa.fold_site {
            _ if !self.policy.numa.records() => plus(self.derived_events(zone), zone.numa().get()),
            #[cfg(feature = "history")]
            NumaFold::Worker => zone.numa().get(),
            #[cfg(feature = "history")]
            NumaFold::WorkerAndSnapshot => zone.numa().settled(&self.platform, || {
                let deltas = self.each_cpu().map(|cpu| {
                    collected(&self.platform, zone.id, cpu, false);
                    self.numa_deltas(zone, cpu).peek()
                });
                deltas.fold(zone.numa().get(), plus)
            }),
            NumaFold::Reader => {
                self.fold_numa(zone);
                // Another reader may have taken deltas and not yet have added them.
                zone.numa().settled(&self.platform, || zone.numa().get())
            }
        })
    }

    /// NUMA events of all zones of a node: `nodeN/numastat`.
    pub fn numa_events(&self, node: NodeId) -> NumaEvents {
        let zones = self.zones.iter().filter(|zone| zone.node == node);
        zones.fold(NumaEvents::default(), |sum, zone| sum.plus(self.zone_events(zone)))
    }

    /// NUMA events of the machine, as in `/proc/vmstat`: what was folded. Where readers fold, and
    /// with the exact storage, that is everything.
    pub fn machine_numa_events(&self) -> NumaEvents {
        if !self.counts_numa() {
            return NumaEvents::default();
        }
        let folded = self.zones.iter().map(|zone| {
            if !self.policy.numa.records() {
                return plus(self.derived_events(zone), zone.numa().get());
            }
            if self.policy.numa.fold_site == NumaFold::Reader {
                self.fold_numa(zone);
            }
            zone.numa().get()
        });
        NumaEvents::of(folded.fold(NumaCounts::default(), plus))
    }

    /// A reader takes every CPU's deltas of a zone (LB F.7, 5.14).
    fn fold_numa(&self, zone: &Zone) {
        for cpu in self.each_cpu() {
            self.numa_deltas(zone, cpu).fold_into(zone.numa());
            collected(&self.platform, zone.id, cpu, true);
        }
    }

    /// The exact storage: what the stores have counted since they were made.
    fn derived_events(&self, zone: &Zone) -> NumaCounts {
        let of_cpu = |cpu: CpuId| {
            let sum = |of: &dyn Fn(&Pcp) -> u64| self.stores(zone.id, cpu).map(of).sum::<u64>();
            let direct = |pcp: &Pcp| pcp.events.direct_allocs.load(Relaxed);
            let allocs = sum(&|pcp| pcp.totals().pops + direct(pcp));
            let miss = sum(&|pcp| pcp.events.miss.load(Relaxed)).min(allocs);
            let foreign = sum(&|pcp| pcp.events.foreign.load(Relaxed));
            let is_local = self.node_of(cpu) == zone.node;
            let (local, other) = if is_local { (allocs, 0) } else { (0, allocs) };
            [allocs - miss, miss, foreign, local, other].map(|count| count as i64)
        };
        self.each_cpu().map(of_cpu).fold(NumaCounts::default(), plus)
    }

    pub(super) fn each_cpu(&self) -> impl Iterator<Item = CpuId> + use<'a, P> {
        (0..self.cpus()).map(|cpu| CpuId(cpu as u32))
    }
}

impl NumaEvents {
    /// Negative counts read as 0 (LB F.1).
    fn of(counts: NumaCounts) -> NumaEvents {
        let [hit, miss, foreign, local, other] = counts.map(|count| count.max(0) as u64);
        NumaEvents { hit, miss, foreign, local, other }
    }
}
