//! The heads of the lists of free blocks.

use crate::frame::NO_FRAME;
use crate::types::NR_MIGRATETYPES;

/// The ends of one doubly linked list of free blocks, as frame indexes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NO_FRAME, tail: NO_FRAME };
}

/// The free blocks of one order.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Area {
    pub(super) lists: [List; NR_MIGRATETYPES],
    /// Blocks on all lists (BUDDY-2).
    pub(super) nr_free: u32,
}
