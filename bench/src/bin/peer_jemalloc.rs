//! The process of jemalloc: `mallocx` with an alignment, and the sized `sdallocx`.
//!
//! It is run twice: as it comes (`jemalloc`), and with the options that a program of pages would
//! choose (`jemalloc-tuned`): no block is too large for the thread's arena, and its cache has room
//! for a thousand pages and for 256 of each larger size, up to the 32 KiB that version 5.3.1 caches
//! at most. The process asks jemalloc whether they were read.

use std::ffi::CStr;
use tikv_jemalloc_sys::{MALLOCX_ALIGN, mallctl, mallocx, sdallocx};
use zonal_bench::{PAGE, Subject, block_bytes, serve_subject};

struct Jemalloc {
    name: String,
}

/// An option's value.
fn option(name: &CStr) -> Result<usize, String> {
    let (mut value, mut bytes) = (0_usize, size_of::<usize>());
    let (into, length) = ((&raw mut value).cast(), &raw mut bytes);
    // SAFETY: a name, room for a number of this length, and nothing to write.
    let code = unsafe { mallctl(name.as_ptr(), into, length, std::ptr::null_mut(), 0) };
    let name = name.to_string_lossy();
    if code == 0 { Ok(value) } else { Err(format!("it has no option {name}: error {code}")) }
}

// SAFETY: (1) and (2) what the library promises.
unsafe impl Subject for Jemalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        &self.name
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
    serve_subject(|name| {
        let oversize = option(c"opt.oversize_threshold")?;
        if (oversize == 0) != (name == "jemalloc-tuned") {
            return Err(format!("_RJEM_MALLOC_CONF was not read: oversize_threshold {oversize}"));
        }
        Ok(Jemalloc { name: name.to_owned() })
    })
}
