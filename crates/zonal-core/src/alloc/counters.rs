//! The zones' counters beside their folding by use: refresh, thresholds, error near the marks, and
//! exact reads (LB F.1, F.2, F.4).

use core::time::Duration;

use super::Allocator;
use crate::platform::{Line, Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NodeId, ZoneId, ZoneKind};
use crate::vmstat::numa::{NUMA_NAMES, collected, plus};
use crate::vmstat::threshold;
use crate::vmstat::variant::{NumaFold, Pressure, ThresholdPages};
use crate::vmstat::worker::StatWorker;
use crate::zone::state::Zone;
use crate::zone::watermark::{Mark, ZoneSnapshot, free_pages_safe};

/// What a refresh folded.
#[derive(Clone, Copy, Default)]
pub(super) struct Folded {
    /// The free-page counter.
    pub items: bool,
    /// NUMA events that are not items of the zone.
    pub numa: bool,
}

impl Folded {
    pub(super) fn any(self) -> bool {
        self.items || self.numa
    }
    pub(super) fn or(self, other: Folded) -> Folded {
        Folded { items: self.items || other.items, numa: self.numa || other.numa }
    }
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// Folds a CPU's deltas of one zone, those of NUMA events only where the refresh does that.
    pub(super) fn fold_deltas(&self, zone: &'a Zone, cpu: CpuId) -> Folded {
        let items = self.fold_free(zone, cpu);
        let by_refresh = self.policy.numa.fold_site != NumaFold::Reader;
        let numa = by_refresh && self.fold_events(zone, cpu);
        self.tell(zone, items, numa)
    }

    fn fold_free(&self, zone: &'a Zone, cpu: CpuId) -> bool {
        let pcp = self.pcp(zone.id, cpu);
        if pcp.free_diff.load(Relaxed) == 0 {
            return false;
        }
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let diff = pcp.free_diff.swap(0, Relaxed);
        locked.fold(diff);
        diff != 0
    }

    fn fold_events(&self, zone: &Zone, cpu: CpuId) -> bool {
        self.policy.numa.records() && self.numa_deltas(zone, cpu).fold_into(zone.numa())
    }

    /// Tells the home which lines of the zone were written.
    fn tell(&self, zone: &Zone, items: bool, numa: bool) -> Folded {
        let own_line = self.policy.numa.has_own_line();
        let folded = Folded { items: items || (numa && !own_line), numa: numa && own_line };
        if folded.items {
            self.platform.cost(Step::Fold(Line::Zone(zone.id)));
        }
        if folded.numa {
            self.platform.cost(Step::Fold(Line::ZoneNuma(zone.id)));
        }
        folded
    }

    /// One refresh of a CPU (LB F.4): folds its deltas into the zones' counters, and all that it
    /// found into the machine's at once. With `lists` its lists decay too (LB E.9), and those of
    /// other nodes' zones that were idle for three refreshes are emptied.
    fn refresh_cpu(&self, cpu: CpuId, lists: bool) -> bool {
        let mut changed = false;
        let mut folded = Folded::default();
        for zone in self.zones {
            let of_zone = self.fold_deltas(zone, cpu);
            folded = folded.or(of_zone);
            changed |= of_zone.any();
            if of_zone.any() {
                self.stay(zone, cpu);
            }
            if lists {
                changed |= self.refresh_lists(zone, cpu);
            }
            // Linux looks only when a store gives pages back (LB E.7). Where pages come back past
            // the stores that never happens, and the fast paths would stay closed.
            self.clear_below_high(zone);
        }
        if folded.items {
            self.platform.cost(Step::Fold(Line::Machine));
        }
        if folded.numa {
            self.platform.cost(Step::Fold(Line::MachineNuma));
        }
        changed
    }

    /// One refresh of a CPU (LB F.4). Returns whether anything changed, that is, whether a worker
    /// would come back after `stat_interval`.
    pub fn refresh(&self, cpu: CpuId) -> bool {
        self.refresh_cpu(cpu, true)
    }

    /// Whether a CPU has deltas that a refresh would fold (LB F.4): what the shepherd looks at. Its
    /// lists do not count.
    pub fn has_deltas(&self, cpu: CpuId) -> bool {
        let by_refresh =
            self.policy.numa.records() && self.policy.numa.fold_site != NumaFold::Reader;
        self.zones.iter().any(|zone| {
            self.pcp(zone.id, cpu).free_diff.load(Relaxed) != 0
                || (by_refresh && self.numa_deltas(zone, cpu).any())
        })
    }

    /// The shepherd of the CPUs' workers, to be called once per interval; under the policy of
    /// 2.6.24 it starts the timers. `workers` has one entry per CPU.
    pub fn shepherd(&self, workers: &mut [StatWorker], now_ns: u64) {
        let interval = self.stat_interval_ns.load(Relaxed);
        for (cpu, worker) in self.each_cpu().zip(workers) {
            worker.shepherd(&self.policy.stat, now_ns, interval, || self.has_deltas(cpu));
        }
    }

    /// Runs a CPU's worker if it is due. Returns whether it was.
    pub fn run_worker(&self, cpu: CpuId, worker: &mut StatWorker, now_ns: u64) -> bool {
        if !worker.is_due(now_ns) {
            return false;
        }
        let changed = self.refresh(cpu);
        let interval = self.stat_interval_ns.load(Relaxed);
        worker.ran(&self.policy.stat, now_ns, interval, changed);
        true
    }

    /// A CPU goes idle (LB F.4 `quiet_vmstat`). Returns whether its deltas were folded.
    pub fn quiet(&self, cpu: CpuId, worker: &StatWorker) -> bool {
        let refresh = worker.idle(&self.policy.stat, || self.has_deltas(cpu));
        if refresh {
            self.refresh_cpu(cpu, false);
        }
        refresh
    }

    /// `vm.stat_interval`: how often workers run.
    pub fn stat_interval(&self) -> Duration {
        Duration::from_nanos(self.stat_interval_ns.load(Relaxed))
    }

    /// Sets the interval of the workers, finer than the sysctl's whole seconds.
    pub fn set_stat_interval(&self, interval: Duration) {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.stat_interval_ns.store(nanos.max(1), Relaxed);
    }

    /// `vm.stat_refresh`: refreshes every CPU, then tells `warn` each counter of the machine that
    /// is below zero, by its name in `/proc/vmstat` (LB F.4).
    pub fn stat_refresh(&self, mut warn: impl FnMut(&'static str, i64)) {
        for cpu in self.each_cpu() {
            self.refresh(cpu);
        }
        let free = self.zones.iter().map(|zone| zone.free_counter_raw()).sum::<i64>();
        let events = self.zones.iter().map(|zone| zone.numa().get()).fold(Default::default(), plus);
        // The exact storage keeps there what it subtracts.
        let events = NUMA_NAMES.into_iter().zip(events).filter(|_| self.policy.numa.records());
        let counters = core::iter::once(("nr_free_pages", free)).chain(events);
        counters.filter(|(_, count)| *count < 0).for_each(|(name, count)| warn(name, count));
    }

    /// The deltas of a CPU that is gone go to the zone's counters, NUMA events included (LB F.4).
    pub(super) fn fold_dead(&self, zone: &'a Zone, cpu: CpuId) {
        let items = self.fold_free(zone, cpu);
        let numa = self.fold_events(zone, cpu);
        self.tell(zone, items, numa);
    }

    /// Thresholds and drift marks (LB F.2) for the CPUs that are online: at boot, when a CPU comes
    /// or goes, and when memory does. A drift mark once set stays set (LB M.11).
    pub fn set_thresholds(&self) {
        let online = self.online_cpus(None);
        for zone in self.zones {
            let normal = self.normal_threshold(zone, online);
            zone.stat_threshold.store(normal, Relaxed);
            let marks = zone.marks();
            let [min, low, high] = [Mark::Min, Mark::Low, Mark::High].map(|mark| marks.mark(mark));
            let drift = threshold::drift_mark(min, low, high, normal, online);
            if let Some(drift) = drift
                && self.policy.stat.pressure.sets_drift_mark()
            {
                zone.drift_mark.store(drift, Relaxed);
            }
        }
    }

    fn normal_threshold(&self, zone: &Zone, online: u32) -> u32 {
        let pages = match self.policy.stat.threshold_pages {
            #[cfg(feature = "history")]
            ThresholdPages::Present => zone.present(),
            ThresholdPages::Managed => zone.managed(),
        };
        threshold::normal(pages, online)
    }

    /// The background reclaimer of a node woke up, or goes to sleep (LB F.2): while it is awake the
    /// counters of zones with a drift mark fold early.
    pub fn set_stat_pressure(&self, node: NodeId, awake: bool) {
        if self.policy.stat.pressure != Pressure::DriftMarkAndThreshold {
            return;
        }
        let online = self.online_cpus(None);
        for zone in self.zones.iter().filter(|zone| zone.node == node) {
            if zone.drift_mark().is_none() {
                continue;
            }
            let marks = zone.marks();
            let threshold = match awake {
                true => threshold::pressure(marks.mark(Mark::Low), marks.mark(Mark::Min), online),
                false => self.normal_threshold(zone, online),
            };
            zone.stat_threshold.store(threshold, Relaxed);
        }
    }

    /// A zone's free pages with every CPU's delta (LB F.1 `zone_page_state_snapshot`); 0 if below.
    pub fn free_snapshot(&self, zone: ZoneId) -> u64 {
        let zone = self.zone(zone);
        let deltas = self.each_cpu().map(|cpu| {
            collected(&self.platform, zone.id, cpu, false);
            self.pcp(zone.id, cpu).free_diff.load(Relaxed)
        });
        (zone.free_counter_raw() + deltas.sum::<i64>()).max(0) as u64
    }

    /// What a test of a mark looks at where the counter's error must not decide (LB C.5
    /// `zone_watermark_ok_safe`): below the drift mark the deltas are added.
    pub fn safe_snapshot(&self, zone: ZoneId, highest: ZoneKind) -> ZoneSnapshot {
        let of_zone = self.zone(zone);
        let snapshot = of_zone.snapshot(highest);
        let exact = || self.free_snapshot(zone);
        let free = free_pages_safe(snapshot.free, of_zone.drift_mark(), exact);
        ZoneSnapshot { free, ..snapshot }
    }

    /// `nr_free_pages` of `/proc/vmstat`: all zones' counters, without the CPUs' deltas; 0 if
    /// below. Linux keeps this sum by writing it at each fold; here it is added up when it is read.
    pub fn free_counter(&self) -> u64 {
        self.zones.iter().map(|zone| zone.free_counter_raw()).sum::<i64>().max(0) as u64
    }
}
