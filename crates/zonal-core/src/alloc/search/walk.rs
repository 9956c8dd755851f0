//! One walk over a zonelist (LB D.4), and its tests of each zone.
//!
//! Allocation takes blocks ([`Take`](super::scan::Take)); [`explain`](crate::alloc::explain)
//! follows the same walk and only records it, so that an explanation cannot differ from the real
//! walk.

use super::{Search, watermark_of};
use crate::alloc::cpu_ops::CpuOps;
use crate::alloc::zone_ops::{Want, ZoneOps};
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::{Platform, Step};
use crate::reclaim::NodeReclaim;
use crate::sync::Ordering::Relaxed;
use crate::types::{NodeId, Order, Pfn};
use crate::zone::state::{BELOW_HIGH, BOOSTED, Zone};
use crate::zone::watermark::Watermark;

/// One walk over the zonelist.
pub struct Walk<'w, 's, 'a, P> {
    pub search: &'w Search<'s, 'a, P>,
    pub flags: AllocFlags,
}

/// How a zone stands to its watermarks.
#[derive(Clone, Copy)]
struct Standing {
    /// It may spare the block.
    above: bool,
    /// It has just fallen below its high watermark.
    below_high: bool,
}

/// A walk's memory of the last node's dirty pages.
pub type Dirty = Option<(NodeId, bool)>;

/// A step of a walk.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A walk begins.
    Starts(AllocFlags),
    /// The zone cannot spare the block.
    BelowWatermark(&'a Zone),
    /// The zone, below its watermark, may be reclaimed (step d of LB D.4).
    NodeReclaim(&'a Zone),
    /// The zone is passed without a look, because it was found full lately.
    #[cfg(feature = "history")]
    Passed(&'a Zone),
    /// The zone is passed without a look, because its node has as much dirty as it may.
    Dirty(&'a Zone),
    /// The zone is passed without a look, because its node's reclaimer is awake.
    Reclaiming(&'a Zone),
    /// The walk ends in front of the zone, because types are kept apart.
    Stops(&'a Zone),
}

/// Who walks.
pub trait Visit<'a, P: Platform> {
    /// The goal of the walk.
    type Block;
    /// The walk decides as any other and changes nothing: what node reclaim and memory to come
    /// would give counts as nothing.
    const DRY: bool;

    /// A step was made.
    fn see(&mut self, step: Seen<'a>);
    /// A block of a zone that may spare it.
    fn serve(&mut self, walk: &Walk<'_, '_, 'a, P>, zone: &'a Zone) -> Option<Self::Block>;
}

impl<'s, 'a, P: Platform> Walk<'_, 's, 'a, P> {
    pub fn zone_ops(&self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.search.on, zone)
    }

    /// Step 2: whether the zone is passed, because its node has as much dirty as it may.
    #[inline]
    pub fn passes_dirty<V: Visit<'a, P>>(
        &self,
        visit: &mut V,
        zone: &'a Zone,
        known: &mut Dirty,
    ) -> bool {
        if !self.flags.contains(AllocFlags::SPREAD_DIRTY) {
            return false;
        }
        let too_dirty = match *known {
            Some((node, is)) if node == zone.node => is,
            _ => {
                let is = !self.search.node_ops(zone.node).may_dirty();
                known.insert((zone.node, is)).1
            }
        };
        if too_dirty {
            visit.see(Seen::Dirty(zone));
        }
        too_dirty
    }

    /// Whether the zone is passed, because its node's background reclaimer is at work: another node
    /// may have enough.
    #[inline]
    pub fn passes_reclaiming<V: Visit<'a, P>>(&self, visit: &mut V, zone: &'a Zone) -> bool {
        let passes = self.flags.contains(AllocFlags::PASS_RECLAIMING)
            && self.search.on.background(zone.node).is_awake();
        if passes {
            visit.see(Seen::Reclaiming(zone));
        }
        passes
    }

    /// Step 3: a walk that keeps types apart ends where the preferred node does.
    #[inline]
    pub fn stays_on_node<V: Visit<'a, P>>(&self, visit: &mut V, zone: &'a Zone) -> Result<(), ()> {
        let leaves = self.flags.contains(AllocFlags::NOFRAGMENT)
            && self.search.on.nodes.len() > 1
            && zone.node != self.search.preferred.node;
        if leaves {
            visit.see(Seen::Stops(zone));
            return Err(());
        }
        Ok(())
    }

    /// Steps 5 and 6 of LB D.4: the high watermark once, then the watermark asked for. A zone that
    /// grows is not asked again.
    #[inline]
    pub fn may_take<V: Visit<'a, P>>(&self, visit: &mut V, zone: &'a Zone) -> bool {
        let ignores = self.flags.contains(AllocFlags::NO_WATERMARKS);
        if V::DRY {
            let may = self.standing(zone).above || ignores;
            if !may {
                visit.see(Seen::BelowWatermark(zone));
            }
            return may;
        }
        self.search.on.platform.cost(Step::Scan(zone.id));
        let standing = self.standing(zone);
        if standing.below_high {
            self.zone_ops(zone).set_flag(BELOW_HIGH);
            self.zone_ops(zone).slow_down();
        }
        standing.above || self.zone_ops(zone).grew(self.search.order) || ignores
    }

    /// How the zone stands to its watermarks, for the request.
    #[inline]
    fn standing(&self, zone: &Zone) -> Standing {
        let fast = zone.fast.load(Relaxed);
        if fast & (1 << self.search.order.get()) != 0 {
            return Standing { above: true, below_high: false };
        }
        self.standing_by_watermarks(zone, fast)
    }

    /// The same, of a zone that does not say it at once. With a frame of its own: who asks goes on
    /// to take a block.
    #[cold]
    #[inline(never)]
    fn standing_by_watermarks(&self, zone: &Zone, fast: u32) -> Standing {
        let Walk { search, flags, .. } = *self;
        let order = search.order;
        let snapshot = zone.snapshot(search.highest);
        let watermarks = zone.watermarks();
        let asks_high = fast & BELOW_HIGH == 0 && search.on.fixed().tuning.watches_high_watermark();
        if asks_high && snapshot.ok_fast(order, &watermarks, Watermark::High, flags) {
            return Standing { above: true, below_high: false };
        }
        let above = snapshot.ok_fast(order, &watermarks, watermark_of(flags), flags);
        Standing { above, below_high: asks_high }
    }

    /// Whether the zone is near enough to be reclaimed rather than passed (LB D.4 step d).
    pub fn reclaims(&self, zone: &Zone) -> bool {
        let on = self.search.on;
        let distance = || on.distance(self.search.preferred.node, zone.node);
        on.reclaim.is_on() && on.reclaim.distance.allows(distance())
    }

    /// Step d: node reclaim of a zone below its watermark.
    #[cold]
    pub fn reclaim<V: Visit<'a, P>>(&self, visit: &mut V, zone: &'a Zone) -> NodeReclaim {
        visit.see(Seen::NodeReclaim(zone));
        if V::DRY {
            return NodeReclaim::NoScan;
        }
        let Search { gfp, order, highest, .. } = *self.search;
        self.search.node_ops(zone.node).reclaim(zone, (gfp, order, highest))
    }

    /// Steps d and e: the zone is below its watermark; node reclaim may help.
    #[cold]
    pub fn node_reclaim_makes_room<V: Visit<'a, P>>(&self, visit: &mut V, zone: &'a Zone) -> bool {
        let made = |outcome| matches!(outcome, NodeReclaim::Some | NodeReclaim::Success);
        self.reclaims(zone) && made(self.reclaim(visit, zone)) && self.above_watermark(zone)
    }

    /// Whether the zone is above the watermark asked for (LB D.4 step e).
    #[cold]
    #[inline(never)]
    pub fn above_watermark(&self, zone: &Zone) -> bool {
        self.search.above_watermark(zone, self.flags)
    }
}

/// The rights of the next walk behind one that found nothing; `None`: there is none.
pub fn fewer(flags: AllocFlags) -> Option<AllocFlags> {
    // Nodes that were passed are asked after all; then, without a block, or on the way to another
    // node, types may be mixed after all.
    let least = [AllocFlags::PASS_RECLAIMING, AllocFlags::NOFRAGMENT];
    least.into_iter().find(|flag| flags.contains(*flag)).map(|flag| flags.without(flag))
}

impl<'a, P: Platform> Search<'_, 'a, P> {
    /// A block of the zone, which may spare it, as it is: from the CPU's pcp, or the buddy (LB D.4
    /// `rmqueue`). `flags`: the walk's.
    #[inline]
    pub fn take(&self, zone: &'a Zone, flags: AllocFlags) -> Option<Pfn> {
        let listed = self.take_listed(zone, flags);
        let taken = listed.or_else(|| self.take_direct(zone, flags))?;
        // Most need not be looked at again.
        if zone.node != self.preferred.node
            || flags.contains(AllocFlags::HIGHATOMIC)
            || zone.has(BOOSTED)
            || self.on.policy().numa.records()
        {
            self.end_take(zone, flags, taken);
        }
        Some(taken)
    }

    /// What it wants of a zone.
    #[inline]
    fn want_of(&self, flags: AllocFlags) -> Want {
        let (preferred, cold) = (self.preferred.id, self.gfp.contains(Gfp::COLD));
        Want { order: self.order, mt: self.mt, flags, preferred, cold }
    }

    #[inline(never)]
    fn take_listed(&self, zone: &'a Zone, flags: AllocFlags) -> Option<Pfn> {
        CpuOps::running(self.on).take_listed(zone, self.want_of(flags))
    }

    #[inline(never)]
    fn take_direct(&self, zone: &'a Zone, flags: AllocFlags) -> Option<Pfn> {
        let ops = self.zone_ops(zone);
        ops.take_direct(ops.pcp(ops.on.platform.cpu()), self.want_of(flags))
    }

    /// What follows where a block was taken.
    #[cold]
    #[inline(never)]
    fn end_take(&self, zone: &'a Zone, flags: AllocFlags, pfn: Pfn) {
        let on = self.on;
        let running = CpuOps::running(on);
        running.count_event(zone, self.want_of(flags), 1);
        if flags.contains(AllocFlags::KSWAPD) && zone.has(BOOSTED) {
            zone.clear_flag(BOOSTED);
            self.zone_ops(zone).refresh_fast();
            self.node_ops(zone.node).wake(zone, Order::ZERO, zone.kind());
        }
        if flags.contains(AllocFlags::HIGHATOMIC) && on.grouping() {
            self.zone_ops(zone).reserve_highatomic(pfn, self.order);
        }
    }
}
