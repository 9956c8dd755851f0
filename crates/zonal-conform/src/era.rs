//! Which rules a kernel follows, by its release.
//!
//! | rule | changes with | LB |
//! |--|--|--|
//! | cap of the batch | 4.19 | E.3 |
//! | ceiling of `min_free_kbytes` | 5.7 | C.1 |
//! | sizes of the per-CPU lists | 5.13, 6.7 | E.4, E.11 |
//! | huge pages off apply the square-root rule again | by 6.1 | C.1 |
//! | load of nodes in zonelists | 5.16 | A.5 |
//! | min watermark of movable zones | after 6.1, by 6.7 | C.2 |
//! | a node without memory heads its own list | after 6.1, by 6.7 | A.5 |
//!
//! Of the last two it is known how 6.1 does it and how 6.7 does; between them the capture tells.
//! Before 6.1 either rule for huge pages off may hold.

use zonal_core::policy::walk::NodeLoad;
use zonal_core::policy::{Grouping, MinFreeRule, PcpPolicy, Policy};
use zonal_core::zone::watermark::{
    MIN_FREE_KBYTES_CEILING, MIN_FREE_KBYTES_CEILING_5_6, MovableMin,
};
use zonal_text::release::KernelRelease;

/// What `zoneinfo` prints as the `high` of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrintedHigh {
    /// The limit, as computed.
    Limit,
    /// The value that the kernel derived while it ran (6.7 on).
    Tuned,
    /// 5.13 computes it when the lists are made, with marks that are still zero, and again when
    /// CPUs come and go.
    Unknown,
}

/// Rules that depend on the release.
pub trait Era: Sized {
    /// The policy of that kernel.
    fn policy(self, thp: bool, movable_min: MovableMin) -> Policy;

    /// Where `min_free_kbytes` may come from in a kernel that could have huge pages, most likely
    /// first. That the rule is applied again where they are off is known for 6.1 and later.
    fn min_free_rules(self, thp: bool) -> Vec<MinFreeRule>;

    /// How movable zones may be treated, most likely first.
    fn movable_mins(self) -> &'static [MovableMin];

    /// Whether a node without memory may be first in its own list, most likely first.
    fn memoryless_first(self) -> &'static [bool];

    /// Whether sizes of per-CPU lists are computed when marks are; before 5.14 they are computed
    /// when lists are made, and no more (LB E.11).
    fn sizes_follow_watermarks(self) -> bool;

    /// The value that the kernel prints as `high`.
    fn printed_high(self) -> PrintedHigh;

    /// Names of the sysctl that fixes the sizes of the per-CPU lists (LB I.5): its meaning changed
    /// with 5.13, its name with 5.14.
    fn fraction_keys(self) -> &'static [&'static str];
}

impl Era for KernelRelease {
    fn policy(self, thp: bool, movable_min: MovableMin) -> Policy {
        let older = |major, minor| self < KernelRelease(major, minor);
        let mut policy = match self {
            _ if older(6, 15) => Policy::LINUX_6_12,
            _ if older(6, 19) => Policy::LINUX_6_18,
            _ => Policy::LINUX_6_19,
        };
        policy.pcp = match self {
            _ if older(4, 19) => PcpPolicy::LINUX_4_14,
            _ if older(5, 13) => PcpPolicy::LINUX_5_4,
            _ if older(6, 7) => PcpPolicy::LINUX_6_6,
            _ => policy.pcp,
        };
        policy.watermark.min_free = self.min_free_rules(thp)[0];
        policy.watermark.min_free_max_kbytes =
            if older(5, 7) { MIN_FREE_KBYTES_CEILING_5_6 } else { MIN_FREE_KBYTES_CEILING };
        policy.watermark.movable_min = movable_min;
        policy.zonelist.load =
            if older(5, 16) { NodeLoad::Countdown } else { NodeLoad::Accumulated };
        policy.mobility_grouping = Grouping::Auto;
        policy
    }

    fn min_free_rules(self, thp: bool) -> Vec<MinFreeRule> {
        match thp {
            true => vec![MinFreeRule::Linux { thp }],
            false if self < KernelRelease(6, 1) => {
                vec![MinFreeRule::LinuxThpOff, MinFreeRule::Linux { thp }]
            }
            false => vec![MinFreeRule::LinuxThpOff],
        }
    }

    fn movable_mins(self) -> &'static [MovableMin] {
        by_either(self, &[MovableMin::Capped, MovableMin::Share])
    }

    fn memoryless_first(self) -> &'static [bool] {
        by_either(self, &[false, true])
    }

    fn sizes_follow_watermarks(self) -> bool {
        self >= KernelRelease(5, 14)
    }

    fn printed_high(self) -> PrintedHigh {
        match self {
            KernelRelease(5, 13) => PrintedHigh::Unknown,
            release if release < KernelRelease(6, 7) => PrintedHigh::Limit,
            _ => PrintedHigh::Tuned,
        }
    }

    fn fraction_keys(self) -> &'static [&'static str] {
        const OLD: &str = "vm.percpu_pagelist_fraction";
        const NEW: &str = "vm.percpu_pagelist_high_fraction";
        if self < KernelRelease(5, 14) { &[OLD, NEW] } else { &[NEW] }
    }
}

/// The new way, the old one, or both in this order where it is not known.
fn by_either<T>(release: KernelRelease, new_and_old: &[T; 2]) -> &[T] {
    match release {
        release if release >= KernelRelease(6, 7) => &new_and_old[..1],
        release if release <= KernelRelease(6, 1) => &new_and_old[1..],
        _ => new_and_old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of LB's version marks: release, batch cap, ceiling, load.
    #[test]
    fn each_rule_changes_with_its_release() {
        use NodeLoad::{Accumulated, Countdown};
        use zonal_core::pcp::size::SizeRule::{LowWatermarkSplit, MinMaxBounds, SixBatches};
        for (release, cap, ceiling, size, load) in [
            (KernelRelease(4, 18), 128, 65_536, SixBatches, Countdown),
            (KernelRelease(4, 19), 256, 65_536, SixBatches, Countdown),
            (KernelRelease(5, 6), 256, 65_536, SixBatches, Countdown),
            (KernelRelease(5, 10), 256, 262_144, SixBatches, Countdown),
            (KernelRelease(5, 13), 256, 262_144, LowWatermarkSplit, Countdown),
            (KernelRelease(5, 15), 256, 262_144, LowWatermarkSplit, Countdown),
            (KernelRelease(5, 16), 256, 262_144, LowWatermarkSplit, Accumulated),
            (KernelRelease(6, 6), 256, 262_144, LowWatermarkSplit, Accumulated),
            (KernelRelease(6, 7), 256, 262_144, MinMaxBounds, Accumulated),
            (KernelRelease(7, 2), 256, 262_144, MinMaxBounds, Accumulated),
        ] {
            let policy = release.policy(true, MovableMin::Capped);
            let (pcp, watermark) = (policy.pcp, policy.watermark);
            let got = (pcp.batch_cap_pages, watermark.min_free_max_kbytes, pcp.size);
            assert_eq!(got, (cap, ceiling, size), "{release}");
            assert_eq!(policy.zonelist.load, load, "{release}");
        }
    }

    #[test]
    fn between_6_1_and_6_7_a_capture_tells() {
        assert_eq!(KernelRelease(6, 1).memoryless_first(), [true]);
        assert_eq!(KernelRelease(6, 6).memoryless_first(), [false, true]);
        assert_eq!(KernelRelease(6, 7).memoryless_first(), [false]);
        assert_eq!(KernelRelease(5, 10).movable_mins(), [MovableMin::Share]);
        assert_eq!(KernelRelease(6, 12).movable_mins(), [MovableMin::Capped]);
    }
}
