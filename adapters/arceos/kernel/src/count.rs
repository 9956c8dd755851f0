//! Instructions of calls: ticks of the clock, which are instructions under QEMU's
//! `-icount shift=0`.

use alloc::vec::Vec;
use core::hint::black_box;

use ax_allocator::{BaseAllocator, BitmapPageAllocator, PageAllocator};
use axplat::console_println;
use kspin::SpinNoIrq;
use zonal_arceos::PAGE_SIZE;

use crate::heap::with_pages;

/// Pages that ArceOS' own allocator is given.
const PAGES: usize = 6 << 10;

fn ticks() -> u64 {
    // SAFETY: (1) reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Prints what `body` takes, for each of `per` in it, the loop around it not counted.
fn print(whose: &str, what: core::fmt::Arguments<'_>, per: u64, mut body: impl FnMut()) {
    const TIMES: u64 = 200;
    (0..20).for_each(|_| body());
    let start = ticks();
    (0..TIMES).for_each(|_| body());
    let middle = ticks();
    (0..TIMES).for_each(|_| black_box(()));
    let tenths = (2 * middle).saturating_sub(start + ticks()) * 10 / (TIMES * per);
    console_println!("count: {}: {}: {}.{}", whose, what, tenths / 10, tenths % 10);
}

/// The rows of one allocator, by its two calls.
fn table(whose: &str, take: &dyn Fn(usize) -> usize, give: &dyn Fn(usize, usize)) {
    for count in [1, 2, 3, 8, 512] {
        print(whose, format_args!("{count} pages in a row"), 1, || {
            let at = take(black_box(count));
            give(black_box(at), count);
        });
    }
    let mut held = Vec::with_capacity(4096);
    for batch in [32, 512, 4096] {
        print(whose, format_args!("a page, {batch} held"), batch, || {
            (0..batch).for_each(|_| held.push(take(black_box(1))));
            held.drain(..).for_each(|at| give(at, 1));
        });
    }
}

/// Prints the table: ArceOS' own allocator, on pages that ours hands out, and ours; both behind a
/// lock of ArceOS'.
pub fn run() {
    let pages = with_pages(|pages| pages.alloc_pages(PAGES, PAGE_SIZE)).expect("pages");
    let bitmap = SpinNoIrq::new(BitmapPageAllocator::<PAGE_SIZE>::new());
    bitmap.lock().init(pages, PAGES * PAGE_SIZE);
    let take = |count| bitmap.lock().alloc_pages(count, PAGE_SIZE).expect("pages");
    table("default", &take, &|at, count| bitmap.lock().dealloc_pages(at, count));
    with_pages(|on| on.dealloc_pages(pages, PAGES));
    let take = |count| with_pages(|on| on.alloc_pages(count, PAGE_SIZE)).expect("pages");
    table("zonal", &take, &|at, count| with_pages(|on| on.dealloc_pages(at, count)));
}
