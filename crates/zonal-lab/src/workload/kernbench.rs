//! A kernel build, as the page allocator sees it: processes that start, work and touch one new page
//! after the other, which the kernel zeroes and they write, and free all of them when they exit. A
//! fixed number run at a time; the next one starts on an idle CPU, chosen at random.

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use crate::cost::contents::Access;
use crate::cost::kernel::{FAULT_NS, PROCESS_NS, UNMAP_NS};
use crate::provenance::{Provenance, cells, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::PAGE_LINES;

pub(super) const KIND: Kind = Kind {
    name: "kernbench",
    about: "processes that touch new pages as they work, and exit; a fixed number at a time",
    params: &[
        Param {
            name: "running",
            about: "processes that run at a time, in thousandths of the CPUs",
            default: 668,
            min: 1,
            max: 1000,
            from: Provenance::fitted(
                "the build is not parallel throughout",
                cells!["deferred-init/elapsed_amean/vanilla"],
            ),
        },
        Param {
            name: "pages",
            about: "pages that a process touches, on average; at random from a half to one and a \
                    half times as many",
            default: 2000,
            min: 2,
            max: 1 << 20,
            from: Provenance::estimated("a compiler of 2019 maps about 8 MiB"),
        },
        Param {
            name: "user",
            about: "nanoseconds that a process works between two new pages, alone on a core",
            default: 24_150,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::fitted(
                "how much a process works for each page",
                cells!["deferred-init/system_amean/vanilla"],
            ),
        },
    ],
    make: |values, cpus| Box::new(Kernbench::new(cpus, values[0], values[1], values[2])),
};

/// Processes on CPUs.
#[derive(Debug)]
pub struct Kernbench {
    cpus: Vec<Process>,
    /// CPUs without a process.
    idle: Vec<u32>,
    running: usize,
    pages: u64,
    user_ns: u64,
    /// Pages touched so far, by all processes.
    pub touched: u64,
}

/// A process, or none.
#[derive(Clone, Debug, Default)]
struct Process {
    held: Vec<Pfn>,
    /// Pages it has still to touch.
    left: u64,
    exits: bool,
    runs: bool,
}

given! {
    /// Pages that a build with allmodconfig touches.
    pub PAGES_OF_A_BUILD: f64 = 5.52e8,
        Provenance::fitted(
            "user time is that of its pages",
            cells!["deferred-init/user_amean/vanilla"],
        );
}

impl Kernbench {
    /// On `cpus` CPUs, with every number at its default.
    pub fn usual(cpus: u32) -> Kernbench {
        let [running, pages, user] = [0, 1, 2].map(|at| KIND.params[at].default);
        Kernbench::new(cpus, running, pages, user)
    }

    /// On `cpus` CPUs.
    pub fn new(cpus: u32, running_permille: u64, pages: u64, user_ns: u64) -> Kernbench {
        let running = (u64::from(cpus) * running_permille / 1000).max(1) as usize;
        let mut processes = vec![Process::default(); cpus as usize];
        // The first ones are spread over the machine, before any CPU is idle.
        for at in 0..running {
            processes[at * cpus as usize / running].runs = true;
        }
        Kernbench { cpus: processes, idle: Vec::new(), running, pages, user_ns, touched: 0 }
    }

    /// Processes that run at a time.
    pub fn running(&self) -> usize {
        self.running
    }

    /// The process of `cpu` is over: the next one starts on an idle CPU, or here.
    fn next(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let at = lab.random_below(self.idle.len() as u64 + 1) as usize;
        let Some(chosen) = self.idle.get_mut(at) else { return Turn::More };
        let other = std::mem::replace(chosen, cpu);
        self.cpus[cpu as usize].runs = false;
        self.cpus[other as usize].runs = true;
        lab.allocator.platform().set_idle(cpu, true);
        lab.wake(other);
        Turn::Wait
    }
}

impl Program for Kernbench {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let process = &mut self.cpus[cpu as usize];
        if !process.runs {
            self.idle.push(cpu);
            lab.allocator.platform().set_idle(cpu, true);
            return Turn::Wait;
        }
        if process.exits {
            lab.kernel_ns(UNMAP_NS);
            if let Some(page) = process.held.pop() {
                lab.free(page, Order::ZERO);
            }
            if process.held.is_empty() {
                process.exits = false;
                lab.load.done += 1;
                return self.next(lab, cpu);
            }
            return Turn::More;
        }
        if process.left == 0 {
            lab.allocator.platform().set_idle(cpu, false);
            process.left = self.pages / 2 + lab.random_below(self.pages) + 1;
            lab.kernel_ns(PROCESS_NS);
            return Turn::More;
        }
        lab.user_ns(self.user_ns);
        lab.kernel_ns(FAULT_NS);
        if let Some(page) = lab.alloc(Order::ZERO) {
            lab.touch(page, Order::ZERO, PAGE_LINES, Access::Write);
            lab.user_touch(page, Order::ZERO, PAGE_LINES, Access::Write);
            process.held.push(page);
            self.touched += 1;
            lab.load.faults += 1;
        }
        process.left -= 1;
        process.exits = process.left == 0;
        Turn::More
    }
}
