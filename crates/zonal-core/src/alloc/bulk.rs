//! Many order-0 pages in one hold of the store (LB D.9), and many blocks back.

use super::take::Want;
use super::{AllocError, Allocator, FreeError, Request};
use crate::frame::PageWord;
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::closed::Closed;
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{Order, Pfn};
use crate::zone::state::{FAST_FREE, Zone};
use crate::zone::watermark::Mark;

/// Most pages taken in one hold of the store; others on the CPU go to the buddy meanwhile.
const HOLD_PAGES_MAX: usize = 1024;

impl<'a, P: Platform> Allocator<'a, P> {
    /// Fills `pages` from the front with order-0 pages and returns how many it got. Like Linux it
    /// keeps to the preferred node while it can spare that many, and never does worse than one
    /// call of [`alloc`](Self::alloc); call again for the rest.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page could be had.
    pub fn alloc_bulk(&self, request: Request, pages: &mut [Pfn]) -> Result<usize, AllocError> {
        self.alloc_bulk_with(request, pages, |pfn| pfn)
    }

    /// As [`alloc_bulk`](Self::alloc_bulk), with what `make` makes of each page.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page could be had.
    #[inline]
    pub fn alloc_bulk_with<T>(
        &self,
        request: Request,
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> Result<usize, AllocError> {
        let request = Request { order: Order::ZERO, ..request };
        let mut got = 0;
        for hold in pages.chunks_mut(HOLD_PAGES_MAX) {
            let some = self.bulk_hold(&request, hold, &make)?;
            got += some;
            if some < hold.len() {
                break;
            }
        }
        if got == 0
            && let Some(page) = pages.first_mut()
        {
            *page = make(self.alloc(request)?);
            got = 1;
        }
        Ok(got)
    }

    #[inline]
    fn bulk_hold<T>(
        &self,
        request: &Request,
        pages: &mut [T],
        make: &impl Fn(Pfn) -> T,
    ) -> Result<usize, AllocError> {
        let ctx = self.context(request)?;
        let preferred = self.zone(ctx.zonelist[ctx.first]);
        let want = pages.len() as u64;
        let enough = ctx.zonelist[ctx.first..].iter().map(|id| self.zone(*id)).find(|zone| {
            let snapshot = zone.snapshot(ctx.highest);
            let mark = zone.marks().mark(Mark::Low) + want;
            zone.node == preferred.node
                && ctx.allows(zone)
                && (snapshot.ok(Order::ZERO, mark, AllocFlags::WMARK_LOW)
                    || self.grew(zone, Order::ZERO))
        });
        let Some(zone) = enough else { return Ok(0) };
        let Some(list) = self.map.get(Order::ZERO, ctx.mt) else { return Ok(0) };
        let cpu = self.platform.cpu();
        let cold = ctx.gfp.contains(Gfp::COLD);
        let pcp = self.store_for(zone.id, cpu, cold);
        let Some(mut closed) = pcp.try_close(&self.platform, zone, self.slots) else {
            return Ok(0);
        };
        let mut flags = AllocFlags::WMARK_LOW;
        if ctx.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            flags |= AllocFlags::KSWAPD;
        }
        let want = Want { order: Order::ZERO, mt: ctx.mt, flags, preferred: preferred.id, cold };
        let mut got = 0;
        while got < pages.len() {
            if closed.len(list) == 0 && self.refill(zone, &mut closed, list, want) == 0 {
                break;
            }
            // Hottest first, as single allocations would have them. A frame that was a stray copy
            // is dropped; the loop asks for another.
            let slots = closed.pop_many(list, pages.len() - got);
            got += self.hand_out_run(zone, pcp, list, slots, &mut pages[got..], make);
        }
        drop(closed);
        self.count_event(zone, pcp, cpu, want, got as u64);
        Ok(got)
    }

    /// Marks popped order-0 frames as handed out, hottest first, and fills `pages` from the front.
    /// Returns how many were right; stray copies are left out.
    #[inline]
    fn hand_out_run<T>(
        &self,
        zone: &Zone,
        pcp: &Pcp,
        list: usize,
        mut slots: &[AtomicU32],
        mut pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let (cached, allocated) = (pcp.lists[list].cached, pcp.lists[list].allocated);
        let words = &self.words[zone.frame_base..zone.frame_base + zone.spanned as usize];
        let (base, start_pfn) = (zone.frame_base, zone.start_pfn);
        let mut got = 0;
        while !slots.is_empty() {
            let mut run = 0;
            for (slot, page) in slots.iter().rev().zip(pages.iter_mut()) {
                let idx = slot.load(Relaxed) as usize - base;
                let Some(word) = words.get(idx).filter(|word| word.load(Relaxed) == cached) else {
                    break;
                };
                word.store(allocated, Relaxed);
                *page = make(Pfn(start_pfn + idx as u64));
                run += 1;
            }
            got += run;
            pages = &mut pages[run..];
            let stray = slots.len() > run;
            pcp.events.double_frees.fetch_add(u64::from(stray), Relaxed);
            slots = &slots[..slots.len() - run - usize::from(stray)];
        }
        got
    }

    /// Frees blocks of one order. Stops at the first that is refused.
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    pub fn free_bulk(&self, pages: &[Pfn], order: Order) -> Result<(), (usize, FreeError)> {
        self.free_bulk_with(pages, order, |pfn| *pfn)
    }

    /// As [`free_bulk`](Self::free_bulk), for the pages that `pfn` makes of `pages`.
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    #[inline]
    pub fn free_bulk_with<T>(
        &self,
        pages: &[T],
        order: Order,
        pfn: impl Fn(&T) -> Pfn,
    ) -> Result<(), (usize, FreeError)> {
        let mut done = 0;
        while done < pages.len() {
            let hold = HOLD_PAGES_MAX.min(pages.len() - done);
            let some = self.free_hold(&pages[done..done + hold], order, &pfn);
            done += some.map_err(|(freed, error)| (done + freed, error))?;
        }
        Ok(())
    }

    /// Frees blocks of one zone and list in one hold of the store; at least one of `pages`, which
    /// are not none.
    #[inline]
    fn free_hold<T>(
        &self,
        pages: &[T],
        order: Order,
        pfn: &impl Fn(&T) -> Pfn,
    ) -> Result<usize, (usize, FreeError)> {
        let first = pfn(&pages[0]);
        let zone = self.zone_of(first).ok_or((0, FreeError::Foreign(first)))?;
        let pcp = self.pcp(zone.id, self.platform.cpu());
        let list = self.map.get(order, self.pageblock_type(zone, first));
        let closed = list.and_then(|_| pcp.try_close(&self.platform, zone, self.slots));
        let (Some(list), Some(mut closed)) = (list, closed) else {
            self.free(first, order).map_err(|error| (0, error))?;
            return Ok(1);
        };
        let mut done = 0;
        while let Some(next) = pages.get(done) {
            if order == Order::ZERO && zone.has(FAST_FREE) {
                // Pages for which there is room need no decision; the next one does.
                let room = (closed.room(list) as usize).min(pages.len() - done);
                let cap = pcp.free_count_cap.load(Relaxed);
                let mark = self.marker(zone, pcp, list);
                let run = pages[done..done + room].iter().map(pfn);
                let pushed = closed.push_run(list, cap, run.map_while(mark));
                done += pushed;
                if pushed > 0 {
                    continue;
                }
            }
            let next = pfn(next);
            if !self.same_list(zone, next, order, list) {
                // Another zone or list: the next hold is its. The first one is not such.
                return if done > 0 { Ok(done) } else { self.free_alone(closed, next, order) };
            }
            self.free_held(zone, &mut closed, list, next, order).map_err(|error| (done, error))?;
            done += 1;
        }
        Ok(done)
    }

    fn free_alone(
        &self,
        closed: Closed<'a>,
        pfn: Pfn,
        order: Order,
    ) -> Result<usize, (usize, FreeError)> {
        drop(closed);
        self.free(pfn, order).map(|()| 1).map_err(|error| (0, error))
    }

    /// One block of a bulk free, by the way that decides what goes back to the zone.
    fn free_held(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        list: usize,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        let pcp = closed.pcp;
        let frame = self.frame(zone, pfn);
        let held = self.claim_word(zone, pfn, frame, order)?;
        let word = &self.words[frame as usize];
        // Relaxed: the word is ours between the claim and the push.
        word.store(pcp.lists[list].cached, Relaxed);
        if !self.push_block(zone, closed, list, frame, order) {
            word.store(held.0, Relaxed);
            self.free_direct(zone, pcp, pfn, order);
        }
        Ok(())
    }

    fn same_list(&self, zone: &Zone, pfn: Pfn, order: Order, list: usize) -> bool {
        zone.contains(pfn) && self.map.get(order, self.pageblock_type(zone, pfn)) == Some(list)
    }

    /// Takes the word of an order-0 page out of its owner's hands and gives its frame, unless it is
    /// not for this list or not handed out: the long way says which. Plain loads and stores: if two
    /// threads free one page at the same time, the last writer's CPU is in the word and the other
    /// copy is dropped when it is popped (PCP-3).
    #[inline]
    fn marker<'s>(
        &'s self,
        zone: &'s Zone,
        pcp: &Pcp,
        list: usize,
    ) -> impl Fn(Pfn) -> Option<u32> + 's {
        let (cached, allocated) = (pcp.lists[list].cached, PageWord(pcp.lists[list].allocated));
        let words = &self.words[zone.frame_base..zone.frame_base + zone.spanned as usize];
        let (base, start_pfn, grouping) = (zone.frame_base as u32, zone.start_pfn, self.grouping);
        move |pfn| {
            // A page below the zone wraps to an index far above it.
            let idx = pfn.0.wrapping_sub(start_pfn);
            let word = words.get(usize::try_from(idx).ok()?)?;
            let held = PageWord(word.load(Relaxed));
            if (held != allocated && !held.same_but_store(allocated))
                || (grouping && !self.same_list(zone, pfn, Order::ZERO, list))
            {
                return None;
            }
            word.store(cached, Relaxed);
            Some(base + idx as u32)
        }
    }
}
