//! A stretch of anonymous memory for the subjects that manage a fixed pool.
//!
//! Aligned to 2 MiB, so that a block of order 9 can lie on a huge page, with the machine's own huge
//! page setting (no madvise), as for a plain `mmap`. Not backed until touched, which the warm-up of
//! each cell does for the pages that will circulate.

use crate::error::BenchError;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::null_mut;

/// Alignment of a region: the largest block that any bench asks for.
const ALIGN: usize = 2 << 20;

/// An anonymous mapping that is unmapped when dropped.
pub struct Region {
    map: *mut u8,
    map_bytes: usize,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a region is a range of addresses; it hands out no references to its contents.
unsafe impl Send for Region {}
// SAFETY: the same; its methods only read its fields.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes`, rounded up to 2 MiB.
    ///
    /// # Errors
    /// [`BenchError::Os`] if the mapping is refused.
    pub fn new(bytes: usize) -> Result<Region, BenchError> {
        let what = "mapping a subject's memory";
        let too_much = || BenchError::Os { what, source: rustix::io::Errno::NOMEM.into() };
        let bytes = bytes.checked_next_multiple_of(ALIGN).ok_or_else(too_much)?;
        let map_bytes = bytes.checked_add(ALIGN).ok_or_else(too_much)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let map = unsafe { mmap_anonymous(null_mut(), map_bytes, protection, flags) };
        let map = map.map_err(|errno| BenchError::Os { what, source: errno.into() })?;
        let map = map.cast::<u8>();
        let start = map.wrapping_add(map.align_offset(ALIGN));
        Ok(Region { map, map_bytes, start, bytes })
    }

    /// Backs all of it with memory now; a kernel that cannot (before 5.14) leaves it to the first
    /// touch. For subjects that cycle through all of their pages instead of reusing the hottest.
    pub fn populate(&self) {
        // SAFETY: exactly this region, which is writable; contents are kept.
        let _ = unsafe { madvise(self.start.cast(), self.bytes, Advice::LinuxPopulateWrite) };
    }

    /// The first byte, aligned to 2 MiB.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The page at `index`, which must be inside; the pointer may be used as long as the region is.
    pub fn page(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.bytes / crate::PAGE);
        self.start.wrapping_add(index * crate::PAGE)
    }

    /// The index of the page at `address`, if it lies inside.
    pub fn index_of(&self, address: *mut u8) -> Option<usize> {
        let offset = (address as usize).checked_sub(self.start as usize)?;
        (offset < self.bytes).then_some(offset / crate::PAGE)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: (1) exactly the mapping that `new` made. (2) a subject drops its region last, and
        // the harness frees all blocks before it drops the subject. A failure leaks, no more.
        let _ = unsafe { munmap(self.map.cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_knows_its_pages() {
        let region = Region::new(5 << 20).unwrap();
        assert_eq!(region.bytes(), 6 << 20);
        assert!((region.start() as usize).is_multiple_of(2 << 20));
        assert_eq!(region.index_of(region.page(7)), Some(7));
        assert_eq!(region.index_of(region.start().wrapping_add(6 << 20)), None);
        assert_eq!(region.index_of(region.start().wrapping_sub(1)), None);
        assert!(Region::new(usize::MAX).is_err() && Region::new(usize::MAX - (3 << 20)).is_err());
    }
}
