//! Finding room for a mapping, and unmapping it.
//!
//! `mmap` aligns to pages. For more, we map too much and trim both ends. Huge pages cannot be
//! mapped in excess (each is taken from the pool), so an aligned hole is looked for first, and then
//! taken with `MAP_FIXED_NOREPLACE`, which fails instead of overwriting when another thread was
//! faster.

use super::align::ALIGN_2M;
use crate::sys::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;

/// Holes tried before giving up on huge pages with a large alignment.
const HOLE_TRIES: u32 = 8;

/// A range that was mapped here and is unmapped when this value is dropped (MAP-1).
#[derive(Debug)]
pub(super) struct Outer {
    start: NonNull<u8>,
    bytes: usize,
}

impl Outer {
    /// Maps `bytes` anonymous private bytes, at `hint` if `flags` say so, else anywhere.
    fn map(
        hint: *mut u8,
        bytes: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> Result<Outer, Errno> {
        debug_assert!(!flags.contains(MapFlags::FIXED), "MAP_FIXED would replace what is there");
        let flags = flags | MapFlags::PRIVATE;
        // SAFETY: mmap_anonymous asks that (1) the range may be mutated. Without MAP_FIXED the
        // kernel picks unused addresses and replaces nothing; with MAP_FIXED_NOREPLACE it fails, or
        // on a kernel before 4.17 takes the address as a hint, rather than replace anything.
        let start = unsafe { rustix::mm::mmap_anonymous(hint.cast(), bytes, access, flags) }?;
        // The kernel never gives page 0 to a mapping that did not ask for it.
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Outer { start, bytes })
    }

    /// The first address in the range that is a multiple of `align`.
    pub(super) fn aligned(&self, align: usize) -> NonNull<u8> {
        let skip = self.start.as_ptr().align_offset(align);
        debug_assert!(skip < self.bytes, "an aligned address lies within");
        NonNull::new(self.start.as_ptr().wrapping_add(skip)).unwrap_or(self.start)
    }

    /// Gives back what lies before the first multiple of `align` and after `bytes` from there.
    ///
    /// A part that cannot be unmapped (the number of mappings is at its limit) stays mapped until
    /// the whole is dropped: only address space is lost.
    fn trim(&mut self, bytes: usize, align: usize) {
        let base = self.aligned(align);
        let head = base.as_ptr() as usize - self.start.as_ptr() as usize;
        let tail = self.bytes - head - bytes;
        if tail > 0 {
            // SAFETY: (1) an end, forgotten below. (2) It was never handed out.
            let done = unsafe { unmap(base.as_ptr().wrapping_add(bytes), tail) };
            self.bytes -= if done.is_ok() { tail } else { 0 };
        }
        if head > 0 {
            // SAFETY: (1) an end, forgotten below. (2) It was never handed out.
            let done = unsafe { unmap(self.start.as_ptr(), head) };
            if done.is_ok() {
                self.start = base;
                self.bytes -= head;
            }
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // munmap of a whole mapping fails only when it was merged with a neighbour and the number
        // of mappings is at its limit. No handling is possible here; the addresses stay unused.
        // SAFETY: (1) the whole, and this is its last use. (2) MAP-3; and references from
        // `Mapping::base` have ended before the drop, as that method requires.
        let _ = unsafe { unmap(self.start.as_ptr(), self.bytes) };
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Maps `bytes` (whole pages) that hold an address aligned to `align`, of base pages.
pub(super) fn map_base(bytes: usize, align: usize) -> Result<Outer, Errno> {
    map_aligned(bytes, align, READ_WRITE, MapFlags::empty())
}

/// Inaccessible address space: not accounted, by NORESERVE on every kernel.
pub(super) fn reserve(bytes: usize, align: usize) -> Result<Outer, Errno> {
    map_aligned(bytes, align, ProtFlags::empty(), MapFlags::NORESERVE)
}

fn map_aligned(
    bytes: usize,
    align: usize,
    access: ProtFlags,
    flags: MapFlags,
) -> Result<Outer, Errno> {
    let page = rustix::param::page_size();
    let excess = align.saturating_sub(page);
    let padded = bytes.checked_add(excess).ok_or(Errno::NOMEM)?;
    let mut outer = Outer::map(std::ptr::null_mut(), padded, access, flags)?;
    outer.trim(bytes, align);
    Ok(outer)
}

/// Maps `bytes` (a multiple of 2 MiB) from an address aligned to `align`, of 2 MiB pages.
pub(super) fn map_huge_2m(bytes: usize, align: usize) -> Result<Outer, Errno> {
    debug_assert!(bytes.is_multiple_of(ALIGN_2M));
    // Without NORESERVE, which would let a fault fail with SIGBUS later, when the pool has run out.
    let (access, flags) = (READ_WRITE, MapFlags::HUGETLB | MapFlags::HUGE_2MB);
    if align <= ALIGN_2M {
        return Outer::map(std::ptr::null_mut(), bytes, access, flags);
    }
    let fixed = flags | MapFlags::FIXED_NOREPLACE;
    for _ in 0..HOLE_TRIES {
        let hole = reserve(bytes, align)?.aligned(align);
        // The hole was unmapped at the end of that statement; another thread may take it first.
        match Outer::map(hole.as_ptr(), bytes, access, fixed) {
            Ok(outer) if outer.start.as_ptr().align_offset(align) == 0 => return Ok(outer),
            Ok(_) | Err(EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(EEXIST)
}

const EEXIST: Errno = Errno::new(libc::EEXIST);

/// Unmaps whole pages.
///
/// # Safety
/// 1. They are a whole [`Outer`] that is not used again, or a page-aligned end of one that forgets
///    it (MAP-1).
/// 2. No reference points there.
unsafe fn unmap(start: *mut u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: munmap asks for (1) pages that are ours: contract (1); (2) no references: contract
    // (2).
    Ok(unsafe { rustix::mm::munmap(start.cast(), bytes) }?)
}
