//! What a node keeps for its background reclaimer (LB H.2): what it was asked for, whether it
//! sleeps, and how often it freed nothing. The rules are in `alloc::background`.
//!
//! # Invariants
//! - **BG-1** request and sleep are one word: a request either finds the reclaimer awake, which
//!   will test the watermarks once more before it sleeps, or asleep, and then wakes it. No request
//!   is lost between the two (`crates/zonal/tests/loom_background.rs`).

use crate::sync::{AtomicU32, Ordering, Ordering::Relaxed};
use crate::types::{Order, ZoneKind};

/// Runs that freed nothing before the node is given up (`MAX_RECLAIM_RETRIES`).
pub const FAILURES_MAX: u32 = 16;

const ORDER: u32 = 0xf;
const HIGHEST_SHIFT: u32 = 4;
const HIGHEST: u32 = 0xf << HIGHEST_SHIFT;
/// The reclaimer sleeps.
const ASLEEP: u32 = 1 << 8;
/// There is one.
const PRESENT: u32 = 1 << 9;

/// A node's record.
#[derive(Debug, Default)]
pub struct Background {
    /// The largest order asked for, the highest zone kind plus one, and two flags.
    word: AtomicU32,
    failures: AtomicU32,
}

/// Requests since the reclaimer last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The largest order.
    pub order: Order,
    /// The highest zone kind; `None` without a request.
    pub highest: Option<ZoneKind>,
}

/// The state that a request found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// No reclaimer runs for the node.
    Nobody,
    /// It is awake, and will see the request.
    Awake,
    /// It sleeps; [`Background::wake`] may wake it.
    Asleep,
}

impl Wanted {
    /// Both requests in one.
    pub fn and(self, other: Wanted) -> Wanted {
        Wanted { order: self.order.max(other.order), highest: self.highest.max(other.highest) }
    }

    fn bits(self) -> u32 {
        let highest = self.highest.map_or(0, |kind| kind.index() as u32 + 1);
        self.order.get() | highest << HIGHEST_SHIFT
    }

    fn of(word: u32) -> Wanted {
        let highest = (word & HIGHEST) >> HIGHEST_SHIFT;
        Wanted {
            order: Order::new(word & ORDER).unwrap_or_default(),
            highest: highest.checked_sub(1).map(|index| ZoneKind::ALL[index as usize]),
        }
    }
}

impl Background {
    /// Changes the word; returns it as it was.
    fn change(&self, new: impl Fn(u32) -> u32) -> u32 {
        // AcqRel and Acquire: each pairs with the others and with the one in `look`, so that the
        // free counters that made a thread ask or sleep are seen by the next one here (BG-1).
        let before =
            self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(new(word)));
        before.unwrap_or_else(|word| word)
    }

    fn look(&self) -> u32 {
        // Acquire: pairs with the AcqRel in `change`.
        self.word.load(Ordering::Acquire)
    }

    /// Asks for these pages too.
    pub fn request(&self, wanted: Wanted) -> Found {
        let wanted = wanted.bits();
        // The larger one of both orders, and of both kinds.
        let part = |word: u32, mask: u32| (word & mask).max(wanted & mask);
        let both = |word: u32| part(word, ORDER) | part(word, HIGHEST);
        let before = self.change(|word| word & (ASLEEP | PRESENT) | both(word));
        match before {
            _ if before & PRESENT == 0 => Found::Nobody,
            _ if before & ASLEEP == 0 => Found::Awake,
            _ => Found::Asleep,
        }
    }

    /// Ends the sleep. `true` for the one thread that must wake the reclaimer.
    pub fn wake(&self) -> bool {
        self.change(|word| word & !ASLEEP) & ASLEEP != 0
    }

    /// The reclaimer goes to sleep; it must look at the watermarks after this, and before it
    /// sleeps.
    pub fn lie_down(&self) {
        self.change(|word| word | ASLEEP);
    }

    /// Whether the sleep goes on.
    pub fn is_asleep(&self) -> bool {
        self.look() & ASLEEP != 0
    }

    /// Whether there is a reclaimer, and it does not sleep.
    pub fn is_awake(&self) -> bool {
        self.look() & (PRESENT | ASLEEP) == PRESENT
    }

    /// Sets whether there is a reclaimer.
    pub fn set_present(&self, present: bool) {
        let bit = if present { PRESENT } else { 0 };
        self.change(|word| word & !(PRESENT | ASLEEP) | bit);
    }

    /// Whether there is a reclaimer.
    pub fn is_present(&self) -> bool {
        self.look() & PRESENT != 0
    }

    /// The request.
    pub fn wanted(&self) -> Wanted {
        Wanted::of(self.look())
    }

    /// Takes the request.
    pub fn take(&self) -> Wanted {
        Wanted::of(self.change(|word| word & (ASLEEP | PRESENT)))
    }

    /// Runs in a row that freed nothing.
    pub fn failures(&self) -> u32 {
        // Relaxed: a single value.
        self.failures.load(Relaxed)
    }

    /// Whether the reclaimer has given up after fruitless runs and is no longer woken.
    pub fn is_hopeless(&self) -> bool {
        self.failures() >= FAILURES_MAX
    }

    /// Sets the number of fruitless runs.
    pub fn set_failures(&self, runs: u32) {
        self.failures.store(runs, Relaxed);
    }
}
