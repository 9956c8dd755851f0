//! Pageblocks owned by CPUs (`pcp.pageblocks=owned`): what an RFC of April 2026 proposes for Linux,
//! built from its description.
//!
//! ```text
//!  CPU 3's owner of a zone, under its lock         per pageblock of the zone
//!   lists[9][type] ──► 17 ──► 40                   17: owner 3, free 1111...1111
//!   lists[2][type] ──► 21                          21: owner 3, free 0100...1111
//!                                                  22: owner -,  its free pages are the buddy's
//! ```
//! A CPU claims a whole pageblock from its zone and serves requests of every order below 9 from it
//! under a lock of its own. A free goes to the owner of the pageblock, whichever CPU frees. The
//! free pages of an owned pageblock are bits: a free aligned run *is* a block, so nothing is merged
//! or split by hand. An owner lists its pageblocks by the largest block that each still has, and a
//! request takes the smallest block of the pageblock with the least that serves it.
//!
//! # Invariants
//! - **OWNER-1** a free bit is set only in a pageblock that has an owner; the page's word is NONE,
//!   and no block, free or held, begins or reaches there. So the zone's buddy neither sees nor
//!   merges it.
//! - **OWNER-2** a pageblock is on the list of (its owner, the order of its largest free block,
//!   its type) if it has a free bit, else on none.
//! - **OWNER-3** `free` of an owner is the number of free bits in its pageblocks, `blocks` the
//!   number of those.
//! - **OWNER-4** the owner of a pageblock changes under the zone lock *and* the lock of the owner
//!   that it leaves or gets. Who holds either knows it.
//!
//! # What it does not do
//! The interleaving model (crates/zonal/tests/loom_owner.rs) compiles this very file. It knows no
//! zone: what is claimed and when it goes back is `alloc/zone_ops/owned.rs`. It takes
//! no lock but the owner's, and never two of those.

use crate::sync::{AtomicU32, AtomicU64, Guard, Lock, Ordering::Relaxed, Wait};
use crate::types::{Migratetype, NR_MIGRATETYPES, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, choice};

choice! {
    /// Who splits and merges the pages of a pageblock.
    #[derive(Default)]
    pub enum Pageblocks {
        /// The zone, under its lock; per-CPU lists hold single blocks: Linux.
        #[default]
        Shared = "shared",
        /// The CPU that claimed the pageblock, under a lock of its own (RFC, 2026). There are no
        /// per-CPU lists.
        Owned = "owned",
    }
}

pub(super) const ORDERS: usize = PAGEBLOCK_ORDER.get() as usize + 1;
pub(super) const WORDS: usize = PAGEBLOCK_PAGES as usize / u64::BITS as usize;
/// Order of a run that fills a word.
const WORD_ORDER: u32 = u64::BITS.ilog2();

/// Free pages of a pageblock, a bit each.
pub(crate) type Bits = [u64; WORDS];

/// What is known of one pageblock.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct OwnedBlock {
    /// The owner's number plus one; 0: nobody's (OWNER-4).
    owner: AtomicU32,
    /// Neighbours on the owner's list, plus one; under the owner's lock, as all that follows.
    pub(super) next: AtomicU32,
    prev: AtomicU32,
    mt: AtomicU32,
    pub(super) free: [AtomicU64; WORDS],
}

impl OwnedBlock {
    /// The number of its owner. A hint, unless the zone lock or the owner's lock is held.
    #[inline]
    pub(crate) fn owner(&self) -> Option<u32> {
        self.owner.load(Relaxed).checked_sub(1)
    }
    pub(crate) fn bits(&self) -> Bits {
        core::array::from_fn(|at| self.free[at].load(Relaxed))
    }
    /// Free pages.
    pub(crate) fn pages(&self) -> u32 {
        self.bits().iter().map(|word| word.count_ones()).sum()
    }
    /// Whether a page is free.
    pub(crate) fn is_free(&self, page: u32) -> bool {
        let word = self.free.get((page / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Relaxed) >> (page % u64::BITS) & 1 == 1)
    }
    fn store(&self, bits: &Bits) {
        for (cell, word) in self.free.iter().zip(bits) {
            cell.store(*word, Relaxed);
        }
    }
    fn mt(&self) -> usize {
        self.mt.load(Relaxed) as usize % NR_MIGRATETYPES
    }
}

/// One CPU's pageblocks of one zone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Owner {
    lists: Lock<Lists>,
    /// [`Lists::free`] and [`Lists::blocks`] of the last unlock, for readers without the lock.
    free: AtomicU32,
    blocks: AtomicU32,
    /// Figures.
    pub(crate) events: OwnerEvents,
}

/// What happened to a CPU's pageblocks of a zone.
#[derive(Debug, Default)]
pub(crate) struct OwnerEvents {
    /// Whole free pageblocks claimed.
    pub(crate) claims: AtomicU64,
    /// Pieces of others claimed with their pageblock.
    pub(crate) pieces: AtomicU64,
    /// Pageblocks that went back.
    pub(crate) returns: AtomicU64,
    /// Blocks that other CPUs freed to this owner.
    pub(crate) remote_frees: AtomicU64,
}

/// The lists of an owner.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// First pageblock, plus one, by the order of its largest free block, and type.
    heads: [[u32; NR_MIGRATETYPES]; ORDERS],
    /// Free pages (OWNER-3).
    pub(crate) free: u32,
    /// Pageblocks (OWNER-3).
    pub(crate) blocks: u32,
    /// Free pages that it keeps.
    pub(crate) high: u32,
}

impl Owner {
    /// Takes the owner's lock.
    #[inline]
    pub(crate) fn lock<'a, W: Wait>(&'a self, wait: &'a W) -> HeldOwner<'a, W> {
        HeldOwner { owner: self, lists: self.lists.lock(wait) }
    }
    /// Free pages at the last unlock.
    pub(crate) fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }
    /// Pageblocks at the last unlock.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Relaxed)
    }
    /// Times its lock was taken, and times it was found taken.
    pub(crate) fn holds(&self) -> (u64, u64) {
        (self.lists.holds(), self.lists.contended())
    }
}

/// Locks the owner of a pageblock by `lock`, which takes its number. `None`: it has none, or `lock`
/// gave none.
#[inline]
pub(crate) fn lock_owner_of<H>(
    block: &OwnedBlock,
    lock: impl Fn(u32) -> Option<H>,
) -> Option<(H, u32)> {
    loop {
        let owner = block.owner()?;
        let held = lock(owner)?;
        // It may have changed hands before the lock was taken (OWNER-4).
        if block.owner() == Some(owner) {
            return Some((held, owner));
        }
    }
}

/// An owner, locked.
#[derive(Debug)]
pub struct HeldOwner<'a, W: Wait> {
    owner: &'a Owner,
    pub(crate) lists: Guard<'a, Lists, W>,
}

impl<W: Wait> Drop for HeldOwner<'_, W> {
    fn drop(&mut self) {
        // Relaxed: figures for readers who do not hold the lock.
        self.owner.free.store(self.lists.free, Relaxed);
        self.owner.blocks.store(self.lists.blocks, Relaxed);
    }
}

impl Lists {
    /// A block of this order and type out of the owner's pageblocks: pageblock, first page.
    pub(crate) fn take(
        &mut self,
        of: &[OwnedBlock],
        order: Order,
        mt: Migratetype,
    ) -> Option<(u32, u32)> {
        let lists = self.heads.get(order.index()..)?;
        let head = lists.iter().map(|heads| heads[mt.index()]).find(|head| *head != 0)?;
        let at = head - 1;
        let block = of.get(at as usize)?;
        let mut bits = block.bits();
        let page = smallest(&bits, order.get())?;
        let before = largest(&bits);
        set(&mut bits, page, order.get(), false);
        self.free -= order.pages() as u32;
        self.change(of, at, before, &bits);
        Some((at, page))
    }

    /// Whether there is a block of this order and type.
    pub(crate) fn serves(&self, order: Order, mt: Migratetype) -> bool {
        self.heads.iter().skip(order.index()).any(|heads| heads[mt.index()] != 0)
    }

    /// Puts a block of this order into an owned pageblock.
    pub(crate) fn put(&mut self, of: &[OwnedBlock], (at, page): (u32, u32), order: Order) {
        let Some(block) = of.get(at as usize) else { return };
        let mut bits = block.bits();
        let before = largest(&bits);
        set(&mut bits, page, order.get(), true);
        self.free += order.pages() as u32;
        self.change(of, at, before, &bits);
    }

    /// Makes a pageblock without owner this one's, whose number is `owner`. The zone lock is held.
    pub(crate) fn adopt(&mut self, of: &[OwnedBlock], at: u32, owner: u32, mt: Migratetype) {
        let Some(block) = of.get(at as usize) else { return };
        block.mt.store(mt as u32, Relaxed);
        block.owner.store(owner + 1, Relaxed);
        self.blocks += 1;
    }

    /// Takes a pageblock from the owner. Returns its free pages. The zone lock is held.
    pub(crate) fn release(&mut self, of: &[OwnedBlock], at: u32) -> Bits {
        let Some(block) = of.get(at as usize) else { return [0; WORDS] };
        let bits = block.bits();
        self.free -= block.pages();
        self.blocks -= 1;
        self.change(of, at, largest(&bits), &[0; WORDS]);
        block.owner.store(0, Relaxed);
        bits
    }

    /// The pageblock with the largest free block: what a zone wants back first.
    pub(crate) fn emptiest(&self) -> Option<u32> {
        self.heads.iter().rev().flatten().find_map(|head| head.checked_sub(1))
    }

    /// Stores the free pages of a pageblock and moves it to the list it belongs on (OWNER-2).
    fn change(&mut self, of: &[OwnedBlock], at: u32, before: Option<u32>, bits: &Bits) {
        of[at as usize].store(bits);
        let after = largest(bits);
        if before == after {
            return;
        }
        if let Some(order) = before {
            self.unlink(of, at, order);
        }
        if let Some(order) = after {
            self.link(of, at, order);
        }
    }

    fn link(&mut self, of: &[OwnedBlock], at: u32, order: u32) {
        let block = &of[at as usize];
        let head = &mut self.heads[order as usize][block.mt()];
        let next = core::mem::replace(head, at + 1);
        block.prev.store(0, Relaxed);
        block.next.store(next, Relaxed);
        if next != 0 {
            of[next as usize - 1].prev.store(at + 1, Relaxed);
        }
    }

    fn unlink(&mut self, of: &[OwnedBlock], at: u32, order: u32) {
        let block = &of[at as usize];
        let (prev, next) = (block.prev.load(Relaxed), block.next.load(Relaxed));
        match prev {
            0 => self.heads[order as usize][block.mt()] = next,
            prev => of[prev as usize - 1].next.store(next, Relaxed),
        }
        if next != 0 {
            of[next as usize - 1].prev.store(prev, Relaxed);
        }
    }

    /// Walks the lists of the owner with this number and checks them and its count of free pages
    /// (OWNER-2, OWNER-3). Returns how many pageblocks are on them, or the first that is wrong
    /// there; `None` where the count is.
    pub(crate) fn validate(&self, of: &[OwnedBlock], owner: u32) -> Result<u32, Option<u32>> {
        let (mut listed, mut free) = (0, 0);
        for (order, heads) in self.heads.iter().enumerate() {
            for (mt, head) in heads.iter().enumerate() {
                let (mut last, mut next) = (0, *head);
                while let Some(at) = next.checked_sub(1) {
                    let block = of.get(at as usize).ok_or(at)?;
                    let is_here = block.owner() == Some(owner)
                        && block.mt() == mt
                        && block.prev.load(Relaxed) == last
                        && largest(&block.bits()) == Some(order as u32);
                    listed += 1;
                    // Lists with more than all pageblocks are rings.
                    if !is_here || listed > self.blocks {
                        return Err(Some(at));
                    }
                    free += block.pages();
                    (last, next) = (next, block.next.load(Relaxed));
                }
            }
        }
        if free == self.free { Ok(listed) } else { Err(None) }
    }
}

/// Where an aligned run of `2^(order + 1)` bits begins, from where those of `2^order` do.
#[inline]
fn doubled(runs: u64, order: u32) -> u64 {
    const STARTS: [u64; WORD_ORDER as usize] = [
        0x5555_5555_5555_5555,
        0x1111_1111_1111_1111,
        0x0101_0101_0101_0101,
        0x0001_0001_0001_0001,
        0x0000_0001_0000_0001,
        1,
    ];
    runs & runs >> (1 << order) & STARTS[order as usize]
}

/// A bit for each word that is free as a whole.
#[inline]
fn whole_words(bits: &Bits) -> u64 {
    bits.iter().rev().fold(0, |words, word| words << 1 | u64::from(*word == u64::MAX))
}

/// The order of the largest aligned run of bits.
#[inline]
fn largest_run(mut runs: u64) -> u32 {
    let mut order = 0;
    while order < WORD_ORDER {
        runs = doubled(runs, order);
        if runs == 0 {
            break;
        }
        order += 1;
    }
    order
}

/// The smallest aligned run of at least this order, of one that no larger one holds: its order, and
/// where the first of that order begins.
#[inline]
fn smallest_run(word: u64, order: u32) -> Option<(u32, u32)> {
    let mut runs = (0..order).fold(word, doubled);
    let mut order = order;
    while runs != 0 {
        let larger = if order < WORD_ORDER { doubled(runs, order) } else { 0 };
        let found = runs & !(larger | larger.wrapping_shl(1 << order));
        if found != 0 {
            return Some((order, found.trailing_zeros()));
        }
        (runs, order) = (larger, order + 1);
    }
    None
}

/// The order of the largest free block; `None` without free pages.
#[inline]
pub(super) fn largest(bits: &Bits) -> Option<u32> {
    let whole = whole_words(bits);
    if whole != 0 {
        return Some(WORD_ORDER + largest_run(whole));
    }
    bits.iter().filter(|word| **word != 0).map(|word| largest_run(*word)).max()
}

/// The first page of the smallest free block that holds one of `order`: the lowest of its size.
pub(super) fn smallest(bits: &Bits, order: u32) -> Option<u32> {
    let mut least: Option<(u32, u32)> = None;
    if order < WORD_ORDER {
        // Runs that fill their word are part of larger ones, perhaps.
        let parts = bits.iter().enumerate().filter(|(_, word)| !matches!(**word, 0 | u64::MAX));
        for (at, word) in parts {
            let run = smallest_run(*word, order);
            if let Some((size, bit)) =
                run.filter(|(size, _)| least.is_none_or(|(at, _)| *size < at))
            {
                least = Some((size, at as u32 * u64::BITS + bit));
            }
        }
    }
    let of_words = || {
        let (_, at) = smallest_run(whole_words(bits), order.saturating_sub(WORD_ORDER))?;
        Some(at * u64::BITS)
    };
    least.map(|(_, page)| page).or_else(of_words)
}

/// Sets or clears the bits of a block.
pub(super) fn set(bits: &mut Bits, page: u32, order: u32, free: bool) {
    let (word, bit) = ((page / u64::BITS) as usize, page % u64::BITS);
    let mask = if order < WORD_ORDER { ((1u64 << (1u32 << order)) - 1) << bit } else { u64::MAX };
    let words = 1usize << order.saturating_sub(WORD_ORDER);
    for cell in bits.iter_mut().skip(word).take(words) {
        *cell = if free { *cell | mask } else { *cell & !mask };
    }
}

/// The free blocks of a pageblock, largest first: first page and order.
pub(crate) fn free_blocks(mut bits: Bits) -> impl Iterator<Item = (u32, Order)> {
    core::iter::from_fn(move || {
        let order = largest(&bits)?;
        let page = smallest(&bits, order)?;
        set(&mut bits, page, order, false);
        Some((page, Order::new(order)?))
    })
}
