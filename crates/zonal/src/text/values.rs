//! Counter to number.
//!
//! Each function returns `None` for a counter that an allocator does not have. The test
//! `a_counter_has_a_value_if_the_table_says_what_it_means` holds both sides together.

use zonal_core::types::{NodeId, Order, PAGE_SIZE, PAGEBLOCK_ORDER, ZoneKind};
use zonal_core::zone::watermark::Watermark;
use zonal_text::counters::Group;

use super::reading::{NodeState, PagesetState, State, ZoneState};

/// KiB of a page.
const PAGE_KIB: u64 = PAGE_SIZE as u64 / 1024;

impl ZoneState {
    /// The counter `name` of a group that is printed zone by zone.
    pub(super) fn value(&self, group: Group, name: &str) -> Option<u64> {
        match group {
            Group::ZonePages => self.pages(name),
            Group::Zone => self.item(name),
            Group::Numa => self.numa(name),
            Group::ZoneTail => self.tail(name),
            Group::Own => self.own(name),
            _ => None,
        }
    }

    fn pages(&self, name: &str) -> Option<u64> {
        Some(match name {
            "free" => self.stats.free_pages,
            "boost" => self.watermarks.boost,
            "min" => self.watermarks.of(Watermark::Min),
            "low" => self.watermarks.of(Watermark::Low),
            "high" => self.watermarks.of(Watermark::High),
            "promo" => self.watermarks.of(Watermark::Promo),
            "spanned" => self.spanned,
            "present" => self.present,
            "managed" => self.managed,
            _ => return None,
        })
    }

    fn item(&self, name: &str) -> Option<u64> {
        let blocks = |order: Order| u64::from(self.stats.nr_free[order.index()]) << order.get();
        Some(match name {
            "nr_free_pages" => self.stats.free_pages,
            "nr_free_pages_blocks" => PAGEBLOCK_ORDER.and_above().map(blocks).sum(),
            _ => return None,
        })
    }

    fn numa(&self, name: &str) -> Option<u64> {
        let events = &self.stats.numa;
        Some(match name {
            "numa_hit" => events.hit,
            "numa_miss" => events.miss,
            "numa_foreign" => events.foreign,
            "numa_local" => events.local,
            "numa_other" => events.other,
            _ => return None,
        })
    }

    fn tail(&self, name: &str) -> Option<u64> {
        Some(match name {
            "start_pfn" => self.start_pfn,
            "reserved_highatomic" => self.areas.reserved_highatomic,
            "free_highatomic" => self.areas.free_highatomic,
            _ => return None,
        })
    }

    fn own(&self, name: &str) -> Option<u64> {
        let stats = &self.stats;
        Some(match name {
            "cached_pages" => stats.cached_pages,
            "stat_threshold" => self.stat_threshold.into(),
            "allocs" => stats.allocs,
            "allocated_pages" => stats.allocated_pages,
            "freed_pages" => stats.freed_pages,
            "refilled_pages" => stats.refilled_pages,
            "refills" => stats.refills,
            "drained_pages" => stats.drained_pages,
            "drains" => stats.drains,
            "direct_pages" => stats.direct_pages,
            "direct_allocs" => stats.direct_allocs,
            "double_frees" => stats.double_frees,
            "overflows" => stats.overflows,
            "lock_holds" => stats.lock_holds,
            "lock_contended" => stats.lock_contended,
            _ => return None,
        })
    }
}

impl PagesetState {
    /// A counter of [`Group::Pageset`].
    pub(super) fn value(&self, name: &str) -> Option<u64> {
        Some(u64::from(match name {
            "count" => self.count,
            "high" => self.high,
            "batch" => self.batch,
            "high_min" => self.high_min,
            "high_max" => self.high_max,
            _ => return None,
        }))
    }
}

impl NodeState {
    fn item(&self, name: &str) -> Option<u64> {
        let held = &self.held;
        Some(match name {
            "nr_inactive_file" => held.inactive_file,
            "nr_active_file" => held.active_file,
            "nr_slab_reclaimable" => held.slab,
            "nr_mapped" => held.file_mapped,
            "nr_file_pages" => held.file,
            "nr_dirty" => held.file_dirty,
            name => return self.scan(name),
        })
    }

    /// Kernels count node reclaim, which a request does itself, as direct reclaim.
    fn scan(&self, name: &str) -> Option<u64> {
        let direct = self.scans.direct.plus(self.scans.node);
        let all = direct.plus(self.scans.background);
        Some(match name {
            "pgscan_kswapd" => self.scans.background.scanned,
            "pgsteal_kswapd" => self.scans.background.reclaimed,
            "pgscan_direct" => direct.scanned,
            "pgsteal_direct" => direct.reclaimed,
            "pgscan_file" => all.scanned,
            "pgsteal_file" => all.reclaimed,
            _ => return None,
        })
    }
}

/// The zone kind that a counter's name ends in.
fn kind_of(name: &str) -> Option<ZoneKind> {
    ZoneKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
}

impl State {
    /// A counter of [`Group::Event`].
    pub(super) fn event(&self, name: &str) -> Option<u64> {
        if name == "pgfree" {
            return Some(self.zones.iter().map(|zone| zone.stats.freed_pages).sum());
        }
        if let Some(value) = self.reclaim_event(name) {
            return Some(value);
        }
        if name.starts_with("pgs") {
            // Up to 6.14 items of nodes that are summed up in one place.
            return self.reclaim.iter().map(|node| node.scan(name)).sum();
        }
        let kind = kind_of(name.strip_prefix("pgalloc_")?)?;
        let zones = self.zones.iter().filter(|zone| zone.kind == kind);
        Some(zones.map(|zone| zone.stats.allocated_pages).sum())
    }

    fn reclaim_event(&self, name: &str) -> Option<u64> {
        let stats = &self.whole.reclaim;
        Some(match name {
            "pgscan_direct_throttle" => stats.direct_throttled,
            "zone_reclaim_success" => stats.success,
            "zone_reclaim_failed" => stats.failed,
            "slabs_scanned" => self.whole.objects_scanned,
            "kswapd_low_wmark_hit_quickly" => stats.low_hit_quickly,
            "kswapd_high_wmark_hit_quickly" => stats.high_hit_quickly,
            "pageoutrun" => stats.background_runs,
            "oom_kill" => stats.out_of_memory,
            name => stats.direct[kind_of(name.strip_prefix("allocstall_")?)?.index()],
        })
    }

    /// A counter of [`Group::Node`], of one node or summed over all. `None` also for a node that
    /// is not there.
    pub(super) fn node_item(&self, node: Option<NodeId>, name: &str) -> Option<u64> {
        match node {
            Some(node) => self.reclaim.get(usize::from(node.0))?.item(name),
            None => self.reclaim.iter().map(|node| node.item(name)).sum(),
        }
    }

    /// A counter of [`Group::Whole`].
    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        Some(match name {
            "slow_paths" => self.whole.slow_paths,
            "failures" => self.whole.failures,
            "whole_drains" => self.whole.whole_drains,
            "claims" => self.whole.claims,
            "steals" => self.whole.steals,
            "misuses" => self.whole.misuses,
            _ => return None,
        })
    }

    /// A counter of [`Group::Memory`].
    pub(super) fn memory(&self, node: NodeId, name: &str) -> Option<u64> {
        let managed: u64 = self.zones_of(node).map(|zone| zone.managed).sum();
        let free: u64 = self.zones_of(node).map(|zone| zone.stats.free_pages).sum();
        let pages = match name {
            "MemTotal" => managed,
            "MemFree" => free,
            "MemUsed" => managed.saturating_sub(free),
            _ => return None,
        };
        Some(pages * PAGE_KIB)
    }
}
