//! A CPU's deltas folded into the zones' counters, and its statistics worker (LB F.4).

use super::CpuOps;
use crate::platform::{Line, Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::vmstat::variant::NumaFold;
use crate::vmstat::worker::StatWorker;
use crate::zone::state::Zone;

/// Deltas that a refresh folded.
#[derive(Clone, Copy, Default)]
struct Folded {
    /// The free-page counter.
    items: bool,
    /// NUMA events that are not items of the zone.
    numa: bool,
}

impl Folded {
    fn any(self) -> bool {
        self.items || self.numa
    }
    fn or(self, other: Folded) -> Folded {
        Folded { items: self.items || other.items, numa: self.numa || other.numa }
    }
}

impl<'a, P: Platform> CpuOps<'_, 'a, P> {
    /// Folds the CPU's deltas of one zone, those of NUMA events only where the refresh does that.
    fn fold_deltas(self, zone: &'a Zone) -> Folded {
        let items = self.fold_free(zone);
        let by_refresh = self.on.policy().numa.fold_site != NumaFold::Reader;
        let numa = by_refresh && self.fold_events(zone);
        self.tell(zone, items, numa)
    }

    fn fold_free(self, zone: &'a Zone) -> bool {
        let ops = self.zone_ops(zone);
        let pcp = ops.pcp(self.cpu);
        if pcp.free_diff.load(Relaxed) == 0 {
            return false;
        }
        let mut locked = ops.lock();
        let diff = pcp.free_diff.swap(0, Relaxed);
        locked.fold(diff);
        diff != 0
    }

    fn fold_events(self, zone: &Zone) -> bool {
        self.on.policy().numa.records()
            && self.on.numa_deltas(zone, self.cpu).fold_into(zone.numa())
    }

    /// Tells the platform which lines of the zone were written.
    fn tell(self, zone: &Zone, items: bool, numa: bool) -> Folded {
        let own_line = self.on.policy().numa.has_own_line();
        let folded = Folded { items: items || (numa && !own_line), numa: numa && own_line };
        if folded.items {
            self.on.platform.cost(Step::Fold(Line::Zone(zone.id)));
        }
        if folded.numa {
            self.on.platform.cost(Step::Fold(Line::ZoneNuma(zone.id)));
        }
        folded
    }

    /// The deltas of a CPU that is gone go to the zone's counters, NUMA events included (LB F.4).
    pub fn fold_dead(self, zone: &'a Zone) {
        let items = self.fold_free(zone);
        let numa = self.fold_events(zone);
        self.tell(zone, items, numa);
    }

    /// One refresh of the CPU (LB F.4). Returns whether anything changed, that is, whether a worker
    /// would come back after `stat_interval`.
    pub fn refresh(self) -> bool {
        self.refresh_with(true)
    }

    /// Folds the CPU's deltas into the zones' counters, and all that it found into the machine's at
    /// once. With `lists` its lists decay too (LB E.9), and those of other nodes' zones that were
    /// idle for three refreshes are emptied.
    fn refresh_with(self, lists: bool) -> bool {
        let mut changed = false;
        let mut folded = Folded::default();
        for zone in self.on.zones {
            let of_zone = self.fold_deltas(zone);
            folded = folded.or(of_zone);
            changed |= of_zone.any();
            if of_zone.any() {
                self.stay(zone);
            }
            if lists {
                changed |= self.refresh_lists(zone);
            }
            // Linux looks only when a pcp gives pages back (LB E.7). Where pages come back past
            // the pcps that never happens, and the fast paths would stay closed.
            self.zone_ops(zone).clear_below_high();
        }
        if folded.items {
            self.on.platform.cost(Step::Fold(Line::Machine));
        }
        if folded.numa {
            self.on.platform.cost(Step::Fold(Line::MachineNuma));
        }
        changed
    }

    /// Whether the CPU has deltas that a refresh would fold (LB F.4), for the shepherd. Its lists
    /// do not count.
    pub fn has_deltas(self) -> bool {
        let numa = self.on.policy().numa;
        let by_refresh = numa.records() && numa.fold_site != NumaFold::Reader;
        self.on.zones.iter().any(|zone| {
            self.on.pcp(zone.id, self.cpu).free_diff.load(Relaxed) != 0
                || (by_refresh && self.on.numa_deltas(zone, self.cpu).any())
        })
    }

    /// The shepherd's step for the CPU's worker, once per interval.
    pub fn shepherd(self, worker: &mut StatWorker, now_ns: u64) {
        let interval = self.on.tunables.stat_interval_ns();
        let timer = worker.due_ns();
        worker.shepherd(&self.on.policy().stat, now_ns, interval, || self.has_deltas());
        if worker.due_ns() != timer {
            self.stagger(worker, interval);
        }
    }

    /// Where the policy says so, gives the CPU's next refresh its place in the interval.
    fn stagger(self, worker: &mut StatWorker, interval_ns: u64) {
        if self.on.policy().stat.stagger {
            let part = u128::from(interval_ns) * u128::from(self.cpu.0);
            worker.stagger((part / self.on.cpus() as u128) as u64, interval_ns);
        }
    }

    /// Runs the CPU's worker if it is due. Returns whether it was.
    pub fn run_worker(self, worker: &mut StatWorker, now_ns: u64) -> bool {
        if !worker.is_due(now_ns) {
            return false;
        }
        let changed = self.refresh();
        let interval = self.on.tunables.stat_interval_ns();
        let policy = &self.on.policy().stat;
        // Who was late comes back to its place nearest to an interval from now.
        let from = if policy.stagger { now_ns.saturating_sub(interval / 2) } else { now_ns };
        worker.ran(policy, from, interval, changed);
        self.stagger(worker, interval);
        true
    }

    /// The CPU goes idle (LB F.4 `quiet_vmstat`). Returns whether its deltas were folded.
    pub fn quiet(self, worker: &StatWorker) -> bool {
        let refresh = worker.idle(&self.on.policy().stat, || self.has_deltas());
        if refresh {
            self.refresh_with(false);
        }
        refresh
    }
}
