//! A zone's NUMA events, as readers see them (LB F.6, F.7).

use super::ZoneOps;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::CpuId;
use crate::vmstat::numa::{NumaCounts, collected, plus};
use crate::vmstat::variant::NumaFold;

/// NUMA events (LB F.6): of allocations, not pages, except for the bulk call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaEvents {
    /// Allocations from the preferred node.
    pub hit: u64,
    /// Allocations from another node than preferred.
    pub miss: u64,
    /// Allocations that preferred this node and were served by another.
    pub foreign: u64,
    /// Allocations by a CPU of the node.
    pub local: u64,
    /// Allocations by a CPU of another node.
    pub other: u64,
}

impl NumaEvents {
    /// The sum of two.
    pub fn plus(self, other: NumaEvents) -> NumaEvents {
        NumaEvents {
            hit: self.hit + other.hit,
            miss: self.miss + other.miss,
            foreign: self.foreign + other.foreign,
            local: self.local + other.local,
            other: self.other + other.other,
        }
    }

    /// Negative counts read as 0 (LB F.1).
    pub(in crate::alloc) fn of(counts: NumaCounts) -> NumaEvents {
        let [hit, miss, foreign, local, other] = counts.map(|count| count.max(0) as u64);
        NumaEvents { hit, miss, foreign, local, other }
    }
}

impl<P: Platform> ZoneOps<'_, '_, P> {
    /// The events of the zone, as a reader of it sees them.
    pub fn numa_events(self) -> NumaEvents {
        let (zone, policy) = (self.zone, self.on.policy().numa);
        let platform = &self.on.platform;
        if !self.on.tunables.counts_numa() {
            return NumaEvents::default();
        }
        NumaEvents::of(match policy.fold_site {
            _ if !policy.records() => plus(self.derived_events(), zone.numa().get()),
            #[cfg(feature = "history")]
            NumaFold::Worker => zone.numa().get(),
            #[cfg(feature = "history")]
            NumaFold::WorkerAndSnapshot => zone.numa().settled(platform, || {
                let deltas = self.on.each_cpu().map(|cpu| {
                    collected(platform, zone.id, cpu, false);
                    self.on.numa_deltas(zone, cpu).peek()
                });
                deltas.fold(zone.numa().get(), plus)
            }),
            NumaFold::Reader => {
                self.fold_numa();
                // Another reader may have taken deltas and not yet have added them.
                zone.numa().settled(platform, || zone.numa().get())
            }
        })
    }

    /// The zone's folded part of the machine's events. Where readers fold, and with the exact
    /// storage, that is everything.
    pub fn folded_numa_events(self) -> NumaCounts {
        let policy = self.on.policy().numa;
        if !policy.records() {
            return plus(self.derived_events(), self.zone.numa().get());
        }
        if policy.fold_site == NumaFold::Reader {
            self.fold_numa();
        }
        self.zone.numa().get()
    }

    /// A reader takes every CPU's deltas of a zone (LB F.7, 5.14).
    fn fold_numa(self) {
        for cpu in self.on.each_cpu() {
            self.on.numa_deltas(self.zone, cpu).fold_into(self.zone.numa());
            collected(&self.on.platform, self.zone.id, cpu, true);
        }
    }

    /// The exact storage: the pcps' counts since they were made.
    pub fn derived_events(self) -> NumaCounts {
        let of_cpu = |cpu: CpuId| {
            let pcps = || self.on.pcps(self.zone.id, cpu);
            let sum = |of: &dyn Fn(&Pcp) -> u64| pcps().map(of).sum::<u64>();
            let direct = |pcp: &Pcp| pcp.events.direct_allocs.load(Relaxed);
            let allocs = sum(&|pcp| pcp.totals().pops + direct(pcp));
            let miss = sum(&|pcp| pcp.events.miss.load(Relaxed)).min(allocs);
            let foreign = sum(&|pcp| pcp.events.foreign.load(Relaxed));
            let is_local = self.on.node_of(cpu) == self.zone.node;
            let (local, other) = if is_local { (allocs, 0) } else { (0, allocs) };
            [allocs - miss, miss, foreign, local, other].map(|count| count as i64)
        };
        self.on.each_cpu().map(of_cpu).fold(NumaCounts::default(), plus)
    }
}
