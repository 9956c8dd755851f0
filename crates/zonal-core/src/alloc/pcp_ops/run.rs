//! The page words of the bulk calls, and runs of neighbouring frames.
//!
//! Pages of one split block come off a list in a row, and a bulk free returns them in a row,
//! forwards or backwards. Their words are then neighbours, too, and are looked at and rewritten
//! eight at a time. Each direction has a loop of its own, in which one frame differs from the next
//! by a constant.

use crate::alloc::tables::Tables;
use crate::frame::{PageWord, claim};
pub use crate::lanes::PageName;
use crate::lanes::{
    all_u64s, are_row, are_steps, are_u64s, equal_u64s, fill_u64s, store_row, store_steps,
    store_u64s,
};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::Pfn;
use crate::zone::state::Zone;

/// Frames looked at together.
pub const RUN: usize = 8;

/// Whether names are what `expected` says.
#[inline(always)]
fn are_named<T: PageName>(names: &[T; RUN], expected: impl Fn(usize) -> T) -> bool {
    equal_u64s(names.map(T::bits), core::array::from_fn(|i| expected(i).bits()))
}

/// The page words of one zone, by index in the zone; an index outside has none.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    words: &'a [AtomicU64],
    base: u32,
    start_pfn: u64,
    /// Word of a page on the list.
    cached: u64,
    /// Word of a page from the list, once allocated.
    allocated: u64,
    /// Whether pages are claimed by exchanges. Where blocks are freed by sequences, which have
    /// none, a page is looked at and then written: an exchange for each would cost a bulk free some
    /// ten times what the rest of it does.
    pub exchanges: bool,
}

/// The frame `i` places after `first` in a run.
#[inline(always)]
fn behind<const UP: bool>(first: usize, i: usize) -> usize {
    if UP { first.wrapping_add(i) } else { first.wrapping_sub(i) }
}

impl<'a> Words<'a> {
    /// Those of `zone`, for pages of `list` of a pcp that is closed.
    pub fn of<P: Platform>(
        zone: &Zone,
        on: &Tables<'a, P>,
        (pcp, list): (&Pcp, usize),
    ) -> Words<'a> {
        let (base, spanned) = (zone.frame_base, zone.spanned as usize);
        let list = &pcp.lists[list];
        Words {
            words: &on.words[base..base + spanned],
            base: base as u32,
            start_pfn: zone.start_pfn,
            cached: list.cached,
            allocated: list.allocated,
            exchanges: !pcp.may_have_sequences(&on.platform),
        }
    }

    /// Index of the frame that a slot names.
    #[inline(always)]
    fn at_slot(self, slot: &AtomicU32) -> usize {
        slot.load(Relaxed).wrapping_sub(self.base) as usize
    }

    #[inline(always)]
    fn frame(self, at: usize) -> u32 {
        self.base.wrapping_add(at as u32)
    }

    /// Index of a page; outside the zone if the page is.
    #[inline(always)]
    fn at(self, pfn: Pfn) -> usize {
        pfn.0.wrapping_sub(self.start_pfn) as usize
    }

    /// The page frame number at an index.
    #[inline(always)]
    fn pfn(self, at: usize) -> Pfn {
        Pfn(self.start_pfn.wrapping_add(at as u64))
    }

    /// The words of a run, lowest first, if all of them are `word`.
    #[inline(always)]
    fn run_of<const UP: bool>(self, first: usize, word: u64) -> Option<&'a [AtomicU64; RUN]> {
        self.words_of::<UP>(first).filter(|words| are_u64s(words, word))
    }

    /// The words of a run, lowest first.
    #[inline(always)]
    fn words_of<const UP: bool>(self, first: usize) -> Option<&'a [AtomicU64; RUN]> {
        let lowest = if UP { first } else { behind::<UP>(first, RUN - 1) };
        self.words.get(lowest..).and_then(|words| words.first_chunk::<RUN>())
    }

    /// Hands out a run from the list, if all of its words are as they should be. They are then
    /// nobody else's to change: the list's pcp is closed for us.
    #[inline(always)]
    fn hand_out_run<const UP: bool>(self, first: usize) -> bool {
        let words = self.run_of::<UP>(first, self.cached);
        words.inspect(|words| store_u64s(words, self.allocated)).is_some()
    }

    /// Takes a run out of its owner's hands, from `first` on, up to a page that is not handed out
    /// from this list. How many; all of the run or nothing where a look must do.
    #[inline(always)]
    fn claim_run<const UP: bool>(self, first: usize) -> usize {
        let (from, to) = (self.allocated, self.cached);
        match self.words_of::<UP>(first) {
            Some(words) if self.exchanges && UP => claim::row(words.iter(), from, to),
            Some(words) if self.exchanges => claim::row(words.iter().rev(), from, to),
            Some(words) if are_u64s(words, from) => {
                store_u64s(words, to);
                RUN
            }
            _ => 0,
        }
    }

    /// Hands out the pages of a block that begins with `first`, all of whose words are ours to
    /// write. As many as `pages`, a number of runs.
    #[inline(always)]
    pub fn take_apart<T: PageName>(self, first: Pfn, pages: &mut [T], make: impl Fn(Pfn) -> T) {
        let at = self.at(first);
        let words = self.words[at..at + pages.len()].as_chunks::<RUN>().0;
        fill_u64s(words, self.allocated);
        let name = |i| make(Pfn(first.0.wrapping_add(i))).bits();
        let rows = pages.as_chunks_mut::<RUN>().0;
        store_steps(rows, name(0), name(1).wrapping_sub(name(0)));
    }

    /// Takes the words of `pages`, a number of runs, out of their owner's hands, if they are a
    /// block in a row, first page first or (not `UP`) last. The first page of the block, or
    /// nothing done.
    #[inline(always)]
    pub fn put_together<const UP: bool, T: PageName>(
        self,
        pages: &[T],
        pfn: impl Fn(&T) -> Pfn,
        page: impl Fn(Pfn) -> T,
    ) -> Option<Pfn> {
        let first = self.at(pfn(pages.first()?));
        let lowest = if UP { first } else { behind::<UP>(first, pages.len() - 1) };
        let block = self.pfn(lowest);
        let words = self.words.get(lowest..)?.get(..pages.len())?.as_chunks::<RUN>().0;
        // What is no block is told from one by its last page, most often.
        let name = |i| page(self.pfn(behind::<UP>(first, i))).bits();
        let (start, step) = (name(0), name(1).wrapping_sub(name(0)));
        let last = pages.len() - 1;
        let is_ours = block.0.is_multiple_of(pages.len() as u64)
            && pages[last].bits() == name(last)
            && are_steps(pages.as_chunks::<RUN>().0, start, step)
            && match self.exchanges {
                // The claim looks at all of them; this is for blocks that are plainly not ours.
                true => words.iter().all(|words| words[0].load(Relaxed) == self.allocated),
                false => all_u64s(words, self.allocated),
            };
        // A word that says NONE is nobody's to claim.
        let none = PageWord::NONE.0;
        let claim = || match self.exchanges {
            true => claim::all(words, self.allocated, none),
            false => {
                fill_u64s(words, none);
                true
            }
        };
        (is_ours && claim()).then_some(block)
    }

    /// Hands out frames from the end of `slots`, up to one whose word is wrong. How many.
    #[inline(never)]
    pub fn take_singles<T>(
        self,
        slots: &[AtomicU32],
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let mut done = 0;
        for (slot, page) in slots.iter().rev().zip(pages) {
            let at = self.at_slot(slot);
            let word = self.words.get(at).filter(|word| word.load(Relaxed) == self.cached);
            let Some(word) = word else { break };
            word.store(self.allocated, Relaxed);
            *page = make(self.pfn(at));
            done += 1;
        }
        done
    }

    /// Takes back pages from the front and writes them to `slots`, up to one that is not allocated
    /// or not `ours`. How many.
    #[inline(never)]
    pub fn put_singles<T>(
        self,
        slots: &[AtomicU32],
        pages: &[T],
        pfn: impl Fn(&T) -> Pfn,
        ours: impl Fn(Pfn) -> bool,
    ) -> usize {
        let allocated = PageWord(self.allocated);
        let mut done = 0;
        for (slot, page) in slots.iter().zip(pages) {
            let at = self.at(pfn(page));
            let Some(word) = self.words.get(at) else { break };
            let held = PageWord(word.load(Relaxed));
            if (held != allocated && !held.same_but_pcp(allocated)) || !ours(self.pfn(at)) {
                break;
            }
            match self.exchanges {
                true if !claim::exchange(word, held.0, self.cached) => break,
                true => {}
                false => word.store(self.cached, Relaxed),
            }
            slot.store(self.frame(at), Relaxed);
            done += 1;
        }
        done
    }

    /// Hands out frames from the end of `slots` while they are runs in one direction. How many.
    #[inline(always)]
    pub fn take_runs<const UP: bool, T>(
        self,
        slots: &[AtomicU32],
        pages: &mut [T],
        make: impl Fn(Pfn) -> T,
    ) -> usize {
        let mut done = 0;
        let (_, runs) = slots.as_rchunks::<RUN>();
        for (slots, pages) in runs.iter().rev().zip(pages.as_chunks_mut::<RUN>().0) {
            // Hottest first: `pages` and slots run in opposite directions.
            let coldest = slots[0].load(Relaxed);
            let first = self.at_slot(&slots[RUN - 1]);
            if !are_row(slots, coldest, !UP) || !self.hand_out_run::<UP>(first) {
                break;
            }
            for (i, page) in pages.iter_mut().enumerate() {
                *page = make(self.pfn(behind::<UP>(first, i)));
            }
            done += RUN;
        }
        done
    }

    /// Takes pages from the front back and names them in `slots`, while they are runs in one
    /// direction, `ours` from its lowest page on. How many. `page` is the inverse of `pfn`.
    #[inline(always)]
    pub fn put_runs<const UP: bool, T: PageName>(
        self,
        slots: &[AtomicU32],
        pages: &[T],
        pfn: impl Fn(&T) -> Pfn,
        page: impl Fn(Pfn) -> T,
        ours: impl Fn(Pfn) -> bool,
    ) -> usize {
        let mut done = 0;
        let runs = slots.as_chunks::<RUN>().0.iter().zip(pages.as_chunks::<RUN>().0);
        for (slots, pages) in runs {
            let first = self.at(pfn(&pages[0]));
            if !are_named(pages, |i| page(self.pfn(behind::<UP>(first, i)))) {
                break;
            }
            let lowest = if UP { first } else { behind::<UP>(first, RUN - 1) };
            if !ours(self.pfn(lowest)) {
                break;
            }
            let claimed = self.claim_run::<UP>(first);
            // Slots above the top are dead: those of pages that were not claimed may say anything.
            store_row(slots, self.frame(first), UP);
            done += claimed;
            if claimed < RUN {
                break;
            }
        }
        done
    }
}
