//! The presets up to Linux 5.4.

use super::recompute::Recompute;
use super::set::Conflict;
use super::walk::{
    CacheMark, DirtySpread, DistanceRule, NoFragment, NodeLoad, NodeReclaimMode, NodeReclaimPolicy,
    ReclaimUnit, ZonelistCaching, ZonelistPolicy,
};
use super::{MinFreeRule, PcpPolicy, Policy, WatermarkPolicy};
use crate::pcp::drain::{DrainOrder, DrainPolicy, RemoteDrain};
use crate::pcp::lists::{FreeLists, HugeLists};
use crate::pcp::size::{BATCH_CAP_PAGES_4_18, SizeRule};
use crate::pcp::tuning::Tuning;
use crate::vmstat::variant::{NumaPolicy, StatPolicy};
use crate::zone::watermark::{MIN_FREE_KBYTES_CEILING_5_6, MovableMin, ReserveRights};

/// Distance above which machines reclaimed nodes on their own, 3.0 to 3.15 (LB A.3, G.1).
const RECLAIM_DISTANCE: u8 = 30;
/// The same before 3.0.
const RECLAIM_DISTANCE_2_6: u8 = 20;

impl Policy {
    /// Linux 5.4 before per-CPU lists were resized after deferred memory (LB E.11).
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
    /// The gap between the watermarks follows the min watermark alone (4.6).
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
}

/// Per-CPU lists of releases up to 5.12 (LB E.1, E.8, E.9, E.11).
impl PcpPolicy {
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

    /// Whether other values go together with hot and cold lists.
    pub(super) fn check_cold(&self) -> Result<(), Conflict> {
        let conflict = |key, reason| Err(Conflict { key, reason });
        if self.free_lists != FreeLists::HotCold {
            return Ok(());
        }
        if (self.orders, self.size, self.tuning) != (1, SizeRule::SixBatches, Tuning::Fixed) {
            return conflict(
                "pcp.freelist",
                "hot and cold lists hold order 0 only and have the sizes of their time; set \
                 pcp.tuning=fixed, pcp.size=six-batches and pcp.orders=0 first",
            );
        }
        if self.depot.magazines != 0 {
            return conflict(
                "depot.batches",
                "depots do not keep cold pages apart; set depot.batches=0, or pcp.freelist=single",
            );
        }
        Ok(())
    }
}
