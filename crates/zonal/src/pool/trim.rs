//! Free 2 MiB blocks back to the operating system. Their addresses stay the pool's: the next owner
//! of such a block pays for its pages again.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use zonal_core::types::{Order, PAGE_SIZE, PAGEBLOCK_ORDER, Pfn};

use super::{Pool, Shared};
use crate::sys::map::MapError;

/// Why memory could not be given back.
#[derive(Clone, Copy, Debug)]
pub enum TrimError {
    /// The operating system refused.
    Os(MapError),
}

impl fmt::Display for TrimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrimError::Os(error) = self;
        write!(f, "free memory could not be given back: {error}")
    }
}

impl std::error::Error for TrimError {}

impl Pool {
    /// Gives back `bytes` of resident memory, if there are as many, in free blocks of 2 MiB and
    /// more; the last one may be more than was missing. Returns the bytes given back. Empty per-CPU
    /// pcps first ([`Pool::drain_all`]) to find more.
    ///
    /// # Errors
    /// [`TrimError`]; blocks returned before it stay returned.
    pub fn trim(&self, bytes: usize) -> Result<usize, TrimError> {
        self.shared.trim(bytes)
    }

    /// Bytes given back so far.
    pub fn trimmed_bytes(&self) -> u64 {
        self.shared.trimmed_bytes.load(Relaxed)
    }
}

impl Shared {
    pub(super) fn trim(&self, bytes: usize) -> Result<usize, TrimError> {
        let _one = self.trimming.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut given = 0;
        for zone in self.allocator.zones() {
            for order in [Order::MAX, PAGEBLOCK_ORDER] {
                // Each block is looked at once: it goes back to the end of its list.
                let blocks = self.allocator.zone_stats(zone.id()).nr_free[order.index()];
                for _ in 0..blocks {
                    if given >= bytes {
                        return Ok(given);
                    }
                    let Some(pfn) = self.allocator.isolate_block(zone.id(), order) else { break };
                    let done = self.release(pfn, order);
                    self.allocator.restore_block(zone.id(), pfn, order);
                    given += done?;
                }
            }
        }
        Ok(given)
    }

    /// Releases a block that only this call can see. Returns its resident bytes.
    pub(super) fn release(&self, pfn: Pfn, order: Order) -> Result<usize, TrimError> {
        if !self.memory.is_own() {
            // What the program brought stays as it is.
            return Ok(0);
        }
        if self.poison.is_some() {
            // A released page reads as zero, which the check would take for a write.
            return Ok(0);
        }
        let start = pfn.0 as usize * PAGE_SIZE;
        let range = start..start + order.bytes();
        let resident = self.memory.resident_bytes(range.clone()).map_err(TrimError::Os)?;
        if resident == 0 {
            return Ok(0);
        }
        // SAFETY: (1) the block is out of the buddy and on no list, so its memory is not in use;
        // nobody has it behind the page tables' back (RESIDENT-1).
        let released = self.residency.release(|| unsafe { self.memory.release(range) });
        let Some(released) = released else { return Ok(0) };
        released.map_err(TrimError::Os)?;
        self.trimmed_bytes.fetch_add(resident as u64, Relaxed);
        Ok(resident)
    }
}
