//! The memory test of will-it-scale: each process maps memory, writes to each of its pages and
//! unmaps it, over and over. `page_fault1` maps memory of its own, `page_fault2` a private copy of
//! a file, and the `_threads` variants do it in one address space.
//!
//! Process `p` is bound to CPU `p`, which is core after core, first threads before second ones.
//! More processes than CPUs take turns. Left out: interrupts that tell other CPUs of a process
//! about unmapped addresses, which come once for thousands of pages, and sleeping for the lock of
//! an address space, which only mapping and unmapping take for themselves.

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use super::memory::{self, Mapping, Memory, Setting};
use crate::cost::contents::Access;
use crate::cost::kernel::{FAULT_NS, SLICE_NS, SWITCH_NS, UNMAP_NS};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{MIB_PAGES, PAGE_LINES};

pub(super) const KIND: Kind = Kind {
    name: "page-fault",
    about: "processes that map memory, write each page and unmap it: page_fault1, and with \
            file=1 page_fault2",
    params: &[
        Param {
            name: "mib",
            about: "MiB that are mapped at a time",
            default: 128,
            min: 1,
            max: 1 << 20,
            from: Provenance::sourced("will-it-scale, page_fault1 and page_fault2: 128 MiB"),
        },
        Param {
            name: "file",
            about: "1: private copies of a file's pages, which are in memory (page_fault2)",
            default: 0,
            min: 0,
            max: 1,
            from: Provenance::sourced("will-it-scale: page_fault1 maps anonymous memory"),
        },
        Param {
            name: "processes",
            about: "processes or threads; 0: one on each CPU that takes part",
            default: 0,
            min: 0,
            max: 65_536,
            from: Provenance::sourced("will-it-scale is run with one for each CPU at most"),
        },
        Param {
            name: "mmap_lock",
            about: "1: threads of one process whose faults take the lock of its address space, as \
                    those of files do before 6.6 and all before 6.4",
            default: 0,
            min: 0,
            max: 1,
            from: Provenance::sourced("processes have address spaces of their own"),
        },
        Param {
            name: "groups",
            about: "groups, one in the other, that pages are charged to",
            default: 2,
            min: 0,
            max: 64,
            from: Provenance::estimated("a service is two levels below the root group"),
        },
        Param {
            name: "lru_batch",
            about: "new pages that reach the LRU list together: 31 since 6.8, 15 before",
            default: memory::FREED_TOGETHER as u64,
            min: 1,
            max: 512,
            from: Provenance::measured("events recorded under Linux 6.18, 2026"),
        },
        Param {
            name: "fault",
            about: "nanoseconds of a fault without the allocator and the page's contents",
            default: FAULT_NS,
            min: 0,
            max: 1_000_000,
            from: Provenance::estimated("as kernbench has; a virtual EPYC took three times that"),
        },
        Param {
            name: "unmap",
            about: "nanoseconds of unmapping a page without the allocator",
            default: UNMAP_NS,
            min: 0,
            max: 1_000_000,
            from: Provenance::estimated("as kernbench has; a virtual EPYC took 2.6 times that"),
        },
    ],
    make: |values, cpus| Box::new(PageFault::usual(cpus, values)),
};

given! {
    /// Mapping and unmapping without what they do for each page.
    MAP_NS: u64 = 15_000,
        Provenance::measured("a call that maps 16 to 128 MiB, Linux 6.18 on a virtual EPYC, 2026");
    /// Files fill at most one such part of memory.
    FILES_PART: u64 = 2,
        Provenance::estimated("beyond it a kernel would reclaim, which is not played");
}
/// Files come in blocks of this size.
const FILE_BLOCK: Order = Order::MAX;

/// What the processes do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Pages that each maps at a time.
    pub pages: usize,
    /// They are private copies of a file's.
    pub file: bool,
    /// Processes; 0: one on each CPU.
    pub processes: usize,
    /// How long a process works on each of its pages, once it has them all.
    pub work_ns: u64,
    pub setting: Setting,
}

/// Processes at work.
#[derive(Debug)]
pub struct PageFault {
    memory: Memory,
    shape: Shape,
    processes: Vec<Process>,
    /// Processes of each CPU.
    queues: Vec<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    processes: Vec<usize>,
    at: usize,
    /// When the one that runs began to, in cycles.
    since: u64,
}

#[derive(Debug, Default)]
struct Process {
    mapping: Mapping,
    /// Pages that it has worked on.
    worked: usize,
    doing: Doing,
    file: Vec<Pfn>,
}

/// What a process does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Doing {
    #[default]
    Touches,
    Works,
    Unmaps,
}

impl PageFault {
    /// With the numbers of [`KIND`].
    fn usual(cpus: u32, values: &[u64]) -> PageFault {
        let [mib, file, processes, lock, groups, lru_batch, fault_ns, unmap_ns] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let setting = Setting {
            fault_ns,
            unmap_ns,
            lru_batch: lru_batch as u32,
            groups: groups as u32,
            shared_lock: lock == 1,
        };
        let pages = (mib * MIB_PAGES) as usize;
        let (processes, file) = (processes as usize, file == 1);
        PageFault::new(cpus, Shape { pages, file, processes, work_ns: 0, setting })
    }

    /// Processes of this shape on `cpus` CPUs.
    pub(super) fn new(cpus: u32, shape: Shape) -> PageFault {
        let count = if shape.processes == 0 { cpus as usize } else { shape.processes };
        let mut queues: Vec<Queue> = (0..cpus).map(|_| Queue::default()).collect();
        for process in 0..count {
            queues[process % cpus as usize].processes.push(process);
        }
        PageFault {
            memory: Memory::new(cpus, shape.setting),
            shape,
            processes: (0..count).map(|_| Process::default()).collect(),
            queues,
        }
    }

    /// The next fault of a process. A refused page ends the round.
    fn touch(&mut self, lab: &mut Lab<'_>, cpu: u32, at: usize) {
        let process = &mut self.processes[at];
        let file = process.file_page();
        let page = self.memory.fault(lab, cpu, &mut process.mapping, file);
        page.into_iter().for_each(|page| lab.user_touch(page, Order::ZERO, 1, Access::Write));
        if process.mapping.len() >= self.shape.pages || page.is_none() {
            process.worked = 0;
            process.doing = if self.shape.work_ns > 0 { Doing::Works } else { Doing::Unmaps };
        }
    }

    /// A process works on its next page.
    fn work(&mut self, lab: &mut Lab<'_>, at: usize) {
        let process = &mut self.processes[at];
        match process.mapping.page(process.worked) {
            Some(page) => {
                lab.user_ns(self.shape.work_ns);
                lab.user_touch(page, Order::ZERO, PAGE_LINES, Access::Write);
                process.worked += 1;
            }
            None => process.doing = Doing::Unmaps,
        }
    }

    fn unmap(&mut self, lab: &mut Lab<'_>, at: usize) {
        let process = &mut self.processes[at];
        if self.memory.unmap(lab, &mut process.mapping) {
            process.doing = Doing::Touches;
            lab.load.done += 1;
            lab.kernel_ns(MAP_NS);
        }
    }

    /// The process whose turn it is on `cpu`.
    fn current(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Option<usize> {
        let queue = &mut self.queues[cpu as usize];
        if queue.processes.len() > 1 {
            let now = lab.allocator.platform().clock();
            if now >= queue.since + (SLICE_NS as f64 * lab.machine.ghz) as u64 {
                (queue.at, queue.since) = ((queue.at + 1) % queue.processes.len(), now);
                lab.kernel_ns(SWITCH_NS);
            }
        }
        queue.processes.get(queue.at).copied()
    }
}

impl Process {
    /// The page of its file at the next address.
    fn file_page(&self) -> Option<Pfn> {
        let at = self.mapping.len() as u64;
        let block = self.file.get((at / FILE_BLOCK.pages()) as usize)?;
        Some(Pfn(block.0 + at % FILE_BLOCK.pages()))
    }
}

impl Program for PageFault {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let Some(at) = self.current(lab, cpu) else { return Turn::Done };
        lab.allocator.platform().set_idle(cpu, false);
        match self.processes[at].doing {
            Doing::Touches => self.touch(lab, cpu, at),
            Doing::Works => self.work(lab, at),
            Doing::Unmaps => self.unmap(lab, at),
        }
        Turn::More
    }

    /// Files are in memory, and each process is somewhere in its round, whose unmapping is a fifth
    /// of its steps.
    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let memory = u64::from(lab.machine.nodes()) * lab.machine.memory_mib * MIB_PAGES;
        let room = memory / self.processes.len() as u64;
        lab.allocator.platform().charge(false);
        if self.shape.file {
            let most = room / FILES_PART;
            let blocks = (self.shape.pages as u64).min(most).div_ceil(FILE_BLOCK.pages());
            for (at, process) in self.processes.iter_mut().enumerate() {
                lab.allocator.platform().turn(at as u32 % cpus, 0);
                let block = Request::new(FILE_BLOCK).gfp(Gfp::HIGHUSER_MOVABLE);
                process.file.extend((0..blocks).map_while(|_| lab.request(block)));
            }
        }
        let pages = (self.shape.pages as u64).min(room);
        let steps = pages * 5 / 4 + if self.shape.work_ns > 0 { pages } else { 0 };
        for cpu in 0..cpus {
            lab.allocator.platform().charge(false);
            for at in 0..self.queues[cpu as usize].processes.len() {
                self.queues[cpu as usize].at = at;
                let some = lab.random_below(steps);
                lab.warm(self, cpu, some);
            }
        }
        lab.allocator.platform().charge(true);
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for process in &mut self.processes {
            process.mapping.finish(lab);
            process.file.drain(..).for_each(|block| lab.free(block, FILE_BLOCK));
        }
    }
}
