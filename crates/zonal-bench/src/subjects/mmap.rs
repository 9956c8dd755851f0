//! `mmap`: every block is a mapping of its own. What the kernel's page allocator costs when a
//! program asks it for pages directly, faults (in the touched loops) and address space included.

use crate::subject::{Subject, block_bytes};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::null_mut;

/// mmap and munmap for each block.
pub struct Mmap;

// SAFETY: (1) and (2) a mapping of its own for each block.
unsafe impl Subject for Mmap {
    fn name(&self) -> &str {
        "mmap"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let (bytes, flags) = (block_bytes(order), MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let map =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        map.map_or(null_mut(), <*mut _>::cast)
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: (1) the caller passes a block of `alloc` with its order, so this is the whole
        // mapping. (2) it is no longer in use. It cannot fail for such a mapping.
        let _ = unsafe { munmap(block.cast(), block_bytes(order)) };
    }
}
