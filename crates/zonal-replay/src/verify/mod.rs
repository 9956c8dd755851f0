//! A prediction, tried: runs with and without a setting, in random order.
//!
//! ```text
//!  record the load as it is ─► predict ─► the prediction is written down
//!       then blocks of three runs, without recording, in random order:
//!       now  tried  now   │  tried  now  now   │ …      at least five blocks
//!       then record the load with the setting: counts
//! ```
//! A block gives two differences: what the setting saves against the mean of the other two runs,
//! and how far these two differ among themselves (A/A), where nothing was changed. The first is a
//! finding only where its interval is clear of zero and of the second's interval. What is compared
//! is written down with the prediction ([`By`]): processor time, elapsed time where waiting for
//! disks is what was predicted to be saved, or the load's own figure.
//!
//! | file | does |
//! |--|--|
//! | `plan` | the order of the runs |
//! | `predict` | what the model says, from recordings of the load |
//! | `interval` | mean and interval of few differences |
//! | `left` | what a run with the setting leaves in memory for those without |
//! | `probe` | how long page allocations take meanwhile |
//! | `outcome` | what was predicted beside what was measured, and the verdict |
//!
//! Nothing here changes a setting: the caller runs the load, and puts everything back.

mod interval;
mod left;
mod outcome;
mod plan;
mod predict;
mod probe;

pub use self::interval::{Interval, mean_of, range_of};
pub use self::outcome::{By, End, Finding, Interruption, Measured, Outcome, Registered};
pub use self::plan::{Arm, BLOCKS_MIN, Plan};
pub use self::predict::{Counts, Predicted, Tried, predict, recorded_counts};
pub use self::probe::{Probe, ProbeError};
pub use crate::reclaim::HostTimes;

/// One run of the load, without recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// Processor time of the load, in seconds: of the command and its children, or of the host.
    pub cpu_s: f64,
    /// Seconds from its start to its end.
    pub elapsed_s: f64,
    /// The load's own figure; less is better.
    pub metric: Option<f64>,
    /// Where the CPUs' time went meanwhile, without that of background reclaim; `None`
    /// where the load is whatever runs.
    pub times: Option<HostTimes>,
    /// What the host read from its disks meanwhile, in GiB.
    pub read_gib: Option<f64>,
    /// 99th percentile of the probe's page allocations, in µs.
    pub probe_p99_us: Option<f64>,
}

/// When a setting hurts so much that no more runs are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hurts {
    /// The probe's p99 is this many times that of the slowest run without the setting.
    pub probe_times: f64,
    /// The load's own figure is this many times that of the worst run without the setting.
    pub metric_times: f64,
}

impl Default for Hurts {
    fn default() -> Hurts {
        Hurts { probe_times: 5.0, metric_times: 1.5 }
    }
}

impl Hurts {
    /// The probe's p99 at which a run with the setting is ended; `None` while nothing is known.
    pub fn probe_limit_us(&self, runs: &[(Arm, Run)]) -> Option<f64> {
        worst(runs, |run| run.probe_p99_us).map(|worst| worst * self.probe_times)
    }

    /// Why a run with the setting is the last one, if it is.
    pub fn after(&self, runs: &[(Arm, Run)], last: &Run) -> Option<String> {
        let limit = self.probe_limit_us(runs);
        if let (Some(p99), Some(limit)) = (last.probe_p99_us, limit)
            && p99 > limit
        {
            return Some(format!("the probe's p99 was {p99:.0} us, more than {limit:.0} us"));
        }
        let limit = worst(runs, |run| run.metric).map(|worst| worst * self.metric_times);
        match (last.metric, limit) {
            (Some(metric), Some(limit)) if metric > limit => {
                Some(format!("the load's own figure was {metric}, more than {limit:.3}"))
            }
            _ => None,
        }
    }
}

/// The largest figure of the runs without the setting.
fn worst(runs: &[(Arm, Run)], figure: fn(&Run) -> Option<f64>) -> Option<f64> {
    let now = runs.iter().filter(|(arm, _)| *arm == Arm::Now);
    now.filter_map(|(_, run)| figure(run)).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(metric: f64, p99: f64) -> Run {
        Run { metric: Some(metric), probe_p99_us: Some(p99), ..Run::default() }
    }

    #[test]
    fn a_setting_that_hurts_is_found_by_the_worst_run_without_it() {
        let hurts = Hurts { probe_times: 3.0, metric_times: 1.5 };
        let before = [(Arm::Now, run(10.0, 50.0)), (Arm::Now, run(12.0, 40.0))];
        assert_eq!(hurts.probe_limit_us(&before), Some(150.0));
        assert_eq!(hurts.after(&before, &run(17.0, 149.0)), None);
        assert!(hurts.after(&before, &run(12.0, 151.0)).unwrap().contains("p99 was 151 us"));
        assert!(hurts.after(&before, &run(19.0, 10.0)).unwrap().contains("own figure was 19"));
        // Runs with the setting set no standard, and before the first run there is none.
        let tried = [(Arm::Tried, run(10.0, 5.0))];
        assert_eq!(hurts.after(&tried, &run(1e9, 1e9)), None);
        assert_eq!(hurts.after(&before, &Run::default()), None, "without probe and figure");
    }
}
