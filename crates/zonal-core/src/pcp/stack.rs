//! Stacks of numbered items that any thread may push to and pop from, without a lock.
//!
//! ```text
//!  head   | version 32 | item + 1 |        link of an item: the item below it + 1
//!              +1 each change  0: empty             0: the last one
//! ```
//! A change is one compare-and-exchange of the head. A thread that is preempted between reading a
//! link and its exchange blocks no other, and its exchange fails: the version has changed.
//!
//! # Invariants
//! - **STACK-1** an item is on at most one stack; between a pop and the next push only the popper
//!   owns it and the memory it stands for.
//! - **STACK-2** the version of a head grows by one with each push and pop, so a head that comes
//!   back to the same item is another value. It repeats after 2^32 changes, which would all have to
//!   fall into one preemption.
//!
//! It does not depend on magazines and depots, so that the interleaving model
//! (crates/zonal/tests/loom_depot.rs) compiles this very file with its own atomics.

use crate::sync::{AtomicU64, Ordering, Ordering::Relaxed};

const VERSION: u64 = 1 << 32;
const ITEM: u64 = VERSION - 1;

/// Puts `item` on top. `link` stores the item below it.
#[inline]
pub fn push(head: &AtomicU64, item: u32, link: impl Fn(u32)) {
    let mut old = head.load(Relaxed);
    loop {
        link((old & ITEM) as u32);
        let new = (old & !ITEM).wrapping_add(VERSION) | (u64::from(item) + 1);
        // Release: pairs with the Acquire in `pop`; the popper sees the item's memory.
        match head.compare_exchange_weak(old, new, Ordering::Release, Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// Takes the item on top. `link` reads the item below it; for an item that another thread took
/// meanwhile it may read any value.
#[inline]
pub fn pop(head: &AtomicU64, link: impl Fn(u32) -> u32) -> Option<u32> {
    // Acquire: pairs with the Release in `push`, through the exchanges of others in between.
    let mut old = head.load(Ordering::Acquire);
    loop {
        let item = ((old & ITEM) as u32).checked_sub(1)?;
        let new = (old & !ITEM).wrapping_add(VERSION) | u64::from(link(item));
        // Acquire, both: each pairs with the Release in `push`, as above.
        match head.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(item),
            Err(now) => old = now,
        }
    }
}

/// The item on top at this moment.
pub fn top(head: &AtomicU64) -> Option<u32> {
    ((head.load(Relaxed) & ITEM) as u32).checked_sub(1)
}

/// How often the stack was changed, modulo 2^32 (STACK-2).
pub fn changes(head: &AtomicU64) -> u64 {
    head.load(Relaxed) >> 32
}
