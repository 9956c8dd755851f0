//! The walk over a zonelist (LB D.4): the first zone that may spare the block gives it.

use super::Search;
use super::walk::{Dirty, Seen, Visit, Walk, fewer};
#[cfg(feature = "history")]
use super::zlc::scan_cached;
use crate::gfp::AllocFlags;
use crate::platform::{Platform, Step};
#[cfg(feature = "history")]
use crate::policy::walk::ZonelistCaching;
use crate::sync::Ordering::Relaxed;
use crate::types::Pfn;
use crate::zone::state::Zone;

/// Takes blocks.
pub struct Take;

impl<'a, P: Platform> Visit<'a, P> for Take {
    type Block = Pfn;
    const DRY: bool = false;

    #[inline]
    fn see(&mut self, _: Seen<'a>) {}
    #[inline]
    fn serve(&mut self, walk: &Walk<'_, '_, 'a, P>, zone: &'a Zone) -> Option<Pfn> {
        loop {
            match walk.search.take(zone, walk.flags) {
                None if walk.zone_ops(zone).grew(walk.search.order) => {}
                taken => return taken,
            }
        }
    }
}

/// Where a walk is.
pub struct Place {
    /// The rights it still has.
    flags: AllocFlags,
    /// Position of the next zone.
    at: u32,
    dirty: Dirty,
}

impl<'s, 'a, P: Platform> Search<'s, 'a, P> {
    /// A block, if a zone can spare one (LB D.4).
    #[inline]
    pub fn scan(&self, flags: AllocFlags) -> Option<Pfn> {
        self.scan_with(&mut Take, flags)
    }

    /// The walk, as often as it takes. The zone is asked for its block here, not below the walk.
    #[inline]
    pub fn scan_with<V: Visit<'a, P>>(&self, visit: &mut V, flags: AllocFlags) -> Option<V::Block> {
        #[cfg(feature = "history")]
        if self.on.policy().zonelist.cache != ZonelistCaching::None {
            return scan_cached(self, visit, flags);
        }
        let mut place = Place::first(visit, flags);
        loop {
            let zone = match place.at == 0 && self.first_passes(place.flags) {
                true => {
                    place.at = 1;
                    if !V::DRY {
                        self.on.platform.cost(Step::Scan(self.preferred.id));
                    }
                    self.preferred
                }
                false => place.next_zone(self, visit)?,
            };
            let walk = Walk { search: self, flags: place.flags };
            if let Some(block) = visit.serve(&walk, zone) {
                return Some(block);
            }
        }
    }

    /// Whether the first zone passes every test of the walk at a look, as it most often does. It is
    /// on its own node, so types kept apart do not matter.
    #[inline]
    fn first_passes(&self, flags: AllocFlags) -> bool {
        !flags.intersects(AllocFlags::SPREAD_DIRTY | AllocFlags::PASS_RECLAIMING)
            && self.preferred.fast.load(Relaxed) & 1 << self.order.get() != 0
    }
}

impl Place {
    /// A walk begins.
    fn first<'a, P: Platform, V: Visit<'a, P>>(visit: &mut V, flags: AllocFlags) -> Place {
        visit.see(Seen::Starts(flags));
        Place { flags, at: 0, dirty: None }
    }

    /// The next zone that may spare the block; since 4.4 every zone is looked at, every time.
    #[inline(never)]
    fn next_zone<'a, P: Platform, V: Visit<'a, P>>(
        &mut self,
        search: &Search<'_, 'a, P>,
        visit: &mut V,
    ) -> Option<&'a Zone> {
        loop {
            let walk = Walk { search, flags: self.flags };
            while let Some(id) = search.zonelist.get(self.at as usize) {
                self.at += 1;
                let zone = search.on.zone(*id);
                if !search.allows(zone) || walk.passes_dirty(visit, zone, &mut self.dirty) {
                    continue;
                }
                if walk.stays_on_node(visit, zone).is_err() {
                    break;
                }
                if walk.passes_reclaiming(visit, zone) {
                    continue;
                }
                if walk.may_take(visit, zone) || walk.node_reclaim_makes_room(visit, zone) {
                    return Some(zone);
                }
            }
            *self = Place::first(visit, fewer(self.flags)?);
        }
    }
}
