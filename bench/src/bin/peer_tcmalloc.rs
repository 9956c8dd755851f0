//! The process of google's tcmalloc, as crate `tcmalloc-better` calls it.
//!
//! Its per-CPU caches need rseq for themselves, but glibc registers every thread first. So it is
//! run twice: as programs get it (`tcmalloc-default`), and with
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0` (`tcmalloc-percpu`). The process asks tcmalloc which mode
//! is on and refuses to measure under the wrong name.

use libtcmalloc_sys::{
    BridgeTCMallocInternalNewAlignedNothrow, TCMallocInternalDeleteSizedAligned,
};
use std::ffi::c_char;
use zonal_bench::{PAGE, Subject, Waiting, block_bytes, serve_subject};

unsafe extern "C" {
    /// Whether the per-CPU caches are on; false until the first allocation.
    safe fn MallocExtension_Internal_GetPerCpuCachesActive() -> bool;
    /// A figure by its name; false if there is none of that name.
    fn MallocExtension_Internal_GetNumericProperty(
        name: *const c_char,
        length: usize,
        value: *mut usize,
    ) -> bool;
}

/// Pages that a figure in bytes is; `None` if there is no such figure.
fn pages(name: &str) -> Option<u64> {
    let mut value = 0;
    let (start, length) = (name.as_ptr().cast(), name.len());
    // SAFETY: a name of that length, and room for the figure.
    let known =
        unsafe { MallocExtension_Internal_GetNumericProperty(start, length, &raw mut value) };
    known.then_some((value / PAGE) as u64)
}

struct Tcmalloc {
    name: String,
}

// SAFETY: (1) and (2) what the library promises.
unsafe impl Subject for Tcmalloc {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    /// The caches of CPUs and threads; those of transfer and of the central lists.
    fn waiting(&self) -> Option<Waiting> {
        let threads = pages("tcmalloc.current_total_thread_cache_bytes");
        let lists = threads.into_iter().chain(pages("tcmalloc.cpu_free")).reduce(|a, b| a + b)?;
        let shared = ["tcmalloc.transfer_cache_free", "tcmalloc.central_cache_free"];
        let depots = shared.into_iter().filter_map(pages).reduce(|a, b| a + b);
        Some(Waiting { lists, depots })
    }

    #[inline(always)]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        // SAFETY: the size is not zero and the alignment is a power of two.
        unsafe { BridgeTCMallocInternalNewAlignedNothrow(block_bytes(order), PAGE) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let bytes = block_bytes(order);
        // SAFETY: the caller passes a block of `alloc` with its order, once; size and alignment
        // are those it was allocated with.
        unsafe { TCMallocInternalDeleteSizedAligned(block.cast(), bytes, PAGE) }
    }
}

fn main() -> std::io::Result<()> {
    serve_subject(|name| {
        let tcmalloc = Tcmalloc { name: name.to_owned() };
        // SAFETY: (1) order 0; (2) there is nothing to set up.
        let block = unsafe { tcmalloc.alloc(0) };
        if block.is_null() {
            return Err("the first allocation failed".into());
        }
        // SAFETY: just allocated with this order.
        unsafe { tcmalloc.free(block, 0) };
        let per_cpu = MallocExtension_Internal_GetPerCpuCachesActive();
        if per_cpu != (name == "tcmalloc-percpu") {
            return Err(format!("its per-CPU caches are {}", if per_cpu { "on" } else { "off" }));
        }
        Ok(tcmalloc)
    })
}
