//! What is counted of a kernel's moves, against counts of an independent program.

use super::*;
use crate::moves::{Moves, total};
use std::path::{Path, PathBuf};
use zonal_trace::Recording;

fn shared(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = root.join(name);
    if !path.is_dir() {
        eprintln!("SKIPPED: {} is not here, its counts are not checked", path.display());
        return None;
    }
    Some(path)
}

fn watch(recording: &Recording) -> MovesByPlace {
    let machine = recording.description();
    let zones = ZoneMap::new(machine);
    let mut watcher = Watcher::new(zones, machine.kernel_release.as_deref());
    recording.events().for_each(|event| watcher.see(&event.unwrap()));
    watcher.finish()
}

/// The numbers of the lines `cpu0 zone2: refill P pages in B bursts (…)  drain P pages in B …`.
fn expected(stats: &str) -> Vec<[u64; 5]> {
    let lines = stats.lines().filter(|line| line.contains(": refill "));
    lines
        .map(|line| {
            let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|s| !s.is_empty());
            let mut next = || numbers.next().unwrap().parse().unwrap();
            let [cpu, _zone, pages, bursts, _singles] = std::array::from_fn(|_| next());
            [cpu, pages, bursts, next(), next()]
        })
        .collect()
}

#[test]
fn bursts_are_those_of_stats_txt() {
    for name in ["zlib-make-j4", "redis", "fsmark", "uxping"] {
        let Some(path) = shared(name) else { continue };
        let stats = std::fs::read_to_string(path.join("stats.txt")).unwrap();
        let moves = watch(&Recording::open(&path).unwrap());
        let expected = expected(&stats);
        assert_eq!(expected.len(), 2, "{name}");
        for [cpu, pages, bursts, drained, drains] in expected {
            let got = moves[&(Some(2), cpu as u32)];
            let refill = (got.refill_pages, got.refill_holds);
            assert_eq!(refill, (pages, bursts), "{name}: refills of cpu {cpu}");
            let drain = (got.drain_pages, got.drain_bursts);
            assert_eq!(drain, (drained, drains), "{name}: drains of cpu {cpu}");
        }
    }
}

#[test]
fn the_bundled_sample_has_the_same_counts() {
    let all = total(&watch(&zonal_trace::samples::zlib_make_j4().unwrap()));
    assert_eq!((all.refill_pages, all.refill_holds), (37_339, 134));
    assert_eq!((all.drain_pages, all.drain_bursts), (8028, 5));
    // Bursts of 2016, 2016, 1080, 1301 and 1615 pages, each in one hold.
    assert_eq!(all.drain_holds, 5);
}

fn moves(release: &str, events: &[(u64, EventKind)]) -> Moves {
    let zones = ZoneMap::new(zonal_trace::samples::zlib_make_j4().unwrap().description());
    let mut watcher = Watcher::new(zones, Some(release));
    for (time_ns, kind) in events {
        watcher.see(&Event { time_ns: *time_ns, cpu: 0, pid: 0, kind: kind.clone() });
    }
    total(&watcher.finish())
}

fn locked(pfn: u64, order: u8, percpu_refill: bool) -> EventKind {
    EventKind::ZoneLocked { pfn, order, migratetype: 1, percpu_refill }
}

fn extfrag(pfn: u64, alloc_order: u8) -> EventKind {
    EventKind::Extfrag {
        pfn,
        alloc_order,
        fallback_order: 10,
        alloc_migratetype: 2,
        fallback_migratetype: 1,
        change_ownership: true,
    }
}

#[test]
fn a_refill_ends_with_another_order_a_pause_or_another_event() {
    let pfn = 0x20_0000;
    let events = [
        (0, locked(pfn, 0, true)),
        (10, locked(pfn + 1, 0, true)),
        (20, locked(pfn + 2, 1, true)),
        (30, EventKind::FreeBatched { pfn }),
        (40, locked(pfn + 4, 1, true)),
        (40 + GAP_NS, locked(pfn + 6, 1, true)),
        (50 + GAP_NS, locked(pfn + 8, 4, false)),
    ];
    let moves = moves("6.18.0", &events);
    assert_eq!((moves.refill_holds, moves.refill_pages, moves.direct_pages), (4, 8, 16));
}

#[test]
fn a_hold_goes_on_after_a_pause_if_what_came_before_it_cannot_be_all() {
    let pfn = 0x20_0000;
    let refill = |from: u64, time_ns: u64, pages: u64| {
        (0..pages).map(move |page| (time_ns + page, locked(pfn + from + page, 0, true)))
    };
    let parts = refill(0, 0, 25).chain(refill(25, 9 * GAP_NS, 38));
    let refills = moves("6.12.0", &parts.collect::<Vec<_>>());
    assert_eq!((refills.refill_holds, refills.refill_pages), (1, 63));
    let whole = refill(0, 0, 63).chain(refill(63, 9 * GAP_NS, 63));
    assert_eq!(moves("6.12.0", &whole.collect::<Vec<_>>()).refill_holds, 2);
    let drain = |at: u64| (at, EventKind::PcpuDrain { pfn, order: 0, migratetype: 1 });
    let drains = [drain(0), drain(9 * GAP_NS), drain(9 * GAP_NS + WORKER_NS)];
    let drains = moves("6.12.0", &drains);
    assert_eq!((drains.drain_holds, drains.drain_bursts), (2, 2));
}

#[test]
fn blocks_of_2_mib_leave_in_drains_of_what_was_freed_in_a_row() {
    let behind = |release: &str, first: &[EventKind], order: u8, blocks: usize| {
        let block = EventKind::PcpuDrain { pfn: 0x20_0000, order, migratetype: 1 };
        let kinds = first.iter().cloned().chain(std::iter::repeat_n(block, blocks));
        let moves = moves(release, &(0..).zip(kinds).collect::<Vec<_>>());
        (moves.drain_holds, moves.drain_bursts)
    };
    let free = |order| EventKind::Free { pfn: 0x20_0000, order };
    let drains = |release, order, blocks| behind(release, &[free(order)], order, blocks);
    assert_eq!(drains("6.18.44", 9, 32), (8, 8));
    assert_eq!(drains("6.18.44", 9, 30), (8, 8));
    assert_eq!(drains("6.18.44", 9, 4), (1, 1));
    // Half of the 2,016 that are assumed, 600 single pages and a block: 2,120.
    let alloc = EventKind::Alloc { pfn: Some(0x20_0000), order: 0, migratetype: 1, gfp: 0 };
    let mut first = vec![free(0); 602];
    (first[0], first[601]) = (alloc, free(9));
    assert_eq!(behind("6.18.44", &first, 9, 30), (6, 6));
    // A free of a small block may empty the whole list at once.
    assert_eq!(drains("6.18.44", 3, 900), (1, 1));
    assert_eq!(drains("6.1.0", 9, 32), (1, 1), "bounded by the list's limit alone");
}

#[test]
fn a_cpu_that_frees_blocks_of_a_few_pages_empties_its_lists_at_each_batch() {
    let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
    (machine.start, machine.end) = (None, None);
    for set in machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets) {
        set.high_min = Some(2703);
    }
    let pfn = 0x20_0000;
    let free = |order: u8, blocks: usize| vec![EventKind::Free { pfn, order }; blocks];
    let drain = |order: u8, blocks: usize| {
        vec![EventKind::PcpuDrain { pfn, order, migratetype: 1 }; blocks]
    };
    let alloc = |times: usize| {
        vec![EventKind::Alloc { pfn: Some(pfn), order: 2, migratetype: 1, gfp: 0 }; times]
    };
    let holds = |machine: &MachineDescription, parts: &[Vec<EventKind>]| {
        let mut watcher = Watcher::of(ZoneMap::new(machine), machine);
        for (time_ns, kind) in (0..).zip(parts.concat()) {
            watcher.see(&Event { time_ns, cpu: 0, pid: 0, kind });
        }
        let moves = total(&watcher.finish());
        (moves.drain_holds, moves.drain_bursts)
    };
    let first = [free(2, 31), drain(2, 60)];
    let then = |parts: &[Vec<EventKind>]| [&first[..], parts].concat();
    machine.flags.free_high_batch_expected = Some(true);
    assert_eq!(holds(&machine, &first), (1, 1), "lists may have held as much");
    let row = [free(2, 31), drain(2, 32)];
    assert_eq!(holds(&machine, &then(&row)), (3, 3), "64 and 64 pages");
    let shorter = [free(2, 31), drain(2, 31)];
    assert_eq!(holds(&machine, &then(&shorter)), (2, 2), "124 are less than two batches");
    let three = [free(3, 31), drain(3, 24)];
    assert_eq!(holds(&machine, &then(&three)), (4, 4), "three of 64");
    // One page more, and a block later, for each single page that comes between.
    let mixed = [free(0, 20), free(2, 31), drain(0, 20), drain(2, 32)];
    assert_eq!(holds(&machine, &then(&mixed)), (2, 2));
    let [single, blocks] = [free(0, 1), drain(0, 1)];
    assert_eq!(holds(&machine, &then(&[single, free(2, 31), blocks, drain(2, 32)])), (3, 3));
    // A drain of 2,016 pages is the largest, and may leave some: the next is such a drain, too.
    let largest = [free(2, 31), drain(2, 504)];
    assert_eq!(holds(&machine, &[&largest[..], &largest[..]].concat()), (2, 2));
    let nearly = [free(2, 31), drain(2, 503)];
    assert_eq!(holds(&machine, &[&nearly[..], &row[..]].concat()), (3, 3));
    // What is allocated in between may be of any list.
    let after = [alloc(1), free(2, 31), drain(2, 32)];
    assert_eq!(holds(&machine, &then(&after)), (2, 2));
    // Without that flag each free empties the lists.
    machine.flags.free_high_batch_expected = None;
    assert_eq!(holds(&machine, &then(&row)), (2, 2));
    // A CPU that has not freed as much in a row drains what is above the limit: 124 pages of 1,414.
    machine.flags.free_high_batch_expected = Some(true);
    let few = [alloc(12), free(2, 31), drain(2, 32), free(2, 31), drain(2, 32)];
    assert_eq!(holds(&machine, &few), (2, 2));
}

#[test]
fn up_to_6_6_drains_of_single_pages_end_at_the_limit_of_the_list() {
    let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
    (machine.start, machine.end) = (None, None);
    for set in machine.zones.iter_mut().flat_map(|zone| &mut zone.pagesets) {
        (set.high, set.batch) = (231, 7);
    }
    let drains = |release: &str, order: u8, pages: u64| {
        let mut watcher = Watcher::new(ZoneMap::new(&machine), Some(release));
        let block = EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 };
        let free = EventKind::Free { pfn: 0x20_0000, order };
        for (time_ns, kind) in
            (0..=pages).zip([free].into_iter().chain([block].into_iter().cycle()))
        {
            watcher.see(&Event { time_ns, cpu: 0, pid: 0, kind });
        }
        let moves = total(&watcher.finish());
        assert_eq!(moves.drain_pages, pages);
        (moves.drain_holds, moves.drain_bursts)
    };
    assert_eq!(drains("6.1.0", 0, 448), (2, 2));
    assert_eq!(drains("6.1.0", 0, 224), (1, 1));
    assert_eq!(drains("5.10.0", 0, 224), (32, 32));
    assert_eq!(drains("6.1.0", 1, 448), (1, 1), "it may have emptied all lists");
    assert_eq!(drains("6.12.0", 0, 448), (1, 1));
}

#[test]
fn without_allocations_and_frees_holds_are_told_by_their_pauses() {
    let recording = zonal_trace::samples::zlib_make_j4().unwrap();
    let mut machine = recording.description().clone();
    machine.flags.uses = Some(false);
    let mut watcher = Watcher::of(ZoneMap::new(&machine), &machine);
    for event in recording.events() {
        let event = event.unwrap();
        let is_use = |kind: &EventKind| {
            matches!(
                kind,
                EventKind::Alloc { .. } | EventKind::Free { .. } | EventKind::FreeBatched { .. }
            )
        };
        if !is_use(&event.kind) {
            watcher.see(&event);
        }
    }
    let (of_moves, of_all) = (total(&watcher.finish()), total(&watch(&recording)));
    let pages = |moves: &Moves| (moves.refill_pages, moves.drain_pages);
    assert_eq!(pages(&of_moves), pages(&of_all));
    let holds = |moves: &Moves| (moves.refill_holds + moves.drain_holds) as f64;
    let off = holds(&of_moves) / holds(&of_all) - 1.0;
    assert!(off.abs() < 0.05, "{of_moves:?} {of_all:?}");
}

#[test]
fn a_claimed_block_counts_once_whether_or_not_it_is_printed_again() {
    let pfn = 0x20_0000;
    let new = [(0, extfrag(pfn, 1)), (1, locked(pfn + 2, 1, true))];
    let old = [(0, extfrag(pfn, 1)), (1, locked(pfn, 1, true)), (2, locked(pfn + 2, 1, true))];
    for events in [&new[..], &old[..]] {
        let moves = moves("6.18.0", events);
        assert_eq!((moves.refill_holds, moves.refill_pages), (1, 4));
    }
}

#[test]
fn the_lock_is_given_back_after_each_batch_since_6_19() {
    let drain = |at: u64| (at, EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 });
    let free = (0, EventKind::Free { pfn: 0x20_0000, order: 0 });
    let events: Vec<_> = std::iter::once(free).chain((1..201).map(drain)).collect();
    assert_eq!(moves("6.19.0", &events).drain_holds, 4);
    assert_eq!(moves("6.18.44-fc", &events).drain_holds, 1);
    assert_eq!(moves("6.12.117+deb12-amd64", &events).drain_holds, 1);
    assert_eq!(moves("6.12.117+deb12-amd64", &events).drain_bursts, 1);
}

#[test]
fn a_worker_gives_the_lock_back_after_each_batch_and_a_free_does_not() {
    let of = |pid, time_ns, kind| Event { time_ns, cpu: 0, pid, kind };
    let holds = |release: &str, before: Event, at: u64| {
        let zones = ZoneMap::new(zonal_trace::samples::zlib_make_j4().unwrap().description());
        let mut watcher = Watcher::new(zones, Some(release));
        watcher.see(&before);
        for time_ns in at..at + 200 {
            let drain = EventKind::PcpuDrain { pfn: 0x20_0000, order: 0, migratetype: 1 };
            watcher.see(&of(7, time_ns, drain));
        }
        let moves = total(&watcher.finish());
        assert_eq!((moves.drain_pages, moves.drain_bursts), (200, 1));
        moves.drain_holds
    };
    let free = || EventKind::Free { pfn: 0x20_0000, order: 0 };
    // By whom the page was freed, or how long ago, tells where nothing else does.
    assert_eq!(holds("6.18.0", of(7, 10, free()), 20), 1);
    assert_eq!(holds("6.18.0", of(6, 10, free()), 20), 4);
    assert_eq!(holds("6.18.0", of(7, 10, free()), 20 + DRAIN_BEHIND_FREE_NS), 4);
    assert_eq!(holds("6.18.0", of(7, 10, EventKind::VmstatUpdate), 20), 4);
    assert_eq!(holds("6.6.0", of(7, 10, EventKind::VmstatUpdate), 20), 1, "nothing decays");
}

/// With `PREEMPT_RT` another thread is at the lists of the CPU (LB E.2).
#[test]
fn blocks_that_went_past_the_lists_are_no_refills() {
    let pfn = 0x20_0000;
    let alloc = |pfn| EventKind::Alloc { pfn: Some(pfn), order: 0, migratetype: 1, gfp: 0 };
    let events = [
        (0, locked(pfn, 0, true)),
        (10, locked(pfn + 1, 0, true)),
        (20, alloc(pfn)),
        (30, locked(pfn + 9, 0, true)),
        (40, alloc(pfn + 9)),
    ];
    let moves = moves("6.12.0", &events);
    assert_eq!((moves.refill_holds, moves.refill_pages, moves.direct_pages), (1, 2, 1));
}
