//! A policy: every choice in which one allocator differs from another, as data.
//!
//! Presets of historical kernels fill the same struct; a policy is chosen when an allocator is made
//! and its sysctl-like values can change while it runs.

use crate::buddy::FallbackRule;
use crate::pcp::size::{BATCH_CAP_PAGES, HighFraction};
use crate::pcp::tune::FreeHighRule;
use crate::types::{NR_ZONE_KINDS, PAGEBLOCK_PAGES};
use crate::zone::watermark::{BOOST_FACTOR_DEFAULT, LOWMEM_RATIO_DEFAULT, SCALE_FACTOR_DEFAULT};

/// Migratetypes of a kernel without CMA: what LB A.5 multiplies the pageblock by.
const MIGRATE_TYPES: u64 = 5;

/// All choices. See the presets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// What the command line calls it.
    pub name: &'static str,
    /// Per-CPU lists.
    pub pcp: PcpPolicy,
    /// Watermarks.
    pub watermark: WatermarkPolicy,
    /// Which release's fallback between migratetypes is followed (LB B.7).
    pub fallback: FallbackRule,
    /// Whether pageblocks are grouped by mobility.
    pub mobility_grouping: Grouping,
    /// Whether NUMA events are reported.
    pub numa_stat: bool,
}

/// Per-CPU lists (LB E).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PcpPolicy {
    /// Orders with lists: bit `o` for order `o`. Orders 0 to 3 and 9 since 5.13. Without mobility
    /// grouping any of 0 to 9 can be had; with it, others than Linux' five are left out.
    pub orders: u16,
    /// Cap of the batch before it is divided by 4, in pages (LB E.3).
    pub batch_cap_pages: u64,
    /// Refills and drains grow up to `batch << scale_max` pages (LB E.6), 0 to 6.
    pub scale_max: u8,
    /// The sysctl `percpu_pagelist_high_fraction` (LB E.4).
    pub high_fraction: HighFraction,
    /// Lists may always hold this part of their zone (shared out over the node's CPUs), whatever
    /// the low mark says; 0 is Linux, where the low mark alone decides.
    pub high_min_part: u32,
    /// When repeated frees above order 0 empty the lists (LB E.7).
    pub free_high: FreeHighRule,
    /// Drains give the zone lock back after each batch (6.18) rather than once.
    pub drain_in_batches: bool,
}

/// Watermarks (LB C).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WatermarkPolicy {
    /// How the minimum is found.
    pub min_free: MinFreeRule,
    /// The sysctl `watermark_scale_factor`, 1 to 3000.
    pub scale_factor: u32,
    /// The sysctl `watermark_boost_factor`; 0 is off.
    pub boost_factor: u32,
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
    /// As somebody wrote it.
    Kbytes(u32),
    /// The square-root rule, but never more than 1/128 of the memory: a small pool is not mostly
    /// reserve. For pools in a process, which hold no packets that must not be dropped.
    Pool,
}

/// Whether pageblocks have migratetypes of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouping {
    /// Always.
    On,
    /// Never: every page is of one type.
    Off,
    /// On machines with at least a pageblock for each type, as Linux decides (LB A.5).
    Auto,
}

impl Grouping {
    /// The decision for a machine with this many pages above its high marks.
    pub fn resolve(self, pages: u64) -> bool {
        match self {
            Grouping::On => true,
            Grouping::Off => false,
            Grouping::Auto => pages >= PAGEBLOCK_PAGES * MIGRATE_TYPES,
        }
    }
}

/// Part of a pool that its lists may always hold. Linux gets a like amount from the low mark, which
/// huge pages raise; a pool's reserve is smaller, and without this its lists would be too: a
/// recorded file workload drained five times as many pages.
const POOL_LISTS_PART: u32 = 128;
/// Orders with per-CPU lists since 5.13.
const ORDERS_LINUX: u16 = 0b10_0000_1111;
/// Every order that fits, for pools without mobility grouping.
const ORDERS_ALL: u16 = 0b11_1111_1111;

impl Policy {
    /// Linux 6.18: tuning as merged in 6.7 with the threshold of 6.15, claim-then-steal fallback.
    pub const LINUX_6_18: Policy = Policy {
        name: "linux-6.18",
        pcp: PcpPolicy {
            orders: ORDERS_LINUX,
            batch_cap_pages: BATCH_CAP_PAGES,
            scale_max: 5,
            high_fraction: HighFraction::AUTO,
            high_min_part: 0,
            free_high: FreeHighRule::BatchPlusHalfHighMin,
            drain_in_batches: true,
        },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Linux { thp: true },
            scale_factor: SCALE_FACTOR_DEFAULT,
            boost_factor: BOOST_FACTOR_DEFAULT,
            lowmem_ratio: LOWMEM_RATIO_DEFAULT,
        },
        fallback: FallbackRule::ClaimThenSteal,
        mobility_grouping: Grouping::Auto,
        numa_stat: true,
    };

    /// Linux 6.12 (stable): as [`LINUX_6_18`](Self::LINUX_6_18) but for when repeated frees above
    /// order 0 empty the lists, and for drains in one hold of the zone lock.
    pub const LINUX_6_12: Policy = Policy {
        name: "linux-6.12",
        pcp: PcpPolicy {
            free_high: FreeHighRule::Batch,
            drain_in_batches: false,
            ..Policy::LINUX_6_18.pcp
        },
        ..Policy::LINUX_6_18
    };

    /// Ours, and the default of pools: Linux 6.18 without mobility grouping, with lists for every
    /// order up to 9, with a reserve in proportion to the pool and lists that may hold as much.
    pub const ZONAL: Policy = Policy {
        name: "zonal",
        pcp: PcpPolicy {
            orders: ORDERS_ALL,
            high_min_part: POOL_LISTS_PART,
            ..Policy::LINUX_6_18.pcp
        },
        watermark: WatermarkPolicy { min_free: MinFreeRule::Pool, ..Policy::LINUX_6_18.watermark },
        mobility_grouping: Grouping::Off,
        ..Policy::LINUX_6_18
    };

    /// Every preset.
    pub const PRESETS: [Policy; 3] = [Policy::ZONAL, Policy::LINUX_6_18, Policy::LINUX_6_12];

    /// The preset of this name.
    pub fn preset(name: &str) -> Option<Policy> {
        Policy::PRESETS.into_iter().find(|policy| policy.name == name)
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::ZONAL
    }
}
