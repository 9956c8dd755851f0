//! Where each page is, as the trace tells.

use crate::by_page::ByPage;
use crate::told::ListKey;

/// Where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The trace has not told.
    #[default]
    Unseen,
    /// In use.
    Held,
    /// Freed with this order, and about to join a list.
    Pending(u8),
    /// On a list.
    Listed(ListKey),
    /// Freed to this list by what is known of its pageblock, and not there: the kernel passed it
    /// by again and again.
    Aside(ListKey),
    /// In the buddy.
    Free,
    /// From the buddy to its user, who has not got it yet.
    Direct,
}

/// A place, and the last event, of each first frame of a block.
#[derive(Debug, Default)]
pub struct Pages {
    places: ByPage<(Place, u32)>,
}

const _: () = assert!(size_of::<(Place, u32)>() == 12, "a judge keeps one for each page");

impl Pages {
    /// Where the block at `pfn` is.
    pub fn get(&self, pfn: u64) -> Place {
        self.places.get(pfn).0
    }

    /// Moves it; returns where it was.
    pub fn replace(&mut self, pfn: u64, place: Place) -> Place {
        std::mem::replace(&mut self.places.of(pfn).0, place)
    }

    /// Position of the event that put it where it is.
    pub fn last(&self, pfn: u64) -> usize {
        self.places.get(pfn).1 as usize
    }

    /// Remembers that event.
    pub fn set_last(&mut self, pfn: u64, at: usize) {
        self.places.of(pfn).1 = at as u32;
    }
}
