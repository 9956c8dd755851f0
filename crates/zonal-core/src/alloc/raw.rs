//! The records of an allocator for who writes them himself: to rebuild a recorded kernel's lists
//! page by page.
//!
//! What is written here is not checked: it says who has which page. So the way in is `unsafe`, and
//! the rest of the allocator has no function that gives it away.
#![allow(unsafe_code)]

use super::limits::Limits;
use super::tables::Tables;
use super::{Allocator, setup};
use crate::machine::{Machine, MachineError, Metadata};
use crate::pcp::closed::Closed;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::{AtomicU8, AtomicU64};
use crate::types::{CpuId, ZoneId};
use crate::zone::state::LockedZone;

/// The records of an allocator, to be written.
///
/// Safe code does not get them:
///
/// ```compile_fail,E0133
/// use zonal_core::alloc::{Allocator, Raw};
/// use zonal_core::frame::PageWord;
/// use zonal_core::platform::Platform;
///
/// fn make_free<P: Platform>(allocator: &Allocator<'_, P>) {
///     let locked = Raw::new(allocator).lock_zone(0).unwrap();
///     locked.frames.store(0, PageWord::NONE);
/// }
/// ```
#[derive(Debug)]
pub struct Raw<'s, 'a, P> {
    on: &'s Tables<'a, P>,
}

impl<P> Clone for Raw<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Raw<'_, '_, P> {}

impl<'s, 'a, P: Platform> Raw<'s, 'a, P> {
    /// The allocator's records, to be written.
    ///
    /// # Safety
    /// For as long as the result, a copy of it, or anything that one of them gave is used:
    /// 1. A page that is in somebody's hands is written as free, or as on a list, by its owner
    ///    alone, who gives it up by that; and what is written as free or on a list is nobody's
    ///    and memory of the zone. No page is in two blocks, or twice on lists.
    /// 2. Nothing else uses the allocator while records contradict each other.
    pub unsafe fn new(of: &'s Allocator<'a, P>) -> Raw<'s, 'a, P> {
        Raw { on: &of.tables }
    }
    /// Takes the lock of the `zone`-th zone: no owner of a block is asked. `None`: there is no such
    /// zone. Whoever takes a block keeps the count of free pages ([`LockedZone::account`]); a
    /// thread that has the lock already waits for ever, and everybody for a lock that is forgotten.
    pub fn lock_zone(self, zone: usize) -> Option<LockedZone<'s, P>> {
        let Tables { zones, platform, words, blocks, epoch, .. } = self.on;
        Some(zones.get(zone)?.lock(platform, words, blocks, epoch))
    }
    /// Closes a pcp. A range that is parked there is on no list and stays as it is. `None`: there
    /// is no such pcp, somebody has it closed, this thread perhaps, or the platform cannot fence
    /// the CPU.
    pub fn close(self, zone: ZoneId, cpu: CpuId) -> Option<Closed<'a>> {
        let on = self.on;
        let known = on.has_zone(zone) && on.has_cpu(cpu);
        let pcp = known.then(|| on.pcp(zone, cpu))?;
        pcp.try_close(&on.platform, on.zone(zone), on.slots)
    }
    /// Sizes of all pcps as a kernel computes them while zones, in their order, are boosted by so
    /// many pages more (LB E.4). The boosts are as before afterwards: in a kernel they pass, and
    /// the sizes stay until it computes them again.
    pub fn size_boosted(self, boosts: &[u64]) {
        Limits::new(self.on).set_sizes_boosted(boosts);
    }
    /// The words of all frames, zone by zone (`Zone::frame_base`).
    pub fn words(self) -> &'a [AtomicU64] {
        self.on.words
    }
    /// The types of all pageblocks, zone by zone.
    pub fn blocks(self) -> &'a [AtomicU8] {
        self.on.blocks
    }
}

/// As [`Allocator::new`], over records in their default state, as [`Layout::carve`] and
/// [`Layout::carve_zeroed`](crate::machine::Layout::carve_zeroed) leave them: none is looked at
/// before it is used. Where the system makes zeros when they are first touched, as behind `mmap`,
/// words of pages that nobody asks for never come.
///
/// [`Layout::carve`]: crate::machine::Layout::carve
///
/// # Safety
/// 1. Every record is in its default state, and every page word is zero. Another word says who has
///    its page, and another record where its pages are: they would have two owners.
///
/// # Errors
/// As [`Allocator::new`].
pub unsafe fn new_over_fresh<'a, P: Platform>(
    machine: &Machine<'a>,
    policy: Policy,
    metadata: Metadata<'a>,
    platform: P,
) -> Result<Allocator<'a, P>, MachineError> {
    setup::new_over_fresh(machine, policy, metadata, platform)
}

#[cfg(test)]
impl<'a, P: Platform> Allocator<'a, P> {
    /// As [`Raw::new`], in a test, which keeps its contract.
    pub(super) fn raw_of_test(&self) -> Raw<'_, 'a, P> {
        Raw { on: &self.tables }
    }
}
