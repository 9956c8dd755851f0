//! The words of the blocks that a block is divided into, made of others, and of ranges.

use super::claim::First;
use super::{
    MT_MASK, MT_SHIFT, ORDER_MASK, ORDER_SHIFT, PCP_END, PCP_SHIFT, PageWord, PcpId, RANGE,
    TAG_ALLOCATED, TAG_CACHED, TAG_MASK, TOLD_MASK, TOLD_SHIFT, WHOLE_RANGE,
};
use crate::types::{Migratetype, Order};

/// A bit of the words of all blocks that continue a range, whether they move or not.
const EITHER: u64 = RANGE | RANGE >> 1;

impl PageWord {
    /// Whether it may be of a block that [`continues_range`](Self::continues_range). Of the words
    /// of other blocks, only those of free ones and of CPUs from 32768 on may have such a bit.
    #[inline(always)]
    pub(crate) const fn may_continue_range(self) -> bool {
        self.0 & EITHER != 0
    }

    /// Whether it is of a block that continues the range in front of it (RANGE-1), moving or not.
    #[inline]
    pub(crate) const fn continues_range(self) -> bool {
        const MOVING: u64 = PageWord::moving(Order::ZERO, Migratetype::Unmovable, Some(false)).0;
        const _: () = assert!(MOVING & EITHER != 0);
        // The two bits of ranges, or the pcp that is nobody's; then the tag.
        let tag = self.0 & TAG_MASK;
        self.may_continue_range()
            && (self.0 >> PCP_END == RANGE >> PCP_END && tag == TAG_ALLOCATED
                || self.0 >> PCP_SHIFT == MOVING >> PCP_SHIFT && tag == TAG_CACHED)
    }

    /// The type of the list that a block of this order is from, if that is handed out and no part
    /// of a range: as [`state`](Self::state) tells.
    #[inline]
    pub(crate) const fn allocated_as(self, order: Order) -> Option<Migratetype> {
        let held = TAG_ALLOCATED | (order.get() as u64) << ORDER_SHIFT;
        if self.0 & (TAG_MASK | ORDER_MASK << ORDER_SHIFT) != held || self.0 >> PCP_END != 0 {
            return None;
        }
        Migratetype::new((self.0 >> MT_SHIFT & MT_MASK) as u32)
    }

    /// The same of another order, for the word of a block that is held; `order` is below 16.
    #[inline]
    pub(crate) const fn with_order(self, order: u32) -> PageWord {
        PageWord(self.0 & !(ORDER_MASK << ORDER_SHIFT) | (order as u64) << ORDER_SHIFT)
    }

    /// What the word of a block that is held is while it is [`moving`](Self::moving); `continues`:
    /// it is of a range, and not its first.
    #[inline]
    pub(crate) const fn as_moving(self, continues: bool) -> PageWord {
        let first = if continues { Some(false) } else { None };
        PageWord(PageWord::moving(Order::ZERO, Migratetype::Unmovable, first).0 | self.0 & WHAT)
    }

    /// Of a block that is handed out, the word of the first block of a range that is exactly so
    /// many pages, fewer than a pageblock's, and says so (RANGE-6).
    #[inline]
    pub(crate) const fn as_told(self, pages: u32) -> PageWord {
        PageWord(self.0 | WHOLE_RANGE | (pages as u64 & TOLD_MASK) << TOLD_SHIFT)
    }

    /// How many pages it tells, if it is of the first block of a range that tells its length.
    pub(crate) const fn told_pages(self) -> u32 {
        (self.0 >> TOLD_SHIFT & TOLD_MASK) as u32
    }

    /// What it says of the range that begins here.
    #[inline]
    pub(crate) const fn first(self) -> First {
        let is_first = self.0 & (TAG_MASK | WHOLE_RANGE) == TAG_ALLOCATED | WHOLE_RANGE;
        if is_first && self.0 & TOLD_MASK << TOLD_SHIFT != 0 {
            First::Told(self.0 & !(TOLD_MASK << TOLD_SHIFT))
        } else if self.0 & !WHAT == PARKED.0 {
            First::Parked
        } else {
            First::Plain
        }
    }

    /// Of the word of a range's first block, what it is while a CPU keeps the range.
    #[inline]
    pub(crate) const fn as_parked(self) -> PageWord {
        PageWord(PARKED.0 | self.0 & WHAT)
    }
}

/// Of the word of a block that is held: which block it is.
const WHAT: u64 = ORDER_MASK << ORDER_SHIFT | MT_MASK << MT_SHIFT;
const PARKED: PageWord = PageWord::cached(Order::ZERO, Migratetype::Unmovable, PcpId::PARKED);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PcpId;
    use crate::types::CpuId;

    #[test]
    fn words_made_of_others_are_those_of_the_constructors() {
        let pcp = PcpId { cpu: CpuId(77), rank: 5 };
        for mt in [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable] {
            for (from, to) in Order::all().flat_map(|from| Order::all().map(move |to| (from, to))) {
                let word = PageWord::allocated(from, mt, pcp);
                assert_eq!(word.with_order(to.get()), PageWord::allocated(to, mt, pcp));
                let cached = PageWord::cached(from, mt, pcp);
                assert_eq!(cached.with_order(to.get()), PageWord::cached(to, mt, pcp));
                assert_eq!(word.as_moving(false), PageWord::moving(from, mt, Some(true)));
                let later = PageWord::range(from, mt, pcp, false);
                assert_eq!(later.as_moving(true), PageWord::moving(from, mt, Some(false)));
                let parked = PageWord::cached(from, mt, PcpId::PARKED);
                assert_eq!(word.as_parked(), parked);
                assert_eq!(parked.first(), First::Parked);
            }
        }
    }

    #[test]
    fn a_range_tells_its_pages_in_its_first_word_alone() {
        let pcp = PcpId { cpu: CpuId(65535), rank: 4095 };
        let (order, mt) = (Order::new(2).unwrap(), Migratetype::Movable);
        let [alone, first, later] = [
            PageWord::allocated(order, mt, pcp),
            PageWord::range(order, mt, pcp, true),
            PageWord::range(order, mt, pcp, false),
        ];
        for pages in [3, 7, 511] {
            let told = alone.as_told(pages);
            assert_eq!((told.first(), told.told_pages()), (First::Told(first.0), pages));
            assert_eq!((told.state(), told.as_parked()), (first.state(), alone.as_parked()));
            assert!(!told.continues_range());
        }
        assert_ne!(alone.as_told(3), alone.as_told(5));
        let cached = PageWord::cached(order, mt, pcp);
        let free = PageWord::free(order, crate::frame::NO_FRAME, crate::frame::NO_FRAME);
        let moving = alone.as_moving(false);
        for word in [alone, first, later, cached, free, PageWord::NONE, moving] {
            assert_eq!(word.first(), First::Plain, "{word:?}");
        }
    }
}
