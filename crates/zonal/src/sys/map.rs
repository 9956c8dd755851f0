//! Memory from the kernel: reserve, commit, bind to a node, fault in, give back.
//!
//! ```text
//!   outer  |..trim..|base ............................ base+bytes|..trim..|   one mmap
//!                    ^ aligned to 2 or 4 MiB            ^ granules: base pages, or 2 MiB
//! ```
//!
//! # Invariants
//! - **MAP-1** `base .. base + bytes` lies within what this value mapped, which nothing else maps
//!   or unmaps, and which is unmapped once, on drop; or it was brought, and whoever brought it
//!   promised the same ([`Mapping::brought`]).
//! - **MAP-2** Every range given to the kernel passed `Mapping::checked_range`: it lies within the
//!   mapping and starts and ends on a granule.
//! - **MAP-3** This module makes no reference to the mapped bytes. The maker of a reference is
//!   responsible for it: the calls that change contents are `unsafe` and state their conditions.
//! - **MAP-4** `base` is a multiple of the alignment asked for.
//!
//! # Backing
//! A backing may be unavailable: huge pages need a pool set up by the administrator, transparent
//! ones kernel support. The mapping then takes the next weaker kind and [`Mapping::downgrades`]
//! says which call failed and why. `madvise` also succeeds where `transparent_hugepage/enabled`
//! says "never": look at [`crate::sys::machine`] for that.
//!
//! A `MAP_HUGETLB` mapping takes its pages from the pool at once, so a later fault cannot fail for
//! want of pages, *except* under a strict binding to a node whose share of the pool is used up: the
//! process then gets SIGBUS. [`Mapping::prefault`] turns that into an error (from Linux 5.14 on).
//!
//! # Releasing
//! Pages are freed at once (`MADV_DONTNEED`) and never lazily (`MADV_FREE`): such pages may turn to
//! zeroes between two reads through a reference.
//!
//! It does *not* decide on the layout; that is the pool's job.

use super::Errno;
use super::os;
use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Advice on pages that are mapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Advice {
    /// Huge pages, please.
    Huge,
    /// Fault all in, writable.
    Populate,
    /// Give all back; they read as zeroes.
    DontNeed,
}

mod align;
pub mod look;
mod numa;
#[cfg_attr(not(all(target_os = "linux", not(zonal_portable))), path = "map/place_portable.rs")]
mod place;
#[cfg(all(test, target_os = "linux", not(zonal_portable)))]
mod tests;

pub use align::{ALIGN_2M, ALIGN_4M};
pub use numa::{BindMode, BindOutcome};
/// Largest alignment that can be asked for.
pub const ALIGN_MAX: usize = 1 << 30;

/// The kind of pages that back a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// The kernel's default.
    KernelDefault,
    /// Transparent huge pages where the kernel finds them: `MADV_HUGEPAGE`.
    Transparent,
    /// 2 MiB pages out of the administrator's pool: `MAP_HUGETLB | MAP_HUGE_2MB`.
    Huge2M,
}

/// What to map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapOptions {
    /// Length; rounded up to whole pages (of 2 MiB for [`Backing::Huge2M`]).
    pub bytes: usize,
    /// Alignment of the first byte: a power of two from the page size up to [`ALIGN_MAX`].
    pub align: usize,
    /// What pages.
    pub backing: Backing,
}

/// A weaker backing was taken, because `operation` failed with `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Downgrade {
    /// The attempted call.
    pub from: Backing,
    /// The fallback.
    pub to: Backing,
    /// The call that failed.
    pub operation: &'static str,
    /// The kernel's error.
    pub errno: Errno,
}

/// How [`Mapping::prefault`] did it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefaulted {
    /// In one call: `MADV_POPULATE_WRITE`, Linux 5.14.
    Populated,
    /// By touching each page, because the kernel does not know that call.
    Touched(Errno),
}

/// A mapping could not be made or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// The kernel refused.
    #[error("{operation} of {bytes} bytes failed: {errno}; {}", hint(*errno))]
    Os {
        /// The call.
        operation: &'static str,
        /// How much it was about.
        bytes: usize,
        /// The kernel's error.
        errno: Errno,
    },
    /// A range outside the mapping, or not on its granules.
    #[error(
        "{operation}: {start:#x}..{end:#x} is not a range of this mapping; expected multiples of \
         {granule:#x} within 0..{bytes:#x}"
    )]
    Range {
        /// The call.
        operation: &'static str,
        /// First byte, from the start of the mapping.
        start: usize,
        /// One past the last.
        end: usize,
        /// What both must be a multiple of.
        granule: usize,
        /// Length of the mapping.
        bytes: usize,
    },
    /// Options that no mapping can have.
    #[error(
        "cannot map {bytes} bytes aligned to {align}; expected at least one byte, less than the \
         address space, and an alignment that is a power of two from the page size to 1 GiB"
    )]
    Options {
        /// Length asked for.
        bytes: usize,
        /// Alignment asked for.
        align: usize,
    },
}

/// What memory that was brought refers to, until nobody uses it any more.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Where the memory is from.
#[derive(Debug)]
enum Origin {
    /// Unmapped with this value (MAP-1).
    Mapped { _outer: place::Outer },
    /// The program's, with what is dropped when it is let go of.
    Brought { _keep: Option<Keep> },
}

/// Memory of this process: anonymous and private, unmapped on drop; or brought, and left as it is.
/// See the module's invariants.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    origin: Origin,
    granule: usize,
    backing: Backing,
    downgrades: Vec<Downgrade>,
}

// SAFETY: (1) a Mapping owns its range (MAP-1) and nothing in it belongs to a thread: the kernel's
// calls work from any thread of the process.
unsafe impl Send for Mapping {}
// SAFETY: (1) methods on `&self` only read plain fields and call the kernel, which serialises
// changes of the address space; the bytes themselves are reached by raw pointers only (MAP-3).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory.
    ///
    /// # Errors
    /// [`MapError::Options`] for impossible options, [`MapError::Os`] when not even the weakest
    /// backing is available.
    pub fn new(options: &MapOptions) -> Result<Mapping, MapError> {
        let MapOptions { align, backing, .. } = *options;
        let refused = MapError::Options { bytes: options.bytes, align };
        let page = os::page_size();
        let huge = backing == Backing::Huge2M;
        let round = if huge { ALIGN_2M.max(page) } else { page };
        let fits = align.is_power_of_two() && (page..=ALIGN_MAX).contains(&align);
        let bytes = options.bytes.checked_next_multiple_of(round).filter(|&bytes| bytes > 0);
        let Some(bytes) = bytes.filter(|_| fits) else { return Err(refused) };

        let mut downgrades = Vec::new();
        let mut placed = None;
        if huge {
            match place::map_huge_2m(bytes, align) {
                Ok(done) => placed = Some((done, ALIGN_2M, Backing::Huge2M)),
                Err(errno) => downgrades.push(Downgrade {
                    from: Backing::Huge2M,
                    to: Backing::Transparent,
                    operation: "mmap(MAP_HUGETLB, 2 MiB)",
                    errno,
                }),
            }
        }
        let (outer, granule, backing) = match placed {
            Some(placed) => placed,
            None => {
                let outer = place::map_base(bytes, align).map_err(|errno| MapError::Os {
                    operation: "mmap",
                    bytes,
                    errno,
                })?;
                (outer, page, if huge { Backing::Transparent } else { backing })
            }
        };
        let base = outer.aligned(align);
        debug_assert!((base.as_ptr() as usize).is_multiple_of(align), "MAP-4");
        let mut mapping = Mapping {
            base,
            bytes,
            origin: Origin::Mapped { _outer: outer },
            granule,
            backing,
            downgrades,
        };
        mapping.advise_backing();
        Ok(mapping)
    }

    /// Memory that the program brings; `keep` is dropped with the result.
    ///
    /// # Safety
    /// 1. `base .. base + bytes` is mapped, readable and writable, whole pages, until the result is
    ///    dropped.
    /// 2. Nothing else uses, maps or unmaps it meanwhile.
    pub unsafe fn brought(base: NonNull<u8>, bytes: usize, keep: Option<Keep>) -> Mapping {
        let granule = os::page_size();
        let (backing, downgrades) = (Backing::KernelDefault, Vec::new());
        Mapping {
            base,
            bytes,
            origin: Origin::Brought { _keep: keep },
            granule,
            backing,
            downgrades,
        }
    }

    /// Whether this value mapped it, and so may give pages of it back.
    pub fn is_own(&self) -> bool {
        matches!(self.origin, Origin::Mapped { .. })
    }

    /// The first byte. No pointer or reference made from it may be used after the mapping is
    /// dropped.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the ends of every range must be multiples of: the base page, or 2 MiB with huge pages.
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// Why the backing differs from the request, in the order of the failures.
    pub fn downgrades(&self) -> &[Downgrade] {
        &self.downgrades
    }

    /// Faults in every page of `range`, writable; contents stay.
    ///
    /// # Errors
    /// [`MapError`]: `ENOMEM` or `EFAULT` when there is no memory on the bound node or the range
    /// was not committed; pages before the failing one may have been faulted in.
    ///
    /// # Safety
    /// 1. `range` is committed: on a kernel without `MADV_POPULATE_WRITE` pages are touched, which
    ///    faults where nothing is committed.
    /// 2. Meanwhile no other thread accesses the first byte of a page in `range` other than
    ///    atomically, for the same reason.
    pub unsafe fn prefault(&self, range: Range<usize>) -> Result<Prefaulted, MapError> {
        let operation = "prefault (MADV_POPULATE_WRITE)";
        let (start, bytes) = self.checked_range(operation, &range)?;
        // SAFETY: (1) MAP-1, MAP-2. (2) Populating keeps contents.
        match unsafe { advise(start, bytes, Advice::Populate) } {
            Ok(()) => Ok(Prefaulted::Populated),
            Err(errno @ (Errno::INVAL | Errno::NOSYS | Errno::PERM)) => {
                for offset in (0..bytes).step_by(os::page_size()) {
                    // SAFETY: (1) within the mapping (MAP-2) and committed, by this function's
                    // contract (1). (2) All accesses meanwhile are atomic, by contract (2). (3) A
                    // u8 is always aligned.
                    let byte =
                        unsafe { AtomicU8::from_ptr(start.cast::<u8>().wrapping_add(offset)) };
                    // Relaxed: only the page fault matters, nothing is published. The compiler
                    // must not know the operand: it drops a write of nothing.
                    byte.fetch_or(std::hint::black_box(0), Ordering::Relaxed);
                }
                Ok(Prefaulted::Touched(errno))
            }
            Err(errno) => Err(MapError::Os { operation, bytes, errno }),
        }
    }

    /// Gives the pages of `range` back to the kernel; the addresses stay ours, and read as zeroes.
    ///
    /// # Errors
    /// [`MapError`]; `EINVAL` for locked memory, and for huge pages before Linux 5.18.
    ///
    /// # Safety
    /// 1. No reference to a byte of `range` lives across the call, and no thread relies on its
    ///    former contents.
    pub unsafe fn release(&self, range: Range<usize>) -> Result<(), MapError> {
        let operation = "release (MADV_DONTNEED)";
        let (start, bytes) = self.checked_range(operation, &range)?;
        // SAFETY: (1) MAP-1, MAP-2. (2) This function's contract (1).
        let done = unsafe { advise(start, bytes, Advice::DontNeed) };
        done.map_err(|errno| MapError::Os { operation, bytes, errno })
    }

    /// Bytes of `range` that are in memory now, in base pages.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn resident_bytes(&self, range: Range<usize>) -> Result<usize, MapError> {
        let operation = "mincore";
        let (start, bytes) = self.checked_range(operation, &range)?;
        let page = os::page_size();
        let mut pages = vec![0u8; bytes.div_ceil(page)];
        os::residents(start as usize, &mut pages).map_err(|errno| MapError::Os {
            operation,
            bytes,
            errno,
        })?;
        Ok(pages.iter().filter(|page| **page & 1 != 0).count() * page)
    }

    /// Requests a backing from the kernel; falls back to the default.
    fn advise_backing(&mut self) {
        if self.backing != Backing::Transparent {
            return;
        }
        let operation = "madvise(MADV_HUGEPAGE)";
        // SAFETY: (1) the whole mapping: MAP-1. (2) Advice on page sizes keeps contents.
        let done = unsafe { advise(self.base.as_ptr().cast(), self.bytes, Advice::Huge) };
        let Err(errno) = done else { return };
        let (from, to) = (self.backing, Backing::KernelDefault);
        self.downgrades.push(Downgrade { from, to, operation, errno });
        self.backing = to;
    }

    /// Address and length of `range`, if it is one (MAP-2). An empty range is refused.
    fn checked_range(
        &self,
        operation: &'static str,
        range: &Range<usize>,
    ) -> Result<(*mut c_void, usize), MapError> {
        let Range { start, end } = *range;
        let (granule, bytes) = (self.granule, self.bytes);
        let aligned = start.is_multiple_of(granule) && end.is_multiple_of(granule);
        if !aligned || start >= end || end > bytes {
            return Err(MapError::Range { operation, start, end, granule, bytes });
        }
        Ok((self.base.as_ptr().wrapping_add(start).cast(), end - start))
    }
}

/// `madvise`, with retries where the kernel asks for them.
///
/// # Safety
/// 1. The range is whole pages of a mapping the caller owns (MAP-1, MAP-2).
/// 2. If `advice` changes contents, no reference to the range lives across the call and no thread
///    relies on its former contents.
unsafe fn advise(start: *mut c_void, bytes: usize, advice: Advice) -> Result<(), Errno> {
    const RETRIES: u32 = 8;
    let mut tries = 0;
    loop {
        // SAFETY: (1) and (2): this function's contract.
        match unsafe { os::advise(start, bytes, advice) } {
            // "A kernel resource was temporarily unavailable" (madvise(2)).
            Err(Errno::AGAIN) if tries < RETRIES => tries += 1,
            done => return done,
        }
    }
}

/// Whether the page at `address`, which is a multiple of the page size, is mapped. Where nobody can
/// tell, it is taken to be.
pub fn is_mapped(address: usize) -> bool {
    os::residents(address, &mut [0]).is_ok()
}

/// Whether there is memory behind the mapped page at `address`, a multiple of the page size, as far
/// as the kernel says: with a file that ends in front of it an access would be SIGBUS. Before Linux
/// 5.14, and for a device's window, it does not say.
pub fn is_backed(address: usize) -> bool {
    os::fault_in(address) != Err(Errno::FAULT)
}

/// What a person can do about it.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::NOMEM => {
            "there is not enough memory, or a limit was reached: ask for less, or raise ulimit -v \
             or -d, vm.max_map_count, the container's memory limit or what vm.overcommit_memory \
             allows"
        }
        Errno::INVAL => "this kernel does not know the call or its arguments",
        Errno::NOSYS | Errno::PERM => {
            "a seccomp filter or a missing privilege forbids it: allow the call"
        }
        _ => "see the manual page of the call for this error",
    }
}
