//! The operations that must cost nothing: pop and push on the running CPU's pcp, each one
//! restartable sequence that commits by one store to the hot word (`zonal_core::pcp::word`).
//!
//! ```text
//! arm      tell the kernel: inside [3, 4) this thread must not be moved or interrupted half-way
//! cpu      which pcp is ours; from here to the commit it stays ours, or we start again at 6
//! word     not our list, or slow: leave
//! limits   list empty, its count of pops full, or a push that needs a decision: leave
//! page     push only: the block's own word says that it came from this list, or from that of
//!          another CPU's pcp of the zone; leave if not
//! commit   one store of the new word
//! ```
//! Leaving goes through a cold path that reports failure. Then [`pop_any`] and [`push_any`] try
//! once more: where another list is active they make ours the active one, by the same commit
//! (x86-64), or by one before it (aarch64).
//! Otherwise the caller goes through the core, which does the same under the pcp's gate. The
//! arithmetic on the word is that of `PcpWord::popped`, `pushed` and `switched`; tests compare them
//! over all edge values.
//!
//! # Where things are
//! How soon the address of the CPU's pcp is known is what these sequences cost, so it is computed,
//! from two values that a caller has side by side ([`FastRef`]). Everything lies at a fixed
//! distance from [`Fast`]:
//! ```text
//!   pcps of other zones | CPU 2's | CPU 1's | CPU 0's | two of no CPU | Fast | 0 | page words
//!                         '-- of the zone each prefers -'
//! ```
//! A thread for which the kernel keeps no CPU number reads -1 or -2 in its place, and so finds one
//! of the two pcps that are always slow.
//!
//! The sequences themselves are in `rseq/x86_64.rs` and `rseq/aarch64.rs`; other processors and
//! systems have `rseq/none.rs`, which refuses everything.
//!
//! # Invariants
//! - **FAST-1** between label 3 and the instruction before 4, nothing that others see is written
//!   except slots above the top, which are dead (PCP-2), what PCP-6 allows, and by a push, as the
//!   last thing before the commit, the word of the block that is being freed. The abort handler
//!   takes that one back.
//! - **FAST-2** the commit is the last instruction of the sequence.
//! - **FAST-3** abort handlers are preceded by the signature and re-arm.
//! - **FAST-4** of the kernel's rseq area sequences write only `rseq_cs`.
//! - **FAST-5** the pcps, `Fast` and the page words lie as shown, and no CPU has a number that
//!   the table of pcps has no pcp for.
//! - **FAST-6** the object that has the sequences is never unloaded: a thread keeps the address of
//!   its last descriptor in `rseq_cs`, and the kernel reads it when it next takes the CPU away.
//! - **FAST-7** list 0 of the pcp of a CPU's preferred zone has pages without a type of their own:
//!   their words have nothing but the tag and the CPU's number, and are made of that number
//!   (checked in `pool/hot.rs`, for every policy).

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod layout;
#[cfg_attr(all(target_os = "linux", target_arch = "x86_64"), path = "rseq/x86_64.rs")]
#[cfg_attr(all(target_os = "linux", target_arch = "aarch64"), path = "rseq/aarch64.rs")]
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "rseq/none.rs"
)]
mod sequences;

pub(crate) use sequences::{pop_any, pop_block, pop_page, push_any, push_block, push_page};

use std::sync::atomic::AtomicU64;

use zonal_core::pcp::offsets::LIST_BYTES;
use zonal_core::pcp::state::PCP_BYTES;
use zonal_core::types::NR_ORDERS;

/// No frame: the result of a failed pop. As an index it leads to the word in front of the table,
/// which is always zero, so that the check of a popped frame's word refuses it without a test of
/// its own.
pub(crate) const NO_FRAME: isize = -1;

/// Constants that the fast path reads besides pcps and page words. Never written after the pool is
/// made.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fast {
    /// As [`FastRef::area`]. For a sequence that starts over.
    pub(crate) rseq_offset: isize,
    /// Address of the first page.
    pub(crate) base: usize,
    /// Frames that may go the fast way: all of the pool, or none where the fast path is off.
    pub(crate) frames: usize,
    /// Whether a flag that names a zone means anything.
    pub(crate) several_kinds: bool,
    /// Offset in bytes of each order's list from the first one; [`NO_OFFSET`] without a list.
    pub(crate) lists: [u16; NR_ORDERS],
}

/// Bytes from the end of the table of pcps to [`Fast`]: the two pcps of no CPU, and as much as
/// brings `Fast` to another offset in its page than the pcps' hot words have (4K aliasing).
pub(crate) const PCPS_TO_FAST: usize = 2 * PCP_BYTES + 256;
/// Bytes from [`Fast`] to the first page word.
pub(crate) const FAST_TO_WORDS: usize = 128;

const _: () = assert!(size_of::<Fast>() < FAST_TO_WORDS, "a zero word lies between (POOL-3)");

/// Where a pool's page words begin, and so where all that lies around them is (FAST-5), and the
/// offset by which a sequence finds its CPU: beside the address, not behind it, so that both load
/// at the same time. [`Fast`] is reached by short negative offsets, page words by none: most
/// accesses of a sequence are to those two, and what it fetches is code, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastRef {
    words: *const AtomicU64,
    /// Where the kernel keeps this thread's rseq area, from the thread pointer; 0 where the fast
    /// path is off.
    pub(crate) area: isize,
}

// SAFETY: (1) all it points to is constant or atomic, and outlives the pool.
unsafe impl Send for FastRef {}
// SAFETY: (1) as for `Send`.
unsafe impl Sync for FastRef {}

impl FastRef {
    /// # Safety
    /// 1. Around it things lie as FAST-5 says, and stay there for as long as this is used.
    /// 2. It was derived from a pointer to all of them.
    pub(crate) unsafe fn new(fast: *const Fast) -> FastRef {
        let words = fast.wrapping_byte_add(FAST_TO_WORDS).cast();
        // SAFETY: (1) alive, and never written.
        FastRef { words, area: unsafe { (*fast).rseq_offset } }
    }

    /// The same without sequences: where a request's order alone does not say its list.
    pub(crate) fn without_sequences(self) -> FastRef {
        FastRef { area: 0, ..self }
    }

    /// The first page word.
    #[inline(always)]
    pub(crate) fn words(self) -> *const AtomicU64 {
        self.words
    }

    /// The word of a frame, or with [`NO_FRAME`] the zero in front of them all.
    #[inline(always)]
    pub(crate) fn word(self, frame: isize) -> *const AtomicU64 {
        self.words().wrapping_offset(frame)
    }
}

impl std::ops::Deref for FastRef {
    type Target = Fast;
    #[inline(always)]
    fn deref(&self) -> &Fast {
        let fast = self.words.wrapping_byte_sub(FAST_TO_WORDS).cast::<Fast>();
        // SAFETY: (1) alive, and never written (`new`).
        unsafe { &*fast }
    }
}

/// A block that was popped, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Popped {
    /// The frame, or [`NO_FRAME`].
    pub(crate) frame: isize,
    /// What the block's word must be: CACHED on the list that it was popped from. Means nothing
    /// without a frame, but is not the word in front of the table (zero).
    pub(crate) cached: u64,
}

/// In [`Fast::lists`]: the order has no list, or the fast path is off.
pub(crate) const NO_OFFSET: u16 = u16::MAX;

/// Offset in bytes of a list from the first one, for sequences that serve any list.
pub(crate) const fn list_offset(list: usize) -> u16 {
    (list * LIST_BYTES) as u16
}

/// The inverse of [`list_offset`].
pub(crate) const fn list_at(offset: usize) -> usize {
    offset / LIST_BYTES
}

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
