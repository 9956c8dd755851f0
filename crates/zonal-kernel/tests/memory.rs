//! Memory that comes and goes.

mod support;

use std::sync::mpsc;

use support::{Machine2, TestKernel};
use zonal_core::alloc::{Allocator, Request};
use zonal_core::platform::Platform;
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
        let twice = add(on, section).unwrap_err();
        assert!(matches!(twice, MemoryError::There(_)), "{twice}");
        assert!(twice.to_string().ends_with("the block at pfn 0x101000, order 10: already free"));
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

#[test]
fn memory_of_which_a_part_is_there_is_refused_as_a_whole() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        remove(on, Pfn(0x10_1000)..Pfn(0x10_3000)).unwrap();
        // Within the zone, behind it in the next, and in the middle of what comes.
        add(on, Pfn(0x10_1800)..Pfn(0x10_1801)).unwrap();
        for end in [0x10_1802, 0x10_3000, 0x10_4000] {
            let error = add(on, Pfn(0x10_1000)..Pfn(end)).unwrap_err();
            assert!(matches!(error, MemoryError::There(_)), "{error}");
            assert_eq!(on.free_pages(), all - 0x1fff, "up to {end:#x}");
        }
        remove(on, Pfn(0x10_1800)..Pfn(0x10_1801)).unwrap();
        let error = add(on, Pfn(0x10_1000)..Pfn(0x10_4000)).unwrap_err();
        assert!(matches!(error, MemoryError::There(_)), "{error}");
        assert_eq!(on.free_pages(), all - 0x2000);
        assert!(is_settled(on));
        add(on, Pfn(0x10_1000)..Pfn(0x10_3000)).unwrap();
        assert_eq!(on.free_pages(), all);
    });
}

/// Whether limits follow from the memory that is there. They follow from those before as well, by
/// one or two in a hundred; a section more or less is more than that.
fn is_settled<P: Platform>(on: &Allocator<'_, P>) -> bool {
    let limits = || {
        let marks = on.zones().iter().map(|zone| zone.watermarks().min);
        marks.chain([u64::from(on.stats().min_free_kbytes())]).collect::<Vec<_>>()
    };
    let found = limits();
    (0..3).for_each(|_| on.setup());
    found.iter().zip(limits()).all(|(found, settled)| found.abs_diff(settled) <= 1 + settled / 40)
}

/// Limits are as after calls one by one, whenever in the first call the second one comes.
#[test]
fn memory_that_comes_while_limits_are_computed_counts() {
    let (low, high) = (Pfn(0x10_1000)..Pfn(0x10_2000), Pfn(0x10_2000)..Pfn(0x10_3000));
    let mut at = 1;
    loop {
        let mut came = false;
        Machine2::default().with(TestKernel::default(), |on| {
            remove(on, low.start..high.end).unwrap();
            let (ask, asked) = mpsc::channel();
            let (done, is_done) = mpsc::channel();
            std::thread::scope(|scope| {
                let high = high.clone();
                scope.spawn(move || {
                    support::CPU.set(1);
                    while let Ok(()) = asked.recv() {
                        add(on, high.clone()).unwrap();
                        done.send(()).unwrap();
                    }
                });
                // In front of the so many-th time that interrupts are masked.
                let mut left = at;
                let interrupt = move || {
                    left -= 1;
                    if left == 0 {
                        ask.send(()).unwrap();
                        is_done.recv().unwrap();
                    }
                    left == 0
                };
                support::on_mask(Box::new(interrupt));
                add(on, low.clone()).unwrap();
                came = support::came();
            });
            if came {
                assert!(is_settled(on), "at mask {at}");
            }
        });
        if !came {
            break;
        }
        at += 1;
    }
    assert!(at > 10, "limits were computed, with {at} masks");
}

#[test]
fn memory_comes_once_however_many_bring_it() {
    Machine2::default().with(TestKernel::default(), |on| {
        let all = on.free_pages();
        let ranges = [(0x10_1000, 0x10_4000), (0x10_2000, 0x10_5000), (0x10_2800, 0x10_2900)];
        for _ in 0..200 {
            remove(on, Pfn(0x10_1000)..Pfn(0x10_3000)).unwrap();
            remove(on, Pfn(0x10_3000)..Pfn(0x10_5000)).unwrap();
            let come = |(start, end): (u64, u64)| match add(on, Pfn(start)..Pfn(end)) {
                Ok(()) => end - start,
                Err(MemoryError::There(_)) => 0,
                Err(error) => panic!("{error}"),
            };
            let came: u64 = std::thread::scope(|scope| {
                let bring = |(cpu, range)| {
                    scope.spawn(move || {
                        support::CPU.set(cpu % 2);
                        come(range)
                    })
                };
                let threads: Vec<_> = (0_u32..).zip(ranges).map(bring).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(on.free_pages(), all - 0x4000 + came);
            on.validate().unwrap();
            for (start, end) in ranges {
                for at in (start..end).step_by(0x100) {
                    let _ = add(on, Pfn(at)..Pfn(at + 0x100));
                }
            }
            assert_eq!(on.free_pages(), all);
        }
    });
}

/// Memory that leaves is in nobody's hands on its way: a free of it is refused whenever it comes,
/// and a removal that is refused leaves every page where it was.
#[test]
fn memory_that_leaves_cannot_be_freed_by_anybody() {
    let section = Pfn(0x10_1000)..Pfn(0x10_2000);
    let wrong = Pfn(0x10_1800)..Pfn(0x10_1801);
    let mut at = 1;
    loop {
        let mut came = false;
        Machine2::default().with(TestKernel::default(), |on| {
            let all = on.free_pages();
            let (ask, asked) = mpsc::channel();
            let (done, is_done) = mpsc::channel();
            let removed = std::thread::scope(|scope| {
                let wrong = wrong.clone();
                scope.spawn(move || {
                    support::CPU.set(1);
                    while let Ok(()) = asked.recv() {
                        done.send(on.ranges().free(wrong.clone())).unwrap();
                    }
                });
                let mut left = at;
                let interrupt = move || {
                    left -= 1;
                    if left == 0 {
                        ask.send(()).unwrap();
                        is_done.recv().unwrap().unwrap_err();
                    }
                    left == 0
                };
                support::on_mask(Box::new(interrupt));
                let removed = remove(on, section.clone());
                came = support::came();
                removed
            });
            removed.unwrap();
            assert_eq!(on.free_pages(), all - 0x1000, "at mask {at}");
            on.validate().unwrap();
        });
        if !came {
            break;
        }
        at += 1;
    }
    assert!(at > 3, "the zone was locked, with {at} masks");
}
