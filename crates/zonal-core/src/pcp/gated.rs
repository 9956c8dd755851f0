//! Pops and pushes under the gate of a pcp: the fast path of platforms without sequences.
//!
//! ```text
//!  ready    the gate says that nothing is to be decided: one compare-and-swap takes it
//!  else     enter by the gate as it is; make another list the active one, if need be; look whether
//!           operations may go on, and put what they need side by side (`pcp::ready`)
//!  pop,     a list without blocks, or without room: open the gate, the core decides
//!  push     slot, page word, hot word; open the gate
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
//!   [`Closed`](super::closed::Closed) of the same pcp does: both are made by the exchange from an
//!   open value to closed, and each opens the gate when it is dropped.
//! - **GATE-2** no sequence runs on a pcp that is entered: its platform has none, or it is sealed
//!   (PCP-7).

use crate::frame::PageWord;
use crate::frame::claim::{self, Held};
use crate::pcp::ready::{Key, Taken};
use crate::pcp::state::{Pcp, PcpList};
use crate::pcp::word::{FREE_COUNT_TOP, PREV, PUSH_DELTA, PcpWord, PushLimits};
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A pcp whose gate is held for one operation. Opens it when dropped.
#[derive(Debug)]
pub(crate) struct Entered<'p> {
    pub(super) pcp: &'p Pcp,
    pub(super) gate: Taken<'p>,
}

/// Where blocks are named, and the words of their pages: those of all pcps. A cell that is not
/// there is refused.
pub(crate) trait Cells<'a>: Copy {
    /// A slot.
    fn slot(self, at: u32) -> Option<&'a AtomicU32>;
    /// The word of a frame.
    fn word(self, frame: u64) -> Option<&'a AtomicU64>;
}

impl<'p> Entered<'p> {
    /// Takes the gate of a pcp that is ready so. `None`: it is not.
    #[inline(always)]
    pub(crate) fn ready(pcp: &'p Pcp, key: Key) -> Option<Entered<'p>> {
        let gate = Taken::ready(&pcp.gate, key)?;
        Some(Entered { pcp, gate })
    }

    /// What the gate opens with.
    #[inline(always)]
    pub(crate) fn opens(&self) -> u32 {
        self.gate.opens()
    }

    /// Takes the gate. `None`: somebody holds it.
    #[inline]
    pub(crate) fn new(pcp: &'p Pcp) -> Option<Entered<'p>> {
        let gate = Taken::new(&pcp.gate)?;
        Some(Entered { pcp, gate })
    }

    /// Puts what operations need of the active list side by side. `false`: its blocks are not of
    /// this order, or somebody asked for slow operations, and the caller `may` not go on.
    /// `records`: each allocation is recorded, so that `serves` is empty. `Plain::others`, all ones
    /// then, tells the same to requests with a flag before they take a gate; `serves` tells those
    /// without one.
    #[inline]
    pub(crate) fn prepare(&self, order: u32, records: bool, may: impl Fn() -> bool) -> bool {
        let word = PcpWord(self.pcp.word.load(Relaxed));
        let Some(list) = self.pcp.lists.get(word.active()) else { return false };
        if list.order_bits != order || word.is_slow() && !may() {
            return false;
        }
        self.pcp.repeat(list, records);
        true
    }

    /// Opens the gate as ready for this once the operation is done. Only behind
    /// [`prepare`](Self::prepare), and where the zone lets allocations and frees pass in the key's
    /// epoch (READY-1).
    pub(crate) fn stay_ready(&mut self, key: Key) {
        self.gate.make_ready(key);
    }

    /// Whether the list that the pcp is ready with serves requests of this `kind`, a bit of
    /// [`Ready::serves`], and nothing is recorded.
    ///
    /// [`Ready::serves`]: crate::pcp::ready::Ready::serves
    #[inline(always)]
    pub(crate) fn serves(&self, kind: u32) -> bool {
        self.pcp.ready.serves.load(Relaxed).wrapping_shr(kind) & 1 != 0
    }

    /// As [`serves`](Self::serves); the caller records it where allocations are recorded.
    #[inline(always)]
    pub(crate) fn serves_recorded(&self, kind: u32) -> bool {
        let list = self.pcp.lists.get(PcpWord(self.pcp.word.load(Relaxed)).active());
        list.is_some_and(|list| list.serves.wrapping_shr(kind) & 1 != 0)
    }

    /// Takes the hottest block of the list that the pcp is ready with and hands it out. `None`: it
    /// is empty, or what came was a stray copy (PCP-3), which is counted. `mark`: bits that the
    /// block's word has besides those of a block of its own.
    #[inline(always)]
    pub(crate) fn pop<'a>(self, mark: u64, cells: impl Cells<'a>) -> Option<u32> {
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        let word = PcpWord(pcp.word.load(Relaxed));
        if word.len() == 0 {
            return None;
        }
        let slot = cells.slot(ready.below.load(Relaxed).wrapping_add(word.len()))?;
        let frame = slot.load(Relaxed);
        let page = cells.word(u64::from(frame))?;
        let popped = word.popped_by(ready.pop);
        if popped.must_fold() {
            return None;
        }
        pcp.word.store(popped.0, Relaxed);
        let cached = ready.cached.load(Relaxed);
        if page.load(Relaxed) != cached {
            pcp.events.double_frees.fetch_add(1, Relaxed);
            return None;
        }
        page.store(PageWord(cached).taken().0 | mark, Relaxed);
        Some(frame)
    }

    /// Puts a block on the hot end of the list that the pcp is ready with, which
    /// [`takes`](Self::takes) it, if its word, without the bits of `mark`, says that it is handed
    /// out from such a list of any CPU's pcp of the zone. `false`: nothing was done. `frame`: what
    /// the pcp's zone makes of the block's page, whether that is in the zone or not. `goes_on`:
    /// whether the block is of a range that goes on behind it, asked once the block is claimed.
    #[inline(always)]
    pub(crate) fn push<'a>(
        self,
        mark: u64,
        (frame, goes_on): (u64, impl FnOnce() -> bool),
        cells: impl Cells<'a>,
    ) -> bool {
        let word = PcpWord(self.pcp.word.load(Relaxed));
        let Some(pushed) = self.pushed_below(word) else { return false };
        self.put(pushed, mark, (frame, goes_on), cells)
    }

    /// As [`push`](Self::push), also where the push has something to decide that the pcp's own
    /// figures answer.
    pub(crate) fn push_exactly<'a>(
        self,
        mark: u64,
        (frame, goes_on): (u64, impl FnOnce() -> bool),
        cells: impl Cells<'a>,
    ) -> bool {
        let Some(word) = self.room() else { return false };
        let pushed = self.pushed(word);
        self.put(pushed, mark, (frame, goes_on), cells)
    }

    /// Claims a block and puts it on the list that the pcp is ready with. `pushed`: the hot word
    /// then.
    #[inline(always)]
    fn put<'a>(
        &self,
        pushed: u64,
        mark: u64,
        (frame, goes_on): (u64, impl FnOnce() -> bool),
        cells: impl Cells<'a>,
    ) -> bool {
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        let Some(page) = cells.word(frame) else { return false };
        let at = ready.below.load(Relaxed).wrapping_add(PcpWord(pushed).len());
        let Some(slot) = cells.slot(at) else { return false };
        // A slot behind the hot end is dead until the hot word says otherwise.
        slot.store(frame as u32, Relaxed);
        let claimed = self.claim(page, mark).or_else(|| self.claim_of_other(frame, mark, cells));
        let Some(seen) = claimed else { return false };
        if mark != 0 && goes_on() {
            Held { word: page, seen, moving: ready.cached.load(Relaxed) }.give_back();
            return false;
        }
        pcp.word.store(pushed, Relaxed);
        true
    }

    /// Whether blocks of pageblocks of this type go on the list that the pcp is ready with.
    #[inline(always)]
    pub(crate) fn takes(&self, mt: u32) -> bool {
        let ready = &self.pcp.ready;
        if mt == u32::from(ready.mt.load(Relaxed)) {
            return true;
        }
        rare();
        u32::from(ready.types.load(Relaxed)).wrapping_shr(mt) & 1 != 0
    }

    /// The hot word, if a block may go on the list that the pcp is ready with. `None`: there is
    /// something to decide.
    #[inline(always)]
    pub(super) fn room(&self) -> Option<PcpWord> {
        let pcp = self.pcp;
        let word = PcpWord(pcp.word.load(Relaxed));
        let list = pcp.lists.get(word.active())?;
        // Two frees of order 1 to 3 in a row may be a stream, which the core judges (LB E.7).
        if word.prev_high_order()
            && list.prev_bits != 0
            && word.free_count() >= pcp.free_high_threshold.load(Relaxed)
        {
            return None;
        }
        (word.len() < list.hi.load(Relaxed)).then_some(word)
    }

    /// The hot word once a block is on the list that the pcp is ready with, where nothing is to be
    /// decided. `None`: something may be.
    #[inline(always)]
    pub(super) fn pushed_below(&self, word: PcpWord) -> Option<u64> {
        let ready = &self.pcp.ready;
        let reached = word.reached(PushLimits(ready.limits.load(Relaxed)), ready.tops);
        if reached == 0 {
            return Some(word.0.wrapping_add(u64::from(ready.push.load(Relaxed))));
        }
        rare();
        // `free_count` grows no more. Where it may show a stream, that is for the core.
        if reached == FREE_COUNT_TOP && ready.prev_bit() == 0 {
            return Some(word.0.wrapping_add(PUSH_DELTA));
        }
        rare();
        // `prev` becomes what it was not: no two frees of order 1 to 3 in a row, so no stream.
        let push = u64::from(ready.push.load(Relaxed));
        (reached == PREV).then(|| (word.0 ^ PREV).wrapping_add(push))
    }

    /// The hot word once a block is on the list that the pcp is ready with.
    #[inline(always)]
    pub(super) fn pushed(&self, word: PcpWord) -> u64 {
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        let pages = ready.push.load(Relaxed).wrapping_sub(PUSH_DELTA as u32);
        let prev = ready.prev_bit();
        word.pushed_with(pages, pcp.free_count_cap.load(Relaxed), prev).0
    }

    /// Makes the word of a block that was handed out from such a list of this pcp one of the list,
    /// if it says that and the bits of `mark`. Such a block is of the pcp's zone. Returns what
    /// the word was.
    #[inline(always)]
    fn claim(&self, page: &AtomicU64, mark: u64) -> Option<u64> {
        let cached = self.pcp.ready.cached.load(Relaxed);
        let seen = PageWord(cached).taken().0 | mark;
        claim::exchange(page, seen, cached).then_some(seen)
    }

    /// As [`claim`](Self::claim), for a block from any CPU's pcp of the zone.
    #[inline(always)]
    fn claim_of_other<'a>(&self, frame: u64, mark: u64, cells: impl Cells<'a>) -> Option<u64> {
        rare();
        let (pcp, ready) = (self.pcp, &self.pcp.ready);
        // As `Pcp::has`, which the pcp of the interleaving model (zonal/tests/loom_gate.rs) lacks.
        let in_zone = frame.wrapping_sub(u64::from(pcp.first_frame)) < u64::from(pcp.frames);
        let page = cells.word(frame).filter(|_| in_zone)?;
        let seen = page.load(Relaxed);
        let is_ours = PageWord(seen ^ mark).same_but_pcp(PageWord(ready.allocated()))
            && claim::exchange(page, seen, ready.cached.load(Relaxed));
        is_ours.then_some(seen)
    }

    /// As [`Pcp::switch`].
    pub(crate) fn switch(&self, list: usize, may: impl Fn() -> bool) -> bool {
        self.pcp.switch(list, may)
    }
}

impl Pcp {
    /// Puts what operations need of the active list side by side, as
    /// [`prepare`](Entered::prepare). The caller holds the gate.
    pub(super) fn repeat(&self, list: &PcpList, records: bool) {
        let ready = &self.ready;
        ready.cached.store(list.cached, Relaxed);
        ready.push.store(PUSH_DELTA as u32 + list.block_pages, Relaxed);
        let first = list.base.wrapping_add(list.lo.load(Relaxed));
        ready.below.store(first.wrapping_sub(1), Relaxed);
        ready.serves.store(if records { 0 } else { list.serves }, Relaxed);
        ready.set_types(list.types, list.prev_bits);
        self.set_hi(list, list.hi.load(Relaxed));
    }

    /// How long the active list, which the pcp is ready with, may get.
    pub(super) fn set_hi(&self, list: &PcpList, hi: u32) {
        let prev = list.prev_bits;
        list.hi.store(hi, Relaxed);
        let cap = self.free_count_cap.load(Relaxed);
        // From there on a free of order 1 to 3 may be one of a stream.
        let stream = self.free_high_threshold.load(Relaxed);
        let cap = if prev != 0 { cap.min(stream) } else { cap };
        let limits = PushLimits::new(PcpWord(self.word.load(Relaxed)), hi, cap, prev);
        self.ready.limits.store(limits.0, Relaxed);
    }

    /// Makes `list` the active one. `false`: no list ever was, or the word is slow, and the caller
    /// `may` not go on. The caller holds the gate, or is a fast operation on the pcp's CPU (PCP-1).
    pub(crate) fn switch(&self, list: usize, may: impl Fn() -> bool) -> bool {
        let word = PcpWord(self.word.load(Relaxed));
        if word.active() == list {
            return true;
        }
        let lists = self.lists.get(word.active()).zip(self.lists.get(list));
        let Some((old, new)) = lists.filter(|_| !word.is_slow() || may()) else { return false };
        old.pops.store(old.pops_with(Some(word)), Relaxed);
        old.len.store(word.len(), Relaxed);
        let len = new.len.load(Relaxed);
        let all = old.others.load(Relaxed) + (word.len() << old.order_bits);
        let others = all.saturating_sub(len << new.order_bits);
        new.others.store(others, Relaxed);
        new.hi.store(new.limit(self.limit.load(Relaxed), others), Relaxed);
        let switched = word.switched(list, len, new.pops.load(Relaxed));
        self.word.store(switched.with_slow(word.is_slow()).0, Relaxed);
        true
    }
}

/// Tells the compiler that whoever calls it comes by rarely.
#[cold]
fn rare() {}
