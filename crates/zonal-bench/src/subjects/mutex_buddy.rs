//! `mutex-buddy`: a std Mutex around a buddy allocator with full merging, metadata outside the
//! pages: a kernel's allocator before per-CPU lists.
//!
//! # Invariants
//! - **MB-1** a free block of order `o` starts at a page with `o` low zero bits, has
//!   `state[page] == o`, and is on `heads[o]`'s list; every other page has [`NOT_FREE`]
//! - **MB-2** a block and its buddy are never both free below [`ORDER_TOP`]

use crate::error::BenchError;
use crate::region::Region;
use crate::subject::{PAGE, Sizing, Subject, Waiting};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// Largest order, as in Linux.
const ORDER_TOP: usize = 10;
/// State of a page that does not start a free block.
const NOT_FREE: u8 = 255;
/// End of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Links {
    next: u32,
    prev: u32,
}

/// The buddy, by page number.
struct Buddy {
    heads: [u32; ORDER_TOP + 1],
    links: Vec<Links>,
    state: Vec<u8>,
}

impl Buddy {
    /// All of `pages` free; a multiple of the largest block.
    fn new(pages: usize) -> Buddy {
        let links = vec![Links { next: NONE, prev: NONE }; pages];
        let mut buddy = Buddy { heads: [NONE; ORDER_TOP + 1], links, state: vec![NOT_FREE; pages] };
        // Downwards, so that the lowest block is at the head.
        for page in (0..pages >> ORDER_TOP).rev() {
            buddy.push(page << ORDER_TOP, ORDER_TOP);
        }
        buddy
    }

    fn push(&mut self, page: usize, order: usize) {
        let next = self.heads[order];
        self.links[page] = Links { next, prev: NONE };
        if next != NONE {
            self.links[next as usize].prev = page as u32;
        }
        self.heads[order] = page as u32;
        self.state[page] = order as u8;
    }

    fn remove(&mut self, page: usize, order: usize) {
        let Links { next, prev } = self.links[page];
        if prev == NONE {
            self.heads[order] = next;
        } else {
            self.links[prev as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
        self.state[page] = NOT_FREE;
    }

    fn alloc(&mut self, order: usize) -> Option<usize> {
        let from = (order..=ORDER_TOP).find(|&from| self.heads[from] != NONE)?;
        let page = self.heads[from] as usize;
        self.remove(page, from);
        for half in (order..from).rev() {
            self.push(page + (1 << half), half);
        }
        Some(page)
    }

    fn free(&mut self, mut page: usize, mut order: usize) {
        while order < ORDER_TOP {
            let buddy = page ^ (1 << order);
            if self.state[buddy] != order as u8 {
                break;
            }
            self.remove(buddy, order);
            page &= buddy;
            order += 1;
        }
        self.push(page, order);
    }
}

/// A buddy behind one lock; see the module's essay.
pub struct MutexBuddy {
    buddy: Mutex<Buddy>,
    memory: Region,
}

impl MutexBuddy {
    /// A buddy over the pages that `sizing` needs.
    ///
    /// # Errors
    /// If the memory cannot be mapped.
    pub fn new(sizing: Sizing) -> Result<MutexBuddy, BenchError> {
        let memory = Region::new((sizing.pages() * PAGE).next_multiple_of(PAGE << ORDER_TOP))?;
        let buddy = Mutex::new(Buddy::new(memory.bytes() / PAGE));
        Ok(MutexBuddy { buddy, memory })
    }
}

// SAFETY: (1) pages of the region, which lives as long as the subject. (2) MB-1.
unsafe impl Subject for MutexBuddy {
    fn name(&self) -> &str {
        "mutex-buddy"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let mut buddy = self.buddy.lock().unwrap_or_else(PoisonError::into_inner);
        buddy.alloc(order as usize).map_or(null_mut(), |page| self.memory.page(page))
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let Some(page) = self.memory.index_of(block) else { return };
        let mut buddy = self.buddy.lock().unwrap_or_else(PoisonError::into_inner);
        buddy.free(page, order as usize);
    }

    /// It has no lists besides its memory.
    fn waiting(&self) -> Option<Waiting> {
        Some(Waiting::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_freed_merges_back_into_the_largest_blocks() {
        let mut buddy = Buddy::new(4096);
        let blocks: Vec<(usize, usize)> = (0..600)
            .map(|i| {
                let order = [0, 1, 0, 3, 2][i % 5];
                (buddy.alloc(order).unwrap(), order)
            })
            .collect();
        for &(page, order) in blocks.iter().step_by(2).chain(blocks.iter().skip(1).step_by(2)) {
            buddy.free(page, order);
        }
        let free: Vec<usize> =
            (0..4096).filter(|&page| buddy.state[page] == ORDER_TOP as u8).collect();
        assert_eq!(free, [0, 1024, 2048, 3072]);
        assert!(buddy.heads[..ORDER_TOP].iter().all(|&head| head == NONE));
    }
}
