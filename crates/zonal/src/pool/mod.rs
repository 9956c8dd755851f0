//! A pool: real memory under the zoned allocator, shared by all threads of a process.
//!
//! ```text
//!  Pool::alloc_pages ── poison? ── fast path (rseq.rs): pop from this CPU's store ──► page
//!                                      │ empty, pressure, another list active
//!                                      ▼
//!                          zonal_core::alloc::Allocator (scan, refill, slow path, refusal)
//! ```
//! | file | does |
//! |--|--|
//! | `builder` | sizes, nodes, backing, policy; makes the pool |
//! | `records` | the metadata mapping |
//! | `pages` | owned pages that free themselves |
//! | `worker` | the refresh thread: decay, remote pages, background trim |
//! | `trim` | free 2 MiB blocks back to the operating system |
//! | `poison` | finds writes to freed pages |
//! | `grow` | memory that comes online while the pool is used |
//! | `fork` | keeps a pool usable in a forked child |
//!
//! # Invariants
//! - **POOL-1** the page at `base + (frame << 12)` has frame number `frame`; its pfn is the same
//!   number, because zones lie one behind the other from pfn 0.
//! - **POOL-2** mappings and records live as long as the pool; threads of the pool end before them.
//! - **POOL-3** the word in front of the table of frame words is mapped and zero.

mod builder;
mod fork;
mod grow;
mod pages;
mod poison;
mod records;
mod trim;
mod worker;

pub use builder::{Backing, BuildError, Builder, CpuMap, NodeBinding, Notice, ZoneSize};
pub use pages::Pages;
pub use trim::TrimError;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use zonal_core::alloc::{Allocator, NumaEvents, Request, ZoneStats};
use zonal_core::frame::{PageState, PageWord};
use zonal_core::gfp::Gfp;
use zonal_core::pcp::store::Pcp;
use zonal_core::policy::Policy;
use zonal_core::types::{Migratetype, NodeId, Order, PAGE_SHIFT, PAGE_SIZE, Pfn};

use crate::error::{AllocError, FreeError};
use crate::home::{Home, Mode};
use crate::rseq::{self, Fast, NO_FRAME, Popped};
use crate::sys::map::Mapping;
use poison::Poison;
use records::Records;
use worker::Worker;

/// A pool of pages. Threads share it by reference; see [`Pool::builder`].
#[derive(Debug)]
pub struct Pool {
    /// Stopped by `drop`, before anything it uses goes (POOL-2).
    worker: Mutex<Option<Worker>>,
    shared: Box<Shared>,
}

/// What the worker thread sees too.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shared {
    fast: Fast,
    /// Whether the fast path may be used at all: mode rseq, no poison, no mobility grouping (with
    /// it, the list of a page depends on the pageblock it lies in).
    use_fast: bool,
    /// Pages of the pool.
    pages: usize,
    poison: Option<Poison>,
    allocator: Allocator<'static, Home>,
    trimmed_bytes: AtomicU64,
    /// One trim at a time, and none across a fork.
    trimming: Mutex<()>,
    /// This process is a forked child whose stray blocks were not yet booked.
    strays: AtomicBool,
    growth: grow::Growth,
    notices: Vec<Notice>,
    mode: Mode,
    // Below: what the fields above point into (POOL-2).
    _no_store: Box<Pcp>,
    memory: Mapping,
    records: Records,
    _plan: builder::Plan,
}

/// How a push by the fast path ended.
enum Push {
    /// The block is on its list.
    Done,
    /// Nothing was changed.
    Refused,
    /// The block's word says that it is on a list, but it is not.
    Marked,
}

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
        let start = self.shared.alloc_long(request)?;
        Ok(Pages::new(self, start, request.order))
    }

    /// A raw block of `order`, aligned to its size, with the rights in `gfp`. Its bytes are what
    /// the last owner left, or zero, unless `gfp` asks for zeroes.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_pages(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        let shared = &*self.shared;
        if order == Order::ZERO && shared.is_plain(gfp) {
            match shared.pop_page() {
                Ok(start) => return Ok(shared.zeroed(start, order, gfp)),
                Err(popped) => return shared.alloc_missed(popped, gfp),
            }
        }
        shared.alloc_any(order, gfp)
    }

    /// As [`alloc_pages`](Self::alloc_pages); null where that refuses.
    #[inline]
    pub fn alloc_raw(&self, order: Order, gfp: Gfp) -> *mut u8 {
        let shared = &*self.shared;
        if order == Order::ZERO && shared.is_plain(gfp) {
            match shared.pop_page() {
                Ok(start) => return shared.zeroed(start, order, gfp).as_ptr(),
                Err(popped) => return shared.alloc_raw_missed(popped, gfp),
            }
        }
        shared.alloc_raw_any(order, gfp)
    }

    /// A raw page from this CPU's store, or `None` if that would take a lock. For signal handlers.
    #[inline]
    pub fn try_alloc_cached(&self, order: Order) -> Option<NonNull<u8>> {
        self.shared.pop_block(order)
    }

    /// Frees a raw block.
    ///
    /// # Safety
    /// 1. Nobody uses the block's memory any more.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed, if no block of this order starts there or it is free
    /// already.
    ///
    /// One misuse is found late or not at all, because finding it at once would take an atomic
    /// exchange on every free: two threads that free one block within the few nanoseconds between a
    /// free's check and its mark. Both may be told `Ok`; the block is then handed out once, and the
    /// stray copy counted when it comes up ([`ZoneStats::double_frees`]). If one of the two stalls
    /// in that gap until the block is in use again, the new owner loses it, as with any use after
    /// free.
    #[inline]
    pub unsafe fn free_pages(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        let shared = &*self.shared;
        if order == Order::ZERO {
            return match shared.push_page(start) {
                Push::Done => Ok(()),
                Push::Refused => shared.free_any(start, order),
                Push::Marked => shared.free_marked(start, order),
            };
        }
        shared.free_any(start, order)
    }

    /// As [`free_pages`](Self::free_pages), if that needs no lock: `false`, and nothing done,
    /// otherwise. Safe in a signal handler.
    ///
    /// # Safety
    /// 1. Nobody uses the block's memory any more, if the call returns `true`.
    #[inline]
    pub unsafe fn try_free_cached(&self, start: NonNull<u8>, order: Order) -> bool {
        match self.shared.push_block(start, order) {
            Push::Done => true,
            Push::Refused => false,
            Push::Marked => {
                self.shared.unmark(start);
                false
            }
        }
    }

    /// Fills `pages` from the front with raw order-0 pages. Returns how many it got; fewer only if
    /// there are no more.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), if not even one page could be had.
    pub fn alloc_bulk(&self, gfp: Gfp, pages: &mut [*mut u8]) -> Result<usize, AllocError> {
        let request = Request { order: Order::ZERO, gfp, node: None };
        let shared = &*self.shared;
        let plain = shared.poison.is_none() && !gfp.contains(Gfp::ZERO);
        let mut got = 0;
        while got < pages.len() {
            let want = pages.len() - got;
            let told = shared.allocator.alloc_bulk_with(request, want, |pfn| {
                if plain || shared.prepare(pfn, Order::ZERO, gfp) {
                    pages[got] = shared.address(pfn).as_ptr();
                    got += 1;
                }
            });
            match told {
                Ok(_) => {}
                Err(error) if got == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Frees raw blocks of one order.
    ///
    /// # Safety
    /// 1. Nobody uses the blocks' memory any more.
    ///
    /// # Errors
    /// How many were freed, and why the next was not. The rest is still the caller's.
    pub unsafe fn free_bulk(
        &self,
        pages: &[*mut u8],
        order: Order,
    ) -> Result<(), (usize, FreeError)> {
        let shared = &*self.shared;
        let pfn = |index: usize| shared.pfn(pages[index] as usize);
        (0..pages.len()).filter(|_| shared.poison.is_some()).for_each(|index| {
            shared.poison_block(pfn(index), order);
        });
        let freed = shared.allocator.free_bulk_with(pages.len(), order, pfn);
        freed.map_err(|(done, error)| (done, error.into()))
    }

    /// How the per-CPU stores are kept consistent.
    pub fn mode(&self) -> &Mode {
        &self.shared.mode
    }
    /// What the operating system did not grant when the pool was made, and what was done instead.
    pub fn notices(&self) -> &[Notice] {
        &self.shared.notices
    }
    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        self.shared.allocator.policy()
    }
    /// Bytes of memory the pool manages.
    pub fn bytes(&self) -> usize {
        self.shared.pages * PAGE_SIZE
    }
    /// Bytes of metadata, as reserved; untouched parts are not resident.
    pub fn metadata_bytes(&self) -> usize {
        self.shared.records.bytes()
    }
    /// Address of the first page.
    pub fn base(&self) -> *const u8 {
        self.shared.fast.base as *const u8
    }
    /// Nodes of the pool.
    pub fn nodes(&self) -> usize {
        self.shared.allocator.nodes().len()
    }
    /// The allocator itself, for counters and settings.
    pub fn core(&self) -> &Allocator<'static, Home> {
        &self.shared.allocator
    }
    /// One counter set per zone.
    pub fn zone_stats(&self) -> impl Iterator<Item = ZoneStats> + '_ {
        let allocator = &self.shared.allocator;
        allocator.zones().iter().map(|zone| allocator.zone_stats(zone.id()))
    }
    /// NUMA events of a node.
    pub fn numa_events(&self, node: NodeId) -> NumaEvents {
        self.shared.allocator.numa_events(node)
    }
    /// Pages not handed out: free ones and those on per-CPU stores.
    pub fn free_page_count(&self) -> u64 {
        self.shared.allocator.free_pages()
    }
    /// Empties all per-CPU stores. Returns the pages moved.
    pub fn drain_all(&self) -> u64 {
        self.shared.allocator.drain_all()
    }
    /// The node a page belongs to, if it is one of this pool's.
    pub fn node_of(&self, page: *const u8) -> Option<NodeId> {
        let pfn = self.shared.pfn(page as usize);
        let zone = self.shared.allocator.zones().iter().find(|zone| zone.contains(pfn))?;
        Some(zone.node())
    }
    /// Writes to freed pages found so far (only with [`Builder::poison`]).
    pub fn poison_hits(&self) -> u64 {
        self.shared.poison.as_ref().map_or(0, Poison::hits)
    }

    /// Walks everything. Call it while nothing else uses the pool; the refresh thread waits.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), zonal_core::alloc::Fault> {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let _quiet = worker.as_ref().and_then(Worker::pause);
        if self.shared.strays.swap(false, Relaxed) {
            self.shared.allocator.adopt_strays();
        }
        self.shared.allocator.validate()
    }
}

impl Shared {
    #[inline]
    fn address(&self, pfn: Pfn) -> NonNull<u8> {
        let address = self.fast.base + ((pfn.0 as usize) << PAGE_SHIFT);
        NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling())
    }

    /// The page frame number of an address; far out of range for one that is not page-aligned or
    /// below the pool.
    #[inline]
    fn pfn(&self, address: usize) -> Pfn {
        // Rotating puts offset bits on top, where no pfn has any.
        Pfn(address.wrapping_sub(self.fast.base).rotate_right(PAGE_SHIFT) as u64)
    }

    /// Whether the fast path can serve a request with these flags. With the fast path off every
    /// flag is slow, and so is a request without any.
    #[inline(always)]
    fn is_plain(&self, gfp: Gfp) -> bool {
        gfp.bits() & self.fast.slow_gfp == 0 && gfp != Gfp::NONE
    }

    /// Zeroes a block that was just handed out, if that was asked for.
    #[inline(always)]
    fn zeroed(&self, start: NonNull<u8>, order: Order, gfp: Gfp) -> NonNull<u8> {
        if gfp.contains(Gfp::ZERO) {
            // SAFETY: (1) the block was just handed out to the caller, so its bytes are ours.
            unsafe { start.as_ptr().write_bytes(0, order.bytes()) };
        }
        start
    }

    /// The hot list's pop. On failure take the long way. Only for plain requests.
    #[inline(always)]
    fn pop_page(&self) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) requests are plain only where the fast path is on, so the mode is rseq; (2)
        // glibc registers every thread.
        let popped = unsafe { rseq::pop_page(&self.fast) };
        self.hand_out(popped, 0)
    }

    /// A block of any order by the fast path. `None`: take the long way.
    #[inline]
    fn pop_block(&self, order: Order) -> Option<NonNull<u8>> {
        if !self.use_fast {
            return None;
        }
        let list = self.allocator.lists().get(order, Migratetype::Unmovable)?;
        // SAFETY: (1) the fast path is on, so the mode is rseq; (2) glibc registers every thread;
        // (3) the list comes from the pool's map.
        let popped = unsafe { rseq::pop_block(&self.fast, rseq::list_offset(list)) };
        self.hand_out(popped, list).map_err(|popped| self.count_stray(popped)).ok()
    }

    /// Marks a popped block as handed out. On failure nothing was popped, or a copy that does not
    /// count; see [`count_stray`](Self::count_stray).
    #[inline(always)]
    fn hand_out(&self, popped: Popped, list: usize) -> Result<NonNull<u8>, Popped> {
        // SAFETY: (1) a pop returns the store it looked at.
        let store = unsafe { &*popped.pcp };
        // SAFETY: (1) the list is the pool's, so every store has it.
        let record = unsafe { store.lists.get_unchecked(list) };
        let word = self.fast.words.wrapping_offset(popped.frame);
        // SAFETY: (1) frames on a list are below the number of words (PCP-3), and NO_FRAME is the
        // word in front of the table (POOL-3).
        let word = unsafe { &*word };
        // Relaxed: between the pop and this store the word is ours alone.
        if word.load(Relaxed) != record.cached {
            return Err(popped);
        }
        word.store(record.allocated, Relaxed);
        let address = self.fast.base.wrapping_add((popped.frame as usize) << PAGE_SHIFT);
        // SAFETY: (1) the pool's memory does not begin at address 0.
        Ok(unsafe { NonNull::new_unchecked(address as *mut u8) })
    }

    /// Counts a block that a racing double free had put on two stacks: the other copy is the one
    /// that is handed out (PCP-3).
    fn count_stray(&self, popped: Popped) {
        if popped.frame != NO_FRAME {
            // SAFETY: (1) a successful pop returns the store it popped from.
            unsafe { &(*popped.pcp).events }.double_frees.fetch_add(1, Relaxed);
        }
    }

    /// The hot list's push.
    #[inline(always)]
    fn push_page(&self, start: NonNull<u8>) -> Push {
        self.push_to(start, 0, |cpu, pcp, frame| {
            // SAFETY: (1) `push_to` finds frames only where the fast path is on, so the mode is
            // rseq; (2) glibc registers every thread; (3) `push_to` found the store and marked the
            // word.
            unsafe { rseq::push_page(&self.fast, cpu, pcp, frame) }
        })
    }

    /// A block of any order by the fast path.
    #[inline]
    fn push_block(&self, start: NonNull<u8>, order: Order) -> Push {
        let Some(list) = self.allocator.lists().get(order, Migratetype::Unmovable) else {
            return Push::Refused;
        };
        self.push_to(start, list, |cpu, pcp, frame| {
            // SAFETY: (1) to (3) as in `push_page`; the list comes from the pool's map.
            unsafe { rseq::push_block(&self.fast, (cpu, pcp), rseq::list_offset(list), frame) }
        })
    }

    /// Finds the running CPU's store, checks that the block is handed out and would go on `list` of
    /// it, marks it so, and pushes.
    #[inline(always)]
    fn push_to(
        &self,
        start: NonNull<u8>,
        list: usize,
        push: impl FnOnce(u32, *const Pcp, u32) -> bool,
    ) -> Push {
        let fast = &self.fast;
        let frame = self.pfn(start.as_ptr() as usize).0 as usize;
        // No frame is below the bound where the fast path is off.
        if frame >= fast.frames {
            return Push::Refused;
        }
        let (cpu, pcp) = rseq::store(fast);
        // SAFETY: (1) the table has nothing but stores.
        let store = unsafe { &*pcp };
        // SAFETY: (1) the list is the pool's, so every store has it.
        let record = unsafe { store.lists.get_unchecked(list) };
        let word = fast.words.wrapping_add(frame);
        // SAFETY: (1) checked above: the frame is one of the pool's.
        let word = unsafe { &*word };
        // Another zone's page, another order, a double free: the long way tells them apart.
        // Relaxed: the word is the owner's, and the caller says it is the owner.
        if word.load(Relaxed) != record.allocated {
            return Push::Refused;
        }
        word.store(record.cached, Relaxed);
        if push(cpu, pcp, frame as u32) { Push::Done } else { Push::Marked }
    }

    /// The long way after a pop that got nothing.
    #[cold]
    #[inline(never)]
    fn alloc_missed(&self, popped: Popped, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        self.count_stray(popped);
        self.alloc_long(Request { order: Order::ZERO, gfp, node: None })
    }

    #[cold]
    #[inline(never)]
    fn alloc_raw_missed(&self, popped: Popped, gfp: Gfp) -> *mut u8 {
        self.alloc_missed(popped, gfp).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Every request that is not for a page of the hot list.
    #[cold] // not rare, but the hot page's way must not jump around it
    #[inline(never)]
    fn alloc_any(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        self.alloc_block(order, gfp)
    }

    #[cold] // as above
    #[inline(never)]
    fn alloc_raw_any(&self, order: Order, gfp: Gfp) -> *mut u8 {
        self.alloc_block(order, gfp).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    fn alloc_block(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        if self.is_plain(gfp)
            && let Some(start) = self.pop_block(order)
        {
            return Ok(self.zeroed(start, order, gfp));
        }
        self.alloc_long(Request { order, gfp, node: None })
    }

    /// Every free that is not of a page of the hot list.
    #[cold] // not rare, but the hot page's way must not jump around it
    #[inline(never)]
    fn free_any(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        if order != Order::ZERO {
            match self.push_block(start, order) {
                Push::Done => return Ok(()),
                Push::Marked => return self.free_marked(start, order),
                Push::Refused => {}
            }
        }
        self.free_long(start, order)
    }

    /// The long way for a block that was marked as cached and then could not be pushed.
    #[cold]
    #[inline(never)]
    fn free_marked(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        self.unmark(start);
        self.free_long(start, order)
    }

    /// Undoes the mark of a push that did not happen. Nobody else changes the word in between: it
    /// is on no list, and its owner is here.
    fn unmark(&self, start: NonNull<u8>) {
        let frame = self.pfn(start.as_ptr() as usize).0 as usize;
        let word = &self.allocator.words()[frame];
        if let PageState::Cached { order, mt, zone, .. } = PageWord(word.load(Relaxed)).state() {
            word.store(PageWord::allocated(order, mt, zone).0, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_long(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        loop {
            let pfn = self.allocator.alloc(request)?;
            if self.prepare(pfn, request.order, request.gfp) {
                return Ok(self.address(pfn));
            }
            // Somebody wrote to the block after it was freed. It stays out of use: whoever wrote
            // may write again.
        }
    }

    #[cold]
    #[inline(never)]
    fn free_long(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        let pfn = self.pfn(start.as_ptr() as usize);
        self.poison_block(pfn, order);
        Ok(self.allocator.free(pfn, order)?)
    }

    /// Makes the bytes of a block what the request asked for. `false`: the block was written to
    /// while it was free.
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) -> bool {
        if let Some(poison) = &self.poison
            && !poison.check(self.address(pfn), pfn, order)
        {
            return false;
        }
        if gfp.contains(Gfp::ZERO) {
            // SAFETY: (1) the block was just handed out to this call, so its bytes are ours.
            unsafe { self.address(pfn).as_ptr().write_bytes(0, order.bytes()) };
        }
        true
    }

    /// Fills all memory, so that the first owner of each block finds the pattern too.
    fn poison_all(&self) {
        let Some(poison) = &self.poison else { return };
        for pfn in (0..self.pages as u64).map(Pfn) {
            poison.fill(self.address(pfn), Order::ZERO);
        }
    }

    fn poison_block(&self, pfn: Pfn, order: Order) {
        let Some(poison) = &self.poison else { return };
        // Only what is really handed out may be written to: a double free must change nothing.
        if self.allocator.is_allocated(pfn, order) {
            poison.fill(self.address(pfn), order);
        }
    }
}
