//! The walk over a zonelist (LB D.4): the first zone that may spare the block gives it.

use super::Search;
use super::walk::{Seen, Visit, Walk};
#[cfg(feature = "history")]
use super::zlc::{first_zone, original, rounds};
use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::policy::walk::ZonelistCaching;
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
        walk.take(zone)
    }
}

impl<'s, 'a, P: Platform> Search<'s, 'a, P> {
    /// A block, if a zone can spare one (LB D.4).
    pub fn scan(&self, flags: AllocFlags) -> Option<Pfn> {
        self.scan_with(&mut Take, flags)
    }

    /// The walk, as often as it takes.
    pub fn scan_with<V: Visit<'a, P>>(
        &self,
        visit: &mut V,
        mut flags: AllocFlags,
    ) -> Option<V::Block> {
        let preferred = self.preferred();
        loop {
            let walk = Walk { search: self, flags, preferred };
            match once(&walk, visit) {
                Ok(block) => return Some(block),
                // Nodes that were passed are asked after all.
                Err(()) if flags.contains(AllocFlags::PASS_RECLAIMING) => {
                    flags = flags.without(AllocFlags::PASS_RECLAIMING);
                }
                // Without a block, or on the way to another node: types may be mixed after all.
                Err(()) if flags.contains(AllocFlags::NOFRAGMENT) => {
                    flags = flags.without(AllocFlags::NOFRAGMENT);
                }
                Err(()) => return None,
            }
        }
    }
}

#[inline]
fn once<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
) -> Result<V::Block, ()> {
    visit.see(Seen::Starts(walk.flags));
    match walk.search.on.policy().zonelist.cache {
        ZonelistCaching::None => plain(walk, visit),
        #[cfg(feature = "history")]
        ZonelistCaching::Original | ZonelistCaching::Reconsider => {
            rounds(walk, visit, |visit, cached, at| original(walk, visit, cached, at))
        }
        #[cfg(feature = "history")]
        ZonelistCaching::FirstZone | ZonelistCaching::FirstZoneReconsider => {
            rounds(walk, visit, |visit, cached, at| first_zone(walk, visit, cached, at))
        }
    }
}

/// The walk since 4.4: every zone is looked at, every time.
fn plain<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
) -> Result<V::Block, ()> {
    let mut dirty = None;
    for (_, zone) in walk.search.usable() {
        if walk.passes_dirty(visit, zone, &mut dirty) {
            continue;
        }
        walk.stays_on_node(visit, zone)?;
        if walk.passes_reclaiming(visit, zone) {
            continue;
        }
        if !walk.may_take(visit, zone) && !walk.node_reclaim_makes_room(visit, zone) {
            continue;
        }
        if let Some(block) = visit.serve(walk, zone) {
            return Ok(block);
        }
    }
    Err(())
}
