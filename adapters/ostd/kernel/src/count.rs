//! Instructions of calls: ticks of the clock, which are instructions under QEMU's
//! `-icount shift=0`.

use alloc::vec::Vec;
use core::alloc::Layout;
use core::hint::black_box;

use ostd::arch::read_tsc;
use ostd::mm::PAGE_SIZE;
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::prelude::*;

use crate::frames::FRAMES;

/// Prints what `body` takes, for each of `per` in it, the loop around it not counted.
fn print(what: core::fmt::Arguments<'_>, per: u64, mut body: impl FnMut()) {
    const TIMES: u64 = 500;
    (0..50).for_each(|_| body());
    // A timer's interrupt would be counted.
    let off = ostd::irq::disable_local();
    let start = read_tsc();
    (0..TIMES).for_each(|_| body());
    let middle = read_tsc();
    (0..TIMES).for_each(|_| black_box(()));
    let end = read_tsc();
    drop(off);
    let tenths = (2 * middle).saturating_sub(start + end) * 10 / (TIMES * per);
    println!("count: {}: {}.{}", what, tenths / 10, tenths % 10);
}

fn pages(count: usize) -> Layout {
    Layout::from_size_align(count * PAGE_SIZE, PAGE_SIZE).expect("a layout")
}

/// Prints the table.
pub fn run() {
    let start = read_tsc();
    (0..1000_u64).for_each(|n| {
        black_box(n);
    });
    println!("calibration: 1000 turns of a loop take {} ticks", read_tsc() - start);
    print(format_args!("interrupts off and on, twice"), 1, || {
        drop(black_box(ostd::irq::disable_local()));
        drop(black_box(ostd::irq::disable_local()));
    });
    // As OSTD calls it: through the trait.
    let frames: &dyn GlobalFrameAllocator = black_box(&FRAMES);
    for count in [1, 2, 3, 8, 512] {
        print(format_args!("{count} pages in a row"), 1, || {
            let at = frames.alloc(black_box(pages(count))).expect("pages");
            frames.dealloc(black_box(at), count * PAGE_SIZE);
        });
    }
    let mut held = Vec::with_capacity(4096);
    for batch in [32, 512, 4096] {
        print(format_args!("a page, {batch} held"), batch, || {
            (0..batch).for_each(|_| held.push(frames.alloc(black_box(pages(1))).expect("a page")));
            held.drain(..).for_each(|at| frames.dealloc(at, PAGE_SIZE));
        });
    }
}
