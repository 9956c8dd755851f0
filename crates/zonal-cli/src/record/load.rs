//! What is recorded: a command of ours, a process of others, or whatever runs.
//!
//! - **LOAD-1** a command that was started here is waited for on every way out: it ends by itself,
//!   by the signal that ends the recording, or after a grace period by SIGKILL

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::output;

/// Between two looks at whether the load has ended.
pub const LOOK: Duration = Duration::from_millis(10);
/// A command that a terminal interrupts needs no signal of ours. This long is waited for it.
const BY_TERMINAL: Duration = Duration::from_secs(1);
/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// Where the standard output of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Where ours goes.
    Ours,
    /// Where our errors go.
    Errors,
    /// Nowhere.
    Dropped,
}

/// What ends the recording.
pub enum Load {
    /// A command that was started here.
    Command(Started),
    /// A process of others.
    Process(i32),
    /// A signal or the time.
    Whatever,
}

impl Load {
    /// Starts the command, if there is one.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn start(command: &[String], pid: Option<i32>, output: Output) -> anyhow::Result<Load> {
        let Some((program, rest)) = command.split_first() else {
            return Ok(pid.map_or(Load::Whatever, Load::Process));
        };
        let mut command = Command::new(program);
        match output {
            Output::Ours => {}
            Output::Errors => {
                command.stdout(io::stderr());
            }
            Output::Dropped => {
                command.stdout(Stdio::null());
            }
        }
        let child = command.args(rest).spawn();
        let child = child.with_context(|| format!("cannot run {program}"))?;
        Ok(Load::Command(Started { child, ended: false, failed: None }))
    }

    /// Waits until the load ends, the time is up, `signal` is not zero, or `goes_on` says no.
    ///
    /// # Errors
    /// If the command cannot be waited for.
    pub fn wait(
        &mut self,
        time: Option<Duration>,
        signal: &AtomicUsize,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            // Relaxed: the flag carries no data.
            let interrupted = signal.load(Ordering::Relaxed) != 0;
            let time_is_up = time.is_some_and(|time| begin.elapsed() >= time);
            if interrupted || time_is_up || self.has_ended()? || !goes_on() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The process of a command that was started here.
    pub fn command(&self) -> Option<i32> {
        match self {
            Load::Command(started) => i32::try_from(started.child.id()).ok(),
            _ => None,
        }
    }

    /// How a command ended, if it failed by itself.
    pub fn failed(&self) -> Option<ExitStatus> {
        match self {
            Load::Command(started) => started.failed,
            _ => None,
        }
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        match self {
            Load::Command(started) => started.has_ended(),
            Load::Process(pid) => Ok(!is_running(*pid)),
            Load::Whatever => Ok(false),
        }
    }

    /// Ends a command that still runs, with the signal that ended the recording or SIGTERM, and
    /// reaps it. A second signal meanwhile kills it.
    ///
    /// # Errors
    /// If the command cannot be waited for.
    pub fn end(&mut self, signal: &AtomicUsize) -> anyhow::Result<()> {
        let Load::Command(started) = self else { return Ok(()) };
        let first = signal.swap(0, Ordering::Relaxed);
        let sent = match first as i32 {
            signal_hook::consts::SIGINT => Signal::INT,
            signal_hook::consts::SIGHUP => Signal::HUP,
            _ => Signal::TERM,
        };
        if sent == Signal::INT && is_in_foreground() {
            started.ends_within(BY_TERMINAL, signal)?;
        }
        started.end(sent, signal)
    }
}

/// A command that was started here.
pub struct Started {
    child: Child,
    ended: bool,
    failed: Option<ExitStatus>,
}

impl Started {
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        if !self.ended
            && let Some(status) = self.child.try_wait()?
        {
            self.ended = true;
            if !status.success() {
                self.failed = Some(status);
                output::note(&format!("the command ended with {status}"));
            }
        }
        Ok(self.ended)
    }

    /// Whether it ends in this time, and before a signal comes.
    fn ends_within(&mut self, time: Duration, signal: &AtomicUsize) -> anyhow::Result<bool> {
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() >= time || signal.load(Ordering::Relaxed) != 0 {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    fn end(&mut self, with: Signal, signal: &AtomicUsize) -> anyhow::Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        // Not reaped yet, so the number is still its own.
        let pid = Pid::from_child(&self.child);
        let sent = kill_process(pid, with);
        if sent.is_err() || !self.ends_within(GRACE, signal)? {
            output::note("the command did not end when it was told to: it is killed");
            self.child.kill()?;
            self.child.wait()?;
            self.ended = true;
        }
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // LOAD-1 on the ways out of errors.
        let _ = self.end(Signal::TERM, &AtomicUsize::new(0));
    }
}

/// Whether what a terminal interrupts is this process's group, with its command.
fn is_in_foreground() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    groups(&stat).is_some_and(|(own, foreground)| own == foreground)
}

/// The process group, and the group in the foreground of its terminal (-1: there is none), of a
/// `/proc/PID/stat`: fields 5 and 8, after a name that may hold anything.
fn groups(stat: &str) -> Option<(i32, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.nth(2)?.parse().ok()?, fields.nth(2)?.parse().ok()?))
}

/// Whether a process runs: one that has ended stays in sight until its parent asks for it. Its
/// first thread may end before others.
pub fn is_running(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.filter_map(|stat| state(&stat)).any(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

/// The state in a `/proc/PID/stat`: the letter behind a name that may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_runs_no_more_though_nobody_has_asked_for_it() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(is_running(pid) && is_running(std::process::id() as i32));
        child.kill().unwrap();
        let mut load = Load::Process(pid);
        let begin = Instant::now();
        while !load.has_ended().unwrap() {
            assert!(begin.elapsed() < Duration::from_secs(60), "a zombie is waited for");
            std::thread::sleep(LOOK);
        }
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "still in sight");
        child.wait().unwrap();
        assert!(!is_running(pid));
        assert_eq!(state("12 (a) b) Z 1 34"), Some('Z'));
    }

    #[test]
    fn groups_are_found_behind_any_name() {
        assert_eq!(groups("12 (a) b) S 1 34 56 1025 78 4194304 9"), Some((34, 78)));
        assert_eq!(groups("12 (zonal) S 1 34 56 0 -1 4194304 9"), Some((34, -1)));
        assert_eq!(groups("12 (zonal) S 1"), None);
    }
}
