//! Who has the pages of a range: every block is looked at before any is changed (RANGE-3).

use core::ops::Range;

use crate::alloc::request::FreeError;
use crate::alloc::tables::Tables;
use crate::alloc::zone_ops::ZoneOps;
use crate::buddy::{containing_block, largest_blocks};
use crate::frame::claim::{self, Held};
use crate::frame::{Frames, PageState, PageWord, PcpId};
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, Order, PAGEBLOCK_PAGES, Pfn};
use crate::zone::state::LockedZone;

/// Pages of one zone that are to be in one owner's hands.
#[derive(Debug)]
pub(in crate::alloc) struct Owned<'s, 'a, P> {
    pub(super) ops: ZoneOps<'s, 'a, P>,
    frames: Range<u32>,
}

/// What frames become that are taken at a place.
#[derive(Debug)]
pub(in crate::alloc) enum Then<'s, 'a, P> {
    /// A range of their own.
    Range,
    /// The end of this range, which they lie right behind.
    Behind(Owned<'s, 'a, P>),
    /// Nobody's, as if they had never been there.
    Absent,
}

/// A block that was found in somebody's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// First frame.
    pub head: u32,
    pub word: PageWord,
    pub order: Order,
    pub mt: Migratetype,
    /// `None`: a block of its own. Otherwise part of a range, the first or not.
    pub first: Option<bool>,
}

impl Block {
    /// The frame behind it.
    pub fn end(self) -> u32 {
        self.head + self.order.pages() as u32
    }
    /// The block as it is claimed.
    pub fn held<'w>(self, words: &Frames<'w>) -> Option<Held<'w>> {
        let moving = PageWord::moving(self.order, self.mt, self.first);
        let word = words.word(self.head)?;
        Some(Held { word, seen: self.word.bits(), moving: moving.bits() })
    }
    /// The claimed block at `head` as its owner had it, from `pcp` as far as that is known.
    fn before(words: &Frames<'_>, head: u32, pcp: PcpId, first: Option<bool>) -> Option<Block> {
        let PageState::Cached { order, mt, .. } = words.load(head).state() else { return None };
        let word = match first {
            Some(first) => PageWord::range(order, mt, pcp, first),
            None => PageWord::allocated(order, mt, pcp),
        };
        Some(Block { head, word, order, mt, first })
    }
    /// The block as its words say that it is at `head`.
    pub fn of(head: u32, word: PageWord) -> Option<Block> {
        match word.state() {
            PageState::Allocated { order, mt, .. } => {
                Some(Block { head, word, order, mt, first: None })
            }
            PageState::Range { order, mt, first, .. } => {
                Some(Block { head, word, order, mt, first: Some(first) })
            }
            _ => None,
        }
    }
}

/// What the pages are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// The blocks that the first and the last page are in.
    pub front: Block,
    pub back: Block,
    /// Part of one range; otherwise whole blocks.
    pub is_range: bool,
}

/// The zone that has all of these pages, and their frames in it.
pub(super) fn frames_of<'s, 'a, P: Platform>(
    on: &'s Tables<'a, P>,
    pages: &Range<Pfn>,
) -> Result<(ZoneOps<'s, 'a, P>, Range<u32>), FreeError> {
    let (start, end) = (pages.start, pages.end);
    if start.0 >= end.0 {
        return Err(FreeError::Empty(start));
    }
    let zone = on.zone_of(start).ok_or(FreeError::Foreign(start))?;
    let behind = zone.start_pfn + zone.spanned;
    if end.0 > behind {
        let pfn = Pfn(behind);
        return Err(match on.zone_of(pfn) {
            Some(_) => FreeError::Boundary { pfn, zone: zone.id },
            None => FreeError::Foreign(pfn),
        });
    }
    let index = |pfn: Pfn| (pfn.0 - zone.start_pfn) as u32;
    Ok((ZoneOps::new(on, zone), index(start)..index(end)))
}

impl<'s, 'a, P: Platform> Owned<'s, 'a, P> {
    /// Looks nothing up but the zone.
    pub fn new(on: &'s Tables<'a, P>, pages: Range<Pfn>) -> Result<Self, FreeError> {
        let (ops, frames) = frames_of(on, &pages)?;
        Ok(Owned { ops, frames })
    }

    /// The range that is exactly `pages`. Looked at under the zone lock, which is given back: a
    /// caller who changes words looks again ([`check_whole`](Self::check_whole)).
    ///
    /// # Errors
    /// As [`check_whole`](Self::check_whole), and [`FreeError::Foreign`], [`FreeError::Boundary`]
    /// or [`FreeError::Empty`] where no one zone has the pages.
    pub fn find(on: &'s Tables<'a, P>, pages: Range<Pfn>) -> Result<Self, FreeError> {
        let owned = Owned::new(on, pages)?;
        let locked = owned.ops.lock();
        let checked = owned.check_whole();
        drop(locked);
        checked.map(|()| owned)
    }

    /// Frames in the zone.
    pub fn frames(&self) -> Range<u32> {
        self.frames.clone()
    }

    /// The zone's words.
    pub fn words(&self) -> Frames<'a> {
        self.ops.frames()
    }

    /// Whether the pages are part of one range and end where that does. The zone lock is held.
    ///
    /// # Errors
    /// [`FreeError::InRange`] where the range goes on behind them; else the first page that is not
    /// the range's.
    pub fn check_whole(&self) -> Result<(), FreeError> {
        self.last_of_whole().map(|_| ())
    }

    /// As [`check_whole`](Self::check_whole); the last block.
    fn last_of_whole(&self) -> Result<Block, FreeError> {
        let words = self.words();
        let found = self.check_range(&words)?;
        let end = self.frames.end;
        if found.back.end() == end && !words.load(end).continues_range() {
            return Ok(found.back);
        }
        let pfn = words.pfn(end.saturating_sub(1));
        Err(FreeError::InRange { pfn, order: found.back.order, zone: self.ops.zone.id })
    }

    /// Adds what `add` adds behind the range that is exactly these pages (RANGE-4). The zone lock
    /// is held.
    ///
    /// # Errors
    /// As [`check_whole`](Self::check_whole); nothing was added.
    pub fn lengthen<R>(&self, add: impl FnOnce() -> R) -> Result<R, FreeError> {
        let last = self.last_of_whole()?;
        self.hold(last, add)
    }

    /// Does `change` with a block of the pages in nobody's hands. The zone lock is held.
    ///
    /// # Errors
    /// [`FreeError::DoubleFree`], with nothing done, if it was freed since it was looked at.
    pub(super) fn hold<R>(&self, last: Block, change: impl FnOnce() -> R) -> Result<R, FreeError> {
        let words = self.words();
        let done = last.held(&words).and_then(|last| claim::lengthen(last, change));
        done.ok_or_else(|| self.freed(&words, last))
    }

    /// As [`look`](Self::look), before blocks of the pages change: what range they are of tells its
    /// length no more (RANGE-6).
    pub(super) fn look_to_change(&self, words: &Frames<'_>) -> Result<Found, FreeError> {
        if let Some((head, word)) = containing_block(words, self.frames.start)
            && !self.ops.untell(head)
        {
            let order = Order::new(word.order_bits()).unwrap_or(Order::MAX);
            let (pfn, zone) = (words.pfn(self.frames.start), self.ops.zone.id);
            return Err(FreeError::DoubleFree { pfn, order, zone });
        }
        self.look(words)
    }

    /// Looks at every block of the pages. The zone lock is held, or what is found is looked at
    /// again by the exchange that follows.
    ///
    /// # Errors
    /// The first page that is not part of the one range, or of a block that lies inside as a whole.
    pub(super) fn look(&self, words: &Frames<'_>) -> Result<Found, FreeError> {
        let Range { start, end } = self.frames;
        let (zone, mut at) = (self.ops.zone.id, start);
        let mut found: Option<Found> = None;
        while at < end {
            let block = self.block_at(words, at)?;
            let boundary = FreeError::Boundary { pfn: words.pfn(block.head), zone };
            match found {
                // Another owner's: the first block of a range, or of another kind.
                Some(found) if found.is_range != block.first.is_some() => return Err(boundary),
                Some(_) if block.first == Some(true) => return Err(boundary),
                _ => {}
            }
            if block.first.is_none() && (block.head < start || block.end() > end) {
                let (pfn, order) = (words.pfn(block.head), block.order);
                return Err(FreeError::CutsBlock { pfn, order, zone });
            }
            let front = found.map_or(block, |found| found.front);
            found = Some(Found { front, back: block, is_range: block.first.is_some() });
            at = block.end();
        }
        found.ok_or(FreeError::Empty(words.pfn(start)))
    }

    /// The block in somebody's hands that a frame is in.
    fn block_at(&self, words: &Frames<'_>, at: u32) -> Result<Block, FreeError> {
        let (pfn, zone) = (words.pfn(at), self.ops.zone.id);
        let word = words.load(at);
        let found = if word.is_none() { containing_block(words, at) } else { Some((at, word)) };
        let Some((head, word)) = found else {
            return Err(FreeError::NotABlock { pfn, order: Order::ZERO, zone });
        };
        match word.state() {
            PageState::Free { order, .. } | PageState::Cached { order, .. } => {
                Err(FreeError::DoubleFree { pfn, order, zone })
            }
            PageState::Range { order, first: false, .. }
                if at == self.frames.start && self.ops.is_parked(head) =>
            {
                Err(FreeError::DoubleFree { pfn, order, zone })
            }
            _ => Block::of(head, word).ok_or(FreeError::Corrupt(words.pfn(head))),
        }
    }

    /// Takes the words of all blocks out of their owner's hands, or of none. The zone lock is held.
    pub(super) fn claim(&self, words: &Frames<'_>, found: &Found) -> Result<(), FreeError> {
        let (start, end) = (found.front.head, found.back.end());
        let (mut at, mut last) = (start, found.front);
        // Each is looked at when it is claimed: freed before, or at this moment, it is an error.
        let blocks = core::iter::from_fn(|| {
            let block = (at < end).then(|| self.block_at(words, at))?;
            Some(block.and_then(|block| {
                (at, last) = (block.end(), block);
                block.held(words).ok_or_else(|| self.freed(words, block))
            }))
        });
        let pcp = self.ops.on.pcp_id(self.ops.zone.id, self.ops.on.platform.cpu());
        let claimed = |count| {
            let mut at = start;
            let blocks = core::iter::from_fn(move || {
                let first = found.front.first.map(|first| first && at == start);
                let block = Block::before(words, at, pcp, first)?;
                at = block.end();
                block.held(words)
            });
            blocks.take(count)
        };
        let done = claim::each(blocks, claimed);
        done.map_err(|why| why.unwrap_or_else(|| self.freed(words, last)))
    }

    /// That a block is not its owner's any more.
    fn freed(&self, words: &Frames<'_>, block: Block) -> FreeError {
        let (pfn, order, zone) = (words.pfn(block.head), block.order, self.ops.zone.id);
        FreeError::DoubleFree { pfn, order, zone }
    }

    /// Makes the words of the frames NONE, whose blocks are claimed, and writes those of what stays
    /// of a range in front of them and behind, which are two ranges then (RANGE-1).
    pub(super) fn cut_out(&self, words: &Frames<'_>, found: &Found) {
        let Found { front, back, is_range } = *found;
        let Range { start, end } = self.frames;
        let mut at = front.head;
        while at < back.end() {
            let pages = 1 << words.load(at).order_bits();
            // The front block of what stays goes from what it is to what it becomes: in between,
            // too, the range in front of it goes on (RANGE-4).
            if at >= start {
                words.store(at, PageWord::NONE);
            }
            at += pages;
        }
        if !is_range {
            return;
        }
        self.ops.write_range(words, end..back.end(), back.mt, true);
        self.ops.write_range(words, front.head..start, front.mt, front.first == Some(true));
        let next = words.load(end);
        if back.end() == end
            && let PageState::Range { order, mt, pcp, first: false } = next.state()
        {
            exchange(words, end, next, PageWord::range(order, mt, pcp, true));
        }
    }

    /// Lets the first word of a range of so many pages, which begins as these pages, the block of
    /// this order that it was made of, tell its length, if a CPU may keep it (RANGE-6). It was
    /// written just now, and nobody was told of it.
    pub(super) fn tell(&self, pages: u32, order: Order) {
        let is_front = pages > order.pages() as u32 / 2 && u64::from(pages) < PAGEBLOCK_PAGES;
        if let Some(first) = self.words().word(self.frames.start).filter(|_| is_front)
            && let word = PageWord(first.load(Relaxed))
            && matches!(word.state(), PageState::Range { first: true, .. })
        {
            // Refused where a former owner frees the block again at this moment.
            claim::exchange(first, word.bits(), word.as_told(pages).bits());
        }
    }

    /// Makes a block of a range its first one, or one that goes on.
    ///
    /// # Errors
    /// [`FreeError::DoubleFree`] if it was freed since it was looked at.
    pub(super) fn mark(
        &self,
        words: &Frames<'_>,
        block: Block,
        first: bool,
    ) -> Result<(), FreeError> {
        if let PageState::Range { order, mt, pcp, .. } = block.word.state()
            && !exchange(words, block.head, block.word, PageWord::range(order, mt, pcp, first))
        {
            return Err(self.freed(words, block));
        }
        Ok(())
    }

    /// Looks at every block, before some of them change: all are of one range.
    pub(super) fn check_range(&self, words: &Frames<'_>) -> Result<Found, FreeError> {
        let found = self.look_to_change(words)?;
        if found.is_range {
            return Ok(found);
        }
        let (pfn, order) = (words.pfn(self.frames.start), found.front.order);
        Err(FreeError::NotABlock { pfn, order, zone: self.ops.zone.id })
    }

    /// Frees frames whose words are NONE as the largest blocks that they make.
    pub(super) fn release(&self, locked: &mut LockedZone<'_, P>, part: Range<u32>) {
        let pcp = self.ops.pcp(self.ops.on.platform.cpu());
        let words = locked.frames;
        for (head, order) in largest_blocks(&words, part) {
            // A word that proves the free right, so that the buddy need not look around.
            words.store(head, PageWord::moving(order, Migratetype::Unmovable, None));
            self.ops.free_claimed(locked, pcp, (head, order));
        }
    }
}

/// Replaces a word, if it is still `from`.
fn exchange(words: &Frames<'_>, at: u32, from: PageWord, to: PageWord) -> bool {
    words.word(at).is_some_and(|word| claim::exchange(word, from.0, to.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::policy::Policy;
    use crate::support::Shape;

    #[test]
    fn a_block_that_was_freed_since_the_look_leaves_those_before_it_to_their_owner() {
        Shape::uniform(1, 512, 1).scoped(Policy::ZONAL, 0, |pool| {
            let order = Order::new(3).unwrap();
            let mut blocks = [(); 2].map(|()| pool.alloc(Request::new(order)).unwrap());
            blocks.sort();
            assert_eq!(blocks[0].0 + 8, blocks[1].0);
            let pages = blocks[0]..Pfn(blocks[0].0 + 16);
            let owned = Owned::new(pool.tables(), pages).unwrap();
            let words = owned.words();
            let found = owned.look(&words).unwrap();
            pool.free(blocks[1], order).unwrap();
            let twice = FreeError::DoubleFree { pfn: blocks[1], order, zone: owned.ops.zone.id };
            assert_eq!(owned.claim(&words, &found), Err(twice));
            assert_eq!(pool.free(blocks[0], order), Ok(()));
            pool.validate().unwrap();
        });
    }

    /// RANGE-4: the front of a range is freed without the zone lock between the steps of those who
    /// change the rest of it.
    #[test]
    fn the_front_of_a_range_goes_on_in_each_step_of_who_changes_the_rest() {
        Shape::uniform(1, 512, 1).scoped(Policy::ZONAL, 0, |pool| {
            let ranges = pool.ranges();
            ranges.alloc_at(Pfn(8)..Pfn(24), Gfp::KERNEL | Gfp::MEMALLOC).unwrap();
            let of = |start, end| Owned::new(pool.tables(), Pfn(start)..Pfn(end)).unwrap();
            let front = || {
                assert!(!ranges.free_to_lists(&of(8, 16)), "the front is no range of its own");
                assert!(of(8, 24).check_whole().is_ok() || of(8, 20).check_whole().is_ok());
            };
            let tail = of(16, 24);
            let locked = tail.ops.lock();
            let words = locked.frames;
            assert_eq!(tail.lengthen(|| assert!(!ranges.free_to_lists(&of(8, 16)))), Ok(()));
            front();
            // All of the claimed go back.
            let found = tail.look(&words).unwrap();
            let gone = Block { head: 24, ..found.back };
            let both = Found { back: gone, ..found };
            assert!(tail.claim(&words, &both).is_err(), "nothing was taken at 24");
            front();
            // The second half of the last block is cut off.
            let half = of(20, 24);
            let found = half.look(&words).unwrap();
            half.claim(&words, &found).unwrap();
            assert!(!ranges.free_to_lists(&of(8, 16)), "the front is no range of its own");
            half.cut_out(&words, &found);
            front();
            let mut locked = locked;
            half.release(&mut locked, 20..24);
            drop(locked);
            assert!(ranges.free_to_lists(&of(8, 20)), "all that is left of the range");
            pool.drain_all();
            pool.validate().unwrap();
        });
    }

    #[test]
    fn a_block_that_was_freed_since_the_look_is_not_made_the_first_of_a_range() {
        Shape::uniform(1, 512, 1).scoped(Policy::ZONAL, 0, |pool| {
            let pages = Pfn(8)..Pfn(16);
            pool.ranges().alloc_at(pages.clone(), Gfp::KERNEL | Gfp::MEMALLOC).unwrap();
            let owned = Owned::new(pool.tables(), pages.clone()).unwrap();
            let words = owned.words();
            let block = owned.look(&words).unwrap().front;
            assert_eq!(owned.mark(&words, block, true), Ok(()));
            pool.ranges().free(pages).unwrap();
            for first in [false, true] {
                let (order, zone) = (block.order, owned.ops.zone.id);
                let twice = FreeError::DoubleFree { pfn: Pfn(8), order, zone };
                assert_eq!(owned.mark(&words, block, first), Err(twice));
            }
            pool.validate().unwrap();
        });
    }
}
