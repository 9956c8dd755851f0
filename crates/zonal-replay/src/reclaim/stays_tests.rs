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
        let slot = self.slot(order, (GFP, Origin::Fresh));
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

    /// Compaction by the reader frees the blocks.
    fn compact(&mut self, slots: &[u32]) {
        let begin = Notice::CompactionBegin { zone_start: 0, sync: true };
        let end = Notice::CompactionEnd { zone_start: 0, sync: true, status: 8 };
        self.see(READER, EventKind::Notice(begin));
        slots.iter().for_each(|slot| self.free(READER, *slot));
        self.see(READER, EventKind::Notice(end));
    }

    /// A block that was in use from the start.
    fn held(&mut self, order: u8) -> u32 {
        self.slot(order, (0, Origin::Held))
    }

    /// A block with its slot, at a frame of its own.
    fn slot(&mut self, order: u8, (gfp, origin): (u32, Origin)) -> u32 {
        let slot = self.slots.len() as u32;
        let (pfn, before) = (u64::from(slot) + 1, NO_SLOT);
        let (left, cpu, migratetype, past_lists) = (0, 0, 1, false);
        let own = Slot { pfn, gfp, before, left, cpu, order, migratetype, origin, past_lists };
        self.slots.push(own);
        slot
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
            silences: Default::default(),
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

/// 128 pages are read, moved, reclaimed where they went, read again and freed.
fn moved() -> Trace {
    let mut trace = Trace::default();
    trace.wake();
    let first: Vec<u32> = (0..128).map(|index| trace.read(index, 0)).collect();
    trace.compact(&first);
    for _ in 0..128 {
        let elsewhere = trace.held(0);
        trace.free(KSWAPD, elsewhere);
    }
    let again: Vec<u32> = (0..128).map(|index| trace.read(index, 0)).collect();
    again.iter().for_each(|slot| trace.free(READER, *slot));
    trace
}

#[test]
fn what_compaction_moved_is_not_read_again_while_there_is_room() {
    let stays = moved().with_room(1 << 20);
    assert_eq!(stays.pages, 128);
    let expected = (0..128).map(|slot| (slot, true)).chain((0..128).map(|slot| (slot, false)));
    assert_eq!(done(&stays), expected.collect::<Vec<_>>());
    let all = moved();
    let ops = all.ops.clone();
    let stays = all.with_room(0);
    assert_eq!((stays.pages, &stays.program.ops), (0, &ops), "no room: all as recorded");
}

#[test]
fn a_block_that_pages_were_moved_to_is_not_taken_while_there_is_room() {
    let trace = |is_moved_on: bool| {
        let mut trace = Trace::default();
        trace.wake();
        let page = trace.read(0, 0);
        trace.compact(&[page]);
        let elsewhere = trace.held(0);
        trace.slots[elsewhere as usize].origin = Origin::Again;
        trace.filer.made_up(elsewhere);
        trace.push(elsewhere, OpKind::Alloc);
        match is_moved_on {
            true => trace.compact(&[elsewhere]),
            false => trace.free(KSWAPD, elsewhere),
        }
        let again = trace.read(0, 0);
        trace.free(READER, again);
        trace
    };
    for is_moved_on in [false, true] {
        let stays = trace(is_moved_on).with_room(1 << 20);
        assert_eq!((stays.pages, done(&stays)), (1, vec![(0, true), (0, false)]));
        let stays = trace(is_moved_on).with_room(0);
        assert_eq!((stays.pages, done(&stays).len()), (0, 6));
    }
}

#[test]
fn a_block_that_was_made_up_is_none_that_a_thread_reads_into() {
    let mut trace = Trace::default();
    let slot = trace.read(1, 0);
    let elsewhere = trace.held(0);
    trace.filer.made_up(elsewhere);
    let page = CachedPage { device: 8, inode: 3, index: 64, order: 0 };
    trace.see(READER, EventKind::Notice(Notice::CacheAdd(page)));
    let filed = trace.filer.finish().filed;
    assert_eq!(filed.iter().map(|filed| filed.slot).collect::<Vec<_>>(), [slot]);
}

#[test]
fn what_was_moved_takes_room_once_it_is_reclaimed() {
    let least = ROOM_MIN;
    let of = |reclaimed: bool| {
        let mut trace = Trace::default();
        trace.wake();
        let moved = trace.read(0, 0);
        trace.compact(&[moved]);
        if reclaimed {
            let elsewhere = trace.held(0);
            trace.free(KSWAPD, elsewhere);
        }
        for index in 1..=least {
            let slot = trace.read(index * 64, 0);
            trace.free(KSWAPD, slot);
        }
        let again = trace.read(0, 0);
        trace.free(READER, again);
        trace.with_room(least).pages
    };
    assert_eq!((of(false), of(true)), (1, 0), "taken first, it goes first");
}

#[test]
fn compaction_gives_back_what_it_took_and_moves_what_is_of_no_file() {
    let mut trace = Trace::default();
    let (taken, held, anonymous) = (trace.held(3), trace.held(0), trace.read(1, 0));
    trace.compact(&[taken, anonymous]);
    trace.free(READER, held);
    let stays = trace.with_room(1 << 20);
    assert_eq!(done(&stays), [(anonymous, true), (anonymous, false), (held, false)]);
}

#[test]
fn a_file_that_was_moved_and_thrown_away_is_read_again() {
    let mut trace = Trace::default();
    let slot = trace.read(64, 0);
    trace.compact(&[slot]);
    let page = CachedPage { device: 8, inode: 3, index: 64, order: 0 };
    trace.see(READER, EventKind::Notice(Notice::CacheRemove(page)));
    let again = trace.read(64, 0);
    let stays = trace.with_room(1 << 20);
    assert_eq!((stays.pages, done(&stays).len()), (0, 3));
    assert_eq!(done(&stays)[1..], [(slot, false), (again, true)]);
}

/// What is in memory of a file is thrown away, these blocks; then 128 pages are read, in blocks.
fn again_and_again(there: &[(u64, u8)], order: u8) -> Trace {
    let mut trace = Trace::default();
    for (index, order) in there.iter().copied() {
        let slot = trace.held(order);
        let page = CachedPage { device: 8, inode: 3, index, order };
        trace.see(READER, EventKind::Notice(Notice::CacheRemove(page)));
        trace.free(READER, slot);
    }
    (0..128 >> order).for_each(|block| _ = trace.read(block << order, order));
    trace
}

/// Frames and orders of the blocks that are there at the start beside the recorded ones, all of
/// which are freed before anything is read.
fn found(stays: &Stays, recorded: usize) -> Vec<(u64, u8)> {
    let slots = &stays.program.slots[recorded..];
    let slots = (recorded as u32..).zip(slots).filter(|(_, slot)| slot.origin == Origin::Held);
    let (slots, found): (BTreeSet<u32>, Vec<_>) =
        slots.map(|(at, slot)| (at, (slot.pfn, slot.order))).unzip();
    let first = done(stays).into_iter().take(slots.len()).collect::<BTreeSet<_>>();
    assert_eq!(first, slots.into_iter().map(|slot| (slot, false)).collect());
    found
}

#[test]
fn a_run_begins_with_what_the_one_before_left_in_place_of_what_this_one_throws_away() {
    let run = |there: &[(u64, u8)], order, room| {
        let before = again_and_again(there, order);
        let (ops, recorded) = (before.ops.len(), before.slots.len());
        let stays = before.with_room(room);
        let found = found(&stays, recorded);
        assert_eq!(stays.program.ops.len() + there.len(), ops + found.len());
        found
    };
    let elsewhere = |order, count| vec![(0, order); count];
    // The first page lies where the recorded one lay; the others had been reclaimed in between.
    let expected = [vec![(1, 0)], elsewhere(0, 127)].concat();
    assert_eq!(run(&[(0, 0)], 0, 1 << 20), expected);
    assert_eq!(run(&[(0, 0)], 0, 10), expected[..11], "no more than have room");
    assert_eq!(run(&[(0, 6)], 7, 1 << 20), [(0, 7)], "one large block, and not two halves");
    let in_halves = [vec![(1, 5), (33, 5)], elsewhere(5, 2)].concat();
    assert_eq!(run(&[(64, 6)], 5, 1 << 20), in_halves);
    assert_eq!(found(&again_and_again(&[], 0).with_room(1 << 20), 128), [], "not thrown away");
}

#[test]
fn a_reader_that_begins_between_two_samples_is_placed_by_the_first_of_them() {
    let mut trace = Trace::default();
    let slots: Vec<u32> = (60..65).map(|index| trace.read(index, 0)).collect();
    let found = trace.filer.finish().filed;
    let found: Vec<(u32, u64)> = found.iter().map(|filed| (filed.slot, filed.index)).collect();
    assert_eq!(found, slots.into_iter().zip(60..).collect::<Vec<_>>());
}

#[test]
fn what_grows_again_after_a_refusal_stands_for_large_blocks() {
    let mut trace = Trace::default();
    trace.see(READER, EventKind::Alloc { pfn: None, order: 9, migratetype: 1, gfp: GFP });
    for (index, order) in [(0, 0), (64, 2), (512, 9), (1024, 0)] {
        trace.read(index, order);
    }
    let wanted: Vec<u8> = trace.filer.finish().filed.iter().map(|filed| filed.wanted).collect();
    assert_eq!(wanted, [9, 9, 0, 0]);
}

#[test]
fn a_large_block_that_was_asked_for_in_vain_is_not_while_there_is_room() {
    for (room, ops) in [(1 << 20, 1), (0, 3)] {
        let mut trace = Trace::default();
        trace.read(0, 0);
        let slot = trace.slot(9, (GFP, Origin::Fresh));
        trace.filer.allocated(READER, slot, (9, 1, GFP));
        trace.push(slot, OpKind::Alloc);
        trace.free(READER, slot);
        assert_eq!(trace.with_room(room).program.ops.len(), ops, "room {room}");
    }
}

#[test]
fn a_file_that_is_read_first_and_then_thrown_away_is_not_found_at_the_start() {
    let mut trace = again_and_again(&[], 0);
    let page = CachedPage { device: 8, inode: 3, index: 0, order: 0 };
    trace.see(READER, EventKind::Notice(Notice::CacheRemove(page)));
    trace.read(0, 0);
    let recorded = trace.slots.len();
    assert_eq!(found(&trace.with_room(1 << 20), recorded), []);
}

#[test]
fn after_lost_events_nobody_is_known_to_move_pages() {
    let mut trace = Trace::default();
    trace.wake();
    let slot = trace.read(64, 0);
    let begin = Notice::CompactionBegin { zone_start: 0, sync: true };
    trace.see(KSWAPD, EventKind::Notice(begin));
    trace.see(READER, EventKind::Lost { events: 1 });
    trace.free(KSWAPD, slot);
    let found = trace.filer.finish();
    assert_eq!((found.reclaimed, found.moved), (vec![slot], vec![]));
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

#[test]
fn pages_that_are_in_two_places_are_in_the_later_one() {
    let mut trace = Trace::default();
    trace.wake();
    let large = trace.read(64, 7);
    let second = trace.read(128, 6);
    trace.free(KSWAPD, large);
    trace.free(KSWAPD, second);
    let third = trace.read(64, 6);
    let others: Vec<u32> = (3..35).map(|at| trace.read(at * 64, 6)).collect();
    others.iter().for_each(|slot| trace.free(KSWAPD, *slot));
    trace.free(READER, third);
    let stays = trace.with_room(1 << 10);
    assert_eq!(stays.pages, 64, "the first half of the large block");
    let frees = done(&stays).into_iter().filter(|(_, is_alloc)| !is_alloc).count();
    assert_eq!(frees, 2 + 32 - 16, "1024 pages stay");
}

/// Numbers of a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Anything that events can say: files read at odd places and by orders that do not fit, blocks
/// that were never given out, ends without beginnings.
fn anything(seed: u64) -> Trace {
    let mut numbers = Numbers(seed);
    let mut trace = Trace::default();
    let mut live = Vec::new();
    for _ in 0..400 {
        let thread = [READER, KSWAPD, 11][numbers.below(3) as usize];
        let order = [0, 0, 2, 6, 9, 10][numbers.below(6) as usize];
        let index = match numbers.below(20) {
            0 => u64::MAX - numbers.below(99),
            1 => (1 << 51) - numbers.below(99),
            2 => (1 << 51) - 64,
            _ => numbers.below(40) * 64 + numbers.below(2) * numbers.below(64),
        };
        let page = CachedPage { device: 8, inode: 3 + numbers.below(2), index, order };
        let notice = |notice| EventKind::Notice(notice);
        match numbers.below(16) {
            0..5 => live.push(trace.read(index, order)),
            5 => live.push(trace.held(order)),
            6 => {
                let slot = trace.held(order);
                trace.slots[slot as usize].origin = Origin::Again;
                trace.filer.made_up(slot);
                trace.push(slot, OpKind::Alloc);
                live.push(slot);
            }
            7 => trace.wake(),
            8 => trace.see(thread, notice(Notice::CacheAdd(page))),
            9 => trace.see(thread, notice(Notice::CacheRemove(page))),
            10 => {
                let (zone_start, sync) = (numbers.below(9), true);
                trace.see(thread, notice(Notice::CompactionBegin { zone_start, sync }));
            }
            11 => {
                let (zone_start, sync, status) = (numbers.below(9), true, 8);
                trace.see(thread, notice(Notice::CompactionEnd { zone_start, sync, status }));
            }
            12 => {
                let refused = EventKind::Alloc { pfn: None, order, migratetype: 1, gfp: GFP };
                trace.see(thread, refused);
            }
            _ if live.is_empty() => {}
            _ => {
                let slot = live.swap_remove(numbers.below(live.len() as u64) as usize);
                trace.free(thread, slot);
            }
        }
    }
    trace
}

#[test]
fn whatever_a_trace_says_each_block_is_given_out_once_and_freed_once_after() {
    for seed in 1..400 {
        let room = [0, 1, ROOM_MIN, 1500, 1 << 20, u64::MAX][seed as usize % 6];
        let trace = anything(seed * 0x9e37_79b9);
        let (ops, recorded) = (trace.ops.len(), trace.slots.len());
        let stays = trace.with_room(room.saturating_sub(ROOM_MIN));
        let slots = &stays.program.slots;
        let held: Vec<u32> = (0..slots.len() as u32)
            .filter(|slot| slots[*slot as usize].origin == Origin::Held)
            .collect();
        let found = slots.iter().skip(recorded).filter(|slot| slot.origin == Origin::Held);
        let ops = ops + found.count();
        let (mut given, mut freed) = (BTreeSet::from_iter(held), BTreeSet::new());
        assert!(stays.program.ops.len() <= ops, "seed {seed}");
        for (slot, is_alloc) in done(&stays) {
            let is_first = match is_alloc {
                true => given.insert(slot),
                false => given.contains(&slot) && freed.insert(slot),
            };
            assert!(is_first, "seed {seed}, room {room}, block {slot}, given out: {is_alloc}");
        }
        assert!(stays.pages <= 1 << 20, "seed {seed}: {} pages", stays.pages);
        let times = stays.program.ops.iter().map(|op| op.time_ns);
        assert!(times.is_sorted(), "seed {seed}");
    }
}
