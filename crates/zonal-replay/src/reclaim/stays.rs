//! A trace as it would be if so many pages more had room: pages of files that reclaim took stay,
//! and what stays is not read again.
//!
//! ```text
//!  recorded      alloc a   …   reclaim frees a   …   alloc b (the same page)   …   free b
//!  with room     alloc a   …          ·          …              ·              …   free a
//! ```
//! Pages that stay wait in the order in which reclaim took them. Where there are more than `room`,
//! the first go, in place of those that are taken now. As long as there is room
//!
//! - background reclaim does not run, and nothing empties the lists;
//! - compaction does not run, and moves nothing: a page stays where it was read, and the block that
//!   it went to is not taken. Which one that was no event says, so that a block which reclaim frees
//!   and nobody was given is taken for the page that was moved first;
//! - a large block that was refused is there, and the small ones that came in its place are not
//!   asked for;
//! - none is asked for in vain, because a part of its pages is in memory.
//!
//! Blocks and pages differ: a page that was read in a block of 2 MiB may have come again by itself.
//! So a recorded block is *parts* of blocks that are there, and one of these is free when all of
//! its parts are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use zonal_core::types::Order;

use super::left::{Left, left};
use super::pages::{Dropped, FilePages, Filed, MOVABLE};
use crate::program::{NO_SLOT, Op, OpKind, Origin, Program, Slot};
use crate::world::Change;

/// Less room than a largest block is none.
const ROOM_MIN: u64 = Order::MAX.pages();
/// The file of pages of which nothing says where they belong; none of them comes back.
const NO_FILE: u32 = u32::MAX;

/// A trace with more room.
pub(crate) struct Stays {
    /// What is left to do.
    pub program: Program,
    /// Pages that are not read again.
    pub pages: u64,
}

/// `program` with room for so many pages of files more, run after a run of the same.
pub(crate) fn stays(program: &Program, room: u64) -> Stays {
    let (alone, blocks) = follow(program, room, &[]);
    let (mut left, away) = left(program, (&alone.program, &blocks), room);
    match left.is_empty() {
        true => alone,
        false => {
            let program = without(program, &away, &mut left);
            follow(&program, room, &left).0
        }
    }
}

/// `program` without these blocks, which are in use at its start: what is left lies in the place of
/// blocks of its order or of parts of larger ones, as far as there are; the rest of them is free.
fn without(program: &Program, away: &[u32], left: &mut [Left]) -> Program {
    let mut is_away = vec![false; program.slots.len()];
    let mut slots = program.slots.clone();
    // By order: first frames.
    let mut places: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for slot in away {
        is_away[*slot as usize] = true;
        let Slot { pfn, order, origin, .. } = &mut slots[*slot as usize];
        *origin = Origin::Away;
        places.entry(*order).or_default().push(*pfn);
    }
    left.sort_by_key(|own| std::cmp::Reverse(own.order));
    for own in left {
        let of = places.range_mut(own.order..).find(|(_, places)| !places.is_empty());
        let Some((pfn, order)) = of.and_then(|(order, places)| Some((places.pop()?, *order)))
        else {
            continue;
        };
        own.pfn = pfn;
        for half in own.order..order {
            places.entry(half).or_default().push(pfn + (1 << half));
        }
    }
    let is_there = |op: &&Op| op.kind != OpKind::Free || !is_away[op.slot as usize];
    let ops = program.ops.iter().filter(is_there).copied().collect();
    let (changes, early) = (program.changes.clone(), program.early.clone());
    let (kernel, files) = (program.kernel.clone(), program.files.clone());
    Program { ops, slots, changes, early, kernel, files, ..*program }
}

/// The same after a run that left these; and which blocks hold pages of files, of those that the
/// recording does not have.
fn follow(program: &Program, room: u64, left: &[Left]) -> (Stays, Vec<Filed>) {
    let FilePages { reclaimed, moved, made_up, dropped, unused, .. } = &program.files;
    let all_of = |slots: &[u32]| {
        let mut is_one = vec![false; program.slots.len()];
        slots.iter().for_each(|slot| is_one[*slot as usize] = true);
        is_one
    };
    let (is_reclaimed, is_moved, is_made_up) = (all_of(reclaimed), all_of(moved), all_of(made_up));
    let is_unused = all_of(unused);
    let is_moved_to = |slot: usize| is_made_up[slot] && (is_reclaimed[slot] || is_moved[slot]);
    let mut cache = Cache::new(program, room);
    left.iter().for_each(|left| cache.begin_with(*left));
    let mut dropped = dropped.iter().peekable();
    for op in &program.ops {
        while let Some(Dropped { file, .. }) = dropped.next_if(|own| own.time_ns <= op.time_ns) {
            cache.drop_file(*file, op);
        }
        match op.kind {
            kind if kind.is_alloc() && is_moved_to(op.slot as usize) && cache.has_room() => {
                cache.parts.insert(op.slot, Vec::new());
            }
            OpKind::Alloc | OpKind::Direct if is_unused[op.slot as usize] && cache.has_room() => {
                cache.parts.insert(op.slot, Vec::new());
            }
            OpKind::Alloc | OpKind::Bulk | OpKind::Direct => {
                cache.alloc(op, program.files.of(op.slot))
            }
            OpKind::Free if is_reclaimed[op.slot as usize] => {
                cache.reclaim(op, program.files.of(op.slot));
            }
            OpKind::Free if is_moved[op.slot as usize] && cache.has_room() => {
                cache.stay_in_place(op, program.files.of(op.slot));
            }
            OpKind::Free => cache.free(op),
            OpKind::Change if cache.has_room() && is_of_reclaim(program, op) => {}
            OpKind::Split | OpKind::Change | OpKind::Refresh => cache.ops.push(*op),
        }
    }
    let Cache { ops, slots, pages, large, .. } = cache;
    let (changes, early) = (program.changes.clone(), program.early.clone());
    let (kernel, files) = (program.kernel.clone(), FilePages::default());
    let program = Program { ops, slots, changes, early, kernel, files, ..*program };
    (Stays { program, pages }, large)
}

/// Whether it is what reclaim does to the lists. The end of a run that did not begin is nothing.
fn is_of_reclaim(program: &Program, op: &Op) -> bool {
    match program.changes[op.slot as usize].change {
        Change::ReclaimBegins(_) | Change::AllEmptied | Change::Emptied(_) => true,
        Change::ReclaimEnds(_) | Change::Set(..) | Change::CpuGoes | Change::CpuComes => false,
    }
}

/// Pages of a block.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: u32,
    pages: u64,
}

/// Pages in a row of a file that nobody was told of.
#[derive(Clone, Copy, Debug)]
struct Extent {
    part: Part,
    state: State,
}

/// What becomes of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The rest of a large block, which is being read.
    Reading,
    /// The recording has it elsewhere; its turn to be taken from there.
    Elsewhere(u64),
    /// Reclaim took it; its turn to go.
    Taken(u64),
}

struct Cache {
    room: u64,
    ops: Vec<Op>,
    slots: Vec<Slot>,
    /// What recorded blocks are, where not themselves: nothing, where they were not allocated.
    parts: HashMap<u32, Vec<Part>>,
    /// Pages in use of blocks that are parts of others.
    left: HashMap<u32, u64>,
    /// By file and first page.
    extents: BTreeMap<(u32, u64), Extent>,
    /// Turns to go, and whose they are.
    queue: BTreeSet<(u64, (u32, u64))>,
    /// Turns to be taken from elsewhere.
    elsewhere: BTreeSet<(u64, (u32, u64))>,
    turns: u64,
    /// Pages that stay.
    held: u64,
    /// Pages that were not read again.
    pages: u64,
    /// Blocks that had been refused.
    large: Vec<Filed>,
}

impl Cache {
    fn new(program: &Program, room: u64) -> Cache {
        Cache {
            room,
            ops: Vec::with_capacity(program.ops.len()),
            slots: program.slots.clone(),
            parts: HashMap::new(),
            left: HashMap::new(),
            extents: BTreeMap::new(),
            queue: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            turns: 0,
            held: 0,
            pages: 0,
            large: Vec::new(),
        }
    }

    /// A block that the run before left. Frame 0 is in no zone: nothing is said of where it is.
    fn begin_with(&mut self, Left { file, index, order, pfn }: Left) {
        if self.is_there((file, index), 1 << order) {
            return;
        }
        let block = self.slots.len() as u32;
        let (before, origin) = (NO_SLOT, Origin::Held);
        let (gfp, left, cpu, migratetype, past_lists) = (0, 0, 0, MOVABLE, false);
        let own = Slot { pfn, gfp, before, left, cpu, order, migratetype, origin, past_lists };
        self.slots.push(own);
        let part = Part { block, pages: 1 << order };
        let state = State::Taken(self.next_turn());
        self.insert((file, index), Extent { part, state });
    }

    fn is_there(&self, (file, index): (u32, u64), pages: u64) -> bool {
        let last = self.extents.range(..(file, index + pages)).next_back();
        last.is_some_and(|(key, extent)| key.0 == file && key.1 + extent.part.pages > index)
    }

    fn has_room(&self) -> bool {
        self.held + ROOM_MIN <= self.room
    }

    fn alloc(&mut self, op: &Op, place: Option<Filed>) {
        let Some(place) = place else { return self.ops.push(*op) };
        let pages = 1 << self.slots[op.slot as usize].order;
        let there = self.take(place, pages);
        let of_read: u64 = there.iter().map(|extent| extent.part.pages).sum();
        let held = there.iter().map(|extent| extent.part).collect();
        if of_read * 2 >= pages {
            let stayed = there.iter().filter(|extent| extent.state != State::Reading);
            self.pages += stayed.map(|extent| extent.part.pages).sum::<u64>();
            self.parts.insert(op.slot, held);
            return;
        }
        // Most of it has to be read, so all of it is.
        self.release(&held, op);
        match self.has_room() && self.is_new(place) {
            true => self.alloc_large(op, place, pages),
            false => self.ops.push(*op),
        }
    }

    /// Whether a larger block begins here of which nothing is there yet.
    fn is_new(&self, Filed { slot, file, index, wanted }: Filed) -> bool {
        let pages = 1_u64 << wanted;
        wanted > self.slots[slot as usize].order
            && index.is_multiple_of(pages)
            && self.extents.range((file, index)..(file, index + pages)).next().is_none()
    }

    /// The block that had been refused; the pages behind are read with it.
    fn alloc_large(&mut self, op: &Op, Filed { file, index, wanted, .. }: Filed, pages: u64) {
        let own = self.slots[op.slot as usize];
        let block = self.slots.len() as u32;
        // Frame 0 is in no zone: nothing is said of where it was.
        let large = Slot { pfn: 0, before: NO_SLOT, order: wanted, origin: Origin::Again, ..own };
        self.slots.push(large);
        self.large.push(Filed { slot: block, file, index, wanted });
        self.ops.push(Op { slot: block, ..*op });
        self.left.insert(block, pages);
        self.parts.insert(op.slot, vec![Part { block, pages }]);
        let part = Part { block, pages: (1 << wanted) - pages };
        self.insert((file, index + pages), Extent { part, state: State::Reading });
    }

    /// Takes out what is in use of these pages, with what is being read.
    fn take(&mut self, Filed { file, index, .. }: Filed, pages: u64) -> Vec<Extent> {
        let mut there = self.cut((file, index), pages);
        there.retain(|Extent { part, state }| match (state, self.left.get_mut(&part.block)) {
            (State::Reading, Some(left)) if *left > 0 => {
                *left += part.pages;
                true
            }
            // All that was read of it is gone again.
            (State::Reading, _) => false,
            (State::Taken(_) | State::Elsewhere(_), _) => true,
        });
        there
    }

    /// Takes out what is there of these pages.
    fn cut(&mut self, (file, index): (u32, u64), pages: u64) -> Vec<Extent> {
        let end = index + pages;
        let before = self.extents.range(..(file, index)).next_back().map(|(key, _)| *key);
        let inside = self.extents.range((file, index)..(file, end)).map(|(key, _)| *key);
        let keys: Vec<(u32, u64)> = before.into_iter().chain(inside).collect();
        let mut there = Vec::new();
        for key in keys {
            let Extent { part: Part { block, pages }, state } = self.extents[&key];
            let (from, to) = (key.1.max(index), (key.1 + pages).min(end));
            if key.0 != file || from >= to {
                continue;
            }
            self.remove(&key);
            let of = |pages| Extent { part: Part { block, pages }, state };
            if from > key.1 {
                self.insert(key, of(from - key.1));
            }
            if key.1 + pages > to {
                self.insert((file, to), of(key.1 + pages - to));
            }
            there.push(of(to - from));
        }
        there
    }

    /// The pages go, where some are there: a page of a file is in one place.
    fn clear(&mut self, key: (u32, u64), pages: u64, op: &Op) {
        for extent in self.cut(key, pages) {
            self.gone(extent, op);
        }
    }

    /// Reclaim took the block: it stays, and others go if there are too many.
    fn reclaim(&mut self, op: &Op, place: Option<Filed>) {
        let is_elsewhere = place.is_none() && self.nobody_was_given(op.slot);
        if !(is_elsewhere && self.take_from_elsewhere(op.slot)) {
            for (key, part) in self.extents_of(op.slot, place) {
                self.clear(key, part.pages, op);
                let state = State::Taken(self.next_turn());
                self.insert(key, Extent { part, state });
            }
        }
        while self.held > self.room
            && let Some((_, key)) = self.queue.first().copied()
        {
            self.go(key, op);
        }
    }

    fn nobody_was_given(&self, slot: u32) -> bool {
        self.slots[slot as usize].origin == Origin::Held
            || self.parts.get(&slot).is_some_and(Vec::is_empty)
    }

    /// What was moved first is what lies in this block; returns whether anything was moved.
    fn take_from_elsewhere(&mut self, slot: u32) -> bool {
        let (pages, mut taken) = (1 << self.slots[slot as usize].order, 0);
        while taken < pages
            && let Some((_, key)) = self.elsewhere.first().copied()
            && let Some(Extent { part, .. }) = self.remove(&key)
        {
            let state = State::Taken(self.next_turn());
            taken += part.pages;
            self.insert(key, Extent { part, state });
        }
        taken > 0
    }

    /// Compaction moved the pages of the block: those of a file stay where they are. A block that
    /// nobody was given is one that it moved before, or took from the free ones and gives back.
    fn stay_in_place(&mut self, op: &Op, place: Option<Filed>) {
        if place.is_none() {
            if !self.nobody_was_given(op.slot) {
                self.free(op);
            }
            return;
        }
        for (key, part) in self.extents_of(op.slot, place) {
            self.clear(key, part.pages, op);
            let state = State::Elsewhere(self.next_turn());
            self.insert(key, Extent { part, state });
        }
    }

    /// What the block is, and where: of a block of which that is not known, somewhere.
    fn extents_of(&mut self, slot: u32, place: Option<Filed>) -> Vec<((u32, u64), Part)> {
        let somewhere = (NO_FILE, u64::from(slot) * Order::MAX.pages());
        let (file, mut index) = place.map_or(somewhere, |Filed { file, index, .. }| (file, index));
        let at = |part: Part| {
            let key = (file, index);
            index += part.pages;
            (key, part)
        };
        self.parts_of(slot).into_iter().map(at).collect()
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Nothing is there of these pages.
    fn insert(&mut self, key: (u32, u64), extent: Extent) {
        self.extents.insert(key, extent);
        match extent.state {
            State::Taken(turn) => {
                self.queue.insert((turn, key));
                self.held += extent.part.pages;
            }
            State::Elsewhere(turn) => {
                self.elsewhere.insert((turn, key));
            }
            State::Reading => {}
        }
    }

    fn remove(&mut self, key: &(u32, u64)) -> Option<Extent> {
        let extent = self.extents.remove(key)?;
        match extent.state {
            State::Taken(turn) => {
                self.queue.remove(&(turn, *key));
                self.held -= extent.part.pages;
            }
            State::Elsewhere(turn) => {
                self.elsewhere.remove(&(turn, *key));
            }
            State::Reading => {}
        }
        Some(extent)
    }

    /// Pages go that had stayed.
    fn go(&mut self, key: (u32, u64), op: &Op) {
        if let Some(extent) = self.remove(&key) {
            self.gone(extent, op);
        }
    }

    /// What is being read goes with its block.
    fn gone(&mut self, Extent { part, state }: Extent, op: &Op) {
        if state != State::Reading {
            self.release(&[part], op);
        }
    }

    fn drop_file(&mut self, file: u32, op: &Op) {
        let all: Vec<(u32, u64)> =
            self.extents.range((file, 0)..(file + 1, 0)).map(|(key, _)| *key).collect();
        for key in all {
            self.go(key, op);
        }
    }

    fn free(&mut self, op: &Op) {
        let parts = self.parts_of(op.slot);
        self.release(&parts, op);
    }

    fn parts_of(&mut self, slot: u32) -> Vec<Part> {
        let pages = 1 << self.slots[slot as usize].order;
        self.parts.remove(&slot).unwrap_or_else(|| vec![Part { block: slot, pages }])
    }

    fn release(&mut self, parts: &[Part], op: &Op) {
        for part in parts {
            let all = 1 << self.slots[part.block as usize].order;
            let left = self.left.entry(part.block).or_insert(all);
            if *left == 0 {
                continue;
            }
            *left = left.saturating_sub(part.pages);
            if *left == 0 {
                self.ops.push(Op { slot: part.block, kind: OpKind::Free, ..*op });
            }
        }
    }
}

#[cfg(test)]
#[path = "stays_tests.rs"]
mod tests;
