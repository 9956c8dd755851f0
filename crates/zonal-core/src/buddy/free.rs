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
    pub fn free_block(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: Order,
        flags: FreeFlags,
    ) -> Result<(), FreeError> {
        why_not(frames, idx, order)?;
        self.frees(frames, idx, order, flags);
        Ok(())
    }

    /// As [`free_block`](Self::free_block), for callers who do not ask why; [`why_not`] says it.
    /// `false`: refused.
    #[inline(never)]
    pub(crate) fn frees(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: Order,
        flags: FreeFlags,
    ) -> bool {
        if (cfg!(debug_assertions) || !is_proven(frames, idx, order))
            && !is_right(frames, idx, order)
        {
            return false;
        }
        let (mut at, end) = (idx, end_of((idx, order)));
        let mut piece = order.get();
        if piece > PBO && !is_of_one_type(frames, idx, piece) {
            // The last paragraph of LB B.4: pieces of one pageblock each.
            piece = PBO;
        }
        loop {
            self.free_one(frames, at, piece, frames.pageblock_type(at), flags);
            at += 1 << piece;
            if at >= end {
                return true;
            }
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
        self.check_seeds(frames, range.clone())?;
        for (idx, order) in seeds(frames, range) {
            self.frees(frames, idx, order, FreeFlags { to_tail: true });
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
        self.check_seeds(frames, range.start..range.end.min(self.seeded_end))
    }

    #[inline(never)]
    fn check_seeds(&self, frames: &Frames<'_>, range: Range<u32>) -> Result<(), FreeError> {
        seeds(frames, range).try_for_each(|block| self.check_seed(frames, block))
    }

    /// LB B.4 `free_one`. The caller has checked the block; `mt` is the type of its pageblocks.
    #[inline(always)]
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
        while o < MAX {
            let buddy = frames.index_at(at ^ (1 << o));
            let word = frames.load(buddy);
            if !word.is_free_of(o) {
                break;
            }
            // Inside a pageblock there is one type, so one list per order.
            let mut buddy_mt = mt;
            if o >= PBO {
                buddy_mt = frames.pageblock_type(buddy);
                if !joins(frames, (buddy, o), buddy_mt, mt) {
                    break;
                }
            }
            self.unlink(frames, buddy, word, o, buddy_mt);
            at &= !(1 << o);
            o += 1;
        }
        self.put_merged(frames, (idx, at), o, mt, flags);
    }

    /// Puts the block that a freed one merged to on its list.
    #[inline(always)]
    fn put_merged(
        &mut self,
        frames: &Frames<'_>,
        (idx, at): (u32, u32),
        order: u32,
        mt: Migratetype,
        flags: FreeFlags,
    ) {
        let head = frames.index_at(at);
        if head != idx && !frames.load(idx).is_none() {
            frames.store(idx, PageWord::NONE); // interior now (BUDDY-7)
        }
        let tail = flags.to_tail || merge_likely(frames, at, order);
        self.push(frames, head, order, mt, if tail { End::Tail } else { End::Head });
    }
}

/// The part of LB B.4's loop where the buddy may have another type: whether it merges, and then has
/// the type of the block.
#[cold]
#[inline(never)]
fn joins(
    frames: &Frames<'_>,
    (buddy, order): (u32, u32),
    buddy_mt: Migratetype,
    mt: Migratetype,
) -> bool {
    if buddy_mt != mt {
        if !mt.mergeable() || !buddy_mt.mergeable() {
            return false;
        }
        // Both count as free pages and as nothing else: no accounting moves.
        retag(frames, buddy, order, mt);
    }
    true
}

/// Whether the pageblocks of a block are of one type. Then its pieces merge back to the whole
/// block, whose list end the last piece decides, and at orders above 8 that is `to_tail` alone.
/// Going there at once leaves the words of the later pageblocks untouched.
#[cold]
#[inline(never)]
fn is_of_one_type(frames: &Frames<'_>, idx: u32, order: u32) -> bool {
    let mt = frames.pageblock_type(idx);
    (1..1 << (order - PBO)).all(|i| frames.pageblock_type(idx + (i << PBO)) == mt)
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
#[inline(always)]
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

/// Why a block cannot be freed, if so.
pub(crate) fn why_not(frames: &Frames<'_>, idx: u32, order: Order) -> Result<(), FreeError> {
    if !is_proven(frames, idx, order) {
        check_slowly(frames, idx, order, frames.load(idx))?;
    }
    if cfg!(debug_assertions) {
        check_inner(frames, idx, order, idx + order.pages() as u32)?;
    }
    Ok(())
}

/// Whether a block can be freed, with the room for the reason off the caller's frame.
#[cold]
#[inline(never)]
fn is_right(frames: &Frames<'_>, idx: u32, order: Order) -> bool {
    why_not(frames, idx, order).is_ok()
}

/// The block, free or held, that this frame is part of: its first frame and that frame's word.
pub(super) fn containing_block(frames: &Frames<'_>, idx: u32) -> Option<(u32, PageWord)> {
    (0..=MAX).find_map(|k| {
        let head = frames.index_at(frames.aligned(idx) & !((1 << k) - 1));
        let word = frames.load(head);
        (!word.is_none() && word.order_bits() >= k).then_some((head, word))
    })
}
