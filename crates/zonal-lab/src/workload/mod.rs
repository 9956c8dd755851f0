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
//! A [`Program`] is a workload at work. It makes one call of one CPU at a time; its cost is up to
//! the machine and the cost model.

mod buffer_pool;
mod burst;
mod churn;
mod error;
mod handoff;
mod iperf;
mod kbuild;
mod kernbench;
mod kind;
mod kv_cache;
mod memory;
mod mix;
mod page_bench;
mod page_fault;
mod pairs;
mod process_exit;
mod purge;
mod redis;
mod sctp_many;
mod shuffled;
mod stress_vm;
pub mod tasks;
mod trace;
mod udp_stream;
mod unix_stream;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use burst::Burst;
pub use churn::Churn;
pub use error::WorkloadError;
pub use handoff::Handoff;
pub use iperf::Iperf;
pub use kbuild::{Kbuild, jobs_of};
pub use kernbench::{Kernbench, PAGES_OF_A_BUILD};
pub use kind::{Kind, Param};
pub use mix::Mix;
pub use page_bench::PageBench;
pub use page_fault::PageFault;
pub use redis::Redis;
pub use sctp_many::SctpMany;
pub use trace::Trace;
pub use udp_stream::UdpStream;
pub use unix_stream::UnixStream;

use crate::provenance::Given;
pub use crate::sim::{Program, Turn};

/// A kind with its numbers.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: &'static Kind,
    /// The file that it plays, for kinds that play one.
    file: String,
    values: Vec<u64>,
}

/// Numbers of workloads that are no parameters, each with its provenance.
pub(crate) const GIVEN: &[&[Given]] = &[
    buffer_pool::GIVEN,
    iperf::GIVEN,
    kbuild::GIVEN,
    kbuild::JOBS_GIVEN,
    kernbench::GIVEN,
    kv_cache::GIVEN,
    memory::GIVEN,
    mix::GIVEN,
    page_bench::GIVEN,
    page_fault::GIVEN,
    purge::GIVEN,
    redis::GIVEN,
    sctp_many::GIVEN,
    tasks::GIVEN,
    udp_stream::GIVEN,
    unix_stream::GIVEN,
];

/// Every kind of workload.
pub const KINDS: &[Kind] = &[
    page_bench::KIND,
    burst::KIND,
    churn::KIND,
    mix::KIND,
    shuffled::KIND,
    handoff::KIND,
    page_fault::KIND,
    process_exit::KIND,
    purge::KIND,
    stress_vm::KIND,
    kernbench::KIND,
    kbuild::KIND,
    unix_stream::KIND,
    udp_stream::KIND,
    sctp_many::KIND,
    redis::KIND,
    iperf::KIND,
    iperf::BANDWIDTH,
    kv_cache::KIND,
    buffer_pool::KIND,
    trace::KIND,
];

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
    /// A kind, with defaults for missing numbers.
    pub fn of(kind: &'static Kind) -> Workload {
        let values = kind.params.iter().map(|param| param.default).collect();
        Workload { kind, file: String::new(), values }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// The file or folder that it plays, if it plays one.
    pub fn file(&self) -> Option<&str> {
        Some(self.file.as_str()).filter(|file| !file.is_empty())
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
        let mut named: Vec<&str> = Vec::new();
        for number in numbers.split(',').filter(|number| !number.is_empty()) {
            if workload.kind.takes_file() && !number.contains('=') {
                number.clone_into(&mut workload.file);
                continue;
            }
            let (name, value) = number.split_once('=').unwrap_or((number, ""));
            workload.set(name, value)?;
            if named.contains(&name) {
                let (kind, name) = (workload.kind.name, name.to_owned());
                return Err(WorkloadError::Twice { kind, name });
            }
            named.push(name);
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
            ("burst:hold=1,order=0,hold=2", "burst: hold comes twice"),
        ] {
            let error = text.parse::<Workload>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
