//! Blocks that were just handed out: their zeroes, and the address of any page number.

use std::ptr::NonNull;

use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, PAGE_SHIFT};

use crate::error::AllocError;

/// Zeroes a block that was just handed out, if that was asked for.
#[inline(always)]
pub(super) fn zeroed(start: NonNull<u8>, order: Order, gfp: Gfp) -> NonNull<u8> {
    if gfp.contains(Gfp::ZERO) {
        // SAFETY: (1) the block was just handed out to the caller, so its bytes are ours.
        unsafe { start.as_ptr().write_bytes(0, order.bytes()) };
    }
    start
}

/// The address of which [`Pfn::at`](zonal_core::types::Pfn::at) made `frame`, wherever it lies.
pub(super) fn address_of(base: usize, frame: usize) -> usize {
    frame.rotate_left(PAGE_SHIFT).wrapping_add(base)
}

/// The zeroes of a block that was just handed out, behind a call: for who has no stack frame.
#[cold]
#[inline(never)]
pub(super) fn zero_block(start: NonNull<u8>, order: Order) -> Result<NonNull<u8>, AllocError> {
    Ok(zeroed(start, order, Gfp::ZERO))
}

/// As [`zero_block`].
#[cold]
#[inline(never)]
pub(super) fn zero_raw(start: NonNull<u8>, order: Order) -> *mut u8 {
    zeroed(start, order, Gfp::ZERO).as_ptr()
}
