//! The range that was freed last, kept by the CPU for the next request of so many pages.
//!
//! A program that takes and frees ranges in turn has its range cut from a block once: a range that
//! comes back is *parked*, as one word of its pcp, and goes out again from there. Its blocks are on
//! no list meanwhile. Of their words only that of the first changes, which told how many pages the
//! range has (RANGE-6): so a range of any length comes back by one exchange and goes out by one
//! store. Whoever is to free a part of it looks at the first word first, so that a second free of
//! any part is refused. The rest of its block stays on the lists.
//!
//! ```text
//!  free of 3 pages ──► nothing parked, room kept ──► parked ──► request for 3 pages ──► handed out
//!                                                      │ any other way into the pcp
//!                                                      └──► its blocks go to their lists
//! ```
//! To the statistics it is on a list: the free is counted when it is parked, an allocation of its
//! block and a free of the rest when it is taken, as where the block is cut. To the tuning a range
//! that goes out as it came is no operation; one that goes to the lists is the free that it is
//! without this.
//!
//! # Invariants
//! - **PARK-1** at most one range is parked, of at most 511 pages. While room is kept for it,
//!   [`Ready`](super::ready::Ready) is as it was when it was parked: whoever enters otherwise than
//!   by a gate that is ready puts it on its lists first. Who cannot takes the room and leaves the
//!   gate ready for nothing, and then nobody enters until the pcp was closed: whoever closes it
//!   frees the range next. A free that meets this closes it.
//! - **PARK-2** while a range is parked, `others` of the active list counts `room` pages, at least
//!   the range's, beside those on lists. So the limits of PCP-4 and BUDGET-2 hold for it, too.
//! - **PARK-3** the first word of a parked range is PARKED, which is nobody's to claim; each of the
//!   others says that it continues a range, as before. Whoever is to free or change any part looks
//!   at the first word of its range before (RANGE-6), and is refused. Who takes the range apart
//!   writes the first word last.

use core::num::NonZeroU64;

use crate::frame::PageWord;
use crate::frame::claim;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// A parked range, and what was counted of those before.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Parked {
    /// The range's frame above 32 bits of its pages; 0: none is parked.
    range: AtomicU64,
    /// Times that one was taken.
    taken: AtomicU64,
    /// Base pages of their blocks.
    taken_pages: AtomicU64,
    /// Order of its block above 32 bits of the pages that a range to be parked has; 0 where no room
    /// is kept (PARK-2).
    room: AtomicU64,
    /// `taken` at the last refresh.
    seen: AtomicU64,
    /// First word of a range of as many pages that is handed out (RANGE-6).
    told: AtomicU64,
    /// The same while it is parked.
    parked: AtomicU64,
    /// Base pages of the block that room is kept for the front of.
    block: AtomicU64,
}

impl Parked {
    /// The range: frame, and pages. Exact only for the holder of the gate.
    #[inline(always)]
    pub(crate) fn range(&self) -> Option<(u32, u32)> {
        let range = self.range.load(Relaxed);
        (range != 0).then_some(((range >> 32) as u32, range as u32))
    }

    /// The parked range, for the holder of the gate, if it is of so many pages, at least one: its
    /// frame.
    #[inline(always)]
    pub(super) fn of(&self, pages: u32) -> Option<u32> {
        let range = self.range.load(Relaxed);
        (range as u32 == pages).then_some((range >> 32) as u32)
    }

    /// Pages that are parked. Exact only for the holder of the gate.
    #[inline(always)]
    pub(crate) fn pages(&self) -> u32 {
        self.range.load(Relaxed) as u32
    }

    /// Pages that room is kept for. Exact only for the holder of the gate.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.room.load(Relaxed) as u32
    }

    /// Takes the room back that is kept, for the holder of the gate.
    #[inline(always)]
    pub(super) fn take_room(&self) -> u32 {
        let room = self.room.load(Relaxed);
        if room != 0 {
            self.room.store(0, Relaxed);
        }
        room as u32
    }

    /// The order of the block that a range of so many pages is the front of, if that is what room
    /// is kept for. Exact only for the holder of the gate.
    #[inline(always)]
    pub(crate) fn order(&self, pages: NonZeroU64) -> Option<u32> {
        let room = self.room.load(Relaxed);
        // Where no room is kept, that is room for none.
        (room & 0xffff_ffff == pages.get()).then_some((room >> 32) as u32)
    }

    /// Takes the range, for the holder of the gate: its words are the caller's.
    pub(crate) fn take(&self) -> Option<(u32, u32)> {
        let range = self.range();
        if range.is_some() {
            self.range.store(0, Relaxed);
        }
        range
    }

    /// Whether a range of so many pages may be parked, for the holder of the gate.
    #[inline(always)]
    pub(super) fn is_for(&self, pages: u32) -> bool {
        self.room() == pages && self.range.load(Relaxed) == 0
    }

    /// Keeps room for such a range, for the holder of the gate. `told`: its first word.
    pub(super) fn keep_room(&self, order: u32, pages: u32, told: u64) {
        self.room.store(u64::from(order) << 32 | u64::from(pages), Relaxed);
        self.told.store(told, Relaxed);
        self.parked.store(PageWord(told).as_parked().0, Relaxed);
        self.block.store(1 << order, Relaxed);
    }

    /// The first word of a range that room is kept for, once it is handed out.
    #[inline(always)]
    pub(super) fn told(&self) -> u64 {
        self.told.load(Relaxed)
    }

    /// Takes a range that room is kept for out of its owner's hands, by its first word. `false`:
    /// none of that length begins there.
    #[inline(always)]
    pub(super) fn claim(&self, first: &AtomicU64) -> bool {
        claim::exchange(first, self.told(), self.parked.load(Relaxed))
    }

    /// Whether a range is parked without room, until somebody closes the pcp (PARK-1). Advice for
    /// who does not hold the gate.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.pages() != 0 && !self.has_room()
    }

    /// Whether room is kept.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.room.load(Relaxed) != 0
    }

    /// Parks a range, for the holder of the gate.
    #[inline(always)]
    pub(super) fn put(&self, frame: u64, pages: u32) {
        self.range.store(frame << 32 | u64::from(pages), Relaxed);
    }

    /// Hands the range that room is kept for out, for the holder of the gate, and counts it.
    /// Counted first: who reads the counts meanwhile does not miss its pages, but may see them
    /// twice.
    #[inline(always)]
    pub(super) fn hand_out(&self) {
        let (taken, pages) = self.taken();
        self.taken.store(taken + 1, Relaxed);
        self.taken_pages.store(pages + self.block.load(Relaxed), Relaxed);
        self.range.store(0, Relaxed);
    }

    /// For a refresh: whether one was taken since the last.
    pub(crate) fn is_in_use(&self) -> bool {
        let taken = self.taken.load(Relaxed);
        let in_use = self.seen.load(Relaxed) != taken;
        if in_use {
            self.seen.store(taken, Relaxed);
        }
        in_use
    }

    /// Ranges that were taken, and the pages of their blocks.
    pub(crate) fn taken(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.taken_pages.load(Relaxed))
    }
}
