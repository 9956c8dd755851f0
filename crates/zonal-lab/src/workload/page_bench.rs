//! The page benchmark of 2017: every CPU allocates a block and frees it, over and over.
//!
//! Its CPUs begin anywhere between two folds of their NUMA counters. What folds cost depends on how
//! they happen to fall, and between two of a large threshold lie more pairs than are played.

use zonal_core::types::{Order, Pfn};
use zonal_core::vmstat::variant::NumaStorage;
use zonal_core::zone::state::Zone;

use super::kind::{Kind, ORDER, Param, order};
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "page-bench",
    about: "every CPU allocates one block and frees it, over and over",
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
    ],
    make: |values, cpus| {
        let bench = PageBench::new(cpus, order(values[0]));
        Box::new(PageBench { work_ns: values[1] + (values[2] << values[0]) / 1000, ..bench })
    },
};

/// One block out, one block back, on each CPU.
#[derive(Clone, Debug)]
pub struct PageBench {
    held: Vec<Option<Pfn>>,
    order: Order,
    /// Of a pair, beside what the machine says.
    work_ns: u64,
}

impl PageBench {
    /// For `cpus` CPUs.
    pub fn new(cpus: u32, order: Order) -> PageBench {
        PageBench { held: vec![None; cpus as usize], order, work_ns: 0 }
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

impl Program for PageBench {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let (settle, period) = phases(lab);
        self.go_on(lab, cpus, 1 + settle, period);
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let held = &mut self.held[cpu as usize];
        match held.take() {
            None => *held = lab.alloc(self.order),
            Some(block) => {
                lab.free(block, self.order);
                lab.kernel_ns(self.work_ns);
            }
        }
        Turn::More
    }
}
