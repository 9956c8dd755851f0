//! Masks of CPUs, as the kernel has them.
//!
//! They are plain words of any length: `cpu_set_t`, which rustix and glibc's convenience calls use,
//! ends at 1024 CPUs, and the kernel then refuses even to *read* the mask of a bigger machine.

use super::Errno;
use super::os::read_mask;
use zonal_core::types::CpuId;

pub(super) type Word = std::ffi::c_ulong;
pub(super) const WORD_BITS: u32 = Word::BITS;
/// CPUs of the first mask we try; doubled up to the maximum while the kernel says it is too small.
pub(super) const MASK_CPUS_FIRST: u32 = 1024;
pub(super) const MASK_CPUS_MAX: u32 = 1 << 16;

/// The CPUs this thread may run on, ascending.
pub(super) fn allowed() -> Result<Vec<CpuId>, Errno> {
    let mut cpus = MASK_CPUS_FIRST;
    loop {
        let mut mask = vec![0 as Word; (cpus / WORD_BITS) as usize];
        match read_mask(&mut mask) {
            Ok(_) => return Ok(members(&mask)),
            Err(Errno::INVAL) if cpus < MASK_CPUS_MAX => cpus *= 2,
            Err(errno) => return Err(errno),
        }
    }
}

/// The set bits of `mask`, ascending.
fn members(mask: &[Word]) -> Vec<CpuId> {
    let bits = 0..mask.len() as u32 * WORD_BITS;
    bits.filter(|bit| mask[(bit / WORD_BITS) as usize] >> (bit % WORD_BITS) & 1 == 1)
        .map(CpuId)
        .collect()
}
