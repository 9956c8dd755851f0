//! Asks the processor for a line of memory before it is needed.
//!
//! A hint and nothing else: no value is read, none is written, and a wrong address faults nothing.
//! Assembly because the language has no prefetch for writing; Intel's and AMD's 64-bit processors
//! that do not know `prefetchw` pass over it.
#![allow(unsafe_code)]

/// The line of `place` is about to be written here, and may be in another CPU's cache.
#[inline(always)]
pub fn for_write<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: (1) a hint, which changes no memory, no register and no flag.
    unsafe {
        core::arch::asm!(
            "prefetchw [{p}]",
            p = in(reg) place,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: (1) as above.
    unsafe {
        core::arch::asm!(
            "prfm pstl1keep, [{p}]",
            p = in(reg) place,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}
