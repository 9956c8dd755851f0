//! Ranges that a CPU keeps for the next request of their size.

use core::num::NonZeroU64;
use core::ops::Range;
use std::boxed::Box;
use std::vec::Vec;

use super::platform::{Script, Shape, on_cpu};
use crate::alloc::range::RangeRequest;
use crate::alloc::{Allocator, FreeError, Request, Sysctl};
use crate::frame::claim::First;
use crate::frame::{PageState, PageWord};
use crate::gfp::Gfp;
use crate::pcp::word::PcpWord;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, PAGEBLOCK_PAGES, Pfn, ZoneId};

const PAGES: u64 = 1 << 18;

fn boot(policy: Policy) -> Allocator<'static, Script> {
    let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, PAGES, 2)));
    shape.boot_on(policy, Script { gates: Some(true), ..Script::default() })
}

fn alloc(pool: &Allocator<'_, Script>, request: RangeRequest) -> Range<Pfn> {
    let first = pool.ranges().alloc(request).unwrap();
    first..Pfn(first.0 + request.pages)
}

/// A range of so many pages that was freed and is parked.
fn park(pool: &Allocator<'_, Script>, pages: u64) -> Range<Pfn> {
    let range = alloc(pool, RangeRequest::new(pages));
    pool.ranges().free(range.clone()).unwrap();
    assert_eq!(parked(pool), Some(range.clone()));
    range
}

fn parked(pool: &Allocator<'_, Script>) -> Option<Range<Pfn>> {
    let (frame, pages) = pool.pcp(ZoneId(0), CpuId(0)).parked.range()?;
    let start = pool.zones()[0].page(frame);
    Some(start..Pfn(start.0 + u64::from(pages)))
}

fn all_is_back(pool: &Allocator<'_, Script>) {
    pool.validate().unwrap();
    pool.drain_all();
    assert_eq!(parked(pool), None);
    assert_eq!(pool.free_pages(), PAGES);
}

#[test]
fn a_parked_range_goes_out_again_as_it_was() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        for pages in [3, 5, 6, 7] {
            let range = park(&pool, pages);
            let (count, totals) = (pcp.count(), pcp.totals());
            for _ in 0..3 {
                assert_eq!(alloc(&pool, RangeRequest::new(pages)), range);
                assert_eq!((parked(&pool), pcp.count()), (None, count - pages as u32));
                pool.ranges().check(range.clone()).unwrap();
                pool.ranges().free(range.clone()).unwrap();
                assert_eq!((parked(&pool), pcp.count()), (Some(range.clone()), count));
            }
            let (after, block) = (pcp.totals(), 3 * pages.next_power_of_two());
            assert_eq!(after.pops, totals.pops + 3);
            assert_eq!(after.popped_pages, totals.popped_pages + block);
            assert_eq!(after.pushed_pages, totals.pushed_pages + block);
            pool.validate().unwrap();
            assert_eq!(parked(&pool), None, "who closes a pcp puts the range on its lists");
        }
        all_is_back(&pool);
    }
}

#[test]
fn no_part_of_a_parked_range_is_freed_twice_or_has_two_owners() {
    let pool = boot(Policy::KERNEL);
    let r = pool.ranges();
    for part in [0..7, 0..1, 0..4, 1..2, 3..7, 4..6, 4..7, 6..7] {
        let range = park(&pool, 7);
        let pages = Pfn(range.start.0 + part.start)..Pfn(range.start.0 + part.end);
        let twice = r.free(pages.clone()).unwrap_err();
        assert!(matches!(twice, FreeError::DoubleFree { .. }), "{part:?}: {twice}");
        for order in Order::all().take(4) {
            assert!(pool.free(pages.start, order).is_err(), "{part:?}, {order:?}");
        }
        assert!(r.grow(range.clone(), 1, Gfp::KERNEL).is_err(), "{part:?}");
        // Every page of it has one owner, whoever asks for it next.
        let again = alloc(&pool, RangeRequest::new(7));
        let others: Vec<_> =
            (0..64).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
        assert!(others.iter().all(|page| !again.contains(page)), "{part:?}");
        others.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
        r.free(again).unwrap();
        pool.validate().unwrap();
    }
    all_is_back(&pool);
}

/// By any call: the range is there for its next request, as before.
#[test]
fn a_wrong_free_leaves_the_range_that_is_parked() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        let range = park(&pool, 7);
        let free = Pfn(range.start.0 + 4096);
        for wrong in [page, range.start, free, Pfn(PAGES * 2)] {
            for pages in 1..=9 {
                let pages = if wrong == page { pages + 1 } else { pages };
                let end = Pfn(wrong.0 + pages);
                assert!(pool.ranges().free(wrong..end).is_err(), "{wrong:?}, {pages}");
                assert_eq!(parked(&pool), Some(range.clone()), "{wrong:?}, {pages}");
            }
            for order in Order::all().filter(|order| wrong != page || order.get() > 0) {
                assert!(pool.free(wrong, order).is_err(), "{wrong:?}, {order:?}");
                assert_eq!(parked(&pool), Some(range.clone()), "{wrong:?}, {order:?}");
            }
        }
        assert_eq!(alloc(&pool, RangeRequest::new(7)), range);
        pool.ranges().free(range).unwrap();
        pool.free(page, Order::ZERO).unwrap();
        all_is_back(&pool);
    }
}

/// Neither before room was kept, when it is 0 too, nor behind it.
#[test]
fn no_pages_are_no_range_that_is_parked() {
    let pool = boot(Policy::KERNEL);
    let one = pool.alloc(Request::new(Order::ZERO)).unwrap();
    let none = |pool: &Allocator<'_, Script>, at: Pfn| {
        let words: Vec<u64> = pool.words().iter().map(|word| word.load(Relaxed)).collect();
        assert!(pool.ranges().alloc(RangeRequest::new(0)).is_err());
        assert!(pool.ranges().free(at..at).is_err());
        assert!(pool.words().iter().map(|word| word.load(Relaxed)).eq(words));
        assert_eq!(parked(pool), None);
    };
    none(&pool, one);
    none(&pool, Pfn(one.0 + 1));
    let range = park(&pool, 7);
    assert_eq!(alloc(&pool, RangeRequest::new(7)), range);
    none(&pool, range.start);
    pool.ranges().free(range).unwrap();
    pool.free(one, Order::ZERO).unwrap();
    all_is_back(&pool);
}

/// What the first word of a range says of it.
fn first_of(pool: &Allocator<'_, Script>, range: &Range<Pfn>) -> First {
    let frame = pool.zones()[0].frame(range.start) as usize;
    PageWord(pool.words()[frame].load(Relaxed)).first()
}

/// A free of any part, or another change, leaves a range that goes by the words of its blocks: it
/// is parked no more, and each of its pages is freed once.
#[test]
fn a_range_that_is_changed_tells_its_length_no_more() {
    type Change = fn(&Allocator<'_, Script>, Range<Pfn>) -> Vec<Range<Pfn>>;
    fn part(range: &Range<Pfn>, from: u64, to: u64) -> Range<Pfn> {
        Pfn(range.start.0 + from)..Pfn(range.start.0 + to)
    }
    let changes: [Change; 7] = [
        |pool, range| {
            pool.ranges().free(part(&range, 0, 3)).unwrap();
            [part(&range, 3, 7)].into()
        },
        |pool, range| {
            pool.ranges().free(part(&range, 4, 6)).unwrap();
            [part(&range, 0, 4), part(&range, 6, 7)].into()
        },
        |pool, range| {
            pool.ranges().free(part(&range, 6, 7)).unwrap();
            [part(&range, 0, 6)].into()
        },
        |pool, range| {
            pool.ranges().split(range.clone(), Pfn(range.start.0 + 6)).unwrap();
            [part(&range, 6, 7), part(&range, 0, 6)].into()
        },
        |pool, range| {
            pool.ranges().split(range.clone(), Pfn(range.start.0 + 4)).unwrap();
            pool.ranges().join(range.clone(), Pfn(range.start.0 + 4)).unwrap();
            [range].into()
        },
        |pool, range| {
            // The page behind it waits on a list.
            pool.ranges().grow(range.clone(), 1, Gfp::KERNEL).unwrap();
            pool.ranges().free(range.clone()).unwrap();
            [part(&range, 7, 8)].into()
        },
        |pool, range| {
            pool.ranges().into_blocks(part(&range, 4, 6), Order::ZERO).unwrap();
            for page in [4, 5] {
                pool.free(Pfn(range.start.0 + page), Order::ZERO).unwrap();
            }
            [part(&range, 0, 4), part(&range, 6, 7)].into()
        },
    ];
    for change in changes {
        for was_parked in [false, true] {
            let pool = boot(Policy::KERNEL);
            let range = if was_parked {
                park(&pool, 7);
                alloc(&pool, RangeRequest::new(7))
            } else {
                alloc(&pool, RangeRequest::new(7))
            };
            assert!(matches!(first_of(&pool, &range), First::Told(_)));
            let left = change(&pool, range.clone());
            assert!(!matches!(first_of(&pool, &range), First::Told(_)));
            assert!(pool.ranges().free(Pfn(range.start.0)..Pfn(range.start.0 + 8)).is_err());
            assert!(left == [range.clone()] || pool.ranges().free(range.clone()).is_err());
            assert_eq!(parked(&pool), None);
            pool.validate().unwrap();
            for part in left {
                pool.ranges().free(part.clone()).unwrap();
                assert_eq!(parked(&pool), None);
                assert!(pool.ranges().free(part).is_err());
            }
            all_is_back(&pool);
        }
    }
}

#[test]
fn what_a_cpu_keeps_is_in_nobodys_hands() {
    let pool = boot(Policy::KERNEL);
    for wanted in [4..6, 6..7, 1..3] {
        let range = park(&pool, 7);
        assert_eq!(pool.allocated().count(), 0);
        for page in range.start.0..range.end.0 {
            let state = pool.frame_state(pool.zones()[0].frame(Pfn(page)) as usize);
            let is_kept = matches!(state, PageState::Cached { .. } | PageState::None);
            assert!(is_kept, "{page}: {state:?}");
        }
        // Any part of it is there for who wants these pages.
        let wanted = Pfn(range.start.0 + wanted.start)..Pfn(range.start.0 + wanted.end);
        pool.ranges().alloc_at(wanted.clone(), Gfp::KERNEL).unwrap();
        pool.ranges().free(wanted).unwrap();
        pool.drain_all();
    }
    all_is_back(&pool);
}

#[test]
fn who_wants_the_pages_of_a_parked_range_gets_them() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        // At their place.
        let range = park(&pool, 5);
        let block = range.start..Pfn(range.start.0 + 8);
        pool.ranges().alloc_at(block.clone(), Gfp::KERNEL).unwrap();
        assert_eq!(parked(&pool), None);
        pool.ranges().free(block).unwrap();
        // By a drain of that CPU.
        park(&pool, 6);
        pool.drain(ZoneId(0), CpuId(0));
        assert_eq!(pool.free_pages(), PAGES);
        // Another size of the same block, which parks instead.
        let three = park(&pool, 5);
        let six = park(&pool, 6);
        assert!(three.end <= six.start || six.end <= three.start || three.start == six.start);
        // Another order, from the same CPU: the range is a block again.
        let (pcp, order) = (pool.pcp(ZoneId(0), CpuId(0)), Order::new(3).unwrap());
        let count = pcp.count();
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        assert_eq!((parked(&pool), pcp.count()), (None, count - 1));
        pool.free(page, Order::ZERO).unwrap();
        assert_eq!(pool.alloc(Request::new(order)), Ok(six.start));
        pool.free(six.start, order).unwrap();
        all_is_back(&pool);
    }
}

#[test]
fn room_is_kept_for_a_parked_range_within_the_limits() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        for pages in [3, 5, 6, 7] {
            let range = park(&pool, pages);
            // Taken or not, the pages are counted as if they were on another list.
            for is_parked in [true, false] {
                let word = PcpWord(pcp.word.load(Relaxed));
                let active = &pcp.lists[word.active()];
                let lists = pcp.count() - if is_parked { pages as u32 } else { 0 };
                let others = lists - (word.len() << active.order_bits);
                assert_eq!(active.others.load(Relaxed), others + pages as u32);
                let limit = active.limit(pcp.limit.load(Relaxed), others + pages as u32);
                assert_eq!(active.hi.load(Relaxed), limit);
                if is_parked {
                    assert_eq!(alloc(&pool, RangeRequest::new(pages)), range);
                }
            }
            pool.ranges().free(range).unwrap();
        }
        // A limit that leaves no room for it: the range goes to its lists.
        pool.validate().unwrap();
        let range = alloc(&pool, RangeRequest::new(3));
        pcp.limit.store(pcp.count() + 3, Relaxed);
        pool.ranges().free(range).unwrap();
        assert_eq!(parked(&pool), None);
        all_is_back(&pool);
    }
}

#[test]
fn a_request_that_is_not_for_the_parked_range_does_not_get_it() {
    let pool = boot(Policy::KERNEL);
    let range = park(&pool, 3);
    let movable = alloc(&pool, RangeRequest::new(3).gfp(Gfp::KERNEL | Gfp::MOVABLE));
    assert_ne!(movable, range, "another type's pageblock");
    let range = park(&pool, 3);
    let packed = alloc(&pool, RangeRequest::new(3).packed());
    assert_ne!(packed, range);
    for align in [8, 64, 1024] {
        park(&pool, 3);
        let aligned = alloc(&pool, RangeRequest::new(3).aligned(align));
        assert!(aligned.start.0.is_multiple_of(align));
        pool.ranges().free(aligned).unwrap();
    }
    assert!(pool.ranges().alloc(RangeRequest::new(3).aligned(3)).is_err());
    for range in [movable, packed] {
        pool.ranges().free(range).unwrap();
    }
    all_is_back(&pool);
}

#[test]
fn ranges_that_are_no_front_of_a_block_are_not_parked() {
    let pool = boot(Policy::KERNEL);
    // Room is kept, and nothing is parked.
    park(&pool, 3);
    let three = alloc(&pool, RangeRequest::new(3));
    let whole = alloc(&pool, RangeRequest::new(20));
    // In the middle of a range, at a place of its own and as a block would begin; then the front of
    // what is left, and its end.
    for part in [2..5, 8..11, 12..15, 16..19, 5..8] {
        let part = Pfn(whole.start.0 + part.start)..Pfn(whole.start.0 + part.end);
        pool.ranges().free(part.clone()).unwrap();
        assert_ne!(parked(&pool), Some(part));
        pool.validate().unwrap();
    }
    for part in [0..2, 11..12, 15..16, 19..20] {
        let part = Pfn(whole.start.0 + part.start)..Pfn(whole.start.0 + part.end);
        pool.ranges().free(part).unwrap();
    }
    pool.ranges().free(three).unwrap();
    all_is_back(&pool);
}

/// Takes what the CPU's list of this order holds.
fn empty_list(pool: &Allocator<'_, Script>, order: Order) -> Vec<(Pfn, Order)> {
    let pcp = pool.pcp(ZoneId(0), CpuId(0));
    let list = pool.tables().lists().get(order, Migratetype::Unmovable).unwrap();
    let mut taken = Vec::new();
    while pcp.listed(list) > 0 {
        taken.push((pool.alloc(Request::new(order)).unwrap(), order));
    }
    taken
}

/// Parks a range of so many pages whose rest is handed out. The list of order 1 is empty then, and
/// at the end of its slots, where drains leave it: only who closes the pcp puts a block there.
/// Returns what was handed out.
fn park_without_room(pool: &Allocator<'_, Script>, range: &Range<Pfn>) -> Vec<(Pfn, Order)> {
    let (pcp, pair) = (pool.pcp(ZoneId(0), CpuId(0)), Order::new(1).unwrap());
    let mut taken = empty_list(pool, pair);
    taken.extend(empty_list(pool, Order::ZERO));
    let list = &pcp.lists[pool.tables().lists().get(pair, Migratetype::Unmovable).unwrap()];
    let slots = u64::from(list.cap - list.lo.load(Relaxed));
    list.lo.store(list.cap, Relaxed);
    list.slots_lo.store(list.slots_lo.load(Relaxed) + 4 * slots, Relaxed);
    pool.ranges().free(range.clone()).unwrap();
    assert_eq!(parked(pool).as_ref(), Some(range));
    taken
}

#[test]
fn who_has_no_list_for_a_parked_range_closes_the_pcp() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        // The second range would find room on its lists, or would not; few blocks, or many.
        for (pages, other) in [(7, 5), (7, 6), (15, 9), (15, 13), (15, 15)] {
            if pages == 15 && policy.name != Policy::ZONAL.name {
                continue;
            }
            for twice in [false, true] {
                let pool = boot(policy);
                let [first, second, third] =
                    [pages, other, other].map(|pages| alloc(&pool, RangeRequest::new(pages)));
                pool.ranges().free(third.clone()).unwrap();
                let taken = park_without_room(&pool, &first);
                let count = pool.pcp(ZoneId(0), CpuId(0)).count();
                if twice {
                    pool.ranges().free(third).unwrap_err();
                    assert_eq!(parked(&pool), Some(first), "a wrong free has no need of the lists");
                    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).count(), count);
                }
                pool.ranges().free(second).unwrap();
                assert_eq!(parked(&pool), None, "{pages} {other} {twice}: no room is kept for it");
                taken.into_iter().for_each(|(page, order)| pool.free(page, order).unwrap());
                all_is_back(&pool);
            }
        }
    }
}

#[test]
fn a_parked_range_whose_pageblock_got_another_type_goes_when_the_next_one_comes() {
    let pool = boot(Policy::KERNEL);
    let pageblock = |range: &Range<Pfn>| (range.start.0 / PAGEBLOCK_PAGES) as u32;
    let first = alloc(&pool, RangeRequest::new(3));
    let mut others = Vec::from([alloc(&pool, RangeRequest::new(3))]);
    while pageblock(others.last().unwrap()) == pageblock(&first) {
        others.push(alloc(&pool, RangeRequest::new(3)));
    }
    pool.ranges().free(first.clone()).unwrap();
    assert_eq!(parked(&pool), Some(first.clone()));
    let retype = |mt| {
        let zone = pool.zone_ops(ZoneId(0)).lock();
        let frame = pageblock(&first) * PAGEBLOCK_PAGES as u32;
        zone.frames.set_pageblock_type(frame, mt);
    };
    retype(Migratetype::Movable);
    pool.ranges().free(others.pop().unwrap()).unwrap();
    assert_eq!(parked(&pool), None, "no room is kept for it");
    retype(Migratetype::Unmovable);
    others.into_iter().for_each(|range| pool.ranges().free(range).unwrap());
    all_is_back(&pool);
}

#[test]
fn a_look_at_a_pcp_changes_nothing_of_what_is_parked() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        let range = park(&pool, 5);
        let (pcp, zone) = (pool.pcp(ZoneId(0), CpuId(0)), &pool.zones()[0]);
        let five = NonZeroU64::new(5).unwrap();
        let before = (pcp.count(), pcp.totals(), pcp.may_hold(), pcp.parked.order(five));
        let look = pcp.look(pool.platform(), zone, pool.tables.slots);
        assert_eq!(look.closed().count().get(), pcp.count() - 5, "those on lists");
        drop(look);
        assert_eq!(parked(&pool), Some(range));
        assert_eq!((pcp.count(), pcp.totals(), pcp.may_hold(), pcp.parked.order(five)), before);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        assert_eq!(parked(&pool), None);
        pool.free(page, Order::ZERO).unwrap();
        all_is_back(&pool);
    }
}

#[test]
fn who_holds_all_reads_a_range_that_was_parked_on_its_lists() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        // Also where the rest is gone: each block on the list of its order.
        for rest_is_gone in [false, true] {
            let range = alloc(&pool, RangeRequest::new(7));
            let page = rest_is_gone.then(|| pool.alloc(Request::new(Order::ZERO)).unwrap());
            pool.ranges().free(range.clone()).unwrap();
            assert_eq!(parked(&pool), Some(range));
            let pcp = pool.pcp(ZoneId(0), CpuId(0));
            let before = (pcp.count(), pcp.totals().pushed_pages);
            let mut held = Vec::new();
            pool.hold_all(&mut |hold| held.push(hold));
            assert_eq!((pcp.count(), pcp.totals().pushed_pages), before);
            while held.pop().is_some() {}
            assert_eq!((pcp.count(), pcp.totals().pushed_pages), before);
            page.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
        }
        all_is_back(&pool);
    }
}

#[test]
fn a_range_that_nobody_took_between_two_refreshes_goes_to_its_lists() {
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let pool = boot(policy);
        pool.set(Sysctl::HighFraction, 8).unwrap();
        let range = park(&pool, 5);
        let pcp = pool.pcp(ZoneId(0), CpuId(0));
        assert_eq!(pcp.high(), pcp.high_min.load(Relaxed), "nothing decays");
        let count = pcp.count();
        for _ in 0..3 {
            assert_eq!(alloc(&pool, RangeRequest::new(5)), range);
            pool.ranges().free(range.clone()).unwrap();
            assert!(pool.refresh(CpuId(0)), "there is something to come back for");
            assert_eq!(parked(&pool), Some(range.clone()), "it is in use");
        }
        assert!(pool.refresh(CpuId(0)));
        assert_eq!((parked(&pool), pcp.count()), (None, count));
        all_is_back(&pool);
    }
}

#[test]
fn another_cpu_gets_the_pages_of_a_parked_range() {
    const PAGES: u64 = 1 << 14;
    for policy in [Policy::ZONAL, Policy::KERNEL] {
        let shape: &'static Shape = Box::leak(Box::new(Shape::uniform(1, PAGES, 2)));
        let pool = shape.boot_on(policy, Script { gates: Some(true), ..Script::default() });
        let park_on_0 = || {
            on_cpu(0);
            let range = park(&pool, 5);
            on_cpu(1);
            range
        };
        // At their place.
        let block = park_on_0();
        pool.ranges().alloc_at(block.clone(), Gfp::KERNEL).unwrap();
        assert_eq!(parked(&pool), None);
        pool.ranges().free(block).unwrap();
        // By a drain.
        park_on_0();
        pool.drain(ZoneId(0), CpuId(0));
        assert_eq!(parked(&pool), None);
        pool.validate().unwrap();
        // All memory, by requests that do not wait.
        park_on_0();
        let nowait = Request::new(Order::ZERO).gfp(Gfp::NOWAIT | Gfp::MEMALLOC);
        let mut pages: Vec<_> = (0..PAGES).map(|_| pool.alloc(nowait).unwrap()).collect();
        assert_eq!(parked(&pool), None);
        assert!(pool.alloc(nowait).is_err());
        pages.sort();
        assert!(pages.windows(2).all(|two| two[0].0 + 1 == two[1].0), "each has one owner");
        pages.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
        pool.validate().unwrap();
        pool.drain_all();
        assert_eq!(pool.free_pages(), PAGES);
        on_cpu(0);
    }
}
