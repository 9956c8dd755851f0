//! The fast path alone, for callers with a slow path of their own: what that needs, such as saved
//! registers, stays off the fast path. Such a caller may also know by itself which CPU it runs on,
//! and keep what that CPU works on ([`Own`]) where it finds it at once.
#![allow(unsafe_code)]

use core::num::NonZeroU64;

use super::{Allocator, fast};
use crate::alloc::{AllocError, FreeError, Request};
use crate::gfp::Gfp;
use crate::pcp::state::Pcp;
use crate::pcp::word::NR_LISTS;
use crate::platform::Platform;
use crate::types::{CpuId, Migratetype, Order, Pfn};

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
pub fn alloc_range<P: Platform>(on: &Allocator<'_, P>, pages: NonZeroU64, gfp: Gfp) -> Option<Pfn> {
    fast::alloc_parked(&on.tables, pages, gfp, None)
}

/// Takes back a range of so many pages, if the running CPU keeps ranges of just as many and has
/// none now. `false`: nothing was done; [`Ranges::free`](super::range::Ranges::free) takes it back,
/// or says why not.
#[inline(always)]
#[must_use = "a range that was not taken back is still handed out"]
pub fn free_range<P: Platform>(on: &Allocator<'_, P>, pfn: Pfn, pages: NonZeroU64) -> bool {
    fast::free_parked(&on.tables, pfn, pages)
}

/// The list that serves such requests, of the pcp of the zone that a CPU prefers, for a platform
/// with sequences. `None`: the core has to decide. Never changes.
pub fn list_of_request<P: Platform>(
    on: &Allocator<'_, P>,
    order: Order,
    gfp: Gfp,
) -> Option<usize> {
    let plain = &on.tables.plain;
    let list = plain.list(gfp, order);
    let is_plain = gfp.bits() & plain.others == 0 && !on.policy().numa.records();
    (is_plain && list < NR_LISTS).then_some(list)
}

/// The list that blocks are freed to which lie in pageblocks of this type, as
/// [`list_of_request`].
pub fn list_of_block<P: Platform>(
    on: &Allocator<'_, P>,
    order: Order,
    mt: Migratetype,
) -> Option<usize> {
    let list = on.tables.plain.list_by_type(order.get(), mt.index() as u32);
    (list < NR_LISTS && !on.tables.owns_pageblocks()).then_some(list)
}

/// Makes `list` the active one of the running CPU's pcp of the zone that it prefers, as a sequence
/// does that serves any list. `false`: the pcp is slow, or has no such list.
///
/// # Safety
/// 1. No sequence of the running CPU is under way that could commit afterwards, the thread stays on
///    the CPU until this returns, and nothing else that works on the pcp comes between: in a
///    kernel, interrupts are masked.
/// 2. [`Platform::fence`] does not return for this CPU meanwhile.
pub unsafe fn make_active<P: Platform>(on: &Allocator<'_, P>, list: usize) -> bool {
    let pcp = on.tables.own(on.platform().cpu());
    // A sealed pcp's word is slow.
    pcp.is_some_and(|pcp| pcp.may_have_sequences(on.platform()) && pcp.switch(list, || false))
}

/// What a CPU serves itself from: its lists of the zone that it prefers. A reference, to be kept
/// for each CPU, and good for as long as the allocator, also where the CPU goes and comes back. Its
/// functions mask interrupts while they need it, so threads and handlers may call them. `on` below
/// is the allocator that it is of. Called on another CPU, it works on the lists of the CPU that it
/// was made for, under their gate.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Own<'a>(&'a Pcp);

impl<'a> Own<'a> {
    /// What `cpu` serves itself from. `None`: there is no such CPU, or sequences serve it.
    ///
    /// # Safety
    /// The value is used with this allocator only. With another one its pages would have two
    /// owners: neither looks whose lists they are.
    pub unsafe fn new<P: Platform>(on: &Allocator<'a, P>, cpu: CpuId) -> Option<Own<'a>> {
        fast::pcp_of(&on.tables, cpu).map(Own)
    }

    /// As [`alloc`], for a request that names no node ([`Request::node`]).
    #[inline(always)]
    pub fn alloc<P: Platform>(self, on: &Allocator<'_, P>, order: Order, gfp: Gfp) -> Option<Pfn> {
        fast::alloc_on(&on.tables, self.0, order, gfp)
    }

    /// As [`free`].
    ///
    /// # Errors
    /// As [`free`].
    #[inline(always)]
    pub fn free<P: Platform>(
        self,
        on: &Allocator<'_, P>,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), (Pfn, Order)> {
        fast::free_on(&on.tables, self.0, pfn, order)
    }

    /// As [`alloc_range`].
    #[inline(always)]
    pub fn alloc_range<P: Platform>(
        self,
        on: &Allocator<'_, P>,
        pages: NonZeroU64,
        gfp: Gfp,
    ) -> Option<Pfn> {
        fast::alloc_range_on(&on.tables, self.0, pages, gfp)
    }

    /// As [`free_range`].
    ///
    /// # Errors
    /// The range once more, so that the caller need not keep it meanwhile. Nothing was done;
    /// [`Ranges::free`](super::range::Ranges::free) takes it back, or says why not.
    #[inline(always)]
    pub fn free_range<P: Platform>(
        self,
        on: &Allocator<'_, P>,
        pfn: Pfn,
        pages: NonZeroU64,
    ) -> Result<(), (Pfn, NonZeroU64)> {
        fast::free_range_on(&on.tables, self.0, pfn, pages)
    }
}

#[cfg(test)]
impl<'a> Own<'a> {
    /// As [`new`](Self::new), in a test with one allocator.
    pub(super) fn of_test<P: Platform>(on: &Allocator<'a, P>, cpu: CpuId) -> Option<Own<'a>> {
        fast::pcp_of(&on.tables, cpu).map(Own)
    }
}
