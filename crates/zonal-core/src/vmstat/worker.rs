//! When a CPU folds its deltas (LB F.4).
//!
//! ```text
//!  2.6.24   timer of each CPU: every interval, whatever there is to do
//!  3.18     shepherd, every interval: queues the worker of each CPU whose deltas are not all zero
//!           worker: refreshes its CPU; comes back after an interval iff something changed
//!           going idle: refreshes at once what a queued worker would come for
//! ```
//! Pages on a CPU's lists alone do not make the shepherd queue its worker (LB F.4): lists of a CPU
//! that does nothing shrink only while the worker that their last use left behind finds something
//! to do. That is why the policy `zonal` keeps the timer.
//!
//! The state of one CPU is a [`StatWorker`], kept by the platform. The allocator's `shepherd` and
//! `run_worker` use it.

use crate::vmstat::variant::{Refresh, StatPolicy};

/// One CPU's worker: when it runs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatWorker {
    due_ns: Option<u64>,
    /// The CPU is kept free of such work (`isolcpus`).
    pub isolated: bool,
    /// The CPU is offline: nothing queues its worker.
    pub offline: bool,
}

impl StatWorker {
    /// When it runs next, if it is queued.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Whether it should run now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.is_some_and(|due| due <= now_ns)
    }

    /// The shepherd's step: queues the worker if the CPU needs it. `has_deltas` is asked only where
    /// it decides.
    pub fn shepherd(
        &mut self,
        policy: &StatPolicy,
        now_ns: u64,
        interval_ns: u64,
        has_deltas: impl FnOnce() -> bool,
    ) {
        if self.offline {
            self.due_ns = None;
            return;
        }
        if self.due_ns.is_some() {
            return;
        }
        match policy.refresh {
            // A timer is started once, when its CPU comes up.
            Refresh::PerCpuTimer => self.due_ns = Some(now_ns.saturating_add(interval_ns)),
            Refresh::WorkerAndShepherd => {
                let left_alone = policy.skip_isolated && self.isolated;
                if !left_alone && has_deltas() {
                    self.due_ns = Some(now_ns);
                }
            }
        }
    }

    /// The worker ran at `now_ns`; `changed` is the refresh's result.
    pub fn ran(&mut self, policy: &StatPolicy, now_ns: u64, interval_ns: u64, changed: bool) {
        let again = changed || policy.refresh == Refresh::PerCpuTimer;
        self.due_ns = again.then(|| now_ns.saturating_add(interval_ns));
    }

    /// Puts the next run off to the CPU's place in the interval: the first moment from then on that
    /// lies `phase_ns` behind a multiple of it.
    pub fn stagger(&mut self, phase_ns: u64, interval_ns: u64) {
        let Some(due) = self.due_ns.filter(|_| interval_ns > 0) else { return };
        let early = (phase_ns % interval_ns).wrapping_sub(due % interval_ns);
        let early = if (early as i64) < 0 { early.wrapping_add(interval_ns) } else { early };
        self.due_ns = Some(due.saturating_add(early));
    }

    /// The CPU goes idle: whether to refresh it now, its lists left alone.
    pub fn idle(&self, policy: &StatPolicy, has_deltas: impl FnOnce() -> bool) -> bool {
        policy.quiet_on_idle && self.due_ns.is_some() && has_deltas()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_timer_runs_every_interval_whatever_changed() {
        let timer = Refresh::PerCpuTimer;
        let policy = StatPolicy { refresh: timer, quiet_on_idle: false, ..StatPolicy::V6_6 };
        let mut worker = StatWorker::default();
        worker.shepherd(&policy, 0, SECOND, || panic!("a timer does not ask"));
        for second in 1..5 {
            assert!(!worker.is_due(second * SECOND - 1));
            assert!(worker.is_due(second * SECOND));
            worker.ran(&policy, second * SECOND, SECOND, false);
        }
        assert!(!worker.idle(&policy, || true), "2.6.24 does nothing when idle");
    }

    #[test]
    fn a_worker_comes_back_only_while_something_changed() {
        let policy = StatPolicy::V6_6;
        let mut worker = StatWorker::default();
        worker.shepherd(&policy, 0, SECOND, || false);
        assert_eq!(worker.due_ns(), None, "nothing to fold; pages on lists do not count");
        worker.shepherd(&policy, SECOND, SECOND, || true);
        assert!(worker.is_due(SECOND), "at once");
        worker.ran(&policy, SECOND, SECOND, true);
        assert_eq!(worker.due_ns(), Some(2 * SECOND));
        worker.ran(&policy, 2 * SECOND, SECOND, false);
        assert_eq!(worker.due_ns(), None);
    }

    #[test]
    fn an_idle_cpu_is_refreshed_only_if_its_worker_is_queued() {
        let policy = StatPolicy::V6_6;
        let mut worker = StatWorker::default();
        assert!(!worker.idle(&policy, || true));
        worker.ran(&policy, 0, SECOND, true);
        assert!(worker.idle(&policy, || true) && !worker.idle(&policy, || false));
        let loud = StatPolicy { quiet_on_idle: false, ..policy };
        assert!(!worker.idle(&loud, || true));
    }

    #[test]
    fn staggered_workers_run_at_their_places_in_the_interval() {
        let policy = StatPolicy::V6_6;
        for (cpu, place) in [(0, 0), (1, 250), (3, 750)] {
            let mut worker = StatWorker::default();
            worker.shepherd(&policy, 0, 1000, || true);
            worker.stagger(cpu * 250, 1000);
            assert_eq!(worker.due_ns(), Some(place));
            for (from, next) in [(place, place + 1000), (place + 1, place + 2000)] {
                worker.ran(&policy, from, 1000, true);
                worker.stagger(cpu * 250, 1000);
                assert_eq!(worker.due_ns(), Some(next), "never earlier than an interval later");
            }
        }
        let mut idle = StatWorker::default();
        idle.stagger(250, 1000);
        assert_eq!(idle.due_ns(), None, "what is not queued stays so");
    }

    #[test]
    fn isolated_and_offline_cpus_are_left_alone() {
        let isolated = StatWorker { isolated: true, ..StatWorker::default() };
        let mut worker = isolated;
        worker.shepherd(&StatPolicy::V6_6, 0, SECOND, || true);
        assert_eq!(worker.due_ns(), None);
        let before = StatPolicy { skip_isolated: false, ..StatPolicy::V6_6 };
        worker.shepherd(&before, 0, SECOND, || true);
        assert_eq!(worker.due_ns(), Some(0), "only since the shepherd skips them");
        worker.offline = true;
        worker.shepherd(&before, 0, SECOND, || true);
        assert_eq!(worker.due_ns(), None);
    }
}
