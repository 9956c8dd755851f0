//! One block back (LB E.7): onto the CPU's store of the page's zone, or to the zone's buddy.

use super::{Allocator, FreeError};
use crate::buddy::{FreeCause, FreeFlags};
use crate::frame::{PageState, PageWord, StoreId};
use crate::pcp::closed::Closed;
use crate::pcp::store::Pcp;
use crate::pcp::tune::{self, BulkFree};
use crate::platform::Platform;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::types::{Order, Pfn};
use crate::zone::state::{LockedZone, Zone};

impl<'a, P: Platform> Allocator<'a, P> {
    /// Takes back the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, unless exactly this block is handed out.
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_to(pfn, order, false)
    }

    /// As [`free`](Self::free), for a block that is in no cache: where the policy has cold lists it
    /// goes there (LB E.11).
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_cold(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_to(pfn, order, true)
    }

    #[inline]
    fn free_to(&self, pfn: Pfn, order: Order, cold: bool) -> Result<(), FreeError> {
        let zone = self.zone_of(pfn).ok_or(FreeError::Foreign(pfn))?;
        let frame = self.frame(zone, pfn);
        let cpu = self.platform.cpu();
        let pcp = self.store_for(zone.id, cpu, cold);
        let list = self.map.get(order, self.pageblock_type(zone, pfn));
        // Two frees of one block at the same time: the exchange lets one of them through.
        let held = self.claim_word(zone, pfn, frame, order)?;
        if let Some(list) = list
            && let Some(mut closed) = pcp.try_close(&self.platform, zone, self.slots)
        {
            self.words[frame as usize].store(pcp.lists[list].cached, Relaxed);
            if self.push_block(zone, &mut closed, list, frame, order) {
                return Ok(());
            }
            self.words[frame as usize].store(held.0, Relaxed);
        }
        self.free_direct(zone, pcp, pfn, order);
        Ok(())
    }

    /// Checks that the block is handed out with this order, and takes it out of the owner's hands.
    pub(super) fn claim_word(
        &self,
        zone: &Zone,
        pfn: Pfn,
        frame: u32,
        order: Order,
    ) -> Result<PageWord, FreeError> {
        let word = &self.words[frame as usize];
        let held = PageWord(word.load(Relaxed));
        let zone = zone.id;
        match held.state() {
            PageState::Allocated { order: actual, mt, .. } if actual == order => {
                // The word between the owner's hands and a list: held by nobody's CPU.
                let moving = PageWord::cached(order, mt, MOVING).0;
                // AcqRel, Acquire on failure: pairs with the exchange of a racing free.
                match word.compare_exchange(held.0, moving, AcqRel, Acquire) {
                    Ok(_) => Ok(held),
                    Err(_) => Err(FreeError::DoubleFree { pfn, order, zone }),
                }
            }
            PageState::Allocated { order: actual, .. } => {
                Err(FreeError::WrongOrder { pfn, given: order, actual, zone })
            }
            PageState::Free { order, .. } | PageState::Cached { order, .. } => {
                Err(FreeError::DoubleFree { pfn, order, zone })
            }
            PageState::None => Err(FreeError::NotABlock { pfn, order, zone }),
            PageState::Corrupt(_) => Err(FreeError::Corrupt(pfn)),
        }
    }

    /// Pushes a block whose word says it is on this store, and drains what is too much.
    /// `false`: the stack is full and could not be drained, nothing was done.
    pub(super) fn push_block(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        list: usize,
        frame: u32,
        order: Order,
    ) -> bool {
        let pcp = closed.pcp;
        let params = self.params(zone, pcp);
        let (before, pages) = (closed.state_without_factor(), order.pages() as u32);
        if closed.cover(closed.count() + pages) < closed.count() + pages {
            // The budget is used up: what others may need more goes.
            let bulk = BulkFree { pages: params.batch.max(pages), forced: false };
            self.give_back(zone, closed, bulk, list);
            if closed.cover(closed.count() + pages) < closed.count() + pages {
                return false;
            }
        }
        if !closed.push(list, frame) {
            pcp.events.overflows.fetch_add(1, Relaxed);
            self.drain_pages(zone, closed, params.bulk_max(), list);
            if !closed.push(list, frame) {
                return false;
            }
        }
        let mut state = tune::PcpState { count: closed.count() - pages, ..before };
        let bulk = tune::commit_free(&mut state, &params, self.pressure(zone), order);
        closed.set_state_without_factor(&state);
        if let Some(bulk) = bulk {
            pcp.events.forced.fetch_add(u64::from(bulk.forced), Relaxed);
            self.give_back(zone, closed, bulk, list);
            self.clear_below_high(zone);
        }
        // So that pushes to come need no decision.
        closed.cover(closed.high());
        true
    }

    /// Frees a block to its zone's buddy. The caller has taken its word out of the owner's hands.
    pub(super) fn free_direct(&self, zone: &'a Zone, pcp: &Pcp, pfn: Pfn, order: Order) {
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let Some(idx) = frames.index(pfn) else { return };
        match buddy.free_block(frames, idx, order, FreeFlags::default()) {
            Ok(()) => {
                locked.account(self.free_diff(pcp), order.pages() as i64, 1);
                pcp.events.direct_freed.fetch_add(order.pages(), Relaxed);
            }
            Err(error) => {
                debug_assert!(matches!(error.cause, FreeCause::Corrupt), "{error}");
                pcp.events.double_frees.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Store of a word that is on its way to a list: no machine has this CPU.
const MOVING: StoreId =
    StoreId { cpu: crate::types::CpuId(crate::machine::CPUS_MAX as u32), rank: 0 };
