//! The page benchmarks of 2016 and 2017: every CPU allocates a block and frees it, over and over
//! (page_bench01 on one CPU, page_bench03 on many), or allocates many and then frees them
//! (page_bench02). Interrupts of the timer come in between.
//!
//! Its CPUs begin anywhere between two folds of their NUMA counters. What folds cost depends on how
//! they happen to fall, and between two of a large threshold lie more pairs than are played.

use zonal_core::types::{Order, Pfn};
use zonal_core::vmstat::variant::NumaStorage;
use zonal_core::zone::state::Zone;

use super::kind::{Kind, ORDER, Param, order};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "page-bench",
    about: "every CPU allocates one block, or `hold` blocks, and frees them, over and over",
    params: &[
        ORDER,
        Param {
            name: "work",
            about: "nanoseconds that a pair takes longer than `work.alloc` and `work.free` say",
            default: 0,
            min: 0,
            max: 1_000_000,
            from: Provenance::estimated("the machine's file says what an allocation takes"),
        },
        Param {
            name: "page",
            about: "picoseconds of a pair for each page of its block: kernels up to 4.x check and \
                    clear the structure of each",
            default: 0,
            min: 0,
            max: 1_000_000,
            from: Provenance::estimated("kernels of these years check the block's first page only"),
        },
        Param {
            name: "hold",
            about: "blocks that are allocated before they are freed: page_bench02",
            default: 1,
            min: 1,
            max: 1 << 20,
            from: Provenance::sourced("page_bench01 and page_bench03: one block at a time"),
        },
        Param {
            name: "tick",
            about: "nanoseconds that an interrupt of the timer takes, 250 times a second",
            default: 3_000,
            min: 0,
            max: 1_000_000,
            from: Provenance::estimated(
                "a quarter of the 13 us, by events of Linux 6.18, of a virtual EPYC, which leaves \
                 the machine to set its timer",
            ),
        },
    ],
    make: |values, cpus| {
        let [order_of, work, page, hold, tick] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let bench = PageBench::new(cpus, order(order_of));
        let work_ns = work + (page << order_of) / 1000;
        Box::new(PageBench { work_ns, hold: hold as usize, tick_ns: tick, ..bench })
    },
};

given! {
    /// Between two interrupts of the timer.
    TICK_NS: u64 = 4_000_000,
        Provenance::sourced("CONFIG_HZ=250, the usual value of distributions");
}

/// One block or some out, and back, on each CPU.
#[derive(Clone, Debug)]
pub struct PageBench {
    cpus: Vec<Cpu>,
    order: Order,
    /// Of a pair, beside what the machine says.
    work_ns: u64,
    hold: usize,
    tick_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    held: Vec<Pfn>,
    frees: bool,
    /// When the next interrupt comes, in cycles; 0: not known yet.
    tick: u64,
}

impl PageBench {
    /// For `cpus` CPUs.
    pub fn new(cpus: u32, order: Order) -> PageBench {
        let cpus = vec![Cpu::default(); cpus as usize];
        PageBench { cpus, order, work_ns: 0, hold: 1, tick_ns: 0 }
    }
}

impl PageBench {
    /// Puts CPUs anywhere between two folds again, where that takes few pairs. Between many, few
    /// folds fall, and nothing has to shuffle them.
    pub fn shuffle(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let (_, period) = phases(lab);
        if period <= SHUFFLED_MAX {
            self.go_on(lab, cpus, 0, period);
        }
    }

    fn go_on(&mut self, lab: &mut Lab<'_>, cpus: u32, least: u64, period: u64) {
        for cpu in 0..cpus {
            let pairs = least + lab.random_below(period);
            lab.warm(self, cpu, 2 * pairs);
        }
    }
}

/// Pairs that lie between two folds at most where CPUs are shuffled again.
const SHUFFLED_MAX: u64 = 6144;

/// Pairs until the first fold is past, where it takes them, and how many lie between two folds.
fn phases(lab: &Lab<'_>) -> (u64, u64) {
    let numa = &lab.allocator.policy().numa;
    let zones = lab.allocator.zones().iter();
    let threshold = numa.threshold(zones.map(Zone::stat_threshold).max().unwrap_or(0));
    let threshold = threshold.unsigned_abs();
    match numa.storage {
        _ if !lab.allocator.stats().counts_numa() => (0, 1),
        // A fold leaves half the threshold below zero, so the first one comes too early: a start
        // anywhere within the first two is equally likely at each distance from the next.
        NumaStorage::S8InZoneStats | NumaStorage::S16Overstep => {
            let settle = if threshold <= SHUFFLED_MAX { threshold } else { 0 };
            (settle, threshold + threshold / 2 + 1)
        }
        NumaStorage::U16 => (0, threshold + 1),
        // No threshold, no folds.
        NumaStorage::UlongFoldOnRead | NumaStorage::UlongExact => (0, 1),
    }
}

impl PageBench {
    /// The timer's interrupt, if it is due. The first one comes anywhere within a period.
    fn interrupt(&mut self, lab: &mut Lab<'_>, cpu: u32) {
        let now = lab.allocator.platform().clock();
        let period = (TICK_NS as f64 * lab.machine.ghz) as u64;
        let tick = &mut self.cpus[cpu as usize].tick;
        if *tick == 0 {
            *tick = now + 1 + lab.random_below(period);
        } else if now >= *tick {
            *tick += period;
            lab.kernel_ns(self.tick_ns);
        }
    }
}

impl Program for PageBench {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let (settle, period) = phases(lab);
        self.go_on(lab, cpus, 1 + settle, period);
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        if self.tick_ns > 0 {
            self.interrupt(lab, cpu);
        }
        let cpu = &mut self.cpus[cpu as usize];
        if cpu.frees {
            let block = cpu.held.pop();
            if let Some(block) = block {
                lab.free(block, self.order);
                lab.kernel_ns(self.work_ns);
            }
            cpu.frees = !cpu.held.is_empty();
        } else {
            let block = lab.alloc(self.order);
            cpu.held.extend(block);
            // A refused request ends the round.
            let refused = block.is_none() && !cpu.held.is_empty();
            cpu.frees = cpu.held.len() >= self.hold || refused;
        }
        Turn::More
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let blocks: Vec<Pfn> =
            self.cpus.iter_mut().flat_map(|c| std::mem::take(&mut c.held)).collect();
        blocks.into_iter().for_each(|block| lab.free(block, self.order));
    }
}
