//! Ranges parked and handed out again under the gate of a pcp (PARK-1 to PARK-3 in
//! [`parked`](super::parked)).

use super::front::{Front, ListOf};
use super::gated::{Cells, Entered};
use super::word::PcpWord;
use crate::frame::claim;
use crate::frame::{PageWord, RANGE, WHOLE_RANGE};
use crate::sync::Ordering::Relaxed;

impl Entered<'_> {
    /// Hands out the parked range, if it is one of so many pages.
    #[inline(always)]
    pub(crate) fn take_parked<'a>(self, front: Front, cells: impl Cells<'a>) -> Option<u32> {
        let parked = &self.pcp.parked;
        let (frame, pages) = parked.range()?;
        if pages != front.pages {
            return None;
        }
        let page = cells.word(u64::from(frame))?;
        let allocated = PageWord(self.pcp.ready.allocated.load(Relaxed));
        front.each_other(|at, order| {
            if let Some(word) = cells.word(u64::from(frame + at)) {
                word.store(allocated.with_order(order).0 | RANGE, Relaxed);
            }
        });
        // The first one last: who claims it sees that the range goes on (RANGE-4).
        claim::write(page, allocated.with_order(front.first()).0 | WHOLE_RANGE);
        parked.hand_out(1 << front.order);
        Some(frame)
    }

    /// Takes a whole range back and parks it, where nothing is parked and room is kept for as many
    /// pages. The range begins as its block does, and blocks of its pageblock's type go on the list
    /// that the pcp is ready with. Otherwise as [`push_front`](Self::push_front).
    #[inline(always)]
    pub(crate) fn park<'a>(
        &self,
        (frame, front): (u64, Front),
        goes_on: impl FnOnce() -> bool,
        cells: impl Cells<'a>,
    ) -> bool {
        let parked = &self.pcp.parked;
        // Words of this pcp are only in its own zone, so the claim says that the range is there.
        if !parked.is_for(front.order, front.pages)
            || !self.claim_front((frame, front), goes_on, cells)
        {
            return false;
        }
        parked.put(frame, front.pages);
        true
    }

    /// Keeps room for such a range to be parked, where none is. `false`: there is no room.
    pub(super) fn keep_room(&self, front: Front) -> bool {
        // Where each allocation is recorded nobody takes it.
        let keeps = self.pcp.ready.serves.load(Relaxed) != 0
            && self.has_room_for(PcpWord(self.pcp.word.load(Relaxed)), front.pages);
        if keeps {
            self.lend(front.pages);
            self.pcp.parked.keep_room(front.order, front.pages);
        }
        keeps
    }

    /// The active list counts no room any more.
    fn give_room_back(&self) {
        let room = self.pcp.parked.take_room();
        if room != 0 {
            self.set_others(|others| others.saturating_sub(room));
        }
    }

    /// Puts a parked range on its lists, before something else becomes of the active one (PARK-1).
    /// `lists` names those of the pageblock of a frame, and the pageblock's type. `false`: a
    /// decision is to be made, by who closes the pcp, which is ready for nothing until then.
    #[inline(always)]
    pub(crate) fn unpark<'a, L: ListOf>(
        &mut self,
        lists: impl FnOnce(u32) -> Option<(u32, L)>,
        cells: impl Cells<'a>,
    ) -> bool {
        let done = self.put_parked(lists, cells);
        if !done {
            self.gate.make_unready();
        }
        done
    }

    #[inline(always)]
    fn put_parked<'a, L: ListOf>(
        &self,
        lists: impl FnOnce(u32) -> Option<(u32, L)>,
        cells: impl Cells<'a>,
    ) -> bool {
        let parked = &self.pcp.parked;
        if !parked.has_room() {
            return parked.pages() == 0;
        }
        self.give_room_back();
        let Some((frame, pages)) = parked.range() else { return true };
        let Some(front) = Front::of(pages) else { return true };
        let front = (u64::from(frame), front);
        let done = lists(frame)
            .filter(|(mt, _)| self.takes(*mt))
            .is_some_and(|(_, lists)| self.put_front(front, lists, cells, || true));
        if done {
            parked.take();
        }
        done
    }
}
