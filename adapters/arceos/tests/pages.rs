//! What ArceOS' own tests ask of its page allocator, but for the addresses that it chooses; both
//! allocators by the same random programs; and what a confused kernel may try.

use std::mem::MaybeUninit;
use std::ops::Range;

use ax_allocator::{AllocError, BaseAllocator, BitmapPageAllocator, PageAllocator};
use zonal_arceos::{PAGE_SIZE, Pages, PagesError, Span};

const GIB: usize = 1 << 30;

fn pages(span: Range<usize>) -> Pages<'static> {
    let span = Box::leak(Box::new(Span::new(span.start, span.end)));
    let records = vec![MaybeUninit::uninit(); span.record_bytes().unwrap()].leak();
    Pages::new(span, records).unwrap()
}

fn counts(of: &impl PageAllocator) -> [usize; 3] {
    [of.total_pages(), of.used_pages(), of.available_pages()]
}

fn check(pages: &mut Pages<'_>) {
    pages.validate().unwrap();
    // Pages on the lists of the CPU are free, too.
    assert_eq!(pages.stats().free_pages() as usize, pages.available_pages());
}

#[test]
fn the_only_page_comes_and_goes() {
    let mut one = pages(PAGE_SIZE..2 * PAGE_SIZE);
    one.init(PAGE_SIZE, PAGE_SIZE);
    for _ in 0..2 {
        assert_eq!(counts(&one), [1, 0, 1]);
        assert_eq!(one.alloc_pages(1, PAGE_SIZE).unwrap(), PAGE_SIZE);
        assert_eq!(counts(&one), [1, 1, 0]);
        assert!(matches!(one.alloc_pages(1, PAGE_SIZE), Err(AllocError::NoMemory)));
        one.dealloc_pages(PAGE_SIZE, 1);
    }
    check(&mut one);
}

#[test]
fn two_gib_behind_an_odd_page_serve_all_sizes_and_alignments() {
    let start = GIB + PAGE_SIZE;
    let mut all = pages(start..start + 2 * GIB);
    all.init(start, 2 * GIB);
    let total = 2 * GIB / PAGE_SIZE;
    for count in [1, 10, 100, 1000, 100_000] {
        let at = all.alloc_pages(count, PAGE_SIZE).unwrap();
        assert_eq!(counts(&all), [total, count, total - count]);
        all.dealloc_pages(at, count);
        assert_eq!(counts(&all), [total, 0, total]);
    }
    let sizes = [(1, PAGE_SIZE), (10, PAGE_SIZE << 9), (100, GIB)];
    let held = sizes.map(|(count, align)| {
        let at = all.alloc_pages(count, align).unwrap();
        assert!(at.is_multiple_of(align), "{at:#x} for {align:#x}");
        at
    });
    assert_eq!(all.used_pages(), 111);
    sizes.iter().zip(held).for_each(|((count, _), at)| all.dealloc_pages(at, *count));
    let mut base = start;
    for (count, align) in sizes {
        base = base.next_multiple_of(align);
        assert_eq!(all.alloc_pages_at(base, count, align).unwrap(), base);
        assert!(all.alloc_pages_at(base, count, align).is_err(), "twice");
        base += count * PAGE_SIZE;
    }
    assert_eq!((all.used_pages(), all.refused()), (111, 0));
    check(&mut all);
}

/// Both allocators serve the same requests, as long as neither is nearly full, and count alike.
#[test]
fn random_programs_get_what_arceos_own_allocator_gives() {
    const SIZE: usize = 128 << 20;
    let mut ours = pages(GIB..GIB + SIZE);
    let mut theirs = BitmapPageAllocator::<PAGE_SIZE>::new();
    ours.init(GIB, SIZE);
    theirs.init(GIB, SIZE);
    let mut taken = vec![false; SIZE / PAGE_SIZE];
    let mut held: Vec<(usize, usize, usize)> = Vec::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for step in 0..100_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let r = random as usize;
        if r & 1 == 0 && ours.used_pages() < taken.len() / 2 || held.is_empty() {
            let count = [1, 1, 1, 2, 3, 5, 8, 64, 100][r / 2 % 9];
            let align = PAGE_SIZE << [0, 0, 0, 1, 4][r / 32 % 5];
            let at = ours.alloc_pages(count, align).unwrap();
            let of_theirs = theirs.alloc_pages(count, align).unwrap();
            assert!(at.is_multiple_of(align));
            let first = (at - GIB) / PAGE_SIZE;
            for page in &mut taken[first..first + count] {
                assert!(!std::mem::replace(page, true), "{at:#x} has two owners");
            }
            held.push((at, of_theirs, count));
        } else {
            let (at, of_theirs, count) = held.swap_remove(r / 2 % held.len());
            let first = (at - GIB) / PAGE_SIZE;
            taken[first..first + count].fill(false);
            // In one piece, or in two.
            let front = if r & 64 == 0 { 0 } else { r / 128 % count };
            if front > 0 {
                ours.dealloc_pages(at, front);
            }
            ours.dealloc_pages(at + front * PAGE_SIZE, count - front);
            theirs.dealloc_pages(of_theirs, count);
        }
        assert_eq!(counts(&ours), counts(&theirs), "step {step}");
    }
    for (at, _, count) in held {
        ours.dealloc_pages(at, count);
    }
    assert_eq!((ours.used_pages(), ours.refused()), (0, 0));
    check(&mut ours);
}

#[test]
fn every_page_can_be_had_and_comes_back() {
    let mut all = pages(GIB..GIB + (64 << 20));
    all.init(GIB, 16 << 20);
    all.add_memory(GIB + (32 << 20), 32 << 20).unwrap();
    assert!(matches!(all.add_memory(GIB, PAGE_SIZE), Err(AllocError::MemoryOverlap)));
    let mut held = Vec::new();
    while let Ok(at) = all.alloc_pages(1, PAGE_SIZE) {
        held.push(at);
    }
    assert_eq!((held.len(), all.available_pages()), ((48 << 20) / PAGE_SIZE, 0));
    held.sort_unstable();
    held.dedup();
    assert_eq!(held.len(), all.total_pages());
    held.iter().for_each(|at| all.dealloc_pages(*at, 1));
    assert_eq!(counts(&all), [held.len(), 0, held.len()]);
    let whole = all.alloc_pages((32 << 20) / PAGE_SIZE, PAGE_SIZE).unwrap();
    assert_eq!(whole, GIB + (32 << 20));
    all.dealloc_pages(whole, (32 << 20) / PAGE_SIZE);
    check(&mut all);
}

#[test]
fn what_is_wrong_is_refused_and_nothing_is_lost() {
    let mut all = pages(GIB..GIB + (16 << 20));
    all.init(GIB, 16 << 20);
    let total = all.total_pages();
    for (count, align) in [(0, PAGE_SIZE), (1, 0), (1, 1), (1, 3 * PAGE_SIZE), (1, 2048)] {
        let refused = all.alloc_pages(count, align);
        assert!(matches!(refused, Err(AllocError::InvalidParam)), "{count} {align}");
    }
    for count in [total + 1, usize::MAX] {
        assert!(all.alloc_pages(count, PAGE_SIZE).is_err());
        assert!(all.alloc_pages_at(GIB, count, PAGE_SIZE).is_err());
    }
    for base in [0, GIB + 1, GIB - PAGE_SIZE, usize::MAX, usize::MAX - (PAGE_SIZE - 1)] {
        assert!(all.alloc_pages_at(base, 1, PAGE_SIZE).is_err(), "{base:#x}");
    }
    let at = all.alloc_pages(3, PAGE_SIZE).unwrap();
    let wrong = [
        (at, 0),
        (at, 4),
        (at + 1, 1),
        (at + 3 * PAGE_SIZE, 1),
        (0, 1),
        (usize::MAX, 1),
        (usize::MAX - (PAGE_SIZE - 1), 1),
        (at, usize::MAX),
        (at, usize::MAX / PAGE_SIZE),
    ];
    for (pos, count) in wrong {
        all.dealloc_pages(pos, count);
        assert_eq!(all.used_pages(), 3, "{count} pages at {pos:#x}");
    }
    all.dealloc_pages(at, 3);
    all.dealloc_pages(at, 3);
    for (start, size) in [(0, PAGE_SIZE), (GIB, 17 << 20), (GIB, 0), (usize::MAX, 2)] {
        assert!(all.add_memory(start, size).is_err(), "{start:#x} {size:#x}");
    }
    all.init(GIB, PAGE_SIZE);
    assert_eq!(all.refused(), wrong.len() as u64 + 2);
    assert_eq!(counts(&all), [total, 0, total]);
    check(&mut all);
}

#[test]
fn a_span_without_a_page_and_too_few_records_are_told() {
    for span in [0..0, 1..PAGE_SIZE, Range { start: GIB, end: 0 }] {
        let bytes = Span::new(span.start, span.end).record_bytes();
        assert!(matches!(bytes, Err(PagesError::Machine(_))), "{span:?}");
    }
    let mut few = [MaybeUninit::uninit(); 1000];
    let error = Pages::new(&Span::new(0, GIB), &mut few).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("there are 1000"), "{error}");
}
