//! Whole magazines between a zone's per-CPU lists and its buddy.
//!
//! CPUs that free pages and CPUs that need them exchange them here: a full list leaves a magazine,
//! an empty one takes a magazine, each by two exchanges of a word and without the zone lock, and
//! nothing is merged or split. Lists can be short, because one CPU's excess serves the next.
//!
//! ```text
//!  CPU that frees ── its coldest blocks ────►  full[list]  ─ magazine ─► CPU whose list is empty
//!        │ depot full, zone under pressure        │ not needed for a refresh,
//!        ▼                                        ▼ pressure, drain_all
//!                              the zone's buddy
//! ```
//! A depot serves the CPUs of one group ([`DepotGroup`]); it lies in the pcp record of the group's
//! first CPU. A magazine is an array of frame numbers in the table of slots, with a header: its
//! link on a stack, and its number of frames. A magazine belongs to the thread that has popped it,
//! which writes the words of its frames with only the pcp's gate held.
//!
//! # Invariants
//! - **DEPOT-1** magazines are put and taken with a pcp's gate or the zone lock held, which
//!   `MovesMagazines` asks for. A holder of all of these (`hold_all`) finds every magazine on a
//!   stack.
//! - **DEPOT-2** the word of a frame in a full magazine says CACHED by [`DEPOT`] with the order and
//!   type of the magazine's list.
//! - **DEPOT-3** `pages` is at least the base pages in full magazines, equal while no magazine is
//!   moving, and at most the limit.

use super::stack;
use super::word::NR_LISTS;
use crate::frame::{LINE_PAGES, PcpId};
use crate::lanes::{copy_u32s, store_row};
use crate::platform::Platform;
use crate::prefetch;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};
use crate::types::{CpuId, Order, PageCount, choice};
use crate::zone::state::LockedZone;

/// Store of words of frames in depots: no machine has this CPU.
pub const DEPOT: PcpId = PcpId { cpu: CpuId(u16::MAX as u32), rank: 1 };
/// Most arrays of a depot: a link has 16 bits, and one value says "none".
pub const MAGAZINES_MAX: usize = (1 << 16) - 2;
/// Most blocks of a magazine; larger ones (`pcp.batch_cap`) are cut.
pub const BLOCKS_MAX: u32 = 1023;
/// All depots of a zone hold at most this part of it together, and half of its budget.
pub const ZONE_PART: u64 = 64;
/// Turn-overs of a depot's contents between two tests whether all of it is needed, for each depot
/// of the zone: what is not needed goes through the zone's lock, and so 32 depots may give back no
/// more at a time than one. With four for all, streams on 256 CPUs waited a third of their time
/// (results/2026-11-28-lab-2.md).
const TURNS: u32 = 4;
/// Pages of a magazine where lists move fewer, as where they move 63: what it takes to move one is
/// the same for few pages...
const WIDE: PageCount = PageCount::new(64);
/// ...if so many fit into a depot...
const WIDE_LEAST: u64 = 16;
/// ...and one is of so many batches at most: lists that move few pages may have no room for it.
const WIDE_BATCHES: u32 = 4;
/// The fraction of a depot that is excess if it was not needed meanwhile.
const UNUSED_PART: u32 = 4;
/// Slots on a line of 64 bytes.
const LINE_SLOTS: usize = 16;
/// Lines of an array that are asked for before it is used: as many as one of 64 blocks has.
const ASKED_LINES: usize = 5;
const LINK_BITS: u32 = 16;
const LINK_MASK: u32 = (1 << LINK_BITS) - 1;

choice! {
    /// Which CPUs share a depot.
    #[derive(Default)]
    pub enum DepotGroup {
        /// Those of one last-level cache; of a node where caches are not known.
        #[default]
        Cache = "cache",
        /// Those of the zone's node.
        Node = "node",
    }
}

/// Held by those who move magazines (DEPOT-1): a closed pcp, or a locked zone. A [`Look`] at a pcp
/// is not enough, so it is asked for as `&mut`.
///
/// [`Look`]: super::closed::Look
pub(crate) trait MovesMagazines {}

impl<P: Platform> MovesMagazines for LockedZone<'_, P> {}

/// Size of depots, and the CPUs that share them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepotPolicy {
    /// Batches' worth of pages for each CPU of a group; 0: no depots.
    pub magazines: u16,
    /// CPUs that share one.
    pub group: DepotGroup,
    /// A refill takes blocks of the buddy whole, up to this order, and leaves what the list does
    /// not need; 0: it takes what the list needs, one by one.
    pub block: u8,
}

impl DepotPolicy {
    /// No depots: every kernel.
    pub const OFF: DepotPolicy = DepotPolicy { magazines: 0, group: DepotGroup::Cache, block: 0 };
}

/// The size of one depot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DepotSize {
    /// Arrays.
    pub magazines: usize,
    /// Most blocks in one, 1 to [`BLOCKS_MAX`].
    pub blocks: u32,
    /// Pages of each, where they are more than a batch is.
    pub least: PageCount,
    /// Depots of the zone.
    pub groups: u32,
}

impl DepotSize {
    /// For `cpus` CPUs, with `groups` groups in a zone whose depots hold `pages` pages together
    /// and whose lists move `batch` pages at a time.
    pub fn new(
        policy: DepotPolicy,
        cpus: usize,
        groups: usize,
        pages: u64,
        batch: PageCount,
    ) -> Self {
        let share = pages / groups.max(1) as u64;
        let small = whole_lines(batch);
        // Batches' worth of pages that the policy asks for.
        let asked = policy.magazines as usize * cpus * small.get().max(1) as usize;
        let is_wide = small < WIDE
            && small.get() * WIDE_BATCHES >= WIDE.get()
            && share >= WIDE_LEAST * u64::from(WIDE)
            && asked >= WIDE.get() as usize;
        let least = if is_wide { WIDE } else { PageCount::ZERO };
        let blocks = small.max(least).blocks(Order::ZERO).clamp(1, BLOCKS_MAX);
        // As many pages as by magazines of a batch.
        let most = asked / blocks as usize;
        let magazines = most.min(MAGAZINES_MAX).min((share / u64::from(blocks)) as usize);
        DepotSize { magazines, blocks, least, groups: groups as u32 }
    }

    /// Slots of one array: the header, the blocks, and up to the next line.
    const fn stride(self) -> usize {
        (self.blocks as usize + 1).next_multiple_of(LINE_SLOTS)
    }

    /// Base pages that it may hold.
    pub const fn pages(self) -> PageCount {
        PageCount::of_blocks(self.magazines as u32 * self.blocks, Order::ZERO)
    }

    /// Slots of all arrays, and as many as are passed to begin at a line.
    pub const fn slots(self) -> usize {
        self.magazines * self.stride()
    }
}

/// The pages of a magazine of one batch, where lists move `batch` pages at a time. Batches are one
/// less than a power of two, for the colours of pages (LB E.3); magazines of such a size would each
/// share a line of words with the next one, and so would the CPUs that take them. So from 3 on they
/// have as many more as fill whole lines. A batch of 1 or 2 stays as it is, and so does one above 8
/// that lacks more than one of a multiple of 8: such sizes are set by hand.
#[inline]
fn whole_lines(batch: PageCount) -> PageCount {
    let batch = batch.get();
    let lines = batch.saturating_add(1) & !(LINE_PAGES - 1);
    // A line is more than lists may hold that move fewer than three.
    let least = if batch < 3 { batch } else { batch.max(LINE_PAGES) };
    PageCount::new(least.max(lines))
}

/// The depot of one group of CPUs and one zone. The first line has what nearly each exchange uses.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Depot {
    /// Base pages in full magazines, and of those on their way in or out (DEPOT-3).
    pages: AtomicU32,
    /// Least value of `pages` since the last refresh: pages not needed. Advice.
    low: AtomicU32,
    /// Base pages put since the last turn-over, and the least that `pages` was. Advice.
    turned: AtomicU32,
    turn_low: AtomicU32,
    /// Empty arrays.
    empty: AtomicU64,
    /// Full magazines, by list.
    full: [AtomicU64; NR_LISTS],
    /// Its first slot.
    base: u32,
    /// Slots from one array to the next.
    stride: u32,
    /// Most blocks in one.
    blocks: u32,
    /// Arrays.
    magazines: u32,
    /// Turn-overs between two tests whether all of it is needed.
    turns: u32,
    /// [`DepotSize::least`].
    least: u32,
}

/// An array that its holder has for itself (STACK-1).
#[derive(Debug)]
pub struct Magazine<'a> {
    slots: &'a [AtomicU32],
    number: u32,
    /// Frames in it.
    len: u32,
    /// Base pages counted for it.
    pages: PageCount,
}

impl<'a> Magazine<'a> {
    /// That of an array that comes from a stack, with what its header says.
    fn full(slots: &'a [AtomicU32], number: u32) -> Magazine<'a> {
        Magazine { slots, number, len: slots[0].load(Relaxed) >> LINK_BITS, pages: PageCount::ZERO }
    }

    /// Its frames, coldest first.
    pub fn frames(&self) -> &'a [AtomicU32] {
        &self.slots[1..=self.len as usize]
    }

    /// Takes the last `most` frames out, or all.
    pub(crate) fn split_off(&mut self, most: u32) -> &'a [AtomicU32] {
        let frames = self.frames();
        let (left, taken) = frames.split_at(frames.len().saturating_sub(most as usize));
        self.len = left.len() as u32;
        taken
    }

    /// Adds a frame. More than the depot's magazines have room for are a bug of the caller.
    #[inline]
    pub fn give(&mut self, frame: u32) {
        self.len += 1;
        self.slots[self.len as usize].store(frame, Relaxed);
    }

    /// Adds the frames that these slots name.
    #[inline]
    pub(crate) fn give_slots(&mut self, from: &[AtomicU32; 8]) {
        if let Some(slots) = self.slots[self.len as usize + 1..].first_chunk() {
            copy_u32s(from, slots);
            self.len += from.len() as u32;
        }
    }

    /// Adds eight frames in a row.
    #[inline]
    pub(crate) fn give_row(&mut self, first: u32) {
        let slots = self.slots[self.len as usize + 1..].first_chunk();
        if let Some(slots) = slots {
            store_row(slots, first, true);
            self.len += slots.len() as u32;
        }
    }
}

impl Depot {
    /// Makes `slots[base..]` the arrays of this depot, all empty.
    pub(crate) fn set_up(&mut self, slots: &[AtomicU32], base: usize, size: DepotSize) {
        self.base = base as u32;
        self.stride = size.stride() as u32;
        self.blocks = size.blocks;
        self.magazines = size.magazines as u32;
        self.turns = size.groups * TURNS;
        self.least = size.least.get();
        for number in (0..self.magazines).rev() {
            self.put_empty(slots, number);
        }
    }

    /// Whether there is one.
    #[inline]
    pub fn exists(&self) -> bool {
        self.magazines != 0
    }

    /// Most blocks of a magazine.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Pages of a magazine where lists move `batch` pages at a time.
    #[inline]
    pub(crate) fn magazine(&self, batch: PageCount) -> PageCount {
        whole_lines(batch).max(PageCount::new(self.least))
    }

    /// Base pages that it may hold.
    pub fn limit(&self) -> PageCount {
        PageCount::of_blocks(self.magazines * self.blocks, Order::ZERO)
    }

    /// Base pages in it.
    #[inline]
    pub fn pages(&self) -> PageCount {
        PageCount::new(self.pages.load(Relaxed))
    }

    /// How often anything was put or taken. While it stands still nothing came or went.
    pub fn changes(&self) -> u64 {
        self.full.iter().map(stack::changes).fold(0, u64::wrapping_add)
    }

    /// As [`changes`](Self::changes), but an array counts from when it is reserved to when it is
    /// empty again (STEADY-2).
    pub(crate) fn moves(&self) -> u64 {
        self.changes().wrapping_add(stack::changes(&self.empty))
    }

    /// Base pages in it, read so that [`moves`](Self::moves) read afterwards is no older.
    pub(crate) fn settled_pages(&self) -> u64 {
        // Acquire: pairs with the Release of `reserve` and `lower`.
        self.pages.load(Ordering::Acquire).into()
    }

    /// Whether there is a magazine of this list.
    pub(crate) fn has(&self, list: usize) -> bool {
        stack::top(&self.full[list]).is_some()
    }

    fn slots_of<'a>(&self, slots: &'a [AtomicU32], number: u32) -> &'a [AtomicU32] {
        let first = self.base as usize + number as usize * self.stride as usize;
        &slots[first..first + self.stride as usize]
    }
    fn header<'a>(&self, slots: &'a [AtomicU32], number: u32) -> &'a AtomicU32 {
        &slots[self.base as usize + number as usize * self.stride as usize]
    }
    fn link(&self, slots: &[AtomicU32], number: u32) -> u32 {
        self.header(slots, number).load(Relaxed) & LINK_MASK
    }

    /// Asks for the array below one that was just popped. Most often it is the next to be used
    /// here, and another CPU used it last.
    #[inline]
    fn ask_below(&self, slots: &[AtomicU32], number: u32) {
        if let Some(below) = self.link(slots, number).checked_sub(1) {
            let lines = self.slots_of(slots, below).chunks(LINE_SLOTS);
            lines.take(ASKED_LINES).for_each(|line| prefetch::for_write(&line[0]));
        }
    }

    /// The frames of the magazine on top. Advice: another CPU may take it at any moment, and leave
    /// others there.
    pub(crate) fn next_frames<'a>(&self, slots: &'a [AtomicU32], list: usize) -> &'a [AtomicU32] {
        let top = stack::top(&self.full[list]);
        top.map_or(&[], |number| Magazine::full(self.slots_of(slots, number), number).frames())
    }

    fn put_empty(&self, slots: &[AtomicU32], number: u32) {
        stack::push(&self.empty, number, |below| self.header(slots, number).store(below, Relaxed));
    }

    /// An empty array for up to `pages` base pages, if there is room for them.
    #[inline]
    pub(crate) fn reserve<'a>(
        &self,
        _held: &mut impl MovesMagazines,
        slots: &'a [AtomicU32],
        pages: PageCount,
    ) -> Option<Magazine<'a>> {
        let limit = self.limit().get();
        let room = |held: u32| held.checked_add(pages.get()).filter(|held| *held <= limit);
        // Advice: the array would only go and come back.
        room(self.pages.load(Relaxed))?;
        let number = stack::pop(&self.empty, |number| self.link(slots, number))?;
        self.ask_below(slots, number);
        // Release: pairs with the Acquire in `settled_pages`: who sees the pages sees the array
        // gone (STEADY-2). The push of `put` publishes the magazine's contents.
        if self.pages.fetch_update(Ordering::Release, Relaxed, room).is_err() {
            self.put_empty(slots, number);
            return None;
        }
        Some(Magazine { slots: self.slots_of(slots, number), number, len: 0, pages })
    }

    /// Leaves a magazine of `list`, whose blocks are of `order`.
    #[inline]
    pub(crate) fn put(
        &self,
        _held: &mut impl MovesMagazines,
        magazine: Magazine<'_>,
        list: usize,
        order: Order,
    ) {
        let missing = magazine.pages - PageCount::of_blocks(magazine.len, order);
        if !missing.is_zero() {
            self.lower(missing);
        }
        stack::push(&self.full[list], magazine.number, |below| {
            magazine.slots[0].store(magazine.len << LINK_BITS | below, Relaxed);
        });
    }

    /// Takes a magazine of `list`, whose blocks are of `order`. Give the array back by
    /// [`emptied`](Self::emptied).
    #[inline]
    pub(crate) fn take<'a>(
        &self,
        _held: &mut impl MovesMagazines,
        slots: &'a [AtomicU32],
        list: usize,
        order: Order,
    ) -> Option<Magazine<'a>> {
        let number = stack::pop(&self.full[list], |number| self.link(slots, number))?;
        self.ask_below(slots, number);
        let mut magazine = Magazine::full(self.slots_of(slots, number), number);
        magazine.pages = PageCount::of_blocks(magazine.len, order);
        Some(magazine)
    }

    /// The frames of a magazine taken are elsewhere.
    #[inline]
    pub(crate) fn emptied(
        &self,
        _held: &mut impl MovesMagazines,
        slots: &[AtomicU32],
        magazine: Magazine<'_>,
    ) {
        self.put_empty(slots, magazine.number);
        self.lower(magazine.pages);
    }

    /// So many base pages are elsewhere.
    #[inline]
    fn lower(&self, pages: PageCount) {
        // Release: pairs with the Acquire in `is_empty`; a reader that sees the pages gone
        // sees the pcp closed that they went to.
        let left = self.pages.fetch_sub(pages.get(), Ordering::Release) - pages.get();
        for low in [&self.low, &self.turn_low] {
            if left < low.load(Relaxed) {
                low.store(left, Relaxed);
            }
        }
    }

    /// `pages` base pages are about to be put. Whether they should go to the buddy instead: several
    /// times the contents came since the last time, and a quarter of them was never needed. So the
    /// excess of a single burst drains gradually.
    pub fn has_surplus(&self, pages: PageCount) -> bool {
        let (held, pages) = (self.pages().get(), pages.get());
        let turned = self.turned.load(Relaxed) + pages;
        if u64::from(turned) < u64::from(held) * u64::from(self.turns) {
            self.turned.store(turned, Relaxed);
            return false;
        }
        self.turned.store(0, Relaxed);
        let low = self.turn_low.swap(held, Relaxed);
        low >= pages && low >= held / UNUSED_PART
    }

    /// Whether it is empty and nothing is moving there.
    pub fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `emptied`.
        self.pages.load(Ordering::Acquire) == 0
    }

    /// Base pages not needed since the last call.
    pub fn unused(&self) -> PageCount {
        let pages = self.pages().get();
        PageCount::new(self.low.swap(pages, Relaxed).min(pages))
    }

    /// Every full magazine and its list, for walks while nothing is put or taken.
    pub(crate) fn each<'a>(
        &self,
        slots: &'a [AtomicU32],
        mut see: impl FnMut(usize, &'a [AtomicU32]),
    ) {
        for (list, head) in self.full.iter().enumerate() {
            for number in self.stacked(slots, head) {
                see(list, Magazine::full(self.slots_of(slots, number), number).frames());
            }
        }
    }

    /// How many arrays its stacks have, and how many it has: the same while nothing is moving
    /// (DEPOT-1).
    pub(crate) fn arrays(&self, slots: &[AtomicU32]) -> (usize, usize) {
        let stacks = self.full.iter().chain([&self.empty]);
        let most = self.magazines as usize + 1;
        (stacks.flat_map(|head| self.stacked(slots, head)).take(most).count(), most - 1)
    }

    /// The arrays of one stack, from the top.
    fn stacked(&self, slots: &[AtomicU32], head: &AtomicU64) -> impl Iterator<Item = u32> {
        let below = |number: &u32| self.link(slots, *number).checked_sub(1);
        core::iter::successors(stack::top(head), below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    struct Held;
    impl MovesMagazines for Held {}

    #[test]
    fn pages_that_a_part_of_a_magazine_had_were_needed() {
        let size = DepotSize { magazines: 2, blocks: 8, groups: 1, ..DepotSize::default() };
        let slots: Vec<AtomicU32> = (0..size.slots()).map(|_| AtomicU32::new(0)).collect();
        let mut depot = Depot::default();
        depot.set_up(&slots, 0, size);
        let fill = |blocks: u32| {
            let pages = PageCount::of_blocks(blocks, Order::ZERO);
            let mut magazine = depot.reserve(&mut Held, &slots, pages).expect("there is room");
            (0..blocks).for_each(|frame| magazine.give(frame));
            depot.put(&mut Held, magazine, 0, Order::ZERO);
        };
        fill(8);
        depot.unused();
        let mut magazine = depot.take(&mut Held, &slots, 0, Order::ZERO).expect("it was put");
        assert_eq!(magazine.split_off(5).len(), 5);
        depot.put(&mut Held, magazine, 0, Order::ZERO);
        assert_eq!(depot.pages().get(), 3);
        fill(8);
        assert_eq!((depot.pages().get(), depot.unused().get()), (11, 3));
    }

    #[test]
    fn the_next_magazine_is_the_one_on_top_and_none_where_there_is_none() {
        let size = DepotSize { magazines: 2, blocks: 8, groups: 1, ..DepotSize::default() };
        let slots: Vec<AtomicU32> = (0..size.slots()).map(|_| AtomicU32::new(0)).collect();
        let mut depot = Depot::default();
        depot.set_up(&slots, 0, size);
        let next = |list| -> Vec<u32> {
            depot.next_frames(&slots, list).iter().map(|slot| slot.load(Relaxed)).collect()
        };
        assert_eq!(next(3), []);
        for first in [10, 20] {
            let pages = PageCount::of_blocks(3, Order::ZERO);
            let mut magazine = depot.reserve(&mut Held, &slots, pages).expect("there is room");
            (first..first + 3).for_each(|frame| magazine.give(frame));
            depot.put(&mut Held, magazine, 3, Order::ZERO);
        }
        assert_eq!((next(3), next(0)), (vec![20, 21, 22], vec![]));
        for left in [vec![10, 11, 12], vec![]] {
            let magazine = depot.take(&mut Held, &slots, 3, Order::ZERO).expect("it was put");
            assert_eq!(next(3), left);
            depot.emptied(&mut Held, &slots, magazine);
        }
    }

    #[test]
    fn magazines_of_small_zones_are_as_large_as_others_where_enough_of_them_fit() {
        let policy = DepotPolicy { magazines: 256, ..DepotPolicy::OFF };
        let size = |pages, groups, batch| {
            let size = DepotSize::new(policy, 1, groups, pages, PageCount::new(batch));
            (size.blocks, size.magazines, size.least.get())
        };
        assert_eq!(size(1024, 1, 15), (64, 16, 64));
        assert_eq!(size(1023, 1, 15), (16, 63, 0));
        assert_eq!(size(1024, 2, 15), (16, 32, 0));
        // Batches say it already.
        assert_eq!(size(4096, 1, 63), (64, 64, 0));
        assert_eq!(size(1024, 1, 127), (128, 8, 0));
        // Lists that move few pages may be shorter.
        assert_eq!(size(4096, 1, 7), (8, 256, 0));
        assert_eq!(size(4096, 1, 1), (1, 256, 0));
        // What makes no magazine of 64 pages makes smaller ones.
        let least = DepotPolicy { magazines: 3, ..policy };
        let size = DepotSize::new(least, 1, 1, 1024, PageCount::new(15));
        assert_eq!((size.blocks, size.magazines), (16, 3));
        // No more pages than by magazines of a batch.
        let few = DepotPolicy { magazines: 8, ..policy };
        let size = DepotSize::new(few, 2, 1, 1 << 20, PageCount::new(15));
        assert_eq!((size.blocks, size.magazines), (64, 4));
    }

    #[test]
    fn depots_of_a_zone_give_back_no_more_at_a_time_than_one() {
        let given_back = |groups| {
            let size = DepotSize { magazines: 2, blocks: 8, groups, ..DepotSize::default() };
            let slots: Vec<AtomicU32> = (0..size.slots()).map(|_| AtomicU32::new(0)).collect();
            let mut depot = Depot::default();
            depot.set_up(&slots, 0, size);
            let pages = PageCount::new(8);
            let mut magazine = depot.reserve(&mut Held, &slots, pages).expect("there is room");
            (0..8).for_each(|frame| magazine.give(frame));
            depot.put(&mut Held, magazine, 0, Order::ZERO);
            (0..3200).filter(|_| depot.has_surplus(pages)).count()
        };
        // Of the first turn-overs it is not known what was needed before.
        let [one, four] = [1, 4].map(|groups| given_back(groups) + 1);
        assert_eq!((one, four), (800, 200), "each of four a quarter as often");
    }
}
