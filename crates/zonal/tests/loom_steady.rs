//! A reader who counts the free pages while others move them, under every interleaving with few
//! preemptions: the very file of the core, `zonal_core::zone::steady`, with places of loom's.
//!
//! A zone has two CPUs' lists behind gates, a depot and a buddy behind a lock. Who moves a page
//! does each step of it as the core does (`pcp_ops/depot.rs`, `pcp_ops/drain.rs`,
//! `zone_ops/depot.rs`). The canaries leave out something of the reader or of the movers, and must
//! be found.

#[path = "../../zonal-core/src/zone/steady.rs"]
#[allow(unreachable_pub, reason = "the core uses it so")]
mod steady;
mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as StdU64, Ordering::Relaxed as StdRelaxed};

use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use steady::{Moves, Places};
use support::interleavings::{assert_each_is_found, explore, fault_of_child};

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Sound,
    /// The reader takes no gates.
    NoGates,
    /// It does not look how often the zone lock was taken.
    NoHolds,
    /// It does not look how often the depot changed.
    NoChanges,
    /// It looks how often the depot changed before it reads the depot's pages.
    ChangesFirst,
    /// Who reserves an array counts its pages before the array is gone.
    PagesFirst,
}

const FAULTS: [Fault; 5] =
    [Fault::NoGates, Fault::NoHolds, Fault::NoChanges, Fault::ChangesFirst, Fault::PagesFirst];

/// Pages at the start: on each list, in the depot, in the buddy.
const EACH: u32 = 2;
const ALL: u64 = 4 * EACH as u64;

struct Zone {
    fault: Fault,
    gates: [AtomicU32; 2],
    lists: [AtomicU32; 2],
    /// Changes of both stacks: reserved, put, taken, emptied.
    arrays: AtomicU64,
    depot: AtomicU32,
    holds: AtomicU64,
    buddy: Mutex<u32>,
}

/// A move of one page.
#[derive(Clone, Copy, Debug)]
enum Move {
    Put(usize),
    Take(usize),
    Drain(usize),
    Refill(usize),
    /// From the depot to the buddy.
    Empty,
}

impl Zone {
    fn new(fault: Fault) -> Zone {
        Zone {
            fault,
            gates: std::array::from_fn(|_| AtomicU32::new(0)),
            lists: std::array::from_fn(|_| AtomicU32::new(EACH)),
            arrays: AtomicU64::new(0),
            depot: AtomicU32::new(EACH),
            holds: AtomicU64::new(0),
            buddy: Mutex::new(EACH),
        }
    }

    fn take_gate(&self, cpu: usize) -> bool {
        self.gates[cpu].compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    fn open(&self, cpu: usize) {
        self.gates[cpu].store(0, Release);
    }
    fn add(&self, cpu: usize, pages: i32) {
        let list = &self.lists[cpu];
        list.store(list.load(Relaxed).wrapping_add_signed(pages), Relaxed);
    }
    fn change(&self) {
        self.arrays.fetch_add(1, AcqRel);
    }
    fn locked<R>(&self, work: impl FnOnce(&mut u32) -> R) -> R {
        let mut buddy = self.buddy.lock().unwrap();
        self.holds.store(self.holds.load(Relaxed) + 1, Relaxed);
        work(&mut buddy)
    }
    fn lower(&self) {
        self.depot.fetch_sub(1, Release);
    }

    /// One page goes on, unless somebody else has the gate.
    fn go(&self, step: Move) {
        match step {
            Move::Empty => self.empty(),
            Move::Put(cpu) | Move::Take(cpu) | Move::Drain(cpu) | Move::Refill(cpu) => {
                if self.take_gate(cpu) {
                    self.go_closed(step);
                    self.open(cpu);
                }
            }
        }
    }

    fn go_closed(&self, step: Move) {
        match step {
            Move::Put(cpu) => {
                if self.fault == Fault::PagesFirst {
                    self.depot.fetch_add(1, Release);
                    self.change();
                } else {
                    self.change();
                    self.depot.fetch_add(1, Release);
                }
                self.add(cpu, -1);
                self.change();
            }
            Move::Take(cpu) => {
                self.change();
                self.add(cpu, 1);
                self.change();
                self.lower();
            }
            Move::Drain(cpu) => self.locked(|buddy| {
                *buddy += 1;
                self.add(cpu, -1);
            }),
            // Blocks are split with the lock free.
            Move::Refill(cpu) => {
                self.locked(|buddy| *buddy -= 1);
                self.add(cpu, 1);
            }
            Move::Empty => {}
        }
    }

    fn empty(&self) {
        self.locked(|buddy| {
            self.change();
            *buddy += 1;
            self.change();
            self.lower();
        });
    }
}

struct Reader<'z> {
    zone: &'z Zone,
    /// What it saw first.
    first: Cell<Moves>,
}

impl Reader<'_> {
    fn moves(&self) -> Moves {
        let zone = self.zone;
        Moves { holds: zone.holds.load(Relaxed), changes: zone.arrays.load(Relaxed) }
    }
}

impl Places for Reader<'_> {
    fn before(&self) -> Moves {
        self.first.set(self.moves());
        self.first.get()
    }

    fn lists(&self) -> (u64, bool) {
        let mut sum = 0;
        for cpu in 0..2 {
            let gated = self.zone.fault != Fault::NoGates;
            if gated && !self.zone.take_gate(cpu) {
                return (sum, false);
            }
            sum += u64::from(self.zone.lists[cpu].load(Relaxed));
            if gated {
                self.zone.open(cpu);
            }
        }
        (sum, true)
    }

    fn locked(&self) -> (u64, Moves) {
        let (zone, first) = (self.zone, self.first.get());
        zone.locked(|buddy| {
            let early = self.moves();
            let depot = zone.depot.load(Acquire);
            let mut now = if zone.fault == Fault::ChangesFirst { early } else { self.moves() };
            now.holds -= 1;
            match zone.fault {
                Fault::NoHolds => now.holds = first.holds,
                Fault::NoChanges => now.changes = first.changes,
                _ => {}
            }
            (u64::from(*buddy + depot), now)
        })
    }

    fn relax(&self) {
        loom::thread::yield_now();
    }
}

/// The moves of two threads.
type Scene = [&'static [Move]; 2];

const SCENES: [Scene; 5] = [
    [&[Move::Put(0)], &[Move::Take(1)]],
    [&[Move::Drain(0)], &[Move::Refill(1)]],
    [&[Move::Put(0)], &[Move::Empty]],
    [&[Move::Take(0)], &[Move::Empty]],
    [&[Move::Drain(1)], &[Move::Refill(0)]],
];

/// Where loom can find a fault.
fn scenes(fault: Fault) -> &'static [Scene] {
    match fault {
        Fault::Sound => &SCENES,
        Fault::NoHolds => &SCENES[1..2],
        _ => &SCENES[..1],
    }
}

/// Returns how many counts were exact.
fn play(fault: Fault) -> u64 {
    let exact = Arc::new(StdU64::new(0));
    for scene in scenes(fault) {
        let seen = Arc::clone(&exact);
        let orders = explore(Some(3), move || {
            let zone = Arc::new(Zone::new(fault));
            let movers = scene.map(|moves: &[Move]| {
                let zone = Arc::clone(&zone);
                loom::thread::spawn(move || moves.iter().for_each(|step| zone.go(*step)))
            });
            let first = || Cell::new(Moves { holds: 0, changes: 0 });
            let count = |zone: &Zone| steady::count(&Reader { zone, first: first() });
            let (pages, is_exact) = count(&zone);
            if is_exact {
                assert_eq!(pages, ALL, "{scene:?}");
                seen.fetch_add(1, StdRelaxed);
            }
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            assert_eq!(count(&zone), (ALL, true));
        });
        eprintln!("{scene:?}: {orders} interleavings");
    }
    exact.load(StdRelaxed)
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    if let Some(fault) = fault_of_child(Fault::Sound, &FAULTS) {
        play(fault);
    }
}

#[test]
fn a_page_that_moves_is_counted_once() {
    assert!(play(Fault::Sound) > 100, "hardly a count was exact");
}

#[test]
fn what_the_count_needs_is_found_missing() {
    assert_each_is_found(Fault::Sound, &FAULTS);
}
