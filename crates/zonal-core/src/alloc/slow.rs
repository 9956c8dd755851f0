//! When the first walk found nothing (LB D.5): the min mark, reserves, and an exact refusal.
//!
//! Direct reclaim, where the home has any, comes first; then what waits on per-CPU stores and in
//! the HighAtomic reserve. A request is refused only after all were emptied and every zone it may
//! use was asked once more.

use super::reclaim::COSTLY_ORDER;
use super::scan::{Context, mark_of};
use super::{AllocError, Allocator};
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::platform::reclaimer::OutOfMemory;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, Pfn, ZoneKind};
use crate::zone::state::{LockedZone, Zone};
use crate::zone::watermark::{ReserveRights, Watermarks, ZoneSnapshot};

/// Rounds of drain and walk before giving up: others may take what was drained. 16 is what Linux
/// allows reclaim without progress (LB D.5).
const ROUNDS_MAX: u32 = 16;
/// Waits for isolated blocks in one round: tens of milliseconds where each gives the processor to
/// others. Giving 4 MiB back to the operating system takes a tenth of one.
const ISOLATED_WAITS_MAX: u32 = 1 << 16;

impl<'a, P: Platform> Allocator<'a, P> {
    #[cold]
    pub(super) fn alloc_slow(&self, ctx: &Context<'a>) -> Result<Pfn, AllocError> {
        self.events.slow_paths.fetch_add(1, Relaxed);
        let mut flags = slow_flags(ctx);
        self.allowed(ctx).for_each(|zone| _ = self.drain_depots(zone));
        if ctx.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            self.wake_reclaimers(ctx);
        }
        if let Some(pfn) = self.scan(ctx, flags) {
            return Ok(pfn);
        }
        let reserve = reserve_flags(ctx.gfp, self.is_reclaiming());
        if let Some(reserve) = reserve {
            let kept = AllocFlags::from_bits(flags.bits() & AllocFlags::KSWAPD.bits());
            flags = reserve | kept;
            if let Some(pfn) = self.scan(ctx, flags) {
                return Ok(pfn);
            }
        }
        let freed = self.free_and_retry(ctx, flags);
        freed.or_else(|| self.last_resort(ctx, flags)).ok_or_else(|| {
            self.events.failures.fetch_add(1, Relaxed);
            self.refusal(ctx, flags)
        })
    }

    /// Reclaims, then drains, and asks again.
    fn free_and_retry(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        self.reclaim_and_retry(ctx, flags).or_else(|| self.drain_and_retry(ctx, flags))
    }

    /// Nothing is left to reclaim or to drain: the home may know of something (LB D.5 `may_oom`),
    /// and a request that must not fail waits for others.
    fn last_resort(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        if !ctx.gfp.contains(Gfp::DIRECT_RECLAIM) || self.is_reclaiming() {
            return None;
        }
        let kept = AllocFlags::from_bits(flags.bits() & AllocFlags::KSWAPD.bits());
        let look = Context { gfp: ctx.gfp.without(Gfp::DIRECT_RECLAIM), ..*ctx };
        for _ in 0..ROUNDS_MAX {
            // Somebody else may have got help since.
            if let Some(pfn) = self.scan(&look, AllocFlags::WMARK_HIGH | kept) {
                return Some(pfn);
            }
            if !self.out_of_memory(ctx) {
                break;
            }
            if let Some(pfn) = self.free_and_retry(ctx, flags) {
                return Some(pfn);
            }
        }
        if !self.waits(ctx) {
            return None;
        }
        let right = match self.policy.reserves {
            ReserveRights::NonBlock => AllocFlags::MIN_RESERVE,
            ReserveRights::HighHarder => AllocFlags::NON_BLOCK,
        };
        loop {
            if let Some(pfn) = self.scan(ctx, flags | right) {
                return Some(pfn);
            }
            if !self.platform.wait_for_memory() {
                return None;
            }
            if let Some(pfn) = self.free_and_retry(ctx, flags | right) {
                return Some(pfn);
            }
        }
    }

    /// Whether the request waits for others rather than fail.
    pub(super) fn waits(&self, ctx: &Context<'a>) -> bool {
        ctx.gfp.contains(Gfp::NOFAIL | Gfp::DIRECT_RECLAIM)
            && !self.is_reclaiming()
            && ctx.order.get() <= COSTLY_ORDER
    }

    /// Asks the home's last resort, for requests that it may be asked for (LB D.5): Linux kills a
    /// process for those.
    fn out_of_memory(&self, ctx: &Context<'a>) -> bool {
        let (gfp, order) = (ctx.gfp, ctx.order);
        let gives_up = Gfp::NORETRY | Gfp::RETRY_MAYFAIL | Gfp::THISNODE;
        let may = order.get() <= COSTLY_ORDER
            && gfp.bits() & gives_up.bits() == 0
            && gfp.contains(Gfp::FS)
            && ctx.highest >= ZoneKind::Normal;
        let Some(reclaimer) = self.platform.reclaimer().filter(|_| may) else { return false };
        self.reclaim.events.count_out_of_memory();
        let node = self.zone(ctx.zonelist[ctx.first]).node;
        reclaimer.out_of_memory(&OutOfMemory { gfp, order, node })
    }

    /// Empties the stores and the HighAtomic reserve and asks again, as long as that gave pages
    /// back. A request that must not wait does this once, where it can win by it: without
    /// it a refusal would not be exact.
    fn drain_and_retry(&self, ctx: &Context<'a>, flags: AllocFlags) -> Option<Pfn> {
        let may_wait = ctx.gfp.contains(Gfp::DIRECT_RECLAIM);
        if !may_wait && !self.draining_may_help(ctx, flags) {
            return None;
        }
        for round in 0..ROUNDS_MAX {
            let before = self.activity(ctx);
            let drained = if may_wait { self.drain_all() } else { self.drain_open(ctx) };
            let waited = may_wait
                && (self.wait_for_isolated()
                    | self.wait_for_growth(self.allowed(ctx), ISOLATED_WAITS_MAX));
            self.settle(ctx);
            // The last reserved pageblock goes when nothing else came back (LB D.5).
            let force = round > 0 || (drained == 0 && may_wait);
            let unreserved = self.unreserve_highatomic(ctx, force);
            if let Some(pfn) = self.scan(ctx, flags) {
                return Some(pfn);
            }
            let moved = drained != 0
                || unreserved
                || waited
                || self.stores_in_use(ctx)
                || self.activity(ctx) != before;
            if !moved || !may_wait || ctx.gfp.contains(Gfp::NORETRY) {
                break;
            }
            self.platform.relax();
        }
        None
    }

    /// Whether some zone would have room with all that waits on its stores or is on its way there,
    /// and without the boost. Looks at counters alone: emptying a store interrupts its CPU, which
    /// is for a request that can win by it.
    pub(super) fn draining_may_help(&self, ctx: &Context<'a>, flags: AllocFlags) -> bool {
        self.allowed(ctx).any(|zone| {
            let mut stores = self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu));
            if stores.any(Pcp::is_closed) {
                return true;
            }
            let free = self.free_or_cached(zone);
            let all = ZoneSnapshot { free, highatomic_free: 0, ..zone.snapshot(ctx.highest) };
            let marks = Watermarks { boost: 0, ..zone.marks() };
            let kept = match flags.contains(AllocFlags::NO_WATERMARKS) {
                true => 0,
                false => all.kept(ctx.order, &marks, mark_of(flags), flags),
            };
            free > kept + all.unusable(ctx.order, flags)
        })
    }

    /// Pages of the zone that are free, in its buddy or on its stores.
    pub(super) fn free_or_cached(&self, zone: &Zone) -> u64 {
        let stores = self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu));
        stores.map(|pcp| u64::from(pcp.count())).sum::<u64>() + self.free_snapshot(zone.id)
    }

    /// Waits while free blocks are out of the buddy for a moment. They are free, so a request that
    /// may wait is not refused for want of them. Returns whether there were any.
    fn wait_for_isolated(&self) -> bool {
        let isolated = || self.events.isolated.load(Relaxed) != 0;
        (0..ISOLATED_WAITS_MAX).take_while(|_| isolated()).map(|_| self.platform.relax()).count()
            > 0
    }

    /// Makes the figures exact that the next walk decides by: folds every CPU's delta of the
    /// free-page counters (LB F.4), and takes the boost off the marks, which is lent until the
    /// background reclaimer has run (LB C.4) and there is nothing for it to reclaim.
    fn settle(&self, ctx: &Context<'a>) {
        for zone in self.allowed(ctx) {
            let mut locked = zone.lock(&self.platform, self.words, self.blocks);
            for cpu in 0..self.cpus() {
                let pcp = self.pcp(zone.id, CpuId(cpu as u32));
                locked.fold(pcp.free_diff.swap(0, Relaxed));
            }
            let mut marks = zone.marks();
            marks.lower_boost(marks.boost);
            zone.set_marks(&marks);
        }
    }

    /// Whether pages came to a store or depot of one of the request's zones since all were drained,
    /// or may be on their way there: its owner has it closed.
    fn stores_in_use(&self, ctx: &Context<'a>) -> bool {
        self.allowed(ctx).any(|zone| {
            let mut stores = self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu));
            stores.any(|pcp| !pcp.seems_empty()) || self.depots_in_use(zone.id)
        })
    }

    /// Pages that were allocated and freed in the request's zones so far, and batches that came to
    /// depots and left them. While it stands still and
    /// the stores are empty, what the walk saw of one zone is still true when it has seen the last;
    /// otherwise a block may have been freed behind its back for one that was taken before it.
    fn activity(&self, ctx: &Context<'a>) -> u64 {
        let of_store = |pcp: &Pcp| {
            let totals = pcp.totals();
            let direct = pcp.events.direct_pages.load(Relaxed);
            let direct = direct + pcp.events.direct_freed.load(Relaxed);
            totals.popped_pages + totals.pushed_pages + direct
        };
        let of_zone = |zone: &Zone| {
            self.each_cpu()
                .flat_map(|cpu| self.stores(zone.id, cpu))
                .map(of_store)
                .fold(self.depot_changes(zone.id), u64::wrapping_add)
        };
        self.allowed(ctx).map(of_zone).fold(0, u64::wrapping_add)
    }

    pub(super) fn allowed(&self, ctx: &Context<'a>) -> impl Iterator<Item = &'a Zone> {
        let zones = ctx.zonelist[ctx.first..].iter().map(|id| self.zone(*id));
        zones.filter(move |zone| ctx.allows(zone))
    }

    fn wake_reclaimers(&self, ctx: &Context<'a>) {
        self.each_node(ctx, |zone| self.wake_background(zone, ctx.order, ctx.highest));
    }

    /// The request's zones, the first of each run of zones of one node (LB D.6).
    pub(super) fn each_node(&self, ctx: &Context<'a>, mut first: impl FnMut(&'a Zone)) {
        let mut seen = None;
        for zone in self.allowed(ctx) {
            if seen.replace(zone.node) != Some(zone.node) {
                first(zone);
            }
        }
    }

    /// LB B.8: gives pageblocks of the reserve back to the request's type.
    pub(super) fn unreserve_highatomic(&self, ctx: &Context<'a>, force: bool) -> bool {
        self.grouping
            && self.allowed(ctx).any(|zone| {
                let mut locked = zone.lock(&self.platform, self.words, self.blocks);
                let LockedZone { buddy, frames, .. } = &mut locked;
                buddy.unreserve_highatomic(frames, ctx.mt, force)
            })
    }
}

/// LB D.5, "alloc-flag derivation".
pub(super) fn slow_flags(ctx: &Context<'_>) -> AllocFlags {
    let gfp = ctx.gfp;
    let mut flags = AllocFlags::WMARK_MIN;
    if gfp.contains(Gfp::KSWAPD_RECLAIM) {
        flags |= AllocFlags::KSWAPD;
    }
    if gfp.contains(Gfp::HIGH) {
        flags |= AllocFlags::MIN_RESERVE;
    }
    if !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC) {
        flags |= AllocFlags::NON_BLOCK;
        if ctx.order > Order::ZERO && gfp.contains(Gfp::HIGH) {
            flags |= AllocFlags::HIGHATOMIC;
        }
    }
    flags
}

/// LB D.5, "reserve flags": what the request may do besides.
pub(super) fn reserve_flags(gfp: Gfp, is_reclaiming: bool) -> Option<AllocFlags> {
    let memalloc = gfp.contains(Gfp::MEMALLOC) || is_reclaiming;
    let ignores_marks = memalloc && !gfp.contains(Gfp::NOMEMALLOC);
    ignores_marks.then_some(AllocFlags::NO_WATERMARKS)
}
