//! Interrupts in the middle of the core's fast path, at each access to memory that it makes: the
//! very file of the core, `zonal_core::pcp::gated`, compiled a second time with atomics that run a
//! handler in front of an access. The handler allocates, frees or drains, and may be interrupted
//! itself, at each of its own accesses.
//!
//! On a platform that masks nothing here, a handler finds the gate taken and leaves the pcp alone.
//! On one that masks, it comes before the mask or behind it: those places are among the ones that
//! are tried.
#![allow(missing_docs, missing_debug_implementations, reason = "a model")]

/// Stands for the core's module: atomics that can be interrupted.
pub mod sync {
    pub use std::sync::atomic::Ordering;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            #[derive(Debug, Default)]
            pub struct $name(std::sync::atomic::$name);
            impl $name {
                pub fn new(value: $value) -> $name {
                    $name(std::sync::atomic::$name::new(value))
                }
                pub fn load(&self, order: Ordering) -> $value {
                    crate::interrupt();
                    self.0.load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    crate::interrupt();
                    self.0.store(value, order);
                }
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    crate::interrupt();
                    self.0.fetch_add(value, order)
                }
                pub fn fetch_update(
                    &self,
                    done: Ordering,
                    failed: Ordering,
                    next: impl Fn($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut was = self.load(failed);
                    while let Some(new) = next(was) {
                        match self.compare_exchange(was, new, done, failed) {
                            Ok(was) => return Ok(was),
                            Err(now) => was = now,
                        }
                    }
                    Err(was)
                }
                pub fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    crate::interrupt();
                    self.0.compare_exchange(old, new, done, failed)
                }
            }
        };
    }
    atomic!(AtomicU8, u8);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
}
/// Stands for the core's module.
pub mod pcp {
    pub use crate::gate::state;
    pub use crate::ready;
    pub use crate::word;
}
pub use gate::frame;

#[path = "../../zonal-core/src/frame/claim.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod claim;
#[path = "../../zonal-core/src/zone/epoch.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod epoch;
#[path = "../../zonal-core/src/pcp/gated.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod gated;
#[path = "../../zonal-core/src/pcp/ready.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod ready;
#[path = "../../zonal-core/src/pcp/word.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
pub mod word;

#[path = "support/gate.rs"]
pub mod gate;

use std::cell::{Cell, RefCell};

use gate::{Fault, Machine, assert_once};

thread_local! {
    /// How many accesses until each level of handlers comes; `None`: none does.
    static IN: Cell<[Option<u32>; 2]> = const { Cell::new([None; 2]) };
    static LEVEL: Cell<usize> = const { Cell::new(0) };
    static MACHINE: Cell<Option<&'static Machine>> = const { Cell::new(None) };
    static HANDLER: Cell<Call> = const { Cell::new(Call::Pop(0)) };
    /// What handlers got.
    static GOT: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// What is called.
#[derive(Clone, Copy, Debug)]
enum Call {
    Pop(usize),
    /// A pop, and a push of what it gave.
    Pair(usize),
    Drain,
}
const CALLS: [Call; 5] = [Call::Pop(0), Call::Pop(1), Call::Pair(0), Call::Pair(1), Call::Drain];

impl Call {
    /// The pages that the caller holds afterwards.
    fn run(self, machine: &'static Machine) -> Vec<u32> {
        match self {
            Call::Pop(list) => machine.pop(list).into_iter().collect(),
            Call::Pair(list) => {
                let page = machine.pop(list);
                page.filter(|page| !machine.push(list, *page)).into_iter().collect()
            }
            Call::Drain => machine.drain(),
        }
    }
}

/// In front of an access: a handler may come.
fn interrupt() {
    let level = LEVEL.get();
    let mut left = IN.get();
    let Some(count) = left.get_mut(level).and_then(Option::as_mut) else { return };
    let comes = *count == 0;
    if comes {
        left[level] = None;
    } else {
        *count -= 1;
    }
    IN.set(left);
    if let Some(machine) = MACHINE.get().filter(|_| comes) {
        LEVEL.set(level + 1);
        let got = HANDLER.get().run(machine);
        GOT.with_borrow_mut(|all| all.extend(got));
        LEVEL.set(level);
    }
}

/// Runs `call` with a handler in front of this access, and one in front of this access of the
/// handler. How many pages the call got, and whether each of the handlers came.
fn interrupted(call: Call, handler: Call, at: [u32; 2]) -> (usize, [bool; 2]) {
    let machine = Machine::new(Fault::Sound);
    MACHINE.set(Some(machine));
    HANDLER.set(handler);
    IN.set(at.map(Some));
    let held = call.run(machine);
    let came = IN.replace([None; 2]).map(|left| left.is_none());
    let pages = held.len();
    assert_once([held, GOT.take(), machine.rest()]);
    (pages, came)
}

/// A handler that comes and goes leaves the gate open for something else, and open it is: there are
/// pages left for whoever was interrupted.
#[test]
fn an_open_gate_is_never_found_taken() {
    for call in [Call::Pop(0), Call::Drain] {
        for handler in CALLS {
            for at in 0.. {
                let (pages, came) = interrupted(call, handler, [at, u32::MAX]);
                assert!(pages > 0, "{call:?} with {handler:?} in front of access {at}");
                if !came[0] {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_handler_at_any_access_loses_no_page_and_gets_none_twice() {
    let mut tried = 0;
    for call in CALLS {
        for handler in CALLS {
            for first in 0.. {
                let mut came = false;
                for second in 0.. {
                    let (_, both) = interrupted(call, handler, [first, second]);
                    tried += 1;
                    came |= both[0];
                    if !both[1] {
                        break;
                    }
                }
                if !came {
                    break;
                }
            }
        }
    }
    eprintln!("{tried} places");
    assert!(tried > 1000);
}
