//! CPUs in pairs: the first allocates, the second frees the blocks of the first, like a sender and
//! a receiver. Each list of the first runs empty, each list of the second runs full.

use std::collections::VecDeque;

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, LINES, ORDER, Param, order};
use crate::cost::contents::Access;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "handoff",
    about: "CPUs in pairs: one allocates and writes, the other reads and frees; an odd last CPU \
            does nothing",
    params: &[
        Param {
            name: "depth",
            about: "most blocks on the way from one to the other",
            default: 64,
            min: 1,
            max: 1 << 20,
            from: Provenance::estimated("a queue of a driver or a socket"),
        },
        ORDER,
        LINES,
    ],
    make: |values, cpus| {
        Box::new(Handoff::new(cpus, values[0] as usize, order(values[1]), values[2]))
    },
};

/// A queue of blocks between each two CPUs.
#[derive(Clone, Debug)]
pub struct Handoff {
    queues: Vec<VecDeque<Pfn>>,
    depth: usize,
    order: Order,
    lines: u64,
}

impl Handoff {
    /// For `cpus` CPUs, with up to `depth` blocks in flight in each pair; the first CPU writes
    /// `lines` lines of each and the second reads them.
    pub fn new(cpus: u32, depth: usize, order: Order, lines: u64) -> Handoff {
        Handoff { queues: vec![VecDeque::new(); cpus as usize / 2], depth, order, lines }
    }
}

impl Program for Handoff {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let Some(queue) = self.queues.get_mut(cpu as usize / 2) else { return Turn::Done };
        let other = cpu ^ 1;
        if cpu.is_multiple_of(2) {
            if queue.len() == self.depth {
                return Turn::Wait;
            }
            if let Some(block) = lab.alloc(self.order) {
                lab.touch(block, self.order, self.lines, Access::Write);
                queue.push_back(block);
                lab.wake(other);
            }
        } else {
            let Some(block) = queue.pop_front() else { return Turn::Wait };
            lab.touch(block, self.order, self.lines, Access::Read);
            lab.free(block, self.order);
            lab.wake(other);
        }
        Turn::More
    }
}
