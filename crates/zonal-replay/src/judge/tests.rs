//! The judge on traces small enough to follow by hand.

use super::*;
use crate::told::FirstDrain;
use zonal_trace::{Event, EventKind, samples};

/// A page of zone Normal of the sample's machine.
const PFN: u64 = 0x20_0000;

fn alloc(pfn: u64, migratetype: u8) -> EventKind {
    EventKind::Alloc { pfn: Some(pfn), order: 0, migratetype, gfp: 0 }
}
fn free(pfn: u64) -> EventKind {
    EventKind::Free { pfn, order: 0 }
}
fn batched(pfn: u64) -> EventKind {
    EventKind::FreeBatched { pfn }
}
fn refill(pfn: u64, migratetype: u8) -> EventKind {
    EventKind::ZoneLocked { pfn, order: 0, migratetype, percpu_refill: true }
}
fn drain(pfn: u64, migratetype: u8) -> EventKind {
    EventKind::PcpuDrain { pfn, order: 0, migratetype }
}

/// Judges these events, each with its CPU.
fn judge(events: &[(u32, EventKind)]) -> (ListVerdict, Told) {
    judge_with(events, true)
}

/// The same, where drains may have no event.
fn judge_with(events: &[(u32, EventKind)], drains: bool) -> (ListVerdict, Told) {
    judge_facts(events, drains, |_| Facts::default())
}

/// The same of facts that begin as these.
fn judge_facts(
    events: &[(u32, EventKind)],
    drains: bool,
    facts: impl FnOnce(&ZoneMap) -> Facts,
) -> (ListVerdict, Told) {
    let mut machine = samples::zlib_make_j4().unwrap().description().clone();
    // A few pages of it are enough.
    machine.zones.retain(|zone| zone.kind == "Normal");
    let zone = &mut machine.zones[0];
    (zone.start_pfn, zone.spanned, zone.present, zone.managed) = (PFN, 4096, 4096, 4096);
    let map = ZoneMap::new(&machine);
    let mut facts = facts(&map);
    for (time_ns, (cpu, kind)) in (0..).zip(events) {
        facts.see(&Event { time_ns, cpu: *cpu, pid: 1, kind: kind.clone() });
    }
    let plan = Plan::new(&machine, &map, 2, Policy::LINUX_6_18).unwrap();
    let mut records = plan.records().unwrap();
    let rebuilt = plan.allocator(&mut records).unwrap();
    Judge::new(&LookedAt::new(&facts, Scope::All, drains), &map, &rebuilt).run()
}

fn on_cpu_0(events: Vec<EventKind>) -> (ListVerdict, Told) {
    judge(&events.into_iter().map(|event| (0, event)).collect::<Vec<_>>())
}

#[test]
fn a_refill_is_given_out_in_its_order_and_a_free_comes_first() {
    let (verdict, _) = on_cpu_0(vec![
        refill(PFN, 1),
        refill(PFN + 1, 1),
        refill(PFN + 2, 1),
        alloc(PFN, 1),
        alloc(PFN + 1, 1),
        free(PFN),
        alloc(PFN, 1),
        alloc(PFN + 2, 1),
    ]);
    assert_eq!((verdict.judged, verdict.same_pfn), (4, 4));
}

#[test]
fn what_a_list_would_not_give_is_a_difference_and_moves_nothing_else() {
    let (verdict, _) = on_cpu_0(vec![
        refill(PFN, 1),
        refill(PFN + 1, 1),
        refill(PFN + 2, 1),
        alloc(PFN + 1, 1),
        alloc(PFN, 1),
        alloc(PFN + 2, 1),
    ]);
    assert_eq!((verdict.judged, verdict.same_pfn), (3, 2));
    assert_eq!(verdict.differences.below_others, 1);
}

#[test]
fn a_page_on_another_cpus_list_or_of_another_type_is_told_apart() {
    let (verdict, _) = judge(&[
        (0, refill(PFN, 1)),
        (0, refill(PFN + 1, 1)),
        (1, alloc(PFN, 1)),
        (0, alloc(PFN + 1, 0)),
    ]);
    let differences = verdict.differences;
    assert_eq!((verdict.judged, verdict.same_pfn), (2, 0));
    assert_eq!((differences.other_cpu, differences.other_list), (1, 1));
}

#[test]
fn a_batched_free_reaches_its_list_when_the_batch_does() {
    let (verdict, _) = on_cpu_0(vec![
        refill(PFN, 1),
        refill(PFN + 1, 1),
        refill(PFN + 2, 1),
        alloc(PFN, 1),
        alloc(PFN + 1, 1),
        free(PFN),
        free(PFN + 1),
        alloc(PFN + 2, 1),
        batched(PFN + 1),
        batched(PFN),
        alloc(PFN, 1),
        alloc(PFN + 1, 1),
    ]);
    assert_eq!((verdict.judged, verdict.same_pfn), (5, 5));
}

/// An interrupt's free finds the lists of its CPU in use (LB E.2).
#[test]
fn a_freed_page_that_its_buddy_gives_next_went_past_the_lists_unless_a_drain_may_be_missing() {
    let events = [
        refill(PFN, 1),
        refill(PFN + 1, 1),
        refill(PFN + 2, 1),
        alloc(PFN, 1),
        free(PFN),
        alloc(PFN + 1, 1),
        alloc(PFN + 2, 1),
        refill(PFN, 1),
        alloc(PFN, 1),
    ]
    .map(|event| (0, event));
    let (verdict, told) = judge_with(&events, true);
    assert_eq!((verdict.judged, verdict.same_pfn, verdict.freed_past_lists), (4, 4, 1));
    assert_eq!(told.past_lists, [4]);
    let (verdict, told) = judge_with(&events, false);
    assert_eq!((verdict.judged, verdict.same_pfn, verdict.freed_past_lists), (4, 2, 1));
    assert_eq!(told.past_lists, [0; 0]);
}

#[test]
fn a_block_that_no_list_takes_is_not_said_to_go_past_them() {
    let order = 5;
    let direct = EventKind::ZoneLocked { pfn: PFN, order, migratetype: 1, percpu_refill: false };
    let alloc = EventKind::Alloc { pfn: Some(PFN), order, migratetype: 1, gfp: 0 };
    let free = EventKind::Free { pfn: PFN, order };
    let events = [direct.clone(), alloc.clone(), free, direct, alloc];
    let (verdict, told) = judge(&events.map(|event| (0, event)));
    assert_eq!((verdict.past_lists, verdict.freed_past_lists), (2, 0));
    assert_eq!(told.past_lists, [0; 0]);
}

#[test]
fn a_block_that_came_past_the_lists_is_told_where_it_was_handed_out() {
    let events = [refill(PFN, 1), refill(PFN + 1, 1), alloc(PFN, 1), refill(PFN + 9, 1)];
    let rest = [alloc(PFN + 9, 1), alloc(PFN + 1, 1)];
    let events: Vec<_> = events.into_iter().chain(rest).map(|event| (0, event)).collect();
    let (verdict, told) = judge_facts(&events, true, |map| Facts::new(false, map.clone(), false));
    assert_eq!((verdict.judged, verdict.same_pfn, verdict.past_lists), (2, 2, 1));
    assert_eq!(told.past_lists, [4]);
}

#[test]
fn drains_take_the_coldest_page() {
    let (verdict, _) = on_cpu_0(vec![
        refill(PFN, 1),
        refill(PFN + 1, 1),
        refill(PFN + 2, 1),
        alloc(PFN, 1),
        drain(PFN + 2, 1),
        alloc(PFN + 1, 1),
        refill(PFN + 4, 1),
        refill(PFN + 5, 1),
        refill(PFN + 6, 1),
        drain(PFN + 5, 1),
    ]);
    assert_eq!((verdict.drained_judged, verdict.drained_same_pfn), (2, 1));
    assert_eq!((verdict.judged, verdict.same_pfn), (2, 2));
}

#[test]
fn an_allocation_without_event_is_found_by_its_free_and_dated_by_the_list() {
    let (verdict, told) = on_cpu_0(vec![
        refill(PFN, 1),
        refill(PFN + 1, 1),
        // Nothing shows that the first page was taken.
        alloc(PFN + 1, 1),
        free(PFN),
        alloc(PFN, 1),
    ]);
    assert_eq!((verdict.judged, verdict.same_pfn), (2, 1));
    assert_eq!(verdict.differences.after_untraced, 1);
    assert_eq!(verdict.untraced_allocations, 1);
    let untraced = told.untraced[0];
    assert_eq!((untraced.at, untraced.pfn, untraced.cpu, untraced.freed), (2, PFN, 0, true));
}

#[test]
fn a_page_goes_to_the_list_of_its_pageblock_whatever_it_was_asked_for() {
    // The second free's pageblock is known from a drain that comes later.
    let (verdict, _) = on_cpu_0(vec![
        free(PFN),
        alloc(PFN, 2),
        free(PFN + 512),
        alloc(PFN + 512, 0),
        free(PFN + 512),
        drain(PFN + 512, 0),
    ]);
    assert_eq!((verdict.judged, verdict.same_pfn), (2, 2));
    assert_eq!((verdict.drained_same_pfn, verdict.unknown_block_type), (1, 0));
}

#[test]
fn what_leaves_a_list_without_having_come_was_there_at_the_start() {
    let (verdict, told) = on_cpu_0(vec![
        alloc(PFN + 9, 1),
        drain(PFN + 7, 1),
        alloc(PFN + 8, 1),
        refill(PFN, 1),
        alloc(PFN, 1),
    ]);
    assert_eq!((verdict.unseen, verdict.judged), (2, 1));
    let list = told.lists.values().next().unwrap();
    assert_eq!(list.hot, [PFN + 9, PFN + 8]);
    assert_eq!((&list.cold[..], list.ran_empty), (&[PFN + 7][..], true));
}

/// A drain moves what its CPU had freed in a row, before the trace too (LB E.7).
#[test]
fn the_first_drain_behind_a_free_tells_what_was_freed_in_a_row_before() {
    let drains = |count: u64| (100..100 + count).map(|page| drain(PFN + page, 1));
    let started = |before: Vec<EventKind>, drained: u64| {
        let (_, told) = on_cpu_0(before.into_iter().chain(drains(drained)).collect());
        assert!(told.drains.len() <= 1);
        let first = told.drains.into_values().next()?;
        Some((first.pages, first.freed_before(63, &Policy::LINUX_6_18.pcp)))
    };
    assert_eq!(started(vec![free(PFN)], 500), Some((500, 499)));
    assert_eq!(started(vec![free(PFN)], 63), Some((63, 0)), "any number up to a batch");
    let halved = vec![free(PFN), free(PFN + 1), alloc(PFN + 1, 1), free(PFN + 2)];
    assert_eq!(started(halved, 500), Some((500, 2 * 498)));
    assert_eq!(started(vec![free(PFN)], 3000), Some((3000, 2016)), "it is counted no further");
    assert_eq!(started(vec![free(PFN), alloc(PFN, 1)], 500), None, "no free caused it");
    // Only the first tells: what follows was freed since.
    let later = [vec![free(PFN)], drains(70).collect(), vec![free(PFN + 1)]].concat();
    assert_eq!(started(later, 500), Some((70, 69)));
    let (_, told) = judge(&[(0, free(PFN)), (1, drain(PFN + 1, 1))]);
    assert!(told.drains.is_empty(), "another CPU freed nothing");
    let level_8 = zonal_core::policy::Policy::LINUX_6_6.pcp;
    let first = FirstDrain { at: 0, pages: 500, freed: 1, halved: 0 };
    assert_eq!(first.freed_before(63, &level_8), 0);
    assert_eq!(FirstDrain { halved: 99, ..first }.freed_before(u64::MAX / 2, &level_8), 0);
    let pcp = Policy::LINUX_6_18.pcp;
    assert_eq!(FirstDrain { halved: 99, ..first }.freed_before(63, &pcp), 2016);
}

#[test]
fn gone_pages_deep_in_a_list_are_found_and_the_others_stay_in_order() {
    // Ten pages that come again and ten that do not, by turns; then the list gives a page that
    // was never seen, so what should have been on top of it is gone.
    let mut events = Vec::new();
    events.extend((0..20).map(|page| free(PFN + page)));
    events.push(alloc(PFN + 100, 1));
    events.extend((0..20).rev().filter(|page| page % 2 == 0).map(|page| alloc(PFN + page, 1)));
    let (verdict, told) = on_cpu_0(events);
    assert_eq!((verdict.unseen, verdict.untraced_allocations), (1, 10));
    let gone: Vec<u64> = told.untraced.iter().map(|untraced| untraced.pfn - PFN).collect();
    assert_eq!(gone, [19, 17, 15, 13, 11, 9, 7, 5, 3, 1], "the hottest first");
    assert_eq!((verdict.judged, verdict.same_pfn), (10, 10));
}

#[test]
fn a_gone_page_that_is_freed_again_counts_where_it_is_now() {
    let (_, told) = on_cpu_0(vec![
        free(PFN),
        free(PFN + 1),
        // Both left without an event, as this one shows of the first.
        free(PFN),
        alloc(PFN + 100, 1),
    ]);
    let gone: Vec<(usize, u64)> = told.untraced.iter().map(|u| (u.at, u.pfn - PFN)).collect();
    assert_eq!(gone, [(2, 0), (3, 0), (3, 1)]);
}

#[test]
fn a_drain_that_is_not_of_the_coldest_page_leaves_the_others_in_order() {
    let mut events: Vec<_> = (0..5).map(|page| free(PFN + page)).collect();
    events.extend([drain(PFN + 2, 1), drain(PFN, 1)]);
    events.extend([4, 3, 1].map(|page| alloc(PFN + page, 1)));
    let (verdict, _) = on_cpu_0(events);
    assert_eq!((verdict.drained_judged, verdict.drained_same_pfn), (2, 1));
    assert_eq!((verdict.judged, verdict.same_pfn), (3, 3));
}

/// Pages of one call of the bulk allocator, which has no event, are freed one after the other.
#[test]
fn pages_that_are_freed_together_were_allocated_before_the_first_is_freed() {
    let (_, told) = judge(&[
        (0, refill(PFN, 1)),
        (0, refill(PFN + 1, 1)),
        (0, refill(PFN + 2, 1)),
        (0, refill(PFN + 3, 1)),
        // From 4 on: three pages, of which the first is allocated, and freed, once more.
        (0, free(PFN)),
        (0, free(PFN + 1)),
        (0, free(PFN)),
        (0, free(PFN + 2)),
        // An allocation ends what belongs together.
        (0, alloc(PFN + 2, 1)),
        (0, free(PFN + 3)),
        // A page of another CPU's list: how long that was ago is not known.
        (1, free(PFN + 1)),
    ]);
    let pages = told.untraced.iter().map(|untraced| (untraced.at, untraced.pfn - PFN));
    assert_eq!(pages.collect::<Vec<_>>(), [(4, 0), (4, 1), (6, 0), (6, 2), (9, 3), (10, 1)]);
}

/// Pages that the kernel passes by again and again are not on the list where they were thought to
/// be: each of its allocations walked over all of them, and a replay took minutes for a second.
#[test]
fn many_pages_that_are_passed_by_again_and_again_are_on_another_list() {
    let (stay, strangers) = (20, 260);
    let own = || (0..stay).map(|page| PFN + page);
    let others = || (stay..stay + strangers).map(|page| PFN + page);
    let all = || own().chain(others());
    let mut events: Vec<EventKind> = all().map(|pfn| refill(pfn, 0)).collect();
    events.extend(all().map(|pfn| alloc(pfn, 0)));
    events.extend(all().map(free));
    // The kernel has the last 260 elsewhere, gives out those below, and drains the others later.
    events.extend(own().rev().map(|pfn| alloc(pfn, 0)));
    events.extend(others().map(|pfn| drain(pfn, 1)));
    let (verdict, told) = on_cpu_0(events);
    assert_eq!(verdict.same_pfn, stay + strangers + stay - 16);
    assert_eq!(verdict.differences.below_others, 16);
    assert_eq!((verdict.drained_judged, verdict.drained_same_pfn), (strangers, 0));
    assert_eq!(told.untraced, []);
}

/// A thread that loses its CPU between the list and the event: what was freed meanwhile stays.
#[test]
fn many_pages_that_are_passed_by_once_stay_on_their_list() {
    let (own, others) = (PFN, || (1..270).map(|page| PFN + page));
    let all = || std::iter::once(own).chain(others());
    let mut events: Vec<EventKind> = all().map(|pfn| refill(pfn, 0)).collect();
    events.extend(all().map(|pfn| alloc(pfn, 0)));
    events.extend(all().map(free));
    events.push(alloc(own, 0));
    events.extend(others().map(|pfn| drain(pfn, 0)));
    let (verdict, _) = on_cpu_0(events);
    assert_eq!(verdict.differences.below_others, 1);
    assert_eq!((verdict.drained_judged, verdict.drained_same_pfn), (269, 269));
}

/// The same at the other end: drains that begin above many pages.
#[test]
fn many_pages_that_drains_pass_by_again_and_again_are_on_another_list() {
    let others = || (0..260).map(|page| PFN + page);
    let own = || (260..280).map(|page| PFN + page);
    let all = || others().chain(own());
    let mut events: Vec<EventKind> = all().map(|pfn| refill(pfn, 0)).collect();
    events.extend(all().map(|pfn| alloc(pfn, 0)));
    events.extend(all().map(free));
    events.extend(own().map(|pfn| drain(pfn, 0)));
    events.extend(others().map(|pfn| alloc(pfn, 0)));
    let (verdict, _) = on_cpu_0(events);
    assert_eq!((verdict.drained_judged, verdict.drained_same_pfn), (20, 20 - 16));
    assert_eq!(verdict.differences.below_others, 260);
}
