//! Every CPU allocates many blocks one by one, then frees them all in the same order, over and
//! over: what a batch of packets or the life of a small process does to the per-CPU lists.

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, LINES, ORDER, Param, order};
use crate::cost::contents::Access;
use crate::provenance::Provenance;
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "burst",
    about: "every CPU allocates and writes `hold` blocks, then frees them, over and over",
    params: &[
        Param {
            name: "hold",
            about: "blocks allocated before the first is freed",
            default: 256,
            min: 1,
            max: 1 << 20,
            from: Provenance::estimated("four times the lists of a kernel before 6.6"),
        },
        ORDER,
        LINES,
    ],
    make: |values, cpus| {
        Box::new(Burst::new(cpus, values[0] as usize, order(values[1]), values[2]))
    },
};

/// Many blocks out, all of them back, on each CPU.
#[derive(Clone, Debug)]
pub struct Burst {
    cpus: Vec<Held>,
    hold: usize,
    order: Order,
    lines: u64,
}

#[derive(Clone, Debug, Default)]
struct Held {
    blocks: Vec<Pfn>,
    /// Of these, freed already; 0 while it allocates.
    freed: usize,
}

impl Burst {
    /// For `cpus` CPUs, each of which holds up to `hold` blocks and writes `lines` lines of each.
    pub fn new(cpus: u32, hold: usize, order: Order, lines: u64) -> Burst {
        Burst { cpus: vec![Held::default(); cpus as usize], hold, order, lines }
    }
}

impl Program for Burst {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let held = &mut self.cpus[cpu as usize];
        if held.freed == 0 && held.blocks.len() < self.hold {
            match lab.alloc(self.order) {
                Some(block) => {
                    lab.touch(block, self.order, self.lines, Access::Write);
                    held.blocks.push(block);
                }
                // A refused request ends the round: its blocks are freed.
                None => held.freed = usize::from(free(lab, held, self.order)),
            }
        } else {
            held.freed += usize::from(free(lab, held, self.order));
        }
        if held.freed == held.blocks.len() {
            held.blocks.clear();
            held.freed = 0;
        }
        Turn::More
    }
}

fn free(lab: &mut Lab<'_>, held: &Held, order: Order) -> bool {
    let next = held.blocks.get(held.freed);
    next.is_some_and(|block| {
        lab.free(*block, order);
        true
    })
}
