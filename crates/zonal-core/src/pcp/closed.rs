//! A pcp whose gate is closed: everything that is not a fast operation (see `pcp`).

use core::mem::ManuallyDrop;

use crate::lanes::copy_down;
use crate::pcp::depot::MovesMagazines;
use crate::pcp::ready::{Key, OPEN};
use crate::pcp::sink::Sink;
use crate::pcp::state::{Pcp, SEALED};
use crate::pcp::tune::{self, PcpState, clamp_hi_first};
use crate::pcp::tuning::Tuning;
use crate::pcp::word::{NO_LIST, NR_LISTS, PcpWord};
use crate::sync::{AtomicU32, Ordering, Ordering::Relaxed};
use crate::types::PageCount;
use crate::zone::state::{FAST_FREE, NO_FAST, RETIRED, Zone};

/// What a zone's `fast` must have for fast operations on order-0 pages: both ways free.
const FAST_ALL: u32 = FAST_FREE | 1;

/// A pcp whose gate this value has closed, until it is dropped: forgotten, it keeps it for ever.
#[derive(Debug)]
pub struct Closed<'a> {
    /// The pcp.
    pub pcp: &'a Pcp,
    zone: &'a Zone,
    slots: &'a [AtomicU32],
    word: PcpWord,
    count: PageCount,
    /// The epoch that it opens as ready in, if its zone lets operations pass; 0: it does not.
    ready_in: u32,
}

impl MovesMagazines for Closed<'_> {}

/// What the policy of a pcp that is opened may have. Code for what one that is compiled in has not
/// is left out.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    /// A budget.
    pub has_budget: bool,
    /// Its pcps track their swing.
    pub tracks_swing: bool,
    /// Any free of order 1 to 3 empties the lists: level 0 of the tuning.
    pub is_eager: bool,
}

impl Opening {
    /// That of a policy that is chosen at run time.
    pub const ANY: Opening = Opening { has_budget: true, tracks_swing: true, is_eager: true };
}

/// A pcp whose gate is closed and whose sequences were not stopped: what is read of it may change
/// while it is read, and nothing may be changed. Opens the gate when dropped.
#[derive(Debug)]
pub struct Look<'a>(ManuallyDrop<Closed<'a>>);

impl<'a> Look<'a> {
    /// The caller has just taken the gate.
    pub(super) fn new(closed: Closed<'a>) -> Look<'a> {
        Look(ManuallyDrop::new(closed))
    }
    /// To be read.
    pub(crate) fn closed(&self) -> &Closed<'a> {
        &self.0
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        // The word is not ours. Release: pairs with the Acquire of the next closer.
        self.0.pcp.gate.store(OPEN, Ordering::Release);
    }
}

impl Pcp {
    /// Whether an operation of the core may go on where the word is slow: a sealed pcp's is for
    /// good, and says nothing but that no sequence runs (PCP-7). What else may be asked for stands
    /// in what its zone lets pass.
    #[inline(always)]
    pub(crate) fn may_go_on(&self, passes: u32) -> bool {
        self.is_sealed() && passes & RETIRED == 0
    }
}

impl<'a> Closed<'a> {
    /// The caller has just taken the gate and kept sequences out; `word` is the pcp's, `room` what
    /// the active list counts beside pages on lists (PARK-2).
    pub(super) fn new(
        (pcp, zone, slots): (&'a Pcp, &'a Zone, &'a [AtomicU32]),
        word: PcpWord,
        room: u32,
    ) -> Closed<'a> {
        let mut closed = Closed { pcp, zone, slots, word, count: PageCount::ZERO, ready_in: 0 };
        // A list is active from the first block on.
        if let Some(active) = pcp.lists.get(word.active()) {
            let others = PageCount::new(active.others.load(Relaxed) - room);
            closed.count = others + closed.active_pages();
        }
        closed
    }

    /// The live slots of a list, cold end first; `None` if its ends are out of order (PCP-2).
    pub fn frames(&self, list: usize) -> Option<&'a [AtomicU32]> {
        let record = &self.pcp.lists[list];
        let lo = record.lo.load(Relaxed) as usize;
        let slots = &self.slots[record.base as usize..(record.base + record.cap) as usize];
        slots.get(lo..lo + self.len(list) as usize)
    }

    /// Whether a list's ends are as PCP-2 says; its `hi` means something while it is active.
    pub(crate) fn has_right_ends(&self, list: usize) -> bool {
        let record = &self.pcp.lists[list];
        let lo = record.lo.load(Relaxed);
        let hi = if self.word.active() == list { record.hi.load(Relaxed) } else { 0 };
        let end = u64::from(lo) + u64::from(self.len(list).max(hi));
        let lowest = self.slots.get((record.base as usize).saturating_add(lo as usize)..);
        let address = lowest.map(|slots| slots.as_ptr() as u64);
        end <= u64::from(record.cap) && address == Some(record.slots_lo.load(Relaxed))
    }

    /// Base pages on all lists (LB E.1 `count`).
    #[inline]
    pub fn count(&self) -> PageCount {
        self.count
    }
    /// Blocks on one list.
    #[inline]
    pub fn len(&self, list: usize) -> u32 {
        self.pcp.lists[list].len_with(self.word, list)
    }
    /// Whether no list holds a page.
    pub fn is_empty(&self) -> bool {
        self.count.is_zero()
    }
    /// `high` within its bounds.
    pub fn high(&self) -> PageCount {
        self.within(self.pcp.high())
    }
    /// This `high` within its bounds.
    #[inline]
    fn within(&self, high: u32) -> PageCount {
        let (min, max) = (self.pcp.high_min.load(Relaxed), self.pcp.high_max.load(Relaxed));
        PageCount::new(clamp_hi_first(high, min, max))
    }

    /// Asks for as much of the zone's budget as `pages` pages on the lists need. Returns the pages
    /// that the lists may hold; without a budget there is no limit (BUDGET-2).
    #[inline]
    pub fn cover(&mut self, pages: PageCount) -> PageCount {
        if !self.zone.budget.is_on() {
            return PageCount::MAX;
        }
        let granted = self.granted();
        if granted >= pages { granted } else { self.take_granted(pages) }
    }

    /// Where they need more than the pcp was granted.
    #[cold]
    #[inline(never)]
    fn take_granted(&mut self, pages: PageCount) -> PageCount {
        let granted = self.granted();
        let granted = granted + self.zone.budget.take(pages - granted);
        self.pcp.granted.store(granted.get(), Relaxed);
        granted
    }

    /// What the pcp may hold of the zone's budget, if that is on.
    #[inline]
    fn granted(&self) -> PageCount {
        PageCount::new(self.pcp.granted.load(Relaxed))
    }

    /// Grants what is on the lists: pages that bypassed the decisions, such as those of a recorded
    /// state that is set up.
    #[cold]
    #[inline(never)]
    fn force_granted(&mut self) -> PageCount {
        let granted = self.cover(self.count);
        self.zone.budget.force(self.count - granted);
        self.pcp.granted.store(self.count.get(), Relaxed);
        self.count
    }

    /// Returns the pcp's grant beyond `pages` pages and beyond its contents.
    pub fn release(&mut self, pages: PageCount) {
        let keep = pages.max(self.count);
        let granted = self.granted();
        if granted > keep {
            self.pcp.granted.store(keep.get(), Relaxed);
            self.zone.budget.give(granted - keep);
        }
    }

    fn active_pages(&self) -> PageCount {
        match self.word.active() {
            NO_LIST => PageCount::ZERO,
            active => self.pcp.lists[active].pages_of(self.len(active)),
        }
    }
    /// The slot of the block at `index`, counted from the cold end.
    fn slot(&self, list: usize, index: u32) -> &'a AtomicU32 {
        let record = &self.pcp.lists[list];
        &self.slots[(record.base + record.lo.load(Relaxed) + index) as usize]
    }

    /// Makes `list` the one whose length the word holds.
    #[inline]
    pub fn activate(&mut self, list: usize) {
        if self.word.active() != list {
            self.activate_other(list);
        }
    }

    #[inline(never)]
    fn activate_other(&mut self, list: usize) {
        self.spill();
        let new = &self.pcp.lists[list];
        self.word = self.word.switched(list, new.len.load(Relaxed), new.pops.load(Relaxed));
    }

    /// Writes the active list's length and pops back to its record; no list is active then.
    fn spill(&mut self) {
        let word = self.word;
        if word.active() == NO_LIST {
            return;
        }
        let old = &self.pcp.lists[word.active()];
        old.pops.store(old.pops_with(Some(word)), Relaxed);
        old.len.store(word.len(), Relaxed);
        self.word = word.switched(NO_LIST, 0, 0);
    }

    /// Lets the record have the pops that the word has no room for.
    #[inline]
    fn fold_pops(&mut self) {
        if self.word.must_fold() {
            self.activate_other(self.word.active());
        }
    }

    /// Takes the hottest block of `list`, counting an allocation; `free_count` is halved if `tune`.
    #[inline]
    pub fn pop(&mut self, list: usize, tune: bool) -> Option<u32> {
        self.activate(list);
        if self.word.len() == 0 {
            return None;
        }
        let frame = self.slot(list, self.word.len() - 1).load(Relaxed);
        let kept = self.word.free_count();
        self.word = self.word.popped();
        self.count -= self.pcp.lists[list].pages_of(1);
        self.fold_pops();
        if !tune {
            self.set_free_count(kept, self.word.prev_high_order());
        }
        Some(frame)
    }

    /// Takes up to `n` of the hottest blocks of `list` at once, hottest last, counting allocations.
    /// `free_count` stays (LB D.9).
    pub fn pop_many(&mut self, list: usize, n: usize) -> &'a [AtomicU32] {
        self.spill();
        let record = &self.pcp.lists[list];
        let (lo, len) = (record.lo.load(Relaxed), record.len.load(Relaxed));
        let taken = len.min(n.min(u32::MAX as usize) as u32);
        record.len.store(len - taken, Relaxed);
        record.pops.store(record.pops.load(Relaxed) + u64::from(taken), Relaxed);
        self.count -= record.pages_of(taken);
        self.activate(list);
        let end = (record.base + lo + len) as usize;
        &self.slots[end - taken as usize..end]
    }

    /// How many blocks a [`push_run`](Self::push_run) may put on `list` without reaching `high`,
    /// which would need a decision, or the end of the stack.
    pub fn room(&mut self, list: usize) -> u32 {
        self.activate(list);
        let granted = if self.zone.budget.is_on() { self.granted() } else { PageCount::MAX };
        self.set_limit(granted, Opening::ANY);
        let record = &self.pcp.lists[list];
        record.hi.load(Relaxed).saturating_sub(self.word.len())
    }

    /// Puts freed order-0 blocks on the hot end of `list`: as many as `fill` writes to the slots it
    /// is given, from the front, which must not be more than [`room`](Self::room). `free_count`
    /// grows by one each up to `cap` (LB E.7, for frees that need no decision). Returns how many.
    #[inline]
    pub fn push_run(
        &mut self,
        list: usize,
        cap: u32,
        fill: impl FnOnce(&[AtomicU32]) -> usize,
    ) -> usize {
        self.activate(list);
        let record = &self.pcp.lists[list];
        let first = record.base + record.lo.load(Relaxed) + self.word.len();
        let pushed = fill(&self.slots[first as usize..(record.base + record.cap) as usize]);
        self.set_len(list, self.word.len() + pushed as u32);
        let free_count = self.word.free_count();
        let grown = free_count.max(cap.min(free_count + pushed as u32));
        // A run of none changes nothing, not even the mark of a free of order 1 to 3.
        let prev = pushed == 0 && self.word.prev_high_order();
        self.set_free_count(grown, prev);
        self.count += record.pages_of(pushed as u32);
        pushed
    }

    /// Takes the `n` coldest blocks of `list`, which [`frames`](Self::frames) showed, for the
    /// buddy.
    pub fn drop_cold(&mut self, list: usize, n: u32) {
        let record = &self.pcp.lists[list];
        self.set_len(list, self.len(list) - n);
        // An empty list has all of its slots again.
        let lo = if self.len(list) == 0 { 0 } else { record.lo.load(Relaxed) + n };
        record.set_lo(lo);
        record.drained.store(record.drained.load(Relaxed) + u64::from(n), Relaxed);
        let pages = record.pages_of(n);
        self.count -= pages;
        if self.pcp.tracks_swing {
            let swing = self.pcp.swing.load(Relaxed);
            self.pcp.swing.store(swing.saturating_sub(pages.get()), Relaxed);
        }
    }

    /// Puts a freed block on the hot end of `list`. The tuning state is the caller's business.
    /// `false`: the stack is full.
    #[inline]
    pub fn push(&mut self, list: usize, frame: u32) -> bool {
        self.activate(list);
        if !self.make_room(list) {
            return false;
        }
        self.slot(list, self.word.len()).store(frame, Relaxed);
        self.word = self.word.pushed(0, 0, self.word.prev_high_order());
        self.count += self.pcp.lists[list].pages_of(1);
        true
    }

    /// Moves the live part of the active `list` down when its hot end has reached the end. `false`:
    /// it is full.
    #[inline]
    fn make_room(&mut self, list: usize) -> bool {
        let record = &self.pcp.lists[list];
        let lo = record.lo.load(Relaxed);
        if lo + self.word.len() < record.cap {
            return true;
        }
        lo != 0 && self.move_down(list, lo)
    }

    /// Moves it down from there. True.
    #[cold]
    #[inline(never)]
    fn move_down(&self, list: usize, lo: u32) -> bool {
        let record = &self.pcp.lists[list];
        let slots = &self.slots[record.base as usize..];
        let live = &slots[lo as usize..(lo + self.word.len()) as usize];
        copy_down(live, slots);
        record.set_lo(0);
        true
    }

    /// Begins to fill the empty `list` with up to `wanted` blocks.
    pub fn refill(&mut self, list: usize, wanted: u32) -> Sink<'a> {
        debug_assert_eq!(self.len(list), 0);
        self.activate(list);
        let record = &self.pcp.lists[list];
        Sink::new(self.slots, record.base, wanted.min(record.cap))
    }

    /// Makes the blocks given to `sink` the content of `list`.
    pub fn refilled(&mut self, list: usize, sink: Sink<'a>) {
        let record = &self.pcp.lists[list];
        let got = sink.got();
        record.set_lo(sink.room());
        self.set_len(list, got);
        record.refilled.store(record.refilled.load(Relaxed) + u64::from(got), Relaxed);
        let pages = record.pages_of(got);
        self.count += pages;
        if self.pcp.tracks_swing {
            let most = self.zone.swing_most.load(Relaxed);
            let swing = tune::fetched(self.pcp.swing.load(Relaxed), pages.get(), most);
            self.pcp.swing.store(swing, Relaxed);
        }
    }

    fn set_len(&mut self, list: usize, len: u32) {
        let word = self.word;
        if word.active() == list {
            let kept = (word.pops(), word.free_count(), word.prev_high_order());
            self.word = PcpWord::new(list, len, kept.0, kept.1, kept.2);
        } else {
            self.pcp.lists[list].len.store(len, Relaxed);
        }
    }
    fn set_free_count(&mut self, free_count: u32, prev: bool) {
        let word = self.word;
        self.word = PcpWord::new(word.active(), word.len(), word.pops(), free_count, prev);
    }

    /// The tuning state of LB E.1, put together from where it is kept.
    pub fn state(&self) -> PcpState {
        self.state_behind(self.pushes())
    }

    /// The same behind so many [`pushes`](Self::pushes).
    pub(crate) fn state_behind(&self, pushes: u64) -> PcpState {
        let pushes = pushes.wrapping_sub(self.pcp.factor_pushes.load(Relaxed));
        let factor = self.pcp.alloc_factor.load(Relaxed);
        PcpState {
            count: self.count.get(),
            high: self.pcp.high.load(Relaxed),
            alloc_factor: (factor >> pushes.min(31)) as u8,
            free_count: self.word.free_count(),
            prev_free_high_order: self.word.prev_high_order(),
            swing: self.pcp.swing.load(Relaxed),
        }
    }

    /// As [`state`](Self::state), but with an `alloc_factor` of 0, for decisions without it.
    #[inline]
    pub fn state_without_factor(&self) -> PcpState {
        PcpState {
            count: self.count.get(),
            high: self.pcp.high.load(Relaxed),
            alloc_factor: 0,
            free_count: self.word.free_count(),
            prev_free_high_order: self.word.prev_high_order(),
            swing: self.pcp.swing.load(Relaxed),
        }
    }

    /// Stores what [`state_without_factor`](Self::state_without_factor) gave, changed. The
    /// `alloc_factor` follows by itself: pushes halve it, and they are counted.
    #[inline]
    pub fn set_state_without_factor(&mut self, state: &PcpState) {
        debug_assert_eq!(state.count, self.count.get());
        self.pcp.high.store(state.high, Relaxed);
        self.pcp.swing.store(state.swing, Relaxed);
        self.set_free_count(state.free_count, state.prev_free_high_order);
    }

    /// Stores a tuning state; its `count` must be the pcp's.
    pub fn set_state(&mut self, state: &PcpState) {
        self.set_state_behind(state, self.pushes());
    }

    /// The same where there were so many [`pushes`](Self::pushes).
    pub(crate) fn set_state_behind(&mut self, state: &PcpState, pushes: u64) {
        debug_assert_eq!(state.count, self.count.get());
        self.pcp.high.store(state.high, Relaxed);
        self.pcp.swing.store(state.swing, Relaxed);
        self.pcp.alloc_factor.store(u32::from(state.alloc_factor), Relaxed);
        self.pcp.factor_pushes.store(pushes, Relaxed);
        self.set_free_count(state.free_count, state.prev_free_high_order);
    }

    /// Pushes of all lists so far (PCP-5). Finding them out is a walk over the lists.
    pub(crate) fn pushes(&self) -> u64 {
        (0..self.pcp.lists_used as usize)
            .map(|index| {
                let list = &self.pcp.lists[index];
                let word = (self.word.active() == index).then_some(self.word);
                (list.pops_with(word) + u64::from(self.len(index)))
                    .wrapping_add(list.drained.load(Relaxed))
                    .wrapping_sub(list.refilled.load(Relaxed))
            })
            .fold(0, u64::wrapping_add)
    }

    /// Lets it open as ready for blocks of the active list, if there is nothing to decide then. The
    /// caller has just read the epoch of the zones; no sequence runs on the pcp, and no allocation
    /// is recorded (READY-1).
    pub(crate) fn ready_in(&mut self, epoch: u32) {
        self.ready_in = epoch;
    }

    /// What the gate opens with. The word is written; `passes`: what the zone lets pass, read
    /// behind the epoch.
    #[inline]
    fn opens(&self, passes: u32, slow: bool) -> u32 {
        if self.ready_in == 0 {
            return OPEN;
        }
        let Some(list) = self.pcp.lists.get(self.word.active()) else { return OPEN };
        let needs = 1 << list.order_bits | FAST_FREE;
        if slow && !self.pcp.may_go_on(passes) || passes & needs != needs {
            return OPEN;
        }
        self.pcp.repeat(list, false);
        Key::new(self.ready_in, list.order_bits).opens()
    }

    /// Lets who reads the pcp without the gate see what was changed. Only where no sequence runs.
    pub(crate) fn publish(&self) {
        // Relaxed: reads by the way. Slow: nobody enters, and the opening says what it is then.
        self.pcp.word.store(self.word.with_slow(true).0, Relaxed);
    }

    /// Seals it, or takes the seal off (PCP-7): no sequence runs here now.
    pub(crate) fn seal(&self, sealed: bool) {
        // Relaxed: read behind the gate.
        if sealed {
            self.pcp.flags.fetch_or(SEALED, Relaxed);
        } else {
            self.pcp.flags.fetch_and(!SEALED, Relaxed);
        }
    }

    /// How long pushes may make the active list without a decision (PCP-4). The base of other
    /// lists' limits stays in the pcp: a list can become active without a closing.
    #[inline]
    fn set_limit(&self, granted: PageCount, may: Opening) {
        let high_now = self.pcp.high();
        let high = self.within(high_now);
        // Sizes were set: the next free brings `high` between its bounds, and no pop or push does.
        let is_right = high.get() == high_now;
        // Fast operations keep `count` below the limit, so it may be one more than was granted.
        let most = high.min(granted.saturating_add(PageCount::new(1)));
        let high = if is_right { most.get() } else { 0 };
        // Any free of order 1 to 3 empties the lists now, not only one behind another, which is all
        // that a fast operation looks for (LB E.10).
        let eager = may.is_eager && self.pcp.tuning == Tuning::Level0 && self.counts_frees();
        let high = if may.tracks_swing { high.min(self.set_stream()) } else { high };
        self.pcp.limit.store(if eager { 0 } else { high }, Relaxed);
        let active = self.word.active();
        if active >= NR_LISTS {
            return;
        }
        let list = &self.pcp.lists[active];
        let eager = eager && list.prev_bits != 0;
        let others = (self.count - list.pages_of(self.word.len())).get();
        list.others.store(others, Relaxed);
        list.hi.store(list.limit(if eager { 0 } else { high }, others), Relaxed);
    }

    /// Whether `free_count` is not 0. Of few policies, and asked for those alone.
    #[cold]
    #[inline(never)]
    fn counts_frees(&self) -> bool {
        self.word.free_count() > 0
    }

    /// From which `free_count` on fast operations ask whether frees are a stream. Returns from how
    /// many pages on the lists on they do.
    fn set_stream(&self) -> u32 {
        let pcp = self.pcp;
        if !pcp.tracks_swing {
            return u32::MAX;
        }
        let cap = pcp.free_count_cap.load(Relaxed);
        // What it asks about, and no more: a compiler drops no load of an atomic.
        let state = PcpState {
            count: self.count.get(),
            free_count: self.word.free_count(),
            swing: pcp.swing.load(Relaxed),
            ..PcpState::default()
        };
        let ask = tune::stream_ask(self.zone.stream, &state, cap);
        // The fast path compares 16 bits; `free_count` never gets that far.
        pcp.free_high_threshold.store(ask.free_count.min(u32::from(u16::MAX)), Relaxed);
        ask.pages
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.open(Opening::ANY);
    }
}

impl Closed<'_> {
    /// Opens it, as a drop does, which must not follow.
    #[inline(always)]
    pub(crate) fn open(&mut self, may: Opening) {
        let mut granted = PageCount::MAX;
        if may.has_budget && self.zone.budget.is_on() {
            granted = self.granted();
            if granted < self.count {
                granted = self.force_granted();
            }
        }
        self.set_limit(granted, may);
        // Under pressure every operation has something to decide (LB D.4 step 5, E.7); where events
        // are recorded each one has something to write, and a retired zone has none (ZONE-4).
        let fast = self.zone.fast.load(Relaxed);
        let slow = self.pcp.is_sealed() || fast & (FAST_ALL | NO_FAST) != FAST_ALL;
        // Release: pairs with the word read of a fast operation, which must see these limits once
        // it sees this word.
        self.pcp.word.store(self.word.with_slow(slow).0, Ordering::Release);
        // Release: pairs with the Acquire of the next closer.
        self.pcp.gate.store(self.opens(fast, slow), Ordering::Release);
    }
}
