//! The page benchmark of 2017: every CPU allocates a block and frees it, over and over.

use zonal_core::types::{Order, Pfn};

use super::{Kind, ORDER, Program, Turn, order};
use crate::sim::Lab;

pub(super) const KIND: Kind = Kind {
    name: "page-bench",
    about: "every CPU allocates one block and frees it, over and over",
    params: &[ORDER],
    make: |values, cpus| Box::new(PageBench::new(cpus, order(values[0]))),
};

/// One block out, one block back, on each CPU.
#[derive(Clone, Debug)]
pub struct PageBench {
    held: Vec<Option<Pfn>>,
    order: Order,
}

impl PageBench {
    /// For `cpus` CPUs.
    pub fn new(cpus: u32, order: Order) -> PageBench {
        PageBench { held: vec![None; cpus as usize], order }
    }
}

impl Program for PageBench {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        let held = &mut self.held[cpu as usize];
        match held.take() {
            None => *held = lab.alloc(self.order),
            Some(block) => lab.free(block, self.order),
        }
        Turn::More
    }
}
