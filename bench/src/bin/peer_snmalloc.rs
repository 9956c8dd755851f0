//! The process of snmalloc: its Rust entry points, which take the size on both sides.
//!
//! Its crate, built by cc, leaves the assertions on unless NDEBUG comes from outside; `peers.rs`
//! sees to that. Built in any other way the program refuses to measure.

use zonal_bench::{PAGE, Subject, block_bytes, serve_subject};

struct Snmalloc;

// SAFETY: (1) and (2) what the library promises.
unsafe impl Subject for Snmalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        "snmalloc"
    }

    #[inline(always)]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // SAFETY: the alignment is a power of two; any size may be asked for.
        unsafe { snmalloc_sys::sn_rust_alloc(PAGE, block_bytes(order)) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: the caller passes a block of `alloc` with its order, once.
        unsafe { snmalloc_sys::sn_rust_dealloc(block.cast(), PAGE, block_bytes(order)) };
    }
}

fn main() -> std::io::Result<()> {
    serve_subject(|_| match option_env!("CXXFLAGS") {
        Some(flags) if flags.contains("-DNDEBUG") => Ok(Snmalloc),
        _ => Err("it was built with assertions: CXXFLAGS had no -DNDEBUG".into()),
    })
}
