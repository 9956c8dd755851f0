//! Pops and pushes under the gate of a pcp: the fast path of platforms without sequences.
//!
//! ```text
//!  enter    take the gate by one compare-and-swap; taken: the core serves the request
//!  word     slow, or a list without blocks, or without room: open the gate, the core decides
//!  switch   another list is active: its length and pops to its record, ours into the word
//!  commit   slot, page word, hot word; open the gate
//! ```
//! Whoever holds the gate owns every field (PCP-1), so nothing here depends on which CPU runs it: a
//! thread that was moved pops from the pcp of another CPU, and that is all. Nobody waits: an
//! interrupt handler, another thread of the CPU and a remote drain that find the gate taken go
//! their other way. [`Closed`](super::closed::Closed) is the same gate for everything else.
//!
//! What an operation leaves behind is what the core would leave: the transitions of
//! [`PcpWord`], and limits that follow from fields that no pop or push changes (PCP-4). What would
//! need a decision is refused, and nothing is done.
//!
//! # Invariants
//! - **GATE-1** an [`Entered`] exists for at most one holder of a gate, and never while a
//!   [`Closed`](super::closed::Closed) of the same pcp does: both are made by the exchange from
//!   open to closed, and each opens the gate when it is dropped.
//! - **GATE-2** no sequence runs on a pcp that is entered: its platform has none, or it is sealed
//!   (PCP-7).

use crate::frame::PageWord;
use crate::frame::claim::Held;
use crate::pcp::state::{CLOSED, OPEN, Pcp, PcpList};
use crate::pcp::word::PcpWord;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};

/// A pcp whose gate is held for one operation. Opens it when dropped.
#[derive(Debug)]
pub(crate) struct Entered<'p> {
    pcp: &'p Pcp,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder.
        self.pcp.gate.store(OPEN, Ordering::Release);
    }
}

/// Where blocks are named, and the words of their pages: those of all pcps. A cell that is not
/// there is refused.
pub(crate) trait Cells<'a>: Copy {
    /// A slot.
    fn slot(self, at: u32) -> Option<&'a AtomicU32>;
    /// The word of a frame.
    fn word(self, frame: u32) -> Option<&'a AtomicU64>;
}

impl<'p> Entered<'p> {
    /// Takes the gate. `None`: somebody holds it.
    #[inline(always)]
    pub(crate) fn new(pcp: &'p Pcp) -> Option<Entered<'p>> {
        // Acquire: pairs with the Release in `drop`, here and in `Closed`.
        pcp.gate.compare_exchange(OPEN, CLOSED, Ordering::Acquire, Relaxed).ok()?;
        Some(Entered { pcp })
    }

    /// The hot word and the record of the active list, if its blocks are of this order and nobody
    /// asked for slow operations, or the caller `may` go on when somebody did.
    #[inline(always)]
    fn active(&self, order: u32, may: impl Fn() -> bool) -> Option<(PcpWord, &'p PcpList)> {
        let word = PcpWord(self.pcp.word.load(Relaxed));
        let record = self.pcp.lists.get(word.active())?;
        let serves = record.order_bits == order && (!word.is_slow() || may());
        serves.then_some((word, record))
    }

    /// Takes the hottest block of the active list and hands it out, if the list serves requests of
    /// this `kind`, a bit of [`PcpList::serves`]. `None`: it does not, or it is empty, or what came
    /// was a stray copy (PCP-3), which is counted. `mark`: bits that the block's word has besides
    /// those of a block of its own. `may`: as in `active`.
    #[inline(always)]
    pub(crate) fn pop<'a>(
        self,
        order: u32,
        (kind, mark): (u32, u64),
        may: impl Fn() -> bool,
        cells: impl Cells<'a>,
    ) -> Option<u32> {
        let (word, record) = self.active(order, may)?;
        if record.serves & 1u32.wrapping_shl(kind) == 0 {
            return None;
        }
        let top = word.len().checked_sub(1)?;
        let frame = cells.slot(record.slot(top))?.load(Relaxed);
        let page = cells.word(frame)?;
        let popped = word.popped();
        if popped.must_fold() {
            return None;
        }
        self.pcp.word.store(popped.0, Relaxed);
        if page.load(Relaxed) != record.cached {
            self.pcp.events.double_frees.fetch_add(1, Relaxed);
            return None;
        }
        page.store(record.allocated | mark, Relaxed);
        Some(frame)
    }

    /// Puts a block on the hot end of the active list, if blocks of pageblocks of this type go
    /// there, and its word, without the bits of `mark`, says that it is handed out from such a list
    /// of any CPU's pcp of the zone, which the caller knows to be the frame's. `goes_on`: whether
    /// the block is of a range that goes on behind it, asked once the block is claimed. `false`:
    /// nothing was done.
    #[inline(always)]
    pub(crate) fn push<'a>(
        self,
        order: u32,
        (mt, mark): (u32, u64),
        (frame, may, goes_on): (u32, impl Fn() -> bool, impl FnOnce() -> bool),
        cells: impl Cells<'a>,
    ) -> bool {
        let Some((word, record)) = self.active(order, may) else { return false };
        if u32::from(record.types) & 1u32.wrapping_shl(mt) == 0 {
            return false;
        }
        let pcp = self.pcp;
        // Two frees of order 1 to 3 in a row may be a stream, which the core judges (LB E.7).
        let prev = u64::from(record.prev_bits);
        let stream =
            word.0 & prev != 0 && word.free_count() >= pcp.free_high_threshold.load(Relaxed);
        if stream || word.len() >= record.hi.load(Relaxed) {
            return false;
        }
        let Some(page) = cells.word(frame) else { return false };
        let (held, ours) = (PageWord(page.load(Relaxed) ^ mark), PageWord(record.allocated));
        if held != ours && !held.same_but_pcp(ours) {
            return false;
        }
        let Some(slot) = cells.slot(record.slot(word.len())) else { return false };
        let block = Held { word: page, seen: held.0 ^ mark, moving: record.cached };
        if !block.claim() {
            return false;
        }
        if goes_on() {
            block.give_back();
            return false;
        }
        slot.store(frame, Relaxed);
        let cap = pcp.free_count_cap.load(Relaxed);
        pcp.word.store(word.pushed_with(record.block_pages, cap, prev).0, Relaxed);
        true
    }

    /// Makes `list` the active one. `false`: it is, or no list ever was, or the word is slow.
    pub(crate) fn switch(&self, list: usize, may: impl Fn() -> bool) -> bool {
        let pcp = self.pcp;
        let word = PcpWord(pcp.word.load(Relaxed));
        let lists = pcp.lists.get(word.active()).zip(pcp.lists.get(list));
        let may = (!word.is_slow() || may()) && word.active() != list;
        let Some((old, new)) = lists.filter(|_| may) else { return false };
        old.pops.store(old.pops_with(Some(word)), Relaxed);
        old.len.store(word.len(), Relaxed);
        let len = new.len.load(Relaxed);
        let all = old.others.load(Relaxed) + (word.len() << old.order_bits);
        let others = all.saturating_sub(len << new.order_bits);
        new.others.store(others, Relaxed);
        new.hi.store(new.limit(pcp.limit.load(Relaxed), others), Relaxed);
        let switched = word.switched(list, len, new.pops.load(Relaxed));
        pcp.word.store(switched.with_slow(word.is_slow()).0, Relaxed);
        true
    }
}

impl PcpList {
    /// The number of the slot of the block at `index`, counted from the cold end.
    #[inline(always)]
    fn slot(&self, index: u32) -> u32 {
        self.first.load(Relaxed).wrapping_add(index)
    }
}
