//! The page benchmark of 2017: every CPU allocates one order-0 page and frees it, over and over.

use zonal_core::alloc::Request;
use zonal_core::types::{Order, Pfn};

use super::super::sim::{Lab, Workload};

/// One page out, one page back, on each CPU.
#[derive(Clone, Debug)]
pub struct PageBench {
    held: Vec<Option<Pfn>>,
    /// Pairs completed by all CPUs.
    pub pairs: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl PageBench {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: u32) -> PageBench {
        PageBench { held: vec![None; cpus as usize], pairs: 0, refused: 0 }
    }
}

impl Workload for PageBench {
    fn call(&mut self, lab: &Lab<'_>, cpu: u32) -> bool {
        let home = lab.allocator.platform();
        let work = &lab.machine.work;
        match self.held[cpu as usize].take() {
            None => {
                home.work(work.alloc);
                match lab.allocator.alloc(Request::new(Order::ZERO)) {
                    Ok(page) => self.held[cpu as usize] = Some(page),
                    Err(_) => self.refused += 1,
                }
            }
            Some(page) => {
                home.work(work.free);
                let freed = lab.allocator.free(page, Order::ZERO);
                self.pairs += u64::from(freed.is_ok());
            }
        }
        true
    }
}
