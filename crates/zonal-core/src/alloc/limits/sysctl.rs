//! Values that are written while the allocator runs, with the kernel's ranges, and what follows
//! from each (LB I.5).

use super::{Limits, RECLAIM, RESERVES, SIZES, WATERMARKS};
use crate::alloc::tunables::{Sysctl, SysctlError};
use crate::platform::Platform;
use crate::zone::watermark;

impl<P: Platform> Limits<'_, '_, P> {
    /// Writes a value; outside its range the old one is kept.
    pub fn set(self, sysctl: Sysctl, value: i64) -> Result<(), SysctlError> {
        sysctl.check(value)?;
        // All ranges are within 32 bits.
        let number = value as u32;
        let (tunables, reclaim) = (&self.on.tunables, &self.on.reclaim);
        match sysctl {
            Sysctl::MinFreeKbytes => {
                tunables.write_min_free_kbytes(number);
                self.follow(WATERMARKS);
            }
            Sysctl::WatermarkScaleFactor => {
                tunables.set_scale_factor(number);
                self.follow(WATERMARKS);
            }
            Sysctl::WatermarkBoostFactor => tunables.set_boost_factor(number),
            Sysctl::HighFraction => {
                tunables.set_high_fraction(number);
                self.follow(SIZES);
            }
            Sysctl::LowmemReserveRatio(kind) => {
                let ratio = watermark::lowmem_ratio_stored(number.cast_signed());
                tunables.set_lowmem_ratio(kind, ratio);
                self.follow(RESERVES);
            }
            Sysctl::NumaStat => {
                if number == 0 && !self.on.policy().numa.enable.can_be_off() {
                    let accepted = "1: this policy always counts";
                    return Err(SysctlError { sysctl, value, accepted });
                }
                self.set_numa_stat(number == 1);
            }
            Sysctl::StatInterval => tunables.set_stat_interval(number),
            Sysctl::ZoneReclaimMode => reclaim.set_mode(number),
            Sysctl::MinUnmappedRatio => {
                reclaim.set_min_unmapped_ratio(number);
                self.follow(RECLAIM);
            }
            Sysctl::MinSlabRatio => {
                reclaim.set_min_slab_ratio(number);
                self.follow(RECLAIM);
            }
            Sysctl::DefragMode => tunables.set_defrag_mode(number),
        }
        Ok(())
    }
}
