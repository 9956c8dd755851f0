//! Blocks out of a pool and back: owned, raw, thousands at once, and from signal handlers.

use std::ptr::NonNull;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::block;
use super::{Builder, Pages, Pool};
use crate::error::{AllocError, FreeError};

impl Pool {
    /// A description to fill in: size, nodes, backing, policy.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// An owned block of `order`, for ordinary use, from the running CPU's node.
    ///
    /// # Errors
    /// [`AllocError`] names the zone and the watermark that refused.
    #[inline]
    pub fn alloc(&self, order: Order) -> Result<Pages<'_>, AllocError> {
        let start = self.alloc_pages(order, Gfp::KERNEL)?;
        Ok(Pages::new(self, start, order))
    }

    /// As [`alloc`](Self::alloc), with every byte zero.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&self, order: Order) -> Result<Pages<'_>, AllocError> {
        let start = self.alloc_pages(order, Gfp::KERNEL | Gfp::ZERO)?;
        Ok(Pages::new(self, start, order))
    }

    /// As [`alloc`](Self::alloc), with rights and a node of the caller's choice.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_with(&self, request: Request) -> Result<Pages<'_>, AllocError> {
        let start = self.shared.alloc_by_core(request)?;
        Ok(Pages::new(self, start, request.order))
    }

    /// A raw block of `order`, aligned to its size, with the rights in `gfp`. Its bytes are the
    /// last owner's, or zero, unless `gfp` asks for zeroes.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_pages(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        if order == Order::ZERO && self.fast.is_plain(gfp) {
            return match self.fast.pop_page() {
                Ok(start) => Ok(block::zeroed(start, order, gfp)),
                Err(popped) => self.alloc_again(popped, order, gfp),
            };
        }
        self.alloc_any(order, gfp)
    }

    /// As [`alloc_pages`](Self::alloc_pages); null where that refuses.
    #[inline]
    pub fn alloc_raw(&self, order: Order, gfp: Gfp) -> *mut u8 {
        if order == Order::ZERO && self.fast.is_plain(gfp) {
            return match self.fast.pop_page() {
                Ok(start) => block::zeroed(start, order, gfp).as_ptr(),
                Err(popped) => self.alloc_raw_again(popped, order, gfp),
            };
        }
        self.alloc_raw_any(order, gfp)
    }

    /// A raw page from this CPU's pcp, or `None` if that would take a lock. For signal handlers.
    #[inline]
    pub fn try_alloc_cached(&self, order: Order) -> Option<NonNull<u8>> {
        self.shared.pop_block(order)
    }

    /// Frees a raw block.
    ///
    /// # Safety
    /// 1. The block's memory is no longer in use.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, if no block of this order starts there or it is free
    /// already.
    ///
    /// Where [`mode`](Self::mode) is `rseq`, one misuse is found late or not at all, because
    /// finding it at once would take an atomic exchange on every free: two threads that free one
    /// block within the few nanoseconds between a free's check and its mark. Both may return `Ok`;
    /// the block is then handed out once, and the stray copy is counted when it is popped
    /// ([`double_frees`]). If one of the two stalls in that gap until the block is in use again,
    /// the new owner loses it, as with any use after free.
    ///
    /// [`double_frees`]: zonal_core::alloc::ZoneStats::double_frees
    #[inline]
    pub unsafe fn free_pages(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        if order == Order::ZERO {
            return match self.fast.push_page(start) {
                Ok(()) => Ok(()),
                Err(frame) => self.free_page_any(frame),
            };
        }
        self.free_any(start, order)
    }

    /// As [`free_pages`](Self::free_pages), if that needs no lock: `false`, and nothing done,
    /// otherwise. Safe in a signal handler.
    ///
    /// # Safety
    /// 1. The block's memory is no longer in use, if the call returns `true`.
    #[inline]
    pub unsafe fn try_free_cached(&self, start: NonNull<u8>, order: Order) -> bool {
        let frame = self.fast.frame(start.as_ptr() as usize);
        self.fast.push_block(start, order) || self.shared.push_typed(frame, order)
    }

    /// Fills `pages` from the front with raw order-0 pages. Returns how many it got; fewer only if
    /// there are no more.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page was available.
    pub fn alloc_bulk(&self, gfp: Gfp, pages: &mut [*mut u8]) -> Result<usize, AllocError> {
        let request = Request { order: Order::ZERO, gfp, node: None };
        let shared = &*self.shared;
        shared.inject(&request)?;
        let plain = shared.poison.is_none() && !gfp.contains(Gfp::ZERO);
        let base = self.fast.base;
        let mut got = 0;
        while got < pages.len() {
            let rest = &mut pages[got..];
            match shared.allocator.alloc_bulk_at(request, base, rest) {
                Ok(some) if plain => got += some,
                Ok(some) => got += shared.prepare_all(&mut rest[..some], gfp),
                Err(error) if got == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Frees raw blocks of one order.
    ///
    /// # Safety
    /// 1. The blocks' memory is no longer in use.
    ///
    /// # Errors
    /// How many were freed, and why the next was not. The rest is still the caller's.
    pub unsafe fn free_bulk(
        &self,
        pages: &[*mut u8],
        order: Order,
    ) -> Result<(), (usize, FreeError)> {
        let shared = &*self.shared;
        let base = self.fast.base;
        if shared.poison.is_some() {
            // One by one: what is behind a refused one is not to be written to.
            let pfn = |page: &*mut u8| Pfn::at(base, *page as usize);
            let free = |(done, page): (usize, &*mut u8)| {
                shared.poison_block(pfn(page), order);
                let freed = shared.allocator.free(pfn(page), order);
                freed.map_err(|error| (done, shared.refused(*page, error)))
            };
            return pages.iter().enumerate().try_for_each(free);
        }
        let freed = shared.allocator.free_bulk_at(base, pages, order);
        freed.map_err(|(done, error)| (done, shared.refused(pages[done], error)))
    }
}
