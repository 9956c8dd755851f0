//! Facts beyond the allocations and frees of a trace, given to a replay or found by it.

use std::collections::BTreeMap;

use serde::Serialize;
use zonal_core::gfp::Gfp;

/// Recorded actions of the kernel that a model uses, beyond allocations, frees and `zoneinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// When each CPU's statistics worker ran.
    pub decay: bool,
    /// The migratetypes of pageblocks.
    pub blocktypes: bool,
    /// The pages that lists held at the start.
    pub lists: bool,
    /// Allocations that no event shows.
    pub untraced: bool,
}

impl Recorded {
    /// Their names on the command line.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.decay, "decay"),
            (self.blocktypes, "blocktypes"),
            (self.lists, "lists"),
            (self.untraced, "untraced"),
        ];
        all.into_iter().filter(|(told, _)| *told).map(|(_, name)| name).collect()
    }
}

/// Facts that no single event says.
#[derive(Debug, Default)]
pub struct Told {
    /// Allocations that the trace has no event of.
    pub untraced: Vec<Untraced>,
    /// Facts about each list at the start.
    pub lists: BTreeMap<ListKey, StartList>,
}

/// Facts about a list at the start, from a trace.
#[derive(Debug, Default)]
pub struct StartList {
    /// Blocks that leave it by allocations, hottest first.
    pub hot: Vec<u64>,
    /// Blocks that leave it by drains, coldest first.
    pub cold: Vec<u64>,
    /// It ran empty later, so there was nothing between these.
    pub ran_empty: bool,
}

/// One list: zone, CPU and number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListKey {
    /// Position of the zone.
    pub zone: u16,
    /// The CPU whose list it is.
    pub cpu: u16,
    /// Number of the list.
    pub list: u8,
}

/// An allocation without event, found out by [`judge`](crate::judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untraced {
    /// Before which of the [`Facts`] it must have been.
    pub at: usize,
    /// First frame.
    pub pfn: u64,
    /// The CPU whose list it was on.
    pub cpu: u32,
    /// The block's order.
    pub order: u8,
    /// The list's migratetype.
    pub migratetype: u8,
    /// The trace shows it being freed again.
    pub freed: bool,
}

impl Untraced {
    /// Flags of a request that takes from this list: as an ordinary one of the kernel.
    pub fn gfp(&self) -> u32 {
        let bits = match self.migratetype {
            1 => Gfp::KERNEL | Gfp::MOVABLE,
            2 => Gfp::KERNEL | Gfp::RECLAIMABLE,
            _ => Gfp::KERNEL,
        };
        bits.bits()
    }
}
