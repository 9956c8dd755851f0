//! Values that are written while the allocator runs, with the kernel's ranges, and what follows
//! from each (LB I.5).

use super::{Limits, RECLAIM, RESERVES, SIZES, WATERMARKS};
use crate::alloc::tunables::{Sysctl, SysctlError};
use crate::pcp::size::HighFraction;
use crate::platform::Platform;
use crate::zone::watermark;

impl<P: Platform> Limits<'_, '_, P> {
    /// Writes a value; outside its range the old one is kept.
    pub fn set(self, sysctl: Sysctl, value: i64) -> Result<(), SysctlError> {
        let refuse = |accepted| SysctlError { sysctl, value, accepted };
        let within = |low: i64, high: i64| (low..=high).contains(&value).then_some(value as u32);
        let int_max = i64::from(i32::MAX);
        let (tunables, reclaim) = (&self.on.tunables, &self.on.reclaim);
        match sysctl {
            Sysctl::MinFreeKbytes => {
                let kbytes = within(0, int_max).ok_or(refuse("0 and above"))?;
                tunables.write_min_free_kbytes(kbytes);
                self.follow(WATERMARKS);
            }
            Sysctl::WatermarkScaleFactor => {
                let factor = within(1, 3000).ok_or(refuse("1 to 3000"))?;
                tunables.set_scale_factor(factor);
                self.follow(WATERMARKS);
            }
            Sysctl::WatermarkBoostFactor => {
                let factor = within(0, int_max).ok_or(refuse("0 and above"))?;
                tunables.set_boost_factor(factor);
            }
            Sysctl::HighFraction => {
                let fraction = within(-int_max, int_max)
                    .and_then(|value| HighFraction::new(value as i32).ok())
                    .ok_or(refuse("0, and 8 and above"))?;
                tunables.set_high_fraction(fraction.get());
                self.follow(SIZES);
            }
            Sysctl::LowmemReserveRatio(kind) => {
                let ratio = i32::try_from(value).map_err(|_| refuse("32-bit integers"))?;
                let ratio = watermark::lowmem_ratio_stored(ratio);
                tunables.set_lowmem_ratio(kind, ratio);
                self.follow(RESERVES);
            }
            Sysctl::NumaStat => {
                let fixed = !self.on.policy().numa.enable.can_be_off();
                let accepted = if fixed { "1: this policy always counts" } else { "0 and 1" };
                let on = within(i64::from(fixed), 1).ok_or(refuse(accepted))?;
                self.set_numa_stat(on == 1);
            }
            Sysctl::StatInterval => {
                let seconds = within(1, int_max).ok_or(refuse("1 and above"))?;
                tunables.set_stat_interval(seconds);
            }
            Sysctl::ZoneReclaimMode => {
                reclaim.set_mode(within(0, int_max).ok_or(refuse("0 and above"))?);
            }
            Sysctl::MinUnmappedRatio => {
                let percent = within(0, 100).ok_or(refuse("0 to 100"))?;
                reclaim.set_min_unmapped_ratio(percent);
                self.follow(RECLAIM);
            }
            Sysctl::MinSlabRatio => {
                let percent = within(0, 100).ok_or(refuse("0 to 100"))?;
                reclaim.set_min_slab_ratio(percent);
                self.follow(RECLAIM);
            }
            Sysctl::DefragMode => {
                tunables.set_defrag_mode(within(0, 1).ok_or(refuse("0 and 1"))?);
            }
        }
        Ok(())
    }
}
