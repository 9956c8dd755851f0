//! The presets: a kernel release, or our own choice, as one policy each.

use super::recompute::Recompute;
use super::walk::{
    CacheMark, DirtySpread, DistanceRule, NoFragment, NodeLoad, NodeReclaimMode, NodeReclaimPolicy,
    ReclaimUnit, ZonelistCaching, ZonelistPolicy,
};
use super::{Grouping, MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::buddy::{FallbackRule, HighAtomicCount, HighAtomicLimit, HighAtomicPolicy};
use crate::pcp::depot::{DepotGroup, DepotPolicy};
use crate::pcp::drain::{Chunk, DrainOrder, DrainPolicy, RemoteDrain};
use crate::pcp::lists::{FreeLists, HugeLists};
use crate::pcp::size::{BATCH_CAP_PAGES, BATCH_CAP_PAGES_4_18, CacheSlice, HighFraction, SizeRule};
use crate::pcp::tuning::Tuning;
use crate::types::PAGEBLOCK_ORDER;
use crate::vmstat::variant::{NumaPolicy, Refresh, StatPolicy};
use crate::zone::watermark::{
    BOOST_FACTOR_DEFAULT, LOWMEM_RATIO_DEFAULT, MIN_FREE_KBYTES_CEILING,
    MIN_FREE_KBYTES_CEILING_5_6, MovableMin, ReserveRights, SCALE_FACTOR_DEFAULT,
};

/// How far the marks of a pool may move apart while it is short again and again, in 1/10000 of a
/// zone.
const POOL_SCALE_FACTOR_MAX: u32 = 1000;
/// Batches that a CPU's lists hold, at most.
const LIST_BATCHES: u32 = 128;
/// All lists and depots of a zone hold at most this part of it: what Linux lets the lists of the
/// node's own CPUs grow to.
const BUDGET_FRACTION: u32 = 8;
/// Batches of a depot for each of its CPUs. Programs that take and give back up to some 60 MiB a
/// CPU then never take the zone lock (docs/explanation/beyond.md).
const DEPOT_BATCHES: u16 = 256;
/// What a list gives up at once is at most `batch << 3`: the depot gets it batch by batch, so more
/// at once gains nothing.
const DEPOT_SCALE_MAX: u8 = 3;
/// Pages of large frees in a row that send the lists to the depot: four blocks of order 3. Smaller
/// values cost extra exchanges; larger ones strand pages on CPUs that only free
/// (docs/explanation/beyond.md).
const STREAM: u32 = 32;
/// Bulk calls move blocks of 2 MiB whole.
const BULK_BLOCK: u8 = PAGEBLOCK_ORDER.get() as u8;
/// A depot is filled with blocks of up to 2 MiB.
const DEPOT_BLOCK: u8 = PAGEBLOCK_ORDER.get() as u8;
/// Distance above which machines reclaimed nodes on their own, 3.0 to 3.15 (LB A.3, G.1).
const RECLAIM_DISTANCE: u8 = 30;
/// The same before 3.0.
const RECLAIM_DISTANCE_2_6: u8 = 20;
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
            huge_lists: HugeLists::ByMovable,
            free_lists: FreeLists::Single,
            size: SizeRule::MinMaxBounds,
            batch_cap_pages: BATCH_CAP_PAGES,
            recompute: Recompute::Cpus,
            tuning: Tuning::Release615,
            scale_max: 5,
            slice: CacheSlice::Machine,
            high_fraction: HighFraction::AUTO,
            high_batches: 0,
            bulk_block: 0,
            budget_fraction: 0,
            stream: 0,
            drain: DrainPolicy {
                order: DrainOrder::ListExhausting,
                bulk: Chunk::Batch,
                all: Chunk::Bulk,
                decay: Chunk::Batch,
                remote: RemoteDrain::Direct,
            },
            depot: DepotPolicy::OFF,
        },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Linux { thp: true },
            min_free_max_kbytes: MIN_FREE_KBYTES_CEILING,
            movable_min: MovableMin::Capped,
            scale_factor: SCALE_FACTOR_DEFAULT,
            scale_factor_max: 0,
            boost_factor: BOOST_FACTOR_DEFAULT,
            lowmem_ratio: LOWMEM_RATIO_DEFAULT,
        },
        zonelist: ZonelistPolicy::LINUX,
        node_reclaim: NodeReclaimPolicy::LINUX,
        nofragment: NoFragment::Dma32,
        fallback: FallbackRule::ClaimThenSteal,
        highatomic: HighAtomicPolicy {
            count: HighAtomicCount::Free,
            limit: HighAtomicLimit::RoundedUp,
        },
        reserves: ReserveRights::NonBlock,
        mobility_grouping: Grouping::Auto,
        stat: StatPolicy::V6_6,
        numa: NumaPolicy::V5_14,
        numa_stat: true,
    };

    /// Linux 6.12 (stable): as [`LINUX_6_18`](Self::LINUX_6_18) but for when repeated frees above
    /// order 0 empty the lists, and for drains in one hold of the zone lock.
    pub const LINUX_6_12: Policy = Policy {
        name: "linux-6.12",
        pcp: PcpPolicy {
            tuning: Tuning::Level9,
            drain: DrainPolicy { bulk: Chunk::Whole, ..Policy::LINUX_6_18.pcp.drain },
            ..Policy::LINUX_6_18.pcp
        },
        ..Policy::LINUX_6_18
    };

    /// Ours, and the default of pools: Linux 6.18 without mobility grouping, with lists for every
    /// order up to 9, depots between the lists and the buddy, and a reserve in proportion to the
    /// pool. NUMA events are exact, and every CPU is refreshed in every interval: idle lists shrink
    /// too.
    pub const ZONAL: Policy = Policy {
        name: "zonal",
        pcp: PcpPolicy {
            orders: ORDERS_ALL,
            high_batches: LIST_BATCHES,
            bulk_block: BULK_BLOCK,
            budget_fraction: BUDGET_FRACTION,
            scale_max: DEPOT_SCALE_MAX,
            stream: STREAM,
            depot: DepotPolicy {
                batches: DEPOT_BATCHES,
                group: DepotGroup::Cache,
                block: DEPOT_BLOCK,
            },
            ..Policy::LINUX_6_18.pcp
        },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Pool,
            scale_factor_max: POOL_SCALE_FACTOR_MAX,
            ..Policy::LINUX_6_18.watermark
        },
        mobility_grouping: Grouping::Off,
        stat: StatPolicy { refresh: Refresh::PerCpuTimer, ..StatPolicy::V6_6 },
        numa: NumaPolicy::EXACT,
        ..Policy::LINUX_6_18
    };

    /// Linux 6.6: per-CPU lists before the tuning of 2023, fallbacks that change lists.
    pub const LINUX_6_6: Policy = Policy {
        name: "linux-6.6",
        pcp: PcpPolicy::LINUX_6_6,
        fallback: FallbackRule::MoveRemainder,
        highatomic: HighAtomicPolicy {
            count: HighAtomicCount::Reserved,
            limit: HighAtomicLimit::PlusBlock,
        },
        ..Policy::LINUX_6_18
    };

    /// [`LINUX_6_6`](Self::LINUX_6_6) with the first so many steps of the tuning of 2023 (LB E.10),
    /// from 1 to 9.
    const fn patched(name: &'static str, tuning: Tuning) -> Policy {
        let base = Policy::LINUX_6_6;
        let size = if tuning.has(Tuning::Level6) {
            SizeRule::MinMaxBounds
        } else {
            SizeRule::LowMarkSplit
        };
        Policy { name, pcp: PcpPolicy { tuning, size, ..base.pcp }, ..base }
    }

    /// Linux 5.4 before per-CPU lists were sized anew behind deferred memory (LB E.11).
    pub const LINUX_5_4: Policy = Policy {
        name: "linux-5.4",
        pcp: PcpPolicy::LINUX_5_4,
        watermark: WatermarkPolicy {
            min_free_max_kbytes: MIN_FREE_KBYTES_CEILING_5_6,
            movable_min: MovableMin::Share,
            ..Policy::LINUX_6_6.watermark
        },
        zonelist: ZonelistPolicy { load: NodeLoad::Countdown, ..ZonelistPolicy::LINUX },
        node_reclaim: NodeReclaimPolicy {
            distance: DistanceRule::Below(30),
            ..NodeReclaimPolicy::LINUX
        },
        reserves: ReserveRights::HighHarder,
        stat: StatPolicy::V4_13,
        numa: NumaPolicy::V4_15,
        ..Policy::LINUX_6_6
    };

    /// The same with the fix of 2019.
    pub const LINUX_5_4_RESETPCPU: Policy = Policy {
        name: "linux-5.4-resetpcpu",
        pcp: PcpPolicy { recompute: Recompute::DeferredInit, ..PcpPolicy::LINUX_5_4 },
        ..Policy::LINUX_5_4
    };

    /// Linux 4.14: NUMA events apart from the zones' counters (LB F.7), half the batch cap, and
    /// nothing against fragmentation yet: no boost, no walk that keeps types apart (5.0).
    pub const LINUX_4_14: Policy = Policy {
        name: "linux-4.14",
        pcp: PcpPolicy::LINUX_4_14,
        watermark: WatermarkPolicy { boost_factor: 0, ..Policy::LINUX_5_4.watermark },
        nofragment: NoFragment::Off,
        numa: NumaPolicy::V4_14,
        ..Policy::LINUX_5_4
    };

    /// Linux 4.13: NUMA events among the zones' counters, with their small thresholds.
    pub const LINUX_4_13: Policy =
        Policy { name: "linux-4.13", numa: NumaPolicy::V4_13, ..Policy::LINUX_4_14 };

    /// Linux 3.1: zones are reclaimed one by one, with both fixes of the zonelist cache (LB G.6).
    /// The gap between the marks follows the min mark alone (4.6).
    pub const LINUX_3_1: Policy = Policy {
        name: "linux-3.1",
        watermark: WatermarkPolicy { scale_factor: 0, ..Policy::LINUX_4_13.watermark },
        zonelist: ZonelistPolicy {
            cache: ZonelistCaching::FirstZoneReconsider,
            cache_mark: CacheMark::Always,
            dirty: DirtySpread::Off,
            ..Policy::LINUX_4_13.zonelist
        },
        node_reclaim: NodeReclaimPolicy {
            mode: NodeReclaimMode::Auto { above: RECLAIM_DISTANCE },
            distance: DistanceRule::None,
            unit: ReclaimUnit::Zone,
            ..Policy::LINUX_4_13.node_reclaim
        },
        stat: StatPolicy::V2_6_38,
        ..Policy::LINUX_4_13
    };

    /// Linux 3.0: the zonelist cache with both of its bugs (LB G.5).
    pub const LINUX_3_0: Policy = Policy {
        name: "linux-3.0",
        zonelist: ZonelistPolicy { cache: ZonelistCaching::Original, ..Policy::LINUX_3_1.zonelist },
        ..Policy::LINUX_3_1
    };

    /// Linux 2.6.24: hot and cold lists, interrupts masked for each count, no huge pages.
    pub const LINUX_2_6_24: Policy = Policy {
        name: "linux-2.6.24",
        pcp: PcpPolicy::LINUX_2_6_24,
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Linux { thp: false },
            ..Policy::LINUX_3_0.watermark
        },
        node_reclaim: NodeReclaimPolicy {
            mode: NodeReclaimMode::Auto { above: RECLAIM_DISTANCE_2_6 },
            ..Policy::LINUX_3_0.node_reclaim
        },
        stat: StatPolicy::V2_6_24,
        ..Policy::LINUX_3_0
    };

    /// Every preset.
    pub const PRESETS: [Policy; 20] = [
        Policy::ZONAL,
        Policy::LINUX_6_18,
        Policy::LINUX_6_12,
        Policy::LINUX_6_6,
        Policy::patched("pcp-patch1", Tuning::Level1),
        Policy::patched("pcp-patch2", Tuning::Level2),
        Policy::patched("pcp-patch3", Tuning::Level3),
        Policy::patched("pcp-patch4", Tuning::Level4),
        Policy::patched("pcp-patch5", Tuning::Level5),
        Policy::patched("pcp-patch6", Tuning::Level6),
        Policy::patched("pcp-patch7", Tuning::Level7),
        Policy::patched("pcp-patch8", Tuning::Level8),
        Policy::patched("pcp-patch9", Tuning::Level9),
        Policy::LINUX_5_4_RESETPCPU,
        Policy::LINUX_5_4,
        Policy::LINUX_4_14,
        Policy::LINUX_4_13,
        Policy::LINUX_3_1,
        Policy::LINUX_3_0,
        Policy::LINUX_2_6_24,
    ];

    /// The preset of this name.
    pub fn preset(name: &str) -> Option<Policy> {
        Policy::PRESETS.into_iter().find(|policy| policy.name == name)
    }
}

/// Per-CPU lists of releases before those of the presets above (LB E.1, E.8, E.9, E.11).
impl PcpPolicy {
    /// 6.1 to 6.6: the base of the tuning of 2023.
    pub const LINUX_6_6: PcpPolicy = PcpPolicy {
        huge_lists: HugeLists::Together,
        size: SizeRule::LowMarkSplit,
        tuning: Tuning::Level0,
        drain: DrainPolicy {
            bulk: Chunk::Whole,
            all: Chunk::Whole,
            decay: Chunk::Whole,
            ..Policy::LINUX_6_18.pcp.drain
        },
        ..Policy::LINUX_6_18.pcp
    };

    /// 4.19 to 5.12: order 0 only, sizes from the batch alone, drains by work items.
    pub const LINUX_5_4: PcpPolicy = PcpPolicy {
        orders: 1,
        huge_lists: HugeLists::ByType,
        size: SizeRule::SixBatches,
        recompute: Recompute::Creation,
        tuning: Tuning::Fixed,
        drain: DrainPolicy {
            order: DrainOrder::GrowingRoundRobin,
            remote: RemoteDrain::Work,
            ..PcpPolicy::LINUX_6_6.drain
        },
        ..PcpPolicy::LINUX_6_6
    };

    /// Up to 4.18: the batch is capped at half.
    pub const LINUX_4_14: PcpPolicy =
        PcpPolicy { batch_cap_pages: BATCH_CAP_PAGES_4_18, ..PcpPolicy::LINUX_5_4 };

    /// About 2.6.24: hot and cold lists.
    pub const LINUX_2_6_24: PcpPolicy =
        PcpPolicy { free_lists: FreeLists::HotCold, ..PcpPolicy::LINUX_4_14 };
}
