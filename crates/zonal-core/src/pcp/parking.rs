//! Ranges parked and handed out again under the gate of a pcp (PARK-1 to PARK-3 in
//! [`parked`](super::parked)).

use super::front::{Front, ListOf};
use super::gated::{Cells, Entered};
use super::word::PcpWord;
use crate::frame::PageWord;
use crate::frame::claim;
use crate::sync::Ordering::Relaxed;

impl Entered<'_> {
    /// Hands out the parked range, if it is one of so many pages, at least one.
    #[inline(always)]
    pub(crate) fn take_parked<'a>(self, pages: u32, cells: impl Cells<'a>) -> Option<u32> {
        let parked = &self.pcp.parked;
        let frame = parked.of(pages)?;
        // The words of its other blocks are as they were (PARK-3).
        claim::write(cells.word(u64::from(frame))?, parked.told());
        parked.hand_out();
        Some(frame)
    }

    /// Takes a range of so many pages back and parks it, where nothing is parked and room is kept
    /// for as many. Blocks of its pageblock's type go on the list that the pcp is ready with.
    /// `false`: nothing was done, or there is no such range.
    #[inline(always)]
    pub(crate) fn park<'a>(&self, frame: u64, pages: u32, cells: impl Cells<'a>) -> bool {
        let parked = &self.pcp.parked;
        // Words of this pcp are only in its own zone, and one that tells as many pages is of all of
        // a range: the claim says that it is there (RANGE-6).
        let parks =
            parked.is_for(pages) && cells.word(frame).is_some_and(|word| parked.claim(word));
        if parks {
            parked.put(frame, pages);
        }
        parks
    }

    /// Keeps room for such a range to be parked, where none is. `false`: there is no room.
    pub(super) fn keep_room(&self, front: Front) -> bool {
        // Where each allocation is recorded nobody takes it.
        let keeps = self.pcp.ready.serves.load(Relaxed) != 0
            && self.has_room_for(PcpWord(self.pcp.word.load(Relaxed)), front.pages);
        if keeps {
            self.lend(front.pages);
            let allocated = PageWord(self.pcp.ready.allocated());
            self.pcp.parked.keep_room(front.order, front.pages, front.told(allocated));
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

    /// Takes the words of all blocks of the parked range, which are nobody's then.
    fn take_apart<'a>(&self, (frame, front): (u64, Front), cells: impl Cells<'a>) -> bool {
        let whole = PageWord(self.pcp.ready.allocated());
        front.each_other(|at, order| {
            if let Some(word) = cells.word(frame + u64::from(at)) {
                word.store(whole.with_order(order).as_moving(true).0, Relaxed);
            }
        });
        // The first one last: who finds that it is not parked finds the others gone (PARK-3).
        if let Some(word) = cells.word(frame) {
            claim::write(word, whole.with_order(front.first()).as_moving(false).0);
        }
        true
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
        let done = lists(frame).filter(|(mt, _)| self.takes(*mt)).is_some_and(|(_, lists)| {
            let claim = || self.take_apart(front, cells);
            self.put_front(front, lists, cells, claim)
        });
        if done {
            parked.take();
        }
        done
    }
}
