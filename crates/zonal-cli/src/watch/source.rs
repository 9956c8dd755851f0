//! Where readings come from.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use zonal::observed::{Observed, SNAPSHOT_BYTES_MAX};

use super::events::Events;
use super::rates::{DRAINED, LOCK_WAITS, REFILLED};
use super::reading::Reading;

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
    #[arg(long)]
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
        reading.of = format!("Linux {}", release.trim());
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
    let file = fs::File::open(path).with_context(|| {
        format!("{shown}: expected the file that a program names in Builder::observe")
    })?;
    ensure!(file.metadata()?.is_file(), "{shown}: expected a file");
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
    let is_there = Path::new(&format!("/proc/{}", observed.process)).exists();
    reading.remark = (!is_there).then(|| {
        format!("process {} is not there (or in another PID namespace)", observed.process)
    });
    reading.metrics = Some(observed.openmetrics.to_owned());
    Ok(reading)
}
