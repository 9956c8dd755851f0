//! Many order-0 pages in one hold of the store (LB D.9), and many blocks back.

use super::run::{RUN, Words};
use super::take::Want;
use super::{AllocError, Allocator, FreeError, Request};
use crate::gfp::{AllocFlags, Gfp};
use crate::pcp::closed::Closed;
use crate::pcp::store::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{Order, Pfn};
use crate::zone::state::{FAST_FREE, Zone};
use crate::zone::watermark::Mark;

/// Most pages taken in one hold of the store: some microsecond, while others on the CPU go to the
/// buddy.
const HOLD_PAGES_MAX: usize = 2048;

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
        let mut got = self.take_blocks_apart(zone, &mut closed, (list, want), pages, make);
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
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let words = Words::of(zone, self.words, &pcp.lists[list]);
        let (mut got, mut singles) = (0, RUN);
        while !slots.is_empty() {
            let up = words.take_runs::<true, _>(slots, &mut pages[got..], &make);
            let rest = &slots[..slots.len() - up];
            let down = words.take_runs::<false, _>(rest, &mut pages[got + up..], &make);
            got += up + down;
            slots = &rest[..rest.len() - down];
            singles = after_runs(up + down, singles);
            let few = &slots[slots.len().saturating_sub(singles)..];
            let right = words.take_singles(few, &mut pages[got..], &make);
            got += right;
            slots = &slots[..slots.len() - right];
            if right < few.len() {
                pcp.events.double_frees.fetch_add(1, Relaxed);
                slots = &slots[..slots.len() - 1];
            }
        }
        got
    }

    /// Frees blocks of one order. Stops at the first that is refused.
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    pub fn free_bulk(&self, pages: &[Pfn], order: Order) -> Result<(), (usize, FreeError)> {
        self.free_bulk_with(pages, order, |pfn| *pfn, |pfn| pfn)
    }

    /// As [`free_bulk`](Self::free_bulk), for the pages that `pfn` makes of `pages`; `page` is its
    /// inverse.
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    #[inline]
    pub fn free_bulk_with<T: PartialEq>(
        &self,
        pages: &[T],
        order: Order,
        pfn: impl Fn(&T) -> Pfn,
        page: impl Fn(Pfn) -> T,
    ) -> Result<(), (usize, FreeError)> {
        let mut done = 0;
        while done < pages.len() {
            let hold = HOLD_PAGES_MAX.min(pages.len() - done);
            let some = self.free_hold(&pages[done..done + hold], order, &pfn, &page);
            done += some.map_err(|(freed, error)| (done + freed, error))?;
        }
        Ok(())
    }

    /// Frees blocks of one zone and list in one hold of the store; at least one of `pages`, which
    /// are not none.
    #[inline]
    fn free_hold<T: PartialEq>(
        &self,
        pages: &[T],
        order: Order,
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
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
            if order == Order::ZERO {
                let rest = &pages[done..];
                let block = self.put_block_together(zone, &mut closed, list, rest, pfn, page);
                done += block;
                if block > 0 {
                    continue;
                }
            }
            if order == Order::ZERO && zone.has(FAST_FREE) {
                // Pages for which there is room need no decision; the next one does.
                let before = self.before_block(&pcp.lists[list], &pages[done..], pfn, page);
                let room = (closed.room(list) as usize).min(before);
                let cap = pcp.free_count_cap.load(Relaxed);
                let pages = &pages[done..done + room];
                let fill = |slots: &_| self.list_run((zone, pcp, list), slots, pages, pfn, page);
                let pushed = closed.push_run(list, cap, fill);
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

    /// Takes order-0 pages out of their owner's hands, from the front, and names them in slots. How
    /// many: up to the first that is not for this list or not handed out, of which the long way
    /// says which it is. Plain loads and stores: if two threads free one page at the same time, the
    /// last writer's CPU is in the word and the other copy is dropped when it is popped (PCP-3).
    #[inline]
    fn list_run<T: PartialEq>(
        &self,
        (zone, pcp, list): (&Zone, &Pcp, usize),
        slots: &[AtomicU32],
        pages: &[T],
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
    ) -> usize {
        let words = Words::of(zone, self.words, &pcp.lists[list]);
        let (mut done, mut singles) = (0, RUN);
        while done < pages.len().min(slots.len()) {
            // With grouping each page's pageblock says which list is its.
            if !self.grouping {
                let up = words.put_runs::<true, _>(&slots[done..], &pages[done..], pfn, page);
                done += up;
                let down = words.put_runs::<false, _>(&slots[done..], &pages[done..], pfn, page);
                done += down;
                singles = after_runs(up + down, singles);
            }
            let few = pages[done..].len().min(slots[done..].len()).min(singles);
            let (slots, pages) = (&slots[done..done + few], &pages[done..done + few]);
            let put = match self.grouping {
                false => words.put_singles(slots, pages, pfn, |_| true),
                true => words.put_singles(slots, pages, pfn, |pfn| {
                    self.same_list(zone, pfn, Order::ZERO, list)
                }),
            };
            done += put;
            if put < few {
                break;
            }
        }
        done
    }
}

/// How many pages come one by one before a run is looked for again: few behind a run, twice as many
/// each time that none was there.
fn after_runs(found: usize, singles: usize) -> usize {
    if found > 0 { RUN } else { 2 * singles }
}
