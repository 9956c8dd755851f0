//! Where this thread's restartable-sequence area is, and whether it can be used.
//!
//! glibc 2.35 and newer register one area per thread with the kernel, at a constant distance from
//! the thread pointer, and publish that distance. A second registration would fail, so that one is
//! used. The symbols are looked up while running (`dlsym`): musl and older glibc do not have them,
//! and a weak reference needs a nightly compiler. musl registers nothing, so there the area is ours
//! (`rseq_own`). Another libc without the symbols may have a library beside it that registers, such
//! as tcmalloc, so nothing is registered there.
//!
//! ```text
//!   thread pointer + offset -> struct rseq, aligned to 32
//!      0 u32 cpu_id_start   kernel writes; a CPU number that is always in range
//!      4 u32 cpu_id         kernel writes; as signed, -1 not registered, -2 registration failed
//!      8 u64 rseq_cs        we write: the descriptor of the sequence under way
//!     16 u32 flags          zero
//!     20 u32 node_id        kernel writes, Linux 6.3+
//!     24 u32 mm_cid         kernel writes, Linux 6.3+: dense ids of running threads
//!     28 u8  request        we write, Linux 7.0+, where this is no old padding: see `slice`
//!     29 u8  granted        kernel writes
//! ```
//!
//! # Invariants
//! - **RSEQ-1** An [`RseqArea`] exists only where the offset came from glibc or is that of our own
//!   area, was aligned, was registered and agreed with `getcpu`, in the thread that looked.
//! - **RSEQ-2** The area lies in every thread's static TLS block, so reading it is sound in every
//!   thread that libc made, for as long as that thread runs (OWN-1, OWN-3 for our own).
//! - **RSEQ-3** A thread without a registration reads a `cpu_id` that, as signed, is negative: one
//!   that has not used our own area yet, or no longer may; one that a filter forbade it.
//!   [`RseqArea::check_thread`] tells; code that indexes by CPU must bound the number anyway.
//!
//! This module arms no sequence and never writes to the area; `rseq` and `slice` do. The caller
//! reads `ZONAL_RSEQ`.

use super::{Errno, os, rseq_own};
use zonal_core::types::CpuId;

pub use super::rseq_own::RSEQ_SIGNATURE;

/// Offset of `cpu_id` within the area.
pub const FIELD_CPU_ID: isize = 4;
/// Offset of `rseq_cs` within the area.
pub const FIELD_RSEQ_CS: isize = 8;
/// Offset of `mm_cid` within the area.
pub const FIELD_MM_CID: isize = 24;

/// Alignment the kernel asks of an area.
const AREA_ALIGN: usize = 32;
/// Bytes up to the end of `flags`: what Linux 4.18 had, and the least that glibc calls registered.
const AREA_BYTES_MIN: u32 = 20;
/// Bytes up to the end of `mm_cid`.
const FEATURES_MM_CID: u32 = 28;
/// Bytes of an area with the fields of the time slice extension. The kernel says 33 and never 32,
/// which is what old areas say whose fields end at 20.
const FEATURES_SLICES: u32 = 33;
/// Comparisons with `getcpu` before a thread that keeps migrating is judged as it is.
const COMPARE_TRIES: u32 = 16;

/// Why restartable sequences cannot be used. All of them leave the per-CPU lock mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RseqUnusable {
    /// Not x86-64 and not aarch64.
    #[error("no restartable sequences for this processor: expected x86-64 or aarch64")]
    Architecture,
    /// Not Linux.
    #[error("no restartable sequences on this system: expected Linux")]
    System,
    /// No `__rseq_offset`.
    #[error(
        "libc does not publish __rseq_offset: expected musl, or glibc 2.35 or newer, linked \
         dynamically (a static glibc program has none)"
    )]
    NoSymbols,
    /// Our own area has another distance in each thread.
    #[error(
        "this libc registers no rseq area, and an area of our own must be in the main program: \
         expected this library to be linked into it, not loaded as a shared library"
    )]
    SharedLibrary,
    /// The kernel refused our own area.
    #[error(
        "this libc registers no rseq area, and the kernel refused ours: {errno}; expected Linux \
         4.18 or newer with CONFIG_RSEQ, no seccomp filter on rseq, and no other library that \
         registered this thread"
    )]
    Registration {
        /// The kernel's error.
        errno: Errno,
    },
    /// `__rseq_size` is 0.
    #[error(
        "glibc did not register restartable sequences: expected Linux 4.18 or newer with \
         CONFIG_RSEQ, no GLIBC_TUNABLES=glibc.pthread.rseq=0, and no other library (tcmalloc) that \
         registered first"
    )]
    NotRegistered,
    /// An area shorter than any kernel's.
    #[error("glibc's rseq area has {bytes} bytes: expected at least 20")]
    TooSmall {
        /// `__rseq_size`.
        bytes: u32,
    },
    /// Flags that change what the kernel does.
    #[error("glibc registered rseq with flags {flags:#x}: expected 0")]
    Flags {
        /// `__rseq_flags`.
        flags: u32,
    },
    /// Not where an area can be.
    #[error("the rseq area is at {address:#x}: expected a multiple of 32")]
    Misaligned {
        /// Thread pointer plus offset.
        address: usize,
    },
    /// This thread is not registered.
    #[error(
        "this thread has no rseq registration (cpu_id {cpu_id}): expected a CPU number; was a \
         seccomp filter installed after the process started?"
    )]
    ThreadNotRegistered {
        /// Value in the area: -1 not registered, -2 registration failed.
        cpu_id: i32,
    },
    /// The area does not follow the thread.
    #[error("the rseq area says CPU {area}, getcpu says CPU {getcpu}: expected the same")]
    WrongCpu {
        /// Value in the area.
        area: u32,
        /// The kernel's value.
        getcpu: u32,
    },
}

/// A usable rseq area: the same offset in every thread of this process (RSEQ-1, RSEQ-2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RseqArea {
    offset: isize,
    feature_bytes: u32,
    /// Whether the area is ours, and each thread registers its own.
    own: bool,
    /// Whether libc registered it with the fields of the time slice extension.
    slices: bool,
}

/// What libc and the kernel say, before judging it.
#[derive(Clone, Copy, Debug)]
struct Facts {
    offset: Option<isize>,
    bytes: u32,
    flags: u32,
    feature_bytes: u32,
    own: bool,
}

impl RseqArea {
    /// Finds the area, and checks it for the calling thread, which is registered if libc did not.
    ///
    /// # Errors
    /// [`RseqUnusable`] says why not.
    pub fn find() -> Result<RseqArea, RseqUnusable> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(RseqUnusable::Architecture);
        }
        if !cfg!(target_os = "linux") || cfg!(zonal_portable) {
            return Err(RseqUnusable::System);
        }
        let mut facts = gather();
        if facts.offset.is_none() && cfg!(target_env = "musl") {
            facts = own(facts)?;
        }
        let area = judge(&facts, thread_pointer())?;
        area.check_thread()?;
        Ok(area)
    }

    /// Whether the area is this library's own, because libc has none.
    pub fn is_own(self) -> bool {
        self.own
    }

    /// The CPU of a thread that reads none (RSEQ-3): from the area, if the thread can be registered
    /// now, and from the kernel otherwise.
    #[cold]
    pub fn joined_cpu(self) -> u32 {
        if self.own && rseq_own::join().is_ok() {
            let cpu = self.current_cpu();
            if cpu as i32 >= 0 {
                return cpu;
            }
        }
        getcpu().0
    }

    #[cfg(test)]
    pub(super) fn own_distance() -> Option<isize> {
        rseq_own::distance(thread_pointer())
    }

    /// Distance from the thread pointer (`fs:0` on x86-64, `tpidr_el0` on aarch64) to the area.
    #[inline]
    pub fn offset(self) -> isize {
        self.offset
    }

    /// Where the calling thread's area is.
    pub fn address(self) -> usize {
        thread_pointer().wrapping_add_signed(self.offset)
    }

    /// Whether the kernel fills `mm_cid`.
    pub fn has_mm_cid(self) -> bool {
        self.feature_bytes >= FEATURES_MM_CID
    }

    /// Whether the area has the fields of the time slice extension.
    pub(super) fn has_slices(self) -> bool {
        self.slices
    }

    /// The CPU this thread runs on, as of now. See RSEQ-3 for threads without registration.
    #[inline(always)]
    pub fn current_cpu(self) -> u32 {
        // SAFETY: (1) the field lies in the area of this thread (RSEQ-1, RSEQ-2).
        unsafe { load_thread_u32::<FIELD_CPU_ID>(self.offset) }
    }

    /// This thread's dense concurrency id, where the kernel has them.
    #[inline(always)]
    pub fn mm_cid(self) -> Option<u32> {
        if !self.has_mm_cid() {
            return None;
        }
        // SAFETY: (1) the field lies in the area of this thread (RSEQ-1, RSEQ-2), and within what
        // the kernel fills: checked above.
        Some(unsafe { load_thread_u32::<FIELD_MM_CID>(self.offset) })
    }

    /// Checks that the calling thread is registered and its area follows it (RSEQ-3).
    ///
    /// # Errors
    /// [`RseqUnusable::ThreadNotRegistered`] or [`RseqUnusable::WrongCpu`].
    pub fn check_thread(self) -> Result<(), RseqUnusable> {
        for (before, area, after) in looks(|| self.current_cpu()) {
            if (area as i32) < 0 {
                return Err(RseqUnusable::ThreadNotRegistered { cpu_id: area as i32 });
            }
            if area == before || area == after {
                return Ok(());
            }
            if before == after {
                return Err(RseqUnusable::WrongCpu { area, getcpu: after });
            }
            // Migrated between the two looks: nothing was proved, look again.
        }
        // A thread that keeps migrating is believed.
        Ok(())
    }
}

/// The CPU this thread runs on, asked of the kernel through the vDSO; on systems other than Linux a
/// number that the thread keeps.
#[inline]
pub fn getcpu() -> CpuId {
    CpuId(os::getcpu())
}

/// What `tell` says of the running CPU, between what the kernel says before and after it: again
/// and again, as the thread may migrate meanwhile.
pub(super) fn looks(tell: impl Fn() -> u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..COMPARE_TRIES).map(move |_| (getcpu().0, tell(), getcpu().0))
}

/// Decides whether `facts` describe a usable area for a thread with this thread pointer.
fn judge(facts: &Facts, thread_pointer: usize) -> Result<RseqArea, RseqUnusable> {
    let Some(offset) = facts.offset else { return Err(RseqUnusable::NoSymbols) };
    if facts.bytes == 0 {
        return Err(RseqUnusable::NotRegistered);
    }
    if facts.bytes < AREA_BYTES_MIN {
        return Err(RseqUnusable::TooSmall { bytes: facts.bytes });
    }
    if facts.flags != 0 {
        return Err(RseqUnusable::Flags { flags: facts.flags });
    }
    let address = thread_pointer.wrapping_add_signed(offset);
    if !address.is_multiple_of(AREA_ALIGN) {
        return Err(RseqUnusable::Misaligned { address });
    }
    // Ours is registered with the size that areas first had.
    let slices = !facts.own && facts.bytes.min(facts.feature_bytes) >= FEATURES_SLICES;
    Ok(RseqArea { offset, feature_bytes: facts.feature_bytes, own: facts.own, slices })
}

/// Facts of an area of our own, once the calling thread is registered.
fn own(facts: Facts) -> Result<Facts, RseqUnusable> {
    let offset = rseq_own::distance(thread_pointer()).ok_or(RseqUnusable::SharedLibrary)?;
    rseq_own::join().map_err(|errno| RseqUnusable::Registration { errno })?;
    Ok(Facts { offset: Some(offset), bytes: rseq_own::AREA_BYTES, own: true, ..facts })
}

/// Asks libc and the auxiliary vector.
fn gather() -> Facts {
    // SAFETY: (1) glibc declares `const ptrdiff_t __rseq_offset`.
    let offset = unsafe { os::symbol_value::<isize>(c"__rseq_offset") };
    // SAFETY: (1) glibc declares `const unsigned int __rseq_size`.
    let bytes = unsafe { os::symbol_value::<u32>(c"__rseq_size") };
    // SAFETY: (1) glibc declares `const unsigned int __rseq_flags`.
    let flags = unsafe { os::symbol_value::<u32>(c"__rseq_flags") };
    Facts {
        offset,
        bytes: bytes.unwrap_or(0),
        flags: flags.unwrap_or(0),
        // `__rseq_size` says 20 on some glibc although more is filled (rseq-and-memory-costs.md).
        feature_bytes: os::rseq_feature_bytes(),
        own: false,
    }
}

/// The address all thread-local offsets count from.
#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: (1) the x86-64 ABI stores the thread pointer at fs:0 in every thread libc made; the
    // instruction only reads it.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer,
            options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// The address all thread-local offsets count from.
#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: (1) reads a register that user code may read; no memory is touched.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer,
            options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// No thread pointer is needed where [`RseqArea::find`] says no first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn thread_pointer() -> usize {
    0
}

/// Loads the word at `offset + FIELD` from the thread pointer. Never cached, never moved across
/// another volatile access: the kernel changes it between any two instructions.
///
/// # Safety
/// 1. A readable, aligned `u32` is there in the calling thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load_thread_u32<const FIELD: isize>(offset: isize) -> u32 {
    let value: u32;
    // SAFETY: (1) one aligned load of memory that is readable by this function's contract (1).
    unsafe {
        std::arch::asm!("mov {value:e}, dword ptr fs:[{offset} + {field}]",
            value = lateout(reg) value, offset = in(reg) offset, field = const FIELD,
            options(nostack, preserves_flags, readonly));
    }
    value
}

/// Loads the word at `offset + FIELD` from the thread pointer. Never cached, never moved across
/// another volatile access: the kernel changes it between any two instructions.
///
/// # Safety
/// 1. A readable, aligned `u32` is there in the calling thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn load_thread_u32<const FIELD: isize>(offset: isize) -> u32 {
    let value: u32;
    // SAFETY: (1) one aligned load of memory that is readable by this function's contract (1). The
    // base is `out`, not `lateout`, so it does not share a register with the offset.
    unsafe {
        std::arch::asm!("mrs {base}, tpidr_el0", "ldr {value:w}, [{base}, {offset}]",
            base = out(reg) _, value = lateout(reg) value, offset = in(reg) offset + FIELD,
            options(nostack, preserves_flags, readonly));
    }
    value
}

/// No area is found here, so this is never called: see [`RseqArea::find`].
///
/// # Safety
/// 1. None needed: it reads nothing of the caller's.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn load_thread_u32<const FIELD: isize>(_offset: isize) -> u32 {
    getcpu().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::affinity;

    const GOOD: Facts =
        Facts { offset: Some(-64), bytes: 20, flags: 0, feature_bytes: 28, own: false };

    #[test]
    fn the_area_follows_this_thread_from_cpu_to_cpu() {
        let area = match RseqArea::find() {
            Ok(area) => area,
            // An old glibc, GLIBC_TUNABLES or a filter: the reason is the result.
            Err(reason) => return assert!(reason.to_string().contains("expected"), "{reason}"),
        };
        assert_eq!(area.check_thread(), Ok(()));
        affinity::assert_follows(|| area.current_cpu());
    }

    #[test]
    fn one_offset_serves_every_thread() {
        let Ok(area) = RseqArea::find() else { return };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(RseqArea::find(), Ok(area));
                    assert!(area.current_cpu() < affinity::possible_cpus_max());
                    if let Some(cid) = area.mm_cid() {
                        assert!(cid < affinity::possible_cpus_max());
                    }
                });
            }
        });
    }

    #[test]
    fn each_bad_fact_is_refused_by_name() {
        assert!(judge(&GOOD, 4096).is_ok_and(|area| area.offset() == -64 && area.has_mm_cid()));
        let refused = |facts: Facts, thread_pointer| judge(&facts, thread_pointer).unwrap_err();
        assert_eq!(refused(Facts { offset: None, ..GOOD }, 4096), RseqUnusable::NoSymbols);
        assert_eq!(refused(Facts { bytes: 0, ..GOOD }, 4096), RseqUnusable::NotRegistered);
        assert_eq!(
            refused(Facts { bytes: 16, ..GOOD }, 4096),
            RseqUnusable::TooSmall { bytes: 16 }
        );
        assert_eq!(refused(Facts { flags: 1, ..GOOD }, 4096), RseqUnusable::Flags { flags: 1 });
        assert_eq!(refused(GOOD, 4112), RseqUnusable::Misaligned { address: 4048 });
    }

    #[test]
    fn an_old_kernel_has_no_mm_cid() {
        let area = judge(&Facts { feature_bytes: 0, ..GOOD }, 4096).unwrap();
        assert!(!area.has_mm_cid());
        assert_eq!(area.mm_cid(), None);
    }

    #[test]
    fn padding_of_old_areas_is_no_time_slice_extension() {
        for (bytes, feature_bytes, own, slices) in [
            (20, 28, false, false),
            // What glibc 2.35 to 2.39 say of an area whose fields end at 20.
            (32, 28, false, false),
            (32, 32, false, false),
            (32, 33, false, false),
            (33, 28, false, false),
            (33, 33, false, true),
            (64, 40, false, true),
            (64, 40, true, false),
        ] {
            let facts = Facts { bytes, feature_bytes, own, ..GOOD };
            assert_eq!(judge(&facts, 4096).unwrap().has_slices(), slices, "{facts:?}");
        }
    }

    #[test]
    fn an_unknown_symbol_is_none() {
        // SAFETY: (1) no library exports this name, so no type is claimed.
        let value = unsafe { os::symbol_value::<u32>(c"zonal_no_such_symbol") };
        assert_eq!(value, None);
    }
}
