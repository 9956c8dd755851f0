//! Where readings come from.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use zonal::observed::{Observed, SNAPSHOT_BYTES_MAX};

use super::events::Events;
use super::rates::{DRAINED, LOCK_WAITS, REFILLED};
use super::reading::{Reading, shown};

/// A pool's figures are old after this. Refresh intervals are shorter, as a rule.
const OLD_S: f64 = 10.0;

/// What to look at.
#[derive(Args, Debug, Clone)]
pub struct SourceArgs {
    /// A pool instead of the kernel: the file that its program names in `Builder::observe`.
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,

    /// Read the kernel's texts in this directory, such as a copy of another host's /proc.
    #[arg(long, value_name = "DIR", default_value = "/proc", conflicts_with = "pool")]
    pub proc: PathBuf,

    /// Do not count refills, drains and waits for locks. Counting needs root, and
    /// costs the host a little for each of them.
    #[arg(long, conflicts_with = "pool")]
    pub no_events: bool,
}

/// A source that is open.
pub struct Source {
    args: SourceArgs,
    events: Option<Events>,
    begin: Instant,
}

impl Source {
    /// Opens it.
    pub fn new(args: &SourceArgs) -> Source {
        let is_kernel = args.pool.is_none() && args.proc == Path::new("/proc");
        let events = (is_kernel && !args.no_events).then(Events::start);
        Source { args: args.clone(), events, begin: Instant::now() }
    }

    /// Reads it now.
    ///
    /// # Errors
    /// A file that cannot be read or is none, by its name.
    pub fn read(&mut self) -> anyhow::Result<Reading> {
        let mut reading = match &self.args.pool {
            Some(path) => pool(path)?,
            None => self.kernel()?,
        };
        if self.args.pool.is_none() {
            reading.at_s = self.begin.elapsed().as_secs_f64();
        }
        Ok(reading)
    }

    fn kernel(&mut self) -> anyhow::Result<Reading> {
        let text = |name: &str| {
            let path = self.args.proc.join(name);
            fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
        };
        let mut reading = Reading::parse(&text("zoneinfo")?, &text("buddyinfo")?, &text("vmstat")?)
            .with_context(|| format!("{}", self.args.proc.display()))?;
        let release = text("sys/kernel/osrelease").unwrap_or_default();
        reading.of = format!("Linux {}", shown(release.trim())).trim_end().to_owned();
        let own = rustix::param::page_size() as u64;
        reading.page_bytes = match self.args.proc == Path::new("/proc") {
            true => own,
            // Another host's.
            false => {
                text("meminfo").ok().and_then(|text| reading.page_bytes_by(&text)).unwrap_or(own)
            }
        };
        if let Some(events) = &mut self.events {
            reading.counters.extend(events.read());
            reading.remark.clone_from(&events.remark);
        }
        Ok(reading)
    }
}

/// Reads a pool's file.
fn pool(path: &Path) -> anyhow::Result<Reading> {
    let shown = path.display();
    let expected =
        || format!("{shown}: expected a file, the one that a program names in Builder::observe");
    // Before it is opened: a pipe would be waited for.
    ensure!(fs::metadata(path).with_context(expected)?.is_file(), "{}", expected());
    let file = fs::File::open(path).with_context(expected)?;
    let mut text = String::new();
    file.take(SNAPSHOT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("{shown}"))?;
    let observed = Observed::parse(&text).with_context(|| format!("{shown}"))?;
    let mut reading = Reading::parse(observed.zoneinfo, observed.buddyinfo, observed.vmstat)
        .with_context(|| format!("{shown}"))?;
    reading.of = format!("pool of process {}", observed.process);
    reading.at_s = observed.at_ms as f64 / 1000.0;
    let metric = |name: &str| {
        let samples = observed.openmetrics.lines().filter_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            let bare = key.split('{').next()?;
            (bare == name).then(|| value.parse::<u64>().ok())?
        });
        samples.reduce(u64::saturating_add)
    };
    for (ours, metric_name) in [
        (REFILLED, "zonal_zone_refilled_pages_total"),
        (DRAINED, "zonal_zone_drained_pages_total"),
        (LOCK_WAITS, "zonal_zone_lock_contended_total"),
    ] {
        reading.counters.extend(metric(metric_name).map(|value| (ours.to_owned(), value)));
    }
    let now_s = seconds_now();
    let age_s = (now_s - reading.at_s).max(0.0);
    let is_there = Path::new(&format!("/proc/{}", observed.process)).exists();
    reading.remark = remark(observed.process, is_there, age_s);
    reading.is_over = !is_there && age_s > OLD_S;
    reading.age_s = Some(age_s);
    reading.metrics = Some(observed.openmetrics.to_owned());
    Ok(reading)
}

/// Seconds of the clock that pools write down.
fn seconds_now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What is wrong with a pool's reading of so many seconds ago.
fn remark(process: u32, is_there: bool, age_s: f64) -> Option<String> {
    match (is_there, age_s > OLD_S) {
        (false, _) => Some(format!(
            "process {process} is not there (or in another PID namespace); \
             figures of {age_s:.0} s ago"
        )),
        (true, true) => Some(format!("figures of {age_s:.0} s ago")),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_figures_are_said_to_be_old() {
        assert_eq!(remark(7, true, 1.0), None);
        assert_eq!(remark(7, true, 61.0).unwrap(), "figures of 61 s ago");
        let gone = remark(7, false, 0.5).unwrap();
        assert!(gone.starts_with("process 7 is not there"), "{gone}");
    }
}
