//! Any number of pages, and any part of them back.

mod support;

use std::num::NonZeroU64;

use support::{Machine2, TestKernel};
use zonal_core::alloc::hot::{self, Own};
use zonal_core::alloc::{Allocator, FreeError, Refusal, Request, range::RangeError};
use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform;
use zonal_core::types::{CpuId, NodeId, Order, Pfn};
use zonal_kernel::pages::{self, order_of};

/// What a CPU serves itself from.
fn own_of<'a, P: Platform>(on: &Allocator<'a, P>, cpu: u32) -> Option<Own<'a>> {
    // SAFETY: (1) every test has one allocator.
    unsafe { Own::new(on, CpuId(cpu)) }
}

#[test]
fn any_number_of_pages_comes_back_in_any_parts() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        for count in [1, 2, 3, 5, 8, 63, 64, 512, 1023, 1024, 1025, 3000] {
            let take = || pages::alloc(on, count, 1, Gfp::KERNEL).unwrap().0;
            let free = |part: std::ops::Range<u64>| pages::free(on, Pfn(part.start)..Pfn(part.end));
            let at = take();
            assert_eq!(on.free_pages(), all - count);
            free(at..at + count).unwrap();
            // The odd pages, then the even ones; none twice.
            let at = take();
            for page in (at..at + count).skip(1).step_by(2).chain((at..at + count).step_by(2)) {
                free(page..page + 1).unwrap();
                assert!(free(page..page + 1).is_err(), "{page:#x} of {count} twice");
            }
            // A part from the middle, and what lies around it.
            let (at, third) = (take(), count / 3);
            assert!(free(at..at + count + 1).is_err(), "a page more than {count}");
            for part in [at + third..at + 2 * third, at..at + third, at + 2 * third..at + count] {
                if !part.is_empty() {
                    free(part).unwrap();
                }
            }
            assert_eq!(on.free_pages(), all, "{count}");
        }
    });
}

#[test]
fn pages_begin_where_their_alignment_says() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        for (count, align) in [(1, 1), (1, 16), (3, 512), (8, 1024), (1024, 1)] {
            let pfn = pages::alloc(on, count, align, Gfp::KERNEL).unwrap();
            assert!(pfn.0.is_multiple_of(align), "{pfn:?} for {align}");
            pages::free(on, pfn..Pfn(pfn.0 + count)).unwrap();
        }
        assert_eq!(on.free_pages(), all);
    });
}

#[test]
fn what_is_wrong_is_refused_and_nothing_is_lost() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        for (count, align) in [(0, 1), (1, 0), (1, 3), (1 << 40, 1), (u64::MAX, u64::MAX)] {
            let refused: Result<Pfn, RangeError> = pages::alloc(on, count, align, Gfp::KERNEL);
            assert!(refused.is_err(), "{count} pages, aligned to {align}");
        }
        let first = on.zones()[0].start_pfn();
        for pages in [
            first..first,
            first..Pfn(first.0 + 1),
            Pfn(u64::MAX - 1)..Pfn(u64::MAX),
            Pfn(u64::MAX)..Pfn(0),
            Pfn(0)..Pfn(u64::MAX),
        ] {
            assert!(pages::free(on, pages.clone()).is_err(), "{pages:?}");
        }
        assert_eq!(on.free_pages(), all);
        assert_eq!(order_of(0), None);
        assert_eq!(order_of(1), Order::new(0));
        assert_eq!((order_of(3), order_of(1 << 63)), (None, None));
    });
}

/// Ranges that are none, in blocks that somebody has: each block stays what it is.
#[test]
fn a_free_of_nothing_leaves_blocks_as_they_are() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        for order in Order::all() {
            let block = on.alloc(Request::new(order)).unwrap();
            let inside = Pfn(block.0 + order.pages() / 2);
            for nothing in [inside..inside, block..block, inside..block, inside..Pfn(0)] {
                let refused = pages::free(on, nothing.clone());
                assert_eq!(refused, Err(FreeError::Empty(nothing.start)), "{order:?}");
            }
            let into = Order::ZERO;
            on.ranges().split_block(block, order, into).unwrap();
            for page in block.0..block.0 + order.pages() {
                on.free(Pfn(page), into).unwrap();
            }
        }
        assert_eq!(on.free_pages(), all);
    });
}

#[test]
fn a_fast_path_that_fails_changes_nothing_and_one_that_serves_is_as_the_call() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        let own = own_of(on, 0).unwrap();
        let request = Request::new(Order::ZERO);
        assert_eq!(hot::alloc(on, request), None, "the lists are empty");
        let page = hot::alloc_missed(on, request).unwrap();
        hot::free_missed(on, page, Order::ZERO).unwrap();
        assert!(hot::free_missed(on, page, Order::ZERO).is_err(), "it is free");
        let absent = hot::alloc_missed(on, request.on(NodeId(9))).unwrap_err().why;
        assert_eq!(absent, Refusal::NoNode { node: NodeId(9), nodes: on.nodes().len() as u16 });
        assert_eq!(hot::alloc(on, request), Some(page), "the hottest page");
        let eight = Order::new(3).unwrap();
        assert_eq!(hot::free(on, page, eight), Err((page, eight)), "as a block of another order");
        assert_eq!(own.free(on, page, eight), Err((page, eight)), "as a block of another order");
        assert_eq!(hot::free(on, page, Order::ZERO), Ok(()));
        assert_eq!(own.alloc(on, Order::ZERO, Gfp::KERNEL), Some(page), "the same lists");
        assert_eq!(own.free(on, page, Order::ZERO), Ok(()));
        for pfn in [page, Pfn(0), Pfn(u64::MAX)] {
            for again in [hot::free(on, pfn, Order::ZERO), own.free(on, pfn, Order::ZERO)] {
                assert_eq!(again, Err((pfn, Order::ZERO)), "it is not handed out");
            }
        }
        assert_eq!(on.free_pages(), all);
    });
}

#[test]
fn a_range_that_the_cpu_keeps_comes_and_goes_by_the_fast_path() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        let own = own_of(on, 0).unwrap();
        let number = |pages| NonZeroU64::new(pages).unwrap();
        let alloc = |pages| own.alloc_range(on, number(pages), Gfp::KERNEL);
        let free = |pfn, pages| own.free_range(on, pfn, number(pages));
        assert_eq!(alloc(3), None, "none is kept");
        let first = pages::alloc(on, 3, 1, Gfp::KERNEL).unwrap();
        assert_eq!(free(first, 3), Err((first, number(3))), "no room is kept");
        pages::free(on, first..Pfn(first.0 + 3)).unwrap();
        assert_eq!(alloc(3), Some(first));
        assert_eq!(alloc(3), None, "it is handed out");
        // Of another length, in another place, and as something else than it is.
        let wrong = [(first.0, 2), (first.0, 5), (first.0 + 1, 3), (first.0, 4), (0, 3)];
        for (pfn, pages) in wrong.into_iter().chain([(u64::MAX, 3), (first.0, u64::MAX)]) {
            let refused = free(Pfn(pfn), pages);
            assert_eq!(refused, Err((Pfn(pfn), number(pages))), "{pages} pages at {pfn}");
        }
        assert_eq!(free(first, 3), Ok(()));
        assert!(free(first, 3).is_err(), "it is free");
        assert_eq!(hot::alloc_range(on, number(3), Gfp::KERNEL), Some(first), "the same range");
        assert!(hot::free_range(on, first, number(3)));
        assert!(!hot::free_range(on, first, number(3)), "it is free");
        for pages in [1, 2, 4, 5, 512, u64::MAX] {
            assert_eq!(alloc(pages), None, "{pages} pages");
        }
        assert_eq!(alloc(3), Some(first));
        pages::free(on, first..Pfn(first.0 + 3)).unwrap();
        assert!(pages::free(on, first..Pfn(first.0 + 3)).is_err(), "it is free");
        assert_eq!(on.free_pages(), all);
        on.validate().unwrap();
    });
}

#[test]
fn a_cpu_that_is_not_there_or_has_sections_has_nothing_of_its_own() {
    Machine2::default().with(TestKernel::default(), |on| {
        for cpu in [2, 3, u32::MAX] {
            assert!(own_of(on, cpu).is_none(), "CPU {cpu}");
        }
    });
    let kernel = TestKernel { has_sections: true, ..TestKernel::default() };
    Machine2::default().with(kernel, |on| assert!(own_of(on, 0).is_none()));
}
