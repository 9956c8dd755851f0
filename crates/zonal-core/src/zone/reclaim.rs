//! Reclaim's state of each zone and each node: its lock, the sizes below which it does not begin
//! (LB G.2, G.3), and counts of pages scanned and freed. The rules are in the layer `reclaim`.

use crate::platform::reclaimer::{By, Shrunk};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};

/// One zone's or node's record.
#[derive(Debug, Default)]
pub struct ReclaimRecord {
    /// `RECLAIM_LOCKED`: 1 while a thread reclaims here.
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
    /// The right to reclaim here, if it is free.
    pub fn try_lock(&self) -> Option<Reclaiming<'_>> {
        // Acquire: pairs with the Release in the drop of `Reclaiming`, so that the next reclaimer
        // sees this one's writes.
        let held = self.locked.swap(1, Ordering::Acquire);
        // Only the thread that reclaims makes one: dropping it ends the right to.
        (held == 0).then(|| Reclaiming(self))
    }
}

impl ReclaimRecord {
    /// The thread that reclaims here is gone without having released the right.
    pub(crate) fn abandon(&self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.locked.store(0, Ordering::Release);
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `ReclaimRecord::try_lock`.
        self.0.locked.store(0, Ordering::Release);
    }
}

/// Pages that reclaim looked at and freed in one node.
#[derive(Debug, Default)]
pub struct ScanCounters {
    background: Counted,
    direct: Counted,
    node: Counted,
}

#[derive(Debug, Default)]
struct Counted {
    scanned: AtomicU64,
    reclaimed: AtomicU64,
    slab: AtomicU64,
}

/// The values of [`ScanCounters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scans {
    /// By the background reclaimer (`pgscan_kswapd`, `pgsteal_kswapd`).
    pub background: Shrunk,
    /// By requests for which no zone had room.
    pub direct: Shrunk,
    /// By node reclaim. Kernels count it as direct reclaim.
    pub node: Shrunk,
}

// Relaxed throughout: single counts, for reports.
impl ScanCounters {
    /// Counts the result of a pass.
    pub(crate) fn count(&self, by: By, came: Shrunk) {
        let to = match by {
            By::Background => &self.background,
            By::Direct => &self.direct,
            By::NodeReclaim => &self.node,
        };
        to.scanned.fetch_add(came.scanned, Relaxed);
        to.reclaimed.fetch_add(came.reclaimed, Relaxed);
        to.slab.fetch_add(came.slab, Relaxed);
    }

    /// The counts now.
    pub fn read(&self) -> Scans {
        let of = |counted: &Counted| Shrunk {
            scanned: counted.scanned.load(Relaxed),
            reclaimed: counted.reclaimed.load(Relaxed),
            slab: counted.slab.load(Relaxed),
        };
        Scans { background: of(&self.background), direct: of(&self.direct), node: of(&self.node) }
    }
}
