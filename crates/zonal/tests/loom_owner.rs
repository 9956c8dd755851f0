//! Frees to the owner of a pageblock while the pageblock goes back to its zone and another CPU
//! claims it, under every interleaving: the very files of the core, `zonal_core::pcp::owner` and
//! `zonal_core::sync`, compiled a second time with loom's atomics.
//!
//! The canary does one thing otherwise and must be found: else the model proves nothing. It runs in
//! a process of its own, because loom cannot always unwind.

/// Makes `core::...` in those files mean the modules below; macros have their own way to the real
/// one.
extern crate self as core;

/// Stands for `core::array`.
pub mod array {
    pub use std::array::from_fn;
}
/// Stands for `core::cell`.
pub mod cell {
    pub use std::cell::UnsafeCell;
}
/// Stands for `core::hint`.
pub mod hint {
    /// Nothing: the model's scheduler goes elsewhere at every access anyway.
    pub fn spin_loop() {}
}
/// Stands for `core::iter`.
pub mod iter {
    pub use std::iter::from_fn;
}
/// Stands for `core::marker`.
pub mod marker {
    pub use std::marker::PhantomData;
}
/// Stands for `core::mem`.
pub mod mem {
    pub use std::mem::replace;
}
/// Stands for `core::ops`.
pub mod ops {
    pub use std::ops::{Deref, DerefMut};
}
/// Stands for `core::sync`, and for the core's `sync`.
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the core uses all of it")]
pub mod sync {
    /// Loom's atomics, under the names that the core uses.
    pub mod atomic {
        pub use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
    }
    pub use crate::file::*;
}
#[path = "../../zonal-core/src/sync.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the core uses all of it")]
mod file;
/// Stands for the core's `types`.
pub mod types {
    pub use zonal_core::types::{
        Migratetype, NR_MIGRATETYPES, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES,
    };
    /// The enum without its names.
    macro_rules! choice {
        (
            $(#[$meta:meta])*
            pub enum $kind:ident { $( $(#[$of:meta])* $value:ident = $name:literal ),+ $(,)? }
        ) => {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug)]
            pub enum $kind { $( $(#[$of])* $value ),+ }
        };
    }
    pub(crate) use choice;
}

#[path = "../../zonal-core/src/pcp/owner.rs"]
#[allow(dead_code, unreachable_pub, reason = "the core uses all of it")]
mod owner;
mod support;

use std::sync::Arc;

use owner::{OwnedBlock, Owner, lock_owner_of};
use support::interleavings::{self, is_found};
use sync::{Lock, LockWord, Wait};
use types::{Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};

const MT: Migratetype = Migratetype::Movable;

/// What is done otherwise.
const SOUND: u32 = 0;
/// A free takes the owner that it has seen for the owner.
const DOES_NOT_LOOK_AGAIN: u32 = 1;

/// Gives the processor away.
struct Yield;

impl Wait for Yield {
    const SPINS: u32 = 1;
    fn wait(&self, _word: &LockWord, _value: u32) {
        loom::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

/// A zone of one pageblock and two CPUs. The zone's lock protects the pages that it has.
struct Zone<const FAULT: u32> {
    pages: Lock<u32>,
    owners: [Owner; 2],
    blocks: [OwnedBlock; 1],
}

impl<const FAULT: u32> Zone<FAULT> {
    /// Takes a page: `None` if neither the CPU's own pageblock nor the zone has one.
    fn take(&self, cpu: usize) -> Option<u32> {
        let mut own = self.owners[cpu].lock(&Yield);
        own.lists.take(&self.blocks, Order::ZERO, MT).map(|(_, page)| page)
    }

    /// As `free_owned`, and to the zone if nobody owns the pageblock.
    fn free(&self, page: u32) {
        let lock = |owner: u32| Some(self.owners[owner as usize].lock(&Yield));
        let held = match FAULT {
            DOES_NOT_LOOK_AGAIN => self.blocks[0].owner().and_then(lock),
            _ => lock_owner_of(&self.blocks[0], lock).map(|(held, _)| held),
        };
        match held {
            Some(mut held) => held.lists.put(&self.blocks, (0, page), Order::ZERO),
            None => *self.pages.lock(&Yield) += 1,
        }
    }

    /// As `give_back`.
    fn give_back(&self, cpu: usize) {
        let mut pages = self.pages.lock(&Yield);
        let mut own = self.owners[cpu].lock(&Yield);
        let Some(at) = own.lists.emptiest() else { return };
        let bits = own.lists.release(&self.blocks, at);
        *pages += bits.iter().map(|word| word.count_ones()).sum::<u32>();
    }

    /// As `claim`, of the whole pageblock.
    fn claim(&self, cpu: usize) {
        let mut pages = self.pages.lock(&Yield);
        if *pages < PAGEBLOCK_PAGES as u32 || self.blocks[0].owner().is_some() {
            return;
        }
        *pages -= PAGEBLOCK_PAGES as u32;
        let mut own = self.owners[cpu].lock(&Yield);
        own.lists.adopt(&self.blocks, 0, cpu as u32, MT);
        own.lists.put(&self.blocks, (0, 0), PAGEBLOCK_ORDER);
    }
}

/// CPU 1 frees a page of CPU 0's pageblock while that goes back and, if all of it is there, becomes
/// CPU 1's: every page is free once, and who says it has some has them. Returns how many
/// interleavings there were.
fn explore<const FAULT: u32>() -> u64 {
    let interleavings = interleavings::explore(Some(2), move || {
        let zone = Arc::new(Zone::<FAULT> {
            pages: Lock::new(PAGEBLOCK_PAGES as u32),
            owners: [Owner::default(), Owner::default()],
            blocks: [OwnedBlock::default()],
        });
        zone.claim(0);
        let page = zone.take(0).unwrap();
        let other = {
            let zone = Arc::clone(&zone);
            loom::thread::spawn(move || zone.free(page))
        };
        zone.give_back(0);
        zone.claim(1);
        other.join().unwrap();
        let owned = zone.blocks[0].pages();
        let counted = zone.owners.iter().map(Owner::free).sum::<u32>();
        let pages = *zone.pages.lock(&Yield);
        assert_eq!(owned, counted, "an owner counts what is not its");
        assert_eq!(pages + owned, PAGEBLOCK_PAGES as u32, "a page is lost");
        assert!(zone.blocks[0].owner().is_some() || owned == 0, "free pages of nobody (OWNER-1)");
        for (number, owner) in zone.owners.iter().enumerate() {
            owner.lock(&Yield).lists.validate(&zone.blocks, number as u32).unwrap();
        }
    });
    eprintln!("{interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    match interleavings::canary().and_then(|fault| fault.parse().ok()) {
        Some(SOUND) => explore::<SOUND>(),
        Some(DOES_NOT_LOOK_AGAIN) => explore::<DOES_NOT_LOOK_AGAIN>(),
        _ => return,
    };
}

#[test]
fn a_page_is_freed_to_its_owner_or_to_the_zone_whatever_becomes_of_its_pageblock() {
    assert!(explore::<SOUND>() > 50);
}

#[test]
fn a_free_that_does_not_look_again_is_found() {
    assert!(!is_found(SOUND));
    assert!(is_found(DOES_NOT_LOOK_AGAIN));
}
