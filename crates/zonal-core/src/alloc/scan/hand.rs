//! What a walk over a zonelist does at the zones it comes to. Allocation does it ([`Taking`]);
//! [`explain`](crate::alloc::Allocator::explain) follows the same walk and only notes it, so that
//! what it tells cannot differ from what is done.

use super::Walk;
use crate::alloc::Allocator;
use crate::platform::Platform;
use crate::reclaim::NodeReclaim;
use crate::types::Pfn;
use crate::zone::state::Zone;
use crate::zonelist::cache::ZonelistCache;

/// The doing in a walk.
pub(in crate::alloc) trait Hand<'a, P: Platform> {
    /// What a walk is after.
    type Block;

    /// A walk begins.
    fn start(&mut self, walk: &Walk<'_, 'a>);
    /// Steps 5 and 6 of LB D.4: whether the zone may spare the block.
    fn may_take(&mut self, on: &Allocator<'a, P>, walk: &Walk<'_, 'a>, zone: &'a Zone) -> bool;
    /// Step d: node reclaim of a zone below its mark.
    fn reclaim(
        &mut self,
        on: &Allocator<'a, P>,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> NodeReclaim;
    /// A block of a zone that may spare it.
    fn serve(
        &mut self,
        on: &Allocator<'a, P>,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> Option<Self::Block>;
    /// The zone is passed without a look, because it was found full lately.
    fn pass(&mut self, walk: &Walk<'_, 'a>, zone: &'a Zone);
    /// The zone is passed without a look, because its node has as much dirty as it may.
    fn pass_dirty(&mut self, zone: &'a Zone);
    /// The walk ends in front of the zone, because types are kept apart.
    fn stop(&mut self, walk: &Walk<'_, 'a>, zone: &'a Zone);
    /// A position of the zonelist cache is full.
    fn mark(&mut self, cache: &ZonelistCache, position: usize);
    /// The zonelist cache comes into use.
    fn begin(&mut self, cache: &ZonelistCache, now_ns: u64);
}

/// The hand that takes blocks.
pub(in crate::alloc) struct Taking;

impl<'a, P: Platform> Hand<'a, P> for Taking {
    type Block = Pfn;

    fn start(&mut self, _: &Walk<'_, 'a>) {}
    #[inline]
    fn may_take(&mut self, on: &Allocator<'a, P>, walk: &Walk<'_, 'a>, zone: &'a Zone) -> bool {
        on.may_take(walk, zone)
    }
    #[cold]
    fn reclaim(
        &mut self,
        on: &Allocator<'a, P>,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> NodeReclaim {
        on.reclaim_for(zone, walk.ctx)
    }
    #[inline]
    fn serve(&mut self, on: &Allocator<'a, P>, walk: &Walk<'_, 'a>, zone: &'a Zone) -> Option<Pfn> {
        on.serve(walk, zone)
    }
    fn pass(&mut self, walk: &Walk<'_, 'a>, _: &'a Zone) {
        walk.ctx.cache.into_iter().for_each(ZonelistCache::count_pass);
    }
    fn pass_dirty(&mut self, _: &'a Zone) {}
    fn stop(&mut self, _: &Walk<'_, 'a>, _: &'a Zone) {}
    fn mark(&mut self, cache: &ZonelistCache, position: usize) {
        cache.mark(position);
    }
    fn begin(&mut self, cache: &ZonelistCache, now_ns: u64) {
        cache.setup(now_ns);
    }
}
