use super::*;

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
    assert_eq!(facts.next(), [Next::Is(FactKind::Batched), Next::Nothing, Next::Nothing]);
}

#[test]
fn a_pageblocks_type_is_told_before_and_after_it_changes() {
    let facts = facts(&[
        refill(PFN + 1024, 2),
        EventKind::Free { pfn: PFN, order: 0 },
        fallback(PFN + 4, 10, true),
        refill(PFN + 5, 0),
    ]);
    let types = BlockTypes::new(&facts);
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
        let types = BlockTypes::new(&facts(&events));
        assert_eq!(types.at(PFN, 1), Some(Migratetype::Movable));
    }
}

#[test]
fn users_events_keep_their_places() {
    let mut all = facts(&[refill(PFN, 1), EventKind::Free { pfn: PFN + 7, order: 0 }]);
    all.begin();
    let free = EventKind::Free { pfn: PFN, order: 0 };
    all.see(&Event { time_ns: 9, cpu: 0, pid: 1, kind: free });
    let (users, places) = all.of_users();
    assert_eq!((users.list().len(), users.start(), places), (2, 1, vec![1, 2]));
}
