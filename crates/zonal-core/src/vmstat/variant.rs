//! Every published way to keep the counters, as values (LB F, L): one field of a policy each. Those
//! of old kernels take the feature `history`.
//!
//! | what | when | value |
//! |--|--|--|
//! | a CPU changes its delta | 2007 to 2.6.38 and on | [`Update`] |
//! | deltas reach the shared counters although nothing folds them | 2.6.24, 3.18 | [`Refresh`] |
//! | a counter's error may hide that a watermark was crossed | 2.6.36, 2.6.38 | [`Pressure`] |
//! | NUMA events | 4.13, 4.14, 4.15, 5.14 | [`NumaStorage`], [`NumaFold`], [`NumaEnable`] |

use crate::types::choice;
#[cfg(feature = "history")]
use crate::vmstat::threshold::{NUMA_THRESHOLD_S16, NUMA_THRESHOLD_U16, THRESHOLD_MAX};

choice! {
    /// How a CPU changes its delta of a counter (LB F.3, F.5). The arithmetic is in
    /// [`update`](crate::vmstat::update), the races in `history/vmstat/races.rs`.
    #[derive(Default)]
    pub enum Update {
        /// Interrupts are masked around the plain steps: the base of 2007.
        Irq = "irq" if "history",
        /// A compare-and-exchange loop, with the sign bug of the version posted in 2007: a negative
        /// delta is read back as a huge unsigned number, so almost every update folds.
        CmpxchgPostedUnsigned = "cmpxchg_posted_unsigned" if "history",
        /// The same loop with signed arithmetic, as intended in 2007.
        CmpxchgSigned = "cmpxchg_signed" if "history",
        /// One increment instruction, then a compare (2007, as intended). Nested interrupts between
        /// the two can push the byte beyond 127.
        LocalIncIntended = "local_inc_intended" if "history",
        /// The same as it was posted: the instruction's operand is the pointer, so the counter
        /// never moves.
        LocalIncPosted = "local_inc_posted" if "history",
        /// A compare-and-exchange loop where an interrupt may come between, plain steps where the
        /// caller keeps them out: x86 since 2.6.38.
        #[default]
        ThisCpuCmpxchg = "thiscpu_cmpxchg",
        /// Plain steps with preemption off: an interrupt that counts the same item loses updates.
        PreemptOnly = "preempt_only" if "history",
    }
}

choice! {
    /// What makes a CPU fold its deltas from time to time (LB F.4).
    #[derive(Default)]
    pub enum Refresh {
        /// A timer of each CPU, in every interval whether there is anything to do or not (2.6.24).
        PerCpuTimer = "per_cpu_timer",
        /// A worker of each CPU that comes back while it finds something to do, and one shepherd
        /// that wakes the workers of CPUs with deltas that are not zero (3.18).
        #[default]
        WorkerAndShepherd = "worker_and_shepherd",
    }
}

choice! {
    /// What is done about the error of the free-page counter near the watermarks (LB F.2).
    #[derive(Default)]
    pub enum Pressure {
        /// Nothing (before 2.6.36).
        Off = "off" if "history",
        /// Below the drift mark, tests that ask for it add up the deltas (2.6.36).
        DriftMark = "drift_mark" if "history",
        /// And while the background reclaimer is awake the threshold is small (2.6.38).
        #[default]
        DriftMarkAndThreshold = "drift_mark_and_threshold",
    }
}

choice! {
    /// Which pages of a zone its threshold follows from (LB F.2).
    #[derive(Default)]
    pub enum ThresholdPages {
        /// The present ones (2.6.24).
        Present = "present" if "history",
        /// Those that the buddy was given.
        #[default]
        Managed = "managed",
    }
}

choice! {
    /// How NUMA events are kept (LB F.7).
    #[derive(Default)]
    pub enum NumaStorage {
        /// As items of the zone's counters: signed bytes, the zone's threshold (up to 4.13).
        S8InZoneStats = "s8_in_zone_stats" if "history",
        /// Signed 16 bits, folding beyond 32765 with overstep (proposed in August 2017).
        S16Overstep = "s16_thr32765_overstep" if "history",
        /// Unsigned 16 bits, folding beyond 65533 to zero (4.14 to 5.13).
        U16 = "u16_thr65533" if "history",
        /// A word of each CPU, which readers take with an exchange (5.14). The owner's addition is
        /// not atomic towards them, so a reader can count a whole word twice.
        UlongFoldOnRead = "ulong_fold_on_read",
        /// Exact: hits are the pops that are no misses, and the hot word counts pops anyway.
        #[default]
        UlongExact = "ulong_exact",
    }
}

choice! {
    /// Who folds NUMA events besides a CPU whose delta is full (LB F.7).
    #[derive(Default)]
    pub enum NumaFold {
        /// The refresh of each CPU; readers see folded values (up to 4.13).
        Worker = "worker" if "history",
        /// The refresh of each CPU; readers of zones and nodes add the deltas (4.14).
        WorkerAndSnapshot = "worker_and_snapshot" if "history",
        /// Only readers (5.14).
        #[default]
        Reader = "reader",
    }
}

choice! {
    /// Whether NUMA events can be switched off while the allocator runs (LB F.7).
    #[derive(Default)]
    pub enum NumaEnable {
        /// No (up to 4.14).
        Always = "always" if "history",
        /// By `vm.numa_stat` (4.15).
        #[default]
        Sysctl = "sysctl",
    }
}

/// Counters of zones (LB F.1 to F.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatPolicy {
    /// How a CPU changes its delta.
    pub update: Update,
    /// What makes it fold.
    pub refresh: Refresh,
    /// A CPU that goes idle folds what its worker would come for.
    pub quiet_on_idle: bool,
    /// The shepherd leaves isolated CPUs alone.
    pub skip_isolated: bool,
    /// Handling of the error near the watermarks.
    pub pressure: Pressure,
    /// Which pages of a zone its threshold follows from.
    pub threshold_pages: ThresholdPages,
    /// CPUs are refreshed one after another, evenly over the interval (posted in April 2026). Those
    /// that are refreshed at the same moment drain their lists then, and meet at the zone lock.
    pub stagger: bool,
}

/// NUMA events (LB F.6, F.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumaPolicy {
    /// How they are kept.
    pub storage: NumaStorage,
    /// Threshold of the deltas; 0 is the storage's own. Of no meaning to the last two storages.
    pub threshold: u16,
    /// Who folds them.
    pub fold_site: NumaFold,
    /// Whether they can be switched off.
    pub enable: NumaEnable,
}

impl StatPolicy {
    /// 6.6 and on: workers and their shepherd, quiet when idle, isolated CPUs left alone.
    pub const V6_6: StatPolicy = StatPolicy {
        update: Update::ThisCpuCmpxchg,
        refresh: Refresh::WorkerAndShepherd,
        quiet_on_idle: true,
        skip_isolated: true,
        pressure: Pressure::DriftMarkAndThreshold,
        threshold_pages: ThresholdPages::Managed,
        stagger: false,
    };
}

impl Pressure {
    /// Whether zones have a drift mark.
    pub const fn sets_drift_mark(self) -> bool {
        match self {
            #[cfg(feature = "history")]
            Pressure::Off => false,
            _ => true,
        }
    }
}

impl NumaEnable {
    /// Whether `vm.numa_stat` can be 0.
    pub const fn can_be_off(self) -> bool {
        match self {
            #[cfg(feature = "history")]
            NumaEnable::Always => false,
            NumaEnable::Sysctl => true,
        }
    }
}

impl NumaPolicy {
    /// 5.14 and on.
    pub const V5_14: NumaPolicy = NumaPolicy {
        storage: NumaStorage::UlongFoldOnRead,
        threshold: 0,
        fold_site: NumaFold::Reader,
        enable: NumaEnable::Sysctl,
    };
    /// Ours.
    pub const EXACT: NumaPolicy =
        NumaPolicy { storage: NumaStorage::UlongExact, ..NumaPolicy::V5_14 };

    /// Whether each event is written to a delta of the CPU. Where not, the hot word tells them.
    pub const fn records(&self) -> bool {
        !matches!(self.storage, NumaStorage::UlongExact)
    }

    /// Whether the shared counters are apart from the zone's other items.
    pub const fn has_own_line(&self) -> bool {
        match self.storage {
            #[cfg(feature = "history")]
            NumaStorage::S8InZoneStats => false,
            _ => true,
        }
    }

    /// The largest threshold that the storage can hold.
    pub const fn threshold_max(&self) -> i64 {
        match self.storage {
            #[cfg(feature = "history")]
            NumaStorage::S8InZoneStats => THRESHOLD_MAX as i64,
            #[cfg(feature = "history")]
            NumaStorage::S16Overstep => NUMA_THRESHOLD_S16,
            #[cfg(feature = "history")]
            NumaStorage::U16 => NUMA_THRESHOLD_U16,
            NumaStorage::UlongFoldOnRead | NumaStorage::UlongExact => i64::MAX,
        }
    }
}
