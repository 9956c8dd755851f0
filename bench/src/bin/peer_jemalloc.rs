//! The process of jemalloc: `mallocx` with an alignment, and the sized `sdallocx`.

use tikv_jemalloc_sys::{MALLOCX_ALIGN, mallocx, sdallocx};
use zonal_bench::{PAGE, Subject, block_bytes, serve_subject};

struct Jemalloc;

// SAFETY: (1) and (2) what the library promises.
unsafe impl Subject for Jemalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        "jemalloc"
    }

    #[inline(always)]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // SAFETY: the size is not zero and the alignment is a power of two.
        unsafe { mallocx(block_bytes(order), MALLOCX_ALIGN(PAGE)) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: the caller passes a block of `alloc` with its order, once; size and alignment
        // are those it was allocated with.
        unsafe { sdallocx(block.cast(), block_bytes(order), MALLOCX_ALIGN(PAGE)) }
    }
}

fn main() -> std::io::Result<()> {
    serve_subject(|_| Ok(Jemalloc))
}
