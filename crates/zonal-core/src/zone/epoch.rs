//! The epoch of what zones let fast operations do.
//!
//! A pcp is ready as of an epoch (`pcp/ready.rs`). What was true under one may be false under the
//! next, so who finds a pcp ready as of the epoch now need not look at the zone.

use crate::sync::AtomicU32;
use crate::sync::Ordering::{Acquire, Release};

/// Moves on whenever `fast` of a zone has lost a bit that a pcp may be ready by
/// (`Zone::ready_by`). Odd multiples of [`EPOCH_UNIT`], wrapping around: never 0. Each fast
/// operation reads it, so it has its lines to itself.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct FastEpoch(AtomicU32);

/// Below it an epoch has no bits.
pub(crate) const EPOCH_UNIT: u32 = 16;

impl Default for FastEpoch {
    fn default() -> FastEpoch {
        FastEpoch(AtomicU32::new(EPOCH_UNIT))
    }
}

impl FastEpoch {
    /// The epoch now. Bits of zones that are read behind it are those of this epoch or of a later
    /// one.
    #[inline(always)]
    pub(crate) fn now(&self) -> u32 {
        // Acquire: pairs with the Release in `move_on`.
        self.0.load(Acquire)
    }

    /// A zone has lost bits.
    pub(crate) fn move_on(&self) {
        // Release: pairs with the Acquire in `now`: who sees the epoch sees the bits.
        self.0.fetch_add(2 * EPOCH_UNIT, Release);
    }
}
