//! Memory comes online, also after the allocator has begun to serve (LB A.8): then a node's highest
//! zone starts with its first section, and grows by sections, by workers and on demand, until
//! [`finish`](Growth::finish).
//!
//! ```text
//!   online_deferred ── first section ──► buddy      setup: sizes of the pcps, no watermarks yet
//!                      │ rest
//!   grow (workers) ────┤ claim, prepare ──► buddy
//!   walk (on demand) ──┘ under the zone lock ──► buddy
//!   finish: all of it, then watermarks, and by `pcp.recompute` the sizes of the pcps
//! ```
//! The sizes of the pcps follow from the few pages that were there at first. Up to 5.3 nothing
//! computed them again (LB E.11).

use core::fmt;
use core::ops::Range;

use super::limits::Limits;
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::buddy;
use crate::early::EarlyError;
use crate::platform::Platform;
use crate::sync::AtomicU32;
use crate::sync::Ordering::{Relaxed, Release};
use crate::types::{NodeId, Pfn, ZoneId, ZoneKind};
use crate::zone::deferred::{DEFERRED_MAX, SECTION_PAGES, first_deferred};
use crate::zone::state::Zone;

/// In `growing`: all memory is online, and watermarks and sizes are being computed.
const FINISHING: u32 = 1 << 31;

/// Why memory cannot come online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlineError {
    /// No such zone, or the range is not inside it.
    OutsideZone(ZoneId, u64, u64),
    /// Part of the range is there already, free or handed out: the block that was to be added, and
    /// what is in its way.
    InUse(buddy::FreeError),
    /// As many ranges of the zone were put off as there is room for
    /// ([`DEFERRED_MAX`](crate::zone::deferred::DEFERRED_MAX)).
    DeferredFull(ZoneId),
    /// Part of the range was put off and comes by [`Allocator::grow`](super::Allocator::grow), or
    /// by [`Allocator::finish_growth`](super::Allocator::finish_growth).
    PutOff(ZoneId, u64, u64),
    /// The early memory refused.
    Early(EarlyError),
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnlineError::OutsideZone(zone, start, end) => {
                write!(f, "pages {start:#x} to {end:#x} are not inside {zone:?}")
            }
            OnlineError::InUse(error) => write!(
                f,
                "memory cannot come online, not all of it is unused: the block at {:?}, {:?}: {}",
                error.pfn, error.order, error.cause
            ),
            OnlineError::PutOff(zone, start, end) => write!(
                f,
                "pages {start:#x} to {end:#x} of {zone:?}, or a part of them, were put off and \
                 come by themselves: call grow or finish_growth"
            ),
            OnlineError::Early(error) => write!(f, "early memory: {error}"),
            OnlineError::DeferredFull(zone) => write!(
                f,
                "{zone:?} has {DEFERRED_MAX} ranges that were put off already; call online for \
                 the others"
            ),
        }
    }
}

impl core::error::Error for OnlineError {}

/// A section that somebody has claimed, until this is dropped.
struct Claimed<'a>(&'a Zone);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.deferred.finish();
    }
}

/// Dropped where limits could not be computed, because the platform panicked: the next caller
/// does it, and nobody waits for this one.
struct Finishing<'a> {
    growing: &'a AtomicU32,
    zones: u32,
}

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        self.growing.store(self.zones, Relaxed);
    }
}

/// The memory of the machine, as it comes online.
#[derive(Debug)]
pub(super) struct Growth<'s, 'a, P> {
    on: &'s Tables<'a, P>,
}

impl<P> Clone for Growth<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Growth<'_, '_, P> {}

impl<'s, 'a, P: Platform> Growth<'s, 'a, P> {
    pub fn new(on: &'s Tables<'a, P>) -> Self {
        Growth { on }
    }

    fn zone_ops(self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, zone)
    }

    /// Hands never used pages of a zone to its buddy.
    pub fn online(self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        let (start, end) = (pages.start.0, pages.end.0);
        let outside = OnlineError::OutsideZone(zone, start, end);
        let zone = self.on.zones.get(zone.0 as usize).ok_or(outside)?;
        if start < zone.start_pfn || end > zone.start_pfn + zone.spanned || start > end {
            return Err(outside);
        }
        let ops = self.zone_ops(zone);
        ops.seed(&mut ops.lock(), pages).map_err(OnlineError::InUse)
    }

    /// Whether pages inside a zone could come [online](Self::online) now.
    pub fn look_unused(self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        let ops = self.zone_ops(&self.on.zones[usize::from(zone.0)]);
        ops.look_unused(&ops.lock(), &pages).map_err(OnlineError::InUse)
    }

    /// As [`online`](Self::online), for pages that were not put off: those come with their section,
    /// which could not come without them. What comes once the machine is set up is more than its
    /// description has.
    pub fn come(self, zone: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        if let Some(zone) = self.on.zones.get(zone.0 as usize) {
            if zone.deferred.has(&pages) {
                return Err(OnlineError::PutOff(zone.id, pages.start.0, pages.end.0));
            }
            // What was claimed before is online then, and none of the pages is claimed any more.
            self.zone_ops(zone).wait_for_growth(u32::MAX);
        }
        let count = pages.end.0.saturating_sub(pages.start.0);
        self.online(zone, pages)?;
        if self.on.sized.load(Relaxed) != 0 {
            self.on.zone(zone).come(count as i64);
        }
        Ok(())
    }

    /// The same, but of the highest zone of a node only the first section, and what precedes it
    /// where the zone does not start with one.
    pub fn online_deferred(self, id: ZoneId, pages: Range<Pfn>) -> Result<(), OnlineError> {
        let Some(zone) = self.on.zones.get(id.0 as usize) else { return self.online(id, pages) };
        let first = first_deferred(zone.start_pfn);
        if !self.is_highest(zone) || pages.end.0 <= first {
            return self.online(id, pages);
        }
        let (start, end) = (zone.start_pfn, zone.start_pfn + zone.spanned);
        if pages.start.0 < start || pages.end.0 > end || pages.start > pages.end {
            return Err(OnlineError::OutsideZone(id, pages.start.0, pages.end.0));
        }
        let first = Pfn(first.max(pages.start.0));
        let ops = self.zone_ops(zone);
        let mut locked = ops.lock();
        // What is there, or comes, is not to come once more.
        ops.look_unused(&locked, &pages).map_err(OnlineError::InUse)?;
        if !zone.deferred.put_off(first..pages.end) {
            return Err(OnlineError::DeferredFull(id));
        }
        self.on.growing.fetch_add(1, Relaxed);
        ops.seed(&mut locked, pages.start..first).map_err(OnlineError::InUse)
    }

    fn is_highest(self, zone: &Zone) -> bool {
        let kinds = self.on.zones_of(zone.node).map(Zone::kind);
        kinds.filter(|kind| *kind != ZoneKind::Device).max() == Some(zone.kind())
    }

    /// Adds `pages` to the managed ones that another owner holds and that never come to the buddy.
    pub fn withhold(self, zone: ZoneId, pages: u64) -> Result<(), OnlineError> {
        let outside = OnlineError::OutsideZone(zone, 0, pages);
        let zone = self.on.zones.get(zone.0 as usize).ok_or(outside)?;
        let _locked = self.zone_ops(zone).lock();
        zone.withhold(pages).ok_or(outside)
    }

    /// Pages of a node that are not online and not claimed.
    pub fn left(self, node: NodeId) -> u64 {
        self.on.zones_of(node).map(|zone| zone.deferred.left()).sum()
    }

    /// Brings the next section of a node online: claims it, lets the platform `prepare` it while no
    /// other thread can see it, and hands it to the buddy. Returns its pages; 0 when all is online.
    pub fn grow(self, node: NodeId, prepare: impl FnOnce(Range<Pfn>)) -> Result<u64, OnlineError> {
        let claim = |zone: &'a Zone| Some((zone, zone.deferred.claim(SECTION_PAGES)?));
        let mut zones = self.on.zones_of(node).filter(|zone| zone.deferred.left() > 0);
        let Some((zone, range)) = zones.find_map(claim) else {
            return Ok(0);
        };
        let pages = range.end.0 - range.start.0;
        // Who waits for the section waits no longer, also where `prepare` panics.
        let claimed = Claimed(zone);
        prepare(range.clone());
        let seeded = self.online(zone.id, range);
        drop(claimed);
        self.zone_ops(zone).clear_below_high();
        seeded.map(|()| pages)
    }

    /// Brings all memory online that is left, waits for what workers have claimed, and computes
    /// what follows from the memory. Does nothing if that has been done.
    pub fn finish(self) -> Result<(), OnlineError> {
        let on = self.on;
        for node in 0..on.nodes.len() {
            while self.grow(NodeId(node as u16), |_| {})? > 0 {}
        }
        while self.wait() {}
        // Relaxed: one caller goes on. The wait has made the others' sections visible.
        match on.growing.fetch_or(FINISHING, Relaxed) {
            0 => on.growing.store(0, Relaxed),
            zones if zones & FINISHING == 0 => {
                let finishing = Finishing { growing: &on.growing, zones };
                Limits::new(on).setup_grown();
                core::mem::forget(finishing);
                // Release: pairs with the Acquire in `Tables::is_growing`; all is computed by then.
                on.growing.store(0, Release);
            }
            _ => {
                while on.is_growing() {
                    on.platform.relax();
                }
            }
        }
        Ok(())
    }

    /// Waits for what workers have claimed. Returns whether there was any.
    fn wait(self) -> bool {
        let zones = self.on.zones.iter();
        zones.fold(false, |any, zone| any | self.zone_ops(zone).wait_for_growth(u32::MAX))
    }
}
