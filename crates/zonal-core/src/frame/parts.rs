//! The words of the blocks that a block is divided into, made of others, and of ranges.

use super::{
    MT_MASK, MT_SHIFT, ORDER_MASK, ORDER_SHIFT, PCP_END, PCP_SHIFT, PageWord, RANGE, TAG_ALLOCATED,
    TAG_CACHED, TAG_MASK,
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

    /// The same of another order, for the word of a block that is held; `order` is below 16.
    #[inline]
    pub(crate) const fn with_order(self, order: u32) -> PageWord {
        PageWord(self.0 & !(ORDER_MASK << ORDER_SHIFT) | (order as u64) << ORDER_SHIFT)
    }

    /// What the word of a block that is held is while it is [`moving`](Self::moving); `continues`:
    /// it is of a range, and not its first.
    #[inline]
    pub(crate) const fn as_moving(self, continues: bool) -> PageWord {
        const WHAT: u64 = ORDER_MASK << ORDER_SHIFT | MT_MASK << MT_SHIFT;
        let first = if continues { Some(false) } else { None };
        PageWord(PageWord::moving(Order::ZERO, Migratetype::Unmovable, first).0 | self.0 & WHAT)
    }
}

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
            }
        }
    }
}
