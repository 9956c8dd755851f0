//! The way of pools whose hot page has no sequence of its own: where no sequence runs, the core's
//! own fast path, by the gate of the running CPU's pcp, and nothing around it; where lists are
//! looked up, the sequences behind that (`typed`).
//!
//! ```text
//!  thread's area, or else rdpid, says which CPU; pcp of that CPU ready? ── yes ──► block
//!      │ no                                │ sequences where lists are looked up; getcpu
//!      └───────────────────────────────────┴──► the core
//! ```
//! The functions of the first line end with a call at most, so that they need no stack frame.

use std::ptr::NonNull;

use zonal_core::alloc::Request;
use zonal_core::alloc::hot::{self, Own};
use zonal_core::gfp::Gfp;
use zonal_core::types::{CpuId, Order, Pfn};

use super::block::{address_of, zeroed};
use super::{PoolAllocator, Shared};
use crate::error::{AllocError, FreeError};
use crate::sys::rseq_abi::getcpu;

/// What each CPU serves itself from, where no sequence runs and blocks come from the core as they
/// are: none fails on purpose, or is looked at for poison.
#[derive(Debug, Default)]
pub(super) struct Owns(Box<[Own<'static>]>);

impl Owns {
    /// Those of the CPUs of an allocator; none where sequences serve them.
    ///
    /// # Safety
    /// 1. They are used with this allocator only.
    pub(super) unsafe fn of(allocator: &PoolAllocator) -> Owns {
        let cpus = (0..allocator.cpus()).map(|cpu| CpuId(cpu as u32));
        // SAFETY: (1) as for this function.
        let owns = cpus.map(|cpu| unsafe { Own::new(allocator, cpu) });
        Owns(owns.collect::<Option<_>>().unwrap_or_default())
    }

    fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    #[inline(always)]
    fn get(&self, cpu: u32) -> Option<Own<'static>> {
        self.0.get(cpu as usize).copied()
    }
}

/// A pool by this way.
#[derive(Clone, Copy)]
pub(super) struct Gated<'s>(pub(super) &'s Shared);

impl Gated<'_> {
    /// A block for ordinary use.
    #[inline(never)]
    pub(super) fn alloc(self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        let Some(own) = self.told_own() else { return self.alloc_elsewhere(order, gfp) };
        match self.pop(own, order, gfp) {
            Some(start) => Ok(start),
            None => self.alloc_missed(order, gfp),
        }
    }

    /// The same; null where that refuses.
    #[inline(never)]
    pub(super) fn alloc_raw(self, order: Order, gfp: Gfp) -> *mut u8 {
        let Some(own) = self.told_own() else { return self.alloc_raw_elsewhere(order, gfp) };
        match self.pop(own, order, gfp) {
            Some(start) => start.as_ptr(),
            None => self.alloc_raw_missed(order, gfp),
        }
    }

    /// Takes a block back.
    #[inline(never)]
    pub(super) fn free(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(own) = self.told_own() else { return self.free_elsewhere(pfn, order) };
        match own.free(&self.0.allocator, pfn, order) {
            Ok(()) => Ok(()),
            Err((pfn, order)) => self.free_missed(pfn, order),
        }
    }

    /// What the running CPU serves itself from, where the thread's area or an instruction says
    /// which CPU that is.
    #[inline(always)]
    fn told_own(self) -> Option<Own<'static>> {
        self.0.owns.get(self.0.allocator.platform().told_cpu()?)
    }

    /// The same where neither does.
    #[inline]
    fn asked_own(self) -> Option<Own<'static>> {
        if self.0.owns.are_none() || self.0.allocator.platform().tells_cpu() {
            return None;
        }
        self.0.owns.get(getcpu().0)
    }

    /// A block of a pcp that is ready. `None`: go through the core.
    #[inline(always)]
    fn pop(self, own: Own<'static>, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        let pfn = own.alloc(&self.0.allocator, order, gfp)?;
        Some(zeroed(self.0.address(pfn), order, gfp))
    }

    /// A block where the kernel is asked for the CPU, or by a list that is looked up. `None`: go
    /// through the core.
    #[inline(always)]
    fn pop_elsewhere(self, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        match self.asked_own() {
            Some(own) => self.pop(own, order, gfp),
            None => self.0.pop_typed(order, gfp),
        }
    }

    #[inline(never)]
    fn alloc_elsewhere(self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        match self.pop_elsewhere(order, gfp) {
            Some(start) => Ok(start),
            None => self.alloc_missed(order, gfp),
        }
    }

    #[inline(never)]
    fn alloc_raw_elsewhere(self, order: Order, gfp: Gfp) -> *mut u8 {
        match self.pop_elsewhere(order, gfp) {
            Some(start) => start.as_ptr(),
            None => self.alloc_raw_missed(order, gfp),
        }
    }

    #[inline(never)]
    fn free_elsewhere(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let freed = match self.asked_own() {
            Some(own) => own.free(&self.0.allocator, pfn, order).is_ok(),
            None => self.0.push_typed(pfn.0 as usize, order),
        };
        if freed { Ok(()) } else { self.free_missed(pfn, order) }
    }

    #[cold]
    #[inline(never)]
    fn alloc_missed(self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        let request = Request { order, gfp, node: None };
        if self.0.owns.are_none() {
            self.0.inject(&request)?;
            return self.0.alloc_from_core(request);
        }
        let pfn = hot::alloc_missed(&self.0.allocator, request)?;
        Ok(zeroed(self.0.address(pfn), order, gfp))
    }

    #[cold]
    #[inline(never)]
    fn alloc_raw_missed(self, order: Order, gfp: Gfp) -> *mut u8 {
        self.alloc_missed(order, gfp).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[cold]
    #[inline(never)]
    fn free_missed(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let start = self.start_of(pfn);
        let freed = match NonNull::new(start) {
            Some(start) if self.0.owns.are_none() => return self.0.free_to_core(start, order),
            _ => hot::free_missed(&self.0.allocator, pfn, order),
        };
        freed.map_err(|error| self.0.refused(start, error))
    }

    /// The address of which [`Pfn::at`] made this, wherever it lies.
    fn start_of(self, pfn: Pfn) -> *mut u8 {
        address_of(self.0.fast.base, pfn.0 as usize) as *mut u8
    }
}
