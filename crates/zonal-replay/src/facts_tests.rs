use super::*;
use zonal_trace::EventKind;

const PFN: u64 = 0x20_0000;

fn facts(kinds: &[EventKind]) -> Facts {
    let mut facts = Facts::default();
    for (time_ns, kind) in (0..).zip(kinds) {
        facts.see(&Event { time_ns, cpu: 0, pid: 1, kind: kind.clone() });
    }
    facts
}

fn refill(pfn: u64, migratetype: u8) -> EventKind {
    EventKind::ZoneLocked { pfn, order: 0, migratetype, percpu_refill: true }
}

fn fallback(pfn: u64, fallback_order: u8, change_ownership: bool) -> EventKind {
    EventKind::Extfrag {
        pfn,
        alloc_order: 0,
        fallback_order,
        alloc_migratetype: 0,
        fallback_migratetype: 1,
        change_ownership,
    }
}

#[test]
fn the_next_event_of_a_page_is_found() {
    let facts = facts(&[
        EventKind::Free { pfn: PFN, order: 0 },
        EventKind::Free { pfn: PFN + 1, order: 0 },
        EventKind::FreeBatched { pfn: PFN },
    ]);
    assert_eq!(facts.next(Scope::All), [Next::Is(FactKind::Batched), Next::Nothing, Next::Nothing]);
}

/// With pages of 64 KiB a pageblock has 32 of them.
#[test]
fn pageblocks_are_of_the_recorded_kernels_order() {
    let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
    (machine.page_size, machine.pageblock_order) = (65536, 5);
    let mut facts = Facts::new(false, ZoneMap::new(&machine), false);
    for (time_ns, kind) in (0..).zip([refill(PFN, 0), refill(PFN + 32, 2)]) {
        facts.see(&Event { time_ns, cpu: 0, pid: 0, kind });
    }
    let types = BlockTypes::new(&facts, Scope::All);
    assert_eq!(types.at(PFN + 31, 1), Some(Migratetype::Unmovable));
    assert_eq!(types.at(PFN + 32, 1), Some(Migratetype::Reclaimable));
    assert_eq!(types.at(PFN + 64, 1), None);
    let all: Vec<u64> = types.all_at(1).map(|(pfn, _)| pfn).collect();
    assert!(all.contains(&PFN) && all.contains(&(PFN + 32)), "{all:?}");
}

#[test]
fn a_pageblocks_type_is_told_before_and_after_it_changes() {
    let facts = facts(&[
        refill(PFN + 1024, 2),
        EventKind::Free { pfn: PFN, order: 0 },
        fallback(PFN + 4, 10, true),
        refill(PFN + 5, 0),
    ]);
    let types = BlockTypes::new(&facts, Scope::All);
    assert_eq!(types.at(PFN, 0), Some(Migratetype::Movable), "what it was before the first event");
    assert_eq!(types.at(PFN, 2), Some(Migratetype::Unmovable));
    // The fallback broke a block of two pageblocks.
    assert_eq!(types.at(PFN + 512, 1), Some(Migratetype::Movable));
    assert_eq!(types.at(PFN + 512, 3), Some(Migratetype::Unmovable));
    assert_eq!(types.at(PFN + 1024, 3), Some(Migratetype::Reclaimable));
    assert_eq!(types.at(PFN + 2048, 3), None);
    assert_eq!(types.all_at(3).count(), 3);
}

#[test]
fn a_stolen_block_leaves_its_pageblock_its_type_in_either_order_of_events() {
    for events in
        [[fallback(PFN, 3, false), refill(PFN, 0)], [refill(PFN, 0), fallback(PFN, 3, false)]]
    {
        let types = BlockTypes::new(&facts(&events), Scope::All);
        assert_eq!(types.at(PFN, 1), Some(Migratetype::Movable));
    }
}

#[test]
fn what_comes_next_for_users_skips_what_moves_between_list_and_buddy() {
    let free = |pfn| EventKind::Free { pfn, order: 0 };
    let all = facts(&[free(PFN), refill(PFN, 1), free(PFN)]);
    let is = |kind| Next::Is(kind);
    let free = FactKind::Free;
    assert_eq!(all.next(Scope::All), [is(FactKind::Refill), is(free), Next::Nothing]);
    assert_eq!(all.next(Scope::Users), [is(free), Next::Nothing, Next::Nothing]);
    assert_eq!(BlockTypes::new(&all, Scope::Users).at(PFN, 2), None);
}
