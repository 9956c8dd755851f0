//! Where a pool's bytes are: each has exactly one reason.

use std::fmt;

use zonal_core::frame::{PageState, PcpId};
use zonal_core::pcp::depot::DEPOT;
use zonal_core::platform::reclaimer::{Reclaimer, Unit};
use zonal_core::types::{NodeId, PAGE_SIZE};

use super::{Pool, Shared};
use crate::sys::map::MapError;

/// Holders of a pool's memory and metadata, in bytes. The lines sum to [`total`](Self::total),
/// which is all that the pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HeldReport {
    /// Handed out, to others than registered consumers.
    pub users: u64,
    /// Handed out to registered consumers, as they say: they would give it up.
    pub consumers: u64,
    /// On per-CPU lists, and free in pageblocks that CPUs own.
    pub lists: u64,
    /// In depots, where lists leave what others may need.
    pub depots: u64,
    /// Free, and in memory.
    pub free_resident: u64,
    /// Free, and not in memory: never touched, or given back to the operating system.
    pub free_absent: u64,
    /// Kept out of use by the budget.
    pub withheld: u64,
    /// Not online yet, or in transit between lists: in a forked child permanently, if a thread of
    /// the parent had it in hands. Those are known from the first [`Pool::validate`] on, and until
    /// then count as on lists.
    pub elsewhere: u64,
    /// Metadata, as reserved; untouched parts are not in memory.
    pub metadata: u64,
    /// Blocks, not bytes, that could not be freed ([`Pool::misuses`]). No part of the sum.
    pub misuses: u64,
}

impl HeldReport {
    /// Each line, by its name.
    pub fn lines(&self) -> [(&'static str, u64); 9] {
        [
            ("users", self.users),
            ("consumers", self.consumers),
            ("per-CPU lists", self.lists),
            ("depots", self.depots),
            ("free, in memory", self.free_resident),
            ("free, not in memory", self.free_absent),
            ("above the budget", self.withheld),
            ("elsewhere", self.elsewhere),
            ("metadata", self.metadata),
        ]
    }

    /// The sum of all lines: the pool and its metadata.
    pub fn total(&self) -> u64 {
        self.lines().iter().map(|(_, bytes)| bytes).sum()
    }

    /// What counts against the budget.
    pub fn in_use(&self) -> u64 {
        self.users + self.consumers + self.lists + self.depots
    }
}

impl fmt::Display for HeldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in self.lines() {
            writeln!(f, "{name:<20} {bytes:>16}")?;
        }
        write!(f, "{:<20} {:>16}", "total", self.total())?;
        match self.misuses {
            0 => Ok(()),
            blocks => write!(f, "\n{blocks} blocks could not be freed: see Pool::misuses"),
        }
    }
}

impl Pool {
    /// Where the pool's bytes are now. Reads each block's word and asks the kernel which pages are
    /// resident: some milliseconds for each GiB. Exact while nothing runs; at any time each byte is
    /// counted once.
    pub fn held(&self) -> HeldReport {
        self.shared.held()
    }
}

impl Shared {
    fn held(&self) -> HeldReport {
        let mut report =
            HeldReport { metadata: self.records.bytes() as u64, ..HeldReport::default() };
        report.misuses = self.misuses.count();
        let mut handed_out = 0;
        let mut frame = 0;
        while frame < self.pages {
            let (order, slot) = match self.allocator.frame_state(frame) {
                PageState::Free { order, .. } => (order.get(), None),
                // On its way back to the system: nobody's, and in no list.
                PageState::Cached { order, pcp: PcpId::ISOLATED, .. } => (order.get(), None),
                PageState::Cached { order, pcp: DEPOT, .. } => {
                    (order.get(), Some(&mut report.depots))
                }
                PageState::Cached { order, .. } => (order.get(), Some(&mut report.lists)),
                PageState::Allocated { order, .. } | PageState::Range { order, .. } => {
                    (order.get(), Some(&mut handed_out))
                }
                PageState::None | PageState::Corrupt(_) => (0, Some(&mut report.elsewhere)),
            };
            let end = (frame + (1 << order)).min(self.pages);
            let range = frame * PAGE_SIZE..end * PAGE_SIZE;
            let bytes = range.len() as u64;
            match slot {
                Some(slot) => *slot += bytes,
                None => {
                    // What cannot be asked is taken to be there.
                    let resident: Result<usize, MapError> = self.memory.resident_bytes(range);
                    let resident = resident.map_or(bytes, |resident| resident as u64).min(bytes);
                    report.free_resident += resident;
                    report.free_absent += bytes - resident;
                }
            }
            frame = end;
        }
        let strays: u64 = self.allocator.zones().iter().map(|zone| zone.strays()).sum();
        let strays = (strays * PAGE_SIZE as u64).min(report.lists);
        report.lists -= strays;
        report.elsewhere += strays;
        // Their words say nothing (`zonal_core::pcp::owner`).
        let zones = self.allocator.zones().iter();
        let owned: u64 = zones.map(|zone| self.allocator.stats().owned_pages(zone.id())).sum();
        let owned = (owned * PAGE_SIZE as u64).min(report.elsewhere);
        report.elsewhere -= owned;
        report.lists += owned;
        report.withheld = (self.withheld_pages() * PAGE_SIZE as u64).min(handed_out);
        handed_out -= report.withheld;
        report.consumers = (self.consumers_pages() * PAGE_SIZE as u64).min(handed_out);
        report.users = handed_out - report.consumers;
        report
    }

    /// Pages that registered consumers say they hold.
    fn consumers_pages(&self) -> u64 {
        let consumers = self.allocator.platform().consumers();
        let of_node = |node: usize| {
            let held = consumers.holdings(Unit::Node(NodeId(node as u16)));
            held.file.saturating_add(held.slab)
        };
        (0..self.allocator.nodes().len()).map(of_node).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::types::Order;

    #[test]
    fn a_block_that_a_trim_has_out_is_in_no_list() {
        let builder = Pool::builder().size(8 << 20).background_reclaim(false);
        let pool = builder.refresh_every(None).build().unwrap();
        let (allocator, order) = (&pool.shared.allocator, Order::MAX);
        let zone = allocator.zones()[0].id();
        let before = pool.held();
        let block = allocator.isolate_block(zone, order).unwrap();
        let meanwhile = pool.held();
        assert!(allocator.restore_block(zone, block, order));
        assert_eq!((meanwhile.in_use(), meanwhile.total()), (before.in_use(), before.total()));
    }
}
