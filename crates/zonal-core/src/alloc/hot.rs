//! The fast path alone, for callers with a slow path of their own: what that needs, such as saved
//! registers, stays off the fast path.

use super::{Allocator, fast};
use crate::alloc::Request;
use crate::platform::Platform;
use crate::types::{Order, Pfn};

/// A block from the running CPU's pcp, if it is ready and has one. `None`: nothing was done;
/// [`Allocator::alloc`] may have one.
#[inline(always)]
pub fn alloc<P: Platform>(on: &Allocator<'_, P>, request: Request) -> Option<Pfn> {
    fast::alloc(&on.tables, &request)
}

/// Takes back a block onto the running CPU's pcp, if it is ready and has room. `false`: nothing was
/// done; [`Allocator::free`] takes it back, or says why not.
#[inline(always)]
#[must_use = "a block that was not taken back is still handed out"]
pub fn free<P: Platform>(on: &Allocator<'_, P>, pfn: Pfn, order: Order) -> bool {
    fast::free(&on.tables, pfn, order).is_ok()
}
