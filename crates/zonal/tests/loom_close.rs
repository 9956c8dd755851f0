//! The closing of a pcp by another CPU, under every interleaving: `zonal_core::pcp::state`
//! (`try_close`, `Closed::drop`) against the sequences of `zonal::rseq`.
//!
//! # How restartable sequences and membarrier are mapped
//! ```text
//!  kernel and processor                              model
//!  a sequence is armed on its CPU                     reads the CPU's epoch, under the CPU's mutex
//!  an instruction of it that writes: done, or        under the mutex: writes if the epoch is still
//!    the sequence was aborted before it                 the one it began in, else starts again
//!  membarrier(PRIVATE_EXPEDITED_RSEQ, cpu): when     adds one to the epoch, under the mutex
//!    it returns, sequences that began before have
//!    committed or will start again
//! ```
//! The mutex is the instruction boundary that the interrupt falls on: a write of the sequence comes
//! before the fence or not at all. It also orders memory as membarrier does: what a sequence
//! committed before is seen behind the fence, and a sequence that begins behind the fence sees what
//! was stored before it. Reads of a sequence need no check: what they see is used only by a write.
//!
//! A sequence's first read of the word is an acquire load here. On x86-64 every load is one, on
//! aarch64 it is `ldar`: the limits are read behind the word, and must not be older than it.
//!
//! Stores to the word are swaps here, whose old value nobody looks at: loom does not put a plain
//! store and a read-modify-write that race into one order, as every processor does, and then lets
//! the closer's second look miss a commit.
//!
//! # The canaries
//! Each leaves out one step of the protocol. All must be found: pages handed out twice, or lost.
//! They run in processes of their own, since loom cannot always unwind.

mod support;

use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use support::interleavings::{assert_each_is_found, explore, fault_of_child};

const SLOTS: usize = 3;
/// A bit of the word; below it, the length of the stack.
const SLOW: u32 = 1 << 31;
/// A sequence that is aborted more often leaves.
const TRIES: u32 = 3;

/// What is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Nothing.
    Sound,
    /// The closer does not ask the kernel.
    NoFence,
    /// The closer does not look whether a sequence has committed over its mark.
    NoSecondLook,
    /// The closer fences first and marks then.
    FenceBeforeMark,
    /// Sections read the limit first and the word then.
    LimitBeforeWord,
    /// A port that reads the word like any other.
    NoAcquire,
    /// The closer opens the pcp before its limits are stored.
    OpenedTooEarly,
    /// Closers do not exclude each other.
    NoGate,
    /// A closer whose fence was refused seals the pcp all the same.
    SealsUnfenced,
    /// A sealed pcp opens to sequences.
    OpensSealed,
}
use Fault::{
    FenceBeforeMark, LimitBeforeWord, NoAcquire, NoFence, NoGate, NoSecondLook, OpenedTooEarly,
    OpensSealed, SealsUnfenced, Sound,
};
const FAULTS: [Fault; 9] = [
    NoFence,
    NoSecondLook,
    FenceBeforeMark,
    LimitBeforeWord,
    NoAcquire,
    OpenedTooEarly,
    NoGate,
    SealsUnfenced,
    OpensSealed,
];

/// One stack of one pcp. Pages are numbers from 1 up.
struct Pcp {
    fault: Fault,
    word: AtomicU32,
    gate: AtomicU32,
    sealed: AtomicU32,
    lo: AtomicU32,
    slots: [AtomicU32; SLOTS],
    /// The CPU: how often its sequences were fenced.
    epoch: Mutex<u32>,
}

impl Pcp {
    /// With pages 1 and 2 on the stack.
    fn new(fault: Fault) -> Pcp {
        let slot = |n: usize| AtomicU32::new(if n < 2 { n as u32 + 1 } else { 0 });
        Pcp {
            fault,
            word: AtomicU32::new(2),
            gate: AtomicU32::new(0),
            sealed: AtomicU32::new(0),
            lo: AtomicU32::new(0),
            slots: std::array::from_fn(slot),
            epoch: Mutex::new(0),
        }
    }

    /// One instruction of a sequence that writes. `false`: the sequence was aborted before it.
    fn write(&self, began: u32, cell: &AtomicU32, value: u32) -> bool {
        let epoch = self.epoch.lock().unwrap();
        if *epoch == began {
            cell.swap(value, Relaxed);
        }
        *epoch == began
    }

    fn begin(&self) -> u32 {
        *self.epoch.lock().unwrap()
    }

    /// The word and the cold end, as a sequence reads them. The limit of a push follows from the
    /// cold end here.
    fn read(&self) -> (u32, u32) {
        let order = if self.fault == NoAcquire { Relaxed } else { Acquire };
        if self.fault == LimitBeforeWord {
            let lo = self.lo.load(Relaxed);
            return (self.word.load(order), lo);
        }
        (self.word.load(order), self.lo.load(Relaxed))
    }

    /// A slot, counted from the cold end. Only a model with a fault leads beyond the last one.
    fn slot(&self, index: u32) -> &AtomicU32 {
        &self.slots[index as usize % SLOTS]
    }

    /// `zonal::rseq::pop_page`.
    fn pop(&self) -> Option<u32> {
        for _ in 0..TRIES {
            let began = self.begin();
            let (word, lo) = self.read();
            if word & SLOW != 0 || word == 0 {
                return None;
            }
            let page = self.slot(lo + word - 1).load(Relaxed);
            if self.write(began, &self.word, word - 1) {
                return Some(page);
            }
        }
        None
    }

    /// `zonal::rseq::push_page`.
    fn push(&self, page: u32) -> bool {
        for _ in 0..TRIES {
            let began = self.begin();
            let (word, lo) = self.read();
            if word & SLOW != 0 || lo + word >= SLOTS as u32 {
                return false;
            }
            if self.write(began, self.slot(lo + word), page)
                && self.write(began, &self.word, word + 1)
            {
                return true;
            }
        }
        false
    }

    fn fence(&self) {
        *self.epoch.lock().unwrap() += 1;
    }

    /// `Pcp::try_close`. Returns the length.
    fn try_close(&self) -> Option<u32> {
        if self.fault != NoGate {
            self.gate.compare_exchange(0, 1, Acquire, Relaxed).ok()?;
        }
        loop {
            if self.fault == FenceBeforeMark {
                self.fence();
            }
            self.word.fetch_or(SLOW, Relaxed);
            if self.fault != NoFence && self.fault != FenceBeforeMark {
                self.fence();
            }
            let word = self.word.load(Relaxed);
            if self.fault == NoSecondLook || word & SLOW != 0 {
                return Some(word & !SLOW);
            }
        }
    }

    /// The same on the pcp's own CPU, once fences are refused: the switch to the closer's thread
    /// stands for the fence. From now on the pcp is sealed (PCP-7).
    fn seal(&self) -> Option<u32> {
        let len = self.try_close()?;
        self.sealed.store(1, Relaxed);
        Some(len)
    }

    /// The same elsewhere, where every fence is refused: only a sealed pcp can be closed.
    fn try_close_refused(&self) -> Option<u32> {
        self.gate.compare_exchange(0, 1, Acquire, Relaxed).ok()?;
        if self.sealed.load(Relaxed) == 0 {
            self.word.fetch_or(SLOW, Relaxed);
            if self.fault != SealsUnfenced {
                self.gate.store(0, Release);
                return None;
            }
            self.sealed.store(1, Relaxed);
        }
        Some(self.word.load(Relaxed) & !SLOW)
    }

    /// `Closed::drop`, with the cold end where it is now.
    fn open(&self, lo: u32, len: u32) {
        let sealed = self.sealed.load(Relaxed) != 0 && self.fault != OpensSealed;
        let word = if sealed { len | SLOW } else { len };
        if self.fault == OpenedTooEarly {
            self.word.swap(word, Release);
            self.lo.store(lo, Relaxed);
        } else {
            self.lo.store(lo, Relaxed);
            self.word.swap(word, Release);
        }
        self.gate.store(0, Release);
    }

    /// Takes at most `most` pages from the cold end.
    fn drain(&self, most: u32) -> Vec<u32> {
        self.take(self.try_close(), most)
    }

    /// Takes at most `most` pages of a pcp that was closed, if it was, and opens it.
    fn take(&self, closed: Option<u32>, most: u32) -> Vec<u32> {
        let Some(len) = closed else { return Vec::new() };
        let lo = self.lo.load(Relaxed);
        let taken = len.min(most);
        let pages = (lo..lo + taken).map(|n| self.slot(n).load(Relaxed)).collect();
        self.open(lo + taken, len - taken);
        pages
    }

    /// Takes all pages and puts as many others in their place: the word is what it was.
    fn exchange(&self) -> (Vec<u32>, Vec<u32>) {
        let Some(len) = self.try_close() else { return Default::default() };
        let lo = self.lo.load(Relaxed);
        let slots = (lo..lo + len).map(|n| self.slot(n));
        let pages: Vec<_> = slots.clone().map(|slot| slot.load(Relaxed)).collect();
        let others: Vec<_> = pages.iter().map(|page| page + 10).collect();
        slots.zip(&others).for_each(|(slot, page)| slot.store(*page, Relaxed));
        self.open(lo, len);
        (pages, others)
    }

    /// What is left, when nobody runs any more.
    fn rest(&self) -> Vec<u32> {
        let len = self.word.load(Acquire) & !SLOW;
        let lo = self.lo.load(Relaxed);
        assert!(lo + len <= SLOTS as u32, "PCP-2: lo {lo}, length {len}");
        (lo..lo + len).map(|n| self.slot(n).load(Relaxed)).collect()
    }
}

/// Every page in exactly one place.
fn assert_once(places: impl IntoIterator<Item = Vec<u32>>, mut pages: Vec<u32>) {
    let mut found: Vec<_> = places.into_iter().flatten().collect();
    found.sort_unstable();
    pages.sort_unstable();
    assert_eq!(found, pages);
}

/// What the owner's CPU does: the pages it holds in the end.
fn owner(pcp: &Pcp) -> Vec<u32> {
    let mut held = Vec::new();
    held.extend(pcp.pop());
    if held.last().is_some_and(|page| pcp.push(*page)) {
        held.pop();
    }
    held.extend(pcp.pop());
    held
}

/// Pops and pushes against two partial drains, one behind the other.
fn drained(fault: Fault) {
    let pcp = Arc::new(Pcp::new(fault));
    let other = Arc::clone(&pcp);
    let closer = loom::thread::spawn(move || [other.drain(1), other.drain(1)].concat());
    let held = owner(&pcp);
    let taken = closer.join().unwrap();
    assert_once([held, taken, pcp.rest()], vec![1, 2]);
}

/// A pop against a closer that leaves the word as it was and every slot changed.
fn exchanged(fault: Fault) {
    let pcp = Arc::new(Pcp::new(fault));
    let other = Arc::clone(&pcp);
    let closer = loom::thread::spawn(move || other.exchange());
    let held: Vec<_> = pcp.pop().into_iter().collect();
    let (taken, new) = closer.join().unwrap();
    let all = [vec![1, 2], new].concat();
    assert_once([held, taken, pcp.rest()], all);
}

/// A pop against two closers at the same time.
fn drained_by_two(fault: Fault) {
    let pcp = Arc::new(Pcp::new(fault));
    let closers = [(); 2].map(|()| {
        let other = Arc::clone(&pcp);
        loom::thread::spawn(move || other.drain(1))
    });
    let held: Vec<_> = pcp.pop().into_iter().collect();
    let [first, second] = closers.map(|closer| closer.join().unwrap());
    assert_once([held, first, second, pcp.rest()], vec![1, 2]);
}

/// Pops and pushes against a closer on the same CPU that seals, and one elsewhere whose fences are
/// refused.
fn sealed(fault: Fault) {
    let pcp = Arc::new(Pcp::new(fault));
    let (sealer, refused) = (Arc::clone(&pcp), Arc::clone(&pcp));
    let here = loom::thread::spawn(move || sealer.take(sealer.seal(), 1));
    let elsewhere = loom::thread::spawn(move || refused.take(refused.try_close_refused(), 1));
    let held = owner(&pcp);
    let (here, elsewhere) = (here.join().unwrap(), elsewhere.join().unwrap());
    assert_once([held, here, elsewhere, pcp.rest()], vec![1, 2]);
}

/// All scenes with one fault. Returns the number of interleavings.
fn all_scenes(fault: Fault) -> u64 {
    // Loom takes plain functions only.
    macro_rules! scenes {
        ($($fault:ident),*) => {
            match fault {
                $($fault => {
                    explore(Some(3), || drained($fault))
                        + explore(None, || exchanged($fault))
                        + explore(Some(2), || drained_by_two($fault))
                        + explore(Some(2), || sealed($fault))
                })*
            }
        };
    }
    scenes!(
        Sound,
        NoFence,
        NoSecondLook,
        FenceBeforeMark,
        LimitBeforeWord,
        NoAcquire,
        OpenedTooEarly,
        NoGate,
        SealsUnfenced,
        OpensSealed
    )
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    if let Some(fault) = fault_of_child(Sound, &FAULTS) {
        all_scenes(fault);
    }
}

#[test]
fn no_page_is_lost_or_taken_twice_when_a_pcp_is_closed_from_elsewhere() {
    let interleavings = all_scenes(Sound);
    eprintln!("{interleavings} interleavings");
    assert!(interleavings > 1000);
}

#[test]
fn each_step_of_the_protocol_is_needed() {
    assert_each_is_found(Sound, &FAULTS);
}
