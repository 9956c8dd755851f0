//! Blocks made ranges or smaller blocks, and ranges made two.

use core::ops::Range;

use super::Ranges;
use super::free::BLOCKS_TO_LISTS;
use super::owned::Owned;
use crate::alloc::fast;
use crate::alloc::request::FreeError;
use crate::alloc::zone_ops::ZoneOps;
use crate::buddy::largest_blocks;
use crate::frame::{Frames, PageState, PageWord};
use crate::platform::Platform;
use crate::types::{Order, Pfn};

impl<P: Platform> Ranges<'_, '_, P> {
    /// Makes the first `pages` pages of a block in the caller's hands a range, and frees the rest.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless exactly this block is handed out and has that
    /// many pages.
    pub fn from_block(self, pfn: Pfn, order: Order, pages: u64) -> Result<(), FreeError> {
        let zone = self.on.zone_of(pfn).ok_or(FreeError::Foreign(pfn))?;
        if pages == 0 {
            return Err(FreeError::Empty(pfn));
        }
        if pages > order.pages() {
            let pfn = Pfn(pfn.0 + order.pages());
            return Err(FreeError::Boundary { pfn, zone: zone.id });
        }
        let whole = Owned::new(self.on, pfn..Pfn(pfn.0 + order.pages()))?;
        let held = whole.ops.claim_word(pfn, zone.frame(pfn), order)?;
        let PageState::Allocated { mt, pcp, .. } = held.state() else { return Ok(()) };
        let frames = whole.frames();
        let end = frames.start + pages as u32;
        let rest = end..frames.end;
        if rest.is_empty() {
            whole.ops.write_range(&whole.words(), frames, mt, true);
            return Ok(());
        }
        // Where blocks begin changes under the zone lock (RANGE-5).
        let mut locked = whole.ops.lock();
        let words = locked.frames;
        let listed = self.are_few_and_listed(&words, rest.clone());
        if listed {
            for (head, order) in largest_blocks(&words, rest.clone()) {
                words.store(head, PageWord::allocated(order, mt, pcp));
            }
        }
        whole.ops.write_range(&words, frames.start..end, mt, true);
        whole.tell(end - frames.start, order);
        if listed {
            drop(locked);
            for (head, order) in largest_blocks(&words, rest) {
                // Refused only where a former owner frees the block again at this moment.
                let _ = fast::free_by_core(self.on, words.pfn(head), order);
            }
        } else {
            whole.release(&mut locked, rest);
            drop(locked);
            whole.ops.clear_below_high();
        }
        Ok(())
    }

    /// Whether few blocks tile the frames, each with a per-CPU list for its order.
    fn are_few_and_listed(self, words: &Frames<'_>, frames: Range<u32>) -> bool {
        let mut left = BLOCKS_TO_LISTS;
        largest_blocks(words, frames).all(|(head, order)| {
            let listed = self.on.map.get(order, words.pageblock_type(head)).is_some();
            let fits = left > 0 && listed;
            left = left.saturating_sub(1);
            fits
        })
    }

    /// Makes a block in the caller's hands blocks of order `into`, each to be freed by itself.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless exactly this block is handed out; if `into` is
    /// larger, [`FreeError::WrongOrder`].
    pub fn split_block(self, pfn: Pfn, order: Order, into: Order) -> Result<(), FreeError> {
        let zone = self.on.zone_of(pfn).ok_or(FreeError::Foreign(pfn))?;
        let ops = ZoneOps::new(self.on, zone);
        if into > order {
            return Err(FreeError::WrongOrder { pfn, given: into, actual: order, zone: zone.id });
        }
        let held = ops.claim_word(pfn, zone.frame(pfn), order)?;
        let PageState::Allocated { mt, pcp, .. } = held.state() else { return Ok(()) };
        // Where blocks begin changes under the zone lock (RANGE-5).
        let locked = ops.lock();
        let words = locked.frames;
        let Some(head) = words.index(pfn) else { return Ok(()) };
        let word = PageWord::allocated(into, mt, pcp);
        // The first word last: until then the block is on its way and nobody's to free.
        for at in (head..head + order.pages() as u32).step_by(1 << into.get()).rev() {
            words.store(at, word);
        }
        Ok(())
    }

    /// Hands out what [`isolate_block`](crate::alloc::Allocator::isolate_block) took: the block is
    /// the caller's. `false`: no isolated block of the order begins there.
    pub fn keep_block(self, pfn: Pfn, order: Order) -> bool {
        let zone = self.on.zone_of(pfn);
        zone.is_some_and(|zone| ZoneOps::new(self.on, zone).keep_block(pfn, order))
    }

    /// Makes a range two, the second beginning at page `at`. From now on a free across the border
    /// is refused.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless `range` is one range, or part of one, and `at`
    /// lies between its first and its last page.
    pub fn split(self, range: Range<Pfn>, at: Pfn) -> Result<(), FreeError> {
        let owned = Owned::new(self.on, range.clone())?;
        if at.0 <= range.start.0 || at.0 >= range.end.0 {
            return Err(FreeError::Empty(at));
        }
        let locked = owned.ops.lock();
        let words = locked.frames;
        owned.check_range(&words)?;
        // The block around the page, on both sides of it.
        let around = Owned::new(self.on, at..Pfn(at.0 + 1))?;
        let found = around.look_to_change(&words)?;
        let (block, border) = (found.front, around.frames().start);
        let begins = block.first == Some(true);
        if block.head < border {
            around.claim(&words, &found)?;
            around.ops.write_range(&words, border..block.end(), block.mt, true);
            around.ops.write_range(&words, block.head..border, block.mt, begins);
            return Ok(());
        }
        around.mark(&words, block, true)
    }

    /// Makes two ranges side by side one again: `range` is both, and the second begins at `at`.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless both are ranges.
    pub fn join(self, range: Range<Pfn>, at: Pfn) -> Result<(), FreeError> {
        let (front, back) =
            (Owned::new(self.on, range.start..at)?, Owned::new(self.on, at..range.end)?);
        if front.ops.zone.id != back.ops.zone.id {
            return Err(FreeError::Boundary { pfn: at, zone: front.ops.zone.id });
        }
        let locked = front.ops.lock();
        let words = locked.frames;
        let last = front.check_range(&words)?.back;
        let block = back.check_range(&words)?.front;
        if block.first != Some(true) || block.head != back.frames().start {
            return Ok(());
        }
        front.hold(last, || back.mark(&words, block, false))?
    }

    /// Makes a range, or any part of one, blocks of their own of order `into`, each to be freed by
    /// itself. What stays of the range in front and behind are two ranges then.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed: [`FreeError::NotABlock`] unless `range` begins and ends
    /// at multiples of `into.pages()` page frames; else the first page that is not one range's.
    pub fn into_blocks(self, range: Range<Pfn>, into: Order) -> Result<(), FreeError> {
        let owned = Owned::new(self.on, range.clone())?;
        for pfn in [range.start, range.end] {
            if !pfn.0.is_multiple_of(into.pages()) {
                let zone = owned.ops.zone.id;
                return Err(FreeError::NotABlock { pfn, order: into, zone });
            }
        }
        let locked = owned.ops.lock();
        let words = locked.frames;
        let found = owned.check_range(&words)?;
        owned.claim(&words, &found)?;
        owned.cut_out(&words, &found);
        let pcp = self.on.pcp_id(owned.ops.zone.id, self.on.platform.cpu());
        let word = PageWord::allocated(into, found.front.mt, pcp);
        owned.frames().step_by(1 << into.get()).for_each(|at| words.store(at, word));
        Ok(())
    }
}
