//! What a fast operation of the core needs of the list it works on, side by side on one line, and
//! the values of a gate.
//!
//! ```text
//!  gate   0       open; whoever comes has to look what the pcp may do
//!         1       closed
//!         e | o   open, and ready for blocks of order o, as of epoch e of the zones
//! ```
//! A fast operation takes the gate by one compare-and-swap from the value that it can use, so that
//! the same instruction asks whether the gate is open, whether the active list has the order,
//! whether its zone lets the operation pass, and whether anything was closed since that was found
//! out.
//!
//! # Invariants
//! - **READY-1** while a gate has a value of the third kind, [`Ready`] repeats the record of the
//!   active list, a push that reaches none of its `limits` has nothing to decide and keeps the
//!   next ones right (PCP-4), no sequence runs on the pcp, its word is not slow, or it is sealed
//!   and its zone is not retired, and in epoch `e` the zone let allocations and frees of order `o`
//!   pass. Only an operation that has looked at all of these opens the gate with such a value;
//!   every closing opens it with 0. A word may become slow meanwhile: what must be seen by all
//!   comes with a closing or an epoch.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64};

/// The gate is open.
pub(crate) const OPEN: u32 = 0;
/// Somebody has it.
pub(crate) const CLOSED: u32 = 1;

/// The value of an open gate of a pcp that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(u32);

impl Key {
    /// For blocks of this order, below 16, in an epoch, an odd multiple of 16.
    #[inline(always)]
    pub(crate) fn new(epoch: u32, order: u32) -> Key {
        Key(epoch | order)
    }

    /// The order.
    pub(crate) fn order(self) -> u32 {
        self.0 & 15
    }
}

/// A gate that was taken: opens it when dropped.
#[derive(Debug)]
pub(crate) struct Taken<'g> {
    gate: &'g AtomicU32,
    opens: u32,
}

impl<'g> Taken<'g> {
    /// Takes a gate that is ready so. `None`: it is not.
    #[inline(always)]
    pub(crate) fn ready(gate: &'g AtomicU32, key: Key) -> Option<Taken<'g>> {
        // Acquire: pairs with the Release of every opening.
        gate.compare_exchange(key.0, CLOSED, Acquire, Relaxed).ok()?;
        Some(Taken { gate, opens: key.0 })
    }

    /// Takes a gate that is open. `None`: somebody has it.
    #[inline]
    pub(crate) fn new(gate: &'g AtomicU32) -> Option<Taken<'g>> {
        // Made only once the gate is taken: dropping one opens it.
        if take(gate) { Some(Taken { gate, opens: OPEN }) } else { None }
    }

    /// Opens it as ready for this. The caller has looked at what READY-1 says.
    pub(crate) fn make_ready(&mut self, key: Key) {
        self.opens = key.0;
    }

    /// Opens it as ready for nothing: whoever comes has to look what the pcp may do.
    pub(crate) fn make_unready(&mut self) {
        self.opens = OPEN;
    }
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder.
        self.gate.store(self.opens, Release);
    }
}

/// Takes a gate that is open, whatever it is ready for. `false`: somebody has it.
#[inline]
pub(crate) fn take(gate: &AtomicU32) -> bool {
    // Once more where it is open for something else than it was: it is never found taken when it is
    // open. Acquire: pairs with the Release of every opening. Relaxed: a guess.
    gate.fetch_update(Acquire, Relaxed, |was| (was != CLOSED).then_some(CLOSED)).is_ok()
}

/// The active list, as a fast operation sees it (READY-1).
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Ready {
    /// Word of a frame on it (PCP-3).
    pub(crate) cached: AtomicU64,
    /// Word of a frame popped from it.
    pub(crate) allocated: AtomicU64,
    /// What a push adds to the hot word where `prev` stays: one block, its pages in `free_count`.
    pub(crate) push: AtomicU64,
    /// What a push adds to the hot word to see whether it has anything to decide
    /// ([`PushLimits`](super::word::PushLimits)).
    pub(crate) limits: AtomicU64,
    /// Number of the slot of its coldest block.
    pub(crate) first: AtomicU32,
    /// The number below that, so that a length makes it that of the hottest block.
    pub(crate) below: AtomicU32,
    /// A bit for each kind of request that it serves, where no allocation is recorded.
    pub(crate) serves: AtomicU32,
    /// A bit for each type of pageblock whose blocks are freed to it, and the word's `prev` bit
    /// after a push, in its place.
    pub(crate) types: AtomicU32,
    /// What a frame's number lacks to its page's. Never changes.
    pub(crate) page_shift: u64,
    /// [`Zone::block_shift`](crate::zone::state::Zone). Never changes.
    pub(crate) block_shift: u64,
}
