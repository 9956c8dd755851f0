//! Runs of the load on this host: recorded, or timed.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use zonal_replay::verify::{Arm, HostTimes, Probe, Run};
use zonal_replay::{ReplayError, Watch};
use zonal_text::vmstat;
use zonal_trace::Recording;
use zonal_trace::record::{Guard, Roots};

use super::args::VerifyArgs;
use crate::record::load::{Load, Output};
use crate::record::{self, RecordArgs};
use crate::verdict::Interrupted;

/// Fields of `/proc/self/stat`, behind the name: the processor time of children that were waited
/// for, in user and in system, in ticks.
const CHILDREN: [usize; 2] = [13, 14];
/// Columns of `/proc/stat`: user, nice, system, irq, softirq, steal.
const BUSY: [usize; 6] = [0, 1, 2, 5, 6, 7];

/// The number of the signal that came; zero while none did.
#[derive(Debug, Default)]
pub struct Signals {
    /// For the load, which is sent it; zero again then.
    pub load: Arc<AtomicUsize>,
    /// For the trial.
    pub all: Arc<AtomicUsize>,
}

/// A run without the load's own figure.
struct Once {
    run: Run,
    /// Processor time of others meanwhile, in seconds.
    elsewhere_s: f64,
    /// The probe's p99, which is in `run`, passed the limit: the load was ended early.
    is_cut: bool,
}

/// The load, and how it is run.
pub struct Bench<'a> {
    args: &'a VerifyArgs,
    signals: &'a Signals,
    file: PathBuf,
    directory: tempfile::TempDir,
    probe: Option<Probe>,
}

impl<'a> Bench<'a> {
    /// Checks what can be checked before anything is changed.
    ///
    /// # Errors
    /// A command that cannot be run, a setting that is not there.
    pub fn new(args: &'a VerifyArgs, signals: &'a Signals) -> anyhow::Result<Bench<'a>> {
        record::check_command(&args.command)?;
        let file = PathBuf::from("/proc/sys").join(args.setting.file());
        let name = &args.setting.name;
        ensure!(file.is_file(), "{name}: this kernel has no {}", file.display());
        let probe = match args.no_probe {
            true => None,
            false => Some(Probe::start(memfd_create("zonal-probe", MemfdFlags::CLOEXEC)?.into())?),
        };
        Ok(Bench { args, signals, file, directory: tempfile::tempdir()?, probe })
    }

    /// The setting's value now, with one space between its numbers.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn value(&self) -> anyhow::Result<String> {
        let text = fs::read_to_string(&self.file);
        let text = text.with_context(|| format!("{}", self.file.display()))?;
        Ok(text.split_whitespace().collect::<Vec<&str>>().join(" "))
    }

    /// The load, in words.
    pub fn load(&self) -> String {
        match self.args.duration {
            Some(time) => format!("whatever ran, {:.1} s", time.as_secs_f64()),
            None => {
                let before =
                    self.args.prepare.iter().map(|own| format!(" (before each run: {own})"));
                self.args.command.join(" ") + &before.collect::<String>()
            }
        }
    }

    /// Makes the host ready for a run.
    ///
    /// # Errors
    /// A command that fails, or an interruption.
    fn prepare(&self) -> anyhow::Result<()> {
        let Some(command) = &self.args.prepare else { return Ok(()) };
        let words = ["sh", "-c", command].map(str::to_owned);
        let mut own = Load::start(&words, None, Output::Dropped)?;
        own.wait(None, &self.signals.load, &mut || true)?;
        let failed = own.failed();
        own.end(&self.signals.load)?;
        self.check()?;
        match failed {
            Some(status) => bail!(
                "--prepare {command}: ended with {status}; expected success, because runs that \
                 begin unlike are not compared"
            ),
            None => Ok(()),
        }
    }

    /// Refuses to go on after a signal.
    ///
    /// # Errors
    /// If one came.
    pub fn check(&self) -> anyhow::Result<()> {
        let left = ": everything is put back, and there is no verdict";
        match self.interrupted() {
            Some(signal) => Err(Interrupted { signal, left }.into()),
            None => Ok(()),
        }
    }

    /// The signal that came, if one did.
    pub fn interrupted(&self) -> Option<i32> {
        // Relaxed: the flag carries no data.
        let signal = self.signals.all.load(Ordering::Relaxed);
        i32::try_from(signal).ok().filter(|signal| *signal != 0)
    }

    /// Does the work of a library, which a signal ends. `watch` is shown how far it is.
    ///
    /// # Errors
    /// Those of the work, or an interruption.
    pub fn work<T>(
        &self,
        watch: &mut Watch<'_>,
        work: impl FnOnce(&mut Watch<'_>) -> Result<T, ReplayError>,
    ) -> anyhow::Result<T> {
        let worked = work(&mut |progress| match self.interrupted() {
            Some(_) => ControlFlow::Break(()),
            None => watch(progress),
        });
        self.check()?;
        Ok(worked?)
    }

    /// Takes the host for timed runs: nobody records meanwhile.
    ///
    /// # Errors
    /// If a recorder is at work, or no guard can be started.
    pub fn take(&self) -> anyhow::Result<Guard> {
        record::take_guard(self.args.wait, &self.signals.load)
    }

    /// Writes the setting and puts it back at once.
    ///
    /// # Errors
    /// If this kernel refuses the value, whose range may be narrower than the model's.
    pub fn try_setting(&self, guard: &mut Guard) -> anyhow::Result<()> {
        let VerifyArgs { setting, .. } = self.args;
        let set = guard.set(&self.file, &setting.value);
        guard.restore()?;
        set.with_context(|| {
            format!("{}: this kernel refuses {}; nothing was run", setting.name, setting.value)
        })
    }

    /// Records the load once.
    ///
    /// # Errors
    /// The step that failed; everything is put back.
    pub fn record(&mut self, arm: Arm, number: u8) -> anyhow::Result<Recording> {
        let VerifyArgs { duration, buffer, no_touch, allow_drops, wait, command, .. } = self.args;
        let name = match arm {
            Arm::Now => format!("now-{number}.zonal"),
            Arm::Tried => format!("tried-{number}.zonal"),
        };
        let args = RecordArgs {
            duration: *duration,
            buffer: *buffer,
            no_touch: *no_touch,
            allow_drops: *allow_drops,
            wait: *wait,
            command: command.clone(),
            ..RecordArgs::to(self.directory.path().join(name))
        };
        self.prepare()?;
        let setting = (arm == Arm::Tried).then_some((&*self.file, &*self.args.setting.value));
        let signals = (&self.signals.load, record::Signals::Trial(&self.signals.all));
        let made = record::make(&args, signals, setting, Output::Dropped);
        // What a signal ended is no failure; what is left changed on the host is.
        if !made.as_ref().is_err_and(record::is_left) {
            self.check()?;
        }
        made?;
        Ok(Recording::open(&args.output)?)
    }

    /// Runs the load once as it is, outside the trial. Returns also the processor time of others
    /// meanwhile, in seconds.
    ///
    /// # Errors
    /// A load that fails, or an interruption.
    pub fn warm_up(&mut self) -> anyhow::Result<(Run, f64)> {
        self.prepare()?;
        let Once { run, elsewhere_s, .. } = self.once(None)?;
        self.check()?;
        Ok((run, elsewhere_s))
    }

    /// Runs the load once, and puts the setting back. With the probe's p99 above `limit_us` it is
    /// ended.
    ///
    /// # Errors
    /// A load that fails, or an interruption.
    pub fn time(
        &mut self,
        guard: &mut Guard,
        arm: Arm,
        limit_us: Option<f64>,
    ) -> anyhow::Result<Run> {
        self.check()?;
        self.prepare()?;
        if arm == Arm::Tried {
            guard.set(&self.file, &self.args.setting.value)?;
        }
        let run = self.once_with_metric(limit_us);
        guard.restore()?;
        self.check()?;
        run
    }

    /// Runs the load once, with its own figure. A load that was ended early has none.
    fn once_with_metric(&mut self, limit_us: Option<f64>) -> anyhow::Result<Run> {
        let Once { run, is_cut, .. } = self.once(limit_us)?;
        Ok(Run { metric: if is_cut { None } else { self.metric()? }, ..run })
    }

    fn once(&mut self, limit_us: Option<f64>) -> anyhow::Result<Once> {
        let probe = self.probe.as_ref();
        probe.inspect(|probe| probe.restart());
        let above_limit = || {
            let p99 = probe.and_then(Probe::p99_us)?;
            limit_us.filter(|limit| p99 > *limit).map(|_| p99)
        };
        let mut cut_at = None;
        let (begin, ticks) = (Instant::now(), self.ticks()?);
        let (reclaimers_ns, read_kib) = (self.reclaimers_ns(), read_kib());
        let stat = host_stat();
        let mut load = Load::start(&self.args.command, None, Output::Dropped)?;
        load.wait(self.args.duration, &self.signals.load, &mut || {
            cut_at = above_limit();
            cut_at.is_none()
        })?;
        let elapsed_s = begin.elapsed().as_secs_f64();
        // The figure that ended the load, not a later one, which may be below the limit again.
        let probe_p99_us = cut_at.or_else(|| probe.and_then(Probe::p99_us));
        let failed = load.failed();
        load.end(&self.signals.load)?;
        let hz = rustix::param::clock_ticks_per_second() as f64;
        let cpu_s = (self.ticks()? - ticks) as f64 / hz;
        let stat = host_stat().zip(stat);
        if let Some(status) = failed {
            bail!("the command ended with {status}: runs that fail are not compared");
        }
        let reclaim_ns = self.reclaimers_ns().saturating_sub(reclaimers_ns);
        let read = read_kib.zip(self::read_kib()).map(|(before, now)| now.saturating_sub(before));
        let read_gib = read.map(|kib| kib as f64 / f64::from(1 << 20));
        let all =
            stat.as_ref().and_then(|(now, before)| Some(busy(now)?.saturating_sub(busy(before)?)));
        // Of the host, as in a recording: a load may have daemons, which are no children.
        let stat = stat.filter(|_| self.args.duration.is_none());
        let times = stat.and_then(|(now, before)| {
            let times = HostTimes::parse(&now)?.since(HostTimes::parse(&before)?);
            Some(times.without(reclaim_ns))
        });
        let cpu_s = cpu_s + reclaim_ns as f64 / 1e9;
        let run = Run { cpu_s, elapsed_s, metric: None, times, read_gib, probe_p99_us };
        let elsewhere_s = (all.unwrap_or(0) as f64 / hz - cpu_s).max(0.0);
        Ok(Once { run, elsewhere_s, is_cut: cut_at.is_some() })
    }

    /// The load's own figure; less is better.
    fn metric(&self) -> anyhow::Result<Option<f64>> {
        let Some(command) = &self.args.metric_cmd else { return Ok(None) };
        let output = Command::new("sh").args(["-c", command]).output().context("cannot run sh")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.split_whitespace().rev().find_map(|word| word.parse::<f64>().ok());
        let figure = last.filter(|figure| figure.is_finite() && *figure > 0.0);
        let figure = figure.filter(|_| output.status.success()).with_context(|| {
            format!("--metric-cmd {command}: expected success and a number above 0, got `{text}`")
        })?;
        Ok(Some(if self.args.more_is_better { 1.0 / figure } else { figure }))
    }

    /// Processor time so far of the kernel's reclaim and compaction, which works for the load; in
    /// that of the host it is.
    fn reclaimers_ns(&self) -> u64 {
        match self.args.duration {
            Some(_) => 0,
            None => Roots::default().reclaimers().values().sum(),
        }
    }

    /// Processor time so far, in ticks: of children that ended, or of the host.
    fn ticks(&self) -> anyhow::Result<u64> {
        let path = if self.args.duration.is_some() { "/proc/stat" } else { "/proc/self/stat" };
        let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
        let ticks = match self.args.duration {
            Some(_) => busy(&text),
            None => children(&text),
        };
        ticks.with_context(|| format!("{path}: expected processor times in it"))
    }
}

/// KiB that this host has read from its disks so far.
fn read_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    vmstat::parse(&text).ok()?.value("pgpgin")
}

/// Processor time of children that ended, by a `/proc/PID/stat`.
fn children(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    sum(&fields, &CHILDREN)
}

/// `/proc/stat`.
fn host_stat() -> Option<String> {
    fs::read_to_string("/proc/stat").ok()
}

/// Processor time of all CPUs that was not idle, by `/proc/stat`.
fn busy(stat: &str) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    sum(&all.split_whitespace().collect::<Vec<_>>(), &BUSY)
}

fn sum(fields: &[&str], at: &[usize]) -> Option<u64> {
    at.iter().map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use zonal_replay::verify::Hurts;

    use super::*;

    #[test]
    fn a_load_that_is_ended_early_is_not_asked_for_its_figure() {
        // A load that has written no figure yet.
        let words = ["--metric-cmd", "cat /nowhere", "--", "sleep", "60"];
        let args = VerifyArgs::of_words(&words);
        let signals = Signals::default();
        let mut bench = match Bench::new(&args, &signals) {
            Ok(bench) => bench,
            Err(error) => {
                eprintln!("SKIPPED: {error:#}");
                return;
            }
        };
        let run = bench.once_with_metric(Some(0.0)).unwrap();
        assert_eq!(run.metric, None);
        assert!(run.elapsed_s < 60.0);
        let now = Run { probe_p99_us: Some(0.0), ..Run::default() };
        let reason = Hurts::default().after(&[(Arm::Now, now)], &run).unwrap();
        assert!(reason.contains("the probe's p99"), "{reason}");
        // One that came to its end is asked.
        assert!(bench.metric().unwrap_err().to_string().contains("--metric-cmd"));
    }

    #[test]
    fn processor_times_are_found() {
        let stat = "12 (a) b) S 1 34 56 0 -1 4194304 9 8 7 6 100 200 30 4 20 0 1 0 5";
        assert_eq!(children(stat), Some(34));
        assert_eq!(children("12 (zonal) S 1"), None);
        assert_eq!(busy("cpu  10 20 30 1000 50 1 2 3 7 7\ncpu0 1 2\n"), Some(66));
        assert_eq!(busy("intr 5\n"), None);
    }
}
