//! Ranges: every transition of a range, every place and size on a small zone, every refusal.

use std::vec::Vec;

use super::platform::{LISTS_ALONE, Script, Shape, on_cpu, zone};
use crate::alloc::range::{Obstacle, RangeError, RangeRefusal, RangeRequest};
use crate::alloc::{AllocError, Allocator, FreeError, Refusal, Request};
use crate::frame::PageState;
use crate::gfp::Gfp;
use crate::policy::Policy;
use crate::types::{CpuId, Order, Pfn, ZoneId, ZoneKind};

const ZONE: ZoneId = ZoneId(0);
/// Ignores the watermarks: which pages, not how many.
const ANY: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

fn pages(start: u64, pages: u64) -> core::ops::Range<Pfn> {
    Pfn(start)..Pfn(start + pages)
}

/// One zone of `pages` pages from pfn `start` on.
fn one_zone(start: u64, pages: u64) -> Shape {
    Shape { zones: std::vec![zone(0, ZoneKind::Normal, start, pages)], ..Shape::uniform(1, 64, 2) }
}

/// First page and order of every free block.
fn free_blocks(pool: &Allocator<'_, Script>) -> Vec<(u64, u32)> {
    let zone = &pool.zones()[0];
    let state = |at: u64| pool.frame_state(zone.frame_base() + at as usize);
    let block = |at: u64| match state(at) {
        PageState::Free { order, .. } => Some((zone.start_pfn().0 + at, order.get())),
        _ => None,
    };
    (0..zone.spanned()).filter_map(block).collect()
}

/// Pages of each range: from a first block to the next that is not a later one.
fn ranges(pool: &Allocator<'_, Script>) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for zone in pool.zones() {
        for at in 0..zone.spanned() {
            let pfn = zone.start_pfn().0 + at;
            match pool.frame_state(zone.frame_base() + at as usize) {
                PageState::Range { order, first: true, .. } => found.push((pfn, order.pages())),
                PageState::Range { order, first: false, .. } => {
                    let last = found.last_mut().expect("a range begins with a first block");
                    assert_eq!(last.0 + last.1, pfn, "RANGE-1: a later block has one in front");
                    last.1 += order.pages();
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn every_size_at_every_place_comes_and_goes_without_a_trace() {
    // The zone begins and ends inside blocks.
    for (start, size) in [(0, 72), (7, 70), (512 - 5, 68)] {
        one_zone(start, size).scoped(LISTS_ALONE, 0, |pool| {
            let before = free_blocks(pool);
            for n in 1..=64 {
                for first in start..=start + size - n {
                    pool.ranges().alloc_at(pages(first, n), ANY).unwrap();
                    assert_eq!(ranges(pool), [(first, n)]);
                    pool.validate().unwrap();
                    assert_eq!(pool.free_pages(), size - n);
                    pool.ranges().free(pages(first, n)).unwrap();
                    pool.drain_all();
                    assert_eq!(free_blocks(pool), before, "{n} pages at {first}");
                }
            }
            pool.validate().unwrap();
        });
    }
}

#[test]
fn every_part_of_a_range_can_be_freed_and_the_rest_stays() {
    for (start, size, first, sizes) in [(0, 48, 5, 1..=24), (3, 80, 9, 64..=64)] {
        one_zone(start, size).scoped(LISTS_ALONE, 0, |pool| {
            let before = free_blocks(pool);
            for n in sizes {
                for (from, to) in (0..n).flat_map(|from| (from + 1..=n).map(move |to| (from, to))) {
                    pool.ranges().alloc_at(pages(first, n), ANY).unwrap();
                    pool.ranges().free(pages(first + from, to - from)).unwrap();
                    pool.validate().unwrap();
                    let front = (from > 0).then_some((first, from));
                    let back = (to < n).then_some((first + to, n - to));
                    let stay: Vec<(u64, u64)> = front.into_iter().chain(back).collect();
                    assert_eq!(ranges(pool), stay);
                    assert_eq!(pool.free_pages(), size - n + (to - from));
                    for (first, n) in stay {
                        pool.ranges().free(pages(first, n)).unwrap();
                    }
                    pool.drain_all();
                    assert_eq!(free_blocks(pool), before, "{from}..{to} of {n}");
                }
            }
        });
    }
}

#[test]
fn an_exact_range_has_its_pages_and_no_more() {
    for policy in [Policy::ZONAL, Policy::LINUX_6_18, LISTS_ALONE] {
        Shape::uniform(1, 8192, 2).scoped(policy, 0, |pool| {
            for n in (1..=64).chain([100, 511, 512, 513, 1000, 1023, 1024, 1025, 3000, 4096]) {
                let first = pool.ranges().alloc(RangeRequest::new(n)).unwrap();
                assert_eq!(ranges(pool), [(first.0, n)]);
                assert_eq!(pool.free_pages(), 8192 - n, "nothing is wasted");
                pool.validate().unwrap();
                pool.ranges().free(first..Pfn(first.0 + n)).unwrap();
                assert_eq!(pool.free_pages(), 8192);
                pool.validate().unwrap();
            }
        });
    }
}

#[test]
fn alignment_above_a_block_is_kept() {
    Shape::uniform(1, 16384, 1).scoped(Policy::ZONAL, 0, |pool| {
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        for (n, align) in [(3, 8), (5, 1024), (1500, 512), (1500, 2048), (2, 4096), (4096, 4096)] {
            let request = RangeRequest::new(n).aligned(align);
            let first = pool.ranges().alloc(request).unwrap();
            assert_eq!(first.0 % align, 0, "{n} pages at a multiple of {align}");
            assert_eq!(ranges(pool), [(first.0, n)]);
            pool.ranges().free(first..Pfn(first.0 + n)).unwrap();
        }
        pool.free(page, Order::ZERO).unwrap();
        pool.validate().unwrap();
    });
}

#[test]
fn pages_side_by_side_serve_where_no_block_does() {
    one_zone(0, 64).scoped(LISTS_ALONE, 0, |pool| {
        let all = pages(0, 64);
        pool.ranges().alloc_at(all, ANY).unwrap();
        // 5..19 is free, in blocks of at most order 3.
        pool.ranges().free(pages(5, 14)).unwrap();
        assert!(pool.alloc(Request::new(order(4)).gfp(ANY)).is_err());
        let request = RangeRequest::new(14).gfp(ANY);
        assert_eq!(pool.ranges().alloc(request), Ok(Pfn(5)));
        pool.ranges().free(pages(5, 14)).unwrap();
        let got = pool.ranges().alloc(request.aligned(2)).unwrap_err();
        assert!(matches!(got.why, RangeRefusal::Refused(Refusal::Fragmented { free: 14, .. })));
        assert_eq!(pool.ranges().alloc(RangeRequest::new(13).aligned(2).gfp(ANY)), Ok(Pfn(6)));
        pool.validate().unwrap();
    });
}

#[test]
fn a_range_goes_to_where_pages_wait_on_lists_and_in_depots() {
    for policy in [Policy::ZONAL, LISTS_ALONE] {
        Shape::uniform(1, 4096, 2).scoped(policy, 0, |pool| {
            let mut got = Vec::new();
            for cpu in [0, 1] {
                on_cpu(cpu);
                got.extend((0..600).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()));
            }
            for (at, pfn) in got.into_iter().enumerate() {
                on_cpu(at as u32 % 2);
                pool.free(pfn, Order::ZERO).unwrap();
            }
            assert!(pool.zone_stats(ZONE).cached_pages > 0);
            let first = pool.alloc(Request::new(Order::ZERO)).unwrap();
            pool.free(first, Order::ZERO).unwrap();
            // Every page but those that must stay free: the lists have some of them.
            pool.ranges().alloc_at(pages(first.0, 1), Gfp::KERNEL).unwrap();
            pool.ranges().free(pages(first.0, 1)).unwrap();
            pool.ranges().alloc_at(pages(0, 3000), Gfp::KERNEL).unwrap();
            pool.validate().unwrap();
            assert_eq!(ranges(pool), [(0, 3000)]);
            pool.ranges().free(pages(0, 3000)).unwrap();
            // A request that must not wait gets them too, where nobody has a list closed.
            pool.ranges().alloc_at(pages(0, 3000), Gfp::NOWAIT).unwrap();
            pool.ranges().free(pages(0, 3000)).unwrap();
            pool.validate().unwrap();
        });
    }
}

#[test]
fn a_place_is_refused_with_the_first_page_in_the_way() {
    one_zone(100, 300).scoped(LISTS_ALONE, 0, |pool| {
        pool.ranges().alloc_at(pages(150, 6), ANY).unwrap();
        let block = pool.alloc(Request::new(order(3)).gfp(ANY)).unwrap();
        let why = |range: core::ops::Range<Pfn>| {
            let error = pool.ranges().alloc_at(range.clone(), ANY).unwrap_err();
            assert_eq!(error.pages, range.end.0 - range.start.0);
            assert_eq!(error.start, Some(range.start));
            error.why
        };
        let held = |at, block, o| RangeRefusal::InTheWay(Pfn(at), Obstacle::Held(Pfn(block), o));
        assert_eq!(why(pages(148, 3)), held(150, 150, order(1)));
        assert_eq!(why(pages(155, 3)), held(155, 152, order(2)));
        assert_eq!(why(pages(block.0 + 3, 9)), held(block.0 + 3, block.0, order(3)));
        assert_eq!(why(pages(99, 2)), RangeRefusal::Outside(Pfn(99)));
        assert_eq!(why(pages(398, 3)), RangeRefusal::Outside(Pfn(400)));
        assert_eq!(pool.ranges().alloc_at(pages(200, 0), ANY).unwrap_err().why, {
            RangeRefusal::Empty
        });
        let odd = pool.ranges().alloc(RangeRequest::new(2).aligned(3)).unwrap_err();
        assert_eq!(odd.why, RangeRefusal::Align(3));
        let text = std::format!("{}", pool.ranges().alloc_at(pages(148, 3), ANY).unwrap_err());
        assert_eq!(
            text,
            "cannot allocate 3 pages in a row at pfn 0x94: pfn 0x96 is handed out, in the block of \
             order 1 at pfn 0x96"
        );
        pool.validate().unwrap();
    });
}

#[test]
fn memory_that_is_not_there_is_in_the_way() {
    let mut shape = one_zone(0, 64);
    shape.zones[0].present = 50;
    // The hole is at the zone's start.
    let pool = shape.boot_deferred(LISTS_ALONE, Script::default(), 0);
    let error = pool.ranges().alloc_at(pages(0, 64), ANY).unwrap_err();
    assert_eq!(error.why, RangeRefusal::InTheWay(Pfn(0), Obstacle::Absent));
    assert_eq!(pool.ranges().longest(ZONE), 50);
    assert_eq!(pool.ranges().alloc(RangeRequest::new(50).gfp(ANY)), Ok(Pfn(14)));
    pool.validate().unwrap();
}

#[test]
fn memory_to_come_comes_online_for_a_range() {
    let section = 1 << 15;
    for place in [None, Some(2 * section + 10)] {
        let shape = Shape::uniform(1, 4 * section, 1);
        let pool = shape.boot_deferred(Policy::ZONAL, Script::default(), 0);
        assert_eq!(pool.stats().left_to_grow(crate::types::NodeId(0)), 3 * section);
        let n = section + 20;
        let first = match place {
            None => pool.ranges().alloc(RangeRequest::new(n)).unwrap(),
            Some(at) => {
                pool.ranges().alloc_at(pages(at, n), Gfp::KERNEL).unwrap();
                Pfn(at)
            }
        };
        assert_eq!(ranges(&pool), [(first.0, n)]);
        pool.ranges().free(pages(first.0, n)).unwrap();
        pool.finish_growth().unwrap();
        assert_eq!(pool.free_pages(), 4 * section);
        pool.validate().unwrap();
    }
}

#[test]
fn watermarks_and_rights_hold_for_all_pages_of_a_range() {
    Shape::uniform(1, 4096, 1).scoped(Policy::LINUX_6_18, 0, |pool| {
        let zone = &pool.zones()[0];
        let min = zone.watermarks().min + zone.reserve(ZoneKind::Normal);
        let most = 4096 - min;
        assert!(min > 0);
        let error = pool.ranges().alloc_at(pages(0, most + 1), Gfp::KERNEL).unwrap_err();
        let RangeRefusal::Refused(Refusal::Watermark { free, needed, .. }) = error.why else {
            panic!("{error}")
        };
        assert_eq!((free, needed), (4096, 4096));
        assert_eq!(pool.free_pages(), 4096);
        pool.ranges().alloc_at(pages(0, most), Gfp::KERNEL).unwrap();
        pool.refresh(CpuId(0));
        let error = pool.ranges().grow(pages(0, most), 1, Gfp::KERNEL).unwrap_err();
        assert!(matches!(error.why, RangeRefusal::Refused(Refusal::Watermark { .. })), "{error}");
        // A request that may use the reserve gets the rest.
        pool.ranges().grow(pages(0, most), min, ANY).unwrap();
        assert_eq!(ranges(pool), [(0, 4096)]);
        assert_eq!(pool.free_pages(), 0);
        pool.ranges().free(pages(0, 4096)).unwrap();
        let request = RangeRequest::new(most + 1);
        assert!(pool.ranges().alloc(request).is_err());
        assert_eq!(pool.ranges().alloc(request.gfp(ANY)), Ok(Pfn(0)));
        pool.validate().unwrap();
    });
}

#[test]
fn a_range_grows_into_free_pages_and_shrinks_from_both_ends() {
    one_zone(0, 256).scoped(LISTS_ALONE, 0, |pool| {
        let r = pool.ranges();
        r.alloc_at(pages(10, 7), ANY).unwrap();
        r.alloc_at(pages(40, 2), ANY).unwrap();
        r.grow(pages(10, 7), 20, ANY).unwrap();
        assert_eq!(ranges(pool), [(10, 27), (40, 2)]);
        let error = r.grow(pages(10, 27), 4, ANY).unwrap_err();
        let at = Pfn(40);
        assert_eq!(error.why, RangeRefusal::InTheWay(at, Obstacle::Held(at, order(1))));
        assert_eq!(error.start, Some(Pfn(37)));
        r.grow(pages(10, 27), 3, ANY).unwrap();
        // Two ranges side by side stay two.
        assert_eq!(ranges(pool), [(10, 30), (40, 2)]);
        let crossing = FreeError::Boundary { pfn: at, zone: ZONE };
        assert_eq!(r.free(pages(30, 12)), Err(crossing));
        r.free(pages(35, 5)).unwrap();
        r.free(pages(10, 3)).unwrap();
        assert_eq!(ranges(pool), [(13, 22), (40, 2)]);
        // Only what is a whole range grows.
        for wrong in [pages(13, 21), pages(14, 20)] {
            let error = r.grow(wrong, 1, ANY).unwrap_err();
            let why = RangeRefusal::NotARange(FreeError::InRange {
                pfn: Pfn(33),
                order: order(1),
                zone: ZONE,
            });
            assert_eq!(error.why, why);
        }
        let error = r.grow(pages(100, 4), 1, ANY).unwrap_err();
        assert!(matches!(error.why, RangeRefusal::NotARange(FreeError::DoubleFree { .. })));
        pool.validate().unwrap();
    });
}

#[test]
fn a_range_becomes_two_and_one_again() {
    one_zone(0, 128).scoped(LISTS_ALONE, 0, |pool| {
        let r = pool.ranges();
        for at in 17..16 + 32 {
            r.alloc_at(pages(16, 32), ANY).unwrap();
            r.split(pages(16, 32), Pfn(at)).unwrap();
            assert_eq!(ranges(pool), [(16, at - 16), (at, 48 - at)]);
            let crossing = FreeError::Boundary { pfn: Pfn(at), zone: ZONE };
            assert_eq!(r.free(pages(16, 32)), Err(crossing));
            pool.validate().unwrap();
            if at % 2 == 0 {
                r.join(pages(16, 32), Pfn(at)).unwrap();
                assert_eq!(ranges(pool), [(16, 32)]);
                r.free(pages(16, 32)).unwrap();
            } else {
                r.free(pages(at, 48 - at)).unwrap();
                r.free(pages(16, at - 16)).unwrap();
            }
        }
        r.alloc_at(pages(16, 8), ANY).unwrap();
        for at in [16, 24, 25] {
            assert_eq!(r.split(pages(16, 8), Pfn(at)), Err(FreeError::Empty(Pfn(at))));
        }
        assert!(r.join(pages(16, 16), Pfn(24)).is_err());
        pool.validate().unwrap();
    });
}

#[test]
fn a_block_comes_apart_into_blocks_that_are_freed_apart() {
    for policy in [Policy::ZONAL, LISTS_ALONE] {
        Shape::uniform(1, 4096, 2).scoped(policy, 0, |pool| {
            let before = free_blocks(pool);
            for (of, into) in (0..=10).flat_map(|of| (0..=of).map(move |into| (of, into))) {
                let (of, into) = (order(of), order(into));
                let first = pool.alloc(Request::new(of)).unwrap();
                pool.ranges().split_block(first, of, into).unwrap();
                pool.validate().unwrap();
                if of != into {
                    assert!(pool.free(first, of).is_err(), "the whole is no block any more");
                }
                for at in (0..of.pages() as u32).step_by(into.pages() as usize).rev().map(u64::from)
                {
                    on_cpu((at % 2) as u32);
                    pool.free(Pfn(first.0 + at), into).unwrap();
                }
                pool.drain_all();
                assert_eq!(free_blocks(pool), before);
            }
            let first = pool.alloc(Request::new(order(2))).unwrap();
            let split = |pfn, of, into| pool.ranges().split_block(pfn, order(of), order(into));
            let (given, actual) = (order(3), order(2));
            let larger = FreeError::WrongOrder { pfn: first, given, actual, zone: ZONE };
            assert_eq!(split(first, 2, 3), Err(larger));
            let wrong = FreeError::WrongOrder { pfn: first, given, actual, zone: ZONE };
            assert_eq!(split(first, 3, 0), Err(wrong));
            assert_eq!(split(Pfn(1 << 40), 3, 0), Err(FreeError::Foreign(Pfn(1 << 40))));
            // Blocks in a row go back in one call.
            split(first, 2, 0).unwrap();
            pool.ranges().free(pages(first.0, 4)).unwrap();
            pool.validate().unwrap();
            assert_eq!(pool.free_pages(), 4096);
        });
    }
}

#[test]
fn a_block_becomes_a_range_and_a_range_blocks() {
    Shape::uniform(1, 4096, 2).scoped(Policy::ZONAL, 0, |pool| {
        let r = pool.ranges();
        for (o, n) in
            (0..=10u32).flat_map(|o| [1, 1 << o >> 1, (1 << o) - 1, 1 << o].map(|n| (o, n)))
        {
            let n = n.max(1);
            let first = pool.alloc(Request::new(order(o))).unwrap();
            r.from_block(first, order(o), n).unwrap();
            assert_eq!(ranges(pool), [(first.0, n)]);
            pool.validate().unwrap();
            assert_eq!(pool.free_pages(), 4096 - n);
            r.into_blocks(pages(first.0, n), Order::ZERO).unwrap();
            assert_eq!(ranges(pool), []);
            (0..n).for_each(|at| pool.free(Pfn(first.0 + at), Order::ZERO).unwrap());
            assert_eq!(pool.free_pages(), 4096);
        }
        let first = r.alloc(RangeRequest::new(24).aligned(8)).unwrap();
        let whole = pages(first.0, 24);
        let odd = r.into_blocks(pages(first.0, 20), order(3)).unwrap_err();
        assert!(matches!(odd, FreeError::NotABlock { .. }));
        r.into_blocks(whole, order(3)).unwrap();
        (0..3).for_each(|at| pool.free(Pfn(first.0 + 8 * at), order(3)).unwrap());
        let block = pool.alloc(Request::new(order(1))).unwrap();
        assert_eq!(r.from_block(block, order(1), 0), Err(FreeError::Empty(block)));
        assert!(matches!(r.from_block(block, order(1), 3), Err(FreeError::Boundary { .. })));
        assert!(matches!(r.from_block(block, order(2), 3), Err(FreeError::WrongOrder { .. })));
        pool.free(block, order(1)).unwrap();
        pool.validate().unwrap();
    });
}

#[test]
fn hostile_frees_are_refused_and_nothing_is_lost() {
    one_zone(64, 448).scoped(Policy::ZONAL, 0, |pool| {
        let r = pool.ranges();
        r.alloc_at(pages(100, 13), ANY).unwrap();
        r.alloc_at(pages(113, 5), ANY).unwrap();
        let block = pool.alloc(Request::new(order(4)).gfp(ANY)).unwrap();
        let before = pool.free_pages();
        let free_at = (64..512).find(|p| !(100..118).contains(p) && p / 16 != block.0 / 16);
        let free_at = Pfn(free_at.unwrap());
        let zone = ZONE;
        let o = Order::ZERO;
        for (wrong, expected) in [
            (pages(112, 2), FreeError::Boundary { pfn: Pfn(113), zone }),
            (pages(100, 18), FreeError::Boundary { pfn: Pfn(113), zone }),
            (pages(117, 2), FreeError::DoubleFree { pfn: Pfn(118), order: order(1), zone }),
            (pages(block.0 + 1, 2), FreeError::CutsBlock { pfn: block, order: order(4), zone }),
            (pages(block.0, 8), FreeError::CutsBlock { pfn: block, order: order(4), zone }),
            (pages(63, 2), FreeError::Foreign(Pfn(63))),
            (pages(511, 2), FreeError::Foreign(Pfn(512))),
            (pages(100, 0), FreeError::Empty(Pfn(100))),
            (pages(1 << 50, 3), FreeError::Foreign(Pfn(1 << 50))),
        ] {
            assert_eq!(r.free(wrong.clone()), Err(expected), "{wrong:?}");
            assert_eq!((pool.free_pages(), ranges(pool).len()), (before, 2));
        }
        assert!(matches!(r.free(free_at..Pfn(free_at.0 + 1)), Err(FreeError::DoubleFree { .. })));
        // The range's blocks are no blocks of their own, for any call.
        for (pfn, of) in [(100, 2), (104, 3), (112, 0), (113, 0)] {
            let of = order(of);
            let expected = FreeError::InRange { pfn: Pfn(pfn), order: of, zone };
            assert_eq!(pool.free(Pfn(pfn), of), Err(expected));
            assert_eq!(pool.free_bulk(&[Pfn(pfn)], of), Err((0, expected)));
            assert_eq!(r.split_block(Pfn(pfn), of, o), Err(expected));
            assert_eq!(r.from_block(Pfn(pfn), of, 1), Err(expected));
            assert!(!super::word_path::free(pool, ZONE, CpuId(0), (Pfn(pfn), of)));
        }
        pool.validate().unwrap();
        // Freed twice, whole and in part.
        r.free(pages(100, 13)).unwrap();
        assert!(matches!(r.free(pages(100, 13)), Err(FreeError::DoubleFree { .. })));
        assert!(matches!(r.free(pages(104, 2)), Err(FreeError::DoubleFree { .. })));
        r.free(pages(114, 2)).unwrap();
        assert!(matches!(r.free(pages(113, 5)), Err(FreeError::DoubleFree { .. })));
        r.free(pages(113, 1)).unwrap();
        r.free(pages(116, 2)).unwrap();
        pool.free(block, order(4)).unwrap();
        pool.validate().unwrap();
        assert_eq!(pool.free_pages(), 448);
    });
}

#[test]
fn ranges_do_not_cross_zones() {
    let mut shape = Shape::uniform(2, 1024, 1);
    shape.zones[1].start_pfn = 1024;
    shape.scoped(LISTS_ALONE, 0, |pool| {
        let r = pool.ranges();
        let error = r.alloc_at(pages(1000, 48), ANY).unwrap_err();
        assert_eq!(error.why, RangeRefusal::Outside(Pfn(1024)));
        r.alloc_at(pages(1000, 24), ANY).unwrap();
        r.alloc_at(pages(1024, 24), ANY).unwrap();
        let crossing = FreeError::Boundary { pfn: Pfn(1024), zone: ZONE };
        assert_eq!(r.free(pages(1000, 48)), Err(crossing));
        let error = r.grow(pages(1000, 24), 4, ANY).unwrap_err();
        assert_eq!(error.why, RangeRefusal::Outside(Pfn(1024)));
        r.free(pages(1000, 24)).unwrap();
        r.free(pages(1024, 24)).unwrap();
        pool.validate().unwrap();
    });
}

#[test]
fn a_range_of_another_node_is_counted_as_one_of_that_node() {
    Shape::uniform(2, 4096, 1).scoped(Policy::LINUX_6_18, 0, |pool| {
        let request = RangeRequest::new(1500).on(crate::types::NodeId(1));
        let first = pool.ranges().alloc(request).unwrap();
        assert!(first.0 >= 4096);
        let stats = pool.zone_stats(ZoneId(1));
        assert_eq!((stats.allocs, stats.allocated_pages), (1, 1500));
        assert_eq!((stats.numa.hit, stats.numa.other), (1, 1));
        // What the first node cannot give the second does.
        let got: Vec<Pfn> =
            (0..2).map(|_| pool.ranges().alloc(RangeRequest::new(2048)).unwrap()).collect();
        assert!(got[0].0 < 4096 && got[1].0 > 4096, "{got:?}");
        pool.validate().unwrap();
    });
}

#[test]
fn pageblocks_keep_their_types() {
    Shape::uniform(1, 16384, 1).scoped(Policy::LINUX_6_18, 0, |pool| {
        let unmovable = pool.alloc(Request::new(Order::ZERO)).unwrap();
        let types = || pool.stats().free_areas(ZONE).pageblocks;
        let before = types();
        let block = unmovable.0 / 1024 * 1024;
        let at = (0..16).map(|n| n * 1024).find(|at| *at != block).unwrap();
        pool.ranges().alloc_at(pages(at + 100, 800), Gfp::KERNEL).unwrap();
        assert_eq!(types(), before);
        pool.ranges().free(pages(at + 100, 800)).unwrap();
        assert_eq!(types(), before);
        pool.validate().unwrap();
    });
}

#[test]
fn pageblocks_that_are_set_aside_or_out_of_use_are_in_the_way() {
    Shape::uniform(1, 8192, 1).scoped(Policy::LINUX_6_18, 0, |pool| {
        let ops = pool.zone_ops(ZONE);
        let block = pool.alloc(Request::new(order(1))).unwrap();
        let block_start = block.0 / 512 * 512;
        let free = block_start + 256;
        {
            let mut locked = ops.lock();
            let words = locked.frames;
            let idx = words.index(block).unwrap();
            assert!(locked.buddy.reserve_highatomic(&words, idx, order(1), 512));
        }
        let at = |gfp| pool.ranges().alloc_at(pages(free, 3), gfp);
        let refused = RangeRefusal::InTheWay(Pfn(free), Obstacle::HighAtomic);
        assert_eq!(at(Gfp::NOWAIT).unwrap_err().why, refused);
        // A request that would fail otherwise gets the reserve, as with blocks (LB B.8).
        at(Gfp::KERNEL).unwrap();
        pool.ranges().free(pages(free, 3)).unwrap();
        pool.drain_all();
        let other = (0..8).map(|n| n * 1024).find(|at| *at != block.0 / 1024 * 1024).unwrap();
        let isolate = |back| {
            let mut locked = ops.lock();
            let words = locked.frames;
            let idx = words.index(Pfn(other)).unwrap();
            match back {
                None => locked.buddy.isolate(&words, idx),
                Some(to) => {
                    assert!(locked.buddy.unisolate(&words, idx, to));
                    None
                }
            }
        };
        let was = isolate(None).unwrap();
        let error = pool.ranges().alloc_at(pages(other + 7, 3), Gfp::NOWAIT).unwrap_err();
        assert_eq!(error.why, RangeRefusal::InTheWay(Pfn(other + 7), Obstacle::Isolated));
        isolate(Some(was));
        pool.validate().unwrap();
    });
}

#[test]
fn a_range_is_refused_as_a_page_is_where_the_request_means_nothing() {
    Shape::uniform(1, 1024, 1).scoped(Policy::ZONAL, 0, |pool| {
        let both = Gfp::KERNEL.union(Gfp::HIGHMEM).union(Gfp::DMA);
        let AllocError { why, .. } = pool.alloc(Request::new(Order::ZERO).gfp(both)).unwrap_err();
        for error in [
            pool.ranges().alloc(RangeRequest::new(3).gfp(both)).unwrap_err(),
            pool.ranges().alloc(RangeRequest::new(3000).gfp(both)).unwrap_err(),
            pool.ranges().alloc_at(pages(0, 3), both).unwrap_err(),
        ] {
            assert_eq!(error.why, RangeRefusal::Refused(why));
        }
        let none = RangeRequest::new(3).on(crate::types::NodeId(9));
        let error: RangeError = pool.ranges().alloc(none).unwrap_err();
        let missing = Refusal::NoNode { node: crate::types::NodeId(9), nodes: 1 };
        assert_eq!(error.why, RangeRefusal::Refused(missing));
        let far = RangeRequest::new(1).aligned(1 << 63);
        assert_eq!(pool.ranges().alloc(far), Ok(Pfn(0)));
        assert!(pool.ranges().alloc(far).is_err());
        assert!(pool.ranges().alloc_at(Pfn(5)..Pfn(u64::MAX), Gfp::KERNEL).is_err());
        assert!(pool.ranges().grow(pages(0, 1), u64::MAX, Gfp::KERNEL).is_err());
        pool.validate().unwrap();
    });
}
