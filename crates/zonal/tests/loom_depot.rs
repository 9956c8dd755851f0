//! The stacks of a depot under every interleaving: the very file of the core,
//! `zonal_core::pcp::stack`, compiled a second time with loom's atomics in place of the machine's.
//!
//! Items stand for arrays: who has popped one may write to its cell, and loom reports two who do
//! so at once, or one who reads what another wrote without being ordered behind it.
//!
//! The canaries leave out a rule of the stacks and must be found: else the model proves nothing.
//! Each runs in a process of its own, because loom cannot always unwind.

/// Stands for the core's `sync`.
pub mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../../zonal-core/src/pcp/stack.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod stack;
mod support;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use support::interleavings::{self, is_found};
use sync::AtomicU64;
use sync::Ordering::{Acquire, Relaxed, Release};

const ITEMS: usize = 2;
const ITEM: u64 = (1 << 32) - 1;

/// What is left out.
const SOUND: u32 = 0;
/// Heads have no version: one that comes back to the same item is the same value (STACK-2).
const NO_VERSION: u32 = 1;
/// A push does not publish what the item stands for.
const NO_RELEASE: u32 = 2;

/// A depot of one list: arrays are empty or full, and each has room for one number.
struct Depot<const FAULT: u32> {
    empty: AtomicU64,
    full: AtomicU64,
    links: [AtomicU32; ITEMS],
    arrays: [UnsafeCell<u32>; ITEMS],
}

// SAFETY: (1) a cell is used by who has popped its item (STACK-1); loom checks each use.
unsafe impl<const FAULT: u32> Sync for Depot<FAULT> {}

impl<const FAULT: u32> Depot<FAULT> {
    fn new() -> Depot<FAULT> {
        let depot = Depot {
            empty: AtomicU64::new(0),
            full: AtomicU64::new(0),
            links: std::array::from_fn(|_| AtomicU32::new(0)),
            arrays: std::array::from_fn(|_| UnsafeCell::new(0)),
        };
        (0..ITEMS as u32).for_each(|item| depot.push(&depot.empty, item));
        depot
    }

    fn push(&self, head: &AtomicU64, item: u32) {
        let link = |below| self.links[item as usize].store(below, Relaxed);
        if FAULT == SOUND {
            return stack::push(head, item, link);
        }
        let mut old = head.load(Relaxed);
        let version = if FAULT == NO_VERSION { 0 } else { 1 << 32 };
        let order = if FAULT == NO_RELEASE { Relaxed } else { Release };
        loop {
            link((old & ITEM) as u32);
            let new = (old & !ITEM).wrapping_add(version) | (u64::from(item) + 1);
            match head.compare_exchange(old, new, order, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    fn pop(&self, head: &AtomicU64) -> Option<u32> {
        let link = |item: u32| self.links[item as usize].load(Relaxed);
        if FAULT == SOUND {
            return stack::pop(head, link);
        }
        let mut old = head.load(Acquire);
        let version = if FAULT == NO_VERSION { 0 } else { 1 << 32 };
        loop {
            let item = ((old & ITEM) as u32).checked_sub(1)?;
            let new = (old & !ITEM).wrapping_add(version) | u64::from(link(item));
            match head.compare_exchange(old, new, Acquire, Acquire) {
                Ok(_) => return Some(item),
                Err(now) => old = now,
            }
        }
    }

    /// Leaves a page, if there is room.
    fn put(&self, page: u32) -> bool {
        let Some(item) = self.pop(&self.empty) else { return false };
        // SAFETY: (1) the item is this thread's alone (STACK-1), which is what loom checks here.
        self.arrays[item as usize].with_mut(|array| unsafe { *array = page });
        self.push(&self.full, item);
        true
    }

    /// Takes a page.
    fn take(&self) -> Option<u32> {
        let item = self.pop(&self.full)?;
        // SAFETY: (1) as in `put`.
        let page = self.arrays[item as usize].with(|array| unsafe { *array });
        self.push(&self.empty, item);
        Some(page)
    }
}

/// Each thread leaves a page, takes one and leaves it again, as often as it says: no page is lost
/// or there twice. Returns how many interleavings there were.
fn explore<const FAULT: u32>(rounds: usize, preemptions: usize) -> u64 {
    let interleavings = interleavings::explore(Some(preemptions), move || {
        let depot = Arc::new(Depot::<FAULT>::new());
        assert!(depot.put(1) && depot.put(2));
        let run = |depot: Arc<Depot<FAULT>>| {
            move || {
                let mut held = Vec::new();
                for _ in 0..rounds {
                    held.extend(depot.take());
                    if let Some(page) = held.pop().filter(|page| !depot.put(*page)) {
                        held.push(page);
                    }
                }
                held.extend(depot.take());
                held
            }
        };
        let other = loom::thread::spawn(run(Arc::clone(&depot)));
        let mut pages = run(Arc::clone(&depot))();
        pages.extend(other.join().unwrap());
        pages.extend(std::iter::from_fn(|| depot.take()));
        pages.sort_unstable();
        assert_eq!(pages, [1, 2]);
        let arrays = std::iter::from_fn(|| depot.pop(&depot.empty)).count();
        assert_eq!(arrays, ITEMS, "every array is on a stack");
    });
    eprintln!("{rounds} rounds: {interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    match interleavings::canary().and_then(|fault| fault.parse().ok()) {
        Some(SOUND) => explore::<SOUND>(1, 3),
        Some(NO_VERSION) => explore::<NO_VERSION>(1, 3),
        Some(NO_RELEASE) => explore::<NO_RELEASE>(1, 3),
        _ => return,
    };
}

#[test]
fn batches_are_never_lost_and_never_two_threads() {
    assert!(explore::<SOUND>(1, 3) > 100);
}

#[test]
fn a_head_without_a_version_is_found() {
    assert!(!is_found(SOUND));
    assert!(is_found(NO_VERSION));
}

#[test]
fn a_push_that_publishes_nothing_is_found() {
    assert!(is_found(NO_RELEASE));
}
