//! Which step of a recording failed, why, and what still works without it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel says that it is locked down.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// A step of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Finding tracefs.
    Find,
    /// Taking the lock: one recorder at a time.
    Lock,
    /// Undoing what a recorder that was killed left.
    Recover,
    /// Starting the process that puts everything back.
    Guard,
    /// Making an instance, with its own rings and switches.
    Instance,
    /// Choosing clock, sizes and events.
    Settings,
    /// Emptying the per-CPU lists through `vm.percpu_pagelist_high_fraction`.
    ColdStart,
    /// Changing a setting that is tried.
    Setting,
    /// Putting a setting back that was tried.
    Restore,
    /// Reading `/proc/zoneinfo` and the other files that describe the machine.
    Machine,
    /// Switching on and off.
    Switch,
    /// Taking the pages out of the rings.
    Rings,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Find => "find tracefs",
            Step::Lock => "take this host for a recording",
            Step::Recover => "undo what a recorder left that was killed",
            Step::Guard => "start the guard that puts settings back",
            Step::Instance => "make a trace instance",
            Step::Settings => "set up the trace instance",
            Step::ColdStart => "empty the per-CPU lists",
            Step::Setting => "change a setting",
            Step::Restore => "put a setting back",
            Step::Machine => "read the machine's state",
            Step::Switch => "switch tracing on or off",
            Step::Rings => "read the rings",
        }
    }

    /// What works without it.
    fn remains(self, error: &io::Error) -> &'static str {
        match self {
            Step::Lock if error.kind() == io::ErrorKind::WouldBlock => {
                "`--wait 10m` waits until the other recorder ends"
            }
            Step::Recover => "nothing is recorded until that is done",
            Step::Setting => "nothing is changed; `sysctl -a` lists the settings of this kernel",
            Step::Restore => "the guard tries that again at the end, and says if it fails too",
            Step::ColdStart => "`--no-touch` records without this step, with lists as they are",
            Step::Rings
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                "the ring pages lie in a folder beside the output until that is made: expected \
                 room for them there, up to `--buffer` for each CPU"
            }
            Step::Rings | Step::Switch => "a longer `--buffer` or a shorter recording may help",
            _ => {
                "what still works: `zonal trace` and `zonal replay` of recordings made elsewhere, \
                 by `zonal record`, trace-cmd or perf; `zonal conform --live`"
            }
        }
    }
}

/// A step that failed. Everything that was changed before is put back.
#[derive(Debug)]
pub struct RecordError {
    step: Step,
    path: PathBuf,
    source: io::Error,
}

impl RecordError {
    pub(crate) fn new(step: Step, path: &Path, source: io::Error) -> RecordError {
        RecordError { step, path: path.to_owned(), source }
    }

    /// The step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Whether another recorder has the host: it may be free later.
    pub fn is_held(&self) -> bool {
        self.step == Step::Lock && self.source.kind() == io::ErrorKind::WouldBlock
    }

    /// The meaning of the system's error at this step.
    fn reason(&self) -> String {
        let root = rustix::process::geteuid().is_root();
        match self.source.kind() {
            io::ErrorKind::PermissionDenied if !root => "; this needs root".to_owned(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                match lockdown(&std::fs::read_to_string(LOCKDOWN).unwrap_or_default()) {
                    Some(mode) => format!("; the kernel is locked down ({mode})"),
                    None => "; this container, or a security module, does not allow it".to_owned(),
                }
            }
            io::ErrorKind::NotFound if self.step == Step::Find => {
                "; `mount -t tracefs tracefs /sys/kernel/tracing` mounts it where the kernel has it"
                    .to_owned()
            }
            io::ErrorKind::OutOfMemory => {
                "; the kernel gives rings no more than MemAvailable of /proc/meminfo, without what \
                 `min_free_kbytes` keeps: `--buffer` sets smaller ones, and `sync; echo 1 > \
                 /proc/sys/vm/drop_caches` first makes room that files take"
                    .to_owned()
            }
            _ => String::new(),
        }
    }
}

/// The mode in brackets, unless that is `none`.
fn lockdown(text: &str) -> Option<&str> {
    let mode = text.split_once('[')?.1.split_once(']')?.0;
    (mode != "none").then_some(mode)
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordError { step, path, source } = self;
        let (name, reason, remains) = (step.name(), self.reason(), step.remains(source));
        write!(f, "cannot {name}: {}: {source}{reason}; {remains}", path.display())
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_step_file_reason_and_what_remains() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let text = RecordError::new(Step::Find, Path::new("/sys/kernel/tracing"), error);
        let text = text.to_string();
        for part in ["cannot find tracefs", "/sys/kernel/tracing", "mount -t", "still works"] {
            assert!(text.contains(part), "{text}");
        }
        // Waiting helps only against another recorder.
        for (kind, helps) in
            [(io::ErrorKind::WouldBlock, true), (io::ErrorKind::ReadOnlyFilesystem, false)]
        {
            let error = RecordError::new(Step::Lock, Path::new("/run/zonal"), kind.into());
            assert_eq!(error.to_string().contains("--wait"), helps, "{error}");
        }
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        let text = RecordError::new(Step::Settings, Path::new("x"), error).to_string();
        assert!(text.contains("--buffer"), "{text}");
    }

    #[test]
    fn modes_of_lockdown() {
        assert_eq!(lockdown("none integrity [confidentiality]\n"), Some("confidentiality"));
        assert_eq!(lockdown("[none] integrity confidentiality\n"), None);
        assert_eq!(lockdown(""), None);
    }
}
