//! The process of gperftools: the C library's symbols with `libtcmalloc_minimal` preloaded.
//!
//! The call goes through the same kind of table entry as the `glibc-malloc` subject's, so the two
//! differ in the allocator alone.

use zonal_bench::serve_subject;
use zonal_bench::subjects::LibcMalloc;

fn main() -> std::io::Result<()> {
    serve_subject(|_| {
        // SAFETY: a NUL-terminated name; the default handle is always valid.
        let version = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"tc_version".as_ptr()) };
        if version.is_null() {
            return Err("libtcmalloc_minimal was not preloaded".into());
        }
        Ok(LibcMalloc::new("gperftools"))
    })
}
