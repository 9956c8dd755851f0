//! Blocks to and from a zone's buddy, under the zone lock (LB B, D.4 `rmqueue`).

use core::ops::Range;

use super::{Want, ZoneOps};
use crate::alloc::request::FreeError;
use crate::buddy::{self, Buddy, Fallback, FreeCause, FreeFlags, TakeRequest};
use crate::frame::{Frames, PageState, PageWord, PcpId, claim};
use crate::gfp::AllocFlags;
use crate::machine::CPUS_MAX;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, Order, Pfn};
use crate::zone::deferred::SECTION_PAGES;
use crate::zone::state::{BOOSTED, LockedZone};

// What names no pcp (`PcpId::nobody`) has the number behind that of the last CPU.
const _: () = assert!(PcpId::MOVING.cpu.0 as usize == CPUS_MAX);

impl Want {
    /// A request to the buddy.
    pub fn of_buddy(self) -> TakeRequest {
        let nofragment = self.flags.contains(AllocFlags::NOFRAGMENT);
        TakeRequest { order: self.order, mt: self.mt, nofragment }
    }
}

/// Why a block that has this word is not claimed.
#[cold]
#[inline(never)]
fn unclaimed<P: Platform>(
    ops: ZoneOps<'_, '_, P>,
    (pfn, order): (Pfn, Order),
    held: PageWord,
) -> FreeError {
    let zone = ops.zone.id;
    match held.state() {
        PageState::Allocated { order: actual, .. } if actual != order => {
            FreeError::WrongOrder { pfn, given: order, actual, zone }
        }
        // Another free was faster.
        PageState::Allocated { .. } => FreeError::DoubleFree { pfn, order, zone },
        PageState::Range { order, .. } => {
            let is_parked = |at| ops.is_parked(at);
            match P::KEEPS_RANGES && ops.frames().index(pfn).is_some_and(is_parked) {
                true => FreeError::DoubleFree { pfn, order, zone },
                false => FreeError::InRange { pfn, order, zone },
            }
        }
        PageState::Free { order, .. } | PageState::Cached { order, .. } => {
            FreeError::DoubleFree { pfn, order, zone }
        }
        PageState::None => FreeError::NotABlock { pfn, order, zone },
        PageState::Corrupt(_) => FreeError::Corrupt(pfn),
    }
}

impl<P: Platform> ZoneOps<'_, '_, P> {
    /// A block straight from the buddy, for orders without lists and when the pcp is closed; where
    /// CPUs own pageblocks, from the CPU's own if they have one.
    #[inline]
    pub fn take_direct(self, pcp: &Pcp, want: Want) -> Option<Pfn> {
        if self.on.owns_pageblocks()
            && let Some(pfn) = self.owned().take(pcp, want)
        {
            return Some(pfn);
        }
        let mut locked = self.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        let mut boosts = 0;
        let high_atomic =
            |buddy: &mut Buddy| buddy.take_smallest(frames, want.order, Migratetype::HighAtomic);
        let mut idx = None;
        if want.flags.contains(AllocFlags::HIGHATOMIC) {
            idx = high_atomic(buddy);
        }
        idx = idx.or_else(|| {
            let report = &mut self.on_fallback(&mut boosts);
            buddy.take(frames, want.of_buddy(), &self.on.fallback(), report)
        });
        if want.flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            idx = idx.or_else(|| high_atomic(buddy));
        }
        if let Some(idx) = idx {
            let owner = self.on.pcp_id(self.zone.id, pcp.cpu());
            frames.store(idx, PageWord::allocated(want.order, want.mt, owner));
            locked.account(self.on.free_diff(pcp), -(want.order.pages() as i64), 1);
            pcp.events.direct_allocs.fetch_add(1, Relaxed);
            pcp.events.direct_pages.fetch_add(want.order.pages(), Relaxed);
        }
        self.boost(boosts, want.flags);
        let pfn = idx.map(|idx| locked.frames.pfn(idx));
        drop(locked);
        pfn
    }

    /// Counts how blocks fall back, and the boosts that are due for it. One function for all who
    /// take blocks.
    pub fn on_fallback(self, boosts: &mut u32) -> impl FnMut(Fallback) {
        let events = &self.on.events;
        move |event| match event {
            Fallback::Boost => *boosts += 1,
            Fallback::Taken(taken) if taken.claimed => {
                events.claims.fetch_add(1, Relaxed);
            }
            Fallback::Taken(_) => {
                events.steals.fetch_add(1, Relaxed);
            }
        }
    }

    /// Raises the zone's watermarks because types were mixed (LB C.4). The zone lock is held.
    pub fn boost(self, boosts: u32, flags: AllocFlags) {
        if boosts == 0 {
            return;
        }
        let zone = self.zone;
        let mut watermarks = zone.watermarks();
        let mut raised = false;
        let (factor, page) = (self.on.tunables.boost_factor(), self.on.policy().page);
        for _ in 0..boosts {
            raised |= watermarks.raise_boost(zone.managed(), factor, page);
        }
        zone.set_boost(watermarks.boost);
        if raised && flags.contains(AllocFlags::KSWAPD) {
            self.set_flag(BOOSTED);
        }
    }

    /// After an order > 0 allocation with the right to it, sets the block's pageblock aside for
    /// others like it (LB B.8).
    #[cold]
    #[inline(never)]
    pub fn reserve_highatomic(self, pfn: Pfn, order: Order) {
        let mut locked = self.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        // An owner would not know that the pageblock is set aside.
        if let Some(idx) = frames.index(pfn).filter(|_| !self.owned().is_owned(pfn)) {
            let limit = self.on.policy().highatomic.limit.pages(self.zone.managed());
            buddy.reserve_highatomic(frames, idx, order, limit);
        }
    }

    /// LB B.8: gives a pageblock of the reserve back to the request's type.
    #[cold]
    #[inline(never)]
    pub fn unreserve_highatomic(self, mt: Migratetype, force: bool) -> bool {
        let mut locked = self.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        buddy.unreserve_highatomic(frames, mt, force)
    }

    /// Checks that the block is handed out with this order, and takes it out of the owner's hands.
    #[inline]
    pub fn claim_word(self, pfn: Pfn, frame: u32, order: Order) -> Result<PageWord, FreeError> {
        let word = self.on.word(frame);
        let held = PageWord(word.load(Relaxed));
        match held.allocated_as(order) {
            Some(mt) if claim::exchange(word, held.0, PageWord::moving(order, mt, None).0) => {
                Ok(held)
            }
            _ => Err(unclaimed(self, (pfn, order), held)),
        }
    }

    /// Frees a block to the buddy, or to the owner of its pageblock. The caller has taken its word
    /// out of its holder's hands.
    #[inline(never)]
    pub fn free_direct(self, pcp: &Pcp, pfn: Pfn, order: Order) {
        if self.on.owns_pageblocks() && self.owned().free(pcp, pfn, order) {
            return;
        }
        let mut locked = self.lock();
        if let Some(idx) = locked.frames.index(pfn) {
            self.free_claimed(&mut locked, pcp, (idx, order));
        }
    }

    /// The same, with the zone locked.
    pub fn free_claimed(
        self,
        locked: &mut LockedZone<'_, P>,
        pcp: &Pcp,
        (idx, order): (u32, Order),
    ) {
        let LockedZone { buddy, frames, .. } = &mut *locked;
        if buddy.frees(frames, idx, order, FreeFlags::default()) {
            locked.account(self.on.free_diff(pcp), order.pages() as i64, 1);
            pcp.events.direct_freed.fetch_add(order.pages(), Relaxed);
        } else {
            debug_assert!(is_corrupt(frames, idx, order));
            pcp.events.double_frees.fetch_add(1, Relaxed);
        }
    }

    /// Takes a free block out of the buddy, ignoring watermarks, while no request may see it.
    /// `None` without a block of this order. It is nobody's: a former owner's second free is
    /// refused.
    pub fn isolate_block(self, order: Order) -> Option<Pfn> {
        let mut locked = self.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        let has = |mt: &Migratetype| buddy.nonempty_orders(*mt) & (1 << order.get()) != 0;
        let mt = types.into_iter().find(has)?;
        let idx = buddy.take_smallest(frames, order, mt)?;
        frames.store(idx, PageWord::cached(order, mt, PcpId::ISOLATED));
        let pfn = frames.pfn(idx);
        let pcp = self.pcp(self.on.platform.cpu());
        locked.account(&pcp.free_diff, -(order.pages() as i64), 1);
        // Relaxed: under the zone lock, so whoever finds the block gone finds it counted.
        self.on.events.isolated.fetch_add(1, Relaxed);
        Some(pfn)
    }

    /// Puts back what [`isolate_block`](Self::isolate_block) took, at the end of its list.
    /// `false`, and nothing done: no isolated block of the order begins there.
    pub fn restore_block(self, pfn: Pfn, order: Order) -> bool {
        let mut locked = self.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        let Some((idx, _)) = isolated(frames, pfn, order) else { return false };
        if buddy.frees(frames, idx, order, FreeFlags { to_tail: true }) {
            let pcp = self.pcp(self.on.platform.cpu());
            locked.account(&pcp.free_diff, order.pages() as i64, 1);
        }
        self.on.events.end_isolation();
        true
    }

    /// Hands out what [`isolate_block`](Self::isolate_block) took. `false`: no isolated block of
    /// the order begins there.
    pub fn keep_block(self, pfn: Pfn, order: Order) -> bool {
        let locked = self.lock();
        let Some((idx, mt)) = isolated(&locked.frames, pfn, order) else { return false };
        let pcp = self.on.pcp_id(self.zone.id, self.on.platform.cpu());
        locked.frames.store(idx, PageWord::allocated(order, mt, pcp));
        self.on.events.end_isolation();
        true
    }

    /// Whether most free pages lie in blocks of at least this order.
    pub fn is_mostly_whole(self, order: Order) -> bool {
        let locked = self.lock();
        let blocks = (order.get()..=Order::MAX.get()).filter_map(Order::new);
        let whole = blocks.map(|o| u64::from(locked.buddy.nr_free(o)) << o.get()).sum::<u64>();
        2 * whole >= locked.buddy.free_pages()
    }

    /// Frames of pages inside the zone.
    fn frames_of(self, pages: &Range<Pfn>) -> Range<u32> {
        let index = |pfn: Pfn| (pfn.0 - self.zone.start_pfn) as u32;
        index(pages.start)..index(pages.end)
    }

    /// Refuses pages inside the locked zone of which one is there.
    pub fn look_unused(
        self,
        locked: &LockedZone<'_, P>,
        pages: &Range<Pfn>,
    ) -> Result<(), buddy::FreeError> {
        self.owned().look_absent(pages.clone())?;
        locked.buddy.look_unused(&locked.frames, self.frames_of(pages))
    }

    /// Hands pages inside the zone, never used before, to its locked buddy.
    pub fn seed(
        self,
        locked: &mut LockedZone<'_, P>,
        pages: Range<Pfn>,
    ) -> Result<(), buddy::FreeError> {
        // Words do not say that they are free in a CPU's own pageblock.
        self.owned().look_absent(pages.clone())?;
        let LockedZone { buddy, frames, .. } = &mut *locked;
        let before = buddy.free_pages();
        let seeded = buddy.seed(frames, self.frames_of(&pages));
        let added = buddy.free_pages() - before;
        locked.fold(added as i64);
        self.zone.set_managed(self.zone.managed() + added);
        seeded
    }

    /// The zone has failed a request of this order: brings whole sections of its memory to come
    /// online until the block can be among them. Returns whether it grew, perhaps by another
    /// thread.
    #[inline]
    pub fn grew(self, order: Order) -> bool {
        self.on.is_growing() && self.grow_for(order)
    }

    #[cold]
    fn grow_for(self, order: Order) -> bool {
        let zone = self.zone;
        if zone.deferred.left() == 0 {
            return false;
        }
        let before = zone.managed();
        // Claimed and freed in one hold of the lock: no reader can see the pages missing.
        let mut locked = self.lock();
        if zone.managed() > before {
            return true;
        }
        let pages = order.pages().next_multiple_of(SECTION_PAGES);
        let Some(range) = zone.deferred.take(pages) else { return false };
        let seeded = self.seed(&mut locked, range);
        drop(locked);
        self.clear_below_high();
        seeded.is_ok()
    }

    /// Waits, at most `most` times, while workers have claimed memory of the zone that is not
    /// there yet. Returns whether there was any.
    pub fn wait_for_growth(self, most: u32) -> bool {
        let claimed = || self.zone.deferred.is_claimed();
        if !claimed() {
            return false;
        }
        (0..most).take_while(|_| claimed()).for_each(|_| self.on.platform.relax());
        true
    }
}

/// Whether a block cannot be freed because its word is none that this crate writes.
fn is_corrupt(frames: &Frames<'_>, idx: u32, order: Order) -> bool {
    let why = buddy::why_not(frames, idx, order);
    why.is_err_and(|error| matches!(error.cause, FreeCause::Corrupt))
}

/// The frame and the type of a block that was isolated. `None`: no isolated block of the order
/// begins there. The zone lock is held.
fn isolated(frames: &Frames<'_>, pfn: Pfn, order: Order) -> Option<(u32, Migratetype)> {
    let idx = frames.index(pfn)?;
    match frames.load(idx).state() {
        PageState::Cached { order: has, mt, pcp: PcpId::ISOLATED } if has == order => {
            Some((idx, mt))
        }
        _ => None,
    }
}
