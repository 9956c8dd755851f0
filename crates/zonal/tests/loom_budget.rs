//! A zone's budget under every interleaving: the very file of the core, `zonal_core::zone::budget`,
//! compiled a second time with loom's atomics in place of the machine's.
//!
//! The canary books in two steps and must be found: else the model proves nothing. It runs in a
//! process of its own, because loom cannot always unwind.

/// Stands for the core's `sync`.
pub mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
}

/// Stands for the core's `types`.
pub mod types {
    pub use zonal_core::types::PageCount;
}

#[path = "../../zonal-core/src/zone/budget.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod budget;
mod support;

use std::sync::Arc;

use budget::Budget;
use support::interleavings;
use sync::AtomicU32;
use sync::Ordering::Relaxed;
use types::PageCount;

const LIMIT: u32 = 5;
/// What the depots have of it.
const DEPOTS: u32 = 1;

/// A booking that looks first and books then.
fn take_in_two_steps(budget: &Budget, pages: PageCount) -> PageCount {
    let got = pages.min(budget.limit().saturating_sub(budget.reserved()));
    budget.force(got);
    got
}

/// Stores ask for more than there is, hold it, and give it back in parts: together they never hold
/// more than the limit (BUDGET-1), and in the end all is there. Returns how many interleavings
/// there were.
fn explore(take: fn(&Budget, PageCount) -> PageCount) -> u64 {
    let interleavings = interleavings::explore(Some(3), move || {
        let budget = Arc::new(Budget::default());
        budget.set_up(PageCount::new(LIMIT), PageCount::new(DEPOTS));
        let held = Arc::new(AtomicU32::new(0));
        let store = |wants: [u32; 2]| {
            let (budget, held) = (Arc::clone(&budget), Arc::clone(&held));
            move || {
                for want in wants {
                    let got = take(&budget, PageCount::new(want)).get();
                    assert!(got <= want);
                    let before = held.fetch_add(got, Relaxed);
                    assert!(before + got + DEPOTS <= LIMIT, "more is granted than there is");
                    held.fetch_sub(got, Relaxed);
                    budget.give(PageCount::new(got / 2));
                    budget.give(PageCount::new(got - got / 2));
                }
            }
        };
        let other = loom::thread::spawn(store([3, 2]));
        store([4, 1])();
        other.join().unwrap();
        assert_eq!(budget.reserved().get(), DEPOTS);
        assert_eq!(take(&budget, PageCount::MAX).get(), LIMIT - DEPOTS);
        assert!(budget.is_short(PageCount::new(1)));
    });
    eprintln!("{interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    if interleavings::canary().is_some() {
        explore(take_in_two_steps);
    }
}

#[test]
fn pcps_are_never_granted_more_than_the_budget() {
    assert!(explore(Budget::take) > 100);
}

#[test]
fn a_booking_in_two_steps_is_found() {
    assert!(interleavings::is_found("in two steps"));
}
