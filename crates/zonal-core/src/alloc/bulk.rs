//! Many blocks in one call, by few holds of the running CPU's pcp (LB D.9).
//!
//! Nothing of the caller's runs while a pcp is closed: it could call the allocator, which would
//! wait for ever, or panic, which would lose pages. So callers name pages in one of two ways, by
//! page frame number or by address, and do not say how to make one of the other.

use super::cpu_ops::CpuOps;
use super::pcp_ops::run::PageName;
use super::search::Search;
use super::{AllocError, Allocator, FreeError, Request};
use crate::platform::Platform;
use crate::types::{Order, Pfn};

/// Most pages taken in one hold of the pcp: some microsecond, while others on the CPU go to the
/// buddy.
const HOLD_PAGES_MAX: usize = 2048;

/// Requests for many pages.
impl<P: Platform> Allocator<'_, P> {
    /// Fills `pages` from the front with order-0 pages and returns how many it got. Like Linux it
    /// keeps to the preferred node while it can spare that many, and never does worse than one
    /// call of [`alloc`](Self::alloc); call again for the rest.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page was available.
    pub fn alloc_bulk(&self, request: Request, pages: &mut [Pfn]) -> Result<usize, AllocError> {
        alloc_with(self, request, pages, |pfn| pfn)
    }

    /// As [`alloc_bulk`](Self::alloc_bulk), with the pages' addresses where page 0 lies at the
    /// address `base` ([`Pfn::address`]).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page was available.
    #[inline]
    pub fn alloc_bulk_at(
        &self,
        request: Request,
        base: usize,
        pages: &mut [*mut u8],
    ) -> Result<usize, AllocError> {
        alloc_with(self, request, pages, |pfn| pfn.address(base) as *mut u8)
    }

    /// Frees blocks of one order. Stops at the first that is refused.
    ///
    /// Only the owner of a page may free it. A second free is refused, at the same moment too: each
    /// page is claimed by an exchange of its word. Where blocks are freed by sequences
    /// ([`Platform::has_sequences`]) order-0 pages are looked at and then written instead, as
    /// sequences do: a free in between is not found, and if it has brought the page to the buddy,
    /// the page gets two owners.
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    pub fn free_bulk(&self, pages: &[Pfn], order: Order) -> Result<(), (usize, FreeError)> {
        free_with(self, pages, order, |pfn| *pfn, |pfn| pfn)
    }

    /// As [`free_bulk`](Self::free_bulk), for the blocks at these addresses where page 0 lies at
    /// the address `base` ([`Pfn::at`]). An address at which no page begins is refused as
    /// [`FreeError::Foreign`].
    ///
    /// # Errors
    /// How many were freed, and why the next was not.
    #[inline]
    pub fn free_bulk_at(
        &self,
        base: usize,
        pages: &[*mut u8],
        order: Order,
    ) -> Result<(), (usize, FreeError)> {
        let pfn = |page: &*mut u8| Pfn::at(base, *page as usize);
        free_with(self, pages, order, pfn, |pfn| pfn.address(base) as *mut u8)
    }
}

/// `make` runs while the pcp is closed.
#[inline]
fn alloc_with<P: Platform, T: PageName>(
    on: &Allocator<'_, P>,
    request: Request,
    pages: &mut [T],
    make: impl Fn(Pfn) -> T,
) -> Result<usize, AllocError> {
    let request = Request { order: Order::ZERO, ..request };
    let mut got = 0;
    for hold in pages.chunks_mut(HOLD_PAGES_MAX) {
        let some = Search::new(&on.tables, &request)?.many(hold, &make);
        got += some;
        if some < hold.len() {
            break;
        }
    }
    if got == 0
        && let Some(page) = pages.first_mut()
    {
        *page = make(on.alloc(request)?);
        got = 1;
    }
    Ok(got)
}

/// `pfn` and its inverse `page` run while the pcp is closed.
#[inline]
fn free_with<P: Platform, T: PageName>(
    on: &Allocator<'_, P>,
    pages: &[T],
    order: Order,
    pfn: impl Fn(&T) -> Pfn,
    page: impl Fn(Pfn) -> T,
) -> Result<(), (usize, FreeError)> {
    let mut done = 0;
    while done < pages.len() {
        let hold = HOLD_PAGES_MAX.min(pages.len() - done);
        let hold = &pages[done..done + hold];
        let some = CpuOps::running(&on.tables).free_hold(hold, order, &pfn, &page);
        done += some.map_err(|(freed, error)| (done + freed, error))?;
    }
    Ok(())
}
