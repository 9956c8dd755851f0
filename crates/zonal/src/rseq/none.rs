//! Processors without sequences of their own: everything is refused, so that every operation goes
//! through the core. A pool's mode is `Lock` there.

use super::{FastRef, NO_FRAME, Popped};

const NONE: Popped = Popped { frame: NO_FRAME, cached: u64::MAX };

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn pop_page(_: FastRef) -> Popped {
    NONE
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn pop_block(_: FastRef, _list: usize) -> Popped {
    NONE
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn push_page(_: FastRef, _: usize) -> bool {
    false
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn push_block(_: FastRef, _: usize, _: usize) -> bool {
    false
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn pop_any(_: FastRef, _list: usize) -> Popped {
    NONE
}

/// Refuses.
///
/// # Safety
/// 1. Nothing is required.
pub(crate) unsafe fn push_any(_: FastRef, _: usize, _: usize) -> bool {
    false
}
