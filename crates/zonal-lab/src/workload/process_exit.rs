//! The exit of a large process: threads on all CPUs touch its memory, each a part of its own, and
//! one of them gives back the pages of all, part by part, while the others begin the next process.
//! So lists are filled from zones on many CPUs and emptied into them on one, at the same time.
//!
//! What an exit does was recorded under 6.18: the same as unmapping ([`memory`](super::memory)).

use std::collections::VecDeque;

use zonal_core::types::Order;

use super::kind::{Kind, Param};
use super::memory::{Mapping, Memory, Setting};
use crate::cost::contents::Access;
use crate::cost::kernel::PROCESS_NS;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::MIB_PAGES;

pub(super) const KIND: Kind = Kind {
    name: "process-exit",
    about: "threads touch the memory of a large process, one of which frees all of it at its exit",
    params: &[
        Param {
            name: "mib",
            about: "MiB of a process",
            default: 1024,
            min: 1,
            max: 1 << 24,
            from: Provenance::estimated("a server's heap; larger ones exit longer, not otherwise"),
        },
        Param {
            name: "work",
            about: "nanoseconds that a thread works between two new pages",
            default: 1_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("reading and writing a page at 4 to 8 GB/s"),
        },
        Param {
            name: "groups",
            about: "groups, one in the other, that pages are charged to",
            default: 2,
            min: 0,
            max: 64,
            from: Provenance::estimated("a service is two levels below the root group"),
        },
    ],
    make: |values, cpus| Box::new(ProcessExit::new(cpus, values)),
};

/// Threads at work.
#[derive(Debug)]
pub struct ProcessExit {
    memory: Memory,
    pages: usize,
    work_ns: u64,
    /// Pages of the process that runs, and the part of each CPU.
    touched: usize,
    parts: Vec<Mapping>,
    /// What a CPU has to give back of a process that exits there.
    exits: Vec<VecDeque<Mapping>>,
}

impl ProcessExit {
    /// With the numbers of [`KIND`].
    fn new(cpus: u32, values: &[u64]) -> ProcessExit {
        let [mib, work_ns, groups] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let setting = Setting { groups: groups as u32, ..Setting::default() };
        ProcessExit {
            memory: Memory::new(cpus, setting),
            pages: (mib * MIB_PAGES) as usize,
            work_ns,
            touched: 0,
            parts: (0..cpus).map(|_| Mapping::default()).collect(),
            exits: (0..cpus).map(|_| VecDeque::new()).collect(),
        }
    }

    /// A step of an exit on `cpu`.
    fn exit(&mut self, lab: &mut Lab<'_>, cpu: u32) {
        let Some(part) = self.exits[cpu as usize].front_mut() else { return };
        if self.memory.unmap(lab, part) {
            self.exits[cpu as usize].pop_front();
            if self.exits[cpu as usize].is_empty() {
                lab.load.done += 1;
                lab.kernel_ns(PROCESS_NS);
            }
        }
    }

    /// The next page of a thread. Who touches the last one, or is refused one, ends the process.
    fn touch(&mut self, lab: &mut Lab<'_>, cpu: u32) {
        lab.user_ns(self.work_ns);
        let page = self.memory.fault(lab, cpu, &mut self.parts[cpu as usize], None);
        self.touched += usize::from(page.is_some());
        page.into_iter().for_each(|page| lab.user_touch(page, Order::ZERO, 1, Access::Write));
        if self.touched >= self.pages || (page.is_none() && self.touched > 0) {
            self.exits[cpu as usize].extend(self.parts.iter_mut().map(std::mem::take));
            self.touched = 0;
        }
    }
}

impl Program for ProcessExit {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        lab.allocator.platform().set_idle(cpu, false);
        match self.exits[cpu as usize].is_empty() {
            true => self.touch(lab, cpu),
            false => self.exit(lab, cpu),
        }
        Turn::More
    }

    /// The first process is about to exit.
    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let memory = u64::from(lab.machine.nodes()) * lab.machine.memory_mib * MIB_PAGES;
        let pages = self.pages.min(memory as usize);
        for cpu in 0..cpus {
            let left = pages.saturating_sub(self.touched + 1);
            lab.warm(self, cpu, left.min(pages.div_ceil(cpus as usize)) as u64);
        }
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let exits = self.exits.iter_mut().flatten();
        self.parts.iter_mut().chain(exits).for_each(|part| part.finish(lab));
    }
}
