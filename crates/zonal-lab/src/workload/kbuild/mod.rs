//! A build of many jobs at a time, as `make -jN` in several groups: every job is a driver that
//! forks a compiler and an assembler, or a linker, one after the other. Each of them touches page
//! after page with work between, writes a file, and gives all its pages back when it exits, on the
//! CPU where it runs by then. When a job is over, the next of its slot begins.
//!
//! Which calls a process makes in which order is a recorded build's ([`cut`]): the bundled one's,
//! or that of a FILE; sizes of compilers and linkers are scaled. Objects stay in memory until the
//! same slot makes them again. What the recording has not:
//!
//! - the first page directory of a process, a block of order 1 where page tables are isolated
//!   (the announcement names it: the last thing a process frees, behind all its pages);
//! - pages that another CPU's background work frees: the exiting process frees them, or the next
//!   one on its CPU, as deferred frees do;
//! - the files of the trees that are built: read or written before, and in memory all the time.

mod cut;
mod jobs;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};
use zonal_trace::{Recording, TraceError};

use self::cut::CutError;
pub(super) use self::jobs::GIVEN as JOBS_GIVEN;
use self::jobs::{BUNDLED, Call, Jobs, Process};
use super::error::WorkloadError;
use super::kind::{Kind, Param};
use super::tasks::{TaskId, Tasks};
use crate::cost::contents::Access;
use crate::cost::kernel::{FAULT_NS, FILE_PAGE_NS, PROCESS_NS, UNMAP_NS};
use crate::provenance::{Provenance, cells, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{MIB_PAGES, PAGE_LINES};

pub(super) const KIND: Kind = Kind {
    name: "kbuild",
    about: "jobs of a build, that of FILE or the bundled one, in groups of slots",
    params: &[
        Param {
            name: "groups",
            about: "builds at a time",
            default: 8,
            min: 1,
            max: 1024,
            from: Provenance::sourced("the announcement: eight builds at a time, each in a cgroup"),
        },
        Param {
            name: "jobs",
            about: "jobs of each at a time; 0: in all as many as CPUs take part (make -j$(nproc))",
            default: 28,
            min: 0,
            max: 4096,
            from: Provenance::sourced("the announcement: make -j 28 each, 224 in all"),
        },
        Param {
            name: "scale",
            about: "pages of a compiler or linker, in percent of the recorded one's",
            default: 800,
            min: 1,
            max: 100_000,
            from: Provenance::estimated(
                "sources of a kernel are larger than those of the recorded zlib",
            ),
        },
        Param {
            name: "user",
            about: "nanoseconds that a process works between two new pages, alone on a core",
            default: 11_195,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::fitted(
                "how much a process works for each page",
                cells!["pcp-kbuild/base/lock_contention_percent"],
            ),
        },
        Param {
            name: "tree",
            about: "MiB of each build's files that are in memory, sources and objects",
            default: 1700,
            min: 0,
            max: 1 << 20,
            from: Provenance::sourced(
                "Linux From Scratch 11.3 (2023) on linux-6.1: 1200 - 8800 MB, typically 1700 MB",
            ),
        },
    ],
    make: |values, cpus| Box::new(Kbuild::new(Arc::clone(&BUNDLED), values, cpus)),
};

given! {
    /// Recorded runs from this length on are a compiler's work on its source, and are scaled.
    LONG_RUN: u32 = 16,
        Provenance::estimated(
            "shorter runs are a process' start, which does not grow with its source",
        );
    /// Most calls of a process in one step.
    STRIDE: u32 = 8,
        Provenance::estimated("finer steps change no result by more than seeds do");
    /// Pages that others left on a CPU before they are freed all the same.
    DEFERRED_MAX: usize = 256,
        Provenance::estimated("a batch of deferred frees of a kernel");
    /// Trees fill at most one such part of memory. Beyond it a kernel would reclaim, which is not
    /// played.
    TREES_PART: u64 = 2,
        Provenance::estimated(
            "beyond half of the memory a kernel would reclaim, which is not played",
        );
}
/// Files of the trees come in blocks of this size: 4 MiB. Nothing ever frees a part of one.
const TREE_BLOCK: Order = Order::MAX;
/// A page directory, where page tables are isolated.
const DIRECTORY: Order = Order::new(1).unwrap();
const TABLES: Request = Request::new(Order::ZERO).gfp(Gfp::KERNEL_ACCOUNT);
const USERS: Request = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE);

/// Jobs at work.
#[derive(Debug)]
pub struct Kbuild {
    cpus: u32,
    jobs: Arc<Jobs>,
    scale: u32,
    user_ns: u64,
    /// MiB of files of all trees.
    trees_mib: u64,
    trees: Vec<Pfn>,
    tasks: Option<Tasks>,
    slots: Vec<Slot>,
    /// Processes by their task: as many for each slot as may wait for each other.
    running: Vec<Running>,
    /// Pages that dead processes left, on each CPU.
    deferred: Vec<Vec<Pfn>>,
    /// Blocks touched by processes so far.
    pub touched: u64,
}

/// A block that is held.
type Block = (Pfn, Order);

#[derive(Clone, Debug, Default)]
struct Slot {
    job: usize,
    /// What its processes have written and will delete.
    files: VecDeque<Block>,
    /// Written pages that stay, by job.
    objects: BTreeMap<usize, Vec<Block>>,
    /// Whether the objects of this job are an earlier build's, until the first is written again.
    stale: bool,
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
    held: VecDeque<Block>,
    directory: Option<Pfn>,
    begun: bool,
}

/// The jobs of a file: cut from a recording, or as `zonal lab jobs` printed them.
///
/// # Errors
/// [`WorkloadError::Jobs`] with the file and the fault.
pub fn jobs_of(file: &str) -> Result<Jobs, WorkloadError> {
    let wrong = |what: String| WorkloadError::Jobs(format!("{file}: {what}"));
    if is_printed(file) {
        let unread = |error: std::io::Error| {
            wrong(format!("cannot be read: {error}; expected what `zonal lab jobs` prints"))
        };
        let text = std::fs::read_to_string(file).map_err(unread)?;
        return Jobs::parse(&text).map_err(|error| wrong(error.to_string()));
    }
    cut::cut(open(file)?.events()).map_err(|error| match error {
        CutError::Trace(error) => unreadable(&error),
        CutError::Jobs(what) => wrong(what),
    })
}

/// What can be said of a file before it is played: that it is a recording, or holds jobs.
pub(super) fn check(file: &str) -> Result<(), WorkloadError> {
    match is_printed(file) {
        true => jobs_of(file).map(drop),
        false => open(file).map(drop),
    }
}

fn is_printed(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "jobs")
}

fn open(file: &str) -> Result<Recording, WorkloadError> {
    Recording::open(Path::new(file)).map_err(|error| unreadable(&error))
}

/// It names the file itself, with the place in it.
fn unreadable(error: &TraceError) -> WorkloadError {
    WorkloadError::Jobs(error.to_string())
}

impl Kbuild {
    /// These jobs on `cpus` CPUs, with the numbers of [`KIND`].
    pub(super) fn new(jobs: Arc<Jobs>, values: &[u64], cpus: u32) -> Kbuild {
        let [groups, each, scale, user_ns, tree] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let each = if each == 0 { u64::from(cpus).div_ceil(groups) } else { each };
        let slots = (groups * each) as usize;
        Kbuild {
            cpus,
            scale: scale as u32,
            user_ns,
            trees_mib: groups * tree,
            trees: Vec::new(),
            tasks: None,
            slots: vec![Slot::default(); slots],
            running: vec![Running::default(); slots * jobs.deep as usize],
            deferred: vec![Vec::new(); cpus as usize],
            touched: 0,
            jobs,
        }
    }

    /// Every slot begins its first job.
    fn begin(&mut self, lab: &mut Lab<'_>) -> Tasks {
        let count = self.running.len() as u32;
        let mut tasks = Tasks::new(lab.machine, self.cpus, count);
        for slot in 0..self.slots.len() {
            self.draw(lab, slot);
            tasks.put(lab, slot as u32 * self.jobs.deep, slot as u32 % self.cpus);
        }
        tasks
    }

    fn draw(&mut self, lab: &mut Lab<'_>, slot: usize) {
        let job = lab.random_below(self.jobs.jobs.len() as u64) as usize;
        (self.slots[slot].job, self.slots[slot].stale) = (job, true);
        self.running[slot * self.jobs.deep as usize].process = 0;
    }

    /// Some calls of a task. `None`: it sleeps or is over.
    fn work(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, task: TaskId) {
        let jobs = Arc::clone(&self.jobs);
        let slot = (task / jobs.deep) as usize;
        let process = &jobs.jobs[self.slots[slot].job][self.running[task as usize].process];
        if !self.running[task as usize].begun {
            return self.exec(lab, task, process);
        }
        // Short steps: a thread that waits for a lock leaves its core to the other one, which sees
        // that only if it is played afterwards.
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
            Call::Touch(order) => {
                // From a half to one and a half times as long.
                let user = self.user_ns / 2 + lab.random_below(self.user_ns + 1);
                lab.user_ns(user);
                lab.kernel_ns(FAULT_NS);
                let block = lab.request(Request { order, ..USERS });
                self.touched += 1;
                lab.load.faults += order.pages();
                running.held.extend(block.map(|pfn| (pfn, order)));
                // The kernel zeroes it.
                block.into_iter().for_each(|block| {
                    lab.touch(block, order, PAGE_LINES << order.get(), Access::Write);
                });
            }
            Call::Kernel => {
                running.held.extend(lab.request(TABLES).map(|pfn| (pfn, Order::ZERO)));
            }
            Call::File { order, stays } => self.write(lab, task, order, stays),
            Call::Delete => match self.slots[(task / self.jobs.deep) as usize].files.pop_front() {
                Some((block, order)) => lab.free(block, order),
                None => running.left = 0,
            },
            Call::Free if running.held.len() > process.left as usize => {
                lab.kernel_ns(UNMAP_NS);
                // An exit frees the address space from its beginning; before, the last mapping goes
                // first.
                let exits = running.run + 1 == process.runs.len();
                let block = match exits {
                    true => running.held.pop_front(),
                    false => running.held.pop_back(),
                };
                block.into_iter().for_each(|(block, order)| lab.free(block, order));
            }
            Call::Free => running.left = 0,
            Call::FreeOthers => match self.deferred[cpu as usize].pop() {
                Some(page) => lab.free(page, Order::ZERO),
                None => running.left = 0,
            },
            Call::Fork => {}
        }
    }

    /// A block of a file. Who writes an object again begins by cutting the old one to nothing.
    fn write(&mut self, lab: &mut Lab<'_>, task: TaskId, order: Order, stays: bool) {
        let slot = &mut self.slots[(task / self.jobs.deep) as usize];
        if stays && std::mem::take(&mut slot.stale) {
            let old = slot.objects.remove(&slot.job).unwrap_or_default();
            old.into_iter().for_each(|(block, order)| lab.free(block, order));
        }
        lab.kernel_ns(FILE_PAGE_NS << order.get());
        let block = lab.request(Request { order, ..USERS }).map(|pfn| (pfn, order));
        match stays {
            true => slot.objects.entry(slot.job).or_default().extend(block),
            false => slot.files.extend(block),
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
            for (block, order) in running.held.drain(..more.min(STRIDE as usize)) {
                lab.kernel_ns(UNMAP_NS);
                lab.free(block, order);
            }
            return;
        }
        if let Some(directory) = running.directory.take() {
            lab.free(directory, DIRECTORY);
        }
        running.begun = false;
        let deferred = &mut self.deferred[cpu as usize];
        for (block, order) in running.held.drain(..) {
            match order {
                Order::ZERO => deferred.push(block),
                _ => lab.free(block, order),
            }
        }
        while deferred.len() > DEFERRED_MAX {
            let page = deferred.pop();
            page.into_iter().for_each(|page| lab.free(page, Order::ZERO));
        }
        if !task.is_multiple_of(self.jobs.deep) {
            tasks.wake(lab, task - 1, cpu, true);
            tasks.sleep(cpu);
            return;
        }
        lab.load.done += 1;
        let slot = (task / self.jobs.deep) as usize;
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
    matches!(call, Call::Touch(_) | Call::File { .. })
}

/// How often a process makes the calls of its run `at`.
fn times(process: &Process, at: usize, scale_percent: u32) -> u32 {
    let run = process.runs[at];
    let its_own = matches!(run.call, Call::Touch(_) | Call::Kernel | Call::Free);
    match its_own && process.is_compiler() && run.times >= LONG_RUN {
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

    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let most = u64::from(lab.machine.nodes()) * lab.machine.memory_mib / TREES_PART;
        let blocks = self.trees_mib.min(most) * MIB_PAGES / TREE_BLOCK.pages();
        lab.allocator.platform().charge(false);
        for block in 0..blocks {
            // Who wrote them ran on all CPUs.
            lab.allocator.platform().turn((block % u64::from(cpus)) as u32, 0);
            self.trees.extend(lab.request(Request { order: TREE_BLOCK, ..USERS }));
        }
        lab.allocator.platform().charge(true);
    }

    fn stop(&mut self, lab: &mut Lab<'_>) {
        let deep = self.jobs.deep as usize;
        for (task, running) in self.running.iter_mut().enumerate() {
            let cpu = self.tasks.as_ref().map_or(0, |tasks| tasks.last(task as TaskId));
            lab.allocator.platform().turn(cpu, 0);
            running.held.drain(..).for_each(|(block, order)| lab.free(block, order));
            running.directory.take().into_iter().for_each(|block| lab.free(block, DIRECTORY));
            if task % deep == 0 {
                let files = std::mem::take(&mut self.slots[task / deep].files);
                files.into_iter().for_each(|(block, order)| lab.free(block, order));
            }
        }
        for (cpu, pages) in (0..).zip(&mut self.deferred) {
            lab.allocator.platform().turn(cpu, 0);
            pages.drain(..).for_each(|page| lab.free(page, Order::ZERO));
        }
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        self.stop(lab);
        let objects = self.slots.iter_mut().flat_map(|slot| std::mem::take(&mut slot.objects));
        objects.flat_map(|(_, blocks)| blocks).for_each(|(block, order)| lab.free(block, order));
        self.trees.drain(..).for_each(|block| lab.free(block, TREE_BLOCK));
    }
}
