//! One sentence of LB each, on zones small enough to check by hand.

use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::{Pair, order, request};
use crate::buddy::{
    Batch, Fallback, FallbackPolicy, FallbackRule, FreeCause, HighAtomicLimit, TakeRequest, Taken,
};
use crate::frame::PageWord;
use crate::types::Migratetype::{self, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use crate::types::{Order, Pfn};

/// One zone of `n` whole pageblocks from pfn 1024 on.
fn pageblocks(n: u64, types: &[Migratetype]) -> Pair {
    let whole = 0..n as u32 * 512;
    Pair::new(1024, n * 512, types, &[whole])
}

/// Takes single pages of a type until `n` are held.
fn take_pages(pair: &mut Pair, mt: Migratetype, n: u32) -> Vec<u64> {
    pair.take(request(0, mt), Some(n))
}

fn the_taken(events: &[Fallback]) -> Taken {
    let taken = events.iter().filter_map(|event| match event {
        Fallback::Taken(taken) => Some(*taken),
        Fallback::Boost => None,
    });
    let all: Vec<Taken> = taken.collect();
    assert_eq!(all.len(), 1);
    all[0]
}

#[test]
fn seeding_makes_the_largest_aligned_blocks_at_the_tail() {
    let whole = 0..4095;
    let pair = Pair::new(1, 4095, &[Movable], &[whole]);
    for o in 0..10 {
        assert_eq!(pair.zone.buddy.nr_free(order(o)), 1);
    }
    let frames = pair.zone.frames();
    let tops = pair.zone.buddy.list(&frames, Order::MAX, Movable).map(|idx| frames.pfn(idx).0);
    assert_eq!(tops.collect::<Vec<_>>(), [1024, 2048, 3072]);
}

#[test]
fn metadata_of_memory_that_was_never_split_stays_untouched() {
    let pair = pageblocks(4, &[Movable]);
    assert_eq!(pair.zone.words().iter().filter(|&&word| word != 0).count(), 2);
}

#[test]
fn blocks_next_to_a_hole_or_the_edge_do_not_merge_across_it() {
    let mut pair = Pair::new(512, 1024, &[Movable], &[0..200, 201..1024]);
    assert!(pair.take(request(10, Movable), None).is_empty());
    let all = pair.take(request(0, Movable), Some(2000));
    assert_eq!(all.len(), 1023);
    assert!(!all.contains(&712));
    for pfn in all {
        pair.free(pfn, false);
    }
    // 512..1536 starts 512 off a multiple of 1024: its two pageblocks are no buddies.
    assert_eq!(pair.zone.buddy.nr_free(order(10)), 0);
    assert_eq!(pair.zone.buddy.nr_free(order(9)), 1);
}

#[test]
fn a_block_whose_uncle_is_free_goes_to_the_tail() {
    let mut pair = pageblocks(2, &[Movable]);
    let all = take_pages(&mut pair, Movable, 1024);
    pair.free(all[500], false);
    pair.free(all[2], false);
    pair.free(all[3], false); // 2..4 merges to order 1
    pair.free(all[0], false); // the buddy of its parent is 2..4: freeing 1 would merge twice
    let frames = pair.zone.frames();
    let list: Vec<u32> = pair.zone.buddy.list(&frames, Order::ZERO, Movable).collect();
    assert_eq!(list, [500, 0]);
}

#[test]
fn a_movable_request_claims_an_unmovable_pageblock_only_if_half_is_free_or_movable() {
    for (held, claimed) in [(256, true), (257, false)] {
        let mut pair = pageblocks(1, &[Unmovable]);
        take_pages(&mut pair, Unmovable, held);
        let (_, events) = pair.events_of(request(0, Movable));
        let taken = the_taken(&events);
        assert_eq!(taken.claimed, claimed);
        assert!(taken.fragmenting());
        // 256 free: one order-8 block, claimed at once. 255 free: blocks of order 7 to 0, of which
        // 7 to 4 are tried (each asks for a boost), then the smallest is stolen.
        let boosts = events.iter().filter(|&event| *event == Fallback::Boost).count();
        assert_eq!(boosts, if claimed { 1 } else { 4 });
        assert_eq!(taken.fallback_order.get(), if claimed { 8 } else { 0 });
        let frames = pair.zone.frames();
        assert_eq!(frames.pageblock_type(0), if claimed { Movable } else { Unmovable });
    }
}

#[test]
fn an_unmovable_request_counts_the_unmovable_pages_of_a_movable_pageblock_as_its_own() {
    // 12 pages free, `unmovable` held as Unmovable, the rest as Movable.
    for (unmovable, claimed) in [(244, true), (243, false)] {
        let mut pair = pageblocks(1, &[Movable]);
        let movable = take_pages(&mut pair, Movable, 512);
        let (_, frames) = pair.zone.parts();
        let held_as = PageWord::allocated(Order::ZERO, Unmovable, Default::default());
        for &pfn in &movable[..unmovable] {
            frames.store((pfn - 1024) as u32, held_as);
            pair.model.held.insert(pfn, (0, Unmovable));
        }
        for &pfn in &movable[500..] {
            pair.free(pfn, false);
        }
        let (_, events) = pair.events_of(request(0, Unmovable));
        assert_eq!(the_taken(&events).claimed, claimed);
    }
}

#[test]
fn nofragment_takes_whole_pageblocks_of_another_type_or_nothing() {
    let mut pair = pageblocks(2, &[Unmovable]);
    take_pages(&mut pair, Unmovable, 1);
    let nofragment = TakeRequest { nofragment: true, ..request(0, Movable) };
    let (got, events) = pair.events_of(nofragment);
    assert_eq!(got, Some(1536));
    let taken = the_taken(&events);
    assert_eq!((taken.fallback_order.get(), taken.claimed), (9, true));
    assert_eq!(events.len(), 1, "a whole pageblock asks for no boost");
    take_pages(&mut pair, Movable, 511);
    assert!(pair.take(nofragment, None).is_empty());
    assert!(pair.take(nofragment, Some(5)).is_empty());
}

#[test]
fn the_original_6_12_rule_pollutes_where_the_stable_rule_finds_a_claim() {
    // Pageblock 0 is mostly used as Unmovable but holds the largest free block; pageblock 1 is
    // half free, in smaller blocks.
    let outcome = |rule| {
        let mut pair = pageblocks(2, &[Unmovable]);
        pair.policy = FallbackPolicy { rule, ..FallbackPolicy::DEFAULT };
        let all = take_pages(&mut pair, Unmovable, 1024);
        for pfn in &all[0..128] {
            pair.free(*pfn, false);
        }
        for chunk in all[512..].chunks(64).step_by(2).chain([&all[576..592]]) {
            for pfn in chunk {
                pair.free(*pfn, false);
            }
        }
        let (_, events) = pair.events_of(request(0, Movable));
        (the_taken(&events), events.len())
    };
    let (stable, _) = outcome(FallbackRule::ClaimThenSteal);
    assert!(stable.claimed);
    assert!(stable.fallback_order.get() < 7);
    let (original, events) = outcome(FallbackRule::SinglePage612);
    assert!(!original.claimed);
    assert_eq!(original.fallback_order.get(), 7);
    assert_eq!(events, 2, "the boost is asked for all the same");
}

#[test]
fn up_to_6_9_the_rest_of_the_block_changes_lists_with_the_page() {
    for (rule, fallbacks) in [(FallbackRule::MoveRemainder, 1), (FallbackRule::SinglePage612, 8)] {
        let mut pair = pageblocks(1, &[Unmovable]);
        pair.policy = FallbackPolicy { rule, ..FallbackPolicy::DEFAULT };
        let all = take_pages(&mut pair, Unmovable, 512);
        // Eight pages in a row: too few to claim the pageblock, which stays Unmovable.
        all[64..72].iter().for_each(|pfn| pair.free(*pfn, false));
        let got: Vec<u64> = (0..8)
            .map(|nth| {
                let (got, events) = pair.events_of(request(0, Movable));
                let asked = usize::from(nth < fallbacks);
                let polluting =
                    |event: &&Fallback| matches!(event, Fallback::Taken(t) if !t.claimed);
                assert_eq!(events.iter().filter(polluting).count(), asked, "{rule:?}");
                got.unwrap()
            })
            .collect();
        assert_eq!(got, all[64..72]);
        // What comes back goes to the lists of the pageblock again.
        pair.free(all[64], false);
        assert!(pair.zone.buddy.nonempty_orders(Unmovable) & 1 != 0);
    }
}

#[test]
fn a_batch_goes_on_stealing_without_trying_another_claim() {
    let mut pair = pageblocks(1, &[Unmovable]);
    let all = take_pages(&mut pair, Unmovable, 512);
    for &pfn in all.iter().step_by(4) {
        pair.free(pfn, false);
    }
    // Single free pages only: a Reclaimable request tries to claim, and fails, once.
    let mut events = Vec::new();
    let policy = pair.policy;
    let mut probe = pair.zone.clone();
    let (buddy, frames) = probe.parts();
    let report = &mut |event| events.push(event);
    buddy.take_bulk(&frames, request(0, Reclaimable), 10, &policy, report, |_| ());
    assert_eq!(events.iter().filter(|&event| *event == Fallback::Boost).count(), 1);
    // The same in three holds of the lock.
    let (mut events, mut got) = (Vec::new(), Vec::new());
    let mut batch = Batch::new(request(0, Reclaimable), &policy);
    let mut parts = pair.zone.clone();
    for n in [4, 4, 2] {
        let (buddy, frames) = parts.parts();
        let report = &mut |event| events.push(event);
        batch.ask(n);
        let out = |first, n| got.extend(first..first + n);
        buddy.take_part(&frames, (&mut batch, policy), report, out);
    }
    assert_eq!(events.iter().filter(|&event| *event == Fallback::Boost).count(), 1);
    let whole = pair.take(request(0, Reclaimable), Some(10));
    let got: Vec<u64> = got.into_iter().map(|idx: u32| 1024 + u64::from(idx)).collect();
    assert_eq!(got, whole);
}

#[test]
fn without_mobility_grouping_every_request_is_served_as_unmovable() {
    let mut pair = pageblocks(2, &[Unmovable]);
    pair.policy.mobility_grouping = false;
    for mt in [Movable, Reclaimable, Unmovable] {
        let (got, events) = pair.events_of(request(3, mt));
        assert!(got.is_some());
        assert_eq!(events, []);
    }
}

#[test]
fn the_reserve_grows_to_one_percent_and_comes_back() {
    let mut pair = pageblocks(4, &[Movable]);
    let first = pair.take(request(1, Movable), None)[0];
    assert!(!pair.reserve(first, 51_199));
    assert!(pair.reserve(first, 51_200));
    assert_eq!(pair.zone.buddy.free_highatomic(), 510);
    let second = pair.take(request(1, Movable), None)[0];
    assert!(!pair.reserve(second, 51_200), "one pageblock is one percent");
    assert!(pair.reserve(second, 51_300), "rounded up to two");
    let from_reserve = pair.take_smallest(request(2, HighAtomic)).unwrap();
    assert!(pair.unreserve(Unmovable, false));
    assert!(!pair.unreserve(Unmovable, false), "the last one stays unless forced");
    assert!(pair.unreserve(Unmovable, true));
    assert_eq!(pair.zone.buddy.reserved_highatomic(), 0);
    pair.free(from_reserve, false);
    assert_eq!(pair.zone.buddy.free_highatomic(), 0);
}

#[test]
fn the_reserve_of_6_1_is_a_percent_and_a_pageblock_in_any_zone() {
    let mut pair = pageblocks(4, &[Movable]);
    pair.limit = HighAtomicLimit::PlusBlock;
    let pages: Vec<u64> = (0..3).map(|_| pair.take(request(9, Movable), None)[0]).collect();
    assert!(pair.reserve(pages[0], 2048), "20 pages and a pageblock: one fits");
    assert!(pair.reserve(pages[1], 2048), "512 are less than 532");
    assert!(!pair.reserve(pages[2], 2048));
}

#[test]
fn a_reserved_block_that_is_free_as_a_whole_comes_back_whole_and_at_the_tail() {
    let mut pair = pageblocks(6, &[Movable]);
    let pfn = pair.take(request(10, Movable), None)[0];
    assert!(pair.reserve(pfn, 1 << 20));
    assert_eq!(pair.zone.buddy.reserved_highatomic(), 1024);
    pair.free(pfn, false);
    assert_eq!(pair.zone.buddy.free_highatomic(), 1024);
    assert!(pair.unreserve(Movable, false));
    assert_eq!(pair.zone.buddy.reserved_highatomic(), 0);
    let frames = pair.zone.frames();
    let tops: Vec<u32> = pair.zone.buddy.list(&frames, Order::MAX, Movable).collect();
    assert_eq!(tops, [1024, 2048, 0]);
}

#[test]
fn a_pageblock_that_comes_back_from_isolation_merges_and_goes_to_the_tail() {
    let mut pair = pageblocks(4, &[Movable]);
    assert_eq!(pair.isolate(1024), Some(Movable));
    assert!(pair.unisolate(1024, Movable));
    let frames = pair.zone.frames();
    let tops: Vec<u32> = pair.zone.buddy.list(&frames, Order::MAX, Movable).collect();
    assert_eq!(tops, [1024, 0]);
}

#[test]
fn isolated_memory_is_neither_counted_nor_handed_out() {
    let mut pair = pageblocks(2, &[Movable]);
    assert_eq!(pair.isolate(1024), Some(Movable));
    assert_eq!(pair.isolate(1024), None);
    assert_eq!(pair.zone.buddy.free_pages(), 512);
    assert_eq!(pair.zone.buddy.free_isolate(), 512);
    assert_eq!(take_pages(&mut pair, Movable, 1024).len(), 512);
    assert_eq!(pair.take_smallest(request(0, Isolate)), None);
    pair.free(1536, false);
    assert!(pair.unisolate(1024, Unmovable));
    assert_eq!(pair.zone.buddy.free_pages(), 513);
    assert_eq!(pair.zone.buddy.free_isolate(), 0);
}

#[test]
fn a_block_of_two_pageblocks_comes_back_under_the_type_of_the_second() {
    let mut pair = pageblocks(2, &[Movable]);
    let pfn = pair.take(request(10, Movable), None)[0];
    let (_, frames) = pair.zone.parts();
    frames.set_pageblock_type(512, Reclaimable);
    pair.model.set_type(1536, 9, Reclaimable);
    pair.free(pfn, false);
    let bits = Migratetype::ALL.map(|mt| pair.zone.buddy.nonempty_orders(mt));
    assert_eq!(bits, [0, 0, 1 << 10, 0, 0]);
}

#[test]
fn a_refused_free_names_the_frame_the_order_and_the_cause() {
    let mut pair = pageblocks(1, &[Movable]);
    let pfn = pair.take(request(3, Movable), None)[0];
    let mut refuse = |pfn: u64, o: u32, cause: FreeCause| {
        let error = pair.try_free(pfn, o, false).unwrap_err();
        assert_eq!((error.pfn, error.order, error.cause), (Pfn(pfn), order(o), cause));
        error.to_string()
    };
    refuse(pfn, 2, FreeCause::OrderIs(order(3)));
    refuse(pfn + 4, 2, FreeCause::InsideBlock(Pfn(pfn)));
    refuse(pfn + 4, 3, FreeCause::Misaligned);
    refuse(pfn + 8, 3, FreeCause::AlreadyFree);
    refuse(pfn + 300, 0, FreeCause::InsideBlock(Pfn(pfn + 256)));
    refuse(pfn, 10, FreeCause::OutsideZone);
    let text = refuse(pfn + 512, 0, FreeCause::OutsideZone);
    assert_eq!(text, "cannot free pfn 0x600, order 0: not wholly inside the zone");
    pair.free(pfn, false);
    let error = pair.try_free(pfn, 3, false).unwrap_err();
    assert_eq!(error.cause, FreeCause::AlreadyFree);
}

#[test]
fn overwritten_metadata_leaks_pages_and_never_hands_one_out_twice() {
    for damage in [0, u64::MAX, PageWord::free(order(5), 3, 4).0, 1 << 40] {
        let mut pair = pageblocks(4, &[Movable]);
        pair.take(request(0, Movable), Some(100));
        let policy = pair.policy;
        let (buddy, frames) = pair.zone.parts();
        let head = buddy.list(&frames, order(7), Movable).next().unwrap();
        frames.store(head, PageWord(damage));
        let fault = buddy.validate(&frames).unwrap_err();
        if damage == 1 << 40 {
            let pfn = frames.pfn(head);
            let says = format!("the word of {pfn:?} was overwritten: 0x10000000000 says no state");
            assert_eq!(fault.to_string(), says + " (BUDDY-9)");
        }
        let mut got = vec![];
        let all = request(0, Movable);
        buddy.take_bulk(&frames, all, 4096, &policy, &mut |_| (), |idx| got.push(idx));
        assert_eq!(buddy.faults(), 1);
        assert_eq!(buddy.validate(&frames).unwrap_err().invariant, 10);
        let before = got.len();
        got.sort_unstable();
        got.dedup();
        assert_eq!((before, got.len()), (got.len(), 2048 - 100 - 128));
    }
}

#[test]
fn a_block_in_the_middle_of_a_free_one_can_be_taken_alone() {
    let mut pair = pageblocks(2, &[Movable]);
    let (buddy, frames) = pair.zone.parts();
    let index = |pfn| frames.index(Pfn(pfn)).unwrap();
    assert_eq!(buddy.take_exact(&frames, index(1024 + 6), order(1)), Some(Order::MAX));
    assert_eq!(buddy.free_pages(), 1022);
    // What is left is what a split leaves, and nothing of what was taken can be taken again.
    for (order_left, pfn) in [(1, 1028), (2, 1024), (3, 1032), (4, 1040), (9, 1536)] {
        let heads: Vec<u32> = buddy.list(&frames, order(order_left), Movable).collect();
        assert_eq!(heads, [index(pfn)], "order {order_left}");
    }
    for (pfn, taken) in [(1030, 0), (1031, 0), (1028, 2), (1029, 1)] {
        assert_eq!(buddy.take_exact(&frames, index(pfn), order(taken)), None, "{pfn}, {taken}");
    }
    buddy.validate(&frames).unwrap();
    buddy.free_block(&frames, index(1030), order(1), crate::buddy::FreeFlags::default()).unwrap();
    assert_eq!(buddy.nr_free(Order::MAX), 1);
}
