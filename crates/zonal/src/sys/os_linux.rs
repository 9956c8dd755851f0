//! The calls that this layer makes to Linux. `os_portable.rs` has the same functions for systems
//! that have no such calls; SYS-2 holds for both.

use super::Errno;
use super::map::Advice;
use rustix::fs::{CWD, RenameFlags};
use rustix::mm::Advice as RustixAdvice;
use rustix::thread::futex::{self, Flags};
use rustix::thread::{Cpuid, MembarrierCommand, MembarrierQuery, Timespec};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Name of the system.
pub(super) const NAME: &str = "Linux";

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno::new(errno.raw_os_error())
    }
}

// Files.

/// Each of two files gets the other's name, in one step.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

// CPUs.

/// CPUs of a system that does not describe itself in files: Linux does.
pub(super) fn cpus() -> Option<u32> {
    None
}

/// The CPU this thread runs on, through the vDSO.
#[inline]
pub(super) fn getcpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

/// Fills `mask` with this thread's CPUs. Returns the bytes of the kernel's own masks.
pub(super) fn read_mask(mask: &mut [c_ulong]) -> Result<usize, Errno> {
    let this_thread: libc::pid_t = 0;
    // SAFETY: sched_getaffinity writes (1) at most as many bytes as named: the slice's own length,
    // borrowed mutably. (2) It accepts any length that is a multiple of a long.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            this_thread,
            size_of_val(mask),
            mask.as_mut_ptr(),
        )
    };
    usize::try_from(rc).map_err(|_| Errno::last())
}

/// Lets this thread run on the CPUs of `mask` only.
pub(super) fn write_mask(mask: &[c_ulong]) -> Result<(), Errno> {
    // SAFETY: sched_setaffinity reads (1) as many bytes from the pointer as named: they are the
    // slice's own, initialised, and outlive the call. (2) The kernel takes any length, so the
    // pointee need not be as long as a cpu_set_t, and words of a long are what the kernel's mask is
    // made of.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(mask), mask.as_ptr().cast()) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

// Time, and waiting.

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps while `word` holds `expected`: `AGAIN` if it did not, `TIMEDOUT`, `INTR`, or why not.
pub(super) fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) -> Result<(), Errno> {
    let most = most.map(timespec);
    Ok(futex::wait(word, Flags::PRIVATE, expected, most.as_ref())?)
}

/// Wakes at most `waiters_max` threads, and says how many it woke.
pub(super) fn wake(word: &AtomicU32, waiters_max: u32) -> usize {
    // The kernel reads the count as signed: above i32::MAX it would wake one.
    futex::wake(word, Flags::PRIVATE, waiters_max.min(i32::MAX as u32)).unwrap_or(0)
}

/// A duration as the kernel takes it; one too long for it becomes the longest it takes.
fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

// The machine.

/// Instruction set and release of the kernel, as `uname` names them; "unknown" where it is refused.
pub(super) fn names() -> (String, String) {
    // SAFETY: (1) arrays of characters, for which zero is a value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: uname (1) writes one such value, which is ours.
    let rc = unsafe { libc::uname(&raw mut names) };
    let text = |text: &[c_char]| match rc {
        0 => text.iter().take_while(|at| **at != 0).map(|at| char::from(*at as u8)).collect(),
        // A seccomp filter.
        _ => "unknown".to_owned(),
    };
    (text(&names.machine), text(&names.release))
}

/// Bytes of the machine's memory and of its swap. Where a seccomp filter does not tell, they are
/// taken for the address space.
pub(super) fn memory_and_swap() -> (u64, u64) {
    // SAFETY: (1) integers, for which zero is a value.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: sysinfo (1) writes one such value, which is ours.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        return super::MEMORY_UNKNOWN;
    }
    #[allow(clippy::unnecessary_cast, reason = "the width differs between targets")]
    let (memory, swap) = (info.totalram as u64, info.totalswap as u64);
    let unit = u64::from(info.mem_unit);
    (memory.saturating_mul(unit), swap.saturating_mul(unit))
}

// Memory.

/// Bytes of a base page.
pub(super) fn page_size() -> usize {
    rustix::param::page_size()
}

/// `madvise`.
///
/// # Safety
/// 1. The range is whole pages of a mapping the caller owns.
/// 2. If `advice` changes contents, no reference to the range lives across the call and no thread
///    relies on its former contents.
pub(super) unsafe fn advise(start: *mut c_void, bytes: usize, advice: Advice) -> Result<(), Errno> {
    let advice = match advice {
        Advice::Huge => RustixAdvice::LinuxHugepage,
        Advice::Populate => RustixAdvice::LinuxPopulateWrite,
        Advice::DontNeed => RustixAdvice::LinuxDontNeed,
    };
    // SAFETY: madvise needs (1) pages of ours: contract (1); (2) readiness for what the advice does
    // to contents: contract (2).
    Ok(unsafe { rustix::mm::madvise(start, bytes, advice) }?)
}

/// Writes a byte for each page of the range; its lowest bit says whether the page is in memory.
/// A range that is not mapped is an error.
pub(super) fn residents(start: usize, pages: &mut [u8]) -> Result<(), Errno> {
    let bytes = pages.len() * page_size();
    // SAFETY: (1) the kernel looks the addresses up, whatever they are, and writes one byte for
    // each page, for which there is room.
    let rc = unsafe { libc::mincore(start as *mut c_void, bytes, pages.as_mut_ptr()) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Faults in the page at `address` for reading: `FAULT` if there is nothing behind it.
pub(super) fn fault_in(address: usize) -> Result<(), Errno> {
    // SAFETY: (1) as reading a byte of the page would, and nothing in it changes.
    let rc = unsafe { libc::madvise(address as *mut c_void, 1, libc::MADV_POPULATE_READ) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// `MPOL_PREFERRED` of the kernel's interface: this node first, then the nearest that has memory.
const MPOL_PREFERRED: c_int = 1;
/// `MPOL_BIND`: this node or none.
const MPOL_BIND: c_int = 2;
/// Nodes a mask has room for: no Linux is built for more (LB A.1).
const MASK_NODES: usize = 1024;
const WORD_BITS: usize = c_ulong::BITS as usize;
/// The kernel uses one bit less than the given number, so the call passes one more.
const MASK_BITS_TOLD: c_ulong = MASK_NODES as c_ulong + 1;

/// Asks that future pages of the range come from `node`, `strictly` or if it has some. No page
/// moves, no byte changes.
///
/// # Safety
/// 1. The range is whole pages of a mapping the caller owns.
pub(super) unsafe fn bind(
    start: *mut c_void,
    bytes: usize,
    node: u16,
    strictly: bool,
) -> Result<(), Errno> {
    let id = usize::from(node);
    if id >= MASK_NODES {
        return Err(Errno::INVAL); // What the kernel says of a node it cannot have.
    }
    let mut mask = [0 as c_ulong; MASK_NODES / WORD_BITS];
    mask[id / WORD_BITS] = 1 << (id % WORD_BITS);
    let mode = if strictly { MPOL_BIND } else { MPOL_PREFERRED };
    let no_flags: c_uint = 0;
    // SAFETY: mbind (1) reads MASK_NODES bits from `mask`, which has that many and outlives the
    // call. (2) The range is the caller's: contract (1). (3) Without MPOL_MF_MOVE only later faults
    // are affected.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes as c_ulong,
            mode,
            mask.as_ptr(),
            MASK_BITS_TOLD,
            no_flags,
        )
    };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

// Restartable sequences.

/// `PR_RSEQ_SLICE_EXTENSION`, its operation that sets, and what it sets.
const SLICE_EXTENSION: [c_ulong; 3] = [79, 2, 1];
/// The number of `rseq_slice_yield`, the same for each processor that has sequences here.
const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;

/// Switches the time slice extension on for this thread. `false`: the kernel has none or refuses.
pub(super) fn enable_slices() -> bool {
    let [option, set, on] = SLICE_EXTENSION;
    // SAFETY: (1) the call takes numbers alone, and an unknown option is refused.
    unsafe { libc::prctl(option as c_int, set, on, 0 as c_ulong, 0 as c_ulong) == 0 }
}

/// Gives back the rest of the time that was granted.
pub(super) fn yield_slice() {
    // SAFETY: (1) the call takes nothing, and an unknown one is refused. What it returns says
    // whether the time was over already.
    unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
}

/// Auxiliary-vector entry: bytes of the rseq area that the kernel fills (Linux 6.3+).
const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;

/// Bytes of the rseq area that the kernel fills; 0 where it does not say.
pub(super) fn rseq_feature_bytes() -> u32 {
    // SAFETY: getauxval (1) takes any number and only reads what the kernel left at program start;
    // it answers 0 for entries it does not have.
    let bytes = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    u32::try_from(bytes).unwrap_or(0)
}

/// The value of a constant that a loaded library exports, if any does.
///
/// # Safety
/// 1. A symbol of this name, where it exists, is a constant of type `T` set before `main`.
pub(super) unsafe fn symbol_value<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: dlsym needs (1) a terminated string: a CStr is one. (2) RTLD_DEFAULT searches what is
    // loaded and loads nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: (1) not null, and a `T` by this function's contract (1); libc itself is never
    // unloaded.
    Some(unsafe { address.cast::<T>().read() })
}

/// Keeps the object that this code is in, a program or a shared library, mapped until the process
/// ends. Whether it will be.
pub(crate) fn stay_loaded() -> bool {
    // SAFETY: getauxval (1) takes any number, as above.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let Some(this) = object_at(stay_loaded as fn() -> bool as usize) else {
        return true; // Without a loader nothing is unloaded.
    };
    let is_program = object_at(program).is_some_and(|main| main.dli_fbase == this.dli_fbase);
    // musl unloads nothing.
    if is_program || cfg!(target_env = "musl") {
        return true;
    }
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: dlopen needs (1) a terminated string: the loader's own name of this object, which is
    // loaded while this runs. (2) RTLD_NOLOAD runs no code of another object.
    let handle = unsafe { libc::dlopen(this.dli_fname, flags) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: (1) the handle was just returned, and is not used again. RTLD_NODELETE stays.
    unsafe { libc::dlclose(handle) };
    true
}

/// The object that has an address, if a loader brought it.
fn object_at(address: usize) -> Option<libc::Dl_info> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr (1) takes any address and only looks it up, and (2) writes to the local.
    let found = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) };
    // SAFETY: (1) zeroes are pointers.
    let info = unsafe { info.assume_init() };
    (found != 0 && !info.dli_fname.is_null()).then_some(info)
}

/// The `membarrier` commands on offer, and whether those for sequences are among them.
pub(super) fn offered_fences() -> (u32, bool) {
    let offered: MembarrierQuery = rustix::thread::membarrier_query();
    let fences = offered.contains_command(MembarrierCommand::PrivateExpeditedRseq)
        && offered.contains_command(MembarrierCommand::RegisterPrivateExpeditedRseq);
    (offered.bits(), fences)
}

/// Tells the kernel that this process will fence.
pub(super) fn register_fences() -> Result<(), Errno> {
    Ok(rustix::thread::membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq)?)
}

/// Stops the sequences of this process on one CPU, or on all.
pub(super) fn fence(cpu: Option<u32>) -> Result<(), Errno> {
    let command = MembarrierCommand::PrivateExpeditedRseq;
    let Some(cpu) = cpu else { return Ok(rustix::thread::membarrier(command)?) };
    // SAFETY: from_raw asks for (1) a valid CPU number. The kernel checks the number itself and
    // takes one that does not exist for an offline CPU; rustix only forwards it.
    let cpu = unsafe { Cpuid::from_raw(cpu) };
    Ok(rustix::thread::membarrier_cpu(command, cpu)?)
}

/// Has `before` called before each fork, and then one of the others.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: (1) the handlers are plain functions that live as long as the program.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}
