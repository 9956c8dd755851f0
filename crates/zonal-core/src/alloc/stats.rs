//! Counts of the allocator. All counts are exact while nothing runs; read at any other time, each
//! is right for some moment during the read.

use super::areas::FreeAreas;
use super::growth::Growth;
use super::held::Held;
use super::limits::Limits;
use super::tables::Tables;
use super::validate;
use super::zone_ops::{NumaEvents, ZoneOps, free_pages};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NR_ORDERS, NodeId, Order, ZoneId, ZoneKind};
use crate::vmstat::numa::{NUMA_NAMES, NumaCounts, plus};
use crate::zone::background::Background;
use crate::zone::watermark::ZoneSnapshot;

/// One zone's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// Free pages in the buddy, exact.
    pub free_pages: u64,
    /// Free blocks of each order.
    pub nr_free: [u32; NR_ORDERS],
    /// Pages on pcps, in depots and in pageblocks that CPUs own.
    pub cached_pages: u64,
    /// Those in depots.
    pub depot_pages: u64,
    /// Those in pageblocks that CPUs own.
    pub owned_pages: u64,
    /// Pageblocks that CPUs own.
    pub owned_blocks: u64,
    /// Whole free pageblocks that CPUs claimed.
    pub owned_claims: u64,
    /// Pieces of other pageblocks that CPUs claimed.
    pub owned_pieces: u64,
    /// Pageblocks that went back to the zone.
    pub owned_returns: u64,
    /// Blocks that a CPU freed to another one, the owner of their pageblock.
    pub owned_remote_frees: u64,
    /// Times the lock of an owner was taken.
    pub owner_holds: u64,
    /// Times the lock of an owner was found taken.
    pub owner_contended: u64,
    /// Most pages that the lists and depots may hold together; 0: there is no such bound.
    pub budget_pages: u64,
    /// Of these, what depots have room for and pcps were granted.
    pub reserved_pages: u64,
    /// Magazines that pcps left in depots.
    pub depot_puts: u64,
    /// Magazines that pcps took from depots.
    pub depot_takes: u64,
    /// Allocations.
    pub allocs: u64,
    /// Base pages allocated (`pgalloc`).
    pub allocated_pages: u64,
    /// Base pages freed (`pgfree`).
    pub freed_pages: u64,
    /// Base pages moved from the buddy to pcps.
    pub refilled_pages: u64,
    /// Zone lock holds that refilled a pcp.
    pub refills: u64,
    /// Base pages moved from pcps to the buddy.
    pub drained_pages: u64,
    /// Zone lock holds that drained a pcp.
    pub drains: u64,
    /// Base pages allocated from the buddy directly.
    pub direct_pages: u64,
    /// Blocks allocated from the buddy directly.
    pub direct_allocs: u64,
    /// Copies of blocks dropped because they were freed twice at the same time.
    pub double_frees: u64,
    /// Drains because a stack was full before its limit.
    pub overflows: u64,
    /// Times the zone lock was taken.
    pub lock_holds: u64,
    /// Times the zone lock was found taken.
    pub lock_contended: u64,
    /// NUMA events.
    pub numa: NumaEvents,
}

/// The figures of an allocator; see [`Allocator::stats`](super::Allocator::stats).
#[derive(Debug)]
pub struct Stats<'s, 'a, P> {
    on: &'s Tables<'a, P>,
}

impl<P> Clone for Stats<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Stats<'_, '_, P> {}

impl<'s, 'a, P: Platform> Stats<'s, 'a, P> {
    pub(super) fn new(on: &'s Tables<'a, P>) -> Self {
        Stats { on }
    }

    fn zone_ops(self, zone: ZoneId) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, self.on.zone(zone))
    }

    /// One zone's counters.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn zone(self, zone: ZoneId) -> ZoneStats {
        let ops = self.zone_ops(zone);
        let zone = ops.zone;
        let mut stats = ZoneStats::default();
        ops.pcps().for_each(|pcp| add_pcp(&mut stats, pcp));
        stats.depot_pages = ops.depot_pages();
        stats.cached_pages += stats.depot_pages;
        ops.owned().count(&mut stats);
        stats.budget_pages = u64::from(zone.budget.limit());
        stats.reserved_pages = u64::from(zone.budget.reserved());
        stats.numa = ops.numa_events();
        (stats.lock_holds, stats.lock_contended) = zone.lock_holds();
        let locked = ops.lock();
        stats.free_pages = locked.buddy.free_pages();
        for order in Order::all() {
            stats.nr_free[order.index()] = locked.buddy.nr_free(order);
        }
        stats
    }

    /// Pages free or waiting on a pcp, in a depot or in a pageblock that a CPU owns, over all
    /// zones. Exact while no caller allocates or frees: what refills, drains and refreshes move
    /// meanwhile is counted once. Waits for a while where one of them was interrupted. Blocks that
    /// [`isolate_block`](super::Allocator::isolate_block) has out are not free.
    pub fn free_pages(self) -> u64 {
        self.on.zones.iter().map(|zone| free_pages(self.zone_ops(zone.id()))).sum()
    }
    /// Pages of a node that are not online and not claimed. A node that does not exist has none.
    pub fn left_to_grow(self, node: NodeId) -> u64 {
        Growth::new(self.on).left(node)
    }
    /// The free blocks and pageblocks of a zone. Walks every free list, at most
    /// [`LISTED_BLOCKS_MAX`](super::LISTED_BLOCKS_MAX) blocks of each, with the zone lock held.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn free_areas(self, zone: ZoneId) -> FreeAreas {
        FreeAreas::of(self.zone_ops(zone))
    }
    /// Counts the strays of a forked child, which
    /// [`Zone::strays`](crate::zone::state::Zone::strays) then returns. `held` is all that
    /// `Allocator::hold_all` gave, so other threads may use the allocator meanwhile.
    pub fn count_strays(self, held: &[Held<'_, P>]) {
        validate::count_strays(self.on, held);
    }
    /// Base pages that are handed out, those among them whose free was interrupted and begins
    /// again, and strays of a forked child. `held` is all that `Allocator::hold_all` gave. `None`:
    /// a page word is corrupt, so nobody knows.
    pub fn handed_out_pages(self, held: &[Held<'_, P>]) -> Option<u64> {
        validate::handed_out_pages(self.on, held)
    }
    /// Free base pages in the pageblocks of a zone that CPUs own.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn owned_pages(self, zone: ZoneId) -> u64 {
        self.zone_ops(zone).owned().pages()
    }
    /// Base pages that a CPU keeps of a zone: on its lists, in its pageblocks, and in the depot if
    /// it is the first CPU that shares one.
    ///
    /// # Panics
    /// If there is no such zone or CPU.
    pub fn kept_pages(self, zone: ZoneId, cpu: CpuId) -> u32 {
        self.on.expect_zone(zone);
        let lists = self.on.pcp(zone, cpu);
        lists.count() + lists.depot_pages() + self.zone_ops(zone).owned().pages_of(cpu)
    }
    /// Base pages in the depots of a zone.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn depot_pages(self, zone: ZoneId) -> u64 {
        self.zone_ops(zone).depot_pages()
    }

    /// `nr_free_pages` of `/proc/vmstat`: all zones' counters, without the CPUs' deltas; 0 if
    /// below. Linux keeps this sum by writing it at each fold; here it is added up when it is read.
    pub fn free_counter(self) -> u64 {
        self.free_counter_raw().max(0) as u64
    }
    fn free_counter_raw(self) -> i64 {
        self.on.zones.iter().map(|zone| zone.free_counter_raw()).sum()
    }
    /// A zone's free pages with every CPU's delta (LB F.1 `zone_page_state_snapshot`); 0 if below.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn free_snapshot(self, zone: ZoneId) -> u64 {
        self.zone_ops(zone).free_snapshot()
    }
    /// What a test of a watermark looks at where the counter's error must not decide (LB C.5
    /// `zone_watermark_ok_safe`): below the drift mark the deltas are added.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn safe_snapshot(self, zone: ZoneId, highest: ZoneKind) -> ZoneSnapshot {
        self.zone_ops(zone).safe_snapshot(highest)
    }
    /// Tells `warn` each counter of the machine that is below zero, by its name in `/proc/vmstat`
    /// (LB F.4).
    pub(super) fn negative_counters(self, mut warn: impl FnMut(&'static str, i64)) {
        let zones = self.on.zones.iter();
        let events = zones.map(|zone| zone.numa().get()).fold(Default::default(), plus);
        // The exact storage keeps there what it subtracts.
        let records = self.on.policy().numa.records();
        let events = NUMA_NAMES.into_iter().zip(events).filter(|_| records);
        let counters = core::iter::once(("nr_free_pages", self.free_counter_raw())).chain(events);
        counters.filter(|(_, count)| *count < 0).for_each(|(name, count)| warn(name, count));
    }

    /// Whether NUMA events are counted now: `vm.numa_stat`.
    pub fn counts_numa(self) -> bool {
        self.on.tunables.counts_numa()
    }
    /// NUMA events of all zones of a node: `nodeN/numastat`. None for a node that does not exist.
    pub fn numa_events(self, node: NodeId) -> NumaEvents {
        let zones = self.on.zones_of(node).map(|zone| ZoneOps::new(self.on, zone).numa_events());
        zones.fold(NumaEvents::default(), NumaEvents::plus)
    }
    /// Folded NUMA events of the machine, as in `/proc/vmstat`. Where readers fold, and with the
    /// exact storage, that is everything.
    pub fn machine_numa_events(self) -> NumaEvents {
        if !self.counts_numa() {
            return NumaEvents::default();
        }
        let zones = self.on.zones.iter();
        let folded = zones.map(|zone| ZoneOps::new(self.on, zone).folded_numa_events());
        NumaEvents::of(folded.fold(NumaCounts::default(), plus))
    }

    /// Requests whose first walk over the zones found nothing, and those that no walk could
    /// serve.
    pub fn slow_paths(self) -> (u64, u64) {
        let events = &self.on.events;
        (events.slow_paths.load(Relaxed), events.failures.load(Relaxed))
    }
    /// Times all pcps were emptied, by callers and by requests that found nothing else.
    pub fn whole_drains(self) -> u64 {
        self.on.events.drains_all.load(Relaxed)
    }
    /// Pageblocks claimed and blocks stolen from another migratetype (LB B.7).
    pub fn fallbacks(self) -> (u64, u64) {
        (self.on.events.claims.load(Relaxed), self.on.events.steals.load(Relaxed))
    }

    /// `vm.min_free_kbytes` in force.
    pub fn min_free_kbytes(self) -> u32 {
        self.on.tunables.min_free_kbytes()
    }
    /// Pages that no request is to count on: of each zone its largest reserve and its high
    /// watermark (LB A.7).
    pub fn total_reserve(self) -> u64 {
        Limits::new(self.on).total_reserve()
    }
    /// Pages above the high watermarks of all zones: what decides whether pageblocks are grouped by
    /// mobility (LB A.5).
    pub fn allocatable_pages(self) -> u64 {
        Limits::new(self.on).allocatable_pages()
    }
    /// State and request of a node's background reclaimer.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn background(self, node: NodeId) -> &'a Background {
        self.on.background(node)
    }
}

fn add_pcp(stats: &mut ZoneStats, pcp: &Pcp) {
    let totals = pcp.totals();
    let events = &pcp.events;
    let direct = events.direct_allocs.load(Relaxed);
    let direct_pages = events.direct_pages.load(Relaxed);
    stats.cached_pages += u64::from(pcp.count());
    stats.allocs += totals.pops + direct;
    stats.allocated_pages += totals.popped_pages + direct_pages;
    stats.freed_pages += totals.pushed_pages + events.direct_freed.load(Relaxed);
    stats.refilled_pages += totals.refilled_pages;
    stats.refills += events.refills.load(Relaxed);
    stats.drained_pages += totals.drained_pages;
    stats.drains += events.drains.load(Relaxed);
    stats.depot_puts += events.depot_puts.load(Relaxed);
    stats.depot_takes += events.depot_takes.load(Relaxed);
    stats.direct_pages += direct_pages;
    stats.direct_allocs += direct;
    stats.double_frees += events.double_frees.load(Relaxed);
    stats.overflows += events.overflows.load(Relaxed);
}
