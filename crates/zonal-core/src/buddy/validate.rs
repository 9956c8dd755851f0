//! The whole-structure walk: every equation of the module's essay, checked.

use core::fmt;

use super::{Buddy, PBO};
use crate::frame::{Frames, NO_FRAME, PageState};
use crate::types::{Migratetype, NR_ORDERS, Order, PAGEBLOCK_PAGES, Pfn};

/// An invariant that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuddyFault {
    /// The number behind `BUDDY-` in the module's essay.
    pub invariant: u8,
    /// The frame concerned; for a count of the whole zone, its first pfn.
    pub pfn: Pfn,
    /// The order concerned; 0 for a count over all orders.
    pub order: Order,
    /// The value by the equation.
    pub expected: u64,
    /// The value found.
    pub found: u64,
}

impl fmt::Display for BuddyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BuddyFault { invariant, pfn, order, expected, found } = *self;
        match invariant {
            9 => {
                write!(f, "the word of {pfn:?} was overwritten: {found:#x} says no state (BUDDY-9)")
            }
            7 => write!(
                f,
                "{pfn:?} lies in a block of {order:?}, but its word is {found:#x} (BUDDY-7)"
            ),
            _ => write!(
                f,
                "BUDDY-{invariant} (module zonal_core::buddy) does not hold at {pfn:?}, {order:?}: \
                 expected {expected:#x}, found {found:#x}"
            ),
        }
    }
}

impl core::error::Error for BuddyFault {}

/// One walk's point of view, so that a check is one line.
struct Walk<'w, 'f> {
    frames: &'w Frames<'f>,
}

impl Walk<'_, '_> {
    fn equal(
        &self,
        invariant: u8,
        idx: u32,
        order: Order,
        expected: u64,
        found: u64,
    ) -> Result<(), BuddyFault> {
        let pfn = self.frames.pfn(idx);
        if expected == found {
            Ok(())
        } else {
            Err(BuddyFault { invariant, pfn, order, expected, found })
        }
    }
}

impl Buddy {
    /// Walks all words and all lists and checks BUDDY-1 to BUDDY-10.
    ///
    /// # Errors
    /// The first equation found not to hold. Costs a pass over the zone's metadata.
    pub fn validate(&self, frames: &Frames<'_>) -> Result<(), BuddyFault> {
        let walk = Walk { frames };
        walk.equal(10, 0, Order::ZERO, 0, self.faults as u64)?;
        let heads = walk.words()?;
        let mut pages = 0;
        let mut special = [0u64; 2];
        for order in Order::all() {
            let mut blocks = 0;
            for mt in Migratetype::ALL {
                let len = walk.list(self, order, mt)?;
                blocks += len;
                match mt {
                    Migratetype::Isolate => special[1] += len << order.get(),
                    Migratetype::HighAtomic => special[0] += len << order.get(),
                    _ => pages += len << order.get(),
                }
            }
            let nr_free = self.areas[order.index()].nr_free as u64;
            walk.equal(2, 0, order, blocks, nr_free)?;
            // Lists are disjoint (their links agree), so equal counts mean equal sets.
            walk.equal(2, 0, order, heads[order.index()], nr_free)?;
        }
        walk.equal(8, 0, Order::ZERO, pages + special[0], self.free_pages)?;
        walk.equal(8, 0, Order::ZERO, special[0], self.free_highatomic)?;
        walk.equal(8, 0, Order::ZERO, special[1], self.free_isolate)
    }
}

impl Walk<'_, '_> {
    /// Checks every word; returns the free blocks of each order.
    fn words(&self) -> Result<[u64; NR_ORDERS], BuddyFault> {
        let mut heads = [0; NR_ORDERS];
        let spanned = self.frames.spanned();
        let mut at = 0;
        while at < spanned {
            let (order, free) = match self.frames.load(at).state() {
                PageState::None => {
                    at += 1;
                    continue;
                }
                PageState::Corrupt(word) => {
                    self.equal(9, at, Order::ZERO, 0, word)?;
                    at += 1;
                    continue;
                }
                PageState::Free { order, .. } => (order, true),
                PageState::Cached { order, .. }
                | PageState::Allocated { order, .. }
                | PageState::Range { order, .. } => (order, false),
            };
            let pages = order.pages() as u32;
            let offset = self.frames.aligned(at) & (pages - 1);
            self.equal(4, at, order, 0, offset as u64)?;
            let inside = pages.min(spanned - at);
            self.equal(4, at, order, pages as u64, inside as u64)?;
            for inner in at + 1..at + pages {
                self.equal(7, inner, order, 0, self.frames.load(inner).0)?;
            }
            if free {
                heads[order.index()] += 1;
                self.free_block(at, order)?;
            }
            at += pages;
        }
        Ok(heads)
    }

    /// Checks one free block against its buddy and its pageblocks.
    fn free_block(&self, at: u32, order: Order) -> Result<(), BuddyFault> {
        if order.get() < PBO {
            let buddy = self.frames.index_at(self.frames.aligned(at) ^ (1 << order.get()));
            let both = self.frames.load(buddy).is_free_of(order.get());
            self.equal(5, at, order, 0, both as u64)?;
        }
        let mt = self.frames.pageblock_type(at);
        for piece in (at..at + order.pages() as u32).step_by(PAGEBLOCK_PAGES as usize) {
            self.equal(6, piece, order, mt as u64, self.frames.pageblock_type(piece) as u64)?;
        }
        Ok(())
    }

    /// Checks one list; returns its length.
    fn list(&self, buddy: &Buddy, order: Order, mt: Migratetype) -> Result<u64, BuddyFault> {
        let list = buddy.areas[order.index()].lists[mt.index()];
        let nr_free = buddy.areas[order.index()].nr_free as u64;
        let (mut len, mut last, mut at) = (0, NO_FRAME, list.head);
        while at != NO_FRAME {
            // A list longer than all free blocks of its order is a ring.
            self.equal(1, at, order, len, len.min(nr_free))?;
            let word = self.frames.load(at);
            self.equal(1, at, order, 1, word.is_free_of(order.get()) as u64)?;
            self.equal(1, at, order, last as u64, word.prev() as u64)?;
            let of_block = self.frames.pageblock_type(at);
            let may_differ = buddy.mixed && order.get() < PBO;
            if !(may_differ && mt.mergeable() && of_block.mergeable()) {
                self.equal(6, at, order, mt as u64, of_block as u64)?;
            }
            (last, at) = (at, word.next());
            len += 1;
        }
        self.equal(1, 0, order, last as u64, list.tail as u64)?;
        let bit = buddy.nonempty[mt.index()] >> order.get() & 1;
        self.equal(3, 0, order, (len > 0) as u64, bit as u64)?;
        Ok(len)
    }
}
