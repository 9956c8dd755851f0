//! The HighAtomic reserve: pageblocks kept back for atomic requests of order 1 and up (LB B.8).

use super::list::End;
use super::{Buddy, MAX, PBO, free};
use crate::frame::Frames;
use crate::types::{Migratetype, Order, PAGEBLOCK_PAGES};

impl Buddy {
    /// Reserves the pageblock of a block that was just allocated with ALLOC_HIGHATOMIC: its free
    /// pages, and all that are freed into it later, are for such requests alone (LB B.8). At most
    /// 1 % of the zone's `managed` pages, rounded up to a pageblock, and nothing in zones where
    /// that is less than a pageblock. Returns whether it was reserved.
    pub fn reserve_highatomic(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: Order,
        managed: u64,
    ) -> bool {
        let share = managed / 100;
        if share < PAGEBLOCK_PAGES {
            return false;
        }
        if self.reserved_highatomic >= share.next_multiple_of(PAGEBLOCK_PAGES) {
            return false;
        }
        let from = frames.pageblock_type(idx);
        if !from.mergeable() {
            return false;
        }
        // Misuse: a block that is not allocated would change its type behind its list's back.
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
        for order in 0..=MAX {
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
