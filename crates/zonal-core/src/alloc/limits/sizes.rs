//! Sizes of the pcps: computed, written to every pcp, and recomputed when a CPU comes or goes (LB
//! E.4, E.11).

use super::{COMING, Limits, SIZES, THRESHOLDS};
use crate::alloc::cpu_ops::CpuOps;
use crate::alloc::pcp_ops::PcpOps;
use crate::pcp::size::{self, HighFraction, SizeInputs, Sizes};
use crate::pcp::state::{OFFLINE, Pcp};
use crate::platform::Platform;
use crate::policy::recompute::Recompute;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NodeId, Order, PAGEBLOCK_ORDER};
use crate::zone::state::Zone;
use crate::zone::watermark::Watermark;

impl<'a, P: Platform> Limits<'_, 'a, P> {
    /// New sizes for the pcps of all zones, from the managed pages. `coming`: a CPU has just come
    /// to this node. Linux counts it on every node then, and not yet among the machine's.
    pub(super) fn set_sizes(self, coming: Option<NodeId>) {
        let on = self.on;
        for zone in on.zones {
            let sizes = self.sizes(zone, coming);
            zone.batch.store(sizes.batch, Relaxed);
            zone.high_min.store(sizes.high_min, Relaxed);
            zone.high_max.store(sizes.high_max, Relaxed);
            zone.swing_most.store(size::swing_most(self.cache_slice(), sizes.batch), Relaxed);
            for cpu in on.each_cpu() {
                self.set_pcp_size(zone, on.pcp(zone.id, cpu), sizes);
                #[cfg(feature = "history")]
                if let Some(pcp) = on.cold_pcp(zone.id, cpu) {
                    let cap_pages = on.policy().pcp.batch_cap_pages;
                    let cold = crate::pcp::history::cold::sizes(zone.managed(), cap_pages);
                    self.set_pcp_size(zone, pcp, cold);
                }
            }
        }
    }

    /// New sizes as they come out while zones, in their order, are boosted by so many pages. The
    /// boosts are as before afterwards.
    pub fn set_sizes_boosted(self, boosts: &[u64]) {
        let zones = || self.on.zones.iter().zip(boosts);
        let added = |zone: &Zone, boost: u64| zone.set_boost(zone.boost().wrapping_add(boost));
        zones().for_each(|(zone, boost)| added(zone, *boost));
        self.set_sizes(None);
        zones().for_each(|(zone, boost)| added(zone, boost.wrapping_neg()));
    }

    /// LB E.4, and the policy's additions.
    fn sizes(self, zone: &Zone, coming: Option<NodeId>) -> Sizes {
        let policy = &self.on.policy().pcp;
        let fraction = HighFraction::new(self.on.tunables.high_fraction() as i32);
        let elsewhere = coming.is_some_and(|node| node != zone.node);
        let inputs = SizeInputs {
            managed: zone.managed(),
            low_watermark: zone.watermark(Watermark::Low),
            node_cpus: self.on.online_cpus(Some(zone.node)) + u32::from(elsewhere),
            machine_cpus: self.on.online_cpus(None) - u32::from(coming.is_some()),
            cap_pages: policy.batch_cap_pages,
            fraction: fraction.unwrap_or(HighFraction::AUTO),
        };
        let mut sizes = size::sizes(policy.size, &inputs);
        if let Some(most) = policy.high_most(sizes.batch, Order::ZERO) {
            sizes.high_min = sizes.high_min.min(most);
        }
        if let Some(most) = policy.high_most(sizes.batch, PAGEBLOCK_ORDER) {
            sizes.high_max = sizes.high_max.min(most);
        }
        sizes
    }

    /// A CPU's share of the last-level cache: as many pages as it has, in bytes of own pages.
    fn cache_slice(self) -> u64 {
        let policy = self.on.policy();
        policy.page.own_bytes(policy.pcp.slice.bytes(self.on.cache_slice_bytes))
    }

    /// New limits for one pcp. Linux writes them without its lock and lets the next operation
    /// clamp `high`; here the pcp is closed for a moment, because its fast path keeps a limit
    /// that follows from them.
    fn set_pcp_size(self, zone: &'a Zone, pcp: &'a Pcp, sizes: Sizes) {
        let Some(_closed) = PcpOps::close(self.zone_ops(zone), pcp) else { return };
        let fixed = &self.on.fixed();
        let free_high_batch = size::free_high_batch(self.cache_slice(), sizes.batch);
        pcp.batch.store(sizes.batch, Relaxed);
        pcp.high_min.store(sizes.high_min, Relaxed);
        // Where `high` does not move there is one bound, and fast operations respect it.
        let moves = fixed.tuning.moves_high();
        let high_max = if moves { sizes.high_max } else { sizes.high_min };
        pcp.high_max.store(high_max, Relaxed);
        if !moves {
            pcp.high.store(sizes.high_min, Relaxed);
        }
        pcp.free_high_batch.store(u8::from(free_high_batch), Relaxed);
        let params = pcp.params(fixed);
        pcp.free_count_cap.store(params.free_count_cap(), Relaxed);
        // The fast path compares 16 bits; `free_count` never gets that far.
        let threshold = params.free_high_threshold().min(u32::from(u16::MAX));
        pcp.free_high_threshold.store(threshold, Relaxed);
    }

    /// A CPU comes online: if the policy says so, resizes the pcps of every zone, with one CPU more
    /// on *every* node, as Linux does until it next computes them (LB E.4). Of CPUs that come at
    /// once the last one counts all.
    pub fn cpu_online(self, cpu: CpuId) {
        if !self.on.is_online(cpu) {
            self.set_offline(cpu, false);
            self.on.coming.store(self.on.node_of(cpu).0.into(), Relaxed);
            self.follow(THRESHOLDS | if self.sizes_follow_cpus() { COMING } else { 0 });
        }
    }

    /// A CPU is gone: drains its pcps, folds its deltas into their zones, NUMA events included, and
    /// recomputes thresholds and, if the policy says so, the sizes of all pcps for the remaining
    /// CPUs (LB E.9, F.4).
    pub fn cpu_dead(self, cpu: CpuId) {
        if !self.on.is_online(cpu) {
            return;
        }
        for zone in self.on.zones {
            let ops = CpuOps::new(self.on, cpu);
            ops.drain_work(zone);
            ops.fold_dead(zone);
        }
        self.set_offline(cpu, true);
        for zone in self.on.zones {
            // From now on it keeps nothing; others may have freed to it since it was drained.
            self.zone_ops(zone).owned().give_all_back(cpu);
            self.zone_ops(zone).leave_depot(cpu);
        }
        self.follow(THRESHOLDS | if self.sizes_follow_cpus() { SIZES } else { 0 });
    }

    fn sizes_follow_cpus(self) -> bool {
        self.on.policy().pcp.recompute >= Recompute::Cpus
    }

    fn set_offline(self, cpu: CpuId, offline: bool) {
        let pcp = self.on.pcp(self.on.preferred_zone(cpu), cpu);
        match offline {
            true => pcp.flags.fetch_or(OFFLINE, Relaxed),
            false => pcp.flags.fetch_and(!OFFLINE, Relaxed),
        };
    }
}
