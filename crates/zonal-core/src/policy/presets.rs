//! The presets: a kernel release, or our own choice, as one policy each.

use core::fmt;

use super::recompute::Recompute;
use super::walk::{NoFragment, NodeReclaimPolicy, ReclaimingNodes, ZonelistPolicy};
use super::{Grouping, MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::buddy::{FallbackRule, HighAtomicCount, HighAtomicLimit, HighAtomicPolicy};
use crate::pcp::depot::{DepotGroup, DepotPolicy};
use crate::pcp::drain::{Chunk, DrainOrder, DrainPolicy, IdleDrain, RemoteDrain};
use crate::pcp::lists::{FreeLists, HugeLists};
use crate::pcp::owner::Pageblocks;
use crate::pcp::size::{BATCH_CAP_PAGES, CacheSlice, HighFraction, SizeRule};
use crate::pcp::tuning::Tuning;
use crate::types::{PAGEBLOCK_ORDER, PageRules};
use crate::vmstat::variant::{NumaPolicy, Refresh, StatPolicy};
use crate::zone::watermark::{
    BOOST_FACTOR_DEFAULT, LOWMEM_RATIO_DEFAULT, MIN_FREE_KBYTES_CEILING, MovableMin, ReserveRights,
    SCALE_FACTOR_DEFAULT,
};

/// How far the watermarks of a pool may move apart while it is short again and again, in 1/10000 of
/// a zone.
const POOL_SCALE_FACTOR_MAX: u32 = 1000;
/// Batches that a CPU's lists hold, at most.
const LIST_BATCHES: u32 = 128;
/// All lists and depots of a zone hold at most this part of it: what Linux lets the lists of the
/// node's own CPUs grow to.
const BUDGET_FRACTION: u32 = 8;
/// Batches of a depot for each of its CPUs. Programs that take and give back up to some 60 MiB a
/// CPU then never take the zone lock (docs/explanation/beyond.md).
const DEPOT_MAGAZINES: u16 = 256;
/// A list drains at most `batch << 3` at once: the depot takes one magazine at a time, so more
/// gains nothing.
const DEPOT_SCALE_MAX: u8 = 3;
/// Pages of large frees in a row that send the lists to the depot: four blocks of order 3. Smaller
/// values cost extra exchanges; larger ones strand pages on CPUs that only free
/// (docs/explanation/beyond.md).
const STREAM: u32 = 32;
/// Bulk calls move blocks of 2 MiB whole.
const BULK_BLOCK: u8 = PAGEBLOCK_ORDER.get() as u8;
/// Of holds of the zone lock that move so many blocks 3 in 1,000 take more than 4 us, of those with
/// 64 to 255 150 to 240 (results/2026-11-23-holds.md).
const HOLD_BLOCKS: u16 = 16;
/// Nothing but refreshes takes pages from lists that nobody uses: no counter of the caller's moves.
const DRAIN: DrainPolicy = DrainPolicy { idle: IdleDrain::Held, ..Policy::LINUX_6_19.pcp.drain };
/// A depot is filled with blocks of up to 2 MiB.
const DEPOT_BLOCK: u8 = PAGEBLOCK_ORDER.get() as u8;
/// Orders with per-CPU lists since 5.13.
const ORDERS_LINUX: u16 = 0b10_0000_1111;
/// Every order that fits, for pools without mobility grouping.
const ORDERS_ALL: u16 = 0b11_1111_1111;

/// Presets that take the feature `history`.
const HISTORY_PRESETS: [&str; 7] = [
    "linux-5.4-resetpcpu",
    "linux-5.4",
    "linux-4.14",
    "linux-4.13",
    "linux-3.1",
    "linux-3.0",
    "linux-2.6.24",
];

/// Why there is no preset of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetError<'a> {
    /// None has this name.
    Unknown(&'a str),
    /// Only a build with the feature `history` has it.
    Absent(&'a str),
}

impl Policy {
    /// Linux 6.19: tuning as merged in 6.7 with the threshold of 6.15, claim-then-steal fallback,
    /// bulk frees that release their locks after each batch.
    pub const LINUX_6_19: Policy = Policy {
        name: "linux-6.19",
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
            hold: 0,
            budget_fraction: 0,
            stream: 0,
            drain: DrainPolicy {
                order: DrainOrder::ListExhausting,
                bulk: Chunk::Batch,
                all: Chunk::Bulk,
                decay: Chunk::Batch,
                remote: RemoteDrain::Direct,
                idle: IdleDrain::Moved,
            },
            depot: DepotPolicy::OFF,
            pageblocks: Pageblocks::Shared,
        },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Linux { thp: true },
            min_free_max_kbytes: MIN_FREE_KBYTES_CEILING,
            movable_min: MovableMin::Capped,
            scale_factor: SCALE_FACTOR_DEFAULT,
            scale_factor_max: 0,
            boost_factor: BOOST_FACTOR_DEFAULT,
            boost_atomic: false,
            lowmem_ratio: LOWMEM_RATIO_DEFAULT,
        },
        zonelist: ZonelistPolicy { reclaiming: ReclaimingNodes::Passed, ..ZonelistPolicy::LINUX },
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
        page: PageRules::OWN,
    };

    /// The RFC of April 2026 on 6.19: CPUs own pageblocks, and have no lists
    /// ([`pcp::owner`](crate::pcp::owner)).
    pub const OWNED_2026: Policy = Policy {
        name: "owned-2026",
        pcp: PcpPolicy { pageblocks: Pageblocks::Owned, ..Policy::LINUX_6_19.pcp },
        ..Policy::LINUX_6_19
    };

    /// Linux 6.18: as [`LINUX_6_19`](Self::LINUX_6_19), but a bulk free takes one hold of the zone
    /// lock.
    pub const LINUX_6_18: Policy = Policy {
        name: "linux-6.18",
        pcp: PcpPolicy {
            drain: DrainPolicy { bulk: Chunk::Whole, ..Policy::LINUX_6_19.pcp.drain },
            ..Policy::LINUX_6_19.pcp
        },
        ..Policy::LINUX_6_19
    };

    /// Linux 6.12 (stable): as [`LINUX_6_18`](Self::LINUX_6_18), except when repeated frees above
    /// order 0 empty the lists, and when nodes are reclaimed.
    pub const LINUX_6_12: Policy = Policy {
        name: "linux-6.12",
        zonelist: ZonelistPolicy::LINUX,
        pcp: PcpPolicy { tuning: Tuning::Level9, ..Policy::LINUX_6_18.pcp },
        ..Policy::LINUX_6_18
    };

    /// Ours, and the default of pools: Linux 6.19 without mobility grouping, with lists for every
    /// order up to 9, depots between the lists and the buddy, and a reserve in proportion to the
    /// pool. NUMA events are exact, and every CPU is refreshed in every interval: idle lists shrink
    /// too.
    pub const ZONAL: Policy = Policy {
        name: "zonal",
        pcp: PcpPolicy {
            orders: ORDERS_ALL,
            high_batches: LIST_BATCHES,
            bulk_block: BULK_BLOCK,
            hold: HOLD_BLOCKS,
            budget_fraction: BUDGET_FRACTION,
            scale_max: DEPOT_SCALE_MAX,
            stream: STREAM,
            depot: DepotPolicy {
                magazines: DEPOT_MAGAZINES,
                group: DepotGroup::Cache,
                block: DEPOT_BLOCK,
            },
            drain: DRAIN,
            ..Policy::LINUX_6_19.pcp
        },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Pool,
            scale_factor_max: POOL_SCALE_FACTOR_MAX,
            ..Policy::LINUX_6_18.watermark
        },
        zonelist: ZonelistPolicy::LINUX,
        mobility_grouping: Grouping::Off,
        stat: StatPolicy { refresh: Refresh::PerCpuTimer, ..StatPolicy::V6_6 },
        numa: NumaPolicy::EXACT,
        ..Policy::LINUX_6_18
    };

    /// For kernels: Linux 6.19's lists, fallback between mobility groups, watermarks and reserves,
    /// but not its zonelists, and bulk calls move whole pageblocks. NUMA events are exact, so that
    /// the fast path need not write them; the minimum is not raised for huge pages that nobody
    /// collapses; every CPU is refreshed in every interval. No preset of a replay or a pool, so
    /// [`Policy::preset`] does not know it.
    pub const KERNEL: Policy = Policy {
        name: "kernel",
        pcp: PcpPolicy { bulk_block: BULK_BLOCK, drain: DRAIN, ..Policy::LINUX_6_19.pcp },
        watermark: WatermarkPolicy {
            min_free: MinFreeRule::Linux { thp: false },
            ..Policy::LINUX_6_18.watermark
        },
        zonelist: ZonelistPolicy::LINUX,
        stat: StatPolicy { refresh: Refresh::PerCpuTimer, ..StatPolicy::V6_6 },
        numa: NumaPolicy::EXACT,
        ..Policy::LINUX_6_19
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
        zonelist: ZonelistPolicy::LINUX,
        ..Policy::LINUX_6_18
    };

    /// [`LINUX_6_6`](Self::LINUX_6_6) with the first steps of the tuning of 2023 (LB E.10), from 1
    /// to 9.
    const fn patched(name: &'static str, tuning: Tuning) -> Policy {
        let base = Policy::LINUX_6_6;
        let size = if tuning.has(Tuning::Level6) {
            SizeRule::MinMaxBounds
        } else {
            SizeRule::LowWatermarkSplit
        };
        Policy { name, pcp: PcpPolicy { tuning, size, ..base.pcp }, ..base }
    }

    /// Every preset.
    pub const PRESETS: &'static [Policy] = &[
        Policy::ZONAL,
        Policy::OWNED_2026,
        Policy::LINUX_6_19,
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
        #[cfg(feature = "history")]
        Policy::LINUX_5_4_RESETPCPU,
        #[cfg(feature = "history")]
        Policy::LINUX_5_4,
        #[cfg(feature = "history")]
        Policy::LINUX_4_14,
        #[cfg(feature = "history")]
        Policy::LINUX_4_13,
        #[cfg(feature = "history")]
        Policy::LINUX_3_1,
        #[cfg(feature = "history")]
        Policy::LINUX_3_0,
        #[cfg(feature = "history")]
        Policy::LINUX_2_6_24,
    ];

    /// The preset of this name.
    ///
    /// # Errors
    /// [`PresetError`] if no preset has this name, or this build lacks it.
    pub fn preset(name: &str) -> Result<Policy, PresetError<'_>> {
        let found = Policy::PRESETS.iter().find(|policy| policy.name == name);
        found.copied().ok_or(match HISTORY_PRESETS.contains(&name) {
            true => PresetError::Absent(name),
            false => PresetError::Unknown(name),
        })
    }
}

impl fmt::Display for PresetError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PresetError::Unknown(name) => {
                write!(f, "no policy is called '{name}'; there are")?;
                let separators = core::iter::once(" ").chain(core::iter::repeat(", "));
                let mut named = separators.zip(Policy::PRESETS);
                named.try_for_each(|(separator, known)| write!(f, "{separator}{}", known.name))
            }
            PresetError::Absent(name) => write!(
                f,
                "policy '{name}' is not in this build; build zonal-core with the feature `history`"
            ),
        }
    }
}

impl core::error::Error for PresetError<'_> {}

/// Per-CPU lists of 6.6 (LB E.1, E.9).
impl PcpPolicy {
    /// 6.1 to 6.6: the base of the tuning of 2023.
    pub const LINUX_6_6: PcpPolicy = PcpPolicy {
        huge_lists: HugeLists::Together,
        size: SizeRule::LowWatermarkSplit,
        tuning: Tuning::Level0,
        drain: DrainPolicy {
            bulk: Chunk::Whole,
            all: Chunk::Whole,
            decay: Chunk::Whole,
            ..Policy::LINUX_6_18.pcp.drain
        },
        ..Policy::LINUX_6_18.pcp
    };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_preset_is_found_by_its_name_or_the_error_says_what_to_do() {
        for preset in Policy::PRESETS {
            assert_eq!(Policy::preset(preset.name).as_ref(), Ok(preset));
        }
        let unknown = Policy::preset("linux-1.0").unwrap_err().to_string();
        assert!(unknown.contains("'linux-1.0'") && unknown.contains("linux-6.18"), "{unknown}");
        for name in HISTORY_PRESETS {
            let found = Policy::preset(name);
            assert_eq!(found.is_ok(), cfg!(feature = "history"), "{name}");
            if let Err(absent) = found {
                assert!(absent.to_string().contains("feature `history`"), "{absent}");
            }
        }
        let all = Policy::PRESETS.iter().filter(|preset| HISTORY_PRESETS.contains(&preset.name));
        assert_eq!(all.count(), if cfg!(feature = "history") { HISTORY_PRESETS.len() } else { 0 });
    }
}
