//! The bits against a buddy of a pageblock in plain sets; an owner's lists against all pageblocks.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;
use std::vec::Vec;

use super::owner::{Bits, ORDERS, OwnedBlock, Owner, WORDS, free_blocks, largest, set, smallest};
use crate::sync::{Ordering::Relaxed, Spin};
use crate::types::{Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};

const MT: Migratetype = Migratetype::Movable;
const PAGES: u32 = PAGEBLOCK_PAGES as u32;

/// A buddy of one pageblock as a textbook has it: sets of free blocks by order, split and merged
/// one step at a time.
#[derive(Default)]
struct Textbook {
    free: [BTreeSet<u32>; ORDERS],
}

impl Textbook {
    fn whole() -> Textbook {
        let mut book = Textbook::default();
        book.free[ORDERS - 1].insert(0);
        book
    }
    fn take(&mut self, order: u32) -> Option<u32> {
        let from = (order as usize..ORDERS).find(|size| !self.free[*size].is_empty())?;
        let page = self.free[from].pop_first()?;
        for size in order as usize..from {
            self.free[size].insert(page + (1 << size));
        }
        Some(page)
    }
    fn put(&mut self, mut page: u32, mut order: u32) {
        while order < ORDERS as u32 - 1 && self.free[order as usize].remove(&(page ^ 1 << order)) {
            page &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(page);
    }
    fn largest(&self) -> Option<u32> {
        (0..ORDERS).rev().find(|size| !self.free[*size].is_empty()).map(|size| size as u32)
    }
    fn blocks(&self) -> Vec<(u32, u32)> {
        let sizes = self.free.iter().enumerate().rev();
        sizes.flat_map(|(size, pages)| pages.iter().map(move |page| (*page, size as u32))).collect()
    }
}

proptest! {
    /// Bits are a buddy: the same block for each request, the same blocks in the end.
    #[test]
    fn bits_split_and_merge_as_a_buddy_does(
        steps in vec((any::<bool>(), 0..9u32, any::<Index>()), 1..300),
    ) {
        let (mut bits, mut book): (Bits, _) = ([u64::MAX; WORDS], Textbook::whole());
        let mut held = Vec::new();
        for (takes, order, which) in steps {
            if takes || held.is_empty() {
                let page = smallest(&bits, order);
                prop_assert_eq!(page, book.take(order));
                if let Some(page) = page {
                    set(&mut bits, page, order, false);
                    held.push((page, order));
                }
            } else {
                let (page, order) = held.swap_remove(which.index(held.len()));
                set(&mut bits, page, order, true);
                book.put(page, order);
            }
            prop_assert_eq!(largest(&bits), book.largest());
        }
        let found: Vec<_> = free_blocks(bits).map(|(page, order)| (page, order.get())).collect();
        prop_assert_eq!(found, book.blocks());
    }

    /// Two owners take, free, adopt and release pageblocks: no page has two users, and lists and
    /// counts are those of the pageblocks (OWNER-2, OWNER-3).
    #[test]
    fn an_owners_lists_are_those_of_its_pageblocks(
        steps in vec((0..6u8, 0..2usize, 0..9u32, any::<Index>()), 1..400),
    ) {
        let of: Vec<OwnedBlock> = (0..6).map(|_| OwnedBlock::default()).collect();
        let owners = [Owner::default(), Owner::default()];
        let mut held: Vec<(u32, u32, u32)> = Vec::new();
        for (what, who, order, which) in steps {
            let order = Order::new(order).unwrap();
            let mut one = owners[who].lock(&Spin);
            match what {
                0 => {
                    let nobodys = of.iter().position(|block| block.owner().is_none());
                    let used = |at: u32| held.iter().any(|(block, ..)| *block == at);
                    if let Some(at) = nobodys.map(|at| at as u32).filter(|at| !used(*at)) {
                        one.lists.adopt(&of, at, who as u32, MT);
                        one.lists.put(&of, (at, 0), PAGEBLOCK_ORDER);
                    }
                }
                1 => {
                    if let Some(at) = one.lists.emptiest() {
                        let before = of[at as usize].pages();
                        let bits = one.lists.release(&of, at);
                        let pages = bits.iter().map(|word| word.count_ones()).sum::<u32>();
                        prop_assert_eq!(pages, before);
                        // Pages that are held are freed elsewhere.
                        held.retain(|(block, ..)| *block != at);
                    }
                }
                2 | 3 => {
                    if let Some((at, page)) = one.lists.take(&of, order, MT) {
                        prop_assert_eq!(of[at as usize].owner(), Some(who as u32));
                        let end = page + order.pages() as u32;
                        prop_assert!(page % order.pages() as u32 == 0 && end <= PAGES);
                        let apart = |(block, first, pages): &(u32, u32, u32)| {
                            *block != at || first + pages <= page || end <= *first
                        };
                        prop_assert!(held.iter().all(apart), "a page with two users");
                        held.push((at, page, order.pages() as u32));
                    }
                }
                _ if !held.is_empty() => {
                    let (at, page, pages) = held.swap_remove(which.index(held.len()));
                    // To the owner, whoever frees.
                    let owner = of[at as usize].owner().unwrap();
                    drop(one);
                    one = owners[owner as usize].lock(&Spin);
                    one.lists.put(&of, (at, page), Order::new(pages.ilog2()).unwrap());
                }
                _ => {}
            }
            drop(one);
            prop_assert!(of.iter().all(OwnedBlock::is_right), "OWNER-5");
            for (number, owner) in owners.iter().enumerate() {
                let one = owner.lock(&Spin);
                let own = || of.iter().filter(|block| block.owner() == Some(number as u32));
                let listed = own().filter(|block| block.pages() > 0).count() as u32;
                prop_assert_eq!(one.lists.validate(&of, number as u32), Ok(listed));
                prop_assert_eq!(one.lists.blocks, own().count() as u32);
            }
        }
    }
}

#[test]
fn a_request_takes_from_the_pageblock_that_has_the_least() {
    let of: Vec<OwnedBlock> = (0..2).map(|_| OwnedBlock::default()).collect();
    let owner = Owner::default();
    let mut one = owner.lock(&Spin);
    for at in 0..2 {
        one.lists.adopt(&of, at, 0, MT);
    }
    one.lists.put(&of, (0, 0), PAGEBLOCK_ORDER);
    one.lists.put(&of, (1, 64), Order::new(3).unwrap());
    assert_eq!(one.lists.take(&of, Order::new(2).unwrap(), MT), Some((1, 64)));
    assert_eq!(one.lists.take(&of, Order::new(3).unwrap(), MT), Some((0, 0)));
    assert_eq!(one.lists.take(&of, Order::ZERO, Migratetype::Unmovable), None);
    drop(one);
    assert_eq!((owner.free(), owner.blocks()), (512 - 8 + 4, 2));
}

#[test]
fn a_wrong_list_is_found() {
    let of: Vec<OwnedBlock> = (0..3).map(|_| OwnedBlock::default()).collect();
    let owner = Owner::default();
    let mut one = owner.lock(&Spin);
    for at in 0..3 {
        one.lists.adopt(&of, at, 7, MT);
        one.lists.put(&of, (at, 8 * at), Order::new(at).unwrap());
    }
    assert_eq!(one.lists.validate(&of, 7), Ok(3));
    // A bit that no free set.
    of[1].free[3].store(1, Relaxed);
    assert!(one.lists.validate(&of, 7).is_err());
    of[1].free[3].store(0, Relaxed);
    // A word that is not said to be free in part.
    let shape = of[1].shape.swap(0, Relaxed);
    assert!(one.lists.validate(&of, 7).is_err());
    of[1].shape.store(shape, Relaxed);
    assert_eq!(one.lists.validate(&of, 7), Ok(3));
    // A pageblock that is on the list of another size.
    of[0].free[1].store(0xff, Relaxed);
    assert!(one.lists.validate(&of, 7).is_err());
    of[0].free[1].store(0, Relaxed);
    // A ring.
    of[2].next.store(3, Relaxed);
    assert!(one.lists.validate(&of, 7).is_err());
}
