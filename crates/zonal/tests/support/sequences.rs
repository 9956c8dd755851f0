//! The restartable sequences of this program, as the kernel sees them: one descriptor each, in the
//! linker's section `__rseq_cs`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `struct rseq_cs` of the kernel.
#[repr(C, align(32))]
pub struct Descriptor {
    _version_and_flags: u64,
    pub start: u64,
    /// Bytes from `start` to behind the commit.
    pub length: AtomicU64,
    pub abort: u64,
}

unsafe extern "C" {
    #[link_name = "__start___rseq_cs"]
    static FIRST: Descriptor;
    #[link_name = "__stop___rseq_cs"]
    static END: Descriptor;
}

/// All sequences of the program: one for each place where one was inlined.
pub fn all() -> &'static [Descriptor] {
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end as usize - first as usize) / size_of::<Descriptor>();
    // SAFETY: (1) the linker puts these names around the section, which holds nothing but
    // descriptors of 32 bytes; (2) they are never moved, and changed only through the atomic.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// The sequence that an instruction is in.
pub fn of(instruction: u64) -> Option<&'static Descriptor> {
    all().iter().find(|cs| instruction.wrapping_sub(cs.start) < cs.length.load(Relaxed))
}

/// Makes the kernel blind: it still reads the descriptors, but no instruction is in any of them, so
/// that nobody is ever sent to an abort handler. For the rest of the process.
pub fn disarm() {
    for descriptor in all() {
        descriptor.length.store(0, Relaxed);
    }
}
