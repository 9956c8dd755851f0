//! The process of gperftools: the C library's symbols with `libtcmalloc_minimal` preloaded.
//!
//! The call goes through the same kind of table entry as the `glibc-malloc` subject's, so the two
//! differ in the allocator alone.

use std::ffi::{CStr, c_char, c_int};
use zonal_bench::subjects::LibcMalloc;
use zonal_bench::{PAGE, Waiting, serve_subject};

/// `MallocExtension_GetNumericProperty`: not 0 if there is such a figure.
type Property = unsafe extern "C" fn(*const c_char, *mut usize) -> c_int;

/// Pages that a figure in bytes is; `None` if there is no such figure.
fn pages(name: &CStr) -> Option<u64> {
    let symbol = c"MallocExtension_GetNumericProperty";
    // SAFETY: a NUL-terminated name; the default handle is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    // SAFETY: a function of this type, as gperftools' malloc_extension_c.h declares it, or null.
    let property: Option<Property> = unsafe { std::mem::transmute(found) };
    let mut value = 0;
    // SAFETY: a NUL-terminated name, and room for the figure.
    let known = unsafe { property?(name.as_ptr(), &raw mut value) };
    (known != 0).then_some((value / PAGE) as u64)
}

/// The caches of threads; those of transfer and of the central lists.
fn waiting() -> Option<Waiting> {
    let lists = pages(c"tcmalloc.current_total_thread_cache_bytes")?;
    let shared = [c"tcmalloc.transfer_cache_free_bytes", c"tcmalloc.central_cache_free_bytes"];
    let depots = shared.into_iter().filter_map(pages).reduce(|a, b| a + b);
    Some(Waiting { lists, depots })
}

fn main() -> std::io::Result<()> {
    serve_subject(|_| {
        // SAFETY: a NUL-terminated name; the default handle is always valid.
        let version = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"tc_version".as_ptr()) };
        if version.is_null() {
            return Err("libtcmalloc_minimal was not preloaded".into());
        }
        Ok(LibcMalloc::telling("gperftools", waiting))
    })
}
