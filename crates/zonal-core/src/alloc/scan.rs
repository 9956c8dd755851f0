//! The walk over a zonelist (LB D.4): the first zone that may spare the block gives it.

mod hand;
mod zlc;

pub(super) use hand::Hand;
use hand::Taking;

use super::take::Want;
use super::{AllocError, Allocator, Refusal, Request};
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::store::Pcp;
use crate::platform::{Platform, Step};
use crate::policy::walk::{DirtySpread, NoFragment, ZonelistCaching};
use crate::reclaim::NodeReclaim;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::zone::state::{BELOW_HIGH, Zone};
use crate::zone::watermark::{Mark, ZoneSnapshot};
use crate::zonelist::cache::ZonelistCache;

/// A request with everything derived from it that does not change while it is served (LB D.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub order: Order,
    pub gfp: Gfp,
    pub mt: Migratetype,
    pub highest: ZoneKind,
    pub zonelist: &'a [ZoneId],
    /// Position of the first zone the request may use.
    pub first: usize,
    pub nofragment: bool,
    /// Its page is about to be written to: nodes with much dirty are passed at first.
    pub spreads_dirty: bool,
    /// The list's cache, where the policy has one and the request may leave its node (LB G.4).
    pub cache: Option<&'a ZonelistCache>,
}

impl Context<'_> {
    pub(super) fn allows(&self, zone: &Zone) -> bool {
        zone.kind() <= self.highest
    }
}

/// One walk over the zonelist.
#[derive(Clone, Copy)]
pub(super) struct Walk<'s, 'a> {
    pub ctx: &'s Context<'a>,
    pub flags: AllocFlags,
    /// The first zone the request may use.
    pub preferred: &'s Zone,
}

/// How a zone stands to its marks.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    /// It may spare the block.
    pub above: bool,
    /// It has just fallen below its high mark.
    below_high: bool,
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// A block for `request`. Its words are handed out; its memory is as the home left it.
    ///
    /// # Errors
    /// [`AllocError`] names the zone and the watermark that refused last.
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        let ctx = self.context(&request)?;
        match self.scan(&ctx, first_flags(&ctx)) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_slow(&ctx),
        }
    }

    pub(super) fn context(&self, request: &Request) -> Result<Context<'a>, AllocError> {
        let Request { order, gfp, node } = *request;
        let refuse = |why| AllocError { order, why };
        let bad = || refuse(Refusal::BadGfp(gfp));
        let highest = gfp.highest_zone(self.kinds).ok_or_else(bad)?;
        let mt = gfp.migratetype(self.grouping).ok_or_else(bad)?;
        let node = node.unwrap_or_else(|| self.node_of(self.platform.cpu()));
        if node.0 as usize >= self.nodes.len() {
            return Err(refuse(Refusal::NoZone(node)));
        }
        let this_node = gfp.contains(Gfp::THISNODE);
        let zonelist = self.zonelist(node, this_node);
        let usable = |zone: &ZoneId| self.zone(*zone).kind() <= highest;
        let first = zonelist.iter().position(usable).ok_or(refuse(Refusal::NoZone(node)))?;
        let nofragment = self.grouping && self.keeps_types_apart(self.zone(zonelist[first]));
        let spreads_dirty =
            self.policy.zonelist.dirty == DirtySpread::Node && gfp.contains(Gfp::WRITE);
        let caches = self.policy.zonelist.cache != ZonelistCaching::None && !this_node;
        let cache = caches.then(|| &self.nodes[node.0 as usize].cache);
        Ok(Context { order, gfp, mt, highest, zonelist, first, nofragment, spreads_dirty, cache })
    }

    /// LB D.3 step 3: whether a first walk takes no block of another type.
    fn keeps_types_apart(&self, preferred: &Zone) -> bool {
        // Relaxed: a single value.
        self.defrag_mode.load(Relaxed) != 0
            || (self.policy.nofragment != NoFragment::Off && self.has_dma32_below(preferred))
    }

    /// Mixing types is put off while the node has a DMA32 zone to fall back to.
    fn has_dma32_below(&self, preferred: &Zone) -> bool {
        let has_dma32 = |node: Option<NodeId>| {
            self.zones.iter().any(|zone| {
                zone.kind() == ZoneKind::Dma32 && node.is_none_or(|node| zone.node == node)
            })
        };
        preferred.kind() == ZoneKind::Normal
            && has_dma32(None)
            && (self.nodes.len() == 1 || has_dma32(Some(preferred.node)))
    }

    /// LB D.4.
    pub(super) fn scan(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        self.scan_with(&mut Taking, ctx, flags)
    }

    /// The walk, as often as it takes.
    pub(super) fn scan_with<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        ctx: &Context<'a>,
        mut flags: AllocFlags,
    ) -> Option<H::Block> {
        let preferred = self.zone(ctx.zonelist[ctx.first]);
        loop {
            match self.scan_once(hand, &Walk { ctx, flags, preferred }) {
                Ok(block) => return Some(block),
                // Without a block, or on the way to another node: types may be mixed after all.
                Err(()) if flags.contains(AllocFlags::NOFRAGMENT) => {
                    flags = flags.without(AllocFlags::NOFRAGMENT);
                }
                Err(()) => return None,
            }
        }
    }

    fn scan_once<H: Hand<'a, P>>(&self, hand: &mut H, walk: &Walk<'_, 'a>) -> Result<H::Block, ()> {
        hand.start(walk);
        match self.policy.zonelist.cache {
            ZonelistCaching::None => self.scan_plain(hand, walk),
            ZonelistCaching::Original | ZonelistCaching::Reconsider => {
                self.scan_cached(hand, walk, false)
            }
            ZonelistCaching::FirstZone | ZonelistCaching::FirstZoneReconsider => {
                self.scan_cached(hand, walk, true)
            }
        }
    }

    /// The walk since 4.4: every zone is looked at, every time.
    fn scan_plain<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        walk: &Walk<'_, 'a>,
    ) -> Result<H::Block, ()> {
        let mut judged = None;
        for (_, zone) in self.usable(walk.ctx) {
            if self.is_too_dirty(walk, zone, &mut judged) {
                hand.pass_dirty(zone);
                continue;
            }
            if self.leaves_node(walk, zone) {
                hand.stop(walk, zone);
                return Err(());
            }
            if !hand.may_take(self, walk, zone) && !self.node_reclaim_makes_room(hand, walk, zone) {
                continue;
            }
            if let Some(block) = hand.serve(self, walk, zone) {
                return Ok(block);
            }
        }
        Err(())
    }

    /// The zones the request may use, each with its position on the list.
    fn usable(&self, ctx: &Context<'a>) -> impl Iterator<Item = (usize, &'a Zone)> {
        let zones = ctx.zonelist.iter().map(|id| self.zone(*id));
        zones.enumerate().skip(ctx.first).filter(|(_, zone)| ctx.allows(zone))
    }

    /// Step 2: whether the zone's node has as much dirty as it may. `judged`: the node asked about
    /// last, and the answer.
    fn is_too_dirty(
        &self,
        walk: &Walk<'_, 'a>,
        zone: &Zone,
        judged: &mut Option<(NodeId, bool)>,
    ) -> bool {
        walk.flags.contains(AllocFlags::SPREAD_DIRTY)
            && match *judged {
                Some((node, is)) if node == zone.node => is,
                _ => judged.insert((zone.node, !self.may_dirty(zone.node))).1,
            }
    }

    /// Step 3: a walk that keeps types apart ends where the preferred node does.
    fn leaves_node(&self, walk: &Walk<'_, 'a>, zone: &Zone) -> bool {
        walk.flags.contains(AllocFlags::NOFRAGMENT)
            && self.nodes.len() > 1
            && zone.node != walk.preferred.node
    }

    /// Steps 5 and 6 of LB D.4: the high mark once, then the mark asked for. A zone that grows is
    /// not asked again.
    #[inline]
    fn may_take(&self, walk: &Walk<'_, 'a>, zone: &'a Zone) -> bool {
        self.platform.cost(Step::Scan(zone.id));
        let standing = self.standing(walk, zone);
        if standing.below_high {
            zone.set_flag(BELOW_HIGH);
            self.slow_down(zone);
        }
        standing.above
            || self.grew(zone, walk.ctx.order)
            || walk.flags.contains(AllocFlags::NO_WATERMARKS)
    }

    /// How the zone stands to its marks, for the request.
    #[inline]
    pub(super) fn standing(&self, walk: &Walk<'_, 'a>, zone: &Zone) -> Standing {
        let Walk { ctx, flags, .. } = *walk;
        let fast = zone.fast.load(Relaxed);
        if fast & (1 << ctx.order.get()) != 0 {
            return Standing { above: true, below_high: false };
        }
        let snapshot = zone.snapshot(ctx.highest);
        let marks = zone.marks();
        let asks_high = fast & BELOW_HIGH == 0 && self.fixed.tuning.watches_high_mark();
        if asks_high && snapshot.ok_fast(ctx.order, &marks, Mark::High, flags) {
            return Standing { above: true, below_high: false };
        }
        let above = snapshot.ok_fast(ctx.order, &marks, mark_of(flags), flags);
        Standing { above, below_high: asks_high }
    }

    /// Whether a zone that failed the request had memory to come, and has it now.
    pub(super) fn grew(&self, zone: &'a Zone, order: Order) -> bool {
        self.is_growing() && self.grow_for(zone, order)
    }

    /// Steps d and e: the zone is below its mark; its node may have something to give up.
    #[cold]
    fn node_reclaim_makes_room<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> bool {
        let made = |outcome| matches!(outcome, NodeReclaim::Some | NodeReclaim::Success);
        self.reclaims(zone, walk.preferred)
            && made(hand.reclaim(self, walk, zone))
            && self.above_mark(zone, walk.ctx, walk.flags)
    }

    /// A block of the zone, which may spare it.
    #[inline]
    fn serve(&self, walk: &Walk<'_, 'a>, zone: &'a Zone) -> Option<Pfn> {
        let Walk { ctx, flags, preferred } = *walk;
        let want = Want {
            order: ctx.order,
            mt: ctx.mt,
            flags,
            preferred: preferred.id,
            cold: ctx.gfp.contains(Gfp::COLD),
        };
        let pfn = loop {
            match self.rmqueue(zone, want) {
                Some(pfn) => break pfn,
                None if self.grew(zone, ctx.order) => {}
                None => return None,
            }
        };
        if flags.contains(AllocFlags::HIGHATOMIC) && self.grouping {
            self.reserve_highatomic(zone, pfn, ctx.order);
        }
        Some(pfn)
    }

    /// Tells every CPU that operations on the zone have something to decide. One that misses it
    /// goes on until its list is empty or full, or for 1024 pops.
    #[cold]
    pub(super) fn slow_down(&self, zone: &Zone) {
        let stores = self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu));
        stores.for_each(Pcp::make_slow);
    }

    /// Why the request cannot be served, from the last zone it may use.
    pub(super) fn refusal(&self, ctx: &Context<'_>, flags: AllocFlags) -> AllocError {
        let last = ctx.zonelist[ctx.first..].iter().rev().find(|id| ctx.allows(self.zone(**id)));
        let zone = self.zone(*last.unwrap_or(&ctx.zonelist[ctx.first]));
        let snapshot =
            ZoneSnapshot { free: self.free_or_cached(zone), ..zone.snapshot(ctx.highest) };
        let mark = mark_of(flags);
        let (id, node, kind) = (zone.id, zone.node, zone.kind());
        let free = snapshot.free.saturating_sub(snapshot.unusable(ctx.order, flags));
        let needed = snapshot.kept(ctx.order, &zone.marks(), mark, flags);
        // A request that ignores the marks fails only for want of a block.
        let why = if free <= needed && !flags.contains(AllocFlags::NO_WATERMARKS) {
            Refusal::Watermark { zone: id, node, kind, mark, free, needed }
        } else {
            Refusal::Fragmented { zone: id, node, kind, free: snapshot.free }
        };
        AllocError { order: ctx.order, why }
    }
}

/// Flags of a request's first walk (LB D.3).
pub(super) fn first_flags(ctx: &Context<'_>) -> AllocFlags {
    let mut flags = AllocFlags::WMARK_LOW;
    if ctx.gfp.contains(Gfp::KSWAPD_RECLAIM) {
        flags |= AllocFlags::KSWAPD;
    }
    if ctx.nofragment {
        flags |= AllocFlags::NOFRAGMENT;
    }
    if ctx.spreads_dirty {
        flags |= AllocFlags::SPREAD_DIRTY;
    }
    flags
}

/// The mark that flags ask for (LB D.2).
pub(super) fn mark_of(flags: AllocFlags) -> Mark {
    match flags.bits() & AllocFlags::WMARK_MASK {
        0 => Mark::Min,
        1 => Mark::Low,
        _ => Mark::High,
    }
}
