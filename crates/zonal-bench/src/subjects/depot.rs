//! A locked store of free blocks, from which the CPU's or thread's own list is refilled.

use std::sync::{Mutex, PoisonError};

/// Free blocks of one order.
#[derive(Default)]
pub(crate) struct Depot {
    blocks: Mutex<Vec<usize>>,
}

impl Depot {
    /// A depot that holds `blocks`, with room for all of them to come back.
    pub(crate) fn new(blocks: Vec<usize>) -> Depot {
        Depot { blocks: Mutex::new(blocks) }
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
