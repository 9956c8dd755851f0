//! Ranges of pools: in both modes, on nodes, while pools grow, with budgets and poison.

use std::ptr::NonNull;

use zonal::{
    CpuMap, FailAlloc, FreeFault, Gfp, NodeId, Obstacle, Order, PAGE_SIZE, PageRange, Pool,
    RangeRefusal, RangeRequest, Refusal, ZoneId, ZoneKind, ZoneSize,
};
use zonal_core::types::Pfn;

/// A pool in each mode that this machine has, and one with two nodes.
fn pools() -> Vec<Pool> {
    let builder = || Pool::builder().size(64 << 20).refresh_every(None);
    let modes = [true, false].map(|rseq| builder().rseq(rseq).build().unwrap());
    modes
        .into_iter()
        .chain([builder().fake_nodes(2, CpuMap::RoundRobin).build().unwrap()])
        .collect()
}

/// Every page is free again.
fn check_all_free(pool: &Pool) {
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
    assert_eq!(pool.misuses(), 0);
}

#[test]
fn exact_ranges_waste_no_byte_where_blocks_do() {
    for pool in pools() {
        let all = pool.free_page_count();
        let (mut asked, mut kept) = (0, Vec::new());
        for pages in [1, 2, 3, 5, 7, 8, 9, 100, 511, 513, 1000] {
            let mut range = pool.ranges().alloc(pages).unwrap();
            assert_eq!((range.pages(), range.len()), (pages, pages * PAGE_SIZE));
            range.fill(pages as u8);
            asked += pages as u64;
            assert_eq!(all - pool.free_page_count(), asked, "bytes wasted: 0");
            kept.push(range);
        }
        let blocks: u64 = kept.iter().map(|range| range.pages().next_power_of_two() as u64).sum();
        assert!(blocks > asked + asked / 4, "powers of two take {blocks} pages for {asked}");
        assert!(kept.iter().all(|range| range.iter().all(|byte| *byte == range.pages() as u8)));
        pool.validate().unwrap();
        drop(kept);
        check_all_free(&pool);
    }
}

#[test]
fn a_range_splits_grows_shrinks_and_goes_in_parts() {
    for pool in pools() {
        let mut range = pool.ranges().alloc(64).unwrap();
        for (page, bytes) in range.chunks_mut(PAGE_SIZE).enumerate() {
            bytes.fill(page as u8);
        }
        let start = range.as_ptr();
        range.shrink(50).unwrap();
        for nothing in [0, 50, 60] {
            range.shrink(nothing).unwrap();
        }
        range.try_grow(5).unwrap();
        assert_eq!((range.pages(), range.as_ptr()), (55, start));
        let (front, back) = range.split(20).unwrap();
        assert_eq!((front.pages(), back.pages()), (20, 35));
        assert_eq!(back.as_ptr() as usize, start as usize + 20 * PAGE_SIZE);
        assert!(back[..30 * PAGE_SIZE].chunks(PAGE_SIZE).zip(20..).all(|(p, n)| p[0] == n));
        let (a, b) = back.free_part(1..34).unwrap();
        assert_eq!((a.unwrap()[0], b.unwrap().pages()), (20, 1));
        let (a, b) = front.free_part(0..20).unwrap();
        assert!(a.is_none() && b.is_none());
        check_all_free(&pool);
        // What is empty or outside is refused, and the range goes with the call.
        for wrong in [0, 3] {
            let error = pool.ranges().alloc(3).unwrap().split(wrong).unwrap_err();
            assert_eq!(error.details(), FreeFault::NoPages);
        }
        for wrong in [1..1, 2..5, 4..6] {
            pool.ranges().alloc(3).unwrap().free_part(wrong).unwrap_err();
        }
        check_all_free(&pool);
    }
}

#[test]
fn a_range_at_an_address_takes_what_waits_on_lists() {
    for pool in pools() {
        // Every list of this CPU holds some pages.
        let pages: Vec<_> = (0..500).map(|_| pool.alloc(Order::ZERO).unwrap()).collect();
        let at = pages.iter().map(|page| page.as_ptr()).min().unwrap();
        drop(pages);
        let mut range = pool.ranges().alloc_at(at, 300, Gfp::KERNEL).unwrap();
        assert_eq!(range.as_ptr(), at);
        range.fill(7);
        let error = pool.ranges().alloc_at(at, 1, Gfp::KERNEL).unwrap_err();
        assert!(matches!(error.why(), RangeRefusal::InTheWay(_, Obstacle::Held(..))));
        assert_eq!(error.in_the_way(), Some(at));
        let text = format!("the page at {at:p} is handed out");
        assert!(error.to_string().contains(&text), "{error}");
        assert!(range.try_grow(usize::MAX / PAGE_SIZE).is_err());
        let outside = pool.base().wrapping_add(pool.bytes() - PAGE_SIZE);
        let error = pool.ranges().alloc_at(outside, 2, Gfp::KERNEL).unwrap_err();
        assert!(matches!(error.why(), RangeRefusal::Outside(_)), "{error}");
        for nowhere in [std::ptr::null(), usize::MAX as *const u8] {
            pool.ranges().alloc_at(nowhere, 2, Gfp::KERNEL).unwrap_err();
        }
        let places = [(1, 1, "1 byte"), (-1, 4095, "4095 bytes")];
        for (offset, past, bytes) in places {
            let nowhere = at.wrapping_offset(offset);
            let error = pool.ranges().alloc_at(nowhere, 2, Gfp::KERNEL).unwrap_err();
            assert_eq!(error.why(), RangeRefusal::Unaligned { past });
            let text = format!("{nowhere:p} is {bytes} past the start of a page");
            assert!(error.to_string().ends_with(&text), "{error}");
        }
        drop(range);
        check_all_free(&pool);
    }
}

/// Room for long ranges is a Movable zone: only requests that say so may use it.
#[test]
fn a_zone_of_its_own_keeps_room_for_long_ranges() {
    let zone = |kind, bytes| ZoneSize { node: 0, kind, bytes };
    let zones = [zone(ZoneKind::Normal, 16 << 20), zone(ZoneKind::Movable, 64 << 20)];
    for rseq in [true, false] {
        let builder = Pool::builder().zones(&zones).rseq(rseq).refresh_every(None);
        let pool = builder.build().unwrap();
        // Others take what they get.
        let blocks: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::MAX).ok()).collect();
        let ranges: Vec<_> = std::iter::from_fn(|| pool.ranges().alloc(3).ok()).collect();
        let pages: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::ZERO).ok()).collect();
        assert!(blocks.len() < 5 && ranges.len() + pages.len() > 200);
        let long = RangeRequest::new(15_000).aligned(1024).gfp(Gfp::HIGHUSER_MOVABLE);
        let room = pool.ranges().alloc_with(long).unwrap();
        assert_eq!((room.pages(), room.as_ptr() as usize % (4 << 20)), (15_000, 0));
        pool.ranges().alloc(3).unwrap_err();
        drop((room, pages, ranges, blocks));
        check_all_free(&pool);
    }
}

#[test]
fn ranges_far_above_4_mib_are_aligned_and_zeroed() {
    for pool in pools() {
        let request = RangeRequest::new(4100).aligned(512).gfp(Gfp::KERNEL | Gfp::ZERO);
        for node in 0..pool.nodes() {
            let request = request.on(NodeId(node as u16));
            let mut range = pool.ranges().alloc_with(request).unwrap();
            assert_eq!(range.as_ptr() as usize % (2 << 20), 0);
            assert_eq!(pool.node_of(range.as_ptr()), Some(NodeId(node as u16)));
            assert!(range.iter().all(|byte| *byte == 0));
            range.fill(0xff);
            assert!(pool.ranges().longest(ZoneId(0)) > 0);
        }
        let pages = (pool.bytes() / PAGE_SIZE + 1) as u64;
        let error = pool.ranges().alloc(pages as usize).unwrap_err();
        assert!(matches!(error.why(), RangeRefusal::TooLong { .. }), "{error}");
        let far = RangeRequest::new(pages).aligned(1 << 20);
        let node = (pages - 1) / pool.nodes() as u64;
        let error = pool.ranges().alloc_with(far).unwrap_err().to_string();
        let text = format!("the largest zone that may serve it has {node} from a multiple of");
        assert!(error.contains(&text), "{error}");
        assert!(pool.ranges().alloc(0).is_err());
        check_all_free(&pool);
    }
}

#[test]
fn packed_ranges_lie_side_by_side_from_the_start_of_the_pool_on() {
    for pool in pools() {
        let request = |pages| RangeRequest::new(pages).packed().on(NodeId(0));
        let packed = |pages| pool.ranges().alloc_with(request(pages)).unwrap();
        let ranges = [3, 5, 1, 700].map(packed);
        let ends = ranges.windows(2).map(|two| two[0].as_ptr().wrapping_add(two[0].len()));
        let first = ranges[0].as_ptr();
        assert!(ends.zip(&ranges[1..]).all(|(end, next)| end == next.as_ptr()));
        drop(ranges);
        pool.drain_all();
        assert_eq!(packed(600).as_ptr(), first, "the lowest place is free again");
        check_all_free(&pool);
    }
}

#[test]
fn a_block_comes_apart() {
    for pool in pools() {
        let block = pool.alloc(Order::new(4).unwrap()).unwrap();
        let start = block.as_ptr() as usize;
        let mut pages = block.split(Order::ZERO).unwrap();
        assert_eq!(pages.len(), 16);
        for (n, page) in pages.iter_mut().enumerate() {
            assert_eq!(page.as_ptr() as usize, start + n * PAGE_SIZE);
            page.fill(n as u8);
        }
        pages.swap_remove(5);
        assert!(pages.iter().all(|page| page[0] == page[4095]));
        drop(pages);
        let error = pool.alloc(Order::ZERO).unwrap().split(Order::MAX).unwrap_err();
        assert!(matches!(error.details(), FreeFault::WrongOrder { .. }));
        check_all_free(&pool);
    }
}

#[test]
fn wrong_frees_are_refused_where_they_go_wrong() {
    for pool in pools() {
        let (start, pages) = pool.ranges().alloc(7).unwrap().into_raw();
        let page = |n: usize| NonNull::new(start.as_ptr().wrapping_add(n * PAGE_SIZE)).unwrap();
        let ranges = pool.ranges();
        // SAFETY: not kept, which is what is tested: nobody uses the memory, and each is refused.
        let free = |at, pages| unsafe { ranges.free_raw(at, pages) }.unwrap_err();
        let block = pool.alloc(Order::new(3).unwrap()).unwrap();
        let in_block = NonNull::new(block.as_ptr().cast_mut()).unwrap();
        let error = free(in_block, 4);
        assert_eq!(error.details(), FreeFault::CutsBlock { order: Order::new(3).unwrap() });
        assert_eq!(error.address(), block.as_ptr() as usize);
        assert_eq!(free(start, 0).details(), FreeFault::NoPages);
        let odd = NonNull::new(start.as_ptr().wrapping_add(8)).unwrap();
        assert_eq!(free(odd, 2).details(), FreeFault::Unaligned { past: 8 });
        let far = NonNull::new(pool.base().wrapping_sub(PAGE_SIZE).cast_mut()).unwrap();
        assert!(matches!(free(far, 2).details(), FreeFault::Foreign { .. }));
        assert!(free(start, usize::MAX).to_string().contains("was not freed"));
        // SAFETY: not kept, as above.
        let whole = unsafe { pool.free_pages(start, Order::new(2).unwrap()) };
        let part = FreeFault::InRange { order: Order::new(2).unwrap() };
        assert_eq!(whole.unwrap_err().details(), part);
        // SAFETY: (1) nobody uses the memory.
        unsafe { ranges.free_raw(page(2), 3) }.unwrap();
        let error = free(start, pages);
        assert!(matches!(error.details(), FreeFault::DoubleFree { .. }), "{error}");
        assert_eq!(error.address(), page(2).as_ptr() as usize);
        // SAFETY: (1) both parts are ranges of their own now, and nobody else's.
        drop(unsafe { PageRange::from_raw(&pool, start, 2) });
        // SAFETY: (1) as above.
        drop(unsafe { PageRange::from_raw(&pool, page(5), 2) });
        drop(block);
        check_all_free(&pool);
        // SAFETY: not kept: it has been freed, which is told.
        drop(unsafe { PageRange::from_raw(&pool, start, 2) });
        assert_eq!(pool.misuses(), 1);
        pool.validate().unwrap();
    }
}

#[test]
fn parts_and_alignments_that_cannot_be_are_refused() {
    for pool in pools() {
        let range = || pool.ranges().alloc(5).unwrap();
        let base = range().as_ptr() as usize;
        // The last one would begin at address 0.
        let to_zero = (usize::MAX - base + 1) / PAGE_SIZE;
        for (from, to) in [(2, 2), (3, 2), (0, 6), (6, 7), (to_zero, 0), (to_zero, usize::MAX)] {
            assert!(range().free_part(from..to).is_err(), "{from}..{to}");
        }
        check_all_free(&pool);
        for align in [0, 3, u64::MAX] {
            let error = pool.ranges().alloc_with(RangeRequest::new(2).aligned(align)).unwrap_err();
            assert_eq!(error.why(), RangeRefusal::Align(align));
        }
    }
}

#[test]
fn a_page_that_was_written_to_while_free_is_not_handed_out_at_its_address() {
    let pool = Pool::builder().size(16 << 20).refresh_every(None).poison(true).build().unwrap();
    let mut range = pool.ranges().alloc(8).unwrap();
    let (start, zeroed) = (range.as_mut_ptr(), Gfp::KERNEL | Gfp::ZERO);
    drop(range);
    let page = |n: usize| start.wrapping_add(n * PAGE_SIZE);
    let write = |n: usize| {
        // SAFETY: not kept, which is what poison is to find: the page is free.
        unsafe { page(n).write(1) }
    };
    [2, 5].into_iter().for_each(write);
    let error = pool.ranges().alloc_at(start, 8, zeroed).unwrap_err();
    let written = |n| RangeRefusal::InTheWay(pool_page(&pool, page(n)), Obstacle::WrittenWhileFree);
    assert_eq!((error.why(), error.in_the_way()), (written(2), Some(page(2).cast_const())));
    assert!(error.to_string().contains("written to while it was free"), "{error}");
    assert_eq!(pool.poison_hits(), 2);
    let all = pool.bytes() / PAGE_SIZE;
    assert_eq!(pool.free_page_count() as usize, all - 2, "the others are free again");
    // What is around them can be had, and grows up to them.
    let mut front = pool.ranges().alloc_at(start, 1, zeroed).unwrap();
    front.try_grow(1).unwrap();
    let why = front.try_grow(1).unwrap_err().why();
    assert!(matches!(why, RangeRefusal::InTheWay(_, Obstacle::Held(..))), "{why:?}");
    // One that is found as a range grows stays out of use, too, and those before it are free.
    let mut middle = pool.ranges().alloc_at(page(3), 1, Gfp::KERNEL).unwrap();
    drop(pool.ranges().alloc_at(page(4), 1, Gfp::KERNEL).unwrap());
    write(4);
    assert_eq!(middle.try_grow(1).unwrap_err().why(), written(4));
    assert_eq!((middle.pages(), pool.poison_hits()), (1, 3));
    middle.fill(1);
    let mut back = pool.ranges().alloc_at(page(6), 1, Gfp::KERNEL).unwrap();
    write(9);
    assert_eq!(back.try_grow(8).unwrap_err().why(), written(9));
    back.try_grow(2).unwrap();
    assert_eq!(pool.free_page_count() as usize, all - 4 - 2 - 1 - 3);
    drop((front, middle, back));
    pool.validate().unwrap();
    assert_eq!((pool.free_page_count() as usize, pool.misuses()), (all - 4, 0));
}

fn pool_page(pool: &Pool, page: *const u8) -> Pfn {
    Pfn(((page as usize - pool.base() as usize) / PAGE_SIZE) as u64)
}

#[test]
fn pools_that_grow_poison_or_have_a_budget_serve_ranges() {
    let builder = || Pool::builder().size(512 << 20).refresh_every(None);
    let growing = builder().deferred(true).build().unwrap();
    let huge = growing.ranges().alloc(60_000).unwrap();
    drop(huge);
    growing.finish_growth().unwrap();
    check_all_free(&growing);

    let poisoned = Pool::builder().size(16 << 20).refresh_every(None).poison(true).build().unwrap();
    for pages in [1, 3, 600, 1500] {
        let mut range = poisoned.ranges().alloc(pages).unwrap();
        range.fill(1);
        if pages > 3 {
            range.shrink(pages / 2).unwrap();
            range.try_grow(1).unwrap();
        }
    }
    assert_eq!(poisoned.poison_hits(), 0);
    check_all_free(&poisoned);

    let failing = Pool::builder().size(16 << 20).fail_alloc(FailAlloc::every(1)).build().unwrap();
    for pages in [1, 5, 2000] {
        let error = failing.ranges().alloc(pages).unwrap_err();
        assert_eq!(error.why(), RangeRefusal::Refused(Refusal::Injected));
    }
}

#[test]
fn threads_take_and_free_ranges_and_pages_at_once() {
    for pool in pools() {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut seed = thread + 1;
                    let mut next = |below: u64| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(97);
                        (seed >> 33) % below
                    };
                    let mut kept: Vec<PageRange<'_>> = Vec::new();
                    for _ in 0..2000 {
                        let pages = next(40) as usize + 1;
                        if let Ok(mut range) = pool.ranges().alloc(pages) {
                            range[0] = thread as u8;
                            let last = range.len() - 1;
                            range[last] = thread as u8;
                            kept.push(range);
                        }
                        let page = pool.alloc(Order::new(next(4) as u32).unwrap());
                        if kept.len() > 20 {
                            let which = next(20) as usize;
                            let range = kept.swap_remove(which);
                            let last = range.len() - 1;
                            assert_eq!((range[0], range[last]), (thread as u8, thread as u8));
                            let middle = range.pages() / 2;
                            if middle > 0 {
                                let (front, back) = range.split(middle).unwrap();
                                drop(back);
                                drop(front);
                            }
                        }
                        drop(page);
                    }
                });
            }
        });
        check_all_free(&pool);
    }
}
