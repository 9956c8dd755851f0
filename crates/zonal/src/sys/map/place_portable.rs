//! Finding room for a mapping by the standard interface of memmap2, on systems other than Linux.
//!
//! More than asked for is mapped, so that an aligned address lies within; what is not used of it is
//! never touched.

use crate::sys::Errno;
use memmap2::MmapMut;
use std::ptr::NonNull;

/// A range that was mapped here and is unmapped when this value is dropped (MAP-1).
#[derive(Debug)]
pub(super) struct Outer {
    map: MmapMut,
    start: NonNull<u8>,
}

impl Outer {
    /// The first address in the range that is a multiple of `align`.
    pub(super) fn aligned(&self, align: usize) -> NonNull<u8> {
        let skip = self.start.as_ptr().align_offset(align);
        debug_assert!(skip < self.map.len(), "an aligned address lies within");
        NonNull::new(self.start.as_ptr().wrapping_add(skip)).unwrap_or(self.start)
    }
}

/// Maps `bytes` (whole pages) that hold an address aligned to `align`, of base pages.
pub(super) fn map_base(bytes: usize, align: usize) -> Result<Outer, Errno> {
    let padded = bytes.checked_add(align).filter(|padded| *padded <= isize::MAX as usize);
    let mut map = MmapMut::map_anon(padded.ok_or(Errno::NOMEM)?)
        .map_err(|error| Errno::new(error.raw_os_error().unwrap_or(Errno::NOMEM.raw())))?;
    let start = NonNull::new(map.as_mut_ptr()).ok_or(Errno::NOMEM)?;
    Ok(Outer { map, start })
}

/// There are no such pages here.
pub(super) fn map_huge_2m(_: usize, _: usize) -> Result<Outer, Errno> {
    Err(Errno::NOSYS)
}
