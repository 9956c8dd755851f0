//! What the CPUs of a lab machine do, as data: a kind and its numbers, written
//! `burst:hold=256,order=0,lines=64`. Numbers that are left out have their default.
//!
//! ```
//! use zonal_lab::workload::Workload;
//!
//! let workload: Workload = "burst:hold=64".parse().unwrap();
//! assert_eq!(workload.to_string(), "burst:hold=64,order=0,lines=64");
//! assert!("burst:hold=0".parse::<Workload>().is_err());
//! ```
//! A [`Program`] is a workload at work. It makes one call of one CPU at a time; what a call costs
//! is the machine's and the cost model's business.

mod burst;
mod churn;
mod fsmark;
mod handoff;
mod iperf;
mod kbuild;
mod kernbench;
mod largedd;
mod page_bench;
mod pairs;
mod redis;
mod sctp_many;
mod streamwriter;
pub mod tasks;
mod trace;
mod unix_stream;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use zonal_core::types::Order;

pub use burst::Burst;
pub use churn::Churn;
pub use fsmark::FsMark;
pub use handoff::Handoff;
pub use iperf::Iperf;
pub use kbuild::{Kbuild, jobs_of};
pub use kernbench::Kernbench;
pub use largedd::LargeDd;
pub use page_bench::PageBench;
pub use redis::Redis;
pub use sctp_many::SctpMany;
pub use streamwriter::StreamWriter;
pub use trace::Trace;
pub use unix_stream::UnixStream;

use crate::sim::{Lab, PAGE_LINES};

/// A workload at work.
pub trait Program {
    /// The next step of `cpu`, whose turn it is.
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn;

    /// Brings the CPUs `0..cpus` to different places of what they do, in no time, before they
    /// start. Most workloads get there by themselves in the time that is not measured.
    fn scatter(&mut self, _lab: &mut Lab<'_>, _cpus: u32) {}

    /// Calls of a recording that it plays once and has not come to yet.
    fn unplayed(&self) -> u64 {
        0
    }

    /// It is over: what it holds goes back, from the CPU whose turn it is. Programs that a run just
    /// leaves as they are do nothing.
    fn finish(&mut self, _lab: &mut Lab<'_>) {}

    /// Its processes end, and what they hold goes back; what a machine keeps in memory after that,
    /// as files, stays.
    fn stop(&mut self, lab: &mut Lab<'_>) {
        self.finish(lab);
    }
}

/// What a CPU does after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It goes on.
    More,
    /// It is idle until another CPU wakes it ([`Lab::wake`]).
    Wait,
    /// It is idle until its clock stands at so many cycles.
    Until(u64),
    /// It has nothing more to do.
    Done,
}

/// A kind of workload.
#[derive(Debug)]
pub struct Kind {
    /// What the command line calls it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its numbers, in the order in which they are printed.
    pub params: &'static [Param],
    make: fn(&[u64], u32) -> Box<dyn Program>,
}

/// A number of a workload.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it is if nobody says.
    pub default: u64,
    /// The smallest it may be.
    pub min: u64,
    /// The largest it may be.
    pub max: u64,
}

/// A kind with its numbers.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: &'static Kind,
    /// The file that it plays, for kinds that play one.
    file: String,
    values: Vec<u64>,
}

/// Why a text is no workload.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorkloadError {
    /// No kind has this name.
    #[error("no workload is called '{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// It has no such number.
    #[error("{kind} has no '{name}'; it takes {known}")]
    Parameter {
        /// The workload.
        kind: &'static str,
        /// What was written.
        name: String,
        /// What it takes.
        known: String,
    },
    /// A kind that plays a file, without one.
    #[error("{0}: which file? expected {0}:FILE, and numbers after it, as {0}:FILE,copies=2")]
    NoFile(&'static str),
    /// A recording that cannot be played.
    #[error("trace: {0}")]
    Trace(String),
    /// No jobs of a build.
    #[error("kbuild: {0}")]
    Jobs(String),
    /// A number is none, or cannot be.
    #[error("{kind}: {name} is '{value}'; expected a whole number from {min} to {max}")]
    Value {
        /// The workload.
        kind: &'static str,
        /// The number's name.
        name: &'static str,
        /// What was written.
        value: String,
        /// The smallest it may be.
        min: u64,
        /// The largest it may be.
        max: u64,
    },
}

/// Every kind of workload.
pub const KINDS: &[Kind] = &[
    page_bench::KIND,
    burst::KIND,
    churn::KIND,
    handoff::KIND,
    kernbench::KIND,
    kbuild::KIND,
    unix_stream::KIND,
    sctp_many::KIND,
    redis::KIND,
    iperf::KIND,
    trace::KIND,
];

/// The order of the blocks, as most workloads have it.
const ORDER: Param =
    Param { name: "order", about: "order of each block", default: 0, min: 0, max: 9 };

/// Lines that are written of a new block: a whole page.
const LINES: Param = Param {
    name: "lines",
    about: "lines written of each block that is allocated, from its first on",
    default: PAGE_LINES,
    min: 0,
    max: PAGE_LINES << 9,
};

impl Kind {
    /// Whether it plays a file, whose name stands before its numbers.
    pub fn takes_file(&self) -> bool {
        self.needs_file() || self.name == kbuild::KIND.name
    }

    /// Whether it has nothing to play without one.
    pub fn needs_file(&self) -> bool {
        self.name == trace::KIND.name
    }
}

impl Workload {
    /// A kind with the numbers that nobody gave at their defaults.
    pub fn of(kind: &'static Kind) -> Workload {
        let values = kind.params.iter().map(|param| param.default).collect();
        Workload { kind, file: String::new(), values }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// One of its numbers, if it has it.
    pub fn get(&self, name: &str) -> Option<u64> {
        let at = self.kind.params.iter().position(|param| param.name == name)?;
        Some(self.values[at])
    }

    /// Sets one of its numbers.
    ///
    /// # Errors
    /// [`WorkloadError`] for a name it does not have, and for a value that cannot be; the old value
    /// stays.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WorkloadError> {
        let kind = self.kind;
        let at = kind.params.iter().position(|param| param.name == name).ok_or_else(|| {
            let known: Vec<&str> = kind.params.iter().map(|param| param.name).collect();
            WorkloadError::Parameter {
                kind: kind.name,
                name: name.to_owned(),
                known: known.join(", "),
            }
        })?;
        let Param { name, min, max, .. } = kind.params[at];
        let number = value.parse().ok().filter(|number| (min..=max).contains(number));
        self.values[at] = number.ok_or_else(|| WorkloadError::Value {
            kind: kind.name,
            name,
            value: value.to_owned(),
            min,
            max,
        })?;
        Ok(())
    }

    /// Whether it can be played, as far as can be said without playing it.
    ///
    /// # Errors
    /// [`WorkloadError`] for a file that is missing or is no recording.
    pub fn check(&self) -> Result<(), WorkloadError> {
        match self.file.as_str() {
            "" if self.kind.needs_file() => Err(WorkloadError::NoFile(self.kind.name)),
            "" => Ok(()),
            file if self.kind.name == kbuild::KIND.name => kbuild::check(file),
            file => trace::check(file),
        }
    }

    /// It, about to start on `cpus` CPUs.
    ///
    /// # Errors
    /// [`WorkloadError`] for a file that cannot be played there.
    pub fn program(&self, cpus: u32) -> Result<Box<dyn Program>, WorkloadError> {
        match self.file.as_str() {
            "" => Ok((self.kind.make)(&self.values, cpus)),
            file if self.kind.name == kbuild::KIND.name => {
                let jobs = Arc::new(kbuild::jobs_of(file)?);
                Ok(Box::new(Kbuild::new(jobs, &self.values, cpus)))
            }
            file => Ok(Box::new(Trace::open(file, &self.values, cpus)?)),
        }
    }
}

impl PartialEq for Workload {
    fn eq(&self, other: &Workload) -> bool {
        let same = self.kind.name == other.kind.name && self.file == other.file;
        same && self.values == other.values
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Workload, WorkloadError> {
        let (name, numbers) = text.split_once(':').unwrap_or((text, ""));
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let mut workload = Workload::of(kind.ok_or_else(|| WorkloadError::Unknown {
            name: name.to_owned(),
            known: KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "),
        })?);
        for number in numbers.split(',').filter(|number| !number.is_empty()) {
            if workload.kind.takes_file() && !number.contains('=') {
                number.clone_into(&mut workload.file);
                continue;
            }
            let (name, value) = number.split_once('=').unwrap_or((number, ""));
            workload.set(name, value)?;
        }
        Ok(workload)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        let mut before = ':';
        if !self.file.is_empty() {
            write!(f, ":{}", self.file)?;
            before = ',';
        }
        for (param, value) in self.kind.params.iter().zip(&self.values) {
            write!(f, "{before}{}={value}", param.name)?;
            before = ',';
        }
        Ok(())
    }
}

/// An order that has passed its parameter's bounds.
fn order(value: u64) -> Order {
    Order::new(value as u32).unwrap_or(Order::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_read_as_it_is_printed() {
        for kind in KINDS {
            let workload = Workload::of(kind);
            assert_eq!(workload.to_string().parse::<Workload>().as_ref(), Ok(&workload));
            for param in kind.params {
                assert!((param.min..=param.max).contains(&param.default), "{}", param.name);
                assert_eq!(workload.get(param.name), Some(param.default));
            }
        }
        let burst: Workload = "burst:order=3".parse().unwrap();
        assert_eq!((burst.get("order"), burst.get("depth")), (Some(3), None));
        assert_ne!(burst, "burst".parse().unwrap());
    }

    #[test]
    fn what_is_no_workload_is_refused_with_what_there_is() {
        for (text, expected) in [
            ("nonsense", "page-bench"),
            ("", "page-bench"),
            ("burst:depth=3", "it takes hold, order"),
            ("burst:hold", "whole number from 1"),
            ("burst:hold=-1", "whole number from 1"),
            ("burst:order=10", "from 0 to 9"),
        ] {
            let error = text.parse::<Workload>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
