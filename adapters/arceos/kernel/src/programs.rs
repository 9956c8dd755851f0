//! Programs that use the kernel's memory, and find out whether it is as it must be.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use ax_allocator::PageAllocator;
use axplat::console_println;
use zonal_arceos::PAGE_SIZE;

use crate::heap::{pages_of_bytes, with_pages};

/// Numbers that look random, the same at each boot.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// Pages of a program, each of which has its number in its first word.
fn words(at: usize, pages: usize) -> impl Iterator<Item = *mut usize> {
    (0..pages).map(move |page| (at + page * PAGE_SIZE) as *mut usize)
}

fn write(at: usize, pages: usize) {
    // SAFETY: (1) pages that were handed out, and are mapped at their addresses.
    words(at, pages).for_each(|word| unsafe { word.write(word as usize ^ pages) });
}

fn check(at: usize, pages: usize) {
    for word in words(at, pages) {
        // SAFETY: (1) as in `write`.
        assert_eq!(unsafe { word.read() } ^ pages, word as usize, "a page has two owners");
    }
}

/// Takes pages, writes to them, gives them back whole or in parts; then takes all there are.
pub fn pages() {
    const CALLS: usize = 200_000;
    let available = || with_pages(|pages| pages.available_pages());
    let mut numbers = Numbers(17);
    let mut held: Vec<(usize, usize)> = Vec::with_capacity(512);
    let before = available();
    for _ in 0..CALLS {
        if held.len() == 512 || !held.is_empty() && numbers.below(2) == 0 {
            let (at, count) = held.swap_remove(numbers.below(held.len()));
            check(at, count);
            let first = numbers.below(count + 1);
            with_pages(|pages| {
                let parts = [(at, first), (at + first * PAGE_SIZE, count - first)];
                parts.iter().filter(|part| part.1 > 0).for_each(|part| {
                    pages.dealloc_pages(part.0, part.1);
                });
            });
        } else {
            let count = 1 + numbers.below(20);
            let align = PAGE_SIZE << numbers.below(4);
            let at = with_pages(|pages| pages.alloc_pages(count, align)).expect("pages");
            assert_eq!(at % align, 0, "{count} pages by {align} bytes");
            write(at, count);
            held.push((at, count));
        }
    }
    for (at, count) in held.drain(..) {
        check(at, count);
        with_pages(|pages| pages.dealloc_pages(at, count));
    }
    assert_eq!(available(), before, "pages are missing");
    // All of them, in a chain through the pages themselves.
    let mut last = 0;
    let mut all = 0;
    while let Ok(at) = with_pages(|pages| pages.alloc_pages(1, PAGE_SIZE)) {
        // SAFETY: (1) as in `write`.
        unsafe { (at as *mut usize).write(last) };
        (last, all) = (at, all + 1);
    }
    assert_eq!(all, before, "not all pages can be had");
    while last != 0 {
        // SAFETY: (1) as in `write`.
        let next = unsafe { (last as *const usize).read() };
        with_pages(|pages| pages.dealloc_pages(last, 1));
        last = next;
    }
    assert_eq!(available(), before, "pages are missing");
    with_pages(|pages| {
        pages.dealloc_pages(usize::MAX & !(PAGE_SIZE - 1), 1);
        assert_eq!(pages.refused(), 1, "a free of what is no memory");
        pages.validate().expect("everything is as it must be");
    });
    console_println!("passed: pages: {} calls; all {} pages taken and given back", CALLS, all);
}

/// Boxes, vectors, maps and strings out of the kernel's own heap.
pub fn bytes() {
    let mut numbers = Numbers(5);
    let mut map: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    for _ in 0..20_000 {
        let key = numbers.below(700);
        if let Some(was) = map.remove(&key) {
            assert!(was.iter().all(|byte| usize::from(*byte) == key % 251), "bytes of another");
        } else {
            let bytes = 1 + numbers.below(if key == 0 { 1 << 20 } else { 3000 });
            map.insert(key, alloc::vec![(key % 251) as u8; bytes]);
        }
    }
    let text: String = map.keys().map(|key| alloc::format!("{key} ")).collect();
    assert!(text.split_whitespace().count() == map.len());
    console_println!(
        "passed: bytes: {} vectors are held at the end; {} pages became bytes",
        map.len(),
        pages_of_bytes()
    );
}
