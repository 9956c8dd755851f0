//! What is done to one zone: its buddy under the zone lock, its depots, its counters.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `buddy` | blocks to and from the buddy | B, D.4 |
//! | `range` | frames in a row, taken and freed | |
//! | `depot` | the zone's depots emptied and counted | |
//! | `owned` | the pageblocks that CPUs own | |
//! | `counters` | the free-page counter near the watermarks | F.1, C.5 |
//! | `numa` | NUMA events, as readers see them | F.6, F.7 |

mod buddy;
mod counters;
mod depot;
mod numa;
mod owned;
mod range;
mod steady;

use super::plain::type_of;
use super::tables::Tables;
use crate::frame::Frames;
use crate::gfp::AllocFlags;
use crate::pcp::state::Pcp;
use crate::pcp::tune::Pressure;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::state::{BELOW_HIGH, LockedZone, RECLAIM_ACTIVE, Zone};
use crate::zone::watermark::Watermark;

pub(super) use depot::depot_word;
pub use numa::NumaEvents;
pub use steady::free_pages;

/// Flags of a zone whose pages are wanted in its buddy.
pub(super) const PRESSED: u32 = BELOW_HIGH | RECLAIM_ACTIVE;

/// A request as the walk over zones has prepared it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub order: Order,
    pub mt: Migratetype,
    pub flags: AllocFlags,
    /// The preferred zone, for NUMA events.
    pub preferred: ZoneId,
    /// The page need not be in a cache (LB E.11).
    pub cold: bool,
}

/// One zone of the tables.
#[derive(Debug)]
pub(super) struct ZoneOps<'s, 'a, P> {
    pub on: &'s Tables<'a, P>,
    pub zone: &'a Zone,
}

impl<P> Clone for ZoneOps<'_, '_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for ZoneOps<'_, '_, P> {}

impl<'s, 'a, P: Platform> ZoneOps<'s, 'a, P> {
    #[inline]
    pub fn new(on: &'s Tables<'a, P>, zone: &'a Zone) -> Self {
        ZoneOps { on, zone }
    }

    /// Takes the zone lock. A function of its own: many do, for longer than the call takes.
    #[inline(never)]
    pub fn lock(self) -> LockedZone<'s, P> {
        self.zone.lock(&self.on.platform, self.on.words, self.on.blocks, &self.on.epoch)
    }
    /// The zone's frames.
    pub fn frames(self) -> Frames<'a> {
        self.zone.frames(self.on.words, self.on.blocks)
    }
    /// The migratetype of the pageblock that a page of the zone is in.
    #[inline]
    pub fn pageblock_type(self, pfn: Pfn) -> Migratetype {
        let of = type_of(self.on.blocks, self.zone.block_shift, pfn);
        of.and_then(Migratetype::new).unwrap_or(Migratetype::Isolate)
    }

    /// A CPU's pcp.
    #[inline]
    pub fn pcp(self, cpu: CpuId) -> &'a Pcp {
        self.on.pcp(self.zone.id, cpu)
    }
    /// All pcps of the zone.
    pub fn pcps(self) -> impl Iterator<Item = &'a Pcp> + use<'s, 'a, P> {
        self.on.pcps_of(self.zone.id)
    }

    #[inline]
    pub fn pressure(self) -> Pressure {
        let flags = self.zone.fast.load(Relaxed);
        Pressure {
            below_high: flags & BELOW_HIGH != 0,
            reclaim_active: flags & RECLAIM_ACTIVE != 0,
        }
    }

    /// Sets a flag of the zone; the fast paths close until the next
    /// [`refresh_fast`](Self::refresh_fast).
    pub fn set_flag(self, flag: u32) {
        self.zone.set_flag(flag, &self.on.epoch);
    }

    /// Looks again which fast operations the zone lets pass (ZONE-3).
    pub fn refresh_fast(self) {
        self.zone.refresh_fast(&self.on.epoch);
    }

    /// After pages went back: the zone may be above its high watermark again (LB E.7).
    #[inline]
    pub fn clear_below_high(self) {
        if self.zone.has(BELOW_HIGH) {
            self.look_above_high();
        }
    }

    #[cold]
    #[inline(never)]
    fn look_above_high(self) {
        let zone = self.zone;
        let snapshot = zone.snapshot(ZoneKind::Movable);
        if snapshot.ok(Order::ZERO, zone.watermark(Watermark::High), AllocFlags::WMARK_MIN) {
            zone.clear_flag(BELOW_HIGH);
            self.refresh_fast();
        }
    }

    /// Tells every CPU that operations on the zone have something to decide. One that misses it
    /// goes on until its list is empty or full, or for 1024 pops.
    #[cold]
    #[inline(never)]
    pub fn slow_down(self) {
        self.pcps().for_each(Pcp::make_slow);
    }
}

/// A sum over all pcps of a zone, where nobody is in a hurry: one loop for all sums.
#[inline(never)]
pub(super) fn sum_of<P: Platform>(ops: ZoneOps<'_, '_, P>, of: fn(&Pcp) -> u64) -> u64 {
    ops.pcps().map(of).fold(0, u64::wrapping_add)
}
