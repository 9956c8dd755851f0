//! Placement of tasks on CPUs, as far as it decides where blocks are allocated and freed: wake-ups,
//! new tasks, and tasks that an idle CPU takes from its neighbours.
//!
//! ```text
//!  wake-up    beside the waker, if it is about to sleep (sync), else where the task ran last
//!             ─► that CPU, if it is idle ─► the last one, under the same cache and idle
//!             ─► an idle core under that cache ─► an idle CPU there ─► that CPU, behind others
//!  new task   an idle CPU under the parent's cache, if that has at most two tasks more than the
//!             cache with the fewest, else under that one; else the parent's
//!  idle CPU   takes a task that waits on a CPU under the same cache
//! ```
//! Linux has done so since 4.x in its essentials; left out are weights, groups and the balancing
//! that happens by the clock.

use std::collections::VecDeque;

use crate::cost::kernel::{IDLE_EXIT_NS, SLICE_NS, SWITCH_NS, WAKE_NS};
use crate::machine::Machine;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;

/// A task, by its number.
pub type TaskId = u32;

given! {
    /// Imbalance in tasks above which a new one leaves its parent's cache: below it, two tasks that
    /// talk to each other stay together (Linux since 5.6, between nodes).
    TWO_THAT_TALK: usize = 2,
        Provenance::sourced("Linux since 5.6: adjust_numa_imbalance");
}

/// Tasks on CPUs.
#[derive(Debug)]
pub struct Tasks {
    cpus: Vec<Cpu>,
    /// Where each task ran last, or waits.
    last: Vec<u32>,
    cores: usize,
    /// Last-level cache of each CPU.
    llc: Vec<usize>,
    /// CPUs under each last-level cache, in their order.
    under: Vec<Vec<u32>>,
    /// Of these, idle ones.
    idle: Vec<usize>,
    /// Tasks that wait for a CPU, under each last-level cache.
    waiting: Vec<usize>,
    /// Tasks stay where they were put.
    bound: bool,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    runs: Option<TaskId>,
    waits: VecDeque<TaskId>,
    /// When the task that runs began to, in cycles.
    since: u64,
    /// It is idle, and the next task finds it so.
    asleep: bool,
}

impl Tasks {
    /// `tasks` tasks, none of which has run, on the first `cpus` CPUs of a machine.
    pub fn new(machine: &Machine, cpus: u32, tasks: u32) -> Tasks {
        let llc_of = |cpu: u32| machine.llc_of_core(machine.core_of(cpu)) as usize;
        let llc: Vec<usize> = (0..cpus).map(llc_of).collect();
        let mut under = vec![Vec::new(); llc.iter().max().map_or(0, |last| last + 1)];
        for (cpu, llc) in llc.iter().enumerate() {
            under[*llc].push(cpu as u32);
        }
        Tasks {
            cpus: vec![Cpu { asleep: true, ..Cpu::default() }; cpus as usize],
            last: (0..tasks).map(|task| task % cpus).collect(),
            cores: machine.cores() as usize,
            idle: under.iter().map(Vec::len).collect(),
            waiting: vec![0; under.len()],
            llc,
            under,
            bound: false,
        }
    }

    /// The same, each of which stays on the CPU where it is put.
    pub fn bound(self) -> Tasks {
        Tasks { bound: true, ..self }
    }

    /// Queues a task on a CPU, last.
    pub fn put(&mut self, lab: &mut Lab<'_>, task: TaskId, cpu: u32) {
        self.last[task as usize] = cpu;
        let llc = self.llc[cpu as usize];
        if self.is_idle(cpu) {
            self.idle[llc] -= 1;
        }
        self.waiting[llc] += 1;
        self.cpus[cpu as usize].waits.push_back(task);
        lab.wake(cpu);
    }

    /// Wakes a task that sleeps, from the CPU whose turn it is. `sync`: the task there is about to
    /// sleep.
    pub fn wake(&mut self, lab: &mut Lab<'_>, task: TaskId, cpu: u32, sync: bool) {
        let last = self.last[task as usize];
        let beside = sync && self.cpus[cpu as usize].waits.is_empty();
        let target = if beside { cpu } else { last };
        let chosen = if self.bound { last } else { self.near(target, last) };
        lab.kernel_ns(WAKE_NS);
        self.put(lab, task, chosen);
    }

    /// Where a task runs or waits, or ran last.
    pub fn last(&self, task: TaskId) -> u32 {
        self.last[task as usize]
    }

    /// Begins a new task, on behalf of one that runs on `cpu`.
    pub fn begin(&mut self, lab: &mut Lab<'_>, task: TaskId, cpu: u32) {
        let own = self.llc[cpu as usize];
        let idlest = self.idlest();
        let stays = self.idle[own] > 0 && self.busy(own) <= self.busy(idlest) + TWO_THAT_TALK;
        self.put_under(lab, task, if stays { own } else { idlest }, cpu);
    }

    /// Begins a task under the cache with the fewest tasks.
    pub fn spread(&mut self, lab: &mut Lab<'_>, task: TaskId) {
        self.begin_near(lab, task, self.under[self.idlest()][0]);
    }

    /// Begins a task near `cpu`, under the same cache.
    pub fn begin_near(&mut self, lab: &mut Lab<'_>, task: TaskId, cpu: u32) {
        self.put_under(lab, task, self.llc[cpu as usize], cpu);
    }

    /// Puts a task on an idle CPU under a cache, searching from `cpu` on; on `cpu` if none is idle.
    fn put_under(&mut self, lab: &mut Lab<'_>, task: TaskId, llc: usize, cpu: u32) {
        let chosen = self.idle_under(llc, cpu).unwrap_or(cpu);
        self.put(lab, task, chosen);
    }

    /// CPUs under a last-level cache that are not idle.
    fn busy(&self, llc: usize) -> usize {
        self.under[llc].len() - self.idle[llc]
    }

    /// The last-level cache with the fewest of them.
    fn idlest(&self) -> usize {
        (0..self.idle.len()).min_by_key(|llc| self.busy(*llc)).unwrap_or(0)
    }

    /// The task that `cpu` runs now, if it has one: the one it ran, unless that has had its slice
    /// and others wait.
    pub fn current(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Option<TaskId> {
        let now = lab.allocator.platform().clock();
        let slice = (SLICE_NS as f64 * lab.machine.ghz) as u64;
        let own = &mut self.cpus[cpu as usize];
        match own.runs {
            Some(_) if !own.waits.is_empty() && now >= own.since + slice => {
                let task = own.runs.take();
                own.waits.extend(task);
                self.waiting[self.llc[cpu as usize]] += 1;
            }
            Some(task) => return Some(task),
            None => {}
        }
        self.next(lab, cpu, now)
    }

    /// The task that runs on `cpu` sleeps, or is over.
    pub fn sleep(&mut self, cpu: u32) {
        let own = &mut self.cpus[cpu as usize];
        own.runs = None;
        if own.waits.is_empty() {
            self.idle[self.llc[cpu as usize]] += 1;
        }
    }

    fn next(&mut self, lab: &mut Lab<'_>, cpu: u32, now: u64) -> Option<TaskId> {
        let llc = self.llc[cpu as usize];
        let mut task = self.cpus[cpu as usize].waits.pop_front();
        if task.is_none() && self.waiting[llc] > 0 && !self.bound {
            task = self.steal(cpu);
        }
        let Some(task) = task else {
            if !std::mem::replace(&mut self.cpus[cpu as usize].asleep, true) {
                lab.allocator.platform().set_idle(cpu, true);
            }
            return None;
        };
        self.waiting[llc] -= 1;
        self.last[task as usize] = cpu;
        let own = &mut self.cpus[cpu as usize];
        (own.runs, own.since) = (Some(task), now);
        if std::mem::take(&mut own.asleep) {
            lab.allocator.platform().set_idle(cpu, false);
            lab.kernel_ns(IDLE_EXIT_NS);
        }
        lab.kernel_ns(SWITCH_NS);
        Some(task)
    }

    /// A task that waits under the same cache, for an idle CPU.
    fn steal(&mut self, cpu: u32) -> Option<TaskId> {
        let llc = self.llc[cpu as usize];
        let busy = |other: &&u32| {
            let other = &self.cpus[**other as usize];
            other.runs.is_some() && !other.waits.is_empty()
        };
        let from = *self.under[llc].iter().find(busy)?;
        // It was idle until now.
        self.idle[llc] -= 1;
        self.cpus[from as usize].waits.pop_back()
    }

    fn is_idle(&self, cpu: u32) -> bool {
        let cpu = &self.cpus[cpu as usize];
        cpu.runs.is_none() && cpu.waits.is_empty()
    }

    /// Where a task that ran on `last` goes if it may run on `target`.
    fn near(&self, target: u32, last: u32) -> u32 {
        let llc = self.llc[target as usize];
        if self.is_idle(target) {
            target
        } else if self.llc[last as usize] == llc && self.is_idle(last) {
            last
        } else {
            self.idle_under(llc, target).unwrap_or(target)
        }
    }

    /// An idle core's CPU under a cache, else any idle CPU there, looking from `from` on.
    fn idle_under(&self, llc: usize, from: u32) -> Option<u32> {
        if self.idle[llc] == 0 {
            return None;
        }
        let under = &self.under[llc];
        let split = under.partition_point(|cpu| *cpu <= from);
        let mut all = under[split..].iter().chain(&under[..split]).copied();
        let alone = |cpu: &u32| {
            let core = *cpu as usize % self.cores;
            (core..self.cpus.len()).step_by(self.cores).all(|other| self.is_idle(other as u32))
        };
        all.clone().find(alone).or_else(|| all.find(|cpu| self.is_idle(*cpu)))
    }
}
