//! The values that can be written while the allocator runs (LB I.5), and nothing of what follows
//! from them.

use core::fmt;

use crate::pcp::size::HighFraction;
use crate::policy::Policy;
use crate::policy::walk::NoFragment;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::{NR_ZONE_KINDS, ZoneKind};

const NOT_WRITTEN: u64 = u64::MAX;
/// `vm.stat_interval` at the start: a second (LB F.4).
const STAT_INTERVAL_NS: u64 = NS_PER_SECOND;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A value that can be written while the allocator runs (LB I.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `vm.min_free_kbytes`.
    MinFreeKbytes,
    /// `vm.watermark_scale_factor`, 1 to 3000.
    WatermarkScaleFactor,
    /// `vm.watermark_boost_factor`.
    WatermarkBoostFactor,
    /// `vm.percpu_pagelist_high_fraction`, 0 or at least 8.
    HighFraction,
    /// One entry of `vm.lowmem_reserve_ratio`; below 1 counts as 0.
    LowmemReserveRatio(ZoneKind),
    /// `vm.numa_stat`: 0 forgets all NUMA events and counts none, 1 counts them from 0 on.
    NumaStat,
    /// `vm.stat_interval`, in seconds.
    StatInterval,
    /// `vm.zone_reclaim_mode`: bits of LB G.1.
    ZoneReclaimMode,
    /// `vm.min_unmapped_ratio`, 0 to 100 percent.
    MinUnmappedRatio,
    /// `vm.min_slab_ratio`, 0 to 100 percent.
    MinSlabRatio,
    /// `vm.defrag_mode`, 0 or 1.
    DefragMode,
}

impl Sysctl {
    /// Whether the kernel's range for it has `value`.
    ///
    /// # Errors
    /// [`SysctlError`] names the range. A policy may accept less of it: one that always counts NUMA
    /// events refuses to be told not to.
    pub const fn check(self, value: i64) -> Result<(), SysctlError> {
        let int_max = i32::MAX as i64;
        let (low, high, accepted) = match self {
            Sysctl::MinFreeKbytes | Sysctl::WatermarkBoostFactor | Sysctl::ZoneReclaimMode => {
                (0, int_max, "0 to 2147483647")
            }
            Sysctl::WatermarkScaleFactor => (1, 3000, "1 to 3000"),
            Sysctl::HighFraction => (0, int_max, "0, and 8 to 2147483647"),
            Sysctl::LowmemReserveRatio(_) => (i32::MIN as i64, int_max, "32-bit integers"),
            Sysctl::NumaStat | Sysctl::DefragMode => (0, 1, "0 and 1"),
            Sysctl::StatInterval => (1, int_max, "1 to 2147483647"),
            Sysctl::MinUnmappedRatio | Sysctl::MinSlabRatio => (0, 100, "0 to 100"),
        };
        let is_within = low <= value && value <= high;
        let has_gap = matches!(self, Sysctl::HighFraction);
        match is_within && !(has_gap && HighFraction::new(value as i32).is_err()) {
            true => Ok(()),
            false => Err(SysctlError { sysctl: self, value, accepted }),
        }
    }
}

/// A refused write; the old value is kept (Linux says EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysctlError {
    /// The sysctl written.
    pub sysctl: Sysctl,
    /// The value written.
    pub value: i64,
    /// The accepted range.
    pub accepted: &'static str,
}

impl fmt::Display for SysctlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SysctlError { sysctl, value, accepted } = self;
        write!(f, "{sysctl:?} cannot be {value}: accepted are {accepted}; the old value is kept")
    }
}

impl core::error::Error for SysctlError {}

/// The values in force. Reclaim's are in [`ReclaimControl`](crate::reclaim::ReclaimControl).
#[derive(Debug)]
pub(super) struct Tunables {
    min_free_kbytes: AtomicU32,
    min_free_user: AtomicU64,
    scale_factor: AtomicU32,
    boost_factor: AtomicU32,
    high_fraction: AtomicU32,
    lowmem_ratio: [AtomicU32; NR_ZONE_KINDS],
    numa_stat: AtomicU32,
    stat_interval_ns: AtomicU64,
    defrag_mode: AtomicU32,
}

// Relaxed throughout: single values, no other data depends on them.
impl Tunables {
    /// The values that a policy starts with.
    pub fn new(policy: &Policy) -> Tunables {
        Tunables {
            min_free_kbytes: AtomicU32::new(0),
            min_free_user: AtomicU64::new(NOT_WRITTEN),
            scale_factor: AtomicU32::new(policy.watermark.scale_factor),
            boost_factor: AtomicU32::new(policy.watermark.boost_factor),
            high_fraction: AtomicU32::new(policy.pcp.high_fraction.get()),
            lowmem_ratio: policy.watermark.lowmem_ratio.map(AtomicU32::new),
            numa_stat: AtomicU32::new(u32::from(policy.numa_stat)),
            stat_interval_ns: AtomicU64::new(STAT_INTERVAL_NS),
            defrag_mode: AtomicU32::new(u32::from(policy.nofragment == NoFragment::Always)),
        }
    }

    /// `vm.min_free_kbytes` in force.
    pub fn min_free_kbytes(&self) -> u32 {
        self.min_free_kbytes.load(Relaxed)
    }
    /// What `vm.min_free_kbytes` follows from now on, unless it was written.
    pub fn set_min_free_kbytes(&self, kbytes: u32) {
        self.min_free_kbytes.store(kbytes, Relaxed);
    }
    /// The value written to `vm.min_free_kbytes`, if any was.
    pub fn min_free_written(&self) -> Option<u32> {
        let written = self.min_free_user.load(Relaxed);
        (written != NOT_WRITTEN).then_some(written as u32)
    }
    /// Writes `vm.min_free_kbytes`.
    pub fn write_min_free_kbytes(&self, kbytes: u32) {
        self.min_free_user.store(u64::from(kbytes), Relaxed);
        self.set_min_free_kbytes(kbytes);
    }

    /// `vm.watermark_scale_factor`.
    pub fn scale_factor(&self) -> u32 {
        self.scale_factor.load(Relaxed)
    }
    /// Writes `vm.watermark_scale_factor`.
    pub fn set_scale_factor(&self, factor: u32) {
        self.scale_factor.store(factor, Relaxed);
    }
    /// `vm.watermark_boost_factor`.
    pub fn boost_factor(&self) -> u32 {
        self.boost_factor.load(Relaxed)
    }
    /// Writes `vm.watermark_boost_factor`.
    pub fn set_boost_factor(&self, factor: u32) {
        self.boost_factor.store(factor, Relaxed);
    }
    /// `vm.percpu_pagelist_high_fraction`.
    pub fn high_fraction(&self) -> u32 {
        self.high_fraction.load(Relaxed)
    }
    /// Writes `vm.percpu_pagelist_high_fraction`.
    pub fn set_high_fraction(&self, fraction: u32) {
        self.high_fraction.store(fraction, Relaxed);
    }
    /// `vm.lowmem_reserve_ratio`, by zone kind.
    pub fn lowmem_ratio(&self) -> [u32; NR_ZONE_KINDS] {
        core::array::from_fn(|kind| self.lowmem_ratio[kind].load(Relaxed))
    }
    /// Writes one entry of `vm.lowmem_reserve_ratio`.
    pub fn set_lowmem_ratio(&self, kind: ZoneKind, ratio: u32) {
        self.lowmem_ratio[kind.index()].store(ratio, Relaxed);
    }

    /// `vm.numa_stat`: whether NUMA events are counted.
    pub fn counts_numa(&self) -> bool {
        self.numa_stat.load(Relaxed) != 0
    }
    /// Writes `vm.numa_stat`.
    pub fn set_counts_numa(&self, on: bool) {
        self.numa_stat.store(u32::from(on), Relaxed);
    }
    /// `vm.stat_interval`, in nanoseconds.
    pub fn stat_interval_ns(&self) -> u64 {
        self.stat_interval_ns.load(Relaxed)
    }
    /// Sets `vm.stat_interval`, in nanoseconds.
    pub fn set_stat_interval_ns(&self, nanos: u64) {
        self.stat_interval_ns.store(nanos.max(1), Relaxed);
    }
    /// Writes `vm.stat_interval`.
    pub fn set_stat_interval(&self, seconds: u32) {
        self.set_stat_interval_ns(u64::from(seconds) * NS_PER_SECOND);
    }
    /// `vm.defrag_mode`.
    pub fn defrag_mode(&self) -> bool {
        self.defrag_mode.load(Relaxed) != 0
    }
    /// Writes `vm.defrag_mode`.
    pub fn set_defrag_mode(&self, on: u32) {
        self.defrag_mode.store(on, Relaxed);
    }
}
