//! Where each page is, as the trace tells.

use std::collections::HashMap;

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
    /// In the buddy.
    Free,
    /// From the buddy to its user, who has not got it yet.
    Direct,
}

/// A place, and the last event, of each first frame of a block.
#[derive(Debug, Default)]
pub struct Pages {
    places: HashMap<u64, (Place, u32)>,
}

impl Pages {
    /// Where the block at `pfn` is.
    pub fn get(&self, pfn: u64) -> Place {
        self.places.get(&pfn).map_or(Place::Unseen, |(place, _)| *place)
    }

    /// Moves it; returns where it was.
    pub fn replace(&mut self, pfn: u64, place: Place) -> Place {
        std::mem::replace(&mut self.places.entry(pfn).or_default().0, place)
    }

    /// Position of the event that put it where it is.
    pub fn last(&self, pfn: u64) -> usize {
        self.places.get(&pfn).map_or(0, |(_, last)| *last as usize)
    }

    /// Remembers that event.
    pub fn set_last(&mut self, pfn: u64, at: usize) {
        self.places.entry(pfn).or_default().1 = at as u32;
    }
}
