//! Every CPU holds about `hold` blocks and, at random, frees one of them or allocates another, like
//! a cache.

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, LINES, ORDER, Param, order};
use crate::cost::contents::Access;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "churn",
    about: "every CPU holds at most `hold` blocks; each call frees one, or allocates and writes \
            one, at random",
    params: &[
        Param {
            name: "hold",
            about: "most blocks that a CPU holds",
            default: 1024,
            min: 1,
            max: 1 << 20,
            from: Provenance::estimated("larger than any list"),
        },
        ORDER,
        LINES,
    ],
    make: |values, cpus| Box::new(Churn::new(cpus, values[0], order(values[1]), values[2])),
};

/// A random set of blocks on each CPU.
#[derive(Clone, Debug)]
pub struct Churn {
    held: Vec<Vec<Pfn>>,
    hold: u64,
    order: Order,
    lines: u64,
}

impl Churn {
    /// For `cpus` CPUs, each of which holds up to `hold` blocks and writes `lines` lines of each.
    pub fn new(cpus: u32, hold: u64, order: Order, lines: u64) -> Churn {
        Churn { held: vec![Vec::new(); cpus as usize], hold, order, lines }
    }
}

impl Program for Churn {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let held = &mut self.held[cpu as usize];
        // Which place the call falls on: an empty one is filled, a filled one emptied.
        let place = lab.random_below(self.hold) as usize;
        if place < held.len() {
            let block = held.swap_remove(place);
            lab.free(block, self.order);
        } else if let Some(block) = lab.alloc(self.order) {
            lab.touch(block, self.order, self.lines, Access::Write);
            held.push(block);
        }
        Turn::More
    }
}
