use super::*;
use crate::progress::unwatched;
use zonal_trace::samples;

const PFN: u64 = 0x20_0000;

fn alloc(pfn: u64, order: u8) -> EventKind {
    EventKind::Alloc { pfn: Some(pfn), order, migratetype: 1, gfp: 0 }
}

fn free(pfn: u64, order: u8) -> EventKind {
    EventKind::Free { pfn, order }
}

fn marker(text: &str) -> EventKind {
    EventKind::Marker(text.into())
}

/// A program of events that are a microsecond apart, all on CPU 0.
fn program(kinds: &[EventKind]) -> Program {
    program_with(&[], kinds)
}

/// The same, with allocations that no event shows.
fn program_with(untraced: &[Untraced], kinds: &[EventKind]) -> Program {
    program_of(ReadOptions { untraced, ..ReadOptions::default() }, kinds)
}

fn program_of(options: ReadOptions<'_>, kinds: &[EventKind]) -> Program {
    let machine = MachineDescription { cpus: Some(2), ..MachineDescription::default() };
    let event = |(time, kind): (u64, &EventKind)| {
        Ok(Event { time_ns: time * 1000, cpu: 0, pid: 1, kind: kind.clone() })
    };
    let events = (0..).zip(kinds).map(event);
    compile(&machine, &ZoneMap::default(), events, options, &mut unwatched).unwrap()
}

fn steps(program: &Program) -> Vec<(OpKind, u32)> {
    program.ops.iter().map(|op| (op.kind, op.slot)).collect()
}

use OpKind::{Alloc, Bulk, Free, Split};

#[test]
fn a_block_is_one_slot_from_allocation_to_free() {
    let program = program(&[alloc(PFN, 2), alloc(PFN + 4, 0), free(PFN, 2), alloc(PFN, 2)]);
    assert_eq!(steps(&program), [(Alloc, 0), (Alloc, 1), (Free, 0), (Alloc, 2)]);
    assert_eq!(program.slots[2].before, 0);
    assert_eq!(program.slots[0].before, NO_SLOT);
    let origins: Vec<Origin> = program.slots.iter().map(|slot| slot.origin).collect();
    assert_eq!(origins, [Origin::Fresh, Origin::Fresh, Origin::Again]);
    assert_eq!(program.counts.peak_pages, 5);
    assert_eq!(program.counts.live_pages_at_end, 5);
}

#[test]
fn a_block_above_the_largest_of_the_model_is_all_of_its_largest_blocks() {
    let huge = program(&[alloc(PFN, 11), alloc(PFN + 2048, 10), free(PFN, 11)]);
    assert_eq!(steps(&huge), [(Alloc, 0), (Alloc, 1), (Alloc, 2), (Free, 0), (Free, 1)]);
    let slots: Vec<_> = huge.slots.iter().map(|slot| (slot.pfn - PFN, slot.order)).collect();
    assert_eq!(slots, [(0, 10), (1024, 10), (2048, 10)]);
    assert_eq!((huge.counts.peak_pages, huge.counts.live_pages_at_end), (3072, 1024));
}

#[test]
fn pages_without_events_are_allocated_in_bulk_and_larger_blocks_one_by_one() {
    let untraced =
        |at, pfn, order| Untraced { at, pfn, cpu: 0, order, migratetype: 0, freed: true };
    let untraced = [untraced(1, PFN, 0), untraced(1, PFN + 1, 0), untraced(2, PFN + 2, 1)];
    let kinds = [alloc(PFN + 4, 0), free(PFN, 0), free(PFN + 1, 0), free(PFN + 2, 1)];
    let program = program_with(&untraced, &kinds);
    let wanted = [(Alloc, 0), (Bulk, 1), (Bulk, 2), (Free, 1), (Alloc, 3), (Free, 2), (Free, 3)];
    assert_eq!(steps(&program), wanted);
    assert_eq!((program.counts.allocs, program.counts.allocs_made_up), (1, 3));
}

#[test]
fn a_free_past_the_lists_is_marked_at_its_slot_and_one_without_event_is_not() {
    let kinds = [alloc(PFN, 0), free(PFN, 0), alloc(PFN, 0), alloc(PFN, 0), free(PFN, 0)];
    let options = ReadOptions { past_lists: &[1], ..ReadOptions::default() };
    let program = program_of(options, &kinds);
    let past: Vec<bool> = program.slots.iter().map(|slot| slot.past_lists).collect();
    // The second slot's page is allocated again without a free.
    assert_eq!(past, [true, false, false]);
    let options = ReadOptions { past_lists: &[4], ..ReadOptions::default() };
    let past: Vec<bool> =
        program_of(options, &kinds).slots.iter().map(|slot| slot.past_lists).collect();
    assert_eq!(past, [false, false, true]);
}

#[test]
fn a_free_of_an_unseen_block_means_it_was_in_use_at_the_start() {
    let program = program(&[free(PFN, 3), free(PFN + 2, 0)]);
    assert_eq!(steps(&program), [(Free, 0)]);
    let held: Vec<u32> = program.held().map(|(slot, _)| slot).collect();
    assert_eq!(held, [0]);
    let counts = program.counts;
    assert_eq!((counts.old_frees, counts.old_free_pages), (1, 8));
    assert_eq!((counts.hidden_allocs, counts.hidden_alloc_pages), (1, 1));
    assert_eq!((counts.frees, counts.free_pages), (2, 9));
}

#[test]
fn an_allocation_over_live_blocks_frees_them_first() {
    let program = program(&[alloc(PFN, 0), alloc(PFN + 1, 0), alloc(PFN, 1)]);
    assert_eq!(steps(&program), [(Alloc, 0), (Alloc, 1), (Free, 0), (Free, 1), (Alloc, 2)]);
    let counts = program.counts;
    assert_eq!((counts.hidden_frees, counts.hidden_free_pages), (2, 2));
}

#[test]
fn a_block_freed_in_parts_is_freed_with_the_last() {
    let program = program(&[alloc(PFN, 1), free(PFN + 1, 0), alloc(PFN + 1, 0), free(PFN, 0)]);
    assert_eq!(steps(&program), [(Alloc, 0), (Alloc, 1), (Free, 0)]);
    assert_eq!(program.counts.part_frees, 2);
    assert_eq!(program.counts.live_pages_at_end, 1);
}

#[test]
fn a_block_freed_in_parts_is_split_where_that_is_asked_for() {
    let reading = ReadOptions { parts: true, ..ReadOptions::default() };
    // A thread's stack: one block of four pages, freed page by page.
    let mut kinds = vec![alloc(PFN, 2), free(PFN + 2, 0), free(PFN, 0), free(PFN + 1, 0)];
    let program = program_of(reading, &kinds);
    let halves = [(Split, 1), (Split, 3), (Free, 3), (Split, 5), (Free, 5), (Free, 6)];
    assert_eq!(steps(&program), [&[(Alloc, 0)], &halves[..]].concat());
    assert_eq!(program.parts(&program.ops[1]), 1..3);
    assert_eq!((program.slots[3].pfn, program.slots[3].before), (PFN + 2, 2));
    assert_eq!(program.counts.live_pages_at_end, 1);
    // Parts of parts, and parts that are freed together.
    kinds = vec![alloc(PFN, 2), free(PFN + 2, 1), free(PFN + 1, 0), free(PFN, 0)];
    let parts = [(Alloc, 0), (Split, 1), (Free, 2), (Split, 3), (Free, 4), (Free, 3)];
    assert_eq!(steps(&program_of(reading, &kinds)), parts);
    kinds = vec![alloc(PFN, 2), free(PFN + 3, 0), free(PFN, 1)];
    let together = [(Alloc, 0), (Split, 1), (Split, 3), (Free, 4), (Free, 1)];
    assert_eq!(steps(&program_of(reading, &kinds)), together);
    kinds = vec![alloc(PFN, 2), free(PFN + 3, 0), free(PFN, 2)];
    let rest = [(Alloc, 0), (Split, 1), (Split, 3), (Free, 4), (Free, 1), (Free, 3)];
    assert_eq!(steps(&program_of(reading, &kinds)), rest);
    // A page of the largest block does not make a slot of each of its pages.
    kinds = vec![alloc(PFN & !1023, 10), free((PFN & !1023) + 700, 0)];
    assert_eq!(program_of(reading, &kinds).slots.len(), 1 + 2 * 10);
}

#[test]
fn a_free_with_a_higher_order_frees_what_was_allocated() {
    let program = program(&[alloc(PFN, 0), free(PFN, 1)]);
    assert_eq!(steps(&program), [(Alloc, 0), (Free, 0)]);
    assert_eq!(program.counts.order_differs, 1);
}

#[test]
fn the_start_is_where_the_state_was_read() {
    let before = [alloc(PFN, 0), alloc(PFN + 1, 0), free(PFN, 0), marker("FX before begin")];
    let program = program(&[&before[..], &[free(PFN + 1, 0), alloc(PFN, 0)]].concat());
    assert_eq!(steps(&program), [(Free, 1), (Alloc, 2)]);
    let origins: Vec<Origin> = program.slots.iter().map(|slot| slot.origin).collect();
    assert_eq!(origins, [Origin::Gone, Origin::Held, Origin::Again]);
    assert_eq!(program.counts.before_start, 4);
    assert_eq!(program.counts.events, 6);
    assert_eq!(program.start_ns, 3000);
}

#[test]
fn workers_are_made_up_each_second_where_the_trace_has_none() {
    let machine = MachineDescription { cpus: Some(2), ..MachineDescription::default() };
    let at = |time_ns, pfn| Ok(Event { time_ns, cpu: 1, pid: 1, kind: alloc(pfn, 0) });
    let events = [at(500_000_000, PFN), at(2_000_000_001, PFN + 1)];
    let zones = ZoneMap::default();
    let program =
        compile(&machine, &zones, events.into_iter(), ReadOptions::default(), &mut unwatched)
            .unwrap();
    let kinds: Vec<(OpKind, u64, u16)> =
        program.ops.iter().map(|op| (op.kind, op.time_ns / 1_000_000_000, op.cpu)).collect();
    let worker = OpKind::Refresh;
    assert_eq!(
        kinds,
        [
            (Alloc, 0, 1),
            (worker, 1, 0),
            (worker, 1, 1),
            (worker, 2, 0),
            (worker, 2, 1),
            (Alloc, 2, 1)
        ]
    );
    assert_eq!(program.counts.refreshes_made_up, 4);
}

#[test]
fn the_sample_matches_what_its_recorder_counted() {
    let recording = samples::zlib_make_j4().unwrap();
    // Without a start everything is replayed, as the recorder counted it.
    let machine = MachineDescription { start: None, ..recording.description().clone() };
    let zones = ZoneMap::new(&machine);
    let events = recording.events();
    let program =
        compile(&machine, &zones, events, ReadOptions::default(), &mut unwatched).unwrap();
    let counts = program.counts;
    assert_eq!(counts.events, 520_208);
    assert_eq!((counts.allocs, counts.alloc_pages), (165_879, 181_270));
    assert_eq!((counts.frees, counts.free_pages), (167_007, 168_134));
    assert_eq!((counts.old_frees, counts.old_free_pages), (3101, 4177));
    assert_eq!((counts.hidden_allocs, counts.hidden_frees), (264, 1));
    assert_eq!(counts.live_pages_at_end, 17_576);
    assert_eq!((counts.part_frees, counts.order_differs, counts.unknown), (0, 0, 0));
    assert_eq!(counts.vmstat_updates, 30);
    assert_eq!(counts.free_batched, 156_976);
    assert_eq!((counts.numa_local, counts.numa_other), (165_879, 0));
}
