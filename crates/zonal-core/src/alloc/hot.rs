//! The fast path alone, for callers with a slow path of their own: what that needs, such as saved
//! registers, stays off the fast path.

use super::{Allocator, fast};
use crate::alloc::{AllocError, FreeError, Request};
use crate::gfp::Gfp;
use crate::platform::Platform;
use crate::types::{Order, Pfn};

/// A block from the running CPU's pcp, if it is ready and has one. `None`: nothing was done;
/// [`alloc_missed`] may have one.
#[inline(always)]
pub fn alloc<P: Platform>(on: &Allocator<'_, P>, request: Request) -> Option<Pfn> {
    fast::alloc(&on.tables, &request)
}

/// As [`Allocator::alloc`], for a request that [`alloc`] has just had no block for. A function of
/// its own of the caller's, `#[cold]` and `#[inline(never)]`, keeps its frame off the fast path.
///
/// # Errors
/// As [`Allocator::alloc`].
pub fn alloc_missed<P: Platform>(
    on: &Allocator<'_, P>,
    request: Request,
) -> Result<Pfn, AllocError> {
    fast::alloc_by_core(&on.tables, request.gfp, request.order, request.node)
}

/// Takes back a block onto the running CPU's pcp, if it is ready and has room.
///
/// # Errors
/// The block once more, so that the caller need not keep it meanwhile. Nothing was done;
/// [`free_missed`] takes it back, or says why not.
#[inline(always)]
pub fn free<P: Platform>(
    on: &Allocator<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), (Pfn, Order)> {
    fast::free(&on.tables, pfn, order)
}

/// As [`Allocator::free`], for a block that [`free`] has just not taken.
///
/// # Errors
/// As [`Allocator::free`].
pub fn free_missed<P: Platform>(
    on: &Allocator<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), FreeError> {
    fast::free_by_core(&on.tables, pfn, order)
}

/// So many pages in a row, if the running CPU keeps a range of just as many; aligned to the largest
/// power of two that is no more. `None`: nothing was done;
/// [`Ranges::alloc`](super::range::Ranges::alloc) may have them.
#[inline(always)]
pub fn alloc_range<P: Platform>(on: &Allocator<'_, P>, pages: u64, gfp: Gfp) -> Option<Pfn> {
    fast::alloc_parked(&on.tables, pages, gfp, None)
}

/// Takes back a range of so many pages, if the running CPU keeps ranges of just as many and has
/// none now. `false`: nothing was done; [`Ranges::free`](super::range::Ranges::free) takes it back,
/// or says why not.
#[inline(always)]
#[must_use = "a range that was not taken back is still handed out"]
pub fn free_range<P: Platform>(on: &Allocator<'_, P>, pfn: Pfn, pages: u64) -> bool {
    fast::free_parked(&on.tables, pfn, pages)
}
