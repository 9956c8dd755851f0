//! Cells in a `static`: apart from the protocol, which the model compiles with other atomics.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::fence::FenceCell;

impl FenceCell {
    /// The cell of a CPU that is not up.
    pub const fn new() -> FenceCell {
        FenceCell {
            state: AtomicU32::new(0),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }
}
