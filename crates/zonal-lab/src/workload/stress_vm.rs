//! `stress-ng --vm`: workers that map memory, write and check it by one pattern after the other,
//! and unmap it. The memory is divided among the workers, so on many CPUs each maps little, and
//! often.
//!
//! Recorded under 6.18 with stress-ng 0.15.06: pages are touched one after the other before the
//! work, and all are freed together after it. How long a pattern takes differs from 1 to 80
//! microseconds a page; `work` is their mean.

use super::kind::{Kind, Param};
use super::memory::Setting;
use super::page_fault::{PageFault, Shape};
use crate::provenance::Provenance;
use crate::units::MIB_PAGES;

pub(super) const KIND: Kind = Kind {
    name: "stress-vm",
    about: "workers that map memory, work on it and unmap it, as stress-ng --vm",
    params: &[
        Param {
            name: "mib",
            about: "MiB of all workers together (--vm-bytes)",
            default: 256,
            min: 1,
            max: 1 << 20,
            from: Provenance::sourced("stress-ng, --vm-bytes: 256 MB, divided among the workers"),
        },
        Param {
            name: "workers",
            about: "workers; 0: one on each CPU that takes part",
            default: 0,
            min: 0,
            max: 65_536,
            from: Provenance::sourced("stress-ng --vm 0: one for each CPU"),
        },
        Param {
            name: "work",
            about: "nanoseconds that a worker works on a page before it unmaps it",
            default: 8_100,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::measured(
                "stress-ng 0.15.06 with 3.5 MiB for each of two workers on a virtual EPYC, 2026: \
                 0.70 s of user time for 86,000 faults",
            ),
        },
    ],
    make: |values, cpus| Box::new(workers(cpus, values)),
};

/// Workers with the numbers of [`KIND`].
fn workers(cpus: u32, values: &[u64]) -> PageFault {
    let [mib, workers, work_ns] = *values else {
        unreachable!("a workload has the numbers of its kind")
    };
    let count = if workers == 0 { u64::from(cpus) } else { workers };
    let pages = (mib * MIB_PAGES / count).max(1) as usize;
    let processes = workers as usize;
    let setting = Setting::default();
    PageFault::new(cpus, Shape { pages, file: false, processes, work_ns, setting })
}
