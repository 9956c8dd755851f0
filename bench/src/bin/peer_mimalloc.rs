//! The process of mimalloc 3: `mi_malloc_aligned` and `mi_free`, called from the loops directly.

use std::ffi::c_int;
use zonal_bench::{PAGE, Subject, block_bytes, serve_subject};

unsafe extern "C" {
    /// 3.1.5 is 315, and 30105 since 3.2.
    safe fn mi_version() -> c_int;
}

struct Mimalloc;

// SAFETY: (1) and (2) what the library promises.
unsafe impl Subject for Mimalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        "mimalloc"
    }

    #[inline(always)]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // SAFETY: the alignment is a power of two; any size may be asked for.
        unsafe { libmimalloc_sys::mi_malloc_aligned(block_bytes(order), PAGE) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, _order: u32) {
        // SAFETY: the caller passes a block of `alloc`, once.
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }
}

fn main() -> std::io::Result<()> {
    let version = mi_version();
    serve_subject(|_| match version.to_string().starts_with('3') {
        true => Ok(Mimalloc),
        false => Err(format!("this is mimalloc {version}; expected version 3")),
    })
}
