//! The HighAtomic reserve: pageblocks kept back for atomic requests of order 1 and up (LB B.8).

use super::list::End;
use super::{Buddy, MAX, PBO, free};
use crate::frame::Frames;
use crate::types::{Migratetype, Order, PAGEBLOCK_PAGES, choice};

choice! {
    /// Which pages of the reserve a request without a right to it must not count on (LB C.5).
    #[derive(Default)]
    pub enum HighAtomicCount {
        /// All pages of reserved pageblocks, free or not: up to 6.12.0.
        Reserved = "reserved",
        /// Those that are free: 6.12 stable, 6.13 on.
        #[default]
        Free = "free",
    }
}

choice! {
    /// How large the reserve may get (LB B.8).
    #[derive(Default)]
    pub enum HighAtomicLimit {
        /// 1 % of the zone and a pageblock, in zones of any size: 6.1.
        PlusBlock = "plus-block",
        /// 1 % of the zone rounded up to a pageblock, and nothing where that is less than one.
        #[default]
        RoundedUp = "rounded-up",
    }
}

/// The reserve's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HighAtomicPolicy {
    /// What counts as set aside.
    pub count: HighAtomicCount,
    /// How much may be.
    pub limit: HighAtomicLimit,
}

impl HighAtomicLimit {
    /// Pages from which on nothing more is reserved in a zone of `managed` pages.
    pub const fn pages(self, managed: u64) -> u64 {
        let share = managed / 100;
        match self {
            HighAtomicLimit::PlusBlock => share + PAGEBLOCK_PAGES,
            HighAtomicLimit::RoundedUp if share < PAGEBLOCK_PAGES => 0,
            HighAtomicLimit::RoundedUp => share.next_multiple_of(PAGEBLOCK_PAGES),
        }
    }
}

impl Buddy {
    /// Reserves the pageblock of a block that was just allocated with ALLOC_HIGHATOMIC: its free
    /// pages, and all that are freed into it later, are for such requests alone (LB B.8). `limit`
    /// comes from [`HighAtomicLimit::pages`]. Returns whether it was reserved.
    pub fn reserve_highatomic(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: Order,
        limit: u64,
    ) -> bool {
        if self.reserved_highatomic >= limit {
            return false;
        }
        let from = frames.pageblock_type(idx);
        if !from.mergeable() {
            return false;
        }
        // Misuse: a free block would change its type while on a list.
        if free::containing_block(frames, idx).is_some_and(|(_, word)| word.is_free()) {
            return false;
        }
        if order.get() < PBO {
            let Some(range) = frames.pageblock_range(idx) else { return false };
            self.move_free_pages(frames, range, from, Migratetype::HighAtomic, End::Tail);
            self.reserved_highatomic += PAGEBLOCK_PAGES;
        } else {
            free::retag(frames, idx, order.get(), Migratetype::HighAtomic);
            self.reserved_highatomic += order.pages();
        }
        true
    }

    /// Gives one reserved pageblock that has free pages back to `mt`, the type of the request that
    /// is about to fail (LB B.8). Without `force` the zone's last reserved pageblock stays.
    /// Returns whether one was given back.
    pub fn unreserve_highatomic(
        &mut self,
        frames: &Frames<'_>,
        mt: Migratetype,
        force: bool,
    ) -> bool {
        let kept = !force && self.reserved_highatomic <= PAGEBLOCK_PAGES;
        if kept || !mt.mergeable() {
            return false;
        }
        let from = Migratetype::HighAtomic;
        for order in 0..MAX + 1 {
            if self.nonempty[from.index()] >> order & 1 == 0 {
                continue;
            }
            let idx = self.head(order, from);
            let given = PAGEBLOCK_PAGES.max(1 << order);
            if order >= PBO {
                let Some(idx) = self.pop(frames, order, from) else { continue };
                free::retag(frames, idx, order, mt);
                self.push(frames, idx, order, mt, End::Tail);
                self.account_sub(from, 1 << order);
                self.account_add(mt, 1 << order);
            } else {
                let Some(range) = frames.pageblock_range(idx) else { continue };
                self.move_free_pages(frames, range, from, mt, End::Tail);
            }
            self.reserved_highatomic = self.reserved_highatomic.saturating_sub(given);
            return true;
        }
        false
    }
}
