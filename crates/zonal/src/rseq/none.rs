//! Processors without sections of their own: everything is refused, so that every operation takes
//! the long way through the core. A pool's mode is `Lock` there.

use super::{Fast, NO_FRAME, Popped};
use zonal_core::pcp::store::Pcp;

/// Refuses.
///
/// # Safety
/// 1. Nothing is asked.
pub(crate) unsafe fn pop_page(fast: &Fast) -> Popped {
    Popped { frame: NO_FRAME, pcp: fast.stores[0] as *const Pcp }
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is asked.
pub(crate) unsafe fn pop_block(fast: &Fast, _list: usize) -> Popped {
    Popped { frame: NO_FRAME, pcp: fast.stores[0] as *const Pcp }
}

/// No CPU.
pub(crate) fn store(fast: &Fast) -> (u32, *const Pcp) {
    (u32::MAX, fast.stores[0] as *const Pcp)
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is asked.
pub(crate) unsafe fn push_page(_: &Fast, _: u32, _: *const Pcp, _: u32) -> bool {
    false
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is asked.
pub(crate) unsafe fn push_block(_: &Fast, _: (u32, *const Pcp), _: usize, _: u32) -> bool {
    false
}
