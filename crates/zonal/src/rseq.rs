//! The operations that must cost nothing: pop and push on the running CPU's store, each one
//! restartable sequence that commits by one store to the hot word (`zonal_core::pcp::word`).
//!
//! ```text
//! arm      tell the kernel: inside [3, 4) this thread must not be moved or interrupted half-way
//! cpu      which store is ours; from here to the commit it stays ours, or we start again at 6
//! word     not our list, or its count of pops is full: leave
//! limits   stack empty, or a push that needs a decision, or the word says slow: leave
//! commit   one store of the new word
//! ```
//! Leaving goes through a cold path that reports failure; the caller then takes the long way
//! through the core, which does the same under the store's gate. The arithmetic on the word is that
//! of [`PcpWord::popped`] and [`PcpWord::pushed`]; tests compare them over all edge values.
//!
//! The sections themselves are in `rseq/x86_64.rs`; other processors have `rseq/none.rs`, which
//! refuses everything.
//!
//! # Invariants
//! - **FAST-1** between label 3 and the instruction before 4, nothing that others see is written
//!   except slots above the top, which are dead (PCP-2).
//! - **FAST-2** the commit is the last instruction of the section.
//! - **FAST-3** abort handlers are preceded by the signature and re-arm.
//! - **FAST-4** of the kernel's rseq area only `rseq_cs` is written.

#[cfg_attr(not(target_arch = "x86_64"), path = "rseq/none.rs")]
#[cfg_attr(target_arch = "x86_64", path = "rseq/x86_64.rs")]
mod sections;

pub(crate) use sections::{pop_block, pop_page, push_block, push_page, store};

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use zonal_core::pcp::store::{Pcp, PcpList};
use zonal_core::pcp::word::{POP_DELTA, PUSH_DELTA};

/// No frame: what a failed pop returns. As an index it leads to the word in front of the table,
/// which is always zero, so that the check of a popped frame's word refuses it without a test of
/// its own.
pub(crate) const NO_FRAME: isize = -1;

/// What the fast path reads, gathered in one place and never written after the pool is made.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Fast {
    /// Where the kernel keeps this thread's rseq area, from the thread pointer.
    pub(crate) rseq_offset: isize,
    /// Words of all frames.
    pub(crate) words: *const AtomicU64,
    /// Address of the first page.
    pub(crate) base: usize,
    /// Frames that may go the fast way: all of the pool, or none where the fast path is off.
    pub(crate) frames: usize,
    /// What a pop and a push of the hot list add to the word: operands of the sections, which run
    /// short of registers otherwise.
    pub(crate) deltas: [u64; 2],
    /// Brings any CPU number into the table. The last two entries are no CPU's: numbers of threads
    /// for which the kernel keeps none (-1, -2) lead there.
    pub(crate) cpu_mask: u32,
    /// Flags of requests that the fast path cannot honour; all of them where it is off.
    pub(crate) slow_gfp: u32,
    /// Address of each CPU's store of its preferred zone; of a store that is always slow where
    /// there is no CPU.
    pub(crate) stores: [usize; STORES],
}

/// Entries of the table of stores. Machines with more CPUs have no fast path.
pub(crate) const STORES: usize = 1024;

/// The mask for `cpus` CPUs, if the table is large enough.
pub(crate) fn cpu_mask(cpus: usize) -> Option<u32> {
    let entries = (cpus + 2).next_power_of_two();
    (entries <= STORES).then_some(entries as u32 - 1)
}

/// The value of [`Fast::deltas`].
pub(crate) const DELTAS: [u64; 2] = [POP_DELTA, PUSH_DELTA];

// SAFETY: (1) `words` points to a shared table of atomics that outlives the pool, and everything
// else is plain numbers, so it may be used from any thread.
unsafe impl Send for Fast {}
// SAFETY: (1) as for `Send`: nothing is written through it but atomics.
unsafe impl Sync for Fast {}

/// A store and a list of it, as found by a fast operation.
#[derive(Clone, Copy)]
pub(crate) struct Popped {
    pub(crate) frame: isize,
    pub(crate) pcp: *const Pcp,
}

/// How many bytes a list lies behind the first one: what [`pop_block`] and [`push_block`] take.
pub(crate) const fn list_offset(list: usize) -> usize {
    list * size_of::<PcpList>()
}

const _: () = assert!(offset_of!(Pcp, word) == 0, "the hot word leads its line");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
