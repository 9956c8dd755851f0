//! Many order-0 pages to and from one list of a closed pcp (LB D.9).

use core::cell::Cell;

use super::PcpOps;
use super::run::{PageName, RUN, Words};
use crate::alloc::request::FreeError;
use crate::alloc::zone_ops::{Want, ZoneOps};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};
use crate::zone::state::FAST_FREE;

impl<P: Platform> PcpOps<'_, '_, P> {
    /// Fills `pages` from the front with what `make` makes of each page. Returns how many it got.
    #[inline]
    pub fn take_many<T: PageName>(
        &mut self,
        list: usize,
        want: Want,
        pages: &mut [T],
        make: &impl Fn(Pfn) -> T,
    ) -> usize {
        let mut got = self.take_blocks_apart((list, want), pages, make);
        while got < pages.len() {
            if self.closed.len(list) == 0 && self.refill(list, want) == 0 {
                break;
            }
            // Hottest first, as single allocations would have them. A frame that was a stray copy
            // is dropped; the loop asks for another.
            let slots = self.closed.pop_many(list, pages.len() - got);
            got += self.hand_out_run(list, slots, &mut pages[got..], make);
        }
        got
    }

    /// Marks popped order-0 frames as handed out, hottest first, and fills `pages` from the front.
    /// Returns how many were right; stray copies are left out.
    #[inline]
    fn hand_out_run<T>(
        &self,
        list: usize,
        mut slots: &[AtomicU32],
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let pcp = self.closed.pcp;
        let words = Words::of(self.ops.zone, self.ops.on, (pcp, list));
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

    /// Frees blocks of one order for this list, from the front, up to the first that is for another
    /// one. How many.
    #[inline]
    pub fn free_many<T: PageName>(
        &mut self,
        list: usize,
        pages: &[T],
        order: Order,
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
    ) -> Result<usize, (usize, FreeError)> {
        let (ops, pcp) = (self.ops, self.closed.pcp);
        let mut done = 0;
        while let Some(next) = pages.get(done) {
            if order == Order::ZERO {
                let block = self.put_block_together(list, &pages[done..], pfn, page);
                done += block;
                if block > 0 {
                    continue;
                }
            }
            if order == Order::ZERO && ops.zone.has(FAST_FREE) {
                // Pages for which there is room need no decision; the next one does.
                let before = self.before_block(&pcp.lists[list], &pages[done..], pfn, page);
                let room = (self.closed.room(list) as usize).min(before);
                let cap = pcp.free_count_cap.load(Relaxed);
                let pages = &pages[done..done + room];
                let fill = |slots: &_| list_run((ops, pcp, list), slots, pages, pfn, page);
                let pushed = self.closed.push_run(list, cap, fill);
                done += pushed;
                if pushed > 0 {
                    continue;
                }
            }
            let next = pfn(next);
            if !same_list(ops, next, order, list) {
                break;
            }
            self.free_held(list, next, order).map_err(|error| (done, error))?;
            done += 1;
        }
        Ok(done)
    }

    /// One block of a bulk free, by the path that decides how much to drain.
    fn free_held(&mut self, list: usize, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let pcp = self.closed.pcp;
        let frame = self.ops.zone.frame(pfn);
        self.ops.claim_word(pfn, frame, order)?;
        if !self.push_claimed(list, frame, order) {
            self.ops.free_direct(pcp, pfn, order);
        }
        Ok(())
    }
}

/// Whether a block of the order that starts at the page waits on this list of the zone.
pub(super) fn same_list<P: Platform>(
    ops: ZoneOps<'_, '_, P>,
    pfn: Pfn,
    order: Order,
    list: usize,
) -> bool {
    ops.zone.contains(pfn) && ops.on.map.get(order, ops.pageblock_type(pfn)) == Some(list)
}

/// Which order-0 pages are for a list. With grouping each page's pageblock says that. Words outside
/// the zone do not exist, so a page beside the zone in a pageblock of ours is refused, too.
struct Ours<'s, 'a, P> {
    ops: ZoneOps<'s, 'a, P>,
    list: usize,
    grouping: bool,
    /// First page of the pageblock that was last found to be; at first one that no zone has.
    known: Cell<u64>,
}

impl<P: Platform> Ours<'_, '_, P> {
    /// Whether all pages of a run are, where there is grouping or not.
    #[inline(always)]
    fn has_run(&self, lowest: Pfn) -> bool {
        let at = lowest.0.wrapping_sub(self.known.get());
        !self.grouping || at <= PAGEBLOCK_PAGES - RUN as u64 || self.ask_run(lowest)
    }

    /// A run is shorter than a pageblock, so it is in two at most.
    #[inline(never)]
    fn ask_run(&self, lowest: Pfn) -> bool {
        self.has(lowest) && self.has(Pfn(lowest.0.wrapping_add(RUN as u64 - 1)))
    }

    /// Whether a page is, with grouping.
    #[inline]
    fn has(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.known.get()) < PAGEBLOCK_PAGES || {
            let is_ours = same_list(self.ops, pfn, Order::ZERO, self.list);
            if is_ours {
                self.known.set(pfn.0 >> PAGEBLOCK_ORDER.get() << PAGEBLOCK_ORDER.get());
            }
            is_ours
        }
    }
}

/// Takes order-0 pages out of their owner's hands, from the front, and names them in slots. How
/// many: up to the first that is not for this list or not handed out, of which the core
/// says which it is.
#[inline]
fn list_run<P: Platform, T: PageName>(
    (ops, pcp, list): (ZoneOps<'_, '_, P>, &Pcp, usize),
    slots: &[AtomicU32],
    pages: &[T],
    pfn: &impl Fn(&T) -> Pfn,
    page: &impl Fn(Pfn) -> T,
) -> usize {
    let words = Words::of(ops.zone, ops.on, (pcp, list));
    let ours = Ours { ops, list, grouping: ops.on.grouping(), known: Cell::new(1 << 63) };
    let (mut done, mut singles) = (0, RUN);
    while done < pages.len().min(slots.len()) {
        let up = words
            .put_runs::<true, _>(&slots[done..], &pages[done..], pfn, page, |at| ours.has_run(at));
        done += up;
        let down = words
            .put_runs::<false, _>(&slots[done..], &pages[done..], pfn, page, |at| ours.has_run(at));
        done += down;
        singles = after_runs(up + down, singles);
        let few = pages[done..].len().min(slots[done..].len()).min(singles);
        let (slots, pages) = (&slots[done..done + few], &pages[done..done + few]);
        let put = match ours.grouping {
            false => words.put_singles(slots, pages, pfn, |_| true),
            true => words.put_singles(slots, pages, pfn, |pfn| ours.has(pfn)),
        };
        done += put;
        if put < few {
            break;
        }
    }
    done
}

/// Pages handled one by one before the next search for a run: few after a run, twice as many after
/// each search without one.
fn after_runs(found: usize, singles: usize) -> usize {
    if found > 0 { RUN } else { 2 * singles }
}
