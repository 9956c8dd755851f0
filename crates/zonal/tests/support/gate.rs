//! What the models of the gate share: as much of a pcp as `zonal_core::pcp::gated` looks at, and a
//! closer. The root of the test says which atomics (`crate::sync`) and compiles that very file.

use crate::epoch::FastEpoch;
use crate::gated::{Cells, Entered};
use crate::pcp::state::{Pcp, PcpList};
use crate::pcp::word::PcpWord;
use crate::ready::{self, Key, OPEN, Ready};
use crate::sync::Ordering::{self, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64};

/// Slots of each list.
pub const SLOTS: u32 = 3;
/// Page words: two for each list. What a page's word says is its list and one of these.
pub const PAGES: u32 = 4;
const CACHED: u64 = 2;
const ALLOCATED: u64 = 3;

/// What a closer leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    Sound,
    /// It does not take the gate.
    NoGate,
    /// It opens the gate before all is stored.
    OpenedTooEarly,
    /// It opens the gate with an ordinary store.
    NoRelease,
    /// It leaves in the gate what the pcp was ready for.
    StaysReady,
    /// Who makes the pcp ready looks at the zone first and at the epoch then.
    ZoneFirst,
    /// The zone's bits are lost behind the epoch.
    LostLate,
}

/// One pcp of two lists, with their slots and the words of their pages.
pub struct Machine {
    pub fault: Fault,
    pub pcp: Pcp,
    epoch: FastEpoch,
    /// `Zone::fast`: not 0 where operations may pass.
    fast: AtomicU32,
    slots: Vec<AtomicU32>,
    words: Vec<AtomicU64>,
}

impl Cells<'static> for &'static Machine {
    fn slot(self, at: u32) -> Option<&'static AtomicU32> {
        self.slots.get(at as usize)
    }
    fn word(self, frame: u64) -> Option<&'static AtomicU64> {
        self.words.get(frame as usize)
    }
}

impl Machine {
    /// Pages 0 and 1 on list 0, which is active, pages 2 and 3 on list 1.
    pub fn new(fault: Fault) -> &'static Machine {
        let list = |index: u32| PcpList {
            serves: 1 << index,
            types: 1 << index,
            prev_bits: 0,
            block_pages: 1,
            order_bits: 0,
            base: index * SLOTS,
            cap: SLOTS,
            cached: CACHED | u64::from(index) << 2,
            hi: AtomicU32::new(SLOTS),
            len: AtomicU32::new(2),
            others: AtomicU32::new(2),
            lo: AtomicU32::new(0),
            pops: AtomicU64::new(0),
        };
        let pcp = Pcp {
            gate: AtomicU32::new(OPEN),
            word: AtomicU64::new(PcpWord::new(0, 2, 0, 0, false).0),
            lists: [list(0), list(1)],
            events: crate::pcp::state::Events { double_frees: AtomicU64::new(0) },
            free_high_threshold: AtomicU32::new(100),
            free_count_cap: AtomicU32::new(8),
            limit: AtomicU32::new(100),
            first_frame: 0,
            frames: PAGES,
            ready: Ready::default(),
        };
        let slot = |at: u32| AtomicU32::new(at / SLOTS * 2 + at % SLOTS);
        let word = |page: u32| AtomicU64::new(CACHED | u64::from(page / 2) << 2);
        Box::leak(Box::new(Machine {
            fault,
            pcp,
            epoch: FastEpoch::default(),
            fast: AtomicU32::new(1),
            slots: (0..2 * SLOTS).map(slot).collect(),
            words: (0..PAGES).map(word).collect(),
        }))
    }

    /// As `alloc::fast::take_ready` does it and, where the pcp is not ready, `alloc::fast::enter`.
    fn enter(&'static self, list: usize) -> Option<Entered<'static>> {
        if let Some(entered) = Entered::ready(&self.pcp, Key::new(self.epoch.now(), 0))
            && entered.serves(list as u32)
        {
            return Some(entered);
        }
        let first = (self.fault == Fault::ZoneFirst).then(|| self.fast.load(Relaxed));
        let key = Key::new(self.epoch.now(), 0);
        if first.unwrap_or_else(|| self.fast.load(Relaxed)) == 0 {
            return None;
        }
        let mut entered = Entered::new(&self.pcp)?;
        if !entered.switch(list, || false) || !entered.prepare(0, false, || false) {
            return None;
        }
        entered.stay_ready(key);
        Some(entered)
    }

    /// `Zone::set_flag`: from now on each operation has something to decide.
    pub fn lose(&self) {
        if self.fault == Fault::LostLate {
            self.epoch.move_on();
        }
        self.fast.store(0, Relaxed);
        if self.fault != Fault::LostLate {
            self.epoch.move_on();
        }
    }

    /// `alloc::fast::take`; `None`: the core is asked.
    pub fn pop(&'static self, list: usize) -> Option<u32> {
        self.enter(list)?.pop(0, self)
    }

    /// `alloc::fast::put`; `false`: the core is asked.
    pub fn push(&'static self, list: usize, page: u32) -> bool {
        self.enter(list).is_some_and(|entered| {
            entered.takes(list as u32) && entered.push(0, (u64::from(page), || false), self)
        })
    }

    /// `Closed`: takes the coldest page of each list for the buddy. Nothing where somebody holds
    /// the gate.
    pub fn drain(&self) -> Vec<u32> {
        self.close(|_| OPEN)
    }

    /// The same for an operation: it opens as ready for the next one (`Closed::ready_in`).
    pub fn drain_and_stay_ready(&self) -> Vec<u32> {
        self.close(|active| {
            let first = (self.fault == Fault::ZoneFirst).then(|| self.fast.load(Relaxed));
            let key = Key::new(self.epoch.now(), 0);
            if first.unwrap_or_else(|| self.fast.load(Relaxed)) == 0 {
                return OPEN;
            }
            self.pcp.repeat(&self.pcp.lists[active], false);
            key.opens()
        })
    }

    /// `opens`: what the gate opens with, once all is stored; it gets the active list.
    fn close(&self, opens: impl FnOnce(usize) -> u32) -> Vec<u32> {
        let gate = &self.pcp.gate;
        let was = gate.load(Relaxed);
        if self.fault != Fault::NoGate && !ready::take(gate) {
            return Vec::new();
        }
        let word = PcpWord(self.pcp.word.load(Relaxed));
        if self.fault == Fault::OpenedTooEarly {
            gate.store(OPEN, Release);
        }
        let (mut pages, mut new) = (Vec::new(), word);
        for (index, list) in self.pcp.lists.iter().enumerate() {
            let active = word.active() == index;
            let len = if active { word.len() } else { list.len.load(Relaxed) };
            let lo = list.lo.load(Relaxed);
            if len == 0 {
                continue;
            }
            let page = self.slots[(list.base + lo) as usize].load(Relaxed);
            // In the buddy: no list's word.
            self.words[page as usize].store(1, Relaxed);
            pages.push(page);
            list.lo.store(lo + 1, Relaxed);
            list.hi.store(list.cap - lo - 1, Relaxed);
            if active {
                new = PcpWord::new(index, len - 1, word.pops(), word.free_count(), false);
            } else {
                list.len.store(len - 1, Relaxed);
            }
        }
        self.pcp.word.store(new.0, Relaxed);
        if self.fault != Fault::OpenedTooEarly {
            let order = if self.fault == Fault::NoRelease { Relaxed } else { Release };
            let opens = if self.fault == Fault::StaysReady { was } else { opens(new.active()) };
            gate.store(opens, order);
        }
        pages
    }

    /// The pages on the lists, when nobody runs any more. Each says so in its word.
    pub fn rest(&self) -> Vec<u32> {
        // Acquire: pairs with the last opening.
        assert!(!ready::is_closed(self.pcp.gate.load(Ordering::Acquire)), "nobody left it taken");
        let word = PcpWord(self.pcp.word.load(Relaxed));
        let mut pages = Vec::new();
        for (index, list) in self.pcp.lists.iter().enumerate() {
            let len = if word.active() == index { word.len() } else { list.len.load(Relaxed) };
            let first = list.base + list.lo.load(Relaxed);
            assert!(list.lo.load(Relaxed) + len <= SLOTS, "PCP-2");
            for at in first..first + len {
                let page = self.slots[at as usize].load(Relaxed);
                assert_eq!(self.words[page as usize].load(Relaxed), list.cached, "PCP-3");
                pages.push(page);
            }
        }
        pages
    }
}

/// Every page in exactly one place.
pub fn assert_once(places: impl IntoIterator<Item = Vec<u32>>) {
    let mut found: Vec<_> = places.into_iter().flatten().collect();
    found.sort_unstable();
    assert_eq!(found, (0..PAGES).collect::<Vec<_>>());
}

/// As much of a pcp as the fast path looks at.
pub mod state {
    use crate::pcp::word::{POPS_PERIOD, PcpWord};
    use crate::ready::Ready;
    use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

    pub struct Events {
        pub double_frees: AtomicU64,
    }
    pub struct Pcp {
        pub gate: AtomicU32,
        pub word: AtomicU64,
        pub lists: [PcpList; 2],
        pub events: Events,
        pub free_high_threshold: AtomicU32,
        pub free_count_cap: AtomicU32,
        pub limit: AtomicU32,
        pub first_frame: u32,
        pub frames: u32,
        pub(crate) ready: Ready,
    }
    pub struct PcpList {
        /// A bit for the list's own number: what it serves, and what is freed to it.
        pub serves: u32,
        pub types: u8,
        pub prev_bits: u32,
        pub block_pages: u32,
        pub order_bits: u32,
        pub base: u32,
        pub cap: u32,
        pub cached: u64,
        pub hi: AtomicU32,
        pub len: AtomicU32,
        pub others: AtomicU32,
        pub lo: AtomicU32,
        pub pops: AtomicU64,
    }
    impl Pcp {
        pub fn has(&self, frame: u64, frames: u32) -> bool {
            let at = frame.wrapping_sub(u64::from(self.first_frame));
            let behind = u64::from(self.frames).checked_sub(at);
            behind.is_some_and(|behind| u64::from(frames) <= behind)
        }
    }
    impl std::fmt::Debug for Pcp {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Pcp")
        }
    }
    impl PcpList {
        pub fn pops_with(&self, word: Option<PcpWord>) -> u64 {
            let pops = self.pops.load(Relaxed);
            match word {
                Some(word) => (pops & !u64::from(POPS_PERIOD - 1)) + u64::from(word.pops()),
                None => pops,
            }
        }
        pub fn limit(&self, high: u32, others: u32) -> u32 {
            let most = high.saturating_sub(others).saturating_sub(1) >> self.order_bits;
            most.min(self.cap.saturating_sub(self.lo.load(Relaxed)))
        }
    }
}

/// The word of a page: all of it says what it is.
pub mod frame {
    pub use crate::claim;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct PageWord(pub u64);
    impl PageWord {
        pub fn same_but_pcp(self, other: PageWord) -> bool {
            self == other
        }
        pub fn taken(self) -> PageWord {
            PageWord(self.0 | super::ALLOCATED)
        }
    }
}
