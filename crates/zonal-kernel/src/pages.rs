//! Any number of pages, and any part of them back: what the frame allocator traits of other kernels
//! ask for. The core knows blocks and ranges, and which of them a page belongs to must be said;
//! here it is found out.

use core::ops::Range;

use zonal_core::alloc::range::{RangeError, RangeRequest};
use zonal_core::alloc::{Allocator, FreeError, Request};
use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform;
use zonal_core::types::{Order, Pfn};

/// The order of a block of so many pages, if there is one.
#[inline(always)]
pub fn order_of(pages: u64) -> Option<Order> {
    if !pages.is_power_of_two() {
        return None;
    }
    Order::new(pages.trailing_zeros())
}

/// So many pages side by side, the first one a multiple of `align` pages: a block where there is
/// one, otherwise a range.
///
/// # Errors
/// As [`Ranges::alloc`](zonal_core::alloc::range::Ranges::alloc).
pub fn alloc<P: Platform>(
    on: &Allocator<'_, P>,
    pages: u64,
    align: u64,
    gfp: Gfp,
) -> Result<Pfn, RangeError> {
    // A block is aligned to its size.
    let order = order_of(pages).filter(|_| align.is_power_of_two() && align <= pages);
    if let Some(pfn) = order.and_then(|order| on.alloc(Request::new(order).gfp(gfp)).ok()) {
        return Ok(pfn);
    }
    on.ranges().alloc(RangeRequest::new(pages).aligned(align).gfp(gfp))
}

/// Takes pages back: a block, a range, or any part of either.
///
/// # Errors
/// [`FreeError`], with nothing freed: a page of them is not handed out, or not all of them belong
/// to one block or range.
pub fn free<P: Platform>(on: &Allocator<'_, P>, pages: Range<Pfn>) -> Result<(), FreeError> {
    let count = pages.end.0.saturating_sub(pages.start.0);
    if order_of(count).is_some_and(|order| on.free(pages.start, order).is_ok()) {
        return Ok(());
    }
    match on.ranges().free(pages.clone()) {
        Ok(()) => Ok(()),
        // Pages that are none lie in a block as well, which is to stay one.
        Err(_) if count > 0 && cut_block(on, &pages) => on.ranges().free(pages),
        Err(error) => Err(error),
    }
}

/// Makes the block around these pages a range, parts of which can be freed. `false`: no block has
/// all of them, and another CPU has made none a range meanwhile.
fn cut_block<P: Platform>(on: &Allocator<'_, P>, pages: &Range<Pfn>) -> bool {
    let larger = Order::all().filter(|order| order.get() > 0);
    for order in larger {
        let head = Pfn(pages.start.0 & !(order.pages() - 1));
        let has_all = pages.end.0 <= head.0.saturating_add(order.pages());
        if has_all && on.ranges().from_block(head, order, order.pages()).is_ok() {
            return true;
        }
    }
    on.ranges().check(pages.clone()).is_ok()
}
