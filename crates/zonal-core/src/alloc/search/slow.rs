//! When the first walk found nothing (LB D.5): the min watermark, reserves, and an exact refusal.
//!
//! [`Slow`] says what is next, and the request does it: a walk or a drain takes more stack than all
//! decisions, and lies beside them, not below them.
//!
//! Direct reclaim, where the platform has any, comes first; then what waits on pcps and in
//! the HighAtomic reserve. A request is refused only after all were emptied and every zone it may
//! use was asked once more.

use super::direct::Reclaims;
use super::next::Next;
use super::{Search, watermark_of};
use crate::alloc::cpu_ops::{drain_all, drain_lists};
use crate::alloc::request::AllocError;
use crate::alloc::zone_ops::sum_of;
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::platform::reclaimer::OutOfMemory;
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, Pfn, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::{ReserveRights, Watermarks, ZoneSnapshot};

/// Rounds of drain and walk before giving up: others may take what was drained. 16 is what Linux
/// allows reclaim without progress (LB D.5).
const ROUNDS_MAX: u8 = 16;
/// Between two boosts for atomic requests that failed.
const BOOST_EVERY_NS: u64 = 1_000_000_000;
/// Waits for isolated blocks in one round: tens of milliseconds where each gives the processor to
/// others. Giving 4 MiB back to the operating system takes a tenth of one.
const ISOLATED_WAITS_MAX: u32 = 1 << 16;

/// The rounds of drain and walk so far.
#[derive(Clone, Copy, Default)]
struct Drains {
    rounds: u8,
    /// The last one gave pages back, or waited for some.
    moved: bool,
    /// [`Search::activity`] before it.
    before: u64,
}

impl Drains {
    /// Whether another round may bring a request what it wants.
    #[inline(never)]
    fn may_go_on<P: Platform>(&self, search: &Search<'_, '_, P>, flags: AllocFlags) -> bool {
        let may_wait = search.gfp.contains(Gfp::DIRECT_RECLAIM);
        if self.rounds == 0 {
            return may_wait || search.draining_may_help(flags);
        }
        let moved = self.moved || search.pcps_in_use() || search.activity() != self.before;
        if !moved || !may_wait || search.gfp.contains(Gfp::NORETRY) {
            return false;
        }
        search.on.platform.relax();
        self.rounds < ROUNDS_MAX
    }
}

/// Where a request is on its way through LB D.5.
#[derive(Clone, Copy)]
enum At {
    Begins,
    /// The same, with rights that are known.
    BeginsWith,
    /// The walk with the min watermark found nothing.
    Short,
    Reclaims(Reclaims),
    Drains(Drains),
    /// The lists are drained.
    Drained(Drains),
    /// Nothing is left to reclaim or to drain.
    Lasts,
    /// Another request's last resort did not help either.
    Asks,
    Waits,
    /// The walk before a wait found nothing.
    Wait,
}

/// What follows when nothing is left to reclaim or to drain.
#[derive(Clone, Copy)]
enum Then {
    Refuse,
    Last,
    Wait,
}

impl Then {
    /// Where that is; `None`: nowhere.
    fn at(self) -> Option<At> {
        match self {
            Then::Refuse => None,
            Then::Last => Some(At::Lasts),
            Then::Wait => Some(At::Waits),
        }
    }
}

/// A request that found nothing, on its way through LB D.5.
pub struct Slow {
    at: At,
    then: Then,
    /// Last resorts that were asked.
    lasts: u8,
    /// Its rights.
    flags: AllocFlags,
}

impl Slow {
    /// For a block, with the platform's last resort.
    pub fn of_block() -> Slow {
        // Its rights follow from the request once it begins: most never do.
        Slow { at: At::Begins, then: Then::Last, lasts: 0, flags: AllocFlags::WMARK_MIN }
    }

    /// For pages in a row.
    pub fn of_range<P: Platform>(search: &Search<'_, '_, P>) -> Slow {
        let flags = slow_flags(search.gfp, Order::ZERO);
        Slow { at: At::BeginsWith, then: Then::Refuse, lasts: 0, flags }
    }

    /// For what drains alone can bring, with these rights.
    pub fn of_drains(flags: AllocFlags) -> Slow {
        let at = At::Drains(Drains::default());
        Slow { at, then: Then::Refuse, lasts: 0, flags }
    }

    /// The rights of the next walk; `None`: the request is refused. Drains on the way.
    pub fn walk<P: Platform>(&mut self, search: &Search<'_, '_, P>) -> Option<AllocFlags> {
        let mut drained = 0;
        loop {
            match self.next(search, drained) {
                Next::Walk(flags) | Next::Look(flags) => return Some(flags),
                Next::DrainAll => drained = drain_all(search.on),
                Next::DrainOpen => drained = search.drain_open(),
                Next::Refuse => return None,
            }
        }
    }

    /// One step, with its walks and drains left to the caller. `drained`: pages that the last drain
    /// moved, if that was the last step.
    #[cold]
    #[inline(never)]
    fn next<P: Platform>(&mut self, search: &Search<'_, '_, P>, drained: u64) -> Next {
        let flags = self.own_rights(search);
        loop {
            match self.at {
                At::Begins | At::BeginsWith => {
                    search.begin_slowly(flags);
                    self.at = At::Short;
                    return Next::Walk(flags);
                }
                At::Short => {
                    self.at = self.frees(search);
                    if let Some(reserve) = reserve_flags(search.gfp, search.is_reclaiming()) {
                        self.flags = reserve | kept(flags);
                        return Next::Walk(self.flags);
                    }
                }
                At::Reclaims(mut reclaims) => {
                    let next = reclaims.next(search, self.rights(search));
                    self.at = At::Reclaims(reclaims);
                    match next {
                        Some(next) => return next,
                        None => self.at = At::Drains(Drains::default()),
                    }
                }
                At::Drains(drains) => {
                    if drains.may_go_on(search, self.rights(search)) {
                        let before = search.activity();
                        self.at = At::Drained(Drains { before, ..drains });
                        return drain_for(search.gfp);
                    }
                    let Some(then) = self.then.at() else { return Next::Refuse };
                    self.at = then;
                }
                At::Drained(mut drains) => {
                    drains.moved = search.look_behind(drained, drains.rounds);
                    drains.rounds += 1;
                    self.at = At::Drains(drains);
                    return Next::Walk(self.rights(search));
                }
                At::Lasts => {
                    if !search.gfp.contains(Gfp::DIRECT_RECLAIM) || search.is_reclaiming() {
                        return Next::Refuse;
                    }
                    if self.asks_last() {
                        return Next::Look(AllocFlags::WMARK_HIGH | kept(flags));
                    }
                }
                At::Asks => {
                    self.at = match search.out_of_memory() {
                        true => self.frees(search),
                        false => At::Waits,
                    };
                }
                // A request that must not fail waits for others.
                At::Waits => {
                    if !search.waits() {
                        return Next::Refuse;
                    }
                    self.then = Then::Wait;
                    self.at = At::Wait;
                    return Next::Walk(self.rights(search));
                }
                At::Wait => {
                    if !search.on.platform.wait_for_memory() {
                        return Next::Refuse;
                    }
                    self.at = self.frees(search);
                }
            }
        }
    }

    /// Its own rights, which follow from the request once it begins.
    #[inline]
    fn own_rights<P: Platform>(&mut self, search: &Search<'_, '_, P>) -> AllocFlags {
        if let At::Begins = self.at {
            self.flags = slow_flags(search.gfp, search.order);
        }
        self.flags
    }

    /// Whether it asks the last resort once more (LB D.5 `may_oom`): behind a walk, as another
    /// request's may have helped since.
    fn asks_last(&mut self) -> bool {
        let asks = self.lasts < ROUNDS_MAX;
        self.at = if asks { At::Asks } else { At::Waits };
        self.lasts += u8::from(asks);
        asks
    }

    /// The rights of the walks between which it reclaims and drains.
    fn rights<P: Platform>(&self, search: &Search<'_, '_, P>) -> AllocFlags {
        let right = match search.on.policy().reserves {
            ReserveRights::NonBlock => AllocFlags::MIN_RESERVE,
            ReserveRights::HighHarder => AllocFlags::NON_BLOCK,
        };
        if let Then::Wait = self.then { self.flags | right } else { self.flags }
    }

    /// It reclaims, where it can, then drains.
    fn frees<P: Platform>(&self, search: &Search<'_, '_, P>) -> At {
        match search.may_reclaim_directly() {
            true => At::Reclaims(Reclaims::default()),
            false => At::Drains(Drains::default()),
        }
    }
}

/// The drain of a request: one that may not wait empties the lists of its zones alone.
fn drain_for(gfp: Gfp) -> Next {
    if gfp.contains(Gfp::DIRECT_RECLAIM) { Next::DrainAll } else { Next::DrainOpen }
}

/// What a request's rights keep of waking reclaimers.
fn kept(flags: AllocFlags) -> AllocFlags {
    AllocFlags::from_bits(flags.bits() & AllocFlags::KSWAPD.bits())
}

impl<'a, P: Platform> Search<'_, 'a, P> {
    /// A block for the request.
    #[inline]
    pub fn block(&mut self) -> Result<Pfn, AllocError> {
        let gfp = self.gfp;
        let mut slow = Slow::of_block();
        let mut flags = self.first_flags();
        // One place from which it walks: so the walk needs no frame of its own.
        loop {
            if let Some(pfn) = self.scan(flags) {
                return Ok(pfn);
            }
            self.gfp = gfp;
            let mut drained = 0;
            flags = loop {
                match slow.next(self, drained) {
                    Next::Walk(flags) => break flags,
                    Next::Look(flags) => {
                        self.gfp = gfp.without(Gfp::DIRECT_RECLAIM);
                        break flags;
                    }
                    Next::DrainAll => drained = drain_all(self.on),
                    Next::DrainOpen => drained = self.drain_open(),
                    Next::Refuse => return Err(self.refuse(slow.flags)),
                }
            };
        }
    }

    /// Depots drained, reclaimers woken.
    #[inline(never)]
    fn begin_slowly(&self, flags: AllocFlags) {
        self.on.events.slow_paths.fetch_add(1, Relaxed);
        self.allowed().for_each(|zone| _ = self.zone_ops(zone).drain_depots());
        self.wake_reclaimers(flags);
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, flags: AllocFlags) -> AllocError {
        self.on.events.failures.fetch_add(1, Relaxed);
        let refusal = self.refusal(flags);
        self.boost_for_atomic(flags);
        refusal
    }

    /// Wakes the background reclaimers of the request's nodes, if the flags say so.
    #[cold]
    #[inline(never)]
    pub fn wake_reclaimers(&self, flags: AllocFlags) {
        if flags.contains(AllocFlags::KSWAPD) {
            self.each_node(|zone| self.node_ops(zone.node).wake(zone, self.order, self.highest));
        }
    }

    /// A request that could not wait has failed: where the policy says so, the watermarks of its
    /// zones on the preferred node are boosted, so that the reclaimer frees more than it would; at
    /// most once a second.
    #[inline(never)]
    fn boost_for_atomic(&self, flags: AllocFlags) {
        if !self.on.policy().watermark.boost_atomic || self.gfp.contains(Gfp::DIRECT_RECLAIM) {
            return;
        }
        let (next, now) = (&self.on.events.boosts_from_ns, self.on.platform.now_ns());
        let due = |from: u64| (from <= now).then(|| now.saturating_add(BOOST_EVERY_NS));
        // Relaxed: of several that fail at once one boosts; nothing else hangs on it.
        if next.fetch_update(Relaxed, Relaxed, due).is_err() {
            return;
        }
        let node = self.preferred.node;
        for zone in self.allowed().filter(|zone| zone.node == node) {
            let ops = self.zone_ops(zone);
            let _locked = ops.lock();
            ops.boost(1, flags);
        }
    }

    /// Whether the request waits for others rather than fail.
    pub fn waits(&self) -> bool {
        self.gfp.contains(Gfp::NOFAIL | Gfp::DIRECT_RECLAIM)
            && !self.is_reclaiming()
            && self.order <= Order::COSTLY
    }

    /// Asks the platform's last resort, for requests that it may be asked for (LB D.5): Linux kills
    /// a process for those.
    fn out_of_memory(&self) -> bool {
        let (gfp, order) = (self.gfp, self.order);
        let gives_up = Gfp::NORETRY | Gfp::RETRY_MAYFAIL | Gfp::THISNODE;
        let may = order <= Order::COSTLY
            && gfp.bits() & gives_up.bits() == 0
            && gfp.contains(Gfp::FS)
            && self.highest >= ZoneKind::Normal;
        let reclaimer = self.on.platform.reclaimer().filter(|_| may);
        let Some(reclaimer) = reclaimer else { return false };
        self.on.reclaim.events.count_out_of_memory();
        let node = self.preferred.node;
        reclaimer.out_of_memory(&OutOfMemory { gfp, order, node })
    }

    /// What a round does once the lists are drained. Returns whether anything came back.
    #[inline(never)]
    fn look_behind(&self, drained: u64, rounds: u8) -> bool {
        let may_wait = self.gfp.contains(Gfp::DIRECT_RECLAIM);
        let waited = may_wait && (self.wait_for_isolated() | self.wait_for_growth());
        settle(self);
        // The last reserved pageblock goes when nothing else came back (LB D.5).
        let force = rounds > 0 || (drained == 0 && may_wait);
        let unreserved = self.unreserve_highatomic(force);
        drained != 0 || unreserved || waited
    }

    /// Empties the pcps of the request's zones, without a long wait. Returns the pages moved.
    fn drain_open(&self) -> u64 {
        self.on.events.drains_all.fetch_add(1, Relaxed);
        drain_lists(self.on, Some((self.zonelist, self.highest)))
    }

    /// Whether some zone would have room with all pages on its pcps or moving there, and without
    /// the boost. Looks at counters alone: emptying a pcp interrupts its CPU, which is for a
    /// request that can win by it.
    #[inline(never)]
    pub fn draining_may_help(&self, flags: AllocFlags) -> bool {
        self.allowed().any(|zone| {
            let ops = self.zone_ops(zone);
            if sum_of(ops, |pcp| u64::from(pcp.is_closed())) != 0 {
                return true;
            }
            let free = ops.free_or_cached();
            let all = ZoneSnapshot { free, highatomic_free: 0, ..zone.snapshot(self.highest) };
            let watermarks = Watermarks { boost: 0, ..zone.watermarks() };
            let kept = match flags.contains(AllocFlags::NO_WATERMARKS) {
                true => 0,
                false => all.kept(self.order, &watermarks, watermark_of(flags), flags),
            };
            free > kept + all.unusable(self.order, flags)
        })
    }

    /// Waits while free blocks are out of the buddy for a moment. They are free, so a request that
    /// may wait is not refused because of them. Returns whether there were any.
    fn wait_for_isolated(&self) -> bool {
        let events = &self.on.events;
        // Those that are out now: others may follow them for as long as somebody trims.
        let (before, out) = (events.restored.load(Relaxed), events.isolated.load(Relaxed));
        let back = || events.restored.load(Relaxed).wrapping_sub(before);
        let isolated = || events.isolated.load(Relaxed) != 0 && back() < out;
        let waits = (0..ISOLATED_WAITS_MAX).take_while(|_| isolated());
        waits.map(|_| self.on.platform.relax()).count() > 0
    }

    /// Waits while workers have memory of the request's zones that is not there yet. Returns
    /// whether there was any.
    fn wait_for_growth(&self) -> bool {
        let wait = |zone| self.zone_ops(zone).wait_for_growth(ISOLATED_WAITS_MAX);
        self.allowed().fold(false, |any, zone| any | wait(zone))
    }

    /// Whether pages came to a pcp or depot of one of the request's zones since all were drained,
    /// or may be on their way there: its owner has it closed.
    #[inline(never)]
    fn pcps_in_use(&self) -> bool {
        self.allowed().any(|zone| {
            let ops = self.zone_ops(zone);
            sum_of(ops, |pcp| u64::from(!pcp.seems_empty())) != 0
                || ops.depots_in_use()
                || ops.owned().pages() > 0
        })
    }

    /// Blocks that were allocated and freed in the request's zones so far, and batches that came to
    /// depots and left them. While it stands still and the pcps are empty, what the walk saw of one
    /// zone is still true when it has seen the last; otherwise a block may have been freed in a
    /// zone already tested, and one taken ahead of the walk.
    fn activity(&self) -> u64 {
        let of_zone = |zone: &'a Zone| {
            let ops = self.zone_ops(zone);
            ops.depot_changes().wrapping_add(sum_of(ops, Pcp::moves))
        };
        self.allowed().map(of_zone).fold(0, u64::wrapping_add)
    }

    /// LB B.8: gives pageblocks of the reserve back to the request's type.
    pub(super) fn unreserve_highatomic(&self, force: bool) -> bool {
        let mut zones = self.allowed().map(|zone| self.zone_ops(zone));
        self.on.grouping() && zones.any(|ops| ops.unreserve_highatomic(self.mt, force))
    }
}

#[inline(never)]
fn settle<P: Platform>(search: &Search<'_, '_, P>) {
    search.allowed().for_each(|zone| search.zone_ops(zone).settle());
}

/// LB D.5, "alloc-flag derivation".
pub fn slow_flags(gfp: Gfp, order: Order) -> AllocFlags {
    let mut flags = AllocFlags::WMARK_MIN;
    if gfp.contains(Gfp::KSWAPD_RECLAIM) {
        flags |= AllocFlags::KSWAPD;
    }
    if gfp.contains(Gfp::HIGH) {
        flags |= AllocFlags::MIN_RESERVE;
    }
    if !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC) {
        flags |= AllocFlags::NON_BLOCK;
        if order > Order::ZERO && gfp.contains(Gfp::HIGH) {
            flags |= AllocFlags::HIGHATOMIC;
        }
    }
    flags
}

/// LB D.5, "reserve flags": the request's additional rights.
pub fn reserve_flags(gfp: Gfp, is_reclaiming: bool) -> Option<AllocFlags> {
    let memalloc = gfp.contains(Gfp::MEMALLOC) || is_reclaiming;
    let ignores_watermarks = memalloc && !gfp.contains(Gfp::NOMEMALLOC);
    ignores_watermarks.then_some(AllocFlags::NO_WATERMARKS)
}
