//! What the allocator has done. All counts are exact while nothing runs; read at any other time,
//! each is right for some moment during the read.

use super::Allocator;
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NR_ORDERS, Order, ZoneId};

/// NUMA events (LB F.6): of allocations, not pages, except for the bulk call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaEvents {
    /// Allocations from the preferred node.
    pub hit: u64,
    /// Allocations from another node than preferred.
    pub miss: u64,
    /// Allocations that preferred this node and were served by another.
    pub foreign: u64,
    /// Allocations by a CPU of the node.
    pub local: u64,
    /// Allocations by a CPU of another node.
    pub other: u64,
}

/// One zone's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// Free pages in the buddy, exact.
    pub free_pages: u64,
    /// Free blocks of each order.
    pub nr_free: [u32; NR_ORDERS],
    /// Pages on per-CPU stores and in depots.
    pub cached_pages: u64,
    /// Those in depots.
    pub depot_pages: u64,
    /// Most pages that the lists and depots may hold together; 0: there is no such bound.
    pub budget_pages: u64,
    /// Of these, what depots have room for and stores were granted.
    pub reserved_pages: u64,
    /// Batches that stores left in depots.
    pub depot_puts: u64,
    /// Batches that stores took from depots.
    pub depot_takes: u64,
    /// Allocations.
    pub allocs: u64,
    /// Base pages allocated (`pgalloc`).
    pub allocated_pages: u64,
    /// Base pages freed (`pgfree`).
    pub freed_pages: u64,
    /// Base pages moved from the buddy to stores.
    pub refilled_pages: u64,
    /// Zone lock holds that refilled a store.
    pub refills: u64,
    /// Base pages moved from stores to the buddy.
    pub drained_pages: u64,
    /// Zone lock holds that drained a store.
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

impl NumaEvents {
    /// The sum of two.
    pub fn plus(self, other: NumaEvents) -> NumaEvents {
        NumaEvents {
            hit: self.hit + other.hit,
            miss: self.miss + other.miss,
            foreign: self.foreign + other.foreign,
            local: self.local + other.local,
            other: self.other + other.other,
        }
    }
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// One zone's counters.
    pub fn zone_stats(&self, zone: ZoneId) -> ZoneStats {
        let zone = self.zone(zone);
        let mut stats = ZoneStats::default();
        let stores = self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu));
        stores.for_each(|pcp| self.add_store(&mut stats, pcp));
        stats.depot_pages = self.depot_pages(zone.id);
        stats.cached_pages += stats.depot_pages;
        stats.budget_pages = u64::from(zone.budget.limit());
        stats.reserved_pages = u64::from(zone.budget.reserved());
        stats.numa = self.zone_events(zone);
        (stats.lock_holds, stats.lock_contended) = zone.lock_holds();
        let locked = zone.lock(&self.platform, self.words, self.blocks);
        stats.free_pages = locked.buddy.free_pages();
        for order in Order::all() {
            stats.nr_free[order.index()] = locked.buddy.nr_free(order);
        }
        stats
    }

    fn add_store(&self, stats: &mut ZoneStats, pcp: &Pcp) {
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

    /// A home's fast path dropped a copy of a block that a racing double free had put on two stacks
    /// (PCP-3). The copy came from the CPU's store of the zone that the CPU prefers.
    pub fn count_stray(&self, cpu: CpuId) {
        let store = self.pcp(self.preferred_zone(cpu), cpu);
        store.events.double_frees.fetch_add(1, Relaxed);
    }

    /// Requests that took the slow way, and requests that were refused.
    pub fn slow_paths(&self) -> (u64, u64) {
        (self.events.slow_paths.load(Relaxed), self.events.failures.load(Relaxed))
    }

    /// Times all stores were emptied, by callers and by requests that found nothing else.
    pub fn whole_drains(&self) -> u64 {
        self.events.drains_all.load(Relaxed)
    }

    /// Pageblocks claimed and blocks stolen from another migratetype (LB B.7).
    pub fn fallbacks(&self) -> (u64, u64) {
        (self.events.claims.load(Relaxed), self.events.steals.load(Relaxed))
    }

    /// Pages free or waiting on a store or in a depot, over all zones.
    pub fn free_pages(&self) -> u64 {
        let zones = self.zones.iter().map(|zone| self.zone_stats(zone.id()));
        zones.map(|stats| stats.free_pages + stats.cached_pages).sum()
    }
}
