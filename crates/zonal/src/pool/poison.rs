//! Finds writes to freed pages: free blocks are filled with a pattern, which is checked when they
//! are handed out again (LB J.2).
//!
//! A debugging aid: every free writes and every allocation reads the whole block, and the fast path
//! is off.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::types::{Order, Pfn};

/// The byte that Linux uses.
const PATTERN: u8 = 0xaa;

/// The state of the check.
#[derive(Debug, Default)]
pub(super) struct Poison {
    hits: AtomicU64,
    /// Blocks that stay out of use: first page and base pages. Also held across a fork.
    lost: Mutex<Vec<(u64, u64)>>,
}

impl Poison {
    /// Writes to freed pages found so far.
    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    /// Base pages that stay out of use: handed out, but nobody's.
    pub(super) fn lost_pages(&self) -> u64 {
        self.lost().iter().map(|(_, pages)| pages).sum()
    }

    /// First pages of these blocks.
    pub(super) fn lost_blocks(&self) -> Vec<u64> {
        self.lost().iter().map(|(first, _)| *first).collect()
    }

    /// Keeps the list of these blocks as it is.
    pub(super) fn lost(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a block that is about to be free. The caller owns it.
    pub(super) fn fill(&self, start: NonNull<u8>, order: Order) {
        // SAFETY: (1) the caller owns the block, which is mapped.
        unsafe { start.as_ptr().write_bytes(PATTERN, order.bytes()) };
    }

    /// Whether a block is as [`fill`](Self::fill) left it. Otherwise it says so on stderr, and
    /// counts the block for one that stays out of use.
    pub(super) fn check(&self, start: NonNull<u8>, pfn: Pfn, order: Order) -> bool {
        // SAFETY: (1) the block was just handed out to the caller.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), order.bytes()) };
        let Some(at) = bytes.iter().position(|byte| *byte != PATTERN) else { return true };
        self.hits.fetch_add(1, Relaxed);
        self.lost().push((pfn.0, order.pages()));
        eprintln!(
            "zonal: {pfn:?}, {order:?} was written to while free: byte {at} is {:#04x}, expected \
             {PATTERN:#04x}. It stays out of use; look for a pointer kept after a free.",
            bytes[at]
        );
        false
    }
}
