//! Memory that comes online after the allocator has begun to serve (LB A.8): a node's highest zone
//! starts with its first section, and grows by sections, by workers and on demand, until
//! [`finish_growth`](Allocator::finish_growth).
//!
//! ```text
//!   online_deferred ── first section ──► buddy      setup: sizes of the stores, no marks yet
//!                      │ rest
//!   grow (workers) ────┤ claim, prepare ──► buddy
//!   scan (on demand) ──┘ under the zone lock ──► buddy
//!   finish_growth: all of it, then marks, and by `pcp.recompute` the sizes of the stores
//! ```
//! The sizes of the stores follow from the few pages that were there at first. Up to 5.3 nothing
//! computed them again (LB E.11).

use core::ops::Range;

use super::Allocator;
use super::setup::OnlineError;
use crate::platform::Platform;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::types::{NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::deferred::{SECTION_PAGES, first_deferred};
use crate::zone::state::Zone;

/// In `growing`: all memory is there, and what follows from it is being computed.
const FINISHING: u32 = 1 << 31;

impl<'a, P: Platform> Allocator<'a, P> {
    /// As [`online`](Self::online), but of the highest zone of a node only the first section, and
    /// what precedes it where the zone does not start with one. The rest of the range follows by
    /// [`grow`](Self::grow) and on demand. Once for each such zone.
    ///
    /// # Errors
    /// As [`online`](Self::online), and [`OnlineError::DeferredTwice`].
    pub fn online_deferred(&self, id: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        let Some(zone) = self.zones.get(id.0 as usize) else { return self.online(id, pages) };
        let first = first_deferred(zone.start_pfn);
        if !self.is_highest(zone) || pages.end.0 <= first {
            return self.online(id, pages);
        }
        if zone.deferred.left() > 0 {
            return Err(OnlineError::DeferredTwice(id));
        }
        if pages.end.0 > zone.start_pfn + zone.spanned {
            return Err(OnlineError::OutsideZone(id, pages.start.0, pages.end.0));
        }
        let first = Pfn(first.max(pages.start.0));
        self.online(id, pages.start..first)?;
        zone.deferred.put_off(first..pages.end);
        self.growing.fetch_add(1, Relaxed);
        Ok(())
    }

    fn is_highest(&self, zone: &Zone) -> bool {
        let kinds = self.zones.iter().filter(|other| other.node == zone.node);
        let ordinary = kinds.map(Zone::kind).filter(|kind| *kind != ZoneKind::Device);
        ordinary.max() == Some(zone.kind())
    }

    /// Whether memory is still to come online.
    #[inline]
    pub fn is_growing(&self) -> bool {
        // Acquire: pairs with the Release in `finish_growth`.
        self.growing.load(Acquire) != 0
    }

    /// Pages of a node that are still to come online and that nobody has claimed.
    pub fn left_to_grow(&self, node: NodeId) -> u64 {
        let zones = self.zones.iter().filter(|zone| zone.node == node);
        zones.map(|zone| zone.deferred.left()).sum()
    }

    /// Brings the next section of a node online, for a worker: claims it, lets the home `prepare`
    /// it while nobody else can see it, and hands it to the buddy. Returns its pages; 0 when
    /// nothing is left. Workers may run in parallel, on one node too.
    ///
    /// # Errors
    /// [`OnlineError::InUse`] if part of it was in use already.
    pub fn grow(&self, node: NodeId, prepare: impl FnOnce(Range<Pfn>)) -> Result<u64, OnlineError> {
        let zones = self.zones.iter().filter(|zone| zone.node == node);
        let claim = |zone: &'a Zone| Some((zone, zone.deferred.claim(SECTION_PAGES)?));
        let Some((zone, range)) = zones.filter(|z| z.deferred.left() > 0).find_map(claim) else {
            return Ok(0);
        };
        prepare(range.clone());
        let pages = range.end.0 - range.start.0;
        let seeded = self.online(zone.id, range);
        zone.deferred.finish();
        self.clear_below_high(zone);
        seeded.map(|()| pages)
    }

    /// A zone has failed a request of this order: brings whole sections online until the block can
    /// be among them. Returns whether the zone grew, which it may have done by somebody else.
    #[cold]
    pub(super) fn grow_for(&self, zone: &'a Zone, order: Order) -> bool {
        if zone.deferred.left() == 0 {
            return false;
        }
        let before = zone.managed();
        // Claimed and freed in one hold of the lock: nobody can see the pages missing.
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        if zone.managed() > before {
            return true;
        }
        let pages = order.pages().next_multiple_of(SECTION_PAGES);
        let Some(range) = zone.deferred.take(pages) else { return false };
        let seeded = self.seed(zone, &mut locked, range);
        drop(locked);
        self.clear_below_high(zone);
        seeded.is_ok()
    }

    /// Waits while workers have claimed memory of these zones that is not there yet. Returns
    /// whether there was any.
    pub(super) fn wait_for_growth(&self, zones: impl Iterator<Item = &'a Zone>, most: u32) -> bool {
        let claimed = |zone: &&Zone| zone.deferred.is_claimed();
        let mut waited = false;
        for zone in zones.filter(claimed) {
            waited = true;
            (0..most)
                .take_while(|_| zone.deferred.is_claimed())
                .for_each(|_| self.platform.relax());
        }
        waited
    }

    /// Brings all memory online that is left, waits for what workers have claimed, and computes
    /// what follows from the memory: marks, reserves, thresholds, and if `pcp.recompute` says so
    /// the sizes of the per-CPU stores. Does nothing if that has been done.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub fn finish_growth(&self) -> Result<(), OnlineError> {
        for node in 0..self.nodes.len() {
            while self.grow(NodeId(node as u16), |_| {})? > 0 {}
        }
        while self.wait_for_growth(self.zones.iter(), u32::MAX) {}
        // Relaxed: one caller goes on. What the others brought online it has seen in the wait.
        match self.growing.fetch_or(FINISHING, Relaxed) {
            0 => self.growing.store(0, Relaxed),
            zones if zones & FINISHING == 0 => {
                self.setup_grown();
                // Release: pairs with the Acquire in `is_growing`; all is computed by then.
                self.growing.store(0, Release);
            }
            _ => {
                while self.is_growing() {
                    self.platform.relax();
                }
            }
        }
        Ok(())
    }
}
