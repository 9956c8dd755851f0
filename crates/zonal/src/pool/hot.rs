//! The way in and out of the fast path. What the sequences (`rseq.rs`) do not do themselves is
//! here: from a frame to an address and back, the word of a page that was popped, and what follows
//! when a sequence leaves.
//!
//! ```text
//!  pop, then the word says CACHED here? ── yes ──► ALLOCATED, address
//!      │ left         │ no: a stray copy (PCP-3), counted: the core
//!      ▼
//!  pop from our list, whichever is active ── left: the core
//!
//!  push ── left ──► push to our list, whichever is active ── left: the core
//! ```
//! Pools without a hot page's way: `gated`.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use zonal_core::alloc::{self as core_alloc, Request};
use zonal_core::frame::{PageState, PageWord};
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::block::{address_of, zero_block, zero_raw, zeroed};
use super::gated::Gated;
use super::{Pool, Shared};
use crate::error::{AllocError, FreeError};
use crate::rseq::{self, FastRef, NO_FRAME, NO_OFFSET, Popped};

/// Flags that name a zone.
pub(super) const ZONES: u32 =
    Gfp::DMA.bits() | Gfp::DMA32.bits() | Gfp::HIGHMEM.bits() | Gfp::MOVABLE.bits();

impl FastRef {
    /// Whether the fast path can serve a request with these flags. Mostly known to the compiler:
    /// programs ask with constant flags.
    #[inline(always)]
    pub(super) fn is_plain(self, gfp: Gfp) -> bool {
        // Both mobility flags together are an error, which the core reports.
        gfp.bits() & Gfp::RECLAIMABLE.bits() == 0
            && (gfp.bits() & ZONES == 0 || !self.several_kinds)
            && self.area != 0
    }

    /// Address of a frame.
    #[inline(always)]
    pub(super) fn address(self, frame: usize) -> NonNull<u8> {
        let address = Pfn(frame as u64).address(self.base);
        // SAFETY: (1) the pool's memory does not begin at address 0.
        unsafe { NonNull::new_unchecked(address as *mut u8) }
    }

    /// The frame at an address; far out of range for one that is not page-aligned or below the
    /// pool.
    #[inline(always)]
    pub(super) fn frame(self, address: usize) -> usize {
        Pfn::at(self.base, address).0 as usize
    }

    /// The hot list's pop. On failure go through the core. Only for plain requests.
    #[inline(always)]
    pub(super) fn pop_page(self) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) requests are plain only where the fast path is on; (2) RSEQ-2,
        // RSEQ-3.
        let popped = unsafe { rseq::pop_page(self) };
        self.hand_out(popped)
    }

    /// A list's pop, as [`pop_page`](Self::pop_page).
    #[inline(always)]
    pub(super) fn pop_block(self, list: usize) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) the fast path has a list, so it is on; (2) RSEQ-2, RSEQ-3; (3)
        // the list is the pool's.
        let popped = unsafe { rseq::pop_block(self, list) };
        self.hand_out(popped)
    }

    /// Marks a popped block as handed out. On failure nothing was popped, or a copy that does not
    /// count; see [`Shared::count_stray`].
    #[inline(always)]
    fn hand_out(self, popped: Popped) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) frames on a list are below the number of words (PCP-3), and NO_FRAME is the
        // word in front of the table (POOL-3), which is no cached block's.
        let word = unsafe { &*self.word(popped.frame) };
        // Relaxed: between the pop and this store the word is ours alone.
        if word.load(Relaxed) != popped.cached {
            return Err(popped);
        }
        word.store(PageWord::from_bits(popped.cached).taken().bits(), Relaxed);
        Ok(self.address(popped.frame as usize))
    }

    /// The frame at an address, if it is one of the pool's and the fast path is on.
    #[inline(always)]
    fn known_frame(self, start: NonNull<u8>) -> Option<usize> {
        let frame = self.frame(start.as_ptr() as usize);
        // No frame is below the bound where the fast path is off.
        (frame < self.frames).then_some(frame)
    }

    /// The hot list's push. On failure nothing was done; what the address comes to is returned, so
    /// that the caller need not keep both.
    #[inline(always)]
    pub(super) fn push_page(self, start: NonNull<u8>) -> Result<(), usize> {
        let frame = self.frame(start.as_ptr() as usize);
        // No frame is below the bound where the fast path is off.
        //
        // SAFETY: (1) frames are below the bound only where the fast path is on; (2) RSEQ-2,
        // RSEQ-3; (3) the frame is the pool's.
        let pushed = frame < self.frames && unsafe { rseq::push_page(self, frame) };
        if pushed { Ok(()) } else { Err(frame) }
    }

    /// A block of any order by the fast path. `false`: nothing was done. Nothing of the pool is
    /// touched behind the commit (LIFE-2).
    pub(super) fn push_block(self, start: NonNull<u8>, order: Order) -> bool {
        let Some((frame, list)) = self.known_frame(start).zip(self.list(order)) else {
            return false;
        };
        let pushed = if order == Order::ZERO {
            // SAFETY: (1) frames are known only where the fast path is on; (2) RSEQ-2,
            // RSEQ-3; (3) the frame is the pool's.
            unsafe { rseq::push_page(self, frame) }
        } else {
            // SAFETY: (1) to (3) as above; (4) so is the list.
            unsafe { rseq::push_block(self, list, frame) }
        };
        pushed || self.push_any(frame, list)
    }

    /// Pops from a list that [`pop_block`](Self::pop_block) did not: another one was active.
    #[inline(always)]
    fn pop_any(self, list: usize) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) the fast path has a list, so it is on; (2) RSEQ-2, RSEQ-3; (3) the list is
        // the pool's.
        let popped = unsafe { rseq::pop_any(self, list) };
        self.hand_out(popped)
    }

    /// Pops from the list of an order that a pop left alone; a stray copy it got stays what it is.
    #[inline(always)]
    fn pop_other(self, popped: Popped, order: Order) -> Result<NonNull<u8>, Popped> {
        match self.list(order).filter(|_| popped.frame == NO_FRAME) {
            Some(list) => self.pop_any(list),
            None => Err(popped),
        }
    }

    /// Pushes a block that was not pushed: another list was active. `false`: nothing was done.
    #[inline]
    fn push_any(self, frame: usize, list: usize) -> bool {
        // SAFETY: (1) frames are known only where the fast path is on; (2) RSEQ-2, RSEQ-3; (3) the
        // frame is the pool's; (4) so is the list.
        unsafe { rseq::push_any(self, list, frame) }
    }

    /// Pushes a frame of the pool onto one of its lists, whichever is active. `false`: nothing was
    /// done.
    #[inline]
    pub(super) fn push_listed(self, list: usize, frame: usize) -> bool {
        // SAFETY: (1) the caller has a list, so sequences run; (2) RSEQ-2, RSEQ-3; (3) the frame is
        // the pool's; (4) so is the list.
        let pushed = unsafe { rseq::push_block(self, list, frame) };
        pushed || self.push_any(frame, list)
    }

    /// Pushes a page that [`push_page`](Self::push_page) did not, by what that returned. `false`:
    /// nothing was done.
    #[inline(never)]
    pub(super) fn push_page_again(self, frame: usize) -> bool {
        let list = self.list(Order::ZERO).filter(|_| frame < self.frames);
        list.is_some_and(|list| self.push_any(frame, list))
    }

    /// The list of an order, as the sequences take it; `None` also where the fast path is off.
    #[inline(always)]
    fn list(self, order: Order) -> Option<usize> {
        let list = self.lists[order.index()];
        (list != NO_OFFSET).then_some(list as usize)
    }
}

/// Raw pages for ordinary use by the fast path alone, for functions of another language: what
/// follows when it leaves is a call of its own at their end, so that they need no stack frame.
#[derive(Clone, Copy, Debug)]
pub struct HotPages<'p> {
    pool: &'p Pool,
}

/// What was in the way of [`HotPages::pop`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a copy of a block that was freed twice is counted by `HotPages::pop_missed`"]
pub struct Missed(Popped);

/// What [`HotPages::push`] did not free.
#[derive(Clone, Copy, Debug)]
#[must_use = "the page is still handed out"]
pub struct MissedFree(usize);

impl<'p> HotPages<'p> {
    /// Those of a pool.
    #[inline(always)]
    pub fn of(pool: &'p Pool) -> HotPages<'p> {
        HotPages { pool }
    }

    /// A page by one sequence.
    ///
    /// # Errors
    /// [`Missed`], for [`pop_missed`](Self::pop_missed).
    #[inline(always)]
    pub fn pop(self) -> Result<NonNull<u8>, Missed> {
        let fast = self.pool.fast;
        if fast.area == 0 {
            return Err(Missed(Popped { frame: NO_FRAME, cached: 0 }));
        }
        fast.pop_page().map_err(Missed)
    }

    /// A page, after [`pop`](Self::pop) gave none.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub fn pop_missed(self, missed: Missed) -> Result<NonNull<u8>, AllocError> {
        self.pool.alloc_again(missed.0, Order::ZERO, Gfp::KERNEL)
    }

    /// Frees a page by one sequence.
    ///
    /// # Safety
    /// 1. The page's memory is no longer in use.
    ///
    /// # Errors
    /// [`MissedFree`], with nothing done, where that sequence leaves, and for any other address,
    /// null too.
    #[inline(always)]
    pub unsafe fn push(self, start: *mut u8) -> Result<(), MissedFree> {
        let fast = self.pool.fast;
        let frame = fast.frame(start as usize);
        // SAFETY: (1) frames are below the bound only where the fast path is on; (2) glibc
        // registers every thread; (3) the frame is the pool's.
        let pushed = frame < fast.frames && unsafe { rseq::push_page(fast, frame) };
        if pushed { Ok(()) } else { Err(MissedFree(frame)) }
    }

    /// Frees what [`push`](Self::push) did not.
    ///
    /// # Safety
    /// 1. As for [`push`](Self::push), of this pool.
    ///
    /// # Errors
    /// As [`Pool::free_pages`].
    pub unsafe fn push_missed(self, missed: MissedFree) -> Result<(), FreeError> {
        let address = address_of(self.pool.fast.base, missed.0);
        match NonNull::new(address as *mut u8) {
            // SAFETY: (1) as for this call.
            Some(start) => unsafe { self.pool.free_pages(start, Order::ZERO) },
            None => {
                let foreign = core_alloc::FreeError::Foreign(Pfn(missed.0 as u64));
                Err(self.pool.shared.refused(std::ptr::null_mut(), foreign))
            }
        }
    }
}

impl Shared {
    /// A block of any order for ordinary use by the fast path. `None`: go through the core.
    pub(super) fn pop_block(&self, order: Order) -> Option<NonNull<u8>> {
        let Some(list) = self.fast.list(order) else {
            return self.pop_typed(order, Gfp::KERNEL);
        };
        let popped = match order {
            Order::ZERO => self.fast.pop_page(),
            _ => self.fast.pop_block(list),
        };
        popped.map_or_else(|missed| self.pop_again(self.fast, missed, list), Some)
    }

    /// The same for a request with these flags.
    pub(super) fn pop_plain(&self, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        match self.fast.is_plain(gfp) {
            true => self.pop_block(order),
            false => self.pop_typed(order, gfp),
        }
    }

    /// A block from a list that gave none because another one was active. `None`: go through the
    /// core.
    pub(super) fn pop_again(
        &self,
        fast: FastRef,
        missed: Popped,
        list: usize,
    ) -> Option<NonNull<u8>> {
        self.count_stray(missed);
        if missed.frame != NO_FRAME {
            return None;
        }
        fast.pop_any(list).map_err(|missed| self.count_stray(missed)).ok()
    }

    /// Counts a block that a racing double free had put on two stacks: the other copy is the one
    /// that is handed out (PCP-3).
    fn count_stray(&self, popped: Popped) {
        let PageState::Cached { pcp, .. } = PageWord::from_bits(popped.cached).state() else {
            return;
        };
        if popped.frame != NO_FRAME {
            self.allocator.count_stray(pcp.cpu);
        }
    }
}

/// What is not the hot page's way. Each of these is one sequence and nothing that would need a
/// stack frame around it; what is rarer is behind a call of its own.
impl Pool {
    /// Every request that the hot list does not serve.
    #[inline]
    pub(super) fn alloc_any(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        if self.fast.is_plain(gfp)
            && let Some(list) = self.fast.list(order)
        {
            return match self.fast.pop_block(list) {
                Ok(start) => Ok(zeroed(start, order, gfp)),
                Err(popped) => self.alloc_again(popped, order, gfp),
            };
        }
        Gated(&self.shared).alloc(order, gfp)
    }

    #[inline]
    pub(super) fn alloc_raw_any(&self, order: Order, gfp: Gfp) -> *mut u8 {
        if self.fast.is_plain(gfp)
            && let Some(list) = self.fast.list(order)
        {
            return match self.fast.pop_block(list) {
                Ok(start) => zeroed(start, order, gfp).as_ptr(),
                Err(popped) => self.alloc_raw_again(popped, order, gfp),
            };
        }
        Gated(&self.shared).alloc_raw(order, gfp)
    }

    /// A pop left, or what it got was a stray copy: as often as another list was active, so this is
    /// one sequence, and all else is behind a call at its end.
    #[inline(never)]
    pub(super) fn alloc_again(
        &self,
        popped: Popped,
        order: Order,
        gfp: Gfp,
    ) -> Result<NonNull<u8>, AllocError> {
        match self.fast.pop_other(popped, order) {
            Ok(start) if gfp.contains(Gfp::ZERO) => zero_block(start, order),
            Ok(start) => Ok(start),
            Err(popped) => self.alloc_missed(popped, order, gfp),
        }
    }

    /// As [`alloc_again`](Self::alloc_again).
    #[inline(never)]
    pub(super) fn alloc_raw_again(&self, popped: Popped, order: Order, gfp: Gfp) -> *mut u8 {
        match self.fast.pop_other(popped, order) {
            Ok(start) if gfp.contains(Gfp::ZERO) => zero_raw(start, order),
            Ok(start) => start.as_ptr(),
            Err(popped) => self.alloc_raw_missed(popped, order, gfp),
        }
    }

    /// No list gave a block, or what it gave was a stray copy.
    #[cold]
    #[inline(never)]
    fn alloc_missed(
        &self,
        popped: Popped,
        order: Order,
        gfp: Gfp,
    ) -> Result<NonNull<u8>, AllocError> {
        self.shared.count_stray(popped);
        self.shared.alloc_by_core(Request { order, gfp, node: None })
    }

    #[cold]
    #[inline(never)]
    fn alloc_raw_missed(&self, popped: Popped, order: Order, gfp: Gfp) -> *mut u8 {
        self.alloc_missed(popped, order, gfp).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Frees of every other order than 0.
    #[inline]
    pub(super) fn free_any(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        let Some((frame, list)) = self.fast.known_frame(start).zip(self.fast.list(order)) else {
            return Gated(&self.shared)
                .free(Pfn::at(self.fast.base, start.as_ptr() as usize), order);
        };
        // SAFETY: (1) frames are known only where the fast path is on; (2) RSEQ-2,
        // RSEQ-3; (3) the frame is the pool's; (4) so is the list.
        if unsafe { rseq::push_block(self.fast, list, frame) } {
            return Ok(());
        }
        self.free_again(frame, list)
    }

    /// The hot list's push left.
    #[inline(never)]
    pub(super) fn free_page_any(&self, frame: usize) -> Result<(), FreeError> {
        match self.fast.list(Order::ZERO).filter(|_| frame < self.fast.frames) {
            Some(list) => self.free_again(frame, list),
            None => Gated(&self.shared).free(Pfn(frame as u64), Order::ZERO),
        }
    }

    /// A push left. The order is known by its list.
    #[inline(never)]
    fn free_again(&self, frame: usize, list: usize) -> Result<(), FreeError> {
        if self.fast.push_any(frame, list) {
            return Ok(());
        }
        let (order, _) = self.shared.allocator.tables().lists().of(rseq::list_at(list));
        self.shared.free_by_core(self.fast.address(frame), order)
    }
}

#[cfg(test)]
mod tests {
    use zonal_core::frame::{CPU_SHIFT, TAG_CACHED};
    use zonal_core::pcp::owner::Pageblocks;
    use zonal_core::policy::Policy;
    use zonal_core::types::{CpuId, ZoneId};

    use super::*;
    use crate::sys::affinity::Pinned;
    use crate::{CpuMap, Mode};

    /// A free of order 1 to 3 leaves its mark in the hot word. Pages freed behind it stay on the
    /// fast path: the core would find the gate taken and give them to the buddy.
    #[test]
    fn a_page_freed_behind_a_larger_block_does_not_go_through_the_core() {
        let pool = Pool::builder().size(64 << 20).build().unwrap();
        if !matches!(pool.mode(), Mode::Rseq) {
            println!("SKIPPED: sequences cannot be used here");
            return;
        }
        let cpu = crate::sys::affinity::allowed_cpus().unwrap()[0];
        let _pinned = Pinned::to(cpu).unwrap();
        for order in [1, 2, 3].map(|order| Order::new(order).unwrap()) {
            let take = |order| pool.alloc_pages(order, Gfp::KERNEL).unwrap();
            // SAFETY: (1) nobody uses the memory.
            let give = |start, order| unsafe { pool.free_pages(start, order).unwrap() };
            // Both lists have blocks.
            for order in [Order::ZERO, order] {
                give(take(order), order);
            }
            let (page, block) = (take(Order::ZERO), take(order));
            give(block, order);
            // The list of pages is active now, and the mark of the larger free is still there.
            let other = take(Order::ZERO);
            let allocator = &pool.shared.allocator;
            let held = allocator.tables().look(ZoneId(0), CpuId(cpu.0));
            assert!(held.is_some());
            let buddy = || pool.zone_stats().next().unwrap().free_pages;
            let before = buddy();
            give(page, Order::ZERO);
            give(other, Order::ZERO);
            assert_eq!(buddy(), before, "{order:?}");
            drop(held);
        }
        pool.validate().unwrap();
    }

    /// FAST-7: what sequences make of a CPU's number.
    #[test]
    fn words_of_list_0_have_the_tag_and_the_number_of_their_cpu_alone() {
        // Where CPUs own pageblocks there are no lists.
        let lists = |policy: &&Policy| policy.pcp.pageblocks == Pageblocks::Shared;
        let policies = || Policy::PRESETS.iter().filter(lists);
        let two = policies().map(|policy| (2, policy));
        for (nodes, policy) in policies().map(|policy| (1, policy)).chain(two) {
            let builder = Pool::builder().size(64 << 20).fake_nodes(nodes, CpuMap::RoundRobin);
            let pool = builder.policy(*policy).build().unwrap();
            let allocator = pool.allocator();
            for cpu in (0..allocator.cpus()).map(|cpu| CpuId(cpu as u32)) {
                let node = &allocator.nodes()[usize::from(allocator.node_of(cpu).0)];
                let list = allocator.pcp(node.preferred(), cpu).list(0).unwrap();
                let made = u64::from(cpu.0) << CPU_SHIFT | TAG_CACHED;
                assert_eq!(list.cached_word().bits(), made, "{}, {nodes} nodes", policy.name);
            }
        }
    }
}
