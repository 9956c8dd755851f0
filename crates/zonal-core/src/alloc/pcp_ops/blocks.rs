//! Whole blocks in the bulk calls (`pcp.bulk_block`). A caller that wants as many pages as a block
//! has gets them from one on the CPU's list of that order. Freed in a row, they are a block of that
//! list again.
//!
//! Pages that were used one by one come off a list in any order, and stay in that order: each has a
//! slot, and the words of consecutive ones lie on different lines. A block's pages are always in
//! order. Nothing is split or merged in the buddy, and no zone lock is taken while the list has
//! blocks.

use super::PcpOps;
use super::bulk::same_list;
use super::run::{PageName, Words};
use crate::alloc::zone_ops::Want;
use crate::pcp::state::PcpList;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, Order, PAGEBLOCK_ORDER, Pfn};

/// The blocks that bulk calls move whole.
#[derive(Clone, Copy)]
struct Whole {
    order: Order,
    list: usize,
    pages: usize,
}

impl<P: Platform> PcpOps<'_, '_, P> {
    /// `None`: the bulk calls go page by page. A block is in one pageblock, so that all of its
    /// pages are of one type with mobility grouping, too.
    fn whole(&self, mt: Migratetype) -> Option<Whole> {
        let order = Order::new(u32::from(self.ops.on.policy().pcp.bulk_block))?;
        let on = order != Order::ZERO && order <= PAGEBLOCK_ORDER;
        let list = on.then(|| self.ops.on.map.get(order, mt)).flatten()?;
        Some(Whole { order, list, pages: order.pages() as usize })
    }

    /// Fills `pages` from the front with the pages of whole blocks, in order, as long as there are
    /// blocks; they are then as if from `single`, the list of order 0. Returns how many pages it
    /// got.
    #[inline]
    pub fn take_blocks_apart<T: PageName>(
        &mut self,
        (single, want): (usize, Want),
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let Some(whole) = self.whole(want.mt).filter(|whole| pages.len() >= whole.pages) else {
            return 0;
        };
        let pcp = self.closed.pcp;
        let words = Words::of(self.ops.zone, self.ops.on, (pcp, single));
        let want = Want { order: whole.order, ..want };
        let mut got = 0;
        for pages in pages.chunks_exact_mut(whole.pages) {
            let Some(first) = self.pop_whole(whole, want) else { break };
            words.take_apart(first, pages, &make);
            got += whole.pages;
        }
        // Each block was counted as one allocation when it was popped.
        let blocks = got / whole.pages;
        pcp.events.split_pages.fetch_add((got - blocks) as u64, Relaxed);
        got
    }

    /// A block off its list, which may be filled while most of what is free lies in blocks as
    /// large: elsewhere a large block is worth more than the order of its pages.
    fn pop_whole(&mut self, whole: Whole, want: Want) -> Option<Pfn> {
        loop {
            if self.closed.len(whole.list) == 0
                && (!self.ops.is_mostly_whole(whole.order) || self.refill(whole.list, want) == 0)
            {
                return None;
            }
            let frame = self.closed.pop(whole.list, false)?;
            if let Some(pfn) = self.hand_out(whole.list, frame) {
                return Some(pfn);
            }
        }
    }

    /// How many of `pages` lie before the next block that may come back whole, if they are in a
    /// row up to there: those that [`put_block_together`](Self::put_block_together) would not take.
    #[inline]
    pub fn before_block<T: PageName>(
        &self,
        single: &PcpList,
        pages: &[T],
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
    ) -> usize {
        let next = self.whole(single.migratetype()).and_then(|whole| {
            let first = pfn(pages.first()?).0;
            let next = first.checked_add(1)?.checked_next_multiple_of(whole.pages as u64)?;
            let before = (next - first) as usize;
            (pages.len() >= before + whole.pages && pages[before].bits() == page(Pfn(next)).bits())
                .then_some(before)
        });
        next.unwrap_or(pages.len())
    }

    /// Takes the pages of one whole block back, if `pages` begins with all of them in a row, all of
    /// them from this pcp's list of order 0, and puts the block on its list. Returns how many
    /// pages that were.
    #[inline]
    pub fn put_block_together<T: PageName>(
        &mut self,
        single: usize,
        pages: &[T],
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
    ) -> usize {
        let pcp = self.closed.pcp;
        let Some(whole) = self.whole(pcp.lists[single].migratetype()) else { return 0 };
        let Some(pages) = pages.get(..whole.pages) else { return 0 };
        let grouping = self.ops.on.grouping();
        if grouping && !same_list(self.ops, pfn(&pages[0]), Order::ZERO, single) {
            return 0;
        }
        let words = Words::of(self.ops.zone, self.ops.on, (pcp, single));
        let up = words.put_together::<true, _>(pages, pfn, page);
        let Some(first) = up.or_else(|| words.put_together::<false, _>(pages, pfn, page)) else {
            return 0;
        };
        let frame = self.ops.zone.frame(first);
        if !self.push_claimed(whole.list, frame, whole.order) {
            self.ops.free_direct(pcp, first, whole.order);
        }
        whole.pages
    }
}
