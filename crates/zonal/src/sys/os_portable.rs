//! What `os_linux.rs` asks of Linux, for every other system: by the standard library, or refused by
//! a typed answer (SYS-2). A pool then is in lock mode, has one node, and gives no page back before
//! it ends.
//!
//! `--cfg zonal_portable` takes this file on Linux too, where tests can run it.
//!
//! # CPUs
//! No portable call tells the CPU that a thread runs on. Threads are numbered as they come, and
//! each has one number for life, below the number of CPUs: its pcps are under locks, so that two
//! threads with one number are slower and nothing else.
//!
//! # Invariants
//! - **PARK-1** A sleep ends after [`SLEEP_MOST`] at the latest, and no call waits for the lock of
//!   a bucket: a fork may leave one locked for ever in the child.

use super::Errno;
use super::map::Advice;
use std::cell::Cell;
use std::ffi::{CStr, c_ulong, c_void};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

/// Name of the system.
pub(super) const NAME: &str = std::env::consts::OS;

const NOT_HERE: Errno = Errno::NOSYS;
/// Longest sleep of [`wait`] (PARK-1).
const SLEEP_MOST: Duration = Duration::from_millis(10);

// Files.

/// No call that does it in one step.
pub(super) fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

// CPUs.

/// CPUs that threads are told apart by.
pub(super) fn cpus() -> Option<u32> {
    static CPUS: OnceLock<u32> = OnceLock::new();
    Some(*CPUS.get_or_init(|| {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        cpus.min(usize::from(u16::MAX)) as u32
    }))
}

/// This thread's number among the CPUs.
#[inline]
pub(super) fn getcpu() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static CPU: Cell<u32> = const { Cell::new(u32::MAX) };
    }
    CPU.with(|cpu| {
        if cpu.get() == u32::MAX {
            // Relaxed: only the numbers must differ.
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            cpu.set(number % cpus().unwrap_or(1));
        }
        cpu.get()
    })
}

/// Fills `mask` with all CPUs. Returns the bytes that were filled.
pub(super) fn read_mask(mask: &mut [c_ulong]) -> Result<usize, Errno> {
    let cpus = cpus().unwrap_or(1) as usize;
    let bits = c_ulong::BITS as usize;
    let filled = cpus.div_ceil(bits);
    if mask.len() < filled {
        return Err(Errno::INVAL);
    }
    mask.fill(0);
    for cpu in 0..cpus {
        mask[cpu / bits] |= 1 << (cpu % bits);
    }
    Ok(filled * size_of::<c_ulong>())
}

/// No thread can be pinned.
pub(super) fn write_mask(_: &[c_ulong]) -> Result<(), Errno> {
    Err(NOT_HERE)
}

// Time, and waiting.

/// Nanoseconds since the first call.
pub(super) fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Where threads sleep whose words have the same hash.
struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
    sleepers: AtomicU32,
}

static BUCKETS: [Bucket; 64] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new(), sleepers: AtomicU32::new(0) } };
        64];

fn bucket(word: &AtomicU32) -> &'static Bucket {
    let address = std::ptr::from_ref(word) as usize;
    &BUCKETS[(address >> 3 ^ address >> 9) % BUCKETS.len()]
}

/// Sleeps while `word` holds `expected`: `AGAIN` if it did not, `TIMEDOUT` when `most` has passed;
/// often for less.
pub(super) fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) -> Result<(), Errno> {
    let bucket = bucket(word);
    let held = match bucket.lock.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(held)) => held.into_inner(),
        Err(TryLockError::WouldBlock) => {
            std::thread::yield_now();
            return Ok(());
        }
    };
    // Acquire: pairs with the waker's store of the word.
    if word.load(Ordering::Acquire) != expected {
        return Err(Errno::AGAIN);
    }
    let sleep = most.map_or(SLEEP_MOST, |most| most.min(SLEEP_MOST));
    // Relaxed, here and below: a count for the answer of `wake`.
    bucket.sleepers.fetch_add(1, Ordering::Relaxed);
    let slept = bucket.woken.wait_timeout(held, sleep);
    bucket.sleepers.fetch_sub(1, Ordering::Relaxed);
    let over = slept.is_ok_and(|(_, slept)| slept.timed_out());
    if over && most.is_some_and(|most| most <= SLEEP_MOST) { Err(Errno::TIMEDOUT) } else { Ok(()) }
}

/// Wakes all threads of the word's bucket, whatever `waiters_max` says, and says how many of them
/// it was asked to wake.
pub(super) fn wake(word: &AtomicU32, waiters_max: u32) -> usize {
    let bucket = bucket(word);
    // With the lock, if nobody has it, no thread is between its look at the word and its sleep;
    // without it, that one sleeps for SLEEP_MOST.
    let _held = bucket.lock.try_lock();
    bucket.woken.notify_all();
    bucket.sleepers.load(Ordering::Relaxed).min(waiters_max) as usize
}

// The machine.

/// Instruction set; no release.
pub(super) fn names() -> (String, String) {
    (std::env::consts::ARCH.to_owned(), "unknown".to_owned())
}

/// Bytes of the machine's memory and of its swap: unknown, and taken for the address space.
pub(super) fn memory_and_swap() -> (u64, u64) {
    super::MEMORY_UNKNOWN
}

// Memory.

/// What ranges are multiples of. Mappings are made and dropped as a whole, so the machine's own
/// size does not matter.
pub(super) fn page_size() -> usize {
    zonal_core::types::PAGE_SIZE
}

/// No advice is taken.
///
/// # Safety
/// 1. Nothing is required.
pub(super) unsafe fn advise(_: *mut c_void, _: usize, _: Advice) -> Result<(), Errno> {
    Err(NOT_HERE)
}

/// Nobody tells which pages are in memory, or mapped; a single page is taken to be.
pub(super) fn residents(_: usize, pages: &mut [u8]) -> Result<(), Errno> {
    if pages.len() == 1 { Ok(()) } else { Err(NOT_HERE) }
}

/// No page is faulted in; it is taken to have memory behind it.
pub(super) fn fault_in(_: usize) -> Result<(), Errno> {
    Err(NOT_HERE)
}

/// No memory is bound.
///
/// # Safety
/// 1. Nothing is required.
pub(super) unsafe fn bind(_: *mut c_void, _: usize, _: u16, _: bool) -> Result<(), Errno> {
    Err(NOT_HERE)
}

// Restartable sequences: none.

/// There is no time slice extension here.
pub(super) fn enable_slices() -> bool {
    false
}

/// Never called: nothing is granted.
pub(super) fn yield_slice() {}

/// None.
pub(super) fn rseq_feature_bytes() -> u32 {
    0
}

/// No symbol is looked up.
///
/// # Safety
/// 1. Nothing is required.
pub(super) unsafe fn symbol_value<T: Copy>(_: &CStr) -> Option<T> {
    None
}

/// No commands.
pub(super) fn offered_fences() -> (u32, bool) {
    (0, false)
}

/// No fences.
pub(super) fn register_fences() -> Result<(), Errno> {
    Err(NOT_HERE)
}

/// No fences.
pub(super) fn fence(_: Option<u32>) -> Result<(), Errno> {
    Err(NOT_HERE)
}

/// There are no sequences, so nothing needs this code once it is unused.
pub(crate) fn stay_loaded() -> bool {
    true
}

/// Has `before` called before each fork, and then one of the others.
#[cfg(unix)]
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: (1) the handlers are plain functions that live as long as the program.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// A system without fork.
#[cfg(not(unix))]
pub(crate) fn at_fork(_: extern "C" fn(), _: extern "C" fn(), _: extern "C" fn()) {}
