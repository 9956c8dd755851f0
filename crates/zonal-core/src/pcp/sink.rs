//! Where the blocks of a refill go, by ones and by rows.

use crate::lanes::store_row;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Blocks in a row that are handled at once.
const ROW: u32 = 8;

/// Where a refill puts its blocks. The first one given is the first to be popped (LB E.6: refills
/// are appended in the order of removal, allocations take from the head).
#[derive(Debug)]
pub struct Sink<'a> {
    slots: &'a [AtomicU32],
    base: u32,
    wanted: u32,
    next: u32,
}

impl<'a> Sink<'a> {
    /// For so many blocks, in the slots from `base` on.
    pub(super) fn new(slots: &'a [AtomicU32], base: u32, wanted: u32) -> Sink<'a> {
        Sink { slots, base, wanted, next: wanted }
    }
    /// Blocks that it got.
    pub fn got(&self) -> u32 {
        self.wanted - self.next
    }
    /// Blocks it still takes.
    pub fn room(&self) -> u32 {
        self.next
    }
    /// Takes one block. More than were wanted are a bug of the caller.
    #[inline]
    pub fn give(&mut self, frame: u32) {
        debug_assert!(self.next > 0);
        self.next -= 1;
        self.slots[(self.base + self.next) as usize].store(frame, Relaxed);
    }
    /// Takes eight blocks with frames in a row. `hottest` is the one that is popped first of them;
    /// the others lie behind it.
    #[inline]
    pub(crate) fn give_row(&mut self, hottest: u32) {
        if let Some(slots) = self.next_row() {
            store_row(slots, hottest + (ROW - 1), false);
        }
    }
    /// The slots of so many times eight blocks, coldest first, which are theirs now; of none, if
    /// that is more than it takes, which is a bug of the caller.
    #[inline]
    pub(crate) fn next_rows(&mut self, rows: usize) -> &'a [[AtomicU32; ROW as usize]] {
        let blocks = rows as u32 * ROW;
        debug_assert!(self.next >= blocks);
        let Some(next) = self.next.checked_sub(blocks) else { return &[] };
        self.next = next;
        let first = (self.base + self.next) as usize;
        self.slots.get(first..first + blocks as usize).unwrap_or_default().as_chunks().0
    }
    /// The slots of the next eight blocks, which are theirs now.
    #[inline]
    fn next_row(&mut self) -> Option<&'a [AtomicU32; ROW as usize]> {
        debug_assert!(self.next >= ROW);
        self.next -= ROW;
        self.slots.get((self.base + self.next) as usize..)?.first_chunk()
    }
}
