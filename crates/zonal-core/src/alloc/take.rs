//! One block, from the CPU's store of a zone or from the zone's buddy (LB D.4 `rmqueue`, E.6).

use super::Allocator;
use crate::buddy::{Fallback, TakeRequest};
use crate::frame::PageWord;
use crate::gfp::AllocFlags;
use crate::pcp::closed::Closed;
use crate::pcp::store::Pcp;
use crate::pcp::tune;
use crate::platform::{Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, Order, Pfn, ZoneId};
use crate::zone::state::{BOOSTED, LockedZone, Zone};

/// A request as the zone scan has prepared it.
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

impl<'a, P: Platform> Allocator<'a, P> {
    /// A block of `zone`, or `None` if neither this CPU's store nor the buddy has one.
    pub(super) fn rmqueue(&self, zone: &'a Zone, want: Want) -> Option<Pfn> {
        let cpu = self.platform.cpu();
        let pcp = self.pcp(zone.id, cpu);
        let got = match self.map.get(want.order, want.mt) {
            Some(list) => self
                .take_cached(zone, self.store_for(zone.id, cpu, want.cold), list, want)
                .or_else(|| self.take_direct(zone, pcp, want)),
            None => self.take_direct(zone, pcp, want),
        }?;
        self.count_event(zone, pcp, cpu, want, 1);
        if want.flags.contains(AllocFlags::KSWAPD) && zone.has(BOOSTED) {
            zone.clear_flag(BOOSTED);
            zone.refresh_fast();
            self.wake_background(zone, Order::ZERO, zone.kind());
        }
        Some(got)
    }

    fn take_cached(&self, zone: &'a Zone, pcp: &'a Pcp, list: usize, want: Want) -> Option<Pfn> {
        let mut closed = pcp.try_close(&self.platform, zone, self.slots)?;
        loop {
            if closed.len(list) == 0 && self.refill(zone, &mut closed, list, want) == 0 {
                let mut state = closed.state_without_factor();
                tune::on_take(&mut state);
                closed.set_state_without_factor(&state);
                return None;
            }
            let frame = closed.pop(list, true)?;
            if let Some(pfn) = self.hand_out(zone, pcp, list, frame) {
                return Some(pfn);
            }
        }
    }

    /// Marks a popped frame as handed out. `None`: a racing double free had put it on two stacks,
    /// and it is the other copy that counts (PCP-3).
    #[inline]
    pub(super) fn hand_out(&self, zone: &Zone, pcp: &Pcp, list: usize, frame: u32) -> Option<Pfn> {
        let word = &self.words[frame as usize];
        let record = &pcp.lists[list];
        if word.load(Relaxed) != record.cached {
            pcp.events.double_frees.fetch_add(1, Relaxed);
            return None;
        }
        word.store(record.allocated, Relaxed);
        Some(Pfn(zone.start_pfn + (u64::from(frame) - zone.frame_base as u64)))
    }

    /// Fills an empty list from the depot, or from the buddy (LB E.6). Returns the blocks got.
    pub(super) fn refill(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        list: usize,
        want: Want,
    ) -> u32 {
        let pcp = closed.pcp;
        let taken = self.take_batch(zone, closed, list);
        if taken > 0 {
            return taken;
        }
        let mut state = closed.state();
        let pressure = self.pressure(zone);
        let wanted = tune::nr_alloc(&mut state, &self.params(zone, pcp), pressure, want.order);
        closed.set_state(&state);
        let pages = closed.count().saturating_add(wanted << want.order.get());
        let covered = closed.cover(pages.max(closed.high()));
        let wanted = wanted.min(covered.saturating_sub(closed.count()) >> want.order.get());
        if wanted == 0 {
            return 0;
        }
        let got = self.refill_whole(zone, closed, (list, wanted), want);
        if got > 0 {
            return got;
        }
        let request = self.take_request(want);
        let cached = pcp.lists[list].cached;
        let words = &self.words[zone.frame_base..];
        let mut sink = closed.refill(list, wanted);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let base = zone.frame_base as u32;
        let mut boosts = 0;
        let got = buddy.take_bulk(
            frames,
            request,
            sink.room(),
            &self.fallback,
            &mut |event| self.on_fallback(event, &mut boosts),
            |idx| {
                words[idx as usize].store(cached, Relaxed);
                sink.give(base + idx);
            },
        );
        locked.account(self.free_diff(pcp), -(want.order.pages() as i64), got);
        self.boost(zone, boosts, want.flags);
        drop(locked);
        closed.refilled(list, sink);
        if got > 0 {
            pcp.events.refills.fetch_add(1, Relaxed);
        }
        self.platform.cost(Step::Moved { zone: zone.id, pages: got << want.order.get() });
        got
    }

    /// A block straight from the buddy, for orders without lists and when the store is closed.
    fn take_direct(&self, zone: &'a Zone, pcp: &'a Pcp, want: Want) -> Option<Pfn> {
        let request = self.take_request(want);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let mut boosts = 0;
        let high_atomic = |buddy: &mut crate::buddy::Buddy| {
            buddy.take_smallest(frames, want.order, Migratetype::HighAtomic)
        };
        let mut idx = None;
        if want.flags.contains(AllocFlags::HIGHATOMIC) {
            idx = high_atomic(buddy);
        }
        idx = idx.or_else(|| {
            buddy.take(frames, request, &self.fallback, &mut |event| {
                self.on_fallback(event, &mut boosts);
            })
        });
        if want.flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            idx = idx.or_else(|| high_atomic(buddy));
        }
        if let Some(idx) = idx {
            let store = self.store_id(zone.id, pcp.cpu());
            frames.store(idx, PageWord::allocated(want.order, want.mt, store));
            locked.account(self.free_diff(pcp), -(want.order.pages() as i64), 1);
            pcp.events.direct_allocs.fetch_add(1, Relaxed);
            pcp.events.direct_pages.fetch_add(want.order.pages(), Relaxed);
        }
        self.boost(zone, boosts, want.flags);
        let pfn = idx.map(|idx| locked.frames.pfn(idx));
        drop(locked);
        pfn
    }

    /// After an order > 0 allocation with the right to it, sets the block's pageblock aside for
    /// others like it (LB B.8).
    pub(super) fn reserve_highatomic(&self, zone: &'a Zone, pfn: Pfn, order: Order) {
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        if let Some(idx) = frames.index(pfn) {
            let limit = self.policy.highatomic.limit.pages(zone.managed());
            buddy.reserve_highatomic(frames, idx, order, limit);
        }
    }

    pub(super) fn take_request(&self, want: Want) -> TakeRequest {
        TakeRequest {
            order: want.order,
            mt: want.mt,
            nofragment: want.flags.contains(AllocFlags::NOFRAGMENT),
        }
    }

    pub(super) fn on_fallback(&self, event: Fallback, boosts: &mut u32) {
        match event {
            Fallback::Boost => *boosts += 1,
            Fallback::Taken(taken) if taken.claimed => {
                self.events.claims.fetch_add(1, Relaxed);
            }
            Fallback::Taken(_) => {
                self.events.steals.fetch_add(1, Relaxed);
            }
        }
    }

    /// Raises the zone's watermarks because types were mixed (LB C.4). The zone lock is held.
    pub(super) fn boost(&self, zone: &Zone, boosts: u32, flags: AllocFlags) {
        if boosts == 0 {
            return;
        }
        let mut marks = zone.marks();
        let mut raised = false;
        for _ in 0..boosts {
            raised |= marks.raise_boost(zone.managed(), self.boost_factor.load(Relaxed));
        }
        zone.set_marks(&marks);
        if raised && flags.contains(AllocFlags::KSWAPD) {
            zone.set_flag(BOOSTED);
        }
    }
}
