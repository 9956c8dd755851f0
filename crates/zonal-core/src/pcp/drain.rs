//! How lists are emptied into the buddy: which list next, how much in one hold of the locks, and
//! who does it for another CPU (LB E.8, E.9).
//!
//! ```text
//!  lists   0      1      2                    list-exhausting, from list 1 (5.18 on):
//!         abc    de     fgh   (cold end first)    d e | f g h | a b c
//!                                             growing, 4 blocks (up to 5.17):
//!                                                 d | f g | a ...   one more from each list
//! ```
//! Nothing here touches a list: a [`Walk`] gets their lengths and names the next one.

#[cfg(feature = "history")]
use crate::pcp::history;
use crate::pcp::tune::PcpParams;
use crate::types::{PageCount, choice};

choice! {
    /// Which list the next block comes from (LB E.8).
    #[derive(Default)]
    pub enum DrainOrder {
        /// From list 1 on and round, each time one block more from the list that is next; empty
        /// lists passed by count too. Does not favour the list freed to. Up to 5.17.
        GrowingRoundRobin = "growing" if "history",
        /// The list freed to until it is empty, then the next in index order. 5.18 on.
        #[default]
        ListExhausting = "exhausting",
    }
}

choice! {
    /// How much of a drain is done in one hold of the locks.
    pub enum Chunk {
        /// All of it.
        Whole = "whole",
        /// A batch at a time.
        Batch = "batch",
        /// The largest bulk free, `batch << scale_max`, at a time.
        Bulk = "bulk",
    }
}

choice! {
    /// Who empties the lists of another CPU (LB E.9).
    pub enum RemoteDrain {
        /// That CPU, by a work item that is queued there. Up to 5.19.
        Work = "work" if "history",
        /// The CPU that wants the pages. 6.0 on.
        Direct = "direct",
    }
}

choice! {
    /// When a refresh gives back what waits on a CPU's lists of another node's zone (LB F.4).
    pub enum IdleDrain {
        /// A batch, three refreshes after pages came or went last; the rest when they do again.
        /// Linux, where a counter of the zone has to move.
        Moved = "moved",
        /// A batch at each third refresh, until nothing is left.
        Held = "held",
    }
}

/// All choices about drains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainPolicy {
    /// Which list is next.
    pub order: DrainOrder,
    /// A bulk free holds the zone lock once ([`Chunk::Whole`], up to 6.18), or once for each batch
    /// ([`Chunk::Batch`], 6.19 on).
    pub bulk: Chunk,
    /// Emptying a pcp takes one bulk free ([`Chunk::Whole`], up to 6.9), or one for each
    /// [`Chunk::Bulk`] (6.10 on).
    pub all: Chunk,
    /// What decay gives back goes in one bulk free ([`Chunk::Whole`], 6.12.0) or one for each batch
    /// ([`Chunk::Batch`], later, 6.12 stable included). Each starts again at the first list.
    pub decay: Chunk,
    /// Who empties another CPU's lists.
    pub remote: RemoteDrain,
    /// When pages of another node leave lists that nobody uses.
    pub idle: IdleDrain,
}

impl RemoteDrain {
    /// Whether the CPU itself empties its lists, by a work item.
    pub const fn queues_work(self) -> bool {
        match self {
            #[cfg(feature = "history")]
            RemoteDrain::Work => true,
            RemoteDrain::Direct => false,
        }
    }
}

impl Chunk {
    /// Pages of the next step of a drain that has `left` pages to go; not 0 unless `left` is.
    #[inline]
    pub const fn pages(self, left: PageCount, params: &PcpParams) -> PageCount {
        let most = match self {
            Chunk::Whole => return left,
            Chunk::Batch => params.batch,
            Chunk::Bulk => params.bulk_max(),
        };
        if most == 0 || most > left.get() { left } else { PageCount::new(most) }
    }
}

/// The way of one bulk free over the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    order: DrainOrder,
    lists: u8,
    list: u8,
    /// Blocks still due from `list`, if the share of each list is limited.
    share: u32,
}

impl Walk {
    /// A walk over `lists` lists, for pages freed to list `first`.
    pub const fn new(order: DrainOrder, lists: usize, first: usize) -> Walk {
        let list = match order {
            #[cfg(feature = "history")]
            DrainOrder::GrowingRoundRobin => 0,
            DrainOrder::ListExhausting => first,
        };
        Walk { order, lists: lists as u8, list: list as u8, share: 0 }
    }

    /// The list to take from now and how many of its coldest blocks, at most. `len` says how many
    /// blocks a list has; `left` pages are to go. Call it again when those are taken, and tell it
    /// by [`took`](Self::took) how many they were. `None`: all lists are empty.
    #[inline]
    #[cfg_attr(not(feature = "history"), expect(unused_variables, reason = "read by old rules"))]
    pub fn next(&mut self, left: PageCount, len: impl Fn(usize) -> u32) -> Option<(usize, u32)> {
        match self.order {
            DrainOrder::ListExhausting => {
                for _ in 0..self.lists {
                    let list = usize::from(self.list);
                    let blocks = len(list);
                    if blocks > 0 {
                        return Some((list, blocks));
                    }
                    self.list = if self.list + 1 < self.lists { self.list + 1 } else { 0 };
                }
                None
            }
            #[cfg(feature = "history")]
            DrainOrder::GrowingRoundRobin => {
                let mut list = usize::from(self.list);
                let lists = usize::from(self.lists);
                let next = history::next_growing(&mut list, &mut self.share, lists, left, len);
                self.list = list as u8;
                next
            }
        }
    }

    /// `blocks` blocks of the list that [`next`](Self::next) named were taken.
    #[inline]
    pub fn took(&mut self, blocks: u32) {
        self.share = self.share.saturating_sub(blocks);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::types::Choice;

    /// Lists taken from, in order, by `pages` order-0 pages.
    fn walk(order: DrainOrder, first: usize, mut lens: Vec<u32>, pages: u32) -> Vec<(usize, u32)> {
        let mut walk = Walk::new(order, lens.len(), first);
        let mut left = pages;
        let mut taken: Vec<(usize, u32)> = Vec::new();
        while left > 0 {
            let Some((list, most)) = walk.next(PageCount::new(left), |list| lens[list]) else {
                break;
            };
            // One at a time: a longer step must not change the way.
            assert!(most > 0);
            walk.took(1);
            lens[list] -= 1;
            left -= 1;
            match taken.last_mut() {
                Some((last, n)) if *last == list => *n += 1,
                _ => taken.push((list, 1)),
            }
        }
        taken
    }

    #[test]
    fn from_5_18_the_list_freed_to_is_emptied_first() {
        let exhausting = |first, lens: &[u32], pages| {
            walk(DrainOrder::ListExhausting, first, lens.to_vec(), pages)
        };
        assert_eq!(exhausting(1, &[5, 2, 3], 8), [(1, 2), (2, 3), (0, 3)]);
        assert_eq!(exhausting(2, &[5, 0, 0], 9), [(0, 5)]);
        assert_eq!(exhausting(0, &[0, 0, 0], 1), []);
    }

    /// LB E.8, the algorithm up to 5.17, worked through by hand.
    #[cfg(feature = "history")]
    #[test]
    fn up_to_5_17_each_list_gives_one_more_than_the_last() {
        let growing =
            |lens: &[u32], pages| walk(DrainOrder::GrowingRoundRobin, 0, lens.to_vec(), pages);
        // b is used up each time, so each list gives one: b counts lists passed, not rounds.
        assert_eq!(growing(&[9, 9, 9], 5), [(1, 1), (2, 1), (0, 1), (1, 1), (2, 1)]);
        // List 2 is empty: list 0 gives two.
        assert_eq!(growing(&[9, 9, 0], 6), [(1, 1), (0, 2), (1, 1), (0, 2)]);
        // Only list 0 has pages: two are passed on the way, b is n, it gives all.
        assert_eq!(growing(&[9, 0, 0], 6), [(0, 6)]);
        // Only list 1: it gives one first, then all.
        assert_eq!(growing(&[0, 9, 0], 6), [(1, 6)]);
        assert_eq!(growing(&[1, 0, 9], 5), [(2, 2), (0, 1), (2, 2)]);
        // List 3 has 2 of the 3 asked of it; the one left over makes it 2 from list 0.
        assert_eq!(growing(&[2, 9, 0, 0, 2], 9), [(1, 1), (4, 2), (0, 2), (1, 4)]);
        assert_eq!(growing(&[0, 0, 0], 1), []);
    }

    #[test]
    fn a_single_list_gives_all_in_either_order() {
        for (_, order) in DrainOrder::ALL {
            assert_eq!(walk(*order, 0, [7].to_vec(), 4), [(0, 4)]);
        }
    }

    #[test]
    fn chunks_are_never_nothing() {
        let params = PcpParams { batch: 63, scale_max: 5, ..PcpParams::BOOT };
        let pages = |chunk: Chunk, left| chunk.pages(PageCount::new(left), &params).get();
        assert_eq!([70, 63, 5, 0].map(|left| pages(Chunk::Batch, left)), [63, 63, 5, 0]);
        assert_eq!([5000, 2016, 1].map(|left| pages(Chunk::Bulk, left)), [2016, 2016, 1]);
        assert_eq!(pages(Chunk::Whole, 5000), 5000);
    }
}
