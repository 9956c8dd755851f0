//! A policy: every choice in which one allocator differs from another, as data.
//!
//! Presets of historical kernels fill the same struct (`presets`), and each value can be changed
//! alone, by name ([`set`]). A policy is chosen when an allocator is made; its sysctl-like values
//! can change while it runs.

#[cfg(feature = "history")]
#[path = "../history/policy.rs"]
mod history;
pub mod nearest;
mod numbers;
mod presets;
pub mod recompute;
pub mod set;
pub mod walk;

pub use numbers::OutOfRange;
pub use presets::PresetError;

use crate::buddy::{FallbackRule, HighAtomicPolicy};
use crate::pcp::depot::DepotPolicy;
use crate::pcp::drain::{Chunk, DrainPolicy};
use crate::pcp::lists::{FreeLists, HugeLists, ListMap};
use crate::pcp::owner::Pageblocks;
use crate::pcp::size::{CacheSlice, HighFraction, SizeRule};
use crate::pcp::tune::PcpParams;
use crate::pcp::tuning::Tuning;
use crate::platform::{FixedPolicy, Platform};
use crate::types::{NR_ZONE_KINDS, Order, PageCount, PageRules, choice};
use crate::vmstat::variant::{NumaPolicy, StatPolicy};
use crate::zone::watermark::{MovableMin, ReserveRights};
use recompute::Recompute;
use walk::{NoFragment, NodeReclaimPolicy, ZonelistPolicy};

/// Migratetypes of a kernel without CMA: what LB A.5 multiplies the pageblock by.
const MIGRATE_TYPES: u64 = 5;

/// All choices. Their names, meanings and accepted values are in [`set::SETTINGS`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// Command-line name of the preset that it started from.
    pub name: &'static str,
    /// Per-CPU lists.
    pub pcp: PcpPolicy,
    /// Watermarks.
    pub watermark: WatermarkPolicy,
    /// Which zones are tried, in which order (LB A.4, A.5).
    pub zonelist: ZonelistPolicy,
    /// Whether a node is reclaimed before the next one is tried (LB G.1).
    pub node_reclaim: NodeReclaimPolicy,
    /// Whether a request's first walk keeps migratetypes apart (LB D.3).
    pub nofragment: NoFragment,
    /// Which release's fallback between migratetypes is followed (LB B.7).
    pub fallback: FallbackRule,
    /// The reserve for atomic requests above order 0 (LB B.8).
    pub highatomic: HighAtomicPolicy,
    /// What rights to the reserve below the watermarks are worth (LB C.5).
    pub reserves: ReserveRights,
    /// Whether pageblocks are grouped by mobility.
    pub mobility_grouping: Grouping,
    /// How the zones' counters are kept (LB F.1 to F.5).
    pub stat: StatPolicy,
    /// How NUMA events are kept (LB F.6, F.7).
    pub numa: NumaPolicy,
    /// Whether NUMA events are counted: the sysctl `numa_stat` at the start.
    pub numa_stat: bool,
    /// The pages and pageblocks that limits follow from.
    pub page: PageRules,
}

/// Per-CPU lists (LB E).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PcpPolicy {
    /// Orders with lists: bit `o` for order `o`. Orders 0 to 3 and 9 since 5.13. Without mobility
    /// grouping any of 0 to 9; with it, only Linux' five.
    pub orders: u16,
    /// Which huge pages share a list (LB E.1).
    pub huge_lists: HugeLists,
    /// Whether pages that are in no cache have lists of their own (LB E.11).
    pub free_lists: FreeLists,
    /// How the lists' sizes follow from their zone (LB E.4, E.11).
    pub size: SizeRule,
    /// Cap of the batch before it is divided by 4, in pages (LB E.3).
    pub batch_cap_pages: u64,
    /// When the sizes of the lists are computed (LB E.11).
    pub recompute: Recompute,
    /// Which steps of the tuning are in force (LB E.10).
    pub tuning: Tuning,
    /// Refills and drains grow up to `batch << scale_max` pages (LB E.6), 0 to 6; where depots are
    /// passed by because a zone is short, at least to the default of 5. Read from tuning level 4
    /// on.
    pub scale_max: u8,
    /// Share of the cache that a CPU counts as its own (LB E.5). Read from tuning level 3 on.
    pub slice: CacheSlice,
    /// The sysctl `percpu_pagelist_high_fraction` (LB E.4); up to 5.12 `percpu_pagelist_fraction`
    /// (LB E.11).
    pub high_fraction: HighFraction,
    /// Limit of a CPU's lists in batches, but for blocks of 1 MiB and more, for which they may grow
    /// to two and a half times as many; 0 is Linux, where tuned lists may grow to the CPU's share
    /// of an eighth of the zone.
    pub high_batches: u32,
    /// Order of the blocks that bulk calls take and give back whole, 3 to 9; 0 is Linux, page by
    /// page. Without effect where the order has no list.
    pub bulk_block: u8,
    /// Most blocks that a refill or a drain moves in one hold of the zone lock; 0 is Linux, where a
    /// refill takes one hold, and a drain what [`DrainPolicy::bulk`] says.
    pub hold: u16,
    /// The lists of all CPUs and the depots hold at most `1/f` of their zone, together; 0 is Linux,
    /// where each CPU's lists have a bound of their own.
    pub budget_fraction: u32,
    /// Pages that make a stream of large frees, which leaves the lists at once: freed in a row, and
    /// held beyond the CPU's swing. 0 is Linux: a batch, since 6.15 with half of `high_min`, and
    /// where the cache has room for it a batch stays. Read from tuning level 9 on.
    pub stream: u32,
    /// How lists are emptied (LB E.8, E.9).
    pub drain: DrainPolicy,
    /// What lies between the lists and the buddy; no kernel has it.
    pub depot: DepotPolicy,
    /// Who splits and merges the pages of a pageblock; owned by CPUs, there are no lists.
    pub pageblocks: Pageblocks,
}

/// Order of the smallest blocks of which 32 are more than lists of `high_batches` batches may hold,
/// and the halves of these that they may hold of such and larger ones.
const LARGE_LEAST: u32 = 8;
const LARGE_HALVES: u32 = 5;
/// Least pages of a hold of the zone lock that is measured in blocks: their words fill eight lines.
const HOLD_PAGES: PageCount = PageCount::new(64);

impl PcpPolicy {
    /// Parameters of the tuning that the policy alone determines.
    pub(crate) const fn fixed(&self) -> PcpParams {
        PcpParams {
            scale_max: self.scale_max,
            tuning: self.tuning,
            stream: self.stream,
            ..PcpParams::BOOT
        }
    }

    /// Limit in pages of a CPU's lists that move `batch` pages at a time, for requests of an order;
    /// `None`: what the zone's size says. By default 32 blocks of 2 MiB fit, and a fifth as much of
    /// others: results/2026-11-29-rows.md.
    pub(crate) const fn high_most(&self, batch: u32, order: Order) -> Option<u32> {
        if self.high_batches == 0 {
            return None;
        }
        let most = self.high_batches.saturating_mul(batch);
        let large = order.get() >= LARGE_LEAST;
        Some(if large { most.saturating_mul(LARGE_HALVES) / 2 } else { most })
    }

    /// Most blocks of one hold of the zone lock.
    #[inline]
    pub(crate) const fn hold_blocks(&self) -> u32 {
        if self.hold == 0 { u32::MAX } else { self.hold as u32 }
    }

    /// Pages of the next hold of the zone lock of a drain that has `left` pages to go. Where blocks
    /// are counted too, smaller batches would only take the lock more often.
    #[inline]
    pub(crate) fn hold_pages(&self, left: PageCount, params: &PcpParams) -> PageCount {
        let pages = self.drain.bulk.pages(left, params);
        if self.hold == 0 { pages } else { pages.max(left.min(HOLD_PAGES)) }
    }

    /// What a hold that was to move `asked` pages and moved `freed`, in whole blocks, counts for.
    /// Linux goes by what it asked for, so that a huge page counts as a batch (LB E.7).
    #[inline]
    pub(crate) const fn held_pages(&self, asked: PageCount, freed: PageCount) -> PageCount {
        match self.drain.bulk {
            Chunk::Batch if self.hold == 0 => asked,
            _ => freed,
        }
    }

    /// The lists of one pcp: none where CPUs own pageblocks.
    pub fn map(&self, grouping: bool) -> ListMap {
        let orders = match self.pageblocks {
            Pageblocks::Shared => self.orders,
            Pageblocks::Owned => 0,
        };
        ListMap::new(orders, self.huge_lists, grouping)
    }
}

/// Watermarks (LB C).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WatermarkPolicy {
    /// How the minimum is found.
    pub min_free: MinFreeRule,
    /// Limit of the square-root rule in KiB: 65536 up to 5.6 (LB C.1).
    pub min_free_max_kbytes: u32,
    /// The min watermark of a movable zone.
    pub movable_min: MovableMin,
    /// The sysctl `watermark_scale_factor`, 1 to 3000; 0 as before 4.6.
    pub scale_factor: u32,
    /// The distance between the watermarks may grow up to this factor while the background
    /// reclaimer is woken again and again; 0 is Linux, where it never does. Up to 3000.
    pub scale_factor_max: u32,
    /// The sysctl `watermark_boost_factor`; 0 is off.
    pub boost_factor: u32,
    /// An atomic request that fails boosts the watermarks, at most once a second (v8 of February
    /// 2026).
    pub boost_atomic: bool,
    /// The sysctl `lowmem_reserve_ratio`, by zone kind.
    pub lowmem_ratio: [u32; NR_ZONE_KINDS],
}

/// Where `min_free_kbytes` comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinFreeRule {
    /// The square-root rule, 128 KiB at least, and the minimum that huge pages ask for (LB C.1).
    Linux {
        /// Whether transparent huge pages are on.
        thp: bool,
    },
    /// The same in a kernel that could have huge pages and has them off: from 512 MiB on it applies
    /// the square-root rule once more, to the pages above the first high watermarks (LB C.1).
    LinuxThpOff,
    /// A written value.
    Kbytes(u32),
    /// The square-root rule, but never more than 1/128 of the memory: a small pool is not mostly
    /// reserve. For pools in a process, which hold no packets that must not be dropped.
    Pool,
}

choice! {
    /// Whether pageblocks have migratetypes of their own.
    pub enum Grouping {
        /// Always.
        On = "on",
        /// Never: every page is of one type.
        Off = "off",
        /// On machines with at least a pageblock for each type, as Linux decides (LB A.5).
        Auto = "auto",
    }
}

impl Grouping {
    /// The decision for a machine with this many pages above its high watermarks.
    pub fn resolve(self, pages: u64, page: PageRules) -> bool {
        match self {
            Grouping::On => true,
            Grouping::Off => false,
            Grouping::Auto => pages >= page.block_pages() * MIGRATE_TYPES,
        }
    }
}

impl Policy {
    /// The same for a kernel with such pages, whose batches are capped by bytes (LB E.3).
    #[must_use]
    pub fn with_pages(mut self, page: PageRules) -> Policy {
        let bytes = self.page.own_pages(self.pcp.batch_cap_pages);
        self.pcp.batch_cap_pages = page.own_bytes(bytes).max(1);
        self.page = page;
        self
    }

    /// The policy as a constant of a platform, for builds that have no other.
    ///
    /// ```
    /// use zonal_core::platform::FixedPolicy;
    /// use zonal_core::policy::Policy;
    ///
    /// // In `impl Platform`:
    /// const POLICY: Option<FixedPolicy> = Some(Policy::fix(&Policy::ZONAL));
    /// # assert!(POLICY.is_some());
    /// ```
    pub const fn fix(policy: &'static Policy) -> FixedPolicy {
        FixedPolicy::new(policy)
    }

    /// The policy that a platform is compiled for, if it is for one.
    #[inline]
    pub(crate) fn fixed_for<P: Platform>() -> Option<&'static Policy> {
        P::POLICY.and_then(FixedPolicy::get)
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::ZONAL
    }
}
