//! Thresholds of the zones' counters (LB F.2), and NUMA events switched on and off (LB F.7).

use super::Limits;
use crate::alloc::pcp_ops::PcpOps;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::NodeId;
use crate::vmstat::numa::{NumaCounts, NumaDeltas};
use crate::vmstat::threshold;
use crate::vmstat::variant::{Pressure, ThresholdPages};
use crate::zone::state::Zone;
use crate::zone::watermark::Watermark;

impl<P: Platform> Limits<'_, '_, P> {
    /// Thresholds and drift marks (LB F.2) for the CPUs that are online: at boot, when a CPU comes
    /// or goes, and when memory does. A drift mark once set stays set (LB M.11).
    pub fn set_thresholds(self) {
        let online = self.on.online_cpus(None);
        for zone in self.on.zones {
            let normal = self.normal_threshold(zone, online);
            zone.stat_threshold.store(normal, Relaxed);
            let watermarks = zone.watermarks();
            let [min, low, high] = [Watermark::Min, Watermark::Low, Watermark::High]
                .map(|watermark| watermarks.of(watermark));
            let drift = threshold::drift_mark(min, low, high, normal, online);
            if let Some(drift) = drift
                && self.on.policy().stat.pressure.sets_drift_mark()
            {
                zone.drift_mark.store(drift, Relaxed);
            }
        }
    }

    fn normal_threshold(self, zone: &Zone, online: u32) -> u32 {
        let pages = match self.on.policy().stat.threshold_pages {
            #[cfg(feature = "history")]
            ThresholdPages::Present => zone.present(),
            ThresholdPages::Managed => zone.managed(),
        };
        threshold::normal(self.on.policy().page.own_pages(pages), online)
    }

    /// The background reclaimer of a node woke up, or goes to sleep (LB F.2): while it is awake the
    /// counters of zones with a drift mark fold early.
    pub fn set_stat_pressure(self, node: NodeId, awake: bool) {
        if self.on.policy().stat.pressure != Pressure::DriftMarkAndThreshold {
            return;
        }
        let online = self.on.online_cpus(None);
        for zone in self.on.zones_of(node) {
            if zone.drift_mark().is_none() {
                continue;
            }
            let watermarks = zone.watermarks();
            let threshold = match awake {
                true => threshold::pressure(
                    watermarks.of(Watermark::Low),
                    watermarks.of(Watermark::Min),
                    online,
                ),
                false => self.normal_threshold(zone, online),
            };
            zone.stat_threshold.store(threshold, Relaxed);
        }
    }

    /// Switches NUMA events on or off (LB F.7). Off, all counts are 0; on, they begin at 0.
    pub(super) fn set_numa_stat(self, counts: bool) {
        let on = self.on;
        if on.tunables.counts_numa() == counts {
            return;
        }
        on.tunables.set_counts_numa(counts);
        if !on.policy().numa.records() {
            // What the words have counted so far is subtracted from now on.
            for zone in on.zones {
                let derived = self.zone_ops(zone).derived_events();
                zone.numa().set(derived.map(i64::wrapping_neg));
            }
            return;
        }
        for zone in on.zones {
            zone.set_recorded(counts);
            zone.numa().set(NumaCounts::default());
        }
        on.numa.iter().for_each(NumaDeltas::clear);
        self.reopen_all(|pcp| {
            // A pcp without a fence stays sealed.
            if on.platform.uses_gates() && (counts || !on.platform.ends_sequences()) {
                pcp.closed.seal(counts);
            }
        });
    }

    /// Ends the fast path of every pcp for good. `false`: the platform could not fence a CPU, so
    /// a fast operation may still be under way there.
    pub fn retire(self) -> bool {
        self.on.zones.iter().for_each(Zone::retire);
        self.reopen_all(|_| {})
    }

    /// Closes and opens each pcp once: it opens with or without leave for fast operations, as
    /// its zone now says (ZONE-4). `false`: the platform could not fence a CPU.
    fn reopen_all(self, meanwhile: impl Fn(&PcpOps<'_, '_, P>)) -> bool {
        let mut all = true;
        for pcp in self.on.pcps {
            pcp.make_slow();
            let closed = PcpOps::close(self.zone_ops(self.on.zone(pcp.zone)), pcp);
            closed.iter().for_each(&meanwhile);
            all &= closed.is_some();
        }
        all
    }
}
