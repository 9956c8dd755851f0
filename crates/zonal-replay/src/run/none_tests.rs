//! Programs made by hand, on the sample's machine.

use super::*;
use crate::moves::{Moves, total};
use crate::progress::unwatched;
use crate::replay::{Prepared, Replay};
use zonal_trace::{Pageset, samples};

/// Pages of one call of the bulk allocator.
const PAGES: u32 = 16;

/// Plays what is made of a slot of the sample and its starting time.
fn played(make: impl FnOnce(Slot, u64) -> (Vec<Slot>, Vec<Op>)) -> Outcome {
    played_on(samples::zlib_make_j4().unwrap().description(), make)
}

/// The same on a machine that differs from the sample's.
fn played_on(
    machine: &MachineDescription,
    make: impl FnOnce(Slot, u64) -> (Vec<Slot>, Vec<Op>),
) -> Outcome {
    played_by(Policy::LINUX_6_12, machine, make)
}

fn played_by(
    policy: Policy,
    machine: &MachineDescription,
    make: impl FnOnce(Slot, u64) -> (Vec<Slot>, Vec<Op>),
) -> Outcome {
    played_under(&[], policy, machine, make)
}

/// With settings over the recorded ones.
fn played_under(
    sysctls: &[(Sysctl, i64)],
    policy: Policy,
    machine: &MachineDescription,
    make: impl FnOnce(Slot, u64) -> (Vec<Slot>, Vec<Op>),
) -> Outcome {
    let recording = samples::zlib_make_j4().unwrap();
    let map = ZoneMap::new(machine);
    let replay = Replay::new(&recording).policy(policy);
    let prepared = replay.prepare((machine, &map), Recorded::default(), &mut unwatched).unwrap();
    let Prepared { mut program, told, shown, .. } = prepared;
    let (gfp, origin) = (Gfp::KERNEL.bits(), Origin::Fresh);
    let past_lists = false;
    let own = Slot { gfp, origin, before: NO_SLOT, order: 0, past_lists, ..program.slots[0] };
    (program.slots, program.ops) = make(own, program.start_ns);
    program.changes = Vec::new();
    let settings = Settings::of(&recording).unwrap();
    let known = (&told, &shown, &settings);
    let setup = Setup::new(policy, Recorded::default(), &program, known);
    let setup = Setup { sysctls, ..setup };
    super::replay(machine, &map, &program, setup, &mut unwatched).unwrap().0
}

/// Pages drained where two blocks of order 1 are freed behind 40 times so many pages, allocated by
/// such steps and freed again.
fn drained(kind: OpKind) -> (u64, Outcome) {
    let outcome = played(|own, mut time_ns| {
        let mut slots = vec![own; PAGES as usize];
        slots.extend([Slot { order: 1, ..own }; 2]);
        let (pages, blocks) = (0..PAGES, [PAGES, PAGES + 1]);
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
        (slots, ops)
    });
    (total(&outcome.counted.moves).drain_pages, outcome)
}

/// What interrupts free while their CPU uses its lists has to be refilled (LB E.2).
#[test]
fn frees_past_the_lists_leave_no_page_on_one() {
    const MANY: u64 = 1000;
    let refilled = |past_lists| {
        let outcome = played(|own, start_ns| {
            let slot = Slot { past_lists, ..own };
            let op = |turn, kind| Op { time_ns: start_ns + turn * 1000, slot: 0, cpu: 0, kind };
            let turn = |turn| [op(turn, OpKind::Alloc), op(turn, OpKind::Free)];
            (vec![slot], (0..MANY).flat_map(turn).collect())
        });
        assert_eq!(outcome.faults, [""; 0]);
        assert_eq!((outcome.allocs, outcome.frees, outcome.failed), (MANY, MANY, 0));
        total(&outcome.counted.moves).refill_pages
    };
    let before = refilled(false);
    let past = refilled(true);
    // One list of pages is enough for a page that comes back to it.
    assert!(before < MANY / 2 && (MANY - before..=2 * MANY).contains(&past), "{before}, {past}");
}

/// What finds the lists of its CPU in use takes from the buddy, and leaves them as they are.
#[test]
fn allocations_past_the_lists_fetch_nothing_for_them() {
    const MANY: u32 = 500;
    let moved = |kind| {
        let outcome = played(|own, start_ns| {
            let op = |slot: u32| Op { time_ns: start_ns + u64::from(slot), slot, cpu: 0, kind };
            (vec![own; MANY as usize], (0..MANY).map(op).collect())
        });
        assert_eq!(outcome.faults, [""; 0]);
        assert_eq!((outcome.allocs, outcome.failed), (MANY.into(), 0));
        total(&outcome.counted.moves)
    };
    assert!(moved(OpKind::Alloc).refill_pages >= MANY.into());
    assert_eq!(moved(OpKind::Direct), Moves { direct_pages: MANY.into(), ..Moves::default() });
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

/// Unmovable pages come from DMA32 where Normal has no free page of their type and no free
/// pageblock to take (LB B.7), which fills the list of another zone.
#[test]
fn a_zone_without_a_free_pageblock_is_passed_by_for_pages_of_another_type() {
    const MANY: u32 = 1000;
    let refilled = |machine: &MachineDescription| {
        let outcome = played_on(machine, |own, time_ns| {
            let slot = Slot { migratetype: 0, ..own };
            let ops = (0..MANY).map(|slot| Op { time_ns, slot, cpu: 0, kind: OpKind::Alloc });
            (vec![slot; MANY as usize], ops.collect())
        });
        assert_eq!((outcome.faults, outcome.failed), (Vec::new(), 0));
        let map = ZoneMap::new(machine);
        let moves = outcome.counted.moves;
        let of = |kind: &str| {
            let zone = map.zones().iter().position(|zone| zone.kind == kind);
            moves.get(&(zone, 0)).map_or(0, |moves| moves.refill_pages)
        };
        [of("DMA32"), of("Normal")]
    };
    let mut machine = samples::zlib_make_j4().unwrap().description().clone();
    let [low, normal] = refilled(&machine);
    // Some are on lists at the start.
    let most = u64::from(MANY) - 100;
    assert!(low == 0 && normal >= most, "{low}, {normal}");
    // As many pageblocks as are free: none, and one.
    for row in machine.pagetypeinfo.iter_mut().flat_map(|info| &mut info.free) {
        row.counts
            .iter_mut()
            .filter(|_| row.migratetype != "Movable")
            .for_each(|own| own.blocks = 0);
    }
    let mut has = |pageblocks: u64| {
        let blocks = machine.buddyinfo.iter_mut().find(|own| own.zone == "Normal").unwrap();
        blocks.free_blocks.fill(0);
        blocks.free_blocks[8..10].copy_from_slice(&[200, pageblocks]);
        let start = machine.start.iter_mut().flat_map(|start| &mut start.zones);
        start
            .filter(|zone| zone.kind == "Normal")
            .for_each(|zone| zone.free = 51_200 + (pageblocks << 9));
        refilled(&machine)
    };
    let [low, normal] = has(0);
    assert!(low >= most && normal < 100, "{low}, {normal}");
    let [low, normal] = has(1);
    assert!((400..=600).contains(&normal) && low >= most - 600, "{low}, {normal}");
}

/// The lower bound of lists comes from the low watermark, boost included (LB E.4), when somebody
/// writes the sysctl of their fraction, and stays when the boost has passed.
#[test]
fn lists_have_the_bound_that_was_computed_while_their_zone_was_boosted() {
    let mut machine = samples::zlib_make_j4().unwrap().description().clone();
    let played = |policy: Policy, machine: &MachineDescription| {
        let outcome = played_by(policy, machine, |own, time_ns| {
            let op = |kind| Op { time_ns, slot: 0, cpu: 0, kind };
            (vec![own], [op(OpKind::Alloc), op(OpKind::Free)].repeat(100))
        });
        assert_eq!((outcome.faults, outcome.failed), (Vec::new(), 0));
        let boosted = outcome.notes.iter().filter(|note| note.contains("was boosted")).count();
        (boosted, total(&outcome.counted.moves).drain_pages)
    };
    assert_eq!(played(Policy::LINUX_6_12, &machine), (0, 0));
    let cpus = u64::from(machine.cpus.unwrap());
    let normal = machine.zones.iter().find(|zone| zone.kind == "Normal").unwrap();
    let (low, high) = (normal.low, normal.high);
    let mut with_bound = |policy: Policy, bound: u64, is_told: bool| {
        let zones = machine.start.iter_mut().flat_map(|start| &mut start.zones);
        let normal = zones.filter(|zone| zone.kind == "Normal");
        for set in normal.flat_map(|zone| &mut zone.pagesets) {
            // With room for a refill.
            let count = if set.cpu == 0 { bound - 200 } else { 0 };
            *set = Pageset { count, high: bound, high_min: is_told.then_some(bound), ..*set };
        }
        played(policy, &machine)
    };
    // A whole boost is half as much again as the high watermark (LB C.4).
    let most = (low + high * 3 / 2) / cpus;
    for bound in [low / cpus + 1, (low + 512) / cpus, most] {
        assert_eq!(with_bound(Policy::LINUX_6_12, bound, true), (1, 0), "{bound}");
        // A limit that does not move is the bound.
        assert_eq!(with_bound(Policy::LINUX_6_6, bound, false), (1, 0), "{bound}");
    }
    // No boost explains these: lists are those of the watermarks, which the first free makes short.
    for (policy, is_told) in [(Policy::LINUX_6_12, true), (Policy::LINUX_6_6, false)] {
        let (notes, drained) = with_bound(policy, most + 1, is_told);
        assert!(notes == 0 && drained > 0, "{notes}, {drained}");
    }
    // Where limits move and no bound is told, a limit says nothing of it.
    assert_eq!(with_bound(Policy::LINUX_6_12, most, false).0, 0);
}

/// Lists that hold much when a recording starts held less under a setting that keeps them short, so
/// they give nothing back that its run would not.
#[test]
fn lists_hold_no_more_at_the_start_than_a_setting_that_is_tried_lets_them() {
    const HELD: u64 = 20_000;
    let mut machine = samples::zlib_make_j4().unwrap().description().clone();
    let zones = machine.start.iter_mut().flat_map(|start| &mut start.zones);
    for zone in zones.filter(|zone| zone.kind == "Normal") {
        for set in zone.pagesets.iter_mut().filter(|set| set.cpu == 0) {
            *set = Pageset { count: HELD, high: 40_000, ..*set };
        }
    }
    let run = |sysctls: &[(Sysctl, i64)]| {
        let outcome = played_under(sysctls, Policy::LINUX_6_18, &machine, |own, time_ns| {
            let op = |kind| Op { time_ns, slot: 0, cpu: 0, kind };
            (vec![own], [op(OpKind::Alloc), op(OpKind::Free)].repeat(1000))
        });
        assert_eq!((outcome.faults, outcome.failed), (Vec::new(), 0));
        let notes = outcome.notes.iter().filter(|note| note.contains("as much room")).count();
        let moves = total(&outcome.counted.moves);
        (notes, moves.drain_pages.saturating_sub(moves.refill_pages))
    };
    assert_eq!(run(&[]), (0, 0));
    assert_eq!(run(&[(Sysctl::HighFraction, 8)]), (0, 0), "with more room");
    // Full lists give back a batch or so when the first page comes.
    let (notes, given_back) = run(&[(Sysctl::HighFraction, 1000)]);
    assert!(notes == 1 && given_back < 500, "{notes}, {given_back}");
}
