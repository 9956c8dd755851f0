//! What a run leaves in memory for the next one.
//!
//! ```text
//!              start               before the first read        end
//!  recorded    a is in memory      the load throws a away       a, b, c
//!  with room   a, b, c are         it throws a, b, c away       a, b, c
//! ```
//! A load that is run again and again begins with the files of the run before. Recorded, some of
//! them had been reclaimed since, for a run's own pages or between two runs; with room they are
//! there. A load that throws a file away before it reads it frees them then.
//!
//! Of a file that is read without having been thrown away nothing is said: what is there at the
//! start has no event.

use std::collections::{HashMap, HashSet};

use super::pages::{Dropped, Filed, SAMPLED_BITS};
use crate::program::{OpKind, Program};

/// A block with pages of a file that is in memory at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub file: u32,
    /// The first page's place in the file.
    pub index: u64,
    pub order: u8,
}

impl Left {
    pub(super) fn pages(&self) -> u64 {
        1 << self.order
    }

    /// The samples that it covers, or is covered by.
    fn samples(&self) -> impl Iterator<Item = (u32, u64)> + use<> {
        let (file, first) = (self.file, self.index >> SAMPLED_BITS);
        let last = (self.index + self.pages() - 1) >> SAMPLED_BITS;
        (first..=last).map(move |sample| (file, sample))
    }
}

/// What the run `with_room`, in which these blocks are of files too, leaves for the next one beside
/// what `program` finds: of files that it throws away first, and no more than have room.
pub(super) fn left(
    program: &Program,
    (with_room, large): (&Program, &[Filed]),
    room: u64,
) -> Vec<Left> {
    let found = Found::new(program);
    let mut is_live = vec![false; with_room.slots.len()];
    for op in &with_room.ops {
        match op.kind {
            OpKind::Alloc | OpKind::Bulk => is_live[op.slot as usize] = true,
            OpKind::Free => is_live[op.slot as usize] = false,
            OpKind::Split | OpKind::Refresh | OpKind::Change => {}
        }
    }
    let own = program.files.filed.iter().chain(large).filter(|filed| is_live[filed.slot as usize]);
    let blocks = own.map(|Filed { slot, file, index, .. }| {
        let (file, index) = (*file, *index);
        Left { file, index, order: with_room.slots[*slot as usize].order }
    });
    let (mut all, mut pages, mut seen) = (Vec::new(), 0, HashSet::new());
    for block in blocks.flat_map(|block| found.missing(block)) {
        if pages + block.pages() <= room && seen.insert((block.file, block.index)) {
            pages += block.pages();
            all.push(block);
        }
    }
    all
}

/// What a recording finds of files that it throws away before it reads them.
struct Found {
    files: HashSet<u32>,
    samples: HashSet<(u32, u64)>,
}

impl Found {
    fn new(program: &Program) -> Found {
        let mut first_reads: HashMap<u32, u64> = HashMap::new();
        for op in program.ops.iter().filter(|op| op.kind.is_alloc()) {
            if let Some(Filed { file, .. }) = program.files.of(op.slot) {
                first_reads.entry(file).or_insert(op.time_ns);
            }
        }
        let (mut files, mut samples) = (HashSet::new(), HashSet::new());
        for Dropped { time_ns, file, index, order } in program.files.dropped.iter().copied() {
            let order = order.min(zonal_trace::ORDER_MAX);
            if first_reads.get(&file).is_some_and(|first| time_ns <= *first) {
                files.insert(file);
                samples.extend(Left { file, index, order }.samples());
            }
        }
        Found { files, samples }
    }

    /// What is not found of a block: all of it, or those samples that are not.
    fn missing(&self, block: Left) -> Vec<Left> {
        if !self.files.contains(&block.file) {
            return Vec::new();
        }
        let (there, missing): (Vec<_>, Vec<_>) =
            block.samples().partition(|sample| self.samples.contains(sample));
        if there.is_empty() {
            return vec![block];
        }
        let of_sample = |(file, sample): (u32, u64)| Left {
            file,
            index: sample << SAMPLED_BITS,
            order: SAMPLED_BITS,
        };
        missing.into_iter().map(of_sample).collect()
    }
}
