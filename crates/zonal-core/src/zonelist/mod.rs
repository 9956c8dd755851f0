//! Zonelists: which zones a request tries, in which order (LB A.4).
//!
//! Every node has one list of all zones: nodes in fallback order, each node's zones from the
//! highest kind down. Its own zones come first, so that the list of a request that must stay on the
//! node (`THISNODE`) is the front of the same list. Sorted by zones instead of nodes (2.6.24 to
//! 4.13), that list follows the other.

#[cfg(feature = "history")]
#[path = "../history/zonelist/cache.rs"]
pub mod cache;
pub mod order;

use crate::types::{NodeId, ZoneId};
use crate::zone::background::Background;
use crate::zone::reclaim::{ReclaimRecord, ScanCounters, Scans};
#[cfg(feature = "history")]
use cache::{CacheStats, ZonelistCache};

/// A node's part of the machine.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Node {
    /// Where its list starts, and its length.
    pub(crate) first: u32,
    pub(crate) len: u16,
    pub(crate) cpus: u16,
    /// The same of the list of its own zones.
    pub(crate) own_first: u32,
    pub(crate) own: u16,
    pub(crate) preferred: ZoneId,
    /// While lists are built: its first zone that may be on them and the one behind the last, its
    /// load (LB A.5), and which node has the place of this number.
    pub(crate) zones: (u16, u16),
    pub(crate) load: u16,
    pub(crate) placed: NodeId,
    pub(crate) reclaim: ReclaimRecord,
    pub(crate) scans: ScanCounters,
    pub(crate) background: Background,
    /// Of the list of all zones; the list of the node's own has none (LB G.4).
    #[cfg(feature = "history")]
    pub(crate) cache: ZonelistCache,
}

impl Node {
    /// The zone that ordinary requests (`GFP_KERNEL`) from this node try first.
    pub fn preferred(&self) -> ZoneId {
        self.preferred
    }
    /// CPUs of the node.
    pub fn cpus(&self) -> u32 {
        u32::from(self.cpus)
    }
    /// Pages that reclaim looked at and freed here.
    pub fn scans(&self) -> Scans {
        self.scans.read()
    }
    /// What its zonelist cache was told, and what came of it.
    #[cfg(feature = "history")]
    pub fn zonelist_cache(&self) -> CacheStats {
        self.cache.stats()
    }
    /// Whether it has a zone with pages.
    pub fn has_memory(&self) -> bool {
        self.own != 0
    }
    /// The zones to try, first to last; only its own if `this_node`.
    pub fn zonelist<'a>(&self, entries: &'a [ZoneId], this_node: bool) -> &'a [ZoneId] {
        let (first, len) =
            if this_node { (self.own_first, self.own) } else { (self.first, self.len) };
        &entries[first as usize..][..usize::from(len)]
    }
}
