//! `buddy_system_allocator`: the crate's heap behind a std Mutex.
//!
//! Its free lists are linked through the blocks themselves, and a free looks its buddy up by
//! walking a list, so many free blocks of one order make it slow; that is the crate, not the lock.

use crate::error::BenchError;
use crate::region::Region;
use crate::subject::{PAGE, Sizing, Subject, Waiting, block_bytes};
use buddy_system_allocator::Heap;
use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

/// Largest block: 2^(31 - 1) bytes, more than any bench asks for.
const HEAP_ORDERS: usize = 31;

/// `buddy_system_allocator::Heap` behind a lock.
pub struct BuddySystemAllocator {
    heap: Mutex<Heap<HEAP_ORDERS>>,
    _memory: Region,
}

fn layout(order: u32) -> Option<Layout> {
    Layout::from_size_align(block_bytes(order), PAGE).ok()
}

impl BuddySystemAllocator {
    /// A heap with memory for `sizing`.
    ///
    /// # Errors
    /// If the memory cannot be mapped.
    pub fn new(sizing: Sizing) -> Result<BuddySystemAllocator, BenchError> {
        let memory = Region::new(sizing.pages() * PAGE)?;
        let mut heap = Heap::empty();
        // SAFETY: the region is writable, nobody else uses it, and it lives as long as the heap.
        unsafe { heap.init(memory.start() as usize, memory.bytes()) };
        Ok(BuddySystemAllocator { heap: Mutex::new(heap), _memory: memory })
    }
}

// SAFETY: (1) blocks of the region, which lives as long as the subject. (2) the heap hands a block
// out once.
unsafe impl Subject for BuddySystemAllocator {
    fn name(&self) -> &str {
        "buddy_system_allocator"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let Some(layout) = layout(order) else { return null_mut() };
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.alloc(layout).map_or(null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let (Some(layout), Some(block)) = (layout(order), NonNull::new(block)) else { return };
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller passes a block of `alloc` with its order, hence its layout, once.
        unsafe { heap.dealloc(block, layout) };
    }

    /// It has no lists besides its memory.
    fn waiting(&self) -> Option<Waiting> {
        Some(Waiting::default())
    }
}
