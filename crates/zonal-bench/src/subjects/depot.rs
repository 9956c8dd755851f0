//! A locked store of free blocks, from which the CPU's or thread's own list is refilled.

use crate::subject::Waiting;
use std::sync::{Mutex, PoisonError};

/// Free blocks of one order.
pub(crate) struct Depot {
    blocks: Mutex<Vec<usize>>,
    all: usize,
}

impl Depot {
    /// A depot that holds `blocks`, with room for all of them to come back.
    pub(crate) fn new(blocks: Vec<usize>) -> Depot {
        Depot { all: blocks.len(), blocks: Mutex::new(blocks) }
    }

    /// Blocks that are elsewhere.
    pub(crate) fn missing(&self) -> u64 {
        let here = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.all - here) as u64
    }

    /// Base pages that are missing from the depots of orders 0, 1 and so on: between two bursts
    /// those that wait in the lists.
    pub(crate) fn waiting(depots: &[Depot]) -> Waiting {
        let pages = depots.iter().zip(0..).map(|(depot, order)| depot.missing() << order);
        Waiting { lists: pages.sum(), depots: None }
    }

    /// Moves up to `into.len()` blocks out, and returns how many.
    pub(crate) fn take(&self, into: &mut [usize]) -> usize {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let count = into.len().min(blocks.len());
        let rest = blocks.len() - count;
        into[..count].copy_from_slice(&blocks[rest..]);
        blocks.truncate(rest);
        count
    }

    /// Moves `from` in.
    pub(crate) fn put(&self, from: &[usize]) {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(from);
    }
}
