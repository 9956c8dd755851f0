//! How kernels up to 5.13 kept their counters, by release (LB F, L).

use crate::vmstat::variant::{
    NumaEnable, NumaFold, NumaPolicy, NumaStorage, Pressure, Refresh, StatPolicy, ThresholdPages,
    Update,
};

impl StatPolicy {
    /// 4.13 to 5.x: the shepherd wakes the workers of isolated CPUs too.
    pub const V4_13: StatPolicy = StatPolicy { skip_isolated: false, ..StatPolicy::V6_6 };
    /// 2.6.38 to 3.1.
    pub const V2_6_38: StatPolicy = StatPolicy {
        refresh: Refresh::PerCpuTimer,
        quiet_on_idle: false,
        threshold_pages: ThresholdPages::Present,
        ..StatPolicy::V4_13
    };
    /// 2.6.24.
    pub const V2_6_24: StatPolicy =
        StatPolicy { update: Update::Irq, pressure: Pressure::Off, ..StatPolicy::V2_6_38 };
}

impl NumaPolicy {
    /// The threshold of deltas that fold when they are full; `zone` is that of the zone's own
    /// counters.
    pub const fn threshold(&self, zone: u32) -> i64 {
        match self.storage {
            NumaStorage::UlongFoldOnRead | NumaStorage::UlongExact => i64::MAX,
            _ if self.threshold != 0 => self.threshold as i64,
            NumaStorage::S8InZoneStats => zone as i64,
            _ => self.threshold_max(),
        }
    }

    /// 4.15 to 5.13.
    pub const V4_15: NumaPolicy = NumaPolicy {
        storage: NumaStorage::U16,
        fold_site: NumaFold::WorkerAndSnapshot,
        ..NumaPolicy::V5_14
    };
    /// 4.14.
    pub const V4_14: NumaPolicy = NumaPolicy { enable: NumaEnable::Always, ..NumaPolicy::V4_15 };
    /// The first version of the split of 2017, which was not merged.
    pub const SPLIT_V1: NumaPolicy =
        NumaPolicy { storage: NumaStorage::S16Overstep, ..NumaPolicy::V4_14 };
    /// Up to 4.13.
    pub const V4_13: NumaPolicy = NumaPolicy {
        storage: NumaStorage::S8InZoneStats,
        fold_site: NumaFold::Worker,
        ..NumaPolicy::SPLIT_V1
    };
}
