//! A build of many jobs at a time, as `make -jN` in several groups: every job is a driver that
//! forks a compiler and an assembler, or a linker, one after the other. Each of them touches page
//! after page with work between, writes a file, and gives all its pages back when it exits, on the
//! CPU where it runs by then. When a job is over, the next of its slot begins.
//!
//! Which calls a process makes in which order is a recorded build's ([`jobs`]); sizes of compilers
//! and linkers are scaled. What the recording has not:
//!
//! - the first page directory of a process, a block of order 1 where page tables are isolated
//!   (the announcement names it: the last thing a process frees, behind all its pages);
//! - pages that another CPU's background work frees: who exits frees them, or whoever runs next on
//!   its CPU, as deferred frees do.

pub mod jobs;

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use self::jobs::{COMPILER_PAGES, Call, JOBS, Process};
use super::tasks::{TaskId, Tasks};
use super::{Kind, Param, Program, Turn};
use crate::cost::contents::Access;
use crate::cost::kernel::{FAULT_NS, FILE_PAGE_NS, PROCESS_NS, UNMAP_NS};
use crate::sim::{Lab, PAGE_LINES};

pub(super) const KIND: Kind = Kind {
    name: "kbuild",
    about: "jobs of a build: a driver, a compiler and an assembler each, in groups of slots",
    params: &[
        Param { name: "groups", about: "builds at a time", default: 8, min: 1, max: 1024 },
        Param { name: "jobs", about: "jobs of each at a time", default: 28, min: 1, max: 4096 },
        Param {
            name: "scale",
            about: "pages of a compiler or linker, in percent of the recorded one's",
            default: 800,
            min: 1,
            max: 100_000,
        },
        Param {
            name: "user",
            about: "nanoseconds that a process works between two new pages, on a core of its own",
            default: 11_250,
            min: 0,
            max: 1_000_000_000,
        },
    ],
    make: |values, cpus| {
        Box::new(Kbuild::new(cpus, values[0] * values[1], values[2] as u32, values[3]))
    },
};

/// Processes of a job that may wait for each other: its driver, and two below it.
const DEEP: u32 = 4;
/// Recorded runs from this length on are what a compiler does with its source, and scaled.
const LONG_RUN: u32 = 16;
/// Most calls of a process in one step.
const STRIDE: u32 = 8;
/// Pages that others left on a CPU before they are freed all the same.
const DEFERRED_MAX: usize = 256;
/// A page directory, where page tables are isolated.
const DIRECTORY: Order = Order::new(1).unwrap();
const TABLES: Request = Request::new(Order::ZERO).gfp(Gfp::KERNEL_ACCOUNT);
const USERS: Request = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE);

/// Jobs at work.
#[derive(Debug)]
pub struct Kbuild {
    cpus: u32,
    scale: u32,
    user_ns: u64,
    tasks: Option<Tasks>,
    slots: Vec<Slot>,
    /// Processes by their task: `DEEP` for each slot.
    running: Vec<Running>,
    /// Pages that dead processes left, on each CPU.
    deferred: Vec<Vec<Pfn>>,
    /// Pages touched by processes so far.
    pub touched: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    job: usize,
    /// What its processes have written.
    files: Vec<(Pfn, Order)>,
}

/// A process at work.
#[derive(Clone, Debug, Default)]
struct Running {
    /// Its place in the job.
    process: usize,
    /// Its run, and calls left of it.
    run: usize,
    left: u32,
    forks: usize,
    held: VecDeque<Pfn>,
    directory: Option<Pfn>,
    begun: bool,
}

impl Kbuild {
    /// On `cpus` CPUs.
    pub fn new(cpus: u32, slots: u64, scale_percent: u32, user_ns: u64) -> Kbuild {
        let slots = slots as usize;
        Kbuild {
            cpus,
            scale: scale_percent,
            user_ns,
            tasks: None,
            slots: vec![Slot::default(); slots],
            running: vec![Running::default(); slots * DEEP as usize],
            deferred: vec![Vec::new(); cpus as usize],
            touched: 0,
        }
    }

    /// Every slot begins its first job.
    fn begin(&mut self, lab: &mut Lab<'_>) -> Tasks {
        let count = self.running.len() as u32;
        let mut tasks = Tasks::new(lab.machine, self.cpus, count);
        for slot in 0..self.slots.len() {
            self.draw(lab, slot);
            tasks.put(lab, slot as u32 * DEEP, slot as u32 % self.cpus);
        }
        tasks
    }

    fn draw(&mut self, lab: &mut Lab<'_>, slot: usize) {
        self.slots[slot].job = lab.random_below(JOBS.len() as u64) as usize;
        self.running[slot * DEEP as usize].process = 0;
    }

    /// Some calls of a task. `None`: it sleeps or is over.
    fn work(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, task: TaskId) {
        let slot = (task / DEEP) as usize;
        let process = &JOBS[self.slots[slot].job][self.running[task as usize].process];
        if !self.running[task as usize].begun {
            return self.exec(lab, task, process);
        }
        // Short steps: a thread that waits for a lock leaves its core to the other one, and the
        // other one can only know of it if it is played afterwards.
        for _ in 0..STRIDE {
            let running = &mut self.running[task as usize];
            if running.left == 0 {
                running.run += 1;
                running.left = process
                    .runs
                    .get(running.run)
                    .map_or(0, |_| times(process, running.run, self.scale));
            }
            let Some(run) = process.runs.get(running.run) else {
                return self.exit(lab, tasks, cpu, task, process);
            };
            running.left -= 1;
            match run.call {
                Call::Fork => return self.fork(lab, tasks, cpu, task, process),
                call => self.call(lab, cpu, task, process, call),
            }
            if call_takes_long(run.call) {
                return;
            }
        }
    }

    fn exec(&mut self, lab: &mut Lab<'_>, task: TaskId, process: &Process) {
        lab.kernel_ns(PROCESS_NS);
        let directory = lab.request(Request { order: DIRECTORY, ..TABLES });
        let running = &mut self.running[task as usize];
        running.directory = directory;
        (running.begun, running.run, running.forks) = (true, 0, 0);
        running.left = if process.runs.is_empty() { 0 } else { times(process, 0, self.scale) };
    }

    fn call(&mut self, lab: &mut Lab<'_>, cpu: u32, task: TaskId, process: &Process, call: Call) {
        let running = &mut self.running[task as usize];
        match call {
            Call::Touch => {
                // From a half to one and a half times as long.
                let user = self.user_ns / 2 + lab.random_below(self.user_ns + 1);
                lab.user_ns(user);
                lab.kernel_ns(FAULT_NS);
                let page = lab.request(USERS);
                self.touched += 1;
                running.held.extend(page);
                // The kernel zeroes it.
                page.into_iter().for_each(|page| {
                    lab.touch(page, Order::ZERO, PAGE_LINES, Access::Write);
                });
            }
            Call::Kernel => running.held.extend(lab.request(TABLES)),
            Call::File(order) => {
                let order = Order::new(order).unwrap_or(Order::ZERO);
                lab.kernel_ns(FILE_PAGE_NS << order.get());
                let block = lab.request(Request { order, ..USERS });
                self.slots[(task / DEEP) as usize].files.extend(block.map(|pfn| (pfn, order)));
            }
            Call::Free if running.held.len() > process.left as usize => {
                lab.kernel_ns(UNMAP_NS);
                // An exit goes through the address space from its beginning; before, what was
                // mapped last goes first.
                let exits = running.run + 1 == process.runs.len();
                let page = match exits {
                    true => running.held.pop_front(),
                    false => running.held.pop_back(),
                };
                page.into_iter().for_each(|page| lab.free(page, Order::ZERO));
            }
            Call::Free => running.left = 0,
            Call::FreeOthers => match self.deferred[cpu as usize].pop() {
                Some(page) => lab.free(page, Order::ZERO),
                None => running.left = 0,
            },
            Call::Fork => {}
        }
    }

    fn fork(
        &mut self,
        lab: &mut Lab<'_>,
        tasks: &mut Tasks,
        cpu: u32,
        task: TaskId,
        process: &Process,
    ) {
        let running = &mut self.running[task as usize];
        let child = process.children[running.forks];
        running.forks += 1;
        self.running[task as usize + 1].process = child;
        tasks.begin(lab, task + 1, cpu);
        tasks.sleep(cpu);
    }

    fn exit(
        &mut self,
        lab: &mut Lab<'_>,
        tasks: &mut Tasks,
        cpu: u32,
        task: TaskId,
        process: &Process,
    ) {
        let running = &mut self.running[task as usize];
        // Of a scaled process more is left than was recorded.
        let more = running.held.len().saturating_sub(process.left as usize);
        if more > 0 {
            for page in running.held.drain(..more.min(STRIDE as usize)) {
                lab.kernel_ns(UNMAP_NS);
                lab.free(page, Order::ZERO);
            }
            return;
        }
        if let Some(directory) = running.directory.take() {
            lab.free(directory, DIRECTORY);
        }
        running.begun = false;
        let deferred = &mut self.deferred[cpu as usize];
        deferred.extend(running.held.drain(..));
        while deferred.len() > DEFERRED_MAX {
            let page = deferred.pop();
            page.into_iter().for_each(|page| lab.free(page, Order::ZERO));
        }
        if !task.is_multiple_of(DEEP) {
            tasks.wake(lab, task - 1, cpu, true);
            tasks.sleep(cpu);
            return;
        }
        let slot = (task / DEEP) as usize;
        for (block, order) in std::mem::take(&mut self.slots[slot].files) {
            lab.free(block, order);
        }
        self.draw(lab, slot);
        tasks.sleep(cpu);
        tasks.begin(lab, task, cpu);
    }
}

/// Whether others should be played before the next call.
fn call_takes_long(call: Call) -> bool {
    matches!(call, Call::Touch | Call::File(_))
}

/// How often a process makes the calls of its run `at`.
fn times(process: &Process, at: usize, scale_percent: u32) -> u32 {
    let run = process.runs[at];
    let its_own = matches!(run.call, Call::Touch | Call::Kernel | Call::Free);
    match its_own && process.pages >= COMPILER_PAGES && run.times >= LONG_RUN {
        true => (u64::from(run.times) * u64::from(scale_percent) / 100).max(1) as u32,
        false => run.times,
    }
}

impl Program for Kbuild {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let mut tasks = self.tasks.take().unwrap_or_else(|| self.begin(lab));
        let turn = match tasks.current(lab, cpu) {
            Some(task) => {
                self.work(lab, &mut tasks, cpu, task);
                Turn::More
            }
            None => Turn::Wait,
        };
        self.tasks = Some(tasks);
        turn
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let held = self.running.iter_mut().flat_map(|running| std::mem::take(&mut running.held));
        let deferred = self.deferred.iter_mut().flat_map(std::mem::take);
        held.chain(deferred).for_each(|page| lab.free(page, Order::ZERO));
        let directories = self.running.iter_mut().filter_map(|r| r.directory.take());
        directories.for_each(|directory| lab.free(directory, DIRECTORY));
        let files = self.slots.iter_mut().flat_map(|slot| std::mem::take(&mut slot.files));
        files.for_each(|(block, order)| lab.free(block, order));
    }
}
