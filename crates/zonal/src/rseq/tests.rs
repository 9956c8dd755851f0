//! The sections against the pure functions of `PcpWord`, over all edge values of the word: what
//! they commit, and that they leave everything alone where they must leave.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use zonal_core::pcp::store::{NO_LIST, NR_LISTS, Pcp};
use zonal_core::pcp::word::{POPS_PERIOD, PcpWord, SLOTS_MAX};
use zonal_core::types::{CpuId, Order};

use super::{
    DELTAS, Fast, NO_FRAME, STORES, list_offset, pop_block, pop_page, push_block, push_page, store,
};
use crate::sys::affinity::{Pinned, allowed_cpus};
use crate::sys::rseq_abi::RseqArea;

/// Slots around the top that exist.
const WINDOW: u32 = 8;
/// What a slot holds whose position in the window is `n`: `SLOT + n`.
const SLOT: u32 = 0x1000;
const PUSHED: u32 = 0xabcd;
const CAP: u32 = 2016;
const THRESHOLD: u32 = 100;

/// A lone store that is every CPU's.
struct Bench {
    fast: Fast,
    pcp: Box<Pcp>,
    slots: Box<[AtomicU32]>,
    _pinned: Pinned,
}

/// One state of the store: the word, and the limits of its list as seen from the top.
#[derive(Clone, Copy, Debug)]
struct Case {
    word: PcpWord,
    list: usize,
    order: Order,
    lo: u32,
    hi: u32,
}

impl Bench {
    /// `None` where there are no restartable sequences.
    fn new() -> Option<Bench> {
        let area = RseqArea::find().ok()?;
        let pinned = Pinned::to(allowed_cpus().ok()?.first().copied().unwrap_or(CpuId(0))).ok()?;
        let pcp = Box::<Pcp>::default();
        pcp.free_count_cap.store(CAP, Relaxed);
        pcp.free_high_threshold.store(THRESHOLD, Relaxed);
        let fast = Fast {
            rseq_offset: area.offset(),
            cpu_mask: STORES as u32 - 1,
            stores: [std::ptr::from_ref(&*pcp) as usize; STORES],
            words: std::ptr::null(),
            base: 0,
            frames: 0,
            deltas: DELTAS,
            slow_gfp: 0,
        };
        let slots = (0..WINDOW).map(AtomicU32::new).collect();
        Some(Bench { fast, pcp, slots, _pinned: pinned })
    }

    /// Puts the store into a state. The middle of the window lies at the top.
    fn set(&mut self, case: &Case) {
        for (n, slot) in self.slots.iter().enumerate() {
            slot.store(SLOT + n as u32, Relaxed);
        }
        let below = 4 * case.word.top() as usize;
        let middle = self.slots[WINDOW as usize / 2..].as_ptr() as usize;
        let list = &mut self.pcp.lists[case.list];
        list.slots_addr = middle.wrapping_sub(below);
        list.lo.store(case.lo, Relaxed);
        list.hi.store(case.hi, Relaxed);
        list.active_bits = PcpWord::new(case.list, 0, 0, 0, false).0 as u32;
        list.prev_bits = PcpWord::new(0, 0, 0, 0, is_high(case.order)).0 as u32;
        list.block_pages = case.order.pages() as u32;
        self.pcp.word.store(case.word.0, Relaxed);
    }

    /// Compares the store with what it should be after the operation; `pushed`: the slot at the
    /// top holds the new frame.
    fn expect(&self, case: &Case, what: &str, word: PcpWord, pushed: bool) {
        let after = PcpWord(self.pcp.word.load(Relaxed));
        assert_eq!(after, word, "{what}, {case:x?}: {after:x?} instead of {word:x?}");
        let list = &self.pcp.lists[case.list];
        assert_eq!((list.lo.load(Relaxed), list.hi.load(Relaxed)), (case.lo, case.hi), "{case:x?}");
        for (n, slot) in self.slots.iter().enumerate() {
            let at_top = n as u32 == WINDOW / 2;
            let expected = if at_top && pushed { PUSHED } else { SLOT + n as u32 };
            assert_eq!(slot.load(Relaxed), expected, "{what}, {case:x?}: slot {n}");
        }
        assert_eq!(self.pcp.free_count_cap.load(Relaxed), CAP);
        assert_eq!(self.pcp.gate.load(Relaxed), 0);
    }

    fn check_pop(&mut self, case: &Case) {
        let expected = popped(case);
        let frame = match expected {
            Some(_) => (SLOT + WINDOW / 2 - 1) as isize,
            None => NO_FRAME,
        };
        let word = expected.unwrap_or(case.word);
        if case.list == 0 {
            self.set(case);
            // SAFETY: (1) the bench lives; (2) this thread is registered, and every CPU's store is
            // the bench's.
            let got = unsafe { pop_page(&self.fast) };
            assert_eq!(got.frame, frame, "pop_page, {case:x?}");
            assert_eq!(got.pcp, std::ptr::from_ref(&*self.pcp));
            self.expect(case, "pop_page", word, false);
        }
        self.set(case);
        // SAFETY: (1) and (2) as above; (3) the list exists.
        let got = unsafe { pop_block(&self.fast, list_offset(case.list)) };
        assert_eq!(got.frame, frame, "pop_block, {case:x?}");
        self.expect(case, "pop_block", word, false);
    }

    fn check_push(&mut self, case: &Case) {
        let expected = pushed(case);
        let word = expected.unwrap_or(case.word);
        let (cpu, pcp) = store(&self.fast);
        if case.list == 0 {
            self.set(case);
            // SAFETY: (1) the bench lives; (2) this thread is registered; (3) the store is this
            // CPU's, and the frame is nowhere else.
            let done = unsafe { push_page(&self.fast, cpu, pcp, PUSHED) };
            assert_eq!(done, expected.is_some(), "push_page, {case:x?}");
            self.expect(case, "push_page", word, done);
        }
        self.set(case);
        // SAFETY: (1) to (3) as above.
        let done = unsafe { push_block(&self.fast, (cpu, pcp), list_offset(case.list), PUSHED) };
        assert_eq!(done, expected.is_some(), "push_block, {case:x?}");
        self.expect(case, "push_block", word, done);
        self.set(case);
        // SAFETY: (1) to (3) as above, but for the CPU: there is none with this number.
        let elsewhere =
            unsafe { push_block(&self.fast, (u32::MAX, pcp), list_offset(case.list), PUSHED) };
        assert!(!elsewhere, "{case:x?}: pushed on another CPU's store");
        self.expect(case, "push_block on another CPU", case.word, false);
    }
}

/// Whether two frees in a row of this order may be a stream (LB E.7).
fn is_high(order: Order) -> bool {
    (1..=3).contains(&order.get())
}

/// What a pop makes of the word, or `None` where the long way decides.
fn popped(case: &Case) -> Option<PcpWord> {
    let word = case.word;
    let plain = !word.is_slow() && word.active() == case.list && !word.must_fold();
    (plain && word.top() > case.lo).then(|| word.popped())
}

/// What a push makes of the word, or `None` where the long way decides.
fn pushed(case: &Case) -> Option<PcpWord> {
    let (word, high) = (case.word, is_high(case.order));
    let stream = high && word.prev_high_order() && word.free_count() >= THRESHOLD;
    let plain = !word.is_slow() && word.active() == case.list && !stream;
    (plain && word.top() < case.hi).then(|| word.pushed(case.order.pages() as u32, CAP, high))
}

/// Calls `check` for every combination of edge values of a word whose `active` is `active`.
fn each_word(active: usize, mut check: impl FnMut(PcpWord)) {
    let free_counts = [0, 1, 2, 3, 99, 100, 101, CAP - 1, CAP, CAP + 1, CAP + 511];
    let all_pops = [0, 1, POPS_PERIOD - 2, POPS_PERIOD - 1, POPS_PERIOD, 2 * POPS_PERIOD - 1];
    let tops = [0, 1, 2, 3, 4096, 1 << 30, SLOTS_MAX as u32 - 1, SLOTS_MAX as u32];
    for free_count in free_counts {
        for pops in all_pops {
            for top in tops {
                for (prev, slow) in [(false, false), (false, true), (true, false), (true, true)] {
                    check(PcpWord::new(active, top, pops, free_count, prev).with_slow(slow));
                }
            }
        }
    }
}

/// Limits around the top: far away, one away, reached, passed.
fn limits(top: u32) -> [u32; 5] {
    [0, top.saturating_sub(1), top, (top + 1).min(SLOTS_MAX as u32), SLOTS_MAX as u32]
}

fn lists() -> impl Iterator<Item = (usize, Order)> {
    let orders = [(0, 0), (1, 1), (3, 3), (4, 9), (NR_LISTS - 1, 2)];
    orders.into_iter().filter_map(|(list, order)| Some((list, Order::new(order)?)))
}

#[test]
fn a_pop_commits_what_the_pure_function_says_or_leaves_all_alone() {
    let Some(mut bench) = Bench::new() else { return };
    for (list, order) in lists() {
        for active in [list, NO_LIST, (list + 1) % NR_LISTS] {
            each_word(active, |word| {
                for lo in limits(word.top()) {
                    bench.check_pop(&Case { word, list, order, lo, hi: 0 });
                }
            });
        }
    }
}

#[test]
fn a_push_commits_what_the_pure_function_says_or_leaves_all_alone() {
    let Some(mut bench) = Bench::new() else { return };
    for (list, order) in lists() {
        for active in [list, NO_LIST, (list + 1) % NR_LISTS] {
            each_word(active, |word| {
                for hi in limits(word.top()) {
                    bench.check_push(&Case { word, list, order, lo: 0, hi });
                }
            });
        }
    }
}

#[test]
fn a_word_can_count_pops_until_it_must_be_folded() {
    let Some(mut bench) = Bench::new() else { return };
    let (list, order) = (0, Order::ZERO);
    let word = PcpWord::new(list, POPS_PERIOD + 5, 0, 0, false);
    bench.set(&Case { word, list, order, lo: 0, hi: 0 });
    // The slots are a window only, so each pop is from the same two.
    let mut done = 0;
    loop {
        let word = PcpWord(bench.pcp.word.load(Relaxed));
        bench.set(&Case { word, list, order, lo: 0, hi: 0 });
        // SAFETY: (1) the bench lives; (2) this thread is registered.
        if unsafe { pop_page(&bench.fast) }.frame == NO_FRAME {
            break;
        }
        done += 1;
    }
    let word = PcpWord(bench.pcp.word.load(Relaxed));
    assert_eq!((done, word.pops(), word.top()), (POPS_PERIOD, POPS_PERIOD, 5));
    assert!(word.must_fold());
}
