//! Ranges of frames: whether all of one is free, and taken out of the free blocks that cover it.
//!
//! [`take_exact`](Buddy::take_exact) does this for one aligned block inside one free block. A range
//! begins and ends anywhere, and spans as many free blocks as it likes.

use core::ops::Range;

use super::list::{End, order_of};
use super::{Buddy, MAX};
use crate::frame::{Frames, PageWord};
use crate::types::{Migratetype, Order};

/// The largest aligned blocks that tile `range`, lowest first: at most two of each order below
/// [`Order::MAX`].
pub(crate) fn largest_blocks(
    frames: &Frames<'_>,
    range: Range<u32>,
) -> impl Iterator<Item = (u32, Order)> + use<> {
    let skew = frames.aligned(0);
    let mut at = range.start;
    core::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
        let order = at.wrapping_add(skew).trailing_zeros().min(left.ilog2()).min(MAX);
        let first = at;
        at += 1 << order;
        Some((first, order_of(order)))
    })
}

/// The block, free or held, that this frame is part of: its first frame and that frame's word.
/// Large blocks are found first; words between heads of free memory stay unread.
pub(crate) fn containing_block(frames: &Frames<'_>, idx: u32) -> Option<(u32, PageWord)> {
    (0..=MAX).rev().find_map(|order| {
        let head = frames.index_at(frames.aligned(idx) & !((1 << order) - 1));
        let word = frames.load(head);
        (!word.is_none() && word.order_bits() >= order).then_some((head, word))
    })
}

/// The free block that holds this frame, if any request may have it: first frame, order, type of
/// its pageblock. Blocks set aside (HighAtomic) or out of use (Isolate) are in no range.
fn usable_block(frames: &Frames<'_>, idx: u32) -> Option<(u32, u32, Migratetype)> {
    let (head, word) = containing_block(frames, idx)?;
    let order = word.order_bits();
    let mt = frames.pageblock_type(head);
    (order <= MAX && word.is_free() && mt.mergeable()).then_some((head, order, mt))
}

impl Buddy {
    /// The first frame of `range` that is not free for anybody, if there is one. One look for each
    /// free block.
    pub fn first_taken(&self, frames: &Frames<'_>, range: Range<u32>) -> Option<u32> {
        let mut at = range.start;
        while at < range.end {
            let Some((head, order, _)) = usable_block(frames, at) else { return Some(at) };
            at = head + (1 << order);
        }
        None
    }

    /// The end of the last run of frames in `range` that are not free for anybody: everything from
    /// there to the end of the range is free. Walks down, one look for each free block, and stops
    /// at the first frame that is taken. Also told: the end of the block that this frame is in, or
    /// the frame behind it if it is in none, and the looks.
    pub fn last_taken(&self, frames: &Frames<'_>, range: Range<u32>) -> (Option<u32>, u32) {
        let (mut end, mut looks) = (range.end, 0);
        while end > range.start {
            looks += 1;
            let Some((head, _, _)) = usable_block(frames, end - 1) else {
                let block = containing_block(frames, end - 1);
                let behind = block.map(|(head, word)| head + (1 << word.order_bits().min(MAX)));
                return (Some(behind.unwrap_or(end).max(end)), looks);
            };
            end = head;
        }
        (None, looks)
    }

    /// Takes the frames of `range` out of the free blocks that hold them. What the blocks have
    /// besides goes to the heads of their lists, as in any split (LB B.5). Pageblocks keep their
    /// types, as with Linux' `alloc_contig_range`. Words of the range are NONE afterwards.
    ///
    /// # Errors
    /// The first frame that is not free for anybody; nothing was changed.
    pub fn take_range(&mut self, frames: &Frames<'_>, range: Range<u32>) -> Result<(), u32> {
        if let Some(taken) = self.first_taken(frames, range.clone()) {
            return Err(taken);
        }
        let mut at = range.start;
        while at < range.end {
            let Some((head, order, mt)) = usable_block(frames, at) else { return Err(at) };
            let end = head + (1 << order);
            let stop = end.min(range.end);
            self.unlink(frames, head, frames.load(head), order, mt);
            for (rest, order) in
                largest_blocks(frames, head..at).chain(largest_blocks(frames, stop..end))
            {
                self.push(frames, rest, order.get(), mt, End::Head);
            }
            self.account_sub(mt, u64::from(stop - at));
            at = stop;
        }
        Ok(())
    }
}
