//! Threads that allocate and free memory of a heap, and background threads that give back to the
//! kernel what the first have freed, as jemalloc's: `madvise(MADV_DONTNEED)` of pages that other
//! CPUs have touched. Lists run empty on some CPUs and full on others.
//!
//! A thread touches the pages of an extent one by one, works on each, and frees the extent. Where
//! many freed ones wait, it uses the oldest of its own again, without a fault. Each background
//! thread serves the threads whose number divided by the background threads leaves its own. With
//! one CPU there is none: the thread gives back its extents itself.

use std::collections::VecDeque;

use zonal_core::types::Order;

use super::kind::{Kind, Param};
use super::memory::{Mapping, Memory, Setting};
use crate::cost::contents::Access;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::PAGE_LINES;

pub(super) const KIND: Kind = Kind {
    name: "purge",
    about: "threads that touch and free memory of a heap, and others that return its pages to the \
            kernel, as jemalloc's background threads",
    params: &[
        Param {
            name: "purgers",
            about: "background threads, each on a CPU of its own; at most half of the CPUs",
            default: 4,
            min: 0,
            max: 4096,
            from: Provenance::sourced("jemalloc, max_background_threads: 4 by default"),
        },
        Param {
            name: "extent",
            about: "pages that are freed and given back together",
            default: 64,
            min: 1,
            max: 1 << 18,
            from: Provenance::estimated("some neighbouring allocations of 16 to 64 KiB, joined"),
        },
        Param {
            name: "dirty",
            about: "extents of a thread that wait at most before it uses them again",
            default: 64,
            min: 1,
            max: 1 << 20,
            from: Provenance::estimated("16 MiB of each thread wait for their decay"),
        },
        Param {
            name: "work",
            about: "nanoseconds that a thread works on a page",
            default: 1_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("reading and writing a page at 4 to 8 GB/s"),
        },
    ],
    make: |values, cpus| Box::new(Purge::new(cpus, values)),
};

given! {
    /// A call of `madvise`, beside what it does for each page.
    MADVISE_NS: u64 = 850,
        Provenance::measured(
            "calls for one page and for 64, Linux 6.18 on a virtual EPYC, 2026: 1146 and 318 ns a \
             page",
        );
}

/// Threads at work.
#[derive(Debug)]
pub struct Purge {
    memory: Memory,
    extent: usize,
    dirty: usize,
    work_ns: u64,
    threads: Vec<Thread>,
    purgers: Vec<Purger>,
}

#[derive(Debug, Default)]
struct Thread {
    filling: Mapping,
    /// Pages of an extent that is used again, and those it has worked on.
    again: Option<(Mapping, usize)>,
    /// Freed extents, the oldest first.
    freed: VecDeque<Mapping>,
}

#[derive(Debug, Default)]
struct Purger {
    gives_back: Option<Mapping>,
    /// The thread it looks at next.
    next: usize,
}

impl Purge {
    /// With the numbers of [`KIND`].
    fn new(cpus: u32, values: &[u64]) -> Purge {
        let [purgers, extent, dirty, work_ns] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let purgers = (purgers as usize).min(cpus as usize / 2);
        let threads = cpus as usize - purgers;
        Purge {
            memory: Memory::new(cpus, Setting::default()),
            extent: extent as usize,
            dirty: dirty as usize,
            work_ns,
            threads: (0..threads).map(|_| Thread::default()).collect(),
            purgers: (0..purgers).map(|at| Purger { next: at, ..Purger::default() }).collect(),
        }
    }

    /// A step of the thread `at`.
    fn work(&mut self, lab: &mut Lab<'_>, cpu: u32, at: usize) {
        let thread = &mut self.threads[at];
        if let Some((extent, worked)) = &mut thread.again {
            let page = extent.page(*worked);
            *worked += 1;
            if let Some(page) = page {
                lab.user_ns(self.work_ns);
                return lab.user_touch(page, Order::ZERO, PAGE_LINES, Access::Write);
            }
            let extent = std::mem::take(extent);
            thread.again = None;
            return self.free(lab, at, extent);
        }
        lab.user_ns(self.work_ns);
        let page = self.memory.fault(lab, cpu, &mut thread.filling, None);
        page.into_iter().for_each(|page| {
            lab.user_touch(page, Order::ZERO, PAGE_LINES, Access::Write);
        });
        let refused = page.is_none() && thread.filling.len() > 0;
        if thread.filling.len() >= self.extent || refused {
            let extent = std::mem::take(&mut thread.filling);
            self.free(lab, at, extent);
        }
    }

    /// A thread frees an extent. Its background thread is told, or it uses an old one again.
    fn free(&mut self, lab: &mut Lab<'_>, at: usize, extent: Mapping) {
        let thread = &mut self.threads[at];
        thread.freed.push_back(extent);
        if thread.freed.len() > self.dirty {
            thread.again = thread.freed.pop_front().map(|extent| (extent, 0));
        }
        if !self.purgers.is_empty() {
            lab.wake((self.threads.len() + at % self.purgers.len()) as u32);
        }
    }

    /// A thread without a background thread gives its oldest extent back. Returns whether it had
    /// something to do.
    fn give_back_own(&mut self, lab: &mut Lab<'_>, at: usize) -> bool {
        let Some(extent) = self.threads[at].freed.front_mut() else { return false };
        if self.memory.unmap(lab, extent) {
            self.threads[at].freed.pop_front();
            lab.load.done += 1;
            lab.kernel_ns(MADVISE_NS);
        }
        true
    }

    /// A step of a background thread: `false` if it has nothing to do.
    fn purge(&mut self, lab: &mut Lab<'_>, at: usize) -> bool {
        let (count, threads) = (self.purgers.len(), self.threads.len());
        let purger = &mut self.purgers[at];
        if let Some(extent) = &mut purger.gives_back {
            if self.memory.unmap(lab, extent) {
                purger.gives_back = None;
                lab.load.done += 1;
                lab.kernel_ns(MADVISE_NS);
            }
            return true;
        }
        for _ in 0..threads.div_ceil(count) {
            let thread = purger.next;
            purger.next = if thread + count < threads { thread + count } else { at };
            let freed = self.threads.get_mut(thread).and_then(|thread| thread.freed.pop_front());
            if freed.is_some() {
                purger.gives_back = freed;
                return true;
            }
        }
        false
    }
}

impl Program for Purge {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let (at, threads) = (cpu as usize, self.threads.len());
        let works = match at.checked_sub(threads) {
            Some(purger) => self.purge(lab, purger),
            None => {
                let own = self.purgers.is_empty() && self.give_back_own(lab, at);
                if !own {
                    self.work(lab, cpu, at);
                }
                true
            }
        };
        lab.allocator.platform().set_idle(cpu, !works);
        if works { Turn::More } else { Turn::Wait }
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for thread in &mut self.threads {
            thread.filling.finish(lab);
            thread.again.take().into_iter().for_each(|(mut extent, _)| extent.finish(lab));
            thread.freed.iter_mut().for_each(|extent| extent.finish(lab));
        }
        let rest = self.purgers.iter_mut().filter_map(|purger| purger.gives_back.as_mut());
        rest.for_each(|extent| extent.finish(lab));
    }
}
