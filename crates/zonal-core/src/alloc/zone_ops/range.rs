//! Frames of a zone as ranges: taken from its buddy, freed to it, measured.

use core::ops::Range;

use super::{Want, ZoneOps};
use crate::alloc::range::Obstacle;
use crate::buddy::{containing_block, largest_blocks};
use crate::frame::claim::First;
use crate::frame::{Frames, PageState, PageWord, PcpId, claim};
use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, Order, PAGEBLOCK_PAGES, ZoneKind};
use crate::zone::state::{BELOW_HIGH, LockedZone};
use crate::zone::watermark::Watermark;

/// Blocks looked at in one hold of the zone lock while a zone is measured.
const HOLD_LOOKS: u32 = 1 << 10;

impl<'a, P: Platform> ZoneOps<'_, 'a, P> {
    /// Takes free frames out of the locked buddy and writes their words; `first`: a range begins
    /// with them.
    ///
    /// # Errors
    /// The first frame that is not free; nothing was changed.
    pub fn take_range(
        self,
        locked: &mut LockedZone<'_, P>,
        range: Range<u32>,
        want: Want,
        first: bool,
    ) -> Result<(), u32> {
        let cpu = self.on.platform.cpu();
        let (pcp, words) = (self.pcp(cpu), locked.frames);
        locked.buddy.take_range(&words, range.clone())?;
        self.write_range(&words, range.clone(), want.mt, first);
        for (_, order) in largest_blocks(&words, range.clone()) {
            locked.account(self.on.free_diff(pcp), -(order.pages() as i64), 1);
        }
        pcp.events.direct_allocs.fetch_add(1, Relaxed);
        pcp.events.direct_pages.fetch_add(u64::from(range.end - range.start), Relaxed);
        Ok(())
    }

    /// Writes the words of frames that become, or stay, (part of) a range; `first`: it begins with
    /// them. Nobody can claim the first of these words meanwhile.
    pub fn write_range(self, words: &Frames<'_>, part: Range<u32>, mt: Migratetype, first: bool) {
        let pcp = self.on.pcp_id(self.zone.id, self.on.platform.cpu());
        claim::write_range(largest_blocks(words, part.clone()).filter_map(|(head, order)| {
            let is_first = first && head == part.start;
            Some((words.word(head)?, PageWord::range(order, mt, pcp, is_first).bits()))
        }));
    }

    /// Whether the block at this frame is part of a range that a CPU keeps (PARK-3).
    pub fn is_parked(self, at: u32) -> bool {
        if !P::KEEPS_RANGES {
            return false;
        }
        let first = first_of_range(&self.frames(), at);
        // Relaxed: a look.
        first.is_some_and(|first| PageWord(first.load(Relaxed)).first() == First::Parked)
    }

    /// Before anything but a free of all of it becomes of the range that the block at this frame
    /// is part of: its first word tells its length no more (RANGE-6). `false`: a CPU keeps it.
    pub fn untell(self, at: u32) -> bool {
        let first = first_of_range(&self.frames(), at);
        first.is_none_or(|first| claim::untell(first, |word| PageWord(word).first()))
    }

    /// What the block at a frame is: what its word says, but for blocks that continue a range which
    /// a CPU keeps. Those are on its lists as far as anybody else can see.
    pub fn state_at(self, at: u32) -> PageState {
        let state = self.frames().load(at).state();
        if let PageState::Range { order, mt, first: false, .. } = state
            && self.is_parked(at)
        {
            return PageState::Cached { order, mt, pcp: PcpId::PARKED };
        }
        state
    }

    /// Why a frame is not free for anybody. The zone lock is held.
    pub fn obstacle(self, idx: u32) -> Obstacle {
        let words = self.frames();
        let Some((head, _)) = containing_block(&words, idx) else {
            // The words of a CPU's own free pages say nothing.
            let is_there = self.owned().has(words.pfn(idx));
            return if is_there { Obstacle::Cached } else { Obstacle::Absent };
        };
        match self.state_at(head) {
            PageState::Allocated { order, .. } | PageState::Range { order, .. } => {
                Obstacle::Held(words.pfn(head), order)
            }
            PageState::Cached { .. } => Obstacle::Cached,
            PageState::Free { .. } => match words.pageblock_type(head) {
                Migratetype::HighAtomic => Obstacle::HighAtomic,
                _ => Obstacle::Isolated,
            },
            PageState::None | PageState::Corrupt(_) => Obstacle::Corrupt,
        }
    }

    /// After many pages were taken at once: the zone may be below its high watermark (LB D.4).
    pub fn note_below_high(self) {
        let zone = self.zone;
        let high = zone.watermark(Watermark::High);
        let snapshot = zone.snapshot(ZoneKind::Movable);
        let watches = self.on.fixed.tuning.watches_high_watermark();
        if watches
            && !zone.has(BELOW_HIGH)
            && !snapshot.ok(Order::ZERO, high, AllocFlags::WMARK_LOW)
        {
            self.set_flag(BELOW_HIGH);
            self.slow_down();
        }
    }

    /// Pages of the longest run of free frames.
    pub fn longest_run(self) -> u64 {
        let words = self.frames();
        let (mut at, mut run, mut longest) = (0, 0, 0);
        while at < words.spanned() {
            let _locked = self.lock();
            for _ in 0..HOLD_LOOKS {
                let word = words.load(at);
                let pages = if word.is_none() { 1 } else { 1 << word.order_bits() };
                let usable = word.is_free() && words.pageblock_type(at).mergeable();
                run = if usable { run + pages } else { 0 };
                longest = longest.max(run);
                at = at.saturating_add(pages);
            }
        }
        u64::from(longest)
    }
}

/// The first block of the range that the block at this frame is part of, if fewer pages than a
/// pageblock's are in front of it there: no range that tells its length or is parked has more
/// (RANGE-6).
fn first_of_range<'a>(words: &Frames<'a>, at: u32) -> Option<&'a AtomicU64> {
    let mut head = at;
    while words.load(head).continues_range() {
        (head, _) = containing_block(words, head.checked_sub(1)?)?;
        if at - head >= PAGEBLOCK_PAGES as u32 {
            return None;
        }
    }
    words.word(head)
}
