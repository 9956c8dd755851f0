//! When the statistics workers ran, where a trace has no events of them.
//!
//! Each CPU's worker comes back after `stat_interval`, a second, and lets the lists decay (LB F.4,
//! E.9). The kernel rounds the time to whole seconds of its ticks, which are some hundredths off
//! the trace's clock. Without any information a run is put at each whole second of that clock.
//! Where drains may be looked at, they tell more: a drain right behind a free was caused by it, any
//! other is the worker's.

use zonal_trace::{Event, EventKind};

use super::kernel::DRAIN_BEHIND_FREE_NS;
use crate::program::{NO_SLOT, Op, OpKind, Program};

/// `stat_interval`, after which an idle CPU's statistics worker comes back (LB F.4).
const REFRESH_NS: u64 = 1_000_000_000;

/// A trace of so many runs of workers, and of so many for each of its steps besides, is none.
const RUNS_MAX: u64 = 1 << 22;
const RUNS_PER_STEP_MAX: u64 = 64;

/// How many seconds a trace of so many steps on so many CPUs may take: each has a run of each
/// worker.
pub fn seconds_max(steps: usize, cpus: u32) -> u64 {
    (RUNS_MAX + RUNS_PER_STEP_MAX * steps as u64) / u64::from(cpus.max(1))
}

/// What drains tell of the workers.
#[derive(Debug, Default)]
pub struct Workers {
    /// By CPU: time of its last free or drain.
    freed_at: Vec<u64>,
    /// By CPU: when drains began that no free had caused.
    drained_at: Vec<Vec<u64>>,
}

impl Workers {
    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let frees = matches!(event.kind, EventKind::Free { .. } | EventKind::FreeBatched { .. });
        let drains = matches!(event.kind, EventKind::PcpuDrain { .. });
        if !frees && !drains {
            return;
        }
        let cpu = event.cpu as usize;
        if cpu >= self.freed_at.len() {
            self.freed_at.resize(cpu + 1, 0);
            self.drained_at.resize(cpu + 1, Vec::new());
        }
        let pause = event.time_ns.saturating_sub(self.freed_at[cpu]);
        if drains && pause > DRAIN_BEHIND_FREE_NS {
            self.drained_at[cpu].push(event.time_ns);
        }
        self.freed_at[cpu] = event.time_ns;
    }

    /// Puts a run of every CPU's worker into each second of `program`: when a drain shows it, else
    /// in the rhythm of the drains, and without drains at the whole second.
    pub fn make_up(&self, program: &mut Program) {
        let mut times: Vec<(u64, u16)> = Vec::new();
        for cpu in 0..program.cpus as u16 {
            let seen = self.drained_at.get(usize::from(cpu)).map_or(&[][..], Vec::as_slice);
            let runs = runs(seen, program.start_ns, program.span_ns.1);
            times.extend(runs.into_iter().map(|time_ns| (time_ns, cpu)));
        }
        times.sort_unstable();
        let run = |(time_ns, cpu)| Op { time_ns, slot: NO_SLOT, cpu, kind: OpKind::Refresh };
        let runs = program.insert(times.into_iter().map(run).collect());
        program.counts.refreshes_made_up += runs as u64;
    }
}

/// One time in each second after `start` up to `end`.
fn runs(seen: &[u64], start: u64, end: u64) -> Vec<u64> {
    let mut next = (start - start % REFRESH_NS).saturating_add(phase(seen));
    if next <= start {
        next = next.saturating_add(REFRESH_NS);
    }
    let mut times = Vec::new();
    while next <= end {
        let from = seen.partition_point(|at| at.saturating_add(REFRESH_NS / 2) <= next);
        let near = seen.get(from).filter(|at| at.abs_diff(next) < REFRESH_NS / 2);
        times.push(near.copied().unwrap_or(next));
        let Some(later) = next.checked_add(REFRESH_NS) else { break };
        next = later;
    }
    times
}

/// Where in the second these times lie: their median, counted from opposite the first of them, so
/// that a rhythm around the whole second is not torn apart.
fn phase(times: &[u64]) -> u64 {
    let Some(first) = times.first() else { return 0 };
    let from = (first % REFRESH_NS + REFRESH_NS / 2) % REFRESH_NS;
    let mut phases: Vec<u64> =
        times.iter().map(|time| (time % REFRESH_NS + REFRESH_NS - from) % REFRESH_NS).collect();
    phases.sort_unstable();
    (phases[phases.len() / 2] + from) % REFRESH_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = REFRESH_NS;

    #[test]
    fn without_drains_workers_run_at_whole_seconds() {
        assert_eq!(runs(&[], 5 * S, 7 * S + 1), [6 * S, 7 * S]);
        assert_eq!(runs(&[], 5 * S + 1, 6 * S - 1), [0; 0]);
    }

    #[test]
    fn the_last_time_there_is_has_no_second_behind_it() {
        assert_eq!(runs(&[], u64::MAX - S, u64::MAX).len(), 1);
        assert_eq!(runs(&[u64::MAX], u64::MAX, u64::MAX), [u64::MAX]);
    }

    #[test]
    fn an_hour_of_a_large_host_is_short_enough_and_a_century_is_none() {
        assert!(seconds_max(1_000_000, 4096) > 3600);
        assert!(seconds_max(1000, 2) < 100 * 365 * 86_400);
    }

    #[test]
    fn a_drain_is_a_run_and_sets_the_rhythm_of_the_others() {
        let late = S / 10;
        // Two runs around a whole second, and one in the middle of nowhere.
        let seen = [3 * S - 5, 6 * S + 5, 9 * S + late];
        assert_eq!(
            runs(&seen, 2 * S + S / 2, 10 * S - 10),
            [3 * S - 5, 4 * S + 5, 5 * S + 5, 6 * S + 5, 7 * S + 5, 8 * S + 5, 9 * S + late]
        );
    }

    #[test]
    fn a_drain_behind_a_free_is_not_the_workers() {
        let mut workers = Workers::default();
        let mut see = |time_ns, kind| workers.see(&Event { time_ns, cpu: 1, pid: 0, kind });
        let drain = || EventKind::PcpuDrain { pfn: 1, order: 0, migratetype: 1 };
        see(S, EventKind::Free { pfn: 9, order: 0 });
        see(S + 10, drain());
        see(S + 20, drain());
        see(2 * S, drain());
        see(2 * S + 10, drain());
        assert_eq!(workers.drained_at, [vec![], vec![2 * S]]);
    }
}
