//! The bench's loop `mix` on every CPU: random orders and lifetimes, half of the steps on few
//! slots. A step that falls on an empty slot allocates, on a full one frees.

use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, LINES, Param};
use crate::cost::contents::Access;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};

pub(super) const KIND: Kind = Kind {
    name: "mix",
    about: "every CPU fills and empties slots at random, orders 0 to 4, as the bench's loop `mix`",
    params: &[
        Param {
            name: "slots",
            about: "blocks that a CPU holds at most",
            default: 1024,
            min: 1,
            // 1 GiB on the largest machine.
            max: 1 << 14,
            from: Provenance::estimated("as the bench's loop has it"),
        },
        Param {
            name: "hot",
            about: "slots that every second step falls on: blocks that live short",
            default: 64,
            min: 1,
            max: 1 << 14,
            from: Provenance::estimated("as the bench's loop has it"),
        },
        LINES,
    ],
    make: |values, cpus| Box::new(Mix::new(cpus, (values[0], values[1]), values[2])),
};

/// Slots of blocks of several orders on each CPU.
#[derive(Clone, Debug)]
pub struct Mix {
    cpus: Vec<Vec<Option<(Pfn, Order)>>>,
    slots: u64,
    hot: u64,
    lines: u64,
}

impl Mix {
    /// For `cpus` CPUs, each with so many slots, of which so many are hot; `lines` lines of each
    /// block are written.
    pub fn new(cpus: u32, (slots, hot): (u64, u64), lines: u64) -> Mix {
        let empty = vec![None; slots as usize];
        Mix { cpus: vec![empty; cpus as usize], slots, hot: hot.min(slots), lines }
    }
}

given! {
    /// Of a hundred blocks so many have order 0.
    pub AT_MOST_ORDER_0: u64 = 75, Provenance::estimated("as the bench's loop draws them");
    /// Of a hundred blocks so many have order 1 or less.
    pub AT_MOST_ORDER_1: u64 = 85, Provenance::estimated("as the bench's loop draws them");
    /// Of a hundred blocks so many have order 2 or less.
    pub AT_MOST_ORDER_2: u64 = 91, Provenance::estimated("as the bench's loop draws them");
    /// Of a hundred blocks so many have order 3 or less.
    pub AT_MOST_ORDER_3: u64 = 96, Provenance::estimated("as the bench's loop draws them");
}

/// The other blocks have order 4.
const SHARES: [u64; 4] = [AT_MOST_ORDER_0, AT_MOST_ORDER_1, AT_MOST_ORDER_2, AT_MOST_ORDER_3];

impl Program for Mix {
    fn keeps_busy(&self) -> bool {
        true
    }

    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let slots = if lab.random_below(2) == 0 { self.hot } else { self.slots };
        let place = lab.random_below(slots) as usize;
        let slot = &mut self.cpus[cpu as usize][place];
        if let Some((block, order)) = slot.take() {
            lab.free(block, order);
            return Turn::More;
        }
        let share = lab.random_below(100);
        let order = SHARES.iter().filter(|below| share >= **below).count();
        let order = Order::new(order as u32).unwrap_or(Order::ZERO);
        if let Some(block) = lab.alloc(order) {
            lab.touch(block, order, self.lines, Access::Write);
            *slot = Some((block, order));
        }
        Turn::More
    }
}
