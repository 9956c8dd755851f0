//! Memory that comes and goes.

mod support;

use support::{Machine2, TestKernel};
use zonal_core::alloc::Request;
use zonal_core::types::{Order, Pfn};
use zonal_kernel::memory::{MemoryError, add, remove};

#[test]
fn memory_that_leaves_is_nobodys_until_it_comes_again() {
    Machine2::default().with(TestKernel::default(), |on| {
        let min = || on.stats().min_free_kbytes();
        let all = on.free_pages();
        let section = Pfn(0x10_1000)..Pfn(0x10_2000);
        remove(on, section.clone()).unwrap();
        assert_eq!(on.free_pages(), all - 0x1000);
        let without = min();
        assert!(matches!(remove(on, section.clone()), Err(MemoryError::InUse(_))), "twice");
        on.validate().unwrap();
        add(on, section.clone()).unwrap();
        assert!(matches!(add(on, section), Err(MemoryError::There(_))), "twice");
        assert_eq!(on.free_pages(), all);
        assert!(min() > without, "limits follow");
    });
}

#[test]
fn memory_with_a_page_in_use_stays_and_the_page_is_named() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        let page = on.alloc(Request::new(Order::ZERO)).unwrap();
        let section = Pfn(page.0 & !0xfff)..Pfn((page.0 | 0xfff) + 1);
        let error = remove(on, section.clone()).unwrap_err();
        assert!(error.to_string().contains(&format!("{:#x}", page.0)), "{error}");
        assert_eq!(on.free(page, Order::ZERO), Ok(()));
        remove(on, section.clone()).unwrap();
        add(on, section).unwrap();
        assert_eq!(on.free_pages(), all);
    });
}

#[test]
fn memory_without_a_zone_is_refused_as_a_whole() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        remove(on, Pfn(0x10_4000)..Pfn(0x10_5000)).unwrap();
        // The zones of both nodes adjoin; behind the second there is nothing.
        let past = add(on, Pfn(0x10_4000)..Pfn(0x10_5001));
        assert_eq!(past, Err(MemoryError::Outside(Pfn(0x10_5000))));
        assert_eq!(on.free_pages(), all - 0x1000);
        for empty in [Pfn(0x10_4000)..Pfn(0x10_4000), Pfn(u64::MAX)..Pfn(0)] {
            assert_eq!(add(on, empty.clone()), Err(MemoryError::Outside(empty.start)));
            assert!(remove(on, empty).is_err());
        }
        remove(on, Pfn(0x10_2000)..Pfn(0x10_3000)).unwrap();
        remove(on, Pfn(0x10_3000)..Pfn(0x10_4000)).unwrap();
        add(on, Pfn(0x10_2000)..Pfn(0x10_5000)).unwrap();
        assert_eq!(on.free_pages(), all);
    });
}
