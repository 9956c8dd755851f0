//! OSTD as the platform of the core.

use ostd::util::id_set::Id as _;
use zonal_core::alloc::Allocator;
use zonal_core::platform::FixedPolicy;
use zonal_core::policy::{Grouping, Policy};
use zonal_kernel::{Kernel, KernelPlatform};

/// Stretches of memory that OSTD may tell of.
pub(crate) const REGIONS: usize = 64;

/// That of kernels, without groups of pageblocks: OSTD's requests do not say whether pages can be
/// moved or reclaimed, so all are of one type.
pub(crate) const POLICY: Policy =
    Policy { name: "ostd", mobility_grouping: Grouping::Off, ..Policy::KERNEL };

/// OSTD, as the allocator needs it.
#[derive(Debug)]
pub struct Ostd;

impl Kernel for Ostd {
    const POLICY: Option<FixedPolicy> = Some(Policy::fix(&POLICY));

    #[inline(always)]
    fn cpu(&self) -> u32 {
        // Not out of date: interrupts are off (OSTD-3).
        ostd::cpu::CpuId::current_racy().as_usize() as u32
    }
    #[inline(always)]
    fn mask(&self) -> usize {
        0
    }
    #[inline(always)]
    fn unmask(&self, _was: usize) {}
    /// Only asked for where a kernel has sections of its own.
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        ostd::timer::Jiffies::elapsed().as_duration().as_nanos() as u64
    }
}

/// The core, in OSTD.
pub type Core = Allocator<'static, KernelPlatform<'static, Ostd>>;
