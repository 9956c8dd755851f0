//! What a run leaves in memory for the next one.
//!
//! ```text
//!              start               before the first read        end
//!  recorded    a is in memory      the load throws a away       a, b, c
//!  with room   a, b, c are         it throws a, b, c away       a, b, c
//! ```
//! A load that is run again and again begins with the files of the run before. Recorded, some of
//! them had been reclaimed since, for a run's own pages or between two runs, and others are there
//! in small blocks, because large ones were refused; with room all are there, in the blocks in
//! which the predicted run reads them. A load that throws a file away before it reads it frees them
//! then.
//!
//! Of a file that is read without having been thrown away nothing is said: what is there at the
//! start has no event.

use std::collections::{HashMap, HashSet};

use super::pages::{Dropped, Filed};
use crate::program::{OpKind, Origin, Program};

/// A block with pages of a file that is in memory at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub file: u32,
    /// The first page's place in the file.
    pub index: u64,
    pub order: u8,
    /// Its first frame, that of a recorded block in whose place it is; 0: nothing says.
    pub pfn: u64,
}

impl Left {
    pub(super) fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// What the run `with_room`, in which these blocks are of files too, leaves for the next one of
/// files that it throws away first, and the blocks of these that `program` finds in their place:
/// no more than have room.
pub(super) fn left(
    program: &Program,
    (with_room, large): (&Program, &[Filed]),
    room: u64,
) -> (Vec<Left>, Vec<u32>) {
    let files = thrown_first(program);
    let mut is_live = vec![false; with_room.slots.len()];
    for op in &with_room.ops {
        match op.kind {
            OpKind::Alloc | OpKind::Bulk | OpKind::Direct => is_live[op.slot as usize] = true,
            OpKind::Free => is_live[op.slot as usize] = false,
            OpKind::Split | OpKind::Refresh | OpKind::Change => {}
        }
    }
    let is_held = |slot: &u32| program.slots[*slot as usize].origin == Origin::Held;
    let thrown = program.files.thrown.iter().filter(|(_, file)| files.contains(file));
    let away: Vec<u32> = thrown.map(|(slot, _)| *slot).filter(is_held).collect();
    let pages_of = |slot: &u32| 1_u64 << program.slots[*slot as usize].order;
    let room = room + away.iter().map(pages_of).sum::<u64>();
    let own = program.files.filed.iter().chain(large);
    let own = own.filter(|filed| is_live[filed.slot as usize] && files.contains(&filed.file));
    let blocks = own.map(|Filed { slot, file, index, .. }| {
        let order = with_room.slots[*slot as usize].order;
        Left { file: *file, index: *index, order, pfn: 0 }
    });
    let (mut all, mut pages, mut seen) = (Vec::new(), 0, HashSet::new());
    for block in blocks {
        if pages + block.pages() <= room && seen.insert((block.file, block.index)) {
            pages += block.pages();
            all.push(block);
        }
    }
    (all, away)
}

/// Files that a recording throws away before it reads them.
fn thrown_first(program: &Program) -> HashSet<u32> {
    let mut first_reads: HashMap<u32, u64> = HashMap::new();
    for op in program.ops.iter().filter(|op| op.kind.is_alloc()) {
        if let Some(Filed { file, .. }) = program.files.of(op.slot) {
            first_reads.entry(file).or_insert(op.time_ns);
        }
    }
    let is_first =
        |own: &&Dropped| first_reads.get(&own.file).is_some_and(|first| own.time_ns <= *first);
    program.files.dropped.iter().filter(is_first).map(|own| own.file).collect()
}
