//! Which blocks the free memory of a zone is in when a replay starts.
//!
//! `pagetypeinfo` says how many blocks of each type and order are free. Pages that the trace names
//! make up some of them, and unnamed ones the rest:
//!
//! ```text
//!  named     F F - F  - - - -    two blocks, of orders 1 and 0; the kernel has none of these
//!  grown     F F F F  - - - -    and one of order 2: the page between was free, too
//!  the rest  F F F F  H H H H    the block beside it is not free, or both would be one
//! ```
//! - Named blocks of which there are more than the kernel had are parts of larger ones, as far as
//!   unnamed pages can make these whole.
//! - What is still missing lies where the trace touches nothing, and only then beside what it
//!   touches, each block with something that is not free in its buddy.
//! - What the kernel's counts do not have (they are of another moment than the start) comes in
//!   blocks of the largest order that it has.
//!
//! Without `pagetypeinfo` all free memory is movable; blocks kept for atomic requests are, too.

use zonal_core::frame::Frames;
use zonal_core::types::{Migratetype, Pfn};

use super::{CHUNK, Fate, Fates};
use crate::zones::{FreeBlocks, ORDERS, TYPED, TYPES};

/// Where blocks can be: aligned frames that are undecided, by order. A whole one may become one
/// free block: its buddy stays in part what it is. One that is to be broken may not.
#[derive(Debug, Default)]
struct Cells {
    whole: [Vec<usize>; ORDERS],
    broken: [Vec<usize>; ORDERS],
}

impl Cells {
    /// The first frame of a block of this order.
    fn take(&mut self, order: usize) -> Option<usize> {
        let whole = (order..ORDERS).find(|own| !self.whole[*own].is_empty());
        let broken = (order + 1..ORDERS).find(|own| !self.broken[*own].is_empty());
        let (at, of) = match (whole, broken) {
            (Some(whole), broken) if broken.is_none_or(|broken| whole < broken) => {
                (self.whole[whole].pop()?, whole)
            }
            (_, Some(broken)) => {
                let at = self.broken[broken].pop()?;
                self.broken[broken - 1].push(at + (1 << (broken - 1)));
                (at, broken - 1)
            }
            _ => return None,
        };
        if order < of {
            self.broken[order].push(at + (1 << order));
        }
        for half in order + 1..of {
            self.whole[half].push(at + (1 << half));
        }
        Some(at)
    }
}

/// What is still to be made.
struct Wanted {
    /// Blocks that the kernel had and the start has not, or has too many of.
    missing: [[i64; ORDERS]; TYPES],
    /// Free pages that are to come.
    free: u64,
}

impl Fates {
    /// Makes up to `free` undecided frames free, in such blocks as the kernel had; returns how many
    /// are left.
    pub(super) fn shape(&mut self, kernel: &FreeBlocks, free: u64, frames: &Frames<'_>) -> u64 {
        let mut wanted = Wanted { missing: kernel.0.map(|row| row.map(|own| own as i64)), free };
        let skew = (self.start as usize).wrapping_neg() % CHUNK;
        let chunks: Vec<usize> =
            (skew..).step_by(CHUNK).take_while(|at| at + CHUNK <= self.fates.len()).collect();
        let is_mixed = |at: &&usize| {
            let chunk = &self.fates[**at..**at + CHUNK];
            chunk.contains(&Fate::Free)
        };
        let named: Vec<usize> = chunks.iter().filter(is_mixed).copied().collect();
        for at in &named {
            let have = self.pieces(*at, CHUNK, frames);
            have.iter().for_each(|(of, order)| wanted.missing[*of][*order] -= 1);
        }
        self.grow(&named, &mut wanted, frames);
        self.add(&chunks, &mut wanted, (kernel, frames));
        wanted.free
    }

    fn type_at(&self, at: usize, frames: &Frames<'_>) -> usize {
        let idx = frames.index(Pfn(self.start + at as u64));
        let own = idx.map_or(Migratetype::Movable, |idx| frames.pageblock_type(idx));
        if own.mergeable() { own as usize } else { Migratetype::Movable as usize }
    }

    /// Order of the largest block that begins at a frame, ends by `end` and is all of one fate.
    fn largest_at(&self, at: usize, end: usize, fate: Fate) -> Option<usize> {
        let fits = |order: &usize| {
            let pages = 1 << order;
            (self.start as usize + at).is_multiple_of(pages)
                && at + pages <= end
                && self.fates[at..at + pages].iter().all(|own| *own == fate)
        };
        (0..ORDERS).take_while(fits).last()
    }

    /// Type and order of each free block from a frame on, as a buddy allocator merges them.
    fn pieces(&self, at: usize, count: usize, frames: &Frames<'_>) -> Vec<(usize, usize)> {
        let mut pieces = Vec::new();
        let (mut from, end) = (at, at + count);
        while from < end {
            match self.largest_at(from, end, Fate::Free) {
                Some(order) => {
                    pieces.push((self.type_at(from, frames), order));
                    from += 1 << order;
                }
                None => from += 1,
            }
        }
        pieces
    }

    /// Makes named blocks, of which there are too many, larger ones that are missing.
    fn grow(&mut self, chunks: &[usize], wanted: &mut Wanted, frames: &Frames<'_>) {
        for order in (1..ORDERS).rev() {
            let pages = 1_usize << order;
            let parts = chunks.iter().flat_map(|chunk| (*chunk..chunk + CHUNK).step_by(pages));
            let mut found: Vec<(usize, usize)> =
                parts.filter_map(|at| Some((self.can_grow(at, pages)?, at))).collect();
            // The nearest to being whole first.
            found.sort_unstable();
            for (undecided, at) in found {
                let of = self.type_at(at, frames);
                let last = self.type_at(at + pages - 1, frames);
                let is_missing = of == last && wanted.missing[of][order] > 0;
                if !is_missing || undecided as u64 > wanted.free || self.is_free_beside(at, order) {
                    continue;
                }
                let pieces = self.pieces(at, pages, frames);
                let mut missing = wanted.missing;
                pieces.iter().for_each(|(of, order)| missing[*of][*order] += 1);
                if pieces.iter().any(|(of, order)| missing[*of][*order] > 0) {
                    continue;
                }
                missing[of][order] -= 1;
                *wanted = Wanted { missing, free: wanted.free - undecided as u64 };
                self.fates[at..at + pages].fill(Fate::Free);
            }
        }
    }

    /// Undecided frames among these, if the others are free and there are both.
    fn can_grow(&self, at: usize, pages: usize) -> Option<usize> {
        let part = &self.fates[at..at + pages];
        let undecided = part.iter().filter(|fate| **fate == Fate::Absent).count();
        let free = part.iter().filter(|fate| **fate == Fate::Free).count();
        (free > 0 && undecided > 0 && free + undecided == pages).then_some(undecided)
    }

    /// Whether the buddy of a block is free, so that the two would be one.
    fn is_free_beside(&self, at: usize, order: usize) -> bool {
        let pages = 1 << order;
        let buddy = ((self.start as usize + at) ^ pages).checked_sub(self.start as usize);
        let beside = buddy.and_then(|buddy| self.fates.get(buddy..buddy + pages));
        order + 1 < ORDERS && beside.is_some_and(|own| own.iter().all(|fate| *fate == Fate::Free))
    }

    /// Adds blocks that are missing, and those that the kernel's counts do not have.
    fn add(
        &mut self,
        chunks: &[usize],
        wanted: &mut Wanted,
        (kernel, frames): (&FreeBlocks, &Frames<'_>),
    ) {
        let is_unnamed =
            |at: &usize| self.fates[*at..*at + CHUNK].iter().all(|fate| *fate == Fate::Absent);
        let (unnamed, named): (Vec<usize>, Vec<usize>) =
            chunks.iter().partition(|at| is_unnamed(at));
        let mut unnamed = unnamed.into_iter();
        let mut cells: [Cells; TYPES] = Default::default();
        let largest = kernel.largest().unwrap_or(ORDERS - 1);
        wanted.leave_out(largest);
        let mut is_last = false;
        for (of, order) in wanted.rows(largest) {
            let pages = 1_u64 << order;
            let is_rest = of.is_none();
            let of = of.unwrap_or(Migratetype::Movable as usize);
            while wanted.free >= pages && (is_rest || wanted.missing[of][order] > 0) {
                let at = match cells[of].take(order) {
                    Some(at) => at,
                    None => match unnamed.next() {
                        Some(chunk) => {
                            self.tag(chunk, of, frames);
                            cells[of].whole[ORDERS - 1].push(chunk);
                            continue;
                        }
                        None if is_last => break,
                        None => {
                            is_last = true;
                            named.iter().for_each(|at| self.cells_in(*at, frames, &mut cells));
                            continue;
                        }
                    },
                };
                self.fates[at..at + (1 << order)].fill(Fate::Free);
                wanted.free -= pages;
                wanted.missing[of][order] -= 1;
            }
        }
    }

    fn tag(&self, chunk: usize, of: usize, frames: &Frames<'_>) {
        let Some(mt) = Migratetype::new(of as u32) else { return };
        for block in (chunk..chunk + CHUNK).step_by(1 << TYPED) {
            if let Some(idx) = frames.index(Pfn(self.start + block as u64)) {
                frames.set_pageblock_type(idx, mt);
            }
        }
    }

    /// The undecided frames of a chunk that the trace touches, so not all of it.
    fn cells_in(&self, chunk: usize, frames: &Frames<'_>, cells: &mut [Cells; TYPES]) {
        let (mut at, end) = (chunk, chunk + CHUNK);
        while at < end {
            let Some(order) = self.largest_at(at, end, Fate::Absent) else {
                at += 1;
                continue;
            };
            let own = &mut cells[self.type_at(at, frames)];
            match self.is_free_beside(at, order) {
                true => own.broken[order].push(at),
                false => own.whole[order].push(at),
            }
            at += 1 << order;
        }
    }
}

impl Wanted {
    /// Leaves out of the largest blocks what is more than the pages that are to come.
    fn leave_out(&mut self, largest: usize) {
        let row = |row: &[i64; ORDERS]| -> u64 {
            row.iter().enumerate().map(|(order, own)| (*own).max(0) as u64 * (1 << order)).sum()
        };
        let mut beyond = self.missing.iter().map(row).sum::<u64>().saturating_sub(self.free);
        for order in (0..=largest).rev() {
            for of in [1, 0, 2] {
                while beyond > 0 && self.missing[of][order] > 0 {
                    self.missing[of][order] -= 1;
                    beyond = beyond.saturating_sub(1 << order);
                }
            }
        }
    }

    /// Types and orders in the order in which they are made; without a type: what is left.
    fn rows(&self, largest: usize) -> Vec<(Option<usize>, usize)> {
        let own = (0..=largest).rev().flat_map(|order| (0..TYPES).map(move |of| (Some(of), order)));
        own.chain((0..=largest).rev().map(|order| (None, order))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicU64};

    use super::*;

    const CHUNKS: usize = 24;

    /// A zone in which some frames are decided, and what `shape` makes of it: free blocks by type
    /// and order, and the pages for which there was no place.
    fn shaped(kernel: &FreeBlocks, decided: &[(usize, Fate)]) -> ([[u64; ORDERS]; TYPES], u64) {
        let count = CHUNKS * CHUNK;
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let blocks: Vec<AtomicU8> = (0..=count >> TYPED).map(|_| AtomicU8::new(1)).collect();
        let frames = Frames::new(&words, &blocks, CHUNK as u64).unwrap();
        let all = vec![Fate::Absent; count];
        let mut fates = Fates { start: CHUNK as u64, fates: all, spare: count };
        decided.iter().for_each(|(at, fate)| fates.fates[*at] = *fate);
        let rows = kernel.0.iter().flat_map(|row| row.iter().enumerate());
        let all: u64 = rows.map(|(order, own)| own << order).sum();
        let named = decided.iter().filter(|(_, fate)| *fate == Fate::Free).count() as u64;
        let left = fates.shape(kernel, all - named, &frames);
        let mut made = [[0; ORDERS]; TYPES];
        for (of, order) in fates.pieces(0, count, &frames) {
            made[of][order] += 1;
        }
        (made, left)
    }

    #[test]
    fn free_memory_is_in_the_blocks_that_the_kernel_had() {
        let mut kernel = FreeBlocks([[0; ORDERS]; TYPES]);
        kernel.0[0] = [5, 4, 3, 2, 1, 0, 0, 1, 0, 0, 0];
        kernel.0[1] = [40, 9, 0, 7, 0, 3, 0, 0, 6, 1, 2];
        kernel.0[2] = [0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0];
        assert_eq!(kernel.pageblocks(), 5);
        assert_eq!(shaped(&kernel, &[]), (kernel.0, 0));
        // The trace names more single pages than the kernel had: one that is free alone, and each
        // second one of what was a larger block.
        kernel.0[1][0] = 8;
        let half = (64..96).step_by(2).map(|at| (at, Fate::Free));
        let alone = [(7, Fate::Free), (6, Fate::Inside)];
        let named: Vec<(usize, Fate)> = alone.into_iter().chain(half).collect();
        assert_eq!(shaped(&kernel, &named), (kernel.0, 0));
        // As many single pages as it names, and no more, can be alone where all are used around.
        let taken = (0..CHUNK)
            .map(|at| (at, if at < 64 && at % 2 == 0 { Fate::Free } else { Fate::Inside }));
        let (made, left) = shaped(&kernel, &taken.collect::<Vec<_>>());
        assert_eq!((made[1][0], left), (32, 0));
        assert_eq!((made[0], made[2]), (kernel.0[0], kernel.0[2]));
    }
}
