//! Blocks coming in (LB B.4): the checks, the merge, and the first population of a zone.

use core::fmt;
use core::ops::Range;

use super::list::End;
use super::{Buddy, MAX, PBO};
use crate::frame::{Frames, PageWord};
use crate::types::{Migratetype, Order, Pfn};

/// How a block is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeFlags {
    /// Join the list at its tail, ignoring the merge heuristic: fresh memory, and isolated pages
    /// that come back (LB B.4, `FPI_TO_TAIL`).
    pub to_tail: bool,
}

/// A free that was refused; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeError {
    /// First frame of the freed block.
    pub pfn: Pfn,
    /// Its order, as the caller gave it.
    pub order: Order,
    /// Why it was refused.
    pub cause: FreeCause,
}

/// Why a free was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeCause {
    /// Not wholly inside the zone.
    OutsideZone,
    /// The pfn is no multiple of the block's size.
    Misaligned,
    /// A free block already starts there: a double free.
    AlreadyFree,
    /// The frame is inside another block, which starts at this pfn.
    InsideBlock(Pfn),
    /// The block is held, with this order.
    OrderIs(Order),
    /// Another block starts inside it, at this pfn. Looked for in memory that comes for the first
    /// time; of other blocks in debug builds only.
    Overlaps(Pfn),
    /// The word of its first frame is none that this crate writes.
    Corrupt,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot free {:?}, {:?}: {}", self.pfn, self.order, self.cause)
    }
}

impl fmt::Display for FreeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeCause::OutsideZone => f.write_str("not wholly inside the zone"),
            FreeCause::Misaligned => f.write_str("not aligned to its size"),
            FreeCause::AlreadyFree => f.write_str("already free"),
            FreeCause::InsideBlock(head) => write!(f, "inside the block at {head:?}"),
            FreeCause::OrderIs(order) => write!(f, "it was taken as {order:?}"),
            FreeCause::Overlaps(inner) => write!(f, "the block at {inner:?} is inside it"),
            FreeCause::Corrupt => f.write_str("its metadata was overwritten"),
        }
    }
}

impl core::error::Error for FreeError {}

impl Buddy {
    /// Frees the block of `order` that starts at frame `idx` into the list of its pageblock's type,
    /// merging it with its free buddies (LB B.4). A block above the pageblock order goes in as
    /// pageblocks, each with its own type.
    ///
    /// The block's word may be CACHED or ALLOCATED of the same order, or NONE (see "Hand-over of
    /// words" in the module's essay).
    ///
    /// # Errors
    /// A block that is not the caller's to free is refused and nothing changes. Checked always, in
    /// O(1): span, alignment, a frame that is free or inside any block, a wrong order. In debug
    /// builds also that no other block starts inside it, which only a NONE word can hide
    /// ([`seed`](Self::seed) looks in every build).
    #[inline(always)]
    pub fn free_block(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: Order,
        flags: FreeFlags,
    ) -> Result<(), FreeError> {
        // Whoever calls has a look and a free below it, not both in one frame.
        if !is_proven(frames, idx, order) {
            check_slowly(frames, idx, order, frames.load(idx))?;
        }
        if cfg!(debug_assertions) {
            check_inner(frames, idx, order, idx + order.pages() as u32)?;
        }
        self.free_checked(frames, idx, order, flags);
        Ok(())
    }

    #[inline(always)]
    fn free_checked(&mut self, frames: &Frames<'_>, idx: u32, order: Order, flags: FreeFlags) {
        let mt = frames.pageblock_type(idx);
        if order.get() <= PBO {
            self.free_one(frames, idx, order.get(), mt, flags);
        } else {
            self.free_pageblocks(frames, idx, order.get(), flags);
        }
    }

    /// First population: frees the frames of `range`, never used before, as the largest aligned
    /// blocks that fit, at the list tails (LB B.4 TO_TAIL). Set the pageblock types before
    /// ([`Frames::fill_pageblock_types`]: Linux starts with Movable). Leave out holes and reserved
    /// frames: seed the ranges between them.
    ///
    /// # Errors
    /// As [`free_block`](Self::free_block), and in every build [`FreeCause::Overlaps`]; a block
    /// that is held is refused whatever its order. Then nothing changes.
    pub fn seed(&mut self, frames: &Frames<'_>, range: Range<u32>) -> Result<(), FreeError> {
        for (idx, order) in seeds(frames, range.clone()) {
            self.check_seed(frames, (idx, order))?;
        }
        for (idx, order) in seeds(frames, range) {
            self.free_checked(frames, idx, order, FreeFlags { to_tail: true });
            self.seeded_end = self.seeded_end.max(end_of((idx, order)));
        }
        Ok(())
    }

    fn check_seed(&self, frames: &Frames<'_>, block: (u32, Order)) -> Result<(), FreeError> {
        let (idx, order) = block;
        check_slowly(frames, idx, order, frames.load(idx))?;
        // Behind all that was ever seeded no word was written, so none is read here.
        check_inner(frames, idx, order, end_of(block).min(self.seeded_end))
    }

    /// Whether the frames of `range`, which are in the zone, could be [seeded](Self::seed) now.
    ///
    /// # Errors
    /// As [`seed`](Self::seed).
    pub(crate) fn look_unused(
        &self,
        frames: &Frames<'_>,
        range: Range<u32>,
    ) -> Result<(), FreeError> {
        let known = range.start..range.end.min(self.seeded_end);
        seeds(frames, known).try_for_each(|block| self.check_seed(frames, block))
    }

    /// The last paragraph of LB B.4: pieces of one pageblock each.
    #[cold]
    fn free_pageblocks(&mut self, frames: &Frames<'_>, idx: u32, order: u32, flags: FreeFlags) {
        let mt = frames.pageblock_type(idx);
        let pieces = 1 << (order - PBO);
        if (1..pieces).all(|i| frames.pageblock_type(idx + (i << PBO)) == mt) {
            // Pieces of one type merge back to the whole block, whose list end the last piece
            // decides, and at orders above 8 that is `to_tail` alone. Going there at once leaves
            // the words of the later pageblocks untouched.
            self.free_one(frames, idx, order, mt, flags);
            return;
        }
        for i in 0..pieces {
            let piece = idx + (i << PBO);
            self.free_one(frames, piece, PBO, frames.pageblock_type(piece), flags);
        }
    }

    /// LB B.4 `free_one`. The caller has checked the block; `mt` is the type of its pageblocks.
    #[inline(never)]
    pub(super) fn free_one(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: u32,
        mt: Migratetype,
        flags: FreeFlags,
    ) {
        debug_assert_eq!(mt, frames.pageblock_type(idx));
        self.account_add(mt, 1 << order);
        let mut at = frames.aligned(idx);
        let mut o = order;
        // Inside a pageblock there is one type, so one list per order.
        while o < PBO {
            let buddy = frames.index_at(at ^ (1 << o));
            let word = frames.load(buddy);
            if !word.is_free_of(o) {
                break;
            }
            self.unlink(frames, buddy, word, o, mt);
            at &= !(1 << o);
            o += 1;
        }
        if o >= PBO {
            (at, o) = self.merge_pageblocks(frames, at, o, mt);
        }
        let head = frames.index_at(at);
        if head != idx && !frames.load(idx).is_none() {
            frames.store(idx, PageWord::NONE); // interior now (BUDDY-7)
        }
        let tail = flags.to_tail || merge_likely(frames, at, o);
        self.push(frames, head, o, mt, if tail { End::Tail } else { End::Head });
    }

    /// The part of LB B.4's loop where the buddy may have another type.
    #[cold]
    fn merge_pageblocks(
        &mut self,
        frames: &Frames<'_>,
        mut at: u32,
        mut o: u32,
        mt: Migratetype,
    ) -> (u32, u32) {
        while o < MAX {
            let buddy = frames.index_at(at ^ (1 << o));
            let word = frames.load(buddy);
            if !word.is_free_of(o) {
                break;
            }
            let buddy_mt = frames.pageblock_type(buddy);
            if buddy_mt != mt {
                if !mt.mergeable() || !buddy_mt.mergeable() {
                    break;
                }
                // Both count as free pages and as nothing else: no accounting moves.
                retag(frames, buddy, o, mt);
            }
            self.unlink(frames, buddy, word, o, buddy_mt);
            at &= !(1 << o);
            o += 1;
        }
        (at, o)
    }
}

/// The largest aligned blocks that fit in a range of frames, lowest first.
fn seeds(frames: &Frames<'_>, range: Range<u32>) -> impl Iterator<Item = (u32, Order)> {
    let Range { start: mut idx, end } = range;
    core::iter::from_fn(move || {
        let fits = end.checked_sub(idx)?.checked_ilog2()?;
        let aligned = frames.aligned(idx).trailing_zeros();
        let order = super::list::order_of(fits.min(aligned).min(MAX));
        let block = (idx, order);
        idx = end_of(block);
        Some(block)
    })
}

/// The frame behind a block.
fn end_of((idx, order): (u32, Order)) -> u32 {
    idx.saturating_add(order.pages() as u32)
}

/// Tags every pageblock of a block that is at least one pageblock.
pub(super) fn retag(frames: &Frames<'_>, idx: u32, order: u32, mt: Migratetype) {
    for i in 0..1 << (order - PBO) {
        frames.set_pageblock_type(idx + (i << PBO), mt);
    }
}

/// Whether the block would merge twice if its buddy came free: the buddy of their parent is free.
/// Such a block goes to the tail, to be handed out last (LB B.4).
#[inline]
fn merge_likely(frames: &Frames<'_>, at: u32, order: u32) -> bool {
    if order >= MAX - 1 {
        return false;
    }
    let parent = at & !(1 << order);
    let uncle = frames.index_at(parent ^ (1 << (order + 1)));
    frames.load(uncle).is_free_of(order + 1)
}

/// Whether the block's word says that the block is the caller's to free.
#[inline]
fn is_proven(frames: &Frames<'_>, idx: u32, order: Order) -> bool {
    let pages = order.pages() as u32;
    let inside = idx < frames.spanned() && pages <= frames.spanned() - idx;
    let aligned = frames.aligned(idx) & (pages - 1) == 0;
    let word = frames.load(idx);
    inside && aligned && word.is_held() && word.order_bits() == order.get()
}

/// Whether no block starts inside the block, up to frame `end`.
fn check_inner(frames: &Frames<'_>, idx: u32, order: Order, end: u32) -> Result<(), FreeError> {
    match (idx + 1..end).find(|inner| !frames.load(*inner).is_none()) {
        None => Ok(()),
        Some(inner) => {
            let cause = FreeCause::Overlaps(frames.pfn(inner));
            Err(FreeError { pfn: frames.pfn(idx), order, cause })
        }
    }
}

/// Accepts a block whose word is NONE and that no other block contains, or names the cause.
#[cold]
fn check_slowly(
    frames: &Frames<'_>,
    idx: u32,
    order: Order,
    word: PageWord,
) -> Result<(), FreeError> {
    let refuse = |cause| Err(FreeError { pfn: frames.pfn(idx), order, cause });
    let spanned = frames.spanned();
    if idx >= spanned || order.pages() > (spanned - idx) as u64 {
        return refuse(FreeCause::OutsideZone);
    }
    if frames.aligned(idx) & (order.pages() as u32 - 1) != 0 {
        return refuse(FreeCause::Misaligned);
    }
    if word.is_free() {
        return refuse(FreeCause::AlreadyFree);
    }
    if word.is_held() {
        return refuse(
            Order::new(word.order_bits()).map_or(FreeCause::Corrupt, FreeCause::OrderIs),
        );
    }
    if !word.is_none() {
        return refuse(FreeCause::Corrupt);
    }
    if let Some((head, _)) = containing_block(frames, idx) {
        return refuse(FreeCause::InsideBlock(frames.pfn(head)));
    }
    Ok(())
}

/// The block, free or held, that this frame is part of: its first frame and that frame's word.
pub(super) fn containing_block(frames: &Frames<'_>, idx: u32) -> Option<(u32, PageWord)> {
    (0..=MAX).find_map(|k| {
        let head = frames.index_at(frames.aligned(idx) & !((1 << k) - 1));
        let word = frames.load(head);
        (!word.is_none() && word.order_bits() >= k).then_some((head, word))
    })
}
