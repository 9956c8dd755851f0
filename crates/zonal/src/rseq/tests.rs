//! The sequences against the pure functions of `PcpWord`, over all edge values of the word: what
//! they commit, and that they leave everything alone where they must leave.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use zonal_core::frame::{PCP_END, PageWord, PcpId};
use zonal_core::pcp::offsets::{self, list as at};
use zonal_core::pcp::state::{PCP_BYTES, Pcp};
use zonal_core::pcp::word::{NO_LIST, NR_LISTS, POPS_PERIOD, PcpWord, SLOTS_MAX};
use zonal_core::types::{CpuId, Migratetype, Order};

use super::{
    FAST_TO_WORDS, Fast, FastRef, NO_FRAME, PCPS_TO_FAST, list_offset, pop_any, pop_block,
    pop_page, push_any, push_block, push_page,
};
use crate::sys::affinity::{Pinned, allowed_cpus};
use crate::sys::rseq_abi::RseqArea;

/// Slots around the hot end that exist.
const WINDOW: u32 = 8;
/// What a slot holds whose position in the window is `n`: `SLOT + n`.
const SLOT: u32 = 0x1000;
const PUSHED: usize = 5;
const FRAMES: usize = 8;
const CAP: u32 = 2016;
const THRESHOLD: u32 = 100;

/// A lone pcp, that of the CPU we run on, laid out as FAST-5 says.
struct Bench {
    fast: FastRef,
    pcp: *mut Pcp,
    cpu: CpuId,
    slots: Box<[AtomicU32]>,
    _memory: Box<[Lines]>,
    _pinned: Pinned,
}

#[repr(align(128))]
#[derive(Clone, Copy)]
struct Lines(#[expect(dead_code, reason = "room")] [u8; 128]);

/// One state of the pcp: the word, and the limit of its list.
#[derive(Clone, Copy, Debug)]
struct Case {
    word: PcpWord,
    list: usize,
    order: Order,
    hi: u32,
}

impl Bench {
    /// `None` where there are no restartable sequences.
    fn new() -> Option<Bench> {
        let area = RseqArea::find().ok()?;
        let cpu = allowed_cpus().ok()?.first().copied().unwrap_or(CpuId(0));
        let pinned = Pinned::to(cpu).ok()?;
        let pcps = (cpu.0 as usize + 1) * PCP_BYTES;
        let bytes = pcps + PCPS_TO_FAST + FAST_TO_WORDS + 8 * FRAMES;
        let mut memory = vec![Lines([0; 128]); bytes.div_ceil(128)].into_boxed_slice();
        let start = memory.as_mut_ptr().cast::<u8>();
        let pcp = start.cast::<Pcp>();
        let fast = start.wrapping_add(pcps + PCPS_TO_FAST).cast::<Fast>();
        let header = Fast {
            rseq_offset: area.offset(),
            base: 0,
            frames: FRAMES,
            several_kinds: false,
            lists: Default::default(),
        };
        // SAFETY: (1) inside `memory`, aligned, and nobody has it yet.
        unsafe { fast.write(header) };
        // SAFETY: (1) as above: the pcp of this CPU is the first of the table.
        unsafe { pcp.write(Pcp::default()) };
        // SAFETY: (1) laid out as FAST-5 says, for this CPU, to which the thread is pinned; (2)
        // derived from the pointer to all of it.
        let fast = unsafe { FastRef::new(fast) };
        let slots = (0..WINDOW).map(AtomicU32::new).collect();
        let bench = Bench { fast, pcp, cpu, slots, _memory: memory, _pinned: pinned };
        bench.number(offsets::FRAMES).store(FRAMES as u32, Relaxed);
        bench.number(offsets::FREE_COUNT_CAP).store(CAP, Relaxed);
        bench.number(offsets::FREE_HIGH_THRESHOLD).store(THRESHOLD, Relaxed);
        Some(bench)
    }

    /// A `u32` of the pcp.
    fn number(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= PCP_BYTES && offset.is_multiple_of(4));
        // SAFETY: (1) inside the pcp, which `new` has written; (2) aligned; (3) while the pcp
        // is looked at by sequences and in this way alone, each access of it is atomic.
        unsafe { &*self.pcp.wrapping_byte_add(offset).cast() }
    }

    /// A `u64` of the pcp.
    fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= PCP_BYTES && offset.is_multiple_of(8));
        // SAFETY: (1) to (3) as above.
        unsafe { &*self.pcp.wrapping_byte_add(offset).cast() }
    }

    /// The hot word.
    fn word(&self) -> &AtomicU64 {
        self.long(offsets::WORD)
    }

    fn pcp(&self) -> &Pcp {
        // SAFETY: (1) written by `new`; changed through `&mut self` alone, and by sequences.
        unsafe { &*self.pcp }
    }

    /// The words of a frame on the case's list.
    fn words(&self, case: &Case) -> (u64, u64) {
        let pcp = PcpId { cpu: self.cpu, rank: 0 };
        let cached = PageWord::cached(case.order, Migratetype::Unmovable, pcp);
        (cached.bits(), cached.taken().bits())
    }

    fn frame_word(&self) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: (1) the frame has a word.
        unsafe { &*self.fast.word(PUSHED as isize) }
    }

    /// Puts the pcp into a state. The middle of the window lies at the hot end.
    fn set(&mut self, case: &Case) {
        for (n, slot) in self.slots.iter().enumerate() {
            slot.store(SLOT + n as u32, Relaxed);
        }
        let below = 4 * case.word.len() as usize;
        let middle = self.slots[WINDOW as usize / 2..].as_ptr() as usize;
        let (cached, allocated) = self.words(case);
        let list = record(case.list);
        let active = PcpWord::new(case.list, 0, 0, 0, false).bits() as u32;
        let prev = PcpWord::new(0, 0, 0, 0, is_high(case.order)).bits() as u32;
        self.long(list + at::SLOTS_LO).store(middle.wrapping_sub(below) as u64, Relaxed);
        self.number(list + at::HI).store(case.hi, Relaxed);
        self.number(list + at::ACTIVE_BITS).store(active, Relaxed);
        self.number(list + at::PREV_BITS).store(prev, Relaxed);
        self.number(list + at::BLOCK_PAGES).store(case.order.pages() as u32, Relaxed);
        self.long(list + at::CACHED).store(cached, Relaxed);
        self.long(list + at::ALLOCATED).store(allocated, Relaxed);
        self.word().store(case.word.bits(), Relaxed);
        self.frame_word().store(allocated, Relaxed);
    }

    /// Compares the pcp with what it should be after the operation; `pushed`: the slot at the
    /// hot end holds the new frame, and its word says so. A push that leaves may have written that
    /// slot, which is dead (FAST-1).
    fn expect(&self, case: &Case, what: &str, word: PcpWord, pushed: bool) {
        let after = PcpWord::from_bits(self.word().load(Relaxed));
        assert_eq!(after, word, "{what}, {case:x?}: {after:x?} instead of {word:x?}");
        assert_eq!(self.number(record(case.list) + at::HI).load(Relaxed), case.hi, "{case:x?}");
        for (n, slot) in self.slots.iter().enumerate() {
            let (at_top, slot) = (n as u32 == WINDOW / 2, slot.load(Relaxed));
            let left = what.contains("push") && case.word.len() < case.hi;
            let is_frame = pushed || left && slot == PUSHED as u32;
            let expected = if at_top && is_frame { PUSHED as u32 } else { SLOT + n as u32 };
            assert_eq!(slot, expected, "{what}, {case:x?}: slot {n}");
        }
        let (cached, allocated) = self.words(case);
        let expected = if pushed { cached } else { allocated };
        assert_eq!(self.frame_word().load(Relaxed), expected, "{what}, {case:x?}: page word");
        assert_eq!(self.number(offsets::FREE_COUNT_CAP).load(Relaxed), CAP);
        assert!(!self.pcp().is_closed());
    }

    fn check_pop(&mut self, case: &Case) {
        let expected = popped(case);
        let frame = match expected {
            Some(_) => (SLOT + WINDOW / 2 - 1) as isize,
            None => NO_FRAME,
        };
        let cached = self.words(case).0;
        let word = expected.unwrap_or(case.word);
        if case.list == 0 {
            self.set(case);
            // SAFETY: (1) the bench lives; (2) this thread is registered.
            let got = unsafe { pop_page(self.fast) };
            assert_eq!(got.frame, frame, "pop_page, {case:x?}");
            assert!(frame == NO_FRAME || case.order != Order::ZERO || got.cached == cached);
            self.expect(case, "pop_page", word, false);
        }
        self.set(case);
        // SAFETY: (1) and (2) as above; (3) the list exists.
        let got = unsafe { pop_block(self.fast, list_offset(case.list) as usize) };
        assert_eq!(got.frame, frame, "pop_block, {case:x?}");
        assert!(frame == NO_FRAME && got.cached != 0 || got.cached == cached, "{case:x?}");
        self.expect(case, "pop_block", word, false);
    }

    fn check_push(&mut self, case: &Case) {
        let expected = pushed(case);
        let word = expected.unwrap_or(case.word);
        let list = list_offset(case.list) as usize;
        if case.list == 0 && case.order == Order::ZERO {
            self.set(case);
            // SAFETY: (1) the bench lives; (2) this thread is registered; (3) the frame is there,
            // and ours.
            let done = unsafe { push_page(self.fast, PUSHED) };
            assert_eq!(done, expected.is_some(), "push_page, {case:x?}");
            self.expect(case, "push_page", word, done);
        }
        self.set(case);
        // SAFETY: (1) to (3) as above; (4) the list exists.
        let done = unsafe { push_block(self.fast, list, PUSHED) };
        assert_eq!(done, expected.is_some(), "push_block, {case:x?}");
        self.expect(case, "push_block", word, done);
    }

    /// Pushes a frame whose word differs from the list's in the pcp.
    fn check_other(&mut self, case: &Case, word: u64) {
        let list = list_offset(case.list) as usize;
        let after = pushed(case).expect("only the frame's word is in the way");
        for page in [true, false] {
            self.set(case);
            self.frame_word().store(word, Relaxed);
            let done = match page {
                // SAFETY: (1) to (4) as in `check_push`.
                true => unsafe { push_page(self.fast, PUSHED) },
                // SAFETY: (1) to (4) as in `check_push`.
                false => unsafe { push_block(self.fast, list, PUSHED) },
            };
            assert!(done, "{word:#x} was refused, {case:x?}");
            self.expect(case, "push of another CPU's", after, true);
        }
    }

    /// Pushes a frame whose word is not one of the list of any CPU.
    fn check_refused(&mut self, case: &Case, word: u64) {
        let list = list_offset(case.list) as usize;
        for page in [true, false] {
            self.set(case);
            self.frame_word().store(word, Relaxed);
            let done = match page {
                // SAFETY: (1) to (4) as in `check_push`.
                true => unsafe { push_page(self.fast, PUSHED) },
                // SAFETY: (1) to (4) as in `check_push`.
                false => unsafe { push_block(self.fast, list, PUSHED) },
            };
            assert!(!done, "{word:#x} was pushed, {case:x?}");
            assert_eq!(self.frame_word().swap(self.words(case).1, Relaxed), word);
            self.expect(case, "refused push", case.word, false);
        }
    }
}

/// Where a list's record lies in the pcp.
fn record(list: usize) -> usize {
    offsets::LISTS + list * offsets::LIST_BYTES
}

/// Whether two frees in a row of this order may be a stream (LB E.7).
fn is_high(order: Order) -> bool {
    (1..=3).contains(&order.get())
}

/// What a pop makes of the word, or `None` where the core decides.
fn popped(case: &Case) -> Option<PcpWord> {
    let word = case.word;
    let plain = !word.is_slow() && word.active() == case.list && word.len() > 0;
    Some(word.popped()).filter(|after| plain && !after.must_fold())
}

/// What a push makes of the word, or `None` where the core decides.
fn pushed(case: &Case) -> Option<PcpWord> {
    let (word, high) = (case.word, is_high(case.order));
    let stream = high && word.prev_high_order() && word.free_count() >= THRESHOLD;
    let plain = !word.is_slow() && word.active() == case.list && !stream;
    (plain && word.len() < case.hi).then(|| word.pushed(case.order.pages() as u32, CAP, high))
}

const FREE_COUNTS: [u32; 11] = [0, 1, 2, 3, 99, 100, 101, CAP - 1, CAP, CAP + 1, CAP + 511];
const LENGTHS: [u32; 8] = [0, 1, 2, 3, 4096, 1 << 23, SLOTS_MAX as u32 - 1, SLOTS_MAX as u32];
const POPS: [u32; 5] = [0, 1, POPS_PERIOD / 2, POPS_PERIOD - 2, POPS_PERIOD - 1];

/// Calls `check` for every combination of edge values of a word whose `active` is `active`.
fn each_word(active: usize, mut check: impl FnMut(PcpWord)) {
    for free_count in FREE_COUNTS {
        for pops in POPS {
            for len in LENGTHS {
                for (prev, slow) in [(false, false), (false, true), (true, false), (true, true)] {
                    check(PcpWord::new(active, len, pops, free_count, prev).with_slow(slow));
                }
            }
        }
    }
}

/// Limits around the length: far away, one away, reached, passed.
fn limits(len: u32) -> [u32; 5] {
    [0, len.saturating_sub(1), len, (len + 1).min(SLOTS_MAX as u32), SLOTS_MAX as u32]
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
            each_word(active, |word| bench.check_pop(&Case { word, list, order, hi: 0 }));
        }
    }
}

#[test]
fn a_push_commits_what_the_pure_function_says_or_leaves_all_alone() {
    let Some(mut bench) = Bench::new() else { return };
    for (list, order) in lists() {
        for active in [list, NO_LIST, (list + 1) % NR_LISTS] {
            each_word(active, |word| {
                for hi in limits(word.len()) {
                    bench.check_push(&Case { word, list, order, hi });
                }
            });
        }
    }
}

#[test]
fn a_push_looks_at_the_page_word() {
    let Some(mut bench) = Bench::new() else { return };
    for (list, order) in lists().filter(|(list, _)| *list == 0) {
        let case = Case { word: PcpWord::new(list, 3, 7, 5, false), list, order, hi: 100 };
        let (cached, allocated) = bench.words(&case);
        let other = |cpu, rank| {
            let pcp = PcpId { cpu: CpuId(cpu), rank };
            PageWord::allocated(order, Migratetype::Unmovable, pcp).bits()
        };
        let here = bench.cpu.0;
        let others = [other(here + 1, 0), other(here, 1), other(u32::from(u16::MAX), 4095)];
        let wrong = [
            0,
            cached,
            PageWord::free(order, 1, 2).bits(),
            PageWord::free(order, 1, u32::from(u16::MAX)).bits(),
            allocated ^ 1 << 2,
            allocated ^ 1 << 6,
            allocated ^ 1 << PCP_END,
            allocated ^ 1 << 63,
        ];
        wrong.iter().for_each(|word| bench.check_refused(&case, *word));
        // Words of others' blocks that are wrong, too.
        for (word, other) in wrong[1..].iter().flat_map(|w| others.map(|other| (*w, other))) {
            bench.check_refused(&case, word ^ allocated ^ other);
        }
        others.iter().for_each(|word| bench.check_other(&case, *word));
    }
}

#[test]
fn a_push_of_another_cpus_block_looks_whether_it_is_the_zones() {
    let Some(mut bench) = Bench::new() else { return };
    let (list, order) = (0, Order::ZERO);
    let case = Case { word: PcpWord::new(list, 3, 7, 5, false), list, order, hi: 100 };
    let pcp = PcpId { cpu: CpuId(bench.cpu.0 + 1), rank: 0 };
    let word = PageWord::allocated(order, Migratetype::Unmovable, pcp).bits();
    let pushed = PUSHED as u32;
    for (first, frames, inside) in [
        (0, FRAMES as u32, true),
        (pushed, 1, true),
        (pushed + 1, 1, false),
        (pushed + 1, u32::MAX - pushed, false),
        (0, pushed, false),
        (0, pushed + 1, true),
    ] {
        bench.number(offsets::FIRST_FRAME).store(first, Relaxed);
        bench.number(offsets::FRAMES).store(frames, Relaxed);
        match inside {
            true => bench.check_other(&case, word),
            false => bench.check_refused(&case, word),
        }
    }
}

/// What a record has for the switch: length, pops, capacity, cold end.
#[derive(Clone, Copy, Debug)]
struct Record {
    len: u32,
    pops: u64,
    cap: u32,
    lo: u32,
}

/// An operation on a list while another one is active, or the same.
#[derive(Clone, Copy, Debug)]
struct Switch {
    old: (usize, Order, Record),
    new: (usize, Order, Record),
    word: PcpWord,
    limit: u32,
    others: u32,
}

#[test]
fn an_operation_on_another_list_leaves_the_old_one_in_its_record_and_goes_on_with_the_new_one() {
    let Some(mut bench) = Bench::new() else { return };
    let period = u64::from(POPS_PERIOD);
    let records = [
        Record { len: 0, pops: 0, cap: 10, lo: 0 },
        Record { len: 7, pops: 5 * period - 1, cap: 4000, lo: 3000 },
        Record { len: 300, pops: 3 * period + 9, cap: 1 << 20, lo: 5 },
    ];
    for ((old, old_order), (new, new_order)) in lists().flat_map(|a| lists().map(move |b| (a, b))) {
        for (from, to) in records.iter().flat_map(|a| records.map(|b| (*a, b))) {
            for (limit, elsewhere) in [(0, 0), (1, 0), (200, 7), (1 << 20, 99), (1 << 20, 1 << 21)]
            {
                each_word(old, |word| {
                    // As many pages elsewhere as the new list has, at least.
                    let others = elsewhere + (to.len << new_order.get());
                    let word = PcpWord::from_bits(word.bits())
                        .switched(old, word.len() % 5000, word.pops().into())
                        .with_slow(word.is_slow());
                    let (old, new) = ((old, old_order, from), (new, new_order, to));
                    let case = Switch { old, new, word, limit, others };
                    bench.check_any_pop(&case);
                    bench.check_any_push(&case);
                });
            }
        }
    }
}

impl Switch {
    /// The word once the new list is active. `None`: a slow word.
    fn switched(&self) -> Option<PcpWord> {
        let (new, _, to) = self.new;
        let word = match new == self.old.0 {
            true => self.word,
            false => self.word.switched(new, to.len, to.pops),
        };
        (!self.word.is_slow()).then_some(word)
    }

    /// The same as a case of the new list, whose limit is `hi`.
    fn case(&self, word: PcpWord, hi: u32) -> Case {
        Case { word, list: self.new.0, order: self.new.1, hi }
    }
}

impl Bench {
    /// Puts the pcp into a state with two records. The middle of the window lies at the hot end
    /// of the new list.
    fn set_switch(&mut self, switch: &Switch) {
        let (new, order, to) = switch.new;
        let len = if new == switch.old.0 { switch.word.len() } else { to.len };
        self.set(&switch.case(PcpWord::new(new, len, 0, 0, false), 77));
        for (list, order, had) in [switch.old, (new, order, to)] {
            let active = PcpWord::new(list, 0, 0, 0, false).bits() as u32;
            let list = record(list);
            self.number(list + at::ACTIVE_BITS).store(active, Relaxed);
            self.number(list + at::ORDER_BITS).store(order.get(), Relaxed);
            self.number(list + at::BLOCK_PAGES).store(order.pages() as u32, Relaxed);
            self.number(list + at::CAP).store(had.cap, Relaxed);
            self.number(list + at::LO).store(had.lo, Relaxed);
            self.number(list + at::LEN).store(had.len, Relaxed);
            self.long(list + at::POPS).store(had.pops, Relaxed);
            self.number(list + at::OTHERS).store(switch.others, Relaxed);
            self.number(list + at::HI).store(77, Relaxed);
        }
        self.number(offsets::LIMIT).store(switch.limit, Relaxed);
        self.word().store(switch.word.bits(), Relaxed);
    }

    fn check_any_pop(&mut self, switch: &Switch) {
        self.set_switch(switch);
        let list = list_offset(switch.new.0) as usize;
        // SAFETY: (1) the bench lives; (2) this thread is registered; (3) the list exists.
        let got = unsafe { pop_any(self.fast, list) };
        let after = switch.switched().and_then(|word| popped(&switch.case(word, 0)));
        let Some(after) = after else {
            assert_eq!(got.frame, NO_FRAME, "{switch:x?}");
            return self.expect_nothing(switch);
        };
        assert_eq!(got.frame, (SLOT + WINDOW / 2 - 1) as isize, "{switch:x?}");
        assert_eq!(got.cached, self.words(&switch.case(after, 0)).0, "{switch:x?}");
        self.expect_switched(switch, after);
    }

    fn check_any_push(&mut self, switch: &Switch) {
        self.set_switch(switch);
        let list = list_offset(switch.new.0) as usize;
        // SAFETY: (1) the bench lives; (2) this thread is registered; (3) the frame is there, and
        // ours; (4) the list exists.
        let done = unsafe { push_any(self.fast, list, PUSHED) };
        let hi = match switch.new.0 == switch.old.0 {
            true => 77,
            false => self.limit(switch),
        };
        let after = switch.switched().and_then(|word| pushed(&switch.case(word, hi)));
        assert_eq!(done, after.is_some(), "{switch:x?}");
        let (cached, allocated) = self.words(&switch.case(switch.word, 0));
        let word = if done { cached } else { allocated };
        assert_eq!(self.frame_word().load(Relaxed), word, "{switch:x?}");
        let Some(after) = after else { return self.expect_nothing(switch) };
        assert_eq!(self.slots[WINDOW as usize / 2].load(Relaxed), PUSHED as u32, "{switch:x?}");
        self.expect_switched(switch, after);
    }

    /// Pages on all lists but the new one, behind the switch.
    fn others(&self, switch: &Switch) -> u32 {
        let ((_, old, _), (_, new, to)) = (switch.old, switch.new);
        switch.others + (switch.word.len() << old.get()) - (to.len << new.get())
    }

    /// How long the new list may get, behind the switch.
    fn limit(&self, switch: &Switch) -> u32 {
        let record = self.pcp().list(switch.new.0).unwrap();
        record.limit(switch.limit, self.others(switch))
    }

    /// Nothing was committed, or a switch alone where that is a sequence of its own.
    fn expect_nothing(&self, switch: &Switch) {
        let word = PcpWord::from_bits(self.word().load(Relaxed));
        let alone = cfg!(target_arch = "aarch64") && switch.switched() == Some(word);
        assert!(word == switch.word || alone, "{switch:x?}: {word:x?}");
    }

    fn expect_switched(&self, switch: &Switch, word: PcpWord) {
        assert_eq!(PcpWord::from_bits(self.word().load(Relaxed)), word, "{switch:x?}");
        if switch.old.0 == switch.new.0 {
            return;
        }
        let (old, new) = (record(switch.old.0), record(switch.new.0));
        let left = switch.word;
        assert_eq!(self.number(old + at::LEN).load(Relaxed), left.len(), "{switch:x?}");
        let high = switch.old.2.pops / u64::from(POPS_PERIOD) * u64::from(POPS_PERIOD);
        let pops = high + u64::from(left.pops());
        assert_eq!(self.long(old + at::POPS).load(Relaxed), pops, "{switch:x?}");
        let others = self.number(new + at::OTHERS).load(Relaxed);
        assert_eq!(others, self.others(switch), "{switch:x?}");
        assert_eq!(self.number(new + at::HI).load(Relaxed), self.limit(switch), "{switch:x?}");
    }
}

#[test]
fn with_no_list_active_there_is_nothing_to_switch_from() {
    let Some(mut bench) = Bench::new() else { return };
    let order = Order::ZERO;
    let record = Record { len: 3, pops: 0, cap: 10, lo: 0 };
    let word = PcpWord::new(NO_LIST, 0, 0, 9, true);
    let (old, new) = ((0, order, record), (1, order, record));
    let switch = Switch { old, new, word, limit: 100, others: 3 };
    bench.set_switch(&switch);
    let list = list_offset(1) as usize;
    // SAFETY: (1) the bench lives; (2) this thread is registered; (3) the list exists.
    assert_eq!(unsafe { pop_any(bench.fast, list) }.frame, NO_FRAME);
    // SAFETY: (1) to (3) as above, and the frame is there; (4) the list exists.
    assert!(!unsafe { push_any(bench.fast, list, PUSHED) });
    assert_eq!(bench.word().load(Relaxed), word.bits());
}

#[test]
fn a_word_can_count_pops_until_it_must_be_folded() {
    let Some(mut bench) = Bench::new() else { return };
    let (list, order) = (0, Order::ZERO);
    let word = PcpWord::new(list, POPS_PERIOD + 5, 0, 0, false);
    bench.set(&Case { word, list, order, hi: 0 });
    // The slots are a window only, so each pop is from the same two.
    let mut done = 0;
    loop {
        let word = PcpWord::from_bits(bench.word().load(Relaxed));
        bench.set(&Case { word, list, order, hi: 0 });
        // SAFETY: (1) the bench lives; (2) this thread is registered.
        if unsafe { pop_page(bench.fast) }.frame == NO_FRAME {
            break;
        }
        done += 1;
    }
    let word = PcpWord::from_bits(bench.word().load(Relaxed));
    assert_eq!((done, word.pops(), word.len()), (POPS_PERIOD - 1, POPS_PERIOD - 1, 6));
    assert!(!word.must_fold() && word.popped().must_fold());
}
