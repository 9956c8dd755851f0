//! What node reclaim keeps for each zone and each node (LB G.2, G.3): who is at it, and below which
//! sizes it does not begin. The rules are in the layer `reclaim`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One zone's or node's record.
#[derive(Debug, Default)]
pub struct ReclaimRecord {
    /// `RECLAIM_LOCKED`: 1 while somebody reclaims here.
    locked: AtomicU32,
    /// Pages of files that are left alone (`min_unmapped_pages`).
    pub(crate) min_unmapped: AtomicU64,
    /// Pages of reclaimable caches that are left alone (`min_slab_pages`).
    pub(crate) min_slab: AtomicU64,
}

/// The right to reclaim in one place, until dropped.
#[derive(Debug)]
pub struct Reclaiming<'a>(&'a ReclaimRecord);

impl ReclaimRecord {
    /// The right to reclaim here, unless somebody has it.
    pub fn try_lock(&self) -> Option<Reclaiming<'_>> {
        // Acquire: pairs with the Release in the drop of `Reclaiming`, so that the next reclaimer
        // sees what this one left.
        let held = self.locked.swap(1, Ordering::Acquire);
        (held == 0).then_some(Reclaiming(self))
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `ReclaimRecord::try_lock`.
        self.0.locked.store(0, Ordering::Release);
    }
}
