//! What is asked of the buddy, and how a block is cut for it.

use crate::types::{Migratetype, Order};

/// What is asked of the buddy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakeRequest {
    /// Order of each block.
    pub order: Order,
    /// Migratetype it is for.
    pub mt: Migratetype,
    /// Do not mix types in a pageblock: only whole pageblocks may be claimed (ALLOC_NOFRAGMENT).
    pub nofragment: bool,
}

/// How deep the previous take of a batch had to go (LB B.7, the last lines of "Steal").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Normal,
    Steal,
}

/// `pieces` blocks of `order` cut from the front of a block of order `from`.
pub(super) struct Cut {
    pub(super) first: u32,
    pub(super) from: u32,
    pub(super) order: u32,
    pub(super) pieces: u32,
}
