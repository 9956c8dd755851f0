//! Instructions of calls: ticks of the clock, which are instructions under QEMU's
//! `-icount shift=0`.

use core::hint::black_box;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use crate::{arch, kernel, say};

/// Ticks of `body`, in tenths, for each of `per` in it. Without the loop around it.
fn ticks(per: u64, mut body: impl FnMut()) -> u64 {
    const TIMES: u64 = 500;
    (0..50).for_each(|_| body());
    let start = arch::now();
    (0..TIMES).for_each(|_| body());
    let middle = arch::now();
    (0..TIMES).for_each(|_| black_box(()));
    let end = arch::now();
    (2 * middle).saturating_sub(start + end) * 10 / (TIMES * per)
}

fn print(what: core::fmt::Arguments<'_>, per: u64, body: impl FnMut()) {
    let tenths = ticks(per, body);
    say!("count: {what}: {}.{}", tenths / 10, tenths % 10);
}

#[inline(never)]
fn pair(order: Order) {
    let pfn = kernel::alloc(black_box(order), black_box(Gfp::KERNEL)).expect("a block");
    kernel::free(black_box(pfn), black_box(order)).expect("its block");
}

/// As most calls of a kernel are written: order and flags are constants.
#[inline(never)]
fn pair_of_a_page() {
    kernel::free_page(black_box(kernel::page()));
}

/// Prints the table.
pub fn run() {
    let core = kernel::core();
    let was = arch::mask();
    arch::calibrate();
    for order in [0, 1, 2, 3, 5, 9, 10].map(|n| Order::new(n).expect("an order")) {
        print(format_args!("pair of order {}", order.get()), 1, || pair(order));
    }
    print(format_args!("pair of a page, all else constant"), 1, pair_of_a_page);
    let mut pages = [Pfn(0); 4096];
    for batch in [32, 512, 4096] {
        let pages = &mut pages[..batch];
        print(format_args!("batch of {batch}"), batch as u64, || {
            for page in &mut *pages {
                *page =
                    kernel::alloc(black_box(Order::ZERO), black_box(Gfp::KERNEL)).expect("a page");
            }
            for page in &*pages {
                kernel::free(*page, black_box(Order::ZERO)).expect("its page");
            }
        });
    }
    for bulk in [512, 4096] {
        let pages = &mut pages[..bulk];
        print(format_args!("bulk of {bulk}"), bulk as u64, || {
            let request = Request::new(Order::ZERO).gfp(Gfp::KERNEL);
            let mut got = 0;
            while got < pages.len() {
                got += core.alloc_bulk(request, &mut pages[got..]).expect("pages");
            }
            core.free_bulk(pages, Order::ZERO).expect("its pages");
        });
    }
    arch::unmask(was);
}
