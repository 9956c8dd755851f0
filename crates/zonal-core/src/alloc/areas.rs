//! The free blocks of a zone by order and migratetype, and its pageblocks: what `/proc/buddyinfo`
//! and `/proc/pagetypeinfo` print (LB I.2).

use super::zone_ops::ZoneOps;
use crate::platform::Platform;
use crate::types::{Migratetype, NR_MIGRATETYPES, NR_ORDERS, Order, PAGEBLOCK_PAGES};

/// Blocks that are counted on one free list at most. Counting walks the list with the zone lock
/// held, and Linux stops here for that reason (LB I.2).
pub const LISTED_BLOCKS_MAX: u32 = 100_000;

/// One zone's free blocks and pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeAreas {
    /// Free blocks, by order and migratetype. [`LISTED_BLOCKS_MAX`] stands for that many or more.
    pub blocks: [[u32; NR_MIGRATETYPES]; NR_ORDERS],
    /// Pageblocks, by migratetype.
    pub pageblocks: [u32; NR_MIGRATETYPES],
    /// Free pages in pageblocks kept for atomic requests.
    pub free_highatomic: u64,
    /// Pages of pageblocks kept for atomic requests, free or not.
    pub reserved_highatomic: u64,
}

impl FreeAreas {
    /// Those of a zone. Walks every free list with the zone lock held.
    pub(super) fn of<P: Platform>(ops: ZoneOps<'_, '_, P>) -> FreeAreas {
        let zone = ops.zone;
        let mut areas = FreeAreas::default();
        let locked = ops.lock();
        for order in Order::all() {
            for mt in Migratetype::ALL {
                let list = locked.buddy.list(&locked.frames, order, mt);
                areas.blocks[order.index()][mt.index()] =
                    list.take(LISTED_BLOCKS_MAX as usize).count() as u32;
            }
        }
        areas.free_highatomic = locked.buddy.free_highatomic();
        areas.reserved_highatomic = locked.buddy.reserved_highatomic();
        // The first page of each pageblock that lies in the zone; of the first block, the first
        // page of the zone.
        let start = zone.start_pfn;
        let mut pfn = start;
        while pfn < start + zone.spanned {
            areas.pageblocks[locked.frames.pageblock_type((pfn - start) as u32).index()] += 1;
            pfn = (pfn / PAGEBLOCK_PAGES + 1) * PAGEBLOCK_PAGES;
        }
        areas
    }
}
