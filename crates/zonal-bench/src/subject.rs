//! Subjects, and the three ways in which a loop calls one.
//!
//! The loops are generic over a [`Probe`], which stands between the loop and the subject:
//! [`Direct`] adds nothing and is what is timed; `latency::Timed` reads the clock around every
//! call; `check::Checked` verifies every block. One loop for checks and timing.
//!
//! # Invariants
//! - **PROBE-1** a probe passes every call on to the subject exactly once, and returns its answer.
//! - **PROBE-2** a loop frees a block at most once, with the order it was allocated with, and only
//!   if it was not null. This is what makes [`Subject::free`] sound to call.

use crate::cell::Cell;
use serde::{Deserialize, Serialize};

/// Bytes in a page of order 0.
pub const PAGE: usize = 4096;

/// Bytes in a block of `order`.
pub const fn block_bytes(order: u32) -> usize {
    PAGE << order
}

/// An allocator under test.
///
/// Implementations in Rust should mark `alloc` and `free` `#[inline]`: the harness puts its own
/// `#[inline(never)]` function around them, and anything else would make two calls of one.
///
/// # Safety
/// The loops write to the blocks that they get, so an implementation keeps these promises:
/// 1. What `alloc` returns is null, or the first of `4096 << order` bytes, at a multiple of 4096,
///    that any thread may read and write until the block is given back. The same of each block that
///    `alloc_bulk` says it has put into `blocks`.
/// 2. A block has no other user until it is freed. The checked pass looks for subjects that break
///    this one, and they are not measured.
pub unsafe trait Subject: Send + Sync + 'static {
    /// True when `alloc` and `free` do nothing but call a function of another language: that call
    /// is then made straight from the loop, because it already is the boundary that a Rust subject
    /// gets from the harness (FAIR-1). The implementations must then be `#[inline(always)]`.
    const FOREIGN: bool = false;

    /// The name in rows, lower case, without spaces.
    fn name(&self) -> &str;

    /// A block of `4096 << order` bytes aligned to 4096, or null if none is left.
    ///
    /// # Safety
    /// 1. `order` is at most [`ORDER_MAX`].
    /// 2. This thread has called [`thread_init`](Self::thread_init) of this subject, and of no
    ///    other subject of the type since.
    unsafe fn alloc(&self, order: u32) -> *mut u8;

    /// Gives a block back.
    ///
    /// # Safety
    /// 1. `block` came from `alloc` or `alloc_bulk` of this subject with the same `order`.
    /// 2. It has not been freed since, and is no longer in use.
    /// 3. This thread has called [`thread_init`](Self::thread_init), as for `alloc`.
    unsafe fn free(&self, block: *mut u8, order: u32);

    /// Whether this subject has bulk calls; without them it takes no part in that bench.
    fn has_bulk(&self) -> bool {
        false
    }

    /// Fills a prefix of `blocks` and returns its length.
    ///
    /// # Safety
    /// As for [`Subject::alloc`]; 3. [`supports`](Self::supports) has not refused a cell of bulk
    /// calls of this order.
    unsafe fn alloc_bulk(&self, order: u32, blocks: &mut [*mut u8]) -> usize {
        let _ = (order, blocks);
        0
    }

    /// Gives all of `blocks` back.
    ///
    /// # Safety
    /// As for [`Subject::free`], for each of them; no block appears twice.
    unsafe fn free_bulk(&self, blocks: &[*mut u8], order: u32) {
        let _ = (order, blocks);
    }

    /// Whether this subject can run `cell`; the error is the reason that the report shows.
    ///
    /// # Errors
    /// A sentence for the reader of the report: why not.
    fn supports(&self, cell: &Cell) -> Result<(), String> {
        let _ = cell;
        Ok(())
    }

    /// Free memory that it keeps near the threads now, between two bursts; `None` if it cannot say.
    fn waiting(&self) -> Option<Waiting> {
        None
    }

    /// Called on a worker thread before each burst, outside the timed part. Must be cheap when
    /// the thread has been seen before. Panics where this subject cannot be used by the thread.
    fn thread_init(&self) {}
}

/// Free pages that are not where every thread could have them at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// In the lists of CPUs or threads.
    pub lists: u64,
    /// In depots, which CPUs or threads share, besides the memory that everybody takes from; `None`
    /// where there is no such thing, or it is not known.
    pub depots: Option<u64>,
}

/// A subject vouches for what it hands out, because the loops write there:
///
/// ```compile_fail,E0200
/// struct Anywhere;
/// impl zonal_bench::Subject for Anywhere {
///     fn name(&self) -> &str {
///         "anywhere"
///     }
///     unsafe fn alloc(&self, _order: u32) -> *mut u8 {
///         0x1000 as *mut u8
///     }
///     unsafe fn free(&self, _block: *mut u8, _order: u32) {}
/// }
/// ```
///
/// And the caller guarantees the order:
///
/// ```compile_fail,E0133
/// use zonal_bench::Subject;
/// zonal_bench::subjects::Mmap::<false>.alloc(200);
/// ```
#[cfg(doctest)]
struct Unsound;

/// The largest order that a loop asks for.
pub const ORDER_MAX: u32 = 9;

/// How much memory a run needs at most, so that a subject with a fixed pool can size it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Most threads that run at once in a loop that holds much.
    pub threads: usize,
    /// CPUs, each of which may hold cached blocks.
    pub cpus: usize,
}

impl Sizing {
    /// The sizing for the plan of this machine: twice as many threads as CPUs.
    pub fn of(cpus: &crate::Cpus) -> Sizing {
        Sizing { threads: cpus.count() * 2, cpus: cpus.count() }
    }

    /// Most blocks of `order` that one thread holds at once in any bench, the ones that the
    /// harness holds during a round (FAIR-5) included.
    pub const fn held_per_thread(order: u32) -> usize {
        match order {
            0 => 4096 + 1024 + 64, // singles and bulk, the ring of the stream, held
            1..=4 => 256 + 64,     // mix: about 50 of 1024 slots are live in these orders; held
            5..=8 => 64 + 4,
            _ => 32 + 4, // 32+32; held
        }
    }

    /// Pages that a pool needs so that no loop is ever refused: the largest simultaneous demand
    /// plus as much again for what per-CPU caches keep back. A power of two.
    pub fn pages(&self) -> usize {
        // The orders are not in use at once: the largest single demand decides, and that is 4096
        // singles of order 0, or some blocks of order 9, per thread.
        let demand = |(order, threads)| (threads * Sizing::held_per_thread(order)) << order;
        let of_threads = [0, 3, 4].map(|order| (order, self.threads));
        // No more threads than CPUs ask for 32 blocks of 2 MiB each.
        let most = of_threads.into_iter().chain([(9, self.cpus)]).map(demand).max().unwrap_or(0);
        (most * 2).next_power_of_two()
    }

    /// Threads of the cells that have most of them. Each holds a few hundred blocks at most.
    pub const fn crowd(&self) -> usize {
        self.cpus * 8
    }
}

/// Stands between a loop and a subject (PROBE-1).
pub(crate) trait Probe<S: Subject> {
    /// Allocates one block.
    ///
    /// # Safety
    /// As for [`Subject::alloc`].
    unsafe fn alloc(&mut self, subject: &S, order: u32) -> *mut u8;
    /// Frees one block.
    ///
    /// # Safety
    /// As for [`Subject::free`].
    unsafe fn free(&mut self, subject: &S, block: *mut u8, order: u32);
    /// Allocates into a slice.
    ///
    /// # Safety
    /// As for [`Subject::alloc_bulk`].
    unsafe fn alloc_bulk(&mut self, subject: &S, order: u32, blocks: &mut [*mut u8]) -> usize;
    /// Frees a slice.
    ///
    /// # Safety
    /// As for [`Subject::free_bulk`].
    unsafe fn free_bulk(&mut self, subject: &S, blocks: &[*mut u8], order: u32);
}

/// The probe that adds nothing: the timed loops use it.
pub(crate) struct Direct;

impl<S: Subject> Probe<S> for Direct {
    #[inline(always)]
    unsafe fn alloc(&mut self, subject: &S, order: u32) -> *mut u8 {
        // SAFETY: the caller keeps `Subject::alloc`'s contract; PROBE-1.
        unsafe { call_alloc(subject, order) }
    }

    #[inline(always)]
    unsafe fn free(&mut self, subject: &S, block: *mut u8, order: u32) {
        // SAFETY: the caller keeps `Subject::free`'s contract, (1) and (2); PROBE-1.
        unsafe { call_free(subject, block, order) }
    }

    #[inline(always)]
    unsafe fn alloc_bulk(&mut self, subject: &S, order: u32, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: the caller keeps `Subject::alloc_bulk`'s contract; PROBE-1.
        unsafe { boundary_alloc_bulk(subject, order, blocks) }
    }

    #[inline(always)]
    unsafe fn free_bulk(&mut self, subject: &S, blocks: &[*mut u8], order: u32) {
        // SAFETY: the caller keeps `Subject::free_bulk`'s contract; PROBE-1.
        unsafe { boundary_free_bulk(subject, blocks, order) }
    }
}

/// One allocation as one real call (FAIR-1).
///
/// # Safety
/// As for [`Subject::alloc`].
#[inline(always)]
pub(crate) unsafe fn call_alloc<S: Subject>(subject: &S, order: u32) -> *mut u8 {
    if S::FOREIGN {
        // SAFETY: the caller keeps (1) and (2) of `Subject::alloc`.
        unsafe { subject.alloc(order) }
    } else {
        // SAFETY: the same.
        unsafe { boundary_alloc(subject, order) }
    }
}

/// One free as one real call (FAIR-1).
///
/// # Safety
/// As for [`Subject::free`].
#[inline(always)]
pub(crate) unsafe fn call_free<S: Subject>(subject: &S, block: *mut u8, order: u32) {
    if S::FOREIGN {
        // SAFETY: the caller keeps (1) and (2) of `Subject::free`.
        unsafe { subject.free(block, order) }
    } else {
        // SAFETY: the same.
        unsafe { boundary_free(subject, block, order) }
    }
}

#[inline(never)]
unsafe fn boundary_alloc<S: Subject>(subject: &S, order: u32) -> *mut u8 {
    // SAFETY: the caller keeps (1) and (2) of `Subject::alloc`.
    unsafe { subject.alloc(order) }
}

#[inline(never)]
unsafe fn boundary_free<S: Subject>(subject: &S, block: *mut u8, order: u32) {
    // SAFETY: the caller keeps (1) and (2) of `Subject::free`.
    unsafe { subject.free(block, order) }
}

#[inline(never)]
unsafe fn boundary_alloc_bulk<S: Subject>(
    subject: &S,
    order: u32,
    blocks: &mut [*mut u8],
) -> usize {
    // SAFETY: the caller keeps `Subject::alloc_bulk`'s contract.
    unsafe { subject.alloc_bulk(order, blocks) }
}

#[inline(never)]
unsafe fn boundary_free_bulk<S: Subject>(subject: &S, blocks: &[*mut u8], order: u32) {
    // SAFETY: the caller keeps `Subject::free_bulk`'s contract.
    unsafe { subject.free_bulk(blocks, order) }
}
