//! What a pool is, and its figures.

use zonal_core::alloc::{NumaEvents, ZoneStats};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, PAGE_SIZE};

use super::Pool;
use super::poison::Poison;

impl Pool {
    /// The policy in force. NUMA events that the policy of the builder folds when they are read, as
    /// Linux does from 5.14 on, are kept exactly: `numa` says so.
    pub fn policy(&self) -> &Policy {
        self.shared.allocator.policy()
    }

    /// Bytes of memory the pool manages.
    pub fn bytes(&self) -> usize {
        self.shared.pages * PAGE_SIZE
    }

    /// Bytes of metadata, as reserved; untouched parts are not resident.
    pub fn metadata_bytes(&self) -> usize {
        self.shared.records.bytes()
    }

    /// Address of the first page.
    pub fn base(&self) -> *const u8 {
        self.shared.fast.base as *const u8
    }

    /// Nodes of the pool.
    pub fn nodes(&self) -> usize {
        self.shared.allocator.nodes().len()
    }

    /// One counter set per zone.
    pub fn zone_stats(&self) -> impl Iterator<Item = ZoneStats> + '_ {
        let allocator = &self.shared.allocator;
        allocator.zones().iter().map(|zone| allocator.zone_stats(zone.id()))
    }

    /// NUMA events of a node.
    pub fn numa_events(&self, node: NodeId) -> NumaEvents {
        self.shared.allocator.numa_events(node)
    }

    /// Pages not handed out: free ones and those on pcps. Exact while no call allocates or frees:
    /// what the pool's threads move meanwhile is counted once, and where one of them was
    /// interrupted this waits for it, but not for ever. Blocks that a trim is about to give back
    /// are not counted for that moment.
    pub fn free_page_count(&self) -> u64 {
        self.shared.allocator.free_pages()
    }

    /// The node a page belongs to, if it is one of this pool's.
    pub fn node_of(&self, page: *const u8) -> Option<NodeId> {
        let pfn = self.shared.pfn(page as usize);
        let zone = self.shared.allocator.zones().iter().find(|zone| zone.contains(pfn))?;
        Some(zone.node())
    }

    /// Writes to freed pages found so far (only with [`Builder::poison`](super::Builder::poison)).
    pub fn poison_hits(&self) -> u64 {
        self.shared.poison.as_ref().map_or(0, Poison::hits)
    }
}
