//! Ranges that are no block, under the gate of a pcp: the front of a block, whose other pages wait
//! on the lists of smaller orders meanwhile.
//!
//! ```text
//!  block of order 3    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//!  five pages of it    |<-- range: orders 2, 0 ->| 0 |< 1 >|   the rest: blocks of orders 0 and 1
//! ```
//! Nothing of it needs the zone: pages move from one list of the pcp to others. A range that comes
//! back is parked ([`parked`](super::parked)), and goes to the lists when another one is. If the
//! rest of its block is still on top of those lists then, it is joined with it: programs that take
//! and free ranges in turn leave the lists as they were. Otherwise each of its blocks goes to the
//! list of its order.
//!
//! To the statistics they are what they are by the core: an allocation of the block and a free of
//! the pages of the rest, then a free of the pages of the range. To the tuning they are one
//! operation each, where the core frees block by block: an allocation, of which the rest is no
//! free; where the range is joined, a free of the block; else one free of the pages of the range,
//! with the `prev` of its last block. So `free_count` does not grow by the rest, and blocks of one
//! range are no stream; a range that may go on with one is the core's.

use super::gated::{Cells, Entered};
use super::state::PcpList;
use super::word::PcpWord;
use crate::frame::claim::{self, Held};
use crate::frame::{PageWord, RANGE, WHOLE_RANGE};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The front of a block, or a block that it is to become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    /// Order of the block.
    pub order: u32,
    /// Pages of the range: fewer than the block's, more than half of them.
    pub pages: u32,
}

/// Blocks side by side that become larger or smaller, one for each bit of their pages: how far
/// behind the first page of all, and which order.
#[derive(Clone, Copy)]
struct Tiles {
    at: u32,
    pages: u32,
}

impl Front {
    /// So many pages of the smallest block that has them. `None`: there are none.
    #[inline(always)]
    pub(crate) fn of(pages: u32) -> Option<Front> {
        let order = u32::BITS - pages.checked_sub(1)?.leading_zeros();
        (order < u32::BITS).then_some(Front { order, pages })
    }

    /// The first block of the range has half of the pages of the block.
    #[inline(always)]
    pub(super) fn first(self) -> u32 {
        self.order.wrapping_sub(1)
    }

    /// The other blocks of the range, the last one first.
    #[inline(always)]
    fn others(self) -> Tiles {
        // From behind, as those of the rest from the front, they grow.
        Tiles { at: self.pages, pages: self.pages ^ 1 << self.first() }
    }

    /// Each of them: how far behind the first page of all, and which order.
    #[inline(always)]
    pub(super) fn each_other(self, mut each: impl FnMut(u32, u32)) {
        let mut others = self.others();
        while let Some((at, order)) = others.backward() {
            each(at, order);
        }
    }

    /// All blocks of the range, the first one first.
    #[inline(always)]
    fn blocks(self) -> impl Iterator<Item = (u32, u32)> + Clone {
        core::iter::once((0, self.first())).chain(self.later())
    }

    /// Those behind the first one.
    #[inline(always)]
    fn later(self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let mut at = 1 << self.first();
        let mut left = self.pages ^ at;
        core::iter::from_fn(move || {
            let order = left.checked_ilog2()?;
            let block = (at, order);
            (at, left) = (at + (1 << order), left - (1 << order));
            Some(block)
        })
    }

    /// The blocks of the rest, the first one first.
    #[inline(always)]
    fn rest(self) -> Tiles {
        Tiles { at: self.pages, pages: self.left() }
    }

    /// The word of the range's first block, which tells its length. `allocated`: that of the block.
    #[inline(always)]
    pub(super) fn told(self, allocated: PageWord) -> u64 {
        allocated.with_order(self.first()).as_told(self.pages).0
    }

    /// Whether the word is that of the range's first block, which tells its length or nothing.
    #[inline]
    pub(crate) fn begins(self, allocated: PageWord, word: u64) -> bool {
        word == self.told(allocated) || word == allocated.with_order(self.first()).0 | WHOLE_RANGE
    }

    /// Pages of the rest.
    #[inline(always)]
    fn left(self) -> u32 {
        (1 << self.order) - self.pages
    }
}

impl Tiles {
    /// The smallest block that is left.
    #[inline(always)]
    fn order(&mut self) -> Option<u32> {
        let order = self.pages.trailing_zeros();
        if self.pages == 0 {
            return None;
        }
        self.pages &= self.pages - 1;
        Some(order)
    }

    /// The next one upward: each is larger than the one in front of it.
    #[inline(always)]
    fn forward(&mut self) -> Option<(u32, u32)> {
        let order = self.order()?;
        let at = self.at;
        self.at += 1 << order;
        Some((at, order))
    }

    /// The next one downward.
    #[inline(always)]
    fn backward(&mut self) -> Option<(u32, u32)> {
        let order = self.order()?;
        self.at -= 1 << order;
        Some((self.at, order))
    }
}

/// Where blocks of an order wait that begin in the pageblock of a frame: the number of a list.
pub(crate) trait ListOf: Fn(u32) -> usize + Copy {}
impl<F: Fn(u32) -> usize + Copy> ListOf for F {}

impl<'p> Entered<'p> {
    /// Takes the hottest block of the list that the pcp is ready with, hands out its front as a
    /// range and puts the rest on the lists that `lists` names for the block's frame. `None`:
    /// nothing was done.
    #[inline(always)]
    pub(crate) fn pop_front<'a, L: ListOf>(
        self,
        front: Front,
        lists: impl FnOnce(u32) -> Option<L>,
        cells: impl Cells<'a>,
    ) -> Option<u32> {
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        let word = PcpWord(pcp.word.load(Relaxed));
        let top = word.len().checked_sub(1)?;
        let frame = cells.slot(ready.first().wrapping_add(top))?.load(Relaxed);
        let list_of = lists(frame)?;
        let popped = word.popped();
        let page = cells.word(u64::from(frame))?;
        // A stray copy (PCP-3) is for who takes a whole block.
        if popped.must_fold() || page.load(Relaxed) != ready.cached.load(Relaxed) {
            return None;
        }
        let mut rest = front.rest();
        while let Some((_, order)) = rest.forward() {
            self.list(list_of(order)).filter(|list| has_room(list))?;
        }
        pcp.word.store(popped.0, Relaxed);
        let mut rest = front.rest();
        while let Some((at, order)) = rest.forward() {
            self.push_idle(list_of(order), frame + at, cells);
        }
        let allocated = PageWord(ready.allocated());
        front.each_other(|at, order| {
            self.write(u64::from(frame + at), allocated.with_order(order).0 | RANGE, cells);
        });
        // The first one last: who claims it has all of the range (RANGE-6).
        claim::write(page, front.told(allocated));
        self.lend(front.left());
        Some(frame)
    }

    /// Takes a whole range back and, if the CPU `keeps` ranges, parks it, once the one that is
    /// parked is on its lists ([`park`](Self::park)); otherwise, or without room, it goes to its
    /// lists itself. `lists` names those of the pageblock of a frame, and the pageblock's type.
    /// Refused where a page of it is not the zone's, or where the parked one has no room on its
    /// lists: who frees by the core then closes the pcp (PARK-1). As [`push`](Self::push)
    /// otherwise; `goes_on` says whether the range goes on behind it.
    #[inline(always)]
    pub(crate) fn push_front<'a, L: ListOf>(
        mut self,
        (frame, front): (u64, Front),
        goes_on: impl FnOnce() -> bool,
        (lists, keeps): (impl Fn(u32) -> Option<(u32, L)>, bool),
        cells: impl Cells<'a>,
    ) -> bool {
        // Of frames behind the zone the lists and words that are looked up below are no pages'.
        if !self.pcp.has(frame, front.pages) {
            return false;
        }
        let typed = lists(frame as u32).filter(|(mt, _)| self.takes(*mt));
        let Some((_, own)) = typed else { return false };
        // One that tells nothing is for its lists: it may be changing (RANGE-6).
        let told = front.told(PageWord(self.pcp.ready.allocated()));
        let is_told = cells.word(frame).is_some_and(|word| word.load(Relaxed) == told);
        let is_for = keeps && self.pcp.parked.is_for(front.pages);
        if keeps && !is_for && !self.unpark(&lists, cells) {
            return false;
        }
        if is_told && (is_for || keeps && self.keep_room(front)) {
            return self.park(frame, front.pages, cells);
        }
        let claim = || self.claim_front((frame, front), goes_on, cells);
        self.put_front((frame, front), own, cells, claim)
    }

    /// Puts a range that `claim` takes out of its owner's hands on the lists: where the rest of its
    /// block is on top of those that it was put on, as that block on the list that the pcp is ready
    /// with, otherwise each of its blocks on the list of its order. `false`: it was not claimed, or
    /// there is something to decide.
    pub(super) fn put_front<'a>(
        &self,
        (frame, front): (u64, Front),
        lists: impl ListOf,
        cells: impl Cells<'a>,
        claim: impl FnOnce() -> bool,
    ) -> bool {
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        let word = PcpWord(pcp.word.load(Relaxed));
        let below = self.pushed_below(word);
        if below.is_none() && self.room().is_none() {
            return false;
        }
        let mut rest = front.rest();
        let joins = loop {
            match rest.forward() {
                Some((at, order)) if self.is_on_top(lists(order), frame + u64::from(at), cells) => {
                }
                other => break other.is_none(),
            }
        };
        let has_room = |(_, order)| self.list(lists(order)).is_some_and(has_room);
        let room = joins || self.has_room_for(word, front.pages) && front.blocks().all(has_room);
        // Looked up before the claim: what is claimed is nobody's until it is on a list.
        let slot = cells.slot(ready.first().wrapping_add(word.len()));
        let Some(slot) = slot.filter(|_| room) else { return false };
        if !claim() {
            return false;
        }
        let pushed = if joins {
            let (mut rest, mut blocks) = (front.rest(), 0);
            while let Some((at, order)) = rest.forward() {
                blocks += 1;
                self.pop_idle(lists(order));
                self.write(frame + u64::from(at), PageWord::NONE.0, cells);
            }
            front.each_other(|at, _| self.write(frame + u64::from(at), PageWord::NONE.0, cells));
            self.write(frame, ready.cached.load(Relaxed), cells);
            slot.store(frame as u32, Relaxed);
            self.set_others(|others| others.saturating_sub(front.left()));
            self.count_joined(blocks, front.left());
            below.unwrap_or_else(|| self.pushed(word))
        } else {
            self.push_apart(word, (frame, front), lists, cells)
        };
        pcp.word.store(pushed, Relaxed);
        true
    }

    /// Puts the blocks of a range that are ours on the lists of their orders. The hot word then.
    #[inline(never)]
    fn push_apart<'a>(
        &self,
        word: PcpWord,
        (frame, front): (u64, Front),
        lists: impl ListOf,
        cells: impl Cells<'a>,
    ) -> u64 {
        for (at, order) in front.blocks() {
            self.push_idle(lists(order), (frame as u32).wrapping_add(at), cells);
        }
        self.lend(front.pages);
        let cap = self.pcp.free_count_cap.load(Relaxed);
        // One free of all; its last block, the smallest, says whether it was of order 1 to 3.
        let last = self.list(lists(front.pages.trailing_zeros()));
        let prev = last.map_or(0, |list| u64::from(list.prev_bits));
        word.freed(front.pages, cap, prev).0
    }

    /// Takes the blocks of a whole range out of their owner's hands, if they came from lists of
    /// this pcp, or none of them.
    #[inline(always)]
    pub(super) fn claim_front<'a>(
        &self,
        (frame, front): (u64, Front),
        goes_on: impl FnOnce() -> bool,
        cells: impl Cells<'a>,
    ) -> bool {
        // Of each block only the order is another.
        let whole = PageWord(self.pcp.ready.allocated()).with_order(0);
        let (seen, moving) = (whole.0 | RANGE, whole.as_moving(true).0);
        let later = |(at, order): (u32, u32)| {
            let order = PageWord::NONE.with_order(order).0;
            let word = cells.word(frame + u64::from(at))?;
            Some(Held { word, seen: seen | order, moving: moving | order })
        };
        let Some(word) = cells.word(frame) else { return false };
        let order = PageWord::NONE.with_order(front.first()).0;
        let (seen, moving) = (whole.0 | WHOLE_RANGE | order, whole.as_moving(false).0 | order);
        // Block by block, so it tells its length no more (RANGE-6).
        claim::exchange(word, front.told(whole), seen);
        let first = Held { word, seen, moving };
        claim::front(first, front.later().map(later), goes_on)
    }

    #[inline(always)]
    fn list(&self, at: usize) -> Option<&'p PcpList> {
        self.pcp.lists.get(at)
    }

    #[inline(always)]
    fn write<'a>(&self, frame: u64, to: u64, cells: impl Cells<'a>) {
        if let Some(word) = cells.word(frame) {
            word.store(to, Relaxed);
        }
    }

    /// Puts a block that is ours on a list that is not active and has room.
    #[inline(always)]
    fn push_idle<'a>(&self, list: usize, frame: u32, cells: impl Cells<'a>) {
        let Some(list) = self.list(list) else { return };
        let len = list.len.load(Relaxed);
        let Some(slot) = cells.slot(list.base + list.lo.load(Relaxed) + len) else { return };
        slot.store(frame, Relaxed);
        self.write(u64::from(frame), list.cached, cells);
        list.len.store(len + 1, Relaxed);
    }

    /// Whether a frame is the hottest block of a list that is not active.
    #[inline(always)]
    fn is_on_top<'a>(&self, list: usize, frame: u64, cells: impl Cells<'a>) -> bool {
        let Some(list) = self.list(list) else { return false };
        let Some(top) = list.len.load(Relaxed).checked_sub(1) else { return false };
        let slot = cells.slot(list.base + list.lo.load(Relaxed) + top);
        let is_word = |word: &AtomicU64| word.load(Relaxed) == list.cached;
        slot.is_some_and(|slot| u64::from(slot.load(Relaxed)) == frame)
            && cells.word(frame).is_some_and(is_word)
    }

    /// Takes the hottest block off a list that is not active and has one.
    #[inline(always)]
    fn pop_idle(&self, list: usize) {
        let Some(list) = self.list(list) else { return };
        list.len.store(list.len.load(Relaxed).wrapping_sub(1), Relaxed);
        list.pops.store(list.pops.load(Relaxed) + 1, Relaxed);
    }

    /// The blocks of the rest left their lists for a block, not for an owner.
    #[inline(always)]
    fn count_joined(&self, blocks: u32, pages: u32) {
        let events = &self.pcp.events;
        // No exchange: the gate is held, and nobody else writes them.
        let add = |count: &AtomicU64, more: u32| {
            count.store(count.load(Relaxed) + u64::from(more), Relaxed);
        };
        add(&events.joined_blocks, blocks);
        add(&events.joined_pages, pages);
    }

    /// Whether other lists than the active one may get so many pages, with nothing to decide.
    #[inline(always)]
    pub(super) fn has_room_for(&self, word: PcpWord, pages: u32) -> bool {
        let Some(active) = self.list(word.active()) else { return false };
        let count = active.others.load(Relaxed) + (word.len() << active.order_bits);
        let may_be_stream = word.prev_high_order()
            && word.free_count() >= self.pcp.free_high_threshold.load(Relaxed);
        !may_be_stream && count.saturating_add(pages) < self.pcp.limit.load(Relaxed)
    }

    /// Other lists than the active one have so many pages more.
    #[inline(always)]
    pub(super) fn lend(&self, pages: u32) {
        self.set_others(|others| others.saturating_add(pages));
    }

    #[inline(always)]
    pub(super) fn set_others(&self, change: impl FnOnce(u32) -> u32) {
        let word = PcpWord(self.pcp.word.load(Relaxed));
        let Some(active) = self.list(word.active()) else { return };
        let others = change(active.others.load(Relaxed));
        active.others.store(others, Relaxed);
        let hi = active.limit(self.pcp.limit.load(Relaxed), others);
        if hi != active.hi.load(Relaxed) {
            self.pcp.set_hi(active, hi);
        }
    }
}

/// Whether a list that is not active has room for one block more.
#[inline(always)]
fn has_room(list: &PcpList) -> bool {
    list.lo.load(Relaxed) + list.len.load(Relaxed) < list.cap
}
