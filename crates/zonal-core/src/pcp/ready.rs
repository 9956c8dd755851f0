//! What a fast operation of the core needs of the list it works on, side by side on one line, and
//! the values of a gate.
//!
//! ```text
//!  gate   o       closed; o is the order of who has it, 0 where it is nobody's in particular
//!         32      open; whoever comes has to look what the pcp may do
//!         e | o   open, and ready for blocks of order o, as of epoch e of the zones
//! ```
//! Epochs are odd multiples of 16, so these are three kinds of values. That any order says closed
//! spares fast operations a constant: they have the order in a register.
//!
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
//!   pass. Only who has looked at all of these opens the gate with such a value: an operation, or a
//!   closing for one (`Closed::ready_in`); every other closing opens it with [`OPEN`]. A word may
//!   become slow meanwhile: what must be seen by all comes with a closing or an epoch.

use super::word::{POP_DELTA, PREV, PUSH_TOPS};
use crate::frame::PageWord;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// Orders are below it.
const ORDERS: u32 = 16;
/// The gate is open.
pub(crate) const OPEN: u32 = 2 * ORDERS;
/// Somebody has it, for no order in particular.
const CLOSED: u32 = 0;

/// Whether somebody has a gate of this value.
#[inline(always)]
pub(crate) const fn is_closed(gate: u32) -> bool {
    gate < ORDERS
}

/// The order that a gate of this value is ready for.
#[inline(always)]
pub(crate) const fn order_of(gate: u32) -> u32 {
    gate & (ORDERS - 1)
}

/// Whether a gate of this value is open and ready for something.
#[cfg(test)]
pub(crate) const fn is_ready(gate: u32) -> bool {
    gate & ORDERS != 0
}

/// The value of an open gate of a pcp that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    opens: u32,
    order: u32,
}

impl Key {
    /// For blocks of this order, below 16, in an epoch, an odd multiple of 16.
    #[inline(always)]
    pub(crate) fn new(epoch: u32, order: u32) -> Key {
        Key { opens: epoch | order, order }
    }

    /// The value itself.
    pub(crate) fn opens(self) -> u32 {
        self.opens
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
        // What was found is what it opens with: it is in a register already.
        let opens = gate.compare_exchange(key.opens, key.order, Acquire, Relaxed).ok()?;
        Some(Taken { gate, opens })
    }

    /// Takes a gate that is open. `None`: somebody has it.
    #[inline]
    pub(crate) fn new(gate: &'g AtomicU32) -> Option<Taken<'g>> {
        // Made only once the gate is taken: dropping one opens it.
        if take(gate) { Some(Taken { gate, opens: OPEN }) } else { None }
    }

    /// Takes a gate that is open, and opens it with what it was ready for: for a look, which
    /// changes nothing (READY-1). `None`: somebody has it.
    pub(crate) fn as_found(gate: &'g AtomicU32) -> Option<Taken<'g>> {
        // Acquire: pairs with the Release of every opening. Relaxed: a guess.
        let taken = |was: u32| (!is_closed(was)).then_some(order_of(was));
        let opens = gate.fetch_update(Acquire, Relaxed, taken).ok()?;
        Some(Taken { gate, opens })
    }

    /// What it opens with.
    #[inline(always)]
    pub(crate) fn opens(&self) -> u32 {
        self.opens
    }

    /// Opens it as ready for this. The caller has looked at what READY-1 says.
    pub(crate) fn make_ready(&mut self, key: Key) {
        self.opens = key.opens;
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
    gate.fetch_update(Acquire, Relaxed, |was| (!is_closed(was)).then_some(CLOSED)).is_ok()
}

/// The active list, as a fast operation sees it (READY-1).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Ready {
    /// Word of a frame on it (PCP-3).
    pub(crate) cached: AtomicU64,
    /// What a pop adds to the hot word besides halving `free_count`. Never changes; a constant of
    /// 64 bits takes an instruction more than a field.
    pub(crate) pop: u64,
    /// What a push adds to the hot word to see whether it has anything to decide
    /// ([`PushLimits`](super::word::PushLimits)).
    pub(crate) limits: AtomicU64,
    /// Where the sum tells that ([`PcpWord::reached`](super::word::PcpWord)). Never changes.
    pub(crate) tops: u64,
    /// What a push adds to the hot word where `prev` stays: one block, its pages in `free_count`.
    pub(crate) push: AtomicU32,
    /// The number below that of the slot of its coldest block, so that a length makes it that of
    /// the hottest.
    pub(crate) below: AtomicU32,
    /// A bit for each kind of request that it serves, where no allocation is recorded.
    pub(crate) serves: AtomicU32,
    /// The first type of pageblock whose blocks are freed to it; 8, which none has, without any.
    pub(crate) mt: AtomicU8,
    /// A bit for each of them.
    pub(crate) types: AtomicU8,
    /// The word's `prev` bit after a push, [`PREV_SHIFT`] bits down.
    pub(crate) prev: AtomicU8,
    /// What a frame's number lacks to its page's. Never changes.
    pub(crate) page_shift: u64,
    /// [`Zone::block_shift`](crate::zone::state::Zone). Never changes.
    pub(crate) block_shift: u64,
}

impl Default for Ready {
    fn default() -> Ready {
        Ready {
            cached: AtomicU64::new(0),
            pop: POP_DELTA,
            limits: AtomicU64::new(0),
            tops: PUSH_TOPS,
            push: AtomicU32::new(0),
            below: AtomicU32::new(0),
            serves: AtomicU32::new(0),
            mt: AtomicU8::new(0),
            types: AtomicU8::new(0),
            prev: AtomicU8::new(0),
            page_shift: 0,
            block_shift: 0,
        }
    }
}

/// What [`Ready::prev`] lacks to its place in the word.
const PREV_SHIFT: u32 = 16;
const _: () = assert!(PREV >> PREV_SHIFT <= u8::MAX as u64);

impl Ready {
    /// Sets what frees ask of the list: the types of pageblocks, and the word's `prev` bit.
    pub(super) fn set_types(&self, types: u8, prev_bits: u32) {
        self.mt.store(types.trailing_zeros() as u8, Relaxed);
        self.types.store(types, Relaxed);
        self.prev.store((prev_bits >> PREV_SHIFT) as u8, Relaxed);
    }

    /// The word's `prev` bit after a push.
    #[inline(always)]
    pub(super) fn prev_bit(&self) -> u64 {
        u64::from(self.prev.load(Relaxed)) << PREV_SHIFT
    }

    /// Number of the slot of its coldest block.
    #[inline(always)]
    pub(crate) fn first(&self) -> u32 {
        self.below.load(Relaxed).wrapping_add(1)
    }

    /// Word of a frame popped from it.
    #[inline(always)]
    pub(crate) fn allocated(&self) -> u64 {
        PageWord(self.cached.load(Relaxed)).taken().0
    }
}
