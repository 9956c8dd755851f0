//! What a CPU's sections work on, and where they find it. KSEC-1 in `fast.rs`.

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU64};

use zonal_core::pcp::word::SLOW;

use crate::kernel::Kernel;

/// A kernel in which sections run.
///
/// # Safety
/// 1. On every CPU that calls [`FastPages`], GS points to memory of that CPU alone, which has an
///    [`OwnCell`] at `OWN`, from before the first call on; interrupts, their handlers included, and
///    all code of the kernel that calls find the same GS.
/// 2. The entry of every interrupt, exception and trap after which the CPU may go on elsewhere, or
///    whose handler calls [`FastPages`], passes the interrupted address through
///    [`restart`](super::restart) before anything else, with a table of all rows of
///    `.zonal_sections`, and goes on at the address that comes back (KSEC-4).
/// 3. [`Kernel::mask`] keeps every interrupt of the CPU out whose handler may call the allocator,
///    switch threads or answer a fence, and [`Kernel::has_sections`] says `true`.
/// 4. While interrupts are masked, [`Kernel::cpu`] names the CPU whose memory GS points to.
///
/// [`FastPages`]: super::fast::FastPages
pub unsafe trait RunsSections: Kernel {
    /// Bytes from where GS points to the CPU's [`OwnCell`].
    const OWN: i32;
}

/// Where a CPU finds what its sections work on. In the memory of that CPU that GS points to.
#[derive(Debug)]
#[repr(C)]
pub struct OwnCell {
    pub(super) pcp: AtomicPtr<u8>,
    pub(super) zone: AtomicPtr<u8>,
    pub(super) types: AtomicPtr<u8>,
    pub(super) frames: AtomicU64,
}

/// In an [`OwnCell`]: the pcp of the zone that the CPU prefers.
pub(super) const OWN_PCP: usize = offset_of!(OwnCell, pcp);
/// What that zone lets fast operations do.
pub(super) const OWN_ZONE: usize = offset_of!(OwnCell, zone);
/// The type of pageblock 0, if that were in the zone.
pub(super) const OWN_TYPES: usize = offset_of!(OwnCell, types);

/// Frames of the machine.
pub(super) const OWN_FRAMES: usize = offset_of!(OwnCell, frames);

/// A hot word that is slow, and a zone that lets nothing pass: low bits of both are zero.
static NEVER: AtomicU64 = AtomicU64::new(SLOW);
const _: () = assert!(SLOW & 0xffff == 0, "no bit of an order, nor that of frees");

impl OwnCell {
    /// That of a CPU whose sections leave at once.
    pub const fn new() -> OwnCell {
        let never = (&raw const NEVER).cast_mut().cast::<u8>();
        OwnCell {
            pcp: AtomicPtr::new(never),
            zone: AtomicPtr::new(never),
            types: AtomicPtr::new(never),
            frames: AtomicU64::new(0),
        }
    }
}

impl Default for OwnCell {
    fn default() -> OwnCell {
        OwnCell::new()
    }
}
