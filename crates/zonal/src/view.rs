//! What a pool says of itself: figures of its zones, nodes and per-CPU lists, for reports and
//! tests.
//!
//! ```
//! use zonal::{Order, Pool};
//!
//! let pool = Pool::builder().size(64 << 20).build()?;
//! let page = pool.alloc(Order::ZERO)?;
//! let view = pool.view();
//! for zone in view.zones() {
//!     println!("{:?}: {} of {} pages free", zone.id(), zone.stats().free_pages, zone.managed());
//! }
//! assert_eq!(view.blocks().map(|(_, order)| order.pages()).sum::<u64>(), 1);
//! # drop(page);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - **VIEW-1** nothing that a view gives outlives its pool: each value is a copy, or borrows the
//!   pool as the view does.
//! - **VIEW-2** nothing that a view gives changes the owner of a page: no atomic, lock or address
//!   of metadata leaves this module.
//!
//! ```compile_fail,E0515
//! fn zones() -> Vec<zonal::view::ZoneView<'static>> {
//!     let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//!     pool.view().zones().collect() // VIEW-1: the pool is dropped here
//! }
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::types::{CpuId, NodeId, Order, ZoneId, ZoneKind};
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

use crate::pool::{MemoryFault, Pool, PoolAllocator, Shared};

pub use zonal_core::alloc::{FreeAreas, NumaEvents, ZoneStats};
pub use zonal_core::pcp::state::{PcpEvents, PcpTotals};
pub use zonal_core::reclaim::ReclaimStats;
pub use zonal_core::zone::reclaim::Scans;
pub use zonal_core::zone::watermark::{Watermark, Watermarks};
#[cfg(feature = "history")]
pub use zonal_core::zonelist::cache::CacheStats;

/// Figures of a pool, for as long as it is borrowed: [`Pool::view`](crate::Pool::view).
///
/// Each figure is right for some moment while it is read; while nothing runs, all are exact.
#[derive(Clone, Copy)]
pub struct View<'p> {
    shared: &'p Shared,
}

/// Figures of one zone.
#[derive(Clone, Copy)]
pub struct ZoneView<'p> {
    allocator: &'p PoolAllocator,
    zone: &'p Zone,
}

/// Figures of one node.
#[derive(Clone, Copy)]
pub struct NodeView<'p> {
    allocator: &'p PoolAllocator,
    node: &'p Node,
    id: NodeId,
}

/// Figures of one CPU's lists of one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ListFigures {
    /// Base pages on the lists.
    pub count: u32,
    /// How many there may be.
    pub high: u32,
    /// Base pages of a refill or a drain, before any tuning.
    pub batch: u32,
    /// Base pages in the depot of the CPU's group, where this CPU is the group's first; else 0.
    pub depot_pages: u32,
    /// What went through the lists.
    pub totals: PcpTotals,
    /// What only slow ways count.
    pub events: PcpEvents,
}

impl Pool {
    /// Figures of zones, nodes and per-CPU lists.
    pub fn view(&self) -> View<'_> {
        View { shared: &self.shared }
    }
}

impl<'p> View<'p> {
    /// Looks whether the memory that the program brought is still there: mapped, readable and
    /// writable, with a file behind all of it. It reads the list of the process's mappings, and
    /// looks at both ends of those that are the pool's. A pool that mapped its own memory is right.
    ///
    /// # Errors
    /// The first [`MemoryFault`]. Blocks there are lost; do not touch them, and let go of the pool.
    pub fn check_memory(self) -> Result<(), MemoryFault> {
        self.shared.brought_fault().map_or(Ok(()), Err)
    }
    fn allocator(self) -> &'p PoolAllocator {
        self.shared.allocator()
    }

    /// The zones, by id.
    pub fn zones(self) -> impl ExactSizeIterator<Item = ZoneView<'p>> + Clone + use<'p> {
        let allocator = self.allocator();
        allocator.zones().iter().map(move |zone| ZoneView { allocator, zone })
    }

    /// A zone; `None` if the pool has no such id.
    pub fn zone(self, id: ZoneId) -> Option<ZoneView<'p>> {
        let zone = self.allocator().zones().get(usize::from(id.0))?;
        Some(ZoneView { allocator: self.allocator(), zone })
    }

    /// The nodes, by id.
    pub fn nodes(self) -> impl ExactSizeIterator<Item = NodeView<'p>> + Clone + use<'p> {
        let allocator = self.allocator();
        let node = move |(id, node)| NodeView { allocator, node, id: NodeId(id as u16) };
        allocator.nodes().iter().enumerate().map(node)
    }

    /// A node; `None` if the pool has no such id.
    pub fn node(self, id: NodeId) -> Option<NodeView<'p>> {
        let node = self.allocator().nodes().get(usize::from(id.0))?;
        Some(NodeView { allocator: self.allocator(), node, id })
    }

    /// Whether all pages are free, or come to be within `limit`: the pool's threads hold some while
    /// they move or trim them, when everybody else has given back theirs.
    pub fn all_free_within(self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.allocator().free_pages() as usize != self.shared.pages {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// CPUs that have lists.
    pub fn cpus(self) -> usize {
        self.allocator().cpus()
    }

    /// The node of a CPU; `None` if no CPU of this id has lists.
    pub fn node_of_cpu(self, cpu: CpuId) -> Option<NodeId> {
        self.allocator().tables().cpu_nodes().get(cpu.0 as usize).copied()
    }

    /// The lists of a CPU and a zone; `None` if the pool does not have both. Takes no lock.
    pub fn lists(self, zone: ZoneId, cpu: CpuId) -> Option<ListFigures> {
        let zone = self.zone(zone)?.id();
        self.node_of_cpu(cpu)?;
        let lists = self.allocator().pcp(zone, cpu);
        Some(ListFigures {
            count: lists.count(),
            high: lists.high(),
            batch: lists.batch(),
            depot_pages: lists.depot_pages(),
            totals: lists.totals(),
            events: lists.events(),
        })
    }

    /// The blocks that somebody was given: first byte and order; without those that the budget
    /// withholds, and those that stay out of use because they were written to while free. Read it
    /// while nothing else uses the pool: a block may be freed, and handed out again, before the
    /// next one is looked at.
    pub fn blocks(self) -> impl Iterator<Item = (*const u8, Order)> + use<'p> {
        let shared = self.shared;
        let nobodys = shared.nobodys_blocks();
        let at = move |pfn| shared.address(pfn).as_ptr().cast_const();
        let blocks = shared.allocator().allocated();
        let blocks = blocks.filter(move |(pfn, _)| !nobodys.contains(&pfn.0));
        blocks.map(move |(pfn, order)| (at(pfn), order))
    }

    /// Pages that no request is to count on: of each zone its largest reserve and its high
    /// watermark.
    pub fn total_reserve(self) -> u64 {
        self.allocator().stats().total_reserve()
    }

    /// `vm.min_free_kbytes` in force.
    pub fn min_free_kbytes(self) -> u32 {
        self.allocator().stats().min_free_kbytes()
    }

    /// `vm.stat_interval` in force.
    pub fn stat_interval(self) -> Duration {
        self.allocator().stat_interval()
    }

    /// Requests whose first walk over the zones found nothing, and those that no walk could
    /// serve.
    pub fn slow_paths(self) -> (u64, u64) {
        self.allocator().stats().slow_paths()
    }

    /// Times all lists were emptied, by callers and by requests that found nothing else.
    pub fn whole_drains(self) -> u64 {
        self.allocator().stats().whole_drains()
    }

    /// Pageblocks claimed and blocks stolen from another migratetype.
    pub fn fallbacks(self) -> (u64, u64) {
        self.allocator().stats().fallbacks()
    }

    /// What reclaim did.
    pub fn reclaim_stats(self) -> ReclaimStats {
        self.allocator().reclaim_stats()
    }

    /// Objects of registered caches looked at so far (`slabs_scanned`).
    pub fn objects_scanned(self) -> u64 {
        self.allocator().platform().consumers().objects_scanned()
    }

    /// Times another CPU had to be interrupted to own its lists (membarrier).
    pub fn fences(self) -> u64 {
        self.allocator().platform().fences()
    }
}

impl<'p> ZoneView<'p> {
    /// Its id: its place among the pool's zones.
    pub fn id(self) -> ZoneId {
        self.zone.id()
    }
    /// Its node.
    pub fn node(self) -> NodeId {
        self.zone.node()
    }
    /// Its purpose.
    pub fn kind(self) -> ZoneKind {
        self.zone.kind()
    }
    /// Its first page, counted from the pool's first.
    pub fn first_page(self) -> u64 {
        self.zone.start_pfn().0
    }
    /// Pages from the first to the last one.
    pub fn spanned(self) -> u64 {
        self.zone.spanned()
    }
    /// Pages that are online.
    pub fn managed(self) -> u64 {
        self.zone.managed()
    }
    /// The watermarks in force.
    pub fn watermarks(self) -> Watermarks {
        self.zone.watermarks()
    }
    /// Pages kept back from requests that could go to zone kind `highest`.
    pub fn reserve(self, highest: ZoneKind) -> u64 {
        self.zone.reserve(highest)
    }
    /// Parameters of its lists in force, in pages: batch, `high_min`, `high_max`.
    pub fn pcp_sizes(self) -> (u32, u32, u32) {
        self.zone.pcp_sizes()
    }
    /// The delta from which on a CPU adds it to the zone's counter.
    pub fn stat_threshold(self) -> u32 {
        self.zone.stat_threshold()
    }
    /// The free-page counter, without what CPUs still hold back. Takes no lock.
    pub fn free_counter(self) -> u64 {
        self.zone.free_counter()
    }
    /// The free-page counter with every CPU's delta. Takes no lock.
    pub fn free_snapshot(self) -> u64 {
        self.allocator.stats().free_snapshot(self.zone.id())
    }
    /// All counters. Takes the zone's lock.
    pub fn stats(self) -> ZoneStats {
        self.allocator.zone_stats(self.zone.id())
    }
    /// Free blocks by order and migratetype. Takes the zone's lock, and walks the free lists.
    pub fn free_areas(self) -> FreeAreas {
        self.allocator.stats().free_areas(self.zone.id())
    }
}

impl<'p> NodeView<'p> {
    /// Its id: its place among the pool's nodes.
    pub fn id(self) -> NodeId {
        self.id
    }
    /// Its CPUs.
    pub fn cpus(self) -> u32 {
        self.node.cpus()
    }
    /// Whether it has a zone with pages.
    pub fn has_memory(self) -> bool {
        self.node.has_memory()
    }
    /// Distance to another node; `None` if the pool has no such id.
    pub fn distance(self, to: NodeId) -> Option<u8> {
        let known = usize::from(to.0) < self.allocator.nodes().len();
        known.then(|| self.allocator.tables().distance(self.id, to))
    }
    /// The zones that its requests try, in order; only its own if `this_node`.
    pub fn zonelist(self, this_node: bool) -> &'p [ZoneId] {
        self.allocator.tables().zonelist(self.id, this_node)
    }
    /// What its zonelist cache was told, and what came of it.
    #[cfg(feature = "history")]
    pub fn zonelist_cache(self) -> CacheStats {
        self.node.zonelist_cache()
    }
    /// Pages that reclaim looked at and freed here.
    pub fn scans(self) -> Scans {
        self.node.scans()
    }
    /// Its NUMA events.
    pub fn numa_events(self) -> NumaEvents {
        self.allocator.numa_events(self.id)
    }
    /// Pages that are still to come online.
    pub fn left_to_grow(self) -> u64 {
        self.allocator.stats().left_to_grow(self.id)
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (zones, cpus) = (self.zones().len(), self.cpus());
        f.debug_struct("View").field("zones", &zones).field("cpus", &cpus).finish_non_exhaustive()
    }
}

impl fmt::Debug for ZoneView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneView")
            .field("id", &self.id())
            .field("node", &self.node())
            .field("kind", &self.kind())
            .field("managed", &self.managed())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NodeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeView").field("id", &self.id).finish_non_exhaustive()
    }
}
