//! One request: what follows from it, and the search for a block that serves it (LB D.3 to D.5).
//!
//! | file | does | LB |
//! |--|--|--|
//! | `walk` | one walk over the zonelist, and what it asks of each zone | D.4 |
//! | `scan` | the walk as it is since 4.4 | D.4 |
//! | `zlc` | the walk with the zonelist cache | G.5, G.6 |
//! | `slow` | what happens when the walk finds nothing | D.5 |
//! | `next` | what that asks its caller to do | |
//! | `direct` | direct reclaim | D.5, H.4, H.5 |
//! | `bulk` | many order-0 pages at once | D.9 |
//! | `range` | pages in a row, anywhere or at a place | |

mod bulk;
mod direct;
mod next;
mod range;
mod scan;
mod slow;
mod walk;
#[cfg(feature = "history")]
#[path = "../../history/alloc/search/zlc.rs"]
mod zlc;

use super::node_ops::NodeOps;
use super::request::{AllocError, Refusal, Request};
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::platform::reclaimer::Reclaimer;
#[cfg(feature = "history")]
use crate::policy::walk::ZonelistCaching;
use crate::policy::walk::{DirtySpread, NoFragment, ReclaimingNodes};
use crate::types::{Migratetype, NodeId, Order, ZoneId, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::{Watermark, ZoneSnapshot};
#[cfg(feature = "history")]
use crate::zonelist::cache::ZonelistCache;

pub(super) use slow::{reserve_flags, slow_flags};
pub(super) use walk::{Seen, Visit, Walk};

/// A request with everything derived from it that does not change while it is served (LB D.3).
#[derive(Debug)]
pub(super) struct Search<'s, 'a, P> {
    pub on: &'s Tables<'a, P>,
    pub order: Order,
    pub gfp: Gfp,
    pub mt: Migratetype,
    pub highest: ZoneKind,
    /// Zones that it may try, from the first one that it may use.
    pub zonelist: &'a [ZoneId],
    /// That one.
    pub preferred: &'a Zone,
    /// Position of that one on its node's list.
    #[cfg(feature = "history")]
    pub first: u32,
    pub nofragment: bool,
    /// Its page is about to be written to: nodes with much dirty are passed at first.
    pub spreads_dirty: bool,
    /// Its first walk passes nodes whose reclaimer is awake.
    pub passes_reclaiming: bool,
    /// The list's cache, where the policy has one and the request may leave its node (LB G.4).
    #[cfg(feature = "history")]
    pub cache: Option<&'a ZonelistCache>,
}

impl<P> Clone for Search<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Search<'_, '_, P> {}

impl<'s, 'a, P: Platform> Search<'s, 'a, P> {
    /// What follows from a request.
    pub fn new(on: &'s Tables<'a, P>, request: &Request) -> Result<Self, AllocError> {
        let Request { order, gfp, node } = *request;
        let refuse = |why| AllocError { order, why };
        let bad = || refuse(Refusal::BadGfp(gfp));
        let highest = gfp.highest_zone(on.kinds).ok_or_else(bad)?;
        let mt = gfp.migratetype(on.grouping()).ok_or_else(bad)?;
        let node = node.unwrap_or_else(|| on.node_of(on.platform.cpu()));
        if node.0 as usize >= on.nodes.len() {
            return Err(refuse(Refusal::NoNode { node, nodes: on.nodes.len() as u16 }));
        }
        let this_node = gfp.contains(Gfp::THISNODE);
        let zonelist = on.zonelist(node, this_node);
        let mut zones = zonelist.iter().map(|id| on.zone(*id)).enumerate();
        let usable = zones.find(|(_, zone)| zone.kind() <= highest);
        let (first, preferred) = usable.ok_or(refuse(Refusal::NoZone(node)))?;
        let zonelist = &zonelist[first..];
        let nofragment = on.grouping() && keeps_types_apart(on, preferred);
        let policy = &on.policy().zonelist;
        let spreads_dirty = policy.dirty == DirtySpread::Node && gfp.contains(Gfp::WRITE);
        let passes = policy.reclaiming == ReclaimingNodes::Passed;
        let passes_reclaiming = passes && !this_node && on.nodes.len() > 1;
        #[cfg(feature = "history")]
        let caches = policy.cache != ZonelistCaching::None && !this_node;
        #[cfg(feature = "history")]
        let cache = caches.then(|| &on.node(node).cache);
        Ok(Search {
            on,
            order,
            gfp,
            mt,
            highest,
            zonelist,
            preferred,
            #[cfg(feature = "history")]
            first: first as u32,
            nofragment,
            spreads_dirty,
            passes_reclaiming,
            #[cfg(feature = "history")]
            cache,
        })
    }

    pub fn zone_ops(&self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, zone)
    }
    fn node_ops(&self, node: NodeId) -> NodeOps<'s, 'a, P> {
        NodeOps::new(self.on, node)
    }

    fn allows(&self, zone: &Zone) -> bool {
        zone.kind() <= self.highest
    }
    /// The zones the request may use, each with its position on the list.
    #[cfg(feature = "history")]
    pub fn usable(&self) -> impl Iterator<Item = (usize, &'a Zone)> {
        let zones = self.zonelist.iter().map(|id| self.on.zone(*id));
        (self.first as usize..).zip(zones).filter(|(_, zone)| self.allows(zone))
    }
    /// The zones the request may use.
    pub fn allowed(&self) -> impl Iterator<Item = &'a Zone> {
        let mut at = 0;
        core::iter::from_fn(move || next_allowed(self, &mut at))
    }
    /// The request's zones, the first of each run of zones of one node (LB D.6).
    pub fn each_node(&self, mut first: impl FnMut(&'a Zone)) {
        let mut seen = None;
        for zone in self.allowed() {
            if seen.replace(zone.node) != Some(zone.node) {
                first(zone);
            }
        }
    }

    /// Flags of the first walk (LB D.3).
    pub fn first_flags(&self) -> AllocFlags {
        let mut flags = AllocFlags::WMARK_LOW;
        if self.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            flags |= AllocFlags::KSWAPD;
        }
        if self.nofragment {
            flags |= AllocFlags::NOFRAGMENT;
        }
        if self.spreads_dirty {
            flags |= AllocFlags::SPREAD_DIRTY;
        }
        if self.passes_reclaiming {
            flags |= AllocFlags::PASS_RECLAIMING;
        }
        flags
    }

    /// Whether the calling thread is reclaiming: then its requests ignore the watermarks (LB D.5).
    pub fn is_reclaiming(&self) -> bool {
        self.on.platform.reclaimer().is_some_and(Reclaimer::is_reclaiming)
    }

    /// Whether the zone is above the watermark asked for (LB D.4 step e).
    fn above_watermark(&self, zone: &Zone, flags: AllocFlags) -> bool {
        let watermark = zone.watermark(watermark_of(flags));
        zone.snapshot(self.highest).ok(self.order, watermark, flags)
    }

    /// Why the request cannot be served, from the last zone it may use.
    #[cold]
    #[inline(never)]
    pub fn refusal(&self, flags: AllocFlags) -> AllocError {
        let zone = self.allowed().last().unwrap_or(self.preferred);
        let free = self.zone_ops(zone).free_or_cached();
        let snapshot = ZoneSnapshot { free, ..zone.snapshot(self.highest) };
        let watermark = watermark_of(flags);
        let (id, node, kind) = (zone.id, zone.node, zone.kind());
        let free = snapshot.free.saturating_sub(snapshot.unusable(Order::ZERO, flags));
        let kept = snapshot.kept(self.order, &zone.watermarks(), watermark, flags);
        let needed = kept + self.order.pages() - 1;
        // A request that ignores the watermarks fails only for want of a block.
        let why = if free <= needed && !flags.contains(AllocFlags::NO_WATERMARKS) {
            Refusal::Watermark { zone: id, node, kind, watermark, free, needed }
        } else {
            Refusal::Fragmented { zone: id, node, kind, free: snapshot.free }
        };
        AllocError { order: self.order, why }
    }
}

/// The next zone that a request may use, from a position on. A function of its own: many go through
/// them, and none of those is quick.
#[inline(never)]
fn next_allowed<'a, P: Platform>(search: &Search<'_, 'a, P>, at: &mut usize) -> Option<&'a Zone> {
    loop {
        let zone = search.on.zone(*search.zonelist.get(*at)?);
        *at += 1;
        if search.allows(zone) {
            return Some(zone);
        }
    }
}

/// LB D.3 step 3: whether a first walk takes no block of another type.
#[inline]
fn keeps_types_apart<P: Platform>(on: &Tables<'_, P>, preferred: &Zone) -> bool {
    on.tunables.defrag_mode()
        || (on.policy().nofragment != NoFragment::Off && preferred.has_dma32_below)
}

/// The mark that flags ask for (LB D.2).
pub(super) fn watermark_of(flags: AllocFlags) -> Watermark {
    match flags.bits() & AllocFlags::WMARK_MASK {
        0 => Watermark::Min,
        1 => Watermark::Low,
        _ => Watermark::High,
    }
}
