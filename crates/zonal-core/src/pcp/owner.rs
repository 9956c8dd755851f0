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
//! - **OWNER-5** a pageblock's `shape` says which words of `free` are free as a whole and which in
//!   part, and `listed` which list it is on, so that a request reads few of the words.
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
    /// [`Shape`] of `free`, and one more than the order of the list that it is on (OWNER-5).
    pub(super) shape: AtomicU32,
    listed: AtomicU32,
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
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.free.get(at).map_or(0, |word| word.load(Relaxed))
    }
    #[inline]
    fn shape(&self) -> Shape {
        Shape(self.shape.load(Relaxed))
    }
    /// The order of its largest free block, by which it is listed.
    #[inline]
    fn listed(&self) -> Option<u32> {
        self.listed.load(Relaxed).checked_sub(1)
    }
    /// Sets or clears the bits of a block.
    #[inline]
    fn set(&self, page: u32, order: u32, free: bool) {
        let mut shape = self.shape();
        each_word_of(page, order, |at, mask| {
            let Some(cell) = self.free.get(at) else { return };
            let word = with(cell.load(Relaxed), mask, free);
            cell.store(word, Relaxed);
            shape = shape.with(at, word);
        });
        self.shape.store(shape.0, Relaxed);
    }
    /// Whether what is repeated of the free bits is right (OWNER-5).
    pub(crate) fn is_right(&self) -> bool {
        let bits = self.bits();
        self.shape() == Shape::of(&bits) && self.listed() == largest(&bits)
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
    /// [`Lists::free`], [`Lists::blocks`] and [`Lists::used`] of the last unlock, for readers
    /// without the lock.
    free: AtomicU32,
    blocks: AtomicU32,
    used: AtomicU64,
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
    /// A bit for each of those lists that has a pageblock, type by type.
    used: u64,
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
    /// Whether there was a block of this order and type at the last unlock.
    #[inline]
    pub(crate) fn served(&self, order: Order, mt: Migratetype) -> bool {
        self.used.load(Relaxed) & lists_of(order, mt) != 0
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
        self.owner.used.store(self.lists.used, Relaxed);
    }
}

impl Lists {
    /// A block of this order and type out of the owner's pageblocks: pageblock, first page.
    #[inline]
    pub(crate) fn take(
        &mut self,
        of: &[OwnedBlock],
        order: Order,
        mt: Migratetype,
    ) -> Option<(u32, u32)> {
        let used = self.used & lists_of(order, mt);
        let smallest = used.trailing_zeros().checked_sub(bit_of(0, mt.index()))?;
        let at = self.heads.get(smallest as usize)?[mt.index()].checked_sub(1)?;
        let block = of.get(at as usize)?;
        let page = block.shape().smallest(order.get(), |at| block.word(at))?;
        block.set(page, order.get(), false);
        self.free -= order.pages() as u32;
        self.relist(of, at);
        Some((at, page))
    }

    /// Whether there is a block of this order and type.
    pub(crate) fn serves(&self, order: Order, mt: Migratetype) -> bool {
        self.used & lists_of(order, mt) != 0
    }

    /// Puts a block of this order into an owned pageblock.
    #[inline]
    pub(crate) fn put(&mut self, of: &[OwnedBlock], (at, page): (u32, u32), order: Order) {
        let Some(block) = of.get(at as usize) else { return };
        block.set(page, order.get(), true);
        self.free += order.pages() as u32;
        self.relist(of, at);
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
        block.set(0, PAGEBLOCK_ORDER.get(), false);
        self.relist(of, at);
        block.owner.store(0, Relaxed);
        bits
    }

    /// The pageblock with the largest free block: what a zone wants back first.
    pub(crate) fn emptiest(&self) -> Option<u32> {
        self.heads.iter().rev().flatten().find_map(|head| head.checked_sub(1))
    }

    /// Moves a pageblock whose free pages have changed to the list that it belongs on (OWNER-2).
    #[inline]
    fn relist(&mut self, of: &[OwnedBlock], at: u32) {
        let block = &of[at as usize];
        let (before, after) = (block.listed(), block.shape().largest(|at| block.word(at)));
        if before == after {
            return;
        }
        block.listed.store(after.map_or(0, |order| order + 1), Relaxed);
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
        self.used |= 1 << bit_of(order, block.mt());
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
            0 => {
                self.heads[order as usize][block.mt()] = next;
                self.used &= !(u64::from(next == 0) << bit_of(order, block.mt()));
            }
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
                if (self.used >> bit_of(order as u32, mt) & 1 == 1) != (*head != 0) {
                    return Err(None);
                }
                let (mut last, mut next) = (0, *head);
                while let Some(at) = next.checked_sub(1) {
                    let block = of.get(at as usize).ok_or(at)?;
                    let is_here = block.owner() == Some(owner)
                        && block.mt() == mt
                        && block.prev.load(Relaxed) == last
                        && block.listed() == Some(order as u32)
                        && block.is_right();
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

/// The bit of a list in [`Lists::used`].
#[inline]
const fn bit_of(order: u32, mt: usize) -> u32 {
    mt as u32 * ORDERS as u32 + order
}
const _: () = assert!(NR_MIGRATETYPES * ORDERS <= u64::BITS as usize, "a bit for each list");

/// The bits of the lists whose pageblocks have a block of this order and type.
#[inline]
fn lists_of(order: Order, mt: Migratetype) -> u64 {
    let lists = (1u64 << ORDERS) - 1;
    (lists & lists.wrapping_shl(order.get())) << bit_of(0, mt.index())
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

/// Which words of a pageblock are free as a whole, a bit each, and behind those, which are in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape(u32);

/// Where the bits of words begin that are free in part.
const PARTS: u32 = WORDS as u32;

impl Shape {
    fn of(bits: &Bits) -> Shape {
        bits.iter().enumerate().fold(Shape(0), |shape, (at, word)| shape.with(at, *word))
    }

    /// The same, where a word has become this.
    #[inline]
    fn with(self, at: usize, word: u64) -> Shape {
        let whole = u32::from(word == u64::MAX);
        let part = u32::from(word != 0) & !whole;
        let kept = self.0 & !((1 | 1 << PARTS) << at);
        Shape(kept | (whole | part << PARTS) << at)
    }

    #[inline]
    fn whole(self) -> u64 {
        u64::from(self.0 & ((1 << PARTS) - 1))
    }

    /// The words that are free in part, the first one first.
    #[inline]
    fn parts(self) -> impl Iterator<Item = usize> {
        let mut left = self.0 >> PARTS;
        core::iter::from_fn(move || {
            let at = left.trailing_zeros();
            left = left.checked_sub(1)? & left;
            Some(at as usize)
        })
    }

    /// The order of the largest free block; `None` without free pages.
    #[inline]
    fn largest(self, word: impl Fn(usize) -> u64) -> Option<u32> {
        match self.whole() {
            0 => self.parts().map(|at| largest_run(word(at))).max(),
            whole => Some(WORD_ORDER + largest_run(whole)),
        }
    }

    /// The first page of the smallest free block that holds one of `order`: the lowest of its size.
    #[inline]
    fn smallest(self, order: u32, word: impl Fn(usize) -> u64) -> Option<u32> {
        let mut least: Option<(u32, u32)> = None;
        if order < WORD_ORDER {
            for at in self.parts() {
                let run = smallest_run(word(at), order);
                let run = run.filter(|(size, _)| least.is_none_or(|(least, _)| *size < least));
                least = run.map(|(size, bit)| (size, at as u32 * u64::BITS + bit)).or(least);
            }
        }
        // Words that are free as a whole are runs of this order or larger ones.
        let of_words = || {
            let (_, at) = smallest_run(self.whole(), order.saturating_sub(WORD_ORDER))?;
            Some(at * u64::BITS)
        };
        least.map(|(_, page)| page).or_else(of_words)
    }
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

/// [`Shape::largest`] of bits.
pub(super) fn largest(bits: &Bits) -> Option<u32> {
    Shape::of(bits).largest(|at| bits[at])
}

/// [`Shape::smallest`] of bits.
pub(super) fn smallest(bits: &Bits, order: u32) -> Option<u32> {
    Shape::of(bits).smallest(order, |at| bits[at])
}

/// Calls `each` for every word that a block has pages in, with the block's bits there.
#[inline]
fn each_word_of(page: u32, order: u32, mut each: impl FnMut(usize, u64)) {
    let (word, bit) = ((page / u64::BITS) as usize, page % u64::BITS);
    if order < WORD_ORDER {
        return each(word, ((1u64 << (1u32 << order)) - 1) << bit);
    }
    for at in word..word + (1 << (order - WORD_ORDER)) {
        each(at, u64::MAX);
    }
}

#[inline]
fn with(word: u64, mask: u64, free: bool) -> u64 {
    if free { word | mask } else { word & !mask }
}

/// Sets or clears the bits of a block.
pub(super) fn set(bits: &mut Bits, page: u32, order: u32, free: bool) {
    each_word_of(page, order, |at, mask| {
        if let Some(word) = bits.get_mut(at) {
            *word = with(*word, mask, free);
        }
    });
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
