//! What every processor's linker script and `boot.s` have: where the image lies, and the switch of
//! stacks.

use core::ops::Range;

unsafe extern "C" {
    /// Goes on where `new` was left, and leaves this place in `old`.
    pub fn switch_stacks(old: *mut usize, new: usize);
}

/// The bytes of the kernel's image, its first stack included.
pub fn bytes() -> Range<u64> {
    unsafe extern "C" {
        static kernel_start: u8;
        static kernel_end: u8;
    }
    (&raw const kernel_start) as u64..(&raw const kernel_end) as u64
}
