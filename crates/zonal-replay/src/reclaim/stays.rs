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
//! - a large block that was refused is there, and the small ones that came in its place are not
//!   asked for.
//!
//! Blocks and pages differ: a page that was read in a block of 2 MiB may have come again by itself.
//! So a recorded block is *parts* of blocks that are there, and one of these is free when all of
//! its parts are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pages::{FilePages, Filed};
use crate::program::{NO_SLOT, Op, OpKind, Origin, Program, Slot};
use crate::world::Change;

/// Less room than a largest block is none.
const ROOM_MIN: u64 = 1 << zonal_trace::ORDER_MAX;
/// The file of pages of which nothing says where they belong; none of them comes back.
const NO_FILE: u32 = u32::MAX;

/// A trace with more room.
pub(crate) struct Stays {
    /// What is left to do.
    pub program: Program,
    /// Pages that are not read again.
    pub pages: u64,
}

/// `program` with room for so many pages of files more.
pub(crate) fn stays(program: &Program, room: u64) -> Stays {
    let FilePages { filed, reclaimed, dropped } = &program.files;
    let mut is_reclaimed = vec![false; program.slots.len()];
    reclaimed.iter().for_each(|slot| is_reclaimed[*slot as usize] = true);
    let mut cache = Cache::new(program, room);
    let mut dropped = dropped.iter().peekable();
    for op in &program.ops {
        while let Some((_, file)) = dropped.next_if(|(time_ns, _)| *time_ns <= op.time_ns) {
            cache.drop_file(*file, op);
        }
        match op.kind {
            OpKind::Alloc => cache.alloc(op, place_of(filed, op.slot)),
            OpKind::Free if is_reclaimed[op.slot as usize] => {
                cache.reclaim(op, place_of(filed, op.slot));
            }
            OpKind::Free => cache.free(op),
            OpKind::Change if cache.has_room() && is_of_reclaim(program, op) => {}
            OpKind::Change | OpKind::Refresh => cache.ops.push(*op),
        }
    }
    let Cache { ops, slots, pages, .. } = cache;
    let (changes, early) = (program.changes.clone(), program.early.clone());
    let (kernel, files) = (program.kernel.clone(), FilePages::default());
    Stays { program: Program { ops, slots, changes, early, kernel, files, ..*program }, pages }
}

fn place_of(filed: &[Filed], slot: u32) -> Option<Filed> {
    let at = filed.binary_search_by_key(&slot, |filed| filed.slot).ok()?;
    Some(filed[at])
}

/// Whether it is what reclaim does to the lists. The end of a run that did not begin is nothing.
fn is_of_reclaim(program: &Program, op: &Op) -> bool {
    match program.changes[op.slot as usize].change {
        Change::ReclaimBegins(_) | Change::AllEmptied | Change::Emptied(_) => true,
        Change::ReclaimEnds(_) | Change::Set(..) => false,
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
    /// Its turn to go; `None`: the rest of a large block, which is being read.
    turn: Option<u64>,
}

struct Cache {
    room: u64,
    ops: Vec<Op>,
    slots: Vec<Slot>,
    /// What recorded blocks are, where not themselves.
    parts: HashMap<u32, Vec<Part>>,
    /// Pages in use of blocks that are parts of others.
    left: HashMap<u32, u64>,
    /// By file and first page.
    extents: BTreeMap<(u32, u64), Extent>,
    /// Turns, and whose they are.
    queue: BTreeSet<(u64, (u32, u64))>,
    turns: u64,
    /// Pages that stay.
    held: u64,
    /// Pages that were not read again.
    pages: u64,
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
            turns: 0,
            held: 0,
            pages: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.held + ROOM_MIN <= self.room
    }

    fn alloc(&mut self, op: &Op, place: Option<Filed>) {
        let Some(place) = place else { return self.ops.push(*op) };
        let pages = 1 << self.slots[op.slot as usize].order;
        let (held, of_read) = self.take(place, pages);
        if of_read * 2 >= pages {
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
        self.ops.push(Op { slot: block, ..*op });
        self.left.insert(block, pages);
        self.parts.insert(op.slot, vec![Part { block, pages }]);
        let part = Part { block, pages: (1 << wanted) - pages };
        self.insert((file, index + pages), Extent { part, turn: None });
    }

    /// Takes out what is there of these pages; returns it, and how many pages it is.
    fn take(&mut self, Filed { file, index, .. }: Filed, pages: u64) -> (Vec<Part>, u64) {
        let end = index + pages;
        let before = self.extents.range(..(file, index)).next_back().map(|(key, _)| *key);
        let inside = self.extents.range((file, index)..(file, end)).map(|(key, _)| *key);
        let keys: Vec<(u32, u64)> = before.into_iter().chain(inside).collect();
        let (mut taken, mut sum) = (Vec::new(), 0);
        for key in keys {
            let Extent { part: Part { block, pages }, turn } = self.extents[&key];
            let (from, to) = (key.1.max(index), (key.1 + pages).min(end));
            if key.0 != file || from >= to {
                continue;
            }
            self.remove(&key);
            let own = |pages| Extent { part: Part { block, pages }, turn };
            if from > key.1 {
                self.insert(key, own(from - key.1));
            }
            if key.1 + pages > to {
                self.insert((file, to), own(key.1 + pages - to));
            }
            let part = Part { block, pages: to - from };
            if turn.is_some() {
                self.held -= part.pages;
                self.pages += part.pages;
            } else {
                match self.left.get_mut(&block) {
                    // All that was read of it is gone again.
                    None | Some(0) => continue,
                    Some(left) => *left += part.pages,
                }
            }
            sum += part.pages;
            taken.push(part);
        }
        (taken, sum)
    }

    /// Reclaim took the block: it stays, and others go if there are too many.
    fn reclaim(&mut self, op: &Op, place: Option<Filed>) {
        let (file, mut index) = match place {
            Some(Filed { file, index, .. }) => (file, index),
            None => (NO_FILE, u64::from(op.slot) << zonal_trace::ORDER_MAX),
        };
        for part in self.parts_of(op.slot) {
            self.go((file, index), op);
            self.turns += 1;
            self.held += part.pages;
            self.insert((file, index), Extent { part, turn: Some(self.turns) });
            index += part.pages;
        }
        while self.held > self.room
            && let Some((_, key)) = self.queue.first().copied()
        {
            self.go(key, op);
        }
    }

    fn insert(&mut self, key: (u32, u64), extent: Extent) {
        self.extents.insert(key, extent);
        if let Some(turn) = extent.turn {
            self.queue.insert((turn, key));
        }
    }

    fn remove(&mut self, key: &(u32, u64)) -> Option<Extent> {
        let extent = self.extents.remove(key)?;
        if let Some(turn) = extent.turn {
            self.queue.remove(&(turn, *key));
        }
        Some(extent)
    }

    /// Pages go that had stayed.
    fn go(&mut self, key: (u32, u64), op: &Op) {
        if let Some(Extent { part, turn: Some(_) }) = self.remove(&key) {
            self.held -= part.pages;
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
            *left = left.saturating_sub(part.pages);
            if *left == 0 {
                self.ops.push(Op { slot: part.block, kind: OpKind::Free, ..*op });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::Filer;
    use super::*;
    use crate::moves::MovesByPlace;
    use crate::program::Counts;
    use crate::reclaim::FilePages;
    use crate::world::Changed;
    use zonal_trace::{CachedPage, Event, EventKind, Notice};

    const READER: i32 = 9;
    const KSWAPD: i32 = 45;
    /// Flags of blocks that a file is read into.
    const GFP: u32 = 0x15_2c4a;

    /// A trace that is read as the compiler does it.
    #[derive(Default)]
    struct Trace {
        filer: Filer,
        ops: Vec<Op>,
        slots: Vec<Slot>,
        changes: Vec<Changed>,
    }

    impl Trace {
        fn see(&mut self, pid: i32, kind: EventKind) {
            self.filer.see(&Event { time_ns: self.ops.len() as u64, cpu: 0, pid, kind });
        }

        fn push(&mut self, slot: u32, kind: OpKind) {
            self.ops.push(Op { time_ns: self.ops.len() as u64, slot, cpu: 0, kind });
        }

        /// Reads pages of a file, in a block.
        fn read(&mut self, index: u64, order: u8) -> u32 {
            let slot = self.slots.len() as u32;
            let (before, left, origin) = (NO_SLOT, 0, Origin::Fresh);
            let (pfn, cpu, migratetype) = (u64::from(slot) + 1, 0, 1);
            let own = Slot { pfn, gfp: GFP, before, left, cpu, order, migratetype, origin };
            self.slots.push(own);
            self.filer.allocated(READER, slot, (order, 1, GFP));
            self.push(slot, OpKind::Alloc);
            let page = CachedPage { device: 8, inode: 3, index, order };
            if index.is_multiple_of(64) {
                self.see(READER, EventKind::Notice(Notice::CacheAdd(page)));
            }
            slot
        }

        fn free(&mut self, pid: i32, slot: u32) {
            self.filer.freed(pid, slot, 1);
            self.push(slot, OpKind::Free);
        }

        fn wake(&mut self) {
            self.see(KSWAPD, EventKind::Notice(Notice::KswapdWake { node: 0, order: 0 }));
        }

        fn with_room(self, room: u64) -> Stays {
            let program = Program {
                ops: self.ops,
                slots: self.slots,
                cpus: 1,
                span_ns: (0, 0),
                start_ns: 0,
                counts: Counts::default(),
                kernel: MovesByPlace::new(),
                changes: self.changes,
                early: Default::default(),
                files: self.filer.finish(),
            };
            stays(&program, room)
        }
    }

    /// What is left to do: of each block whether it is allocated, else freed.
    fn done(stays: &Stays) -> Vec<(u32, bool)> {
        let is_alloc = |op: &Op| op.kind == OpKind::Alloc;
        stays.program.ops.iter().map(|op| (op.slot, is_alloc(op))).collect()
    }

    /// 128 pages are read, reclaimed, read again and freed.
    fn twice() -> Trace {
        let mut trace = Trace::default();
        trace.wake();
        let first: Vec<u32> = (0..128).map(|index| trace.read(index, 0)).collect();
        first.iter().for_each(|slot| trace.free(KSWAPD, *slot));
        let again: Vec<u32> = (0..128).map(|index| trace.read(index, 0)).collect();
        again.iter().for_each(|slot| trace.free(READER, *slot));
        trace
    }

    #[test]
    fn what_has_room_is_neither_reclaimed_nor_read_again() {
        let stays = twice().with_room(1 << 20);
        assert_eq!(stays.pages, 128);
        // The first blocks are freed where the later ones had been.
        let expected = (0..128).map(|slot| (slot, true)).chain((0..128).map(|slot| (slot, false)));
        assert_eq!(done(&stays), expected.collect::<Vec<_>>());
        assert_eq!(stays.program.ops[128].time_ns, 384);
    }

    #[test]
    fn without_room_nothing_changes_and_in_less_room_the_first_pages_go() {
        let all = twice();
        let ops = all.ops.clone();
        let stays = all.with_room(0);
        assert_eq!((stays.pages, &stays.program.ops), (0, &ops));
        let stays = twice().with_room(100);
        assert_eq!(stays.pages, 100, "the last 100, whose turn to go had not come");
        let (allocs, frees): (Vec<_>, Vec<_>) = done(&stays).into_iter().partition(|op| op.1);
        assert_eq!((allocs.len(), frees.len()), (156, 156));
        assert_eq!(done(&stays)[128], (0, false), "the first goes where the 101st was taken");
    }

    #[test]
    fn a_block_goes_when_all_of_its_pages_have() {
        let mut trace = Trace::default();
        trace.wake();
        let large = trace.read(64, 6);
        trace.free(KSWAPD, large);
        let small: Vec<u32> = (64..128).map(|index| trace.read(index, 0)).collect();
        small.iter().for_each(|slot| trace.free(READER, *slot));
        let stays = trace.with_room(1 << 20);
        assert_eq!(stays.pages, 64);
        assert_eq!(done(&stays), [(large, true), (large, false)]);
        assert_eq!(stays.program.ops[1].time_ns, 129, "with the last of the small ones");
    }

    #[test]
    fn a_large_block_that_was_refused_is_there_while_there_is_room() {
        let trace = || {
            let mut trace = Trace::default();
            let refused = EventKind::Alloc { pfn: None, order: 6, migratetype: 1, gfp: GFP };
            trace.see(READER, refused);
            let small: Vec<u32> = (0..64).map(|index| trace.read(index, 0)).collect();
            small.iter().for_each(|slot| trace.free(READER, *slot));
            trace
        };
        let stays = trace().with_room(1 << 20);
        let block = 64;
        assert_eq!(done(&stays), [(block, true), (block, false)]);
        assert_eq!(stays.program.slots[64].order, 6);
        assert_eq!(stays.pages, 0, "all of it is read");
        assert_eq!(done(&trace().with_room(0)).len(), 128);
    }

    #[test]
    fn a_file_that_is_thrown_away_is_read_again() {
        let mut trace = Trace::default();
        trace.wake();
        let first: Vec<u32> = (0..128).map(|index| trace.read(index, 0)).collect();
        first.iter().take(64).for_each(|slot| trace.free(KSWAPD, *slot));
        let page = CachedPage { device: 8, inode: 3, index: 64, order: 0 };
        trace.see(READER, EventKind::Notice(Notice::CacheRemove(page)));
        first.iter().skip(64).for_each(|slot| trace.free(READER, *slot));
        for index in 0..64 {
            trace.read(index, 0);
        }
        let stays = trace.with_room(1 << 20);
        assert_eq!((stays.pages, done(&stays).len()), (0, 128 + 128 + 64));
    }

    #[test]
    fn reclaim_does_not_empty_lists_while_there_is_room() {
        let trace = || {
            let mut trace = twice();
            for change in [Change::ReclaimBegins(0), Change::ReclaimEnds(0), Change::AllEmptied] {
                trace.push(trace.changes.len() as u32, OpKind::Change);
                trace.changes.push(Changed { time_ns: 0, cpu: 0, change });
            }
            trace
        };
        let changes = |stays: Stays| -> Vec<u32> {
            let ops = stays.program.ops.into_iter();
            ops.filter(|op| op.kind == OpKind::Change).map(|op| op.slot).collect()
        };
        assert_eq!(changes(trace().with_room(1 << 20)), [1], "an end of nothing");
        assert_eq!(changes(trace().with_room(0)), [0, 1, 2]);
    }

    #[test]
    fn a_place_that_no_file_has_is_none() {
        let mut trace = Trace::default();
        trace.wake();
        let slot = trace.read(u64::MAX << 6, 6);
        trace.free(KSWAPD, slot);
        let again = trace.read(u64::MAX << 6, 6);
        trace.free(READER, again);
        let stays = trace.with_room(1 << 20);
        // The first one stays, as a page of nobody's file.
        assert_eq!((stays.pages, done(&stays).len()), (0, 3));
    }

    #[test]
    fn nothing_is_known_of_a_trace_without_files() {
        let found = FilePages::default();
        assert!(found.filed.is_empty() && found.reclaimed.is_empty());
        let mut trace = Trace::default();
        let slot = trace.read(1, 0);
        trace.free(READER, slot);
        assert_eq!(done(&trace.with_room(9000)), [(slot, true), (slot, false)]);
    }
}
