//! The first drain of each CPU's lists that a free causes.
//!
//! It moves as many pages as the CPU had freed in a row (LB E.7, `free_count`), those freed before
//! the trace among them.

use crate::facts::Fact;
use crate::read::DRAIN_BEHIND_FREE_NS;
use crate::told::FirstDrain;

/// One CPU's lists of one zone.
#[derive(Clone, Copy, Debug, Default)]
struct Store {
    /// What the events since the start make of the count.
    freed: u64,
    /// How often allocations have halved it.
    halved: u32,
    has_drained: bool,
}

/// The last event of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    /// Of pages to this store, then.
    Free(usize, u64),
    /// The first of this store, and its last block so far then.
    Drain(usize, u64),
}

/// What all stores did since the start.
#[derive(Debug)]
pub(super) struct Streams {
    stores: Vec<Store>,
    /// By CPU.
    last: Vec<Last>,
}

/// What a drained block is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// The first drain begins.
    First(FirstDrain),
    /// It goes on.
    GoesOn,
    /// A later one, or one that no free caused.
    Other,
}

impl Streams {
    pub(super) fn new(stores: usize, cpus: usize) -> Streams {
        Streams { stores: vec![Store::default(); stores], last: vec![Last::Other; cpus] }
    }

    /// Here the replay starts.
    pub(super) fn begin(&mut self) {
        self.stores.fill(Store::default());
        self.last.fill(Last::Other);
    }

    /// Another event of a CPU than those below.
    pub(super) fn other(&mut self, fact: &Fact) {
        self.last[usize::from(fact.cpu)] = Last::Other;
    }

    pub(super) fn freed(&mut self, store: usize, fact: &Fact) {
        self.last[usize::from(fact.cpu)] = Last::Free(store, fact.time_ns);
        self.stores[store].freed += 1 << fact.order;
    }

    pub(super) fn allocated(&mut self, store: usize) {
        let store = &mut self.stores[store];
        store.freed >>= 1;
        store.halved = store.halved.saturating_add(1);
    }

    pub(super) fn drained(&mut self, store: usize, at: usize, fact: &Fact) -> Drained {
        let own = &mut self.stores[store];
        let last = &mut self.last[usize::from(fact.cpu)];
        let is_behind = |time_ns| fact.time_ns.saturating_sub(time_ns) <= DRAIN_BEHIND_FREE_NS;
        match *last {
            Last::Drain(other, time_ns) if other == store && is_behind(time_ns) => {
                *last = Last::Drain(store, fact.time_ns);
                Drained::GoesOn
            }
            Last::Free(other, time_ns)
                if other == store && is_behind(time_ns) && !own.has_drained =>
            {
                own.has_drained = true;
                *last = Last::Drain(store, fact.time_ns);
                let (freed, halved) = (own.freed, own.halved);
                Drained::First(FirstDrain { at, pages: 0, freed, halved })
            }
            _ => {
                *last = Last::Other;
                Drained::Other
            }
        }
    }
}
