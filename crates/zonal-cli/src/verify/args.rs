//! Flags of `zonal verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use zonal_replay::verify::{BLOCKS_MIN, By, Hurts, Tried};

use crate::record::{duration, wait_time};

/// Flags of `zonal verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The sysctl to try, such as vm.percpu_pagelist_high_fraction=8.
    #[arg(long, value_name = "vm.NAME=VALUE", value_parser = Tried::parse)]
    pub setting: Tried,

    /// Try it on what runs already, in windows of this time, such as 10s: processor time is then
    /// that of the whole host.
    #[arg(long, value_parser = duration, conflicts_with = "command",
          required_unless_present = "command")]
    pub duration: Option<Duration>,

    /// Blocks of three runs in random order: two as it is, one with the setting.
    #[arg(long, default_value_t = BLOCKS_MIN, value_parser = blocks)]
    pub blocks: usize,

    /// Recordings of the load as it is, for the prediction, and with the setting, for counts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub recordings: u8,

    /// A command for `sh` before each run, recorded or not, such as
    /// 'sync; echo 1 > /proc/sys/vm/drop_caches', so that all of them begin alike. It is neither
    /// timed nor recorded, and the setting is not on meanwhile.
    #[arg(long, value_name = "COMMAND", conflicts_with = "duration")]
    pub prepare: Option<String>,

    /// A command that prints the load's own figure after each run; its last number is taken, and
    /// less is better. The verdict is then about this figure.
    #[arg(long, value_name = "COMMAND")]
    pub metric_cmd: Option<String>,

    /// What the verdict is about: `cpu`, processor time, or `time`, elapsed time, which needs a
    /// command. Without it: elapsed time where some was predicted to be saved, or else processor
    /// time.
    #[arg(long, value_name = "WHAT", value_parser = by, conflicts_with = "metric_cmd")]
    pub by: Option<By>,

    /// More of the load's own figure is better.
    #[arg(long, requires = "metric_cmd")]
    pub more_is_better: bool,

    /// End early when the load's own figure is this many times the worst one without the setting.
    #[arg(long, value_name = "TIMES", default_value_t = Hurts::default().metric_times,
          value_parser = times, requires = "metric_cmd")]
    pub metric_times: f64,

    /// End early when the p99 of the probe, which allocates 64 pages a hundred times a second, is
    /// this many times the worst one without the setting.
    #[arg(long, value_name = "TIMES", default_value_t = Hurts::default().probe_times,
          value_parser = times)]
    pub probe_times: f64,

    /// Run no probe.
    #[arg(long)]
    pub no_probe: bool,

    /// Draw the order of the runs from this number; the time, if there is none.
    #[arg(long)]
    pub seed: Option<u64>,

    /// MiB of ring for each CPU while recording.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub buffer: Option<u64>,

    /// Record without the cold start: no setting is changed but the one that is tried.
    #[arg(long)]
    pub no_touch: bool,

    /// Use recordings although events were dropped.
    #[arg(long)]
    pub allow_drops: bool,

    /// Wait this long for a recorder to end.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = wait_time)]
    pub wait: Duration,

    /// Write the prediction to this file before the first run, and the result over it at the end.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// If the setting is confirmed, write it to a file of this directory; from /etc/sysctl.d it is
    /// set at the next boot. It is not set now.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "/etc/sysctl.d",
          require_equals = true)]
    pub apply: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,

    /// What to run, each time from its start to its end. Its output is dropped.
    #[arg(last = true)]
    pub command: Vec<String>,
}

fn blocks(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (BLOCKS_MIN..=1000).contains(number));
    number.ok_or_else(|| format!("expected a number from {BLOCKS_MIN} to 1000"))
}

fn by(text: &str) -> Result<By, String> {
    match text {
        "cpu" => Ok(By::Cpu),
        "time" => Ok(By::Time),
        _ => Err("expected cpu or time".to_owned()),
    }
}

fn times(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 1.0);
    number.ok_or_else(|| "expected a number above 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        verify: VerifyArgs,
    }

    impl VerifyArgs {
        /// For other tests: the flags of a command line that tries a harmless setting.
        pub fn of_words(more: &[&str]) -> VerifyArgs {
            let first = ["verify", "--setting", "vm.stat_interval=9"];
            Line::parse_from(first.iter().chain(more)).verify
        }
    }

    #[test]
    fn fewer_than_five_blocks_and_limits_below_one_are_refused() {
        assert_eq!(blocks("5"), Ok(5));
        for bad in ["4", "1001", "x"] {
            assert!(blocks(bad).is_err(), "{bad}");
        }
        assert_eq!(times("1.5"), Ok(1.5));
        assert_eq!((by("cpu"), by("time")), (Ok(By::Cpu), Ok(By::Time)));
        assert!(by("metric").unwrap_err().contains("cpu or time"));
        for bad in ["1", "0", "-3", "inf", "NaN"] {
            assert!(times(bad).is_err(), "{bad}");
        }
    }
}
