//! Parts of ranges, and whole blocks in a row, back (RANGE-1 to RANGE-3).

use core::num::NonZeroU64;
use core::ops::Range;

use super::owned::{Block, Owned};
use super::{Ranges, block_of, order_over};
use crate::alloc::cpu_ops::CpuOps;
use crate::alloc::fast;
use crate::alloc::request::FreeError;
use crate::buddy::largest_blocks;
use crate::frame::{PageWord, claim};
use crate::platform::Platform;
use crate::types::{Order, PAGEBLOCK_PAGES, Pfn};

/// Most blocks of a range that go to per-CPU lists one by one. A hold of the zone lock costs about
/// as much as three of them; 3 is what the 7 pages of an order-3 block less one take.
pub(super) const BLOCKS_TO_LISTS: usize = 3;

impl<P: Platform> Ranges<'_, '_, P> {
    /// Takes `pages` back: all of a range, any part of it, or whole blocks that lie side by side.
    /// What stays of a range in front and behind are two ranges then.
    ///
    /// The CPU keeps the whole range that was freed last, if it was the front of a block, for the
    /// next request of so many pages. Any other whole range of up to three blocks goes to the
    /// per-CPU lists of their orders, as the block that it came from, if the rest of that is on top
    /// of those lists. Anything else goes to the buddy in one hold of the zone lock, as the largest
    /// blocks that it makes.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, at the first page that is not handed out, is another
    /// owner's, or is in a block that would be cut and is no range's.
    #[inline]
    pub fn free(self, pages: Range<Pfn>) -> Result<(), FreeError> {
        let count = pages.end.0.wrapping_sub(pages.start.0);
        let order = block_of(count);
        let done = match order {
            Some(order) => fast::free_range(self.on, pages.start, order),
            None => self.free_front(pages.start, count),
        };
        if done {
            return Ok(());
        }
        self.free_by_core(pages, order)
    }

    /// A whole range that is the front of a block, by the fast path. `false`: nothing was done.
    #[inline(always)]
    fn free_front(self, start: Pfn, count: u64) -> bool {
        if !(3..PAGEBLOCK_PAGES).contains(&count) {
            return false;
        }
        let free = |order| fast::free_front(self.on, start, (order, count as u32));
        NonZeroU64::new(count).is_some_and(|count| fast::free_parked(self.on, start, count))
            || order_over(count).is_some_and(free)
    }

    /// `order`: that of a block of so many pages.
    #[inline(never)]
    fn free_by_core(self, pages: Range<Pfn>, order: Option<Order>) -> Result<(), FreeError> {
        if order.is_some_and(|order| fast::free_range_listed(self.on, pages.start, order)) {
            return Ok(());
        }
        // The range that is parked may be why it did not go by the fast path.
        fast::close_stuck(self.on);
        let owned = Owned::new(self.on, pages)?;
        if self.free_to_lists(&owned) { Ok(()) } else { owned.free() }
    }

    /// Whether [`free`](Self::free) would take `pages` back at this moment.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn check(self, pages: Range<Pfn>) -> Result<(), FreeError> {
        let owned = Owned::new(self.on, pages)?;
        let locked = owned.ops.lock();
        owned.look(&locked.frames).map(|_| ())
    }

    /// A whole range of few blocks: each becomes a block of its own and is freed as one. `false`:
    /// nothing was done.
    pub(in crate::alloc) fn free_to_lists(self, owned: &Owned<'_, '_, P>) -> bool {
        let (words, frames) = (owned.words(), owned.frames());
        if !owned.ops.untell(frames.start) {
            return false;
        }
        let mut blocks: [Option<Block>; BLOCKS_TO_LISTS] = [None; BLOCKS_TO_LISTS];
        for (at, (head, order)) in largest_blocks(&words, frames.clone()).enumerate() {
            let block = Block::of(head, words.load(head));
            let is_part = |block: &Block| block.order == order && block.first == Some(at == 0);
            let listed = self.on.map.get(order, words.pageblock_type(head)).is_some();
            let (Some(slot), Some(block)) = (blocks.get_mut(at), block.filter(is_part)) else {
                return false;
            };
            if !listed {
                return false;
            }
            *slot = Some(block);
        }
        let held = blocks.iter().flatten().map(|block| block.held(&words));
        if !claim::whole(held, || words.load(frames.end).continues_range()) {
            return false;
        }
        // Now, before the first one has its next owner: nothing continues a range of theirs.
        for block in blocks.iter().flatten() {
            words.store(block.head, PageWord::moving(block.order, block.mt, None));
        }
        for block in blocks.iter().flatten() {
            let page = (words.pfn(block.head), block.order);
            CpuOps::running(self.on).free_claimed(owned.ops, page, false);
        }
        true
    }
}

impl<P: Platform> Owned<'_, '_, P> {
    /// Frees the pages, in one hold of the zone lock.
    fn free(&self) -> Result<(), FreeError> {
        let frames = self.frames();
        let mut locked = self.ops.lock();
        let words = locked.frames;
        let found = self.look_to_change(&words)?;
        self.claim(&words, &found)?;
        self.cut_out(&words, &found);
        self.release(&mut locked, frames);
        drop(locked);
        self.ops.clear_below_high();
        Ok(())
    }
}

const _: () = assert!(BLOCKS_TO_LISTS == Order::COSTLY.get() as usize);
