//! `glibc-malloc`: `aligned_alloc` and `free` of the C library that the process runs with.
//!
//! With `LD_PRELOAD` these symbols are another allocator's, which is how `bench/` measures
//! gperftools; the subject is then given that name.

use crate::subject::{PAGE, Subject, Waiting, block_bytes};

/// The process's `aligned_alloc` and `free`.
pub struct LibcMalloc {
    name: &'static str,
    waiting: fn() -> Option<Waiting>,
}

impl LibcMalloc {
    /// The C library's malloc under `name`.
    pub fn new(name: &'static str) -> LibcMalloc {
        LibcMalloc::telling(name, || None)
    }

    /// The same of an allocator that can be asked which memory waits in its lists.
    pub fn telling(name: &'static str, waiting: fn() -> Option<Waiting>) -> LibcMalloc {
        LibcMalloc { name, waiting }
    }
}

// SAFETY: (1) and (2) the C library guarantees them.
unsafe impl Subject for LibcMalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        self.name
    }

    fn waiting(&self) -> Option<Waiting> {
        (self.waiting)()
    }

    #[inline(always)]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // SAFETY: the alignment is a power of two and divides the size.
        unsafe { libc::aligned_alloc(PAGE, block_bytes(order)) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, _order: u32) {
        // SAFETY: the caller passes a block of `alloc`, once.
        unsafe { libc::free(block.cast()) }
    }
}
