//! Programs made by hand, on the sample's machine.

use super::*;
use crate::moves::total;
use crate::progress::unwatched;
use crate::replay::{Prepared, Replay};
use zonal_trace::samples;

/// Pages of one call of the bulk allocator.
const PAGES: u32 = 16;

/// Pages drained where two blocks of order 1 are freed behind 40 times so many pages, allocated by
/// such steps and freed again.
fn drained(kind: OpKind) -> (u64, Outcome) {
    let recording = samples::zlib_make_j4().unwrap();
    let machine = recording.description();
    let map = ZoneMap::new(machine);
    let replay = Replay::new(&recording).policy(Policy::LINUX_6_12);
    let prepared = replay.prepare((machine, &map), Recorded::default(), &mut unwatched).unwrap();
    let Prepared { mut program, told, .. } = prepared;
    let gfp = Gfp::KERNEL.bits();
    let origin = Origin::Fresh;
    let slot = Slot { gfp, origin, before: NO_SLOT, order: 0, ..program.slots[0] };
    program.slots = vec![slot; PAGES as usize];
    program.slots.extend([Slot { order: 1, ..slot }; 2]);
    let (pages, blocks) = (0..PAGES, [PAGES, PAGES + 1]);
    let mut time_ns = program.start_ns;
    let mut ops = Vec::new();
    let mut then = |kind, slots: &mut dyn Iterator<Item = u32>| {
        time_ns += 1000;
        ops.extend(slots.map(|slot| Op { time_ns, slot, cpu: 0, kind }));
    };
    then(OpKind::Alloc, &mut blocks.into_iter());
    for _ in 0..40 {
        then(kind, &mut pages.clone());
        then(OpKind::Free, &mut pages.clone());
    }
    then(OpKind::Free, &mut blocks.into_iter());
    (program.ops, program.changes) = (ops, Vec::new());
    let settings = Settings::of(&recording).unwrap();
    let setup = Setup::new(Policy::LINUX_6_12, Recorded::default(), &program, (&told, &settings));
    let (outcome, _) = super::replay(machine, &map, &program, setup, &mut unwatched).unwrap();
    (total(&outcome.counted.moves).drain_pages, outcome)
}

/// The bulk allocator does not halve `free_count` (LB D.9), which single allocations do (LB E.6):
/// so lists that it served are drained by a block of order 1 behind many frees (LB E.7).
#[test]
fn pages_of_one_bulk_call_are_played_by_one() {
    let (drained_after_bulk, outcome) = drained(OpKind::Bulk);
    assert_eq!(outcome.faults, [""; 0]);
    assert_eq!(outcome.allocs, u64::from(40 * PAGES) + 2);
    assert_eq!((outcome.frees, outcome.failed), (outcome.allocs, 0));
    assert!(drained_after_bulk > 0);
    let (drained_after_singles, outcome) = drained(OpKind::Alloc);
    assert_eq!(outcome.allocs, u64::from(40 * PAGES) + 2);
    assert_eq!(drained_after_singles, 0);
}
