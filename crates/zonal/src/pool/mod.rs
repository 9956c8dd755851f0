//! A pool: real memory under the zoned allocator, shared by all threads of a process.
//!
//! ```text
//!  Pool::alloc_pages ── poison? ── fast path (rseq.rs): pop from this CPU's pcp ──► page
//!                                      │ empty, pressure, another list active
//!                                      ▼
//!                          zonal_core::alloc::Allocator (scan, refill, slow path, refusal)
//! ```
//! | file | does |
//! |--|--|
//! | `builder` | sizes, nodes, backing, policy; makes the pool |
//! | `consumers` | consumers that give pages back, and the last resort |
//! | `check` | options that cannot be |
//! | `plan` | zones, CPUs and nodes, before any memory is taken |
//! | `debug` | what `{:?}` says of a pool |
//! | `hot` | the way in and out of the fast path, and what follows when it leaves |
//! | `records` | the metadata mapping |
//! | `range` | pages in a row, of any number |
//! | `pages` | pages that free themselves, borrowed from the pool |
//! | `bytes` | the bytes of owned pages, for each kind of owner |
//! | `owned`, `owned_range` | the same without the borrow |
//! | `life` | handles, and blocks that outlive the last of them |
//! | `thread` | threads of the pool, and what they own |
//! | `worker` | the refresh thread |
//! | `upkeep` | what it does: decay, remote pages, background trim |
//! | `background` | a thread per node that reclaims |
//! | `budget` | no more in use than so many bytes |
//! | `misuse` | frees that are refused where no caller can be told |
//! | `mode` | sequences or locks, and what the system did not grant |
//! | `memory` | memory mapped here, or brought by the program; bound to nodes |
//! | `touch` | memory faulted in by one thread, or many |
//! | `held` | where the pool's bytes are |
//! | `resident` | keeps trim away from what others point to |
//! | `trim` | free 2 MiB blocks back to the operating system |
//! | `poison` | finds writes to freed pages |
//! | `grow` | memory that comes online while the pool is used |
//! | `explain` | why a request gets what it gets |
//! | `faults` | requests that fail on purpose |
//! | `fork` | keeps a pool usable in a forked child |
//!
//! # Invariants
//! - **POOL-1** the page at `base + (frame << 12)` has frame number `frame`; its pfn is the same
//!   number, because zones are adjacent from pfn 0 on.
//! - **POOL-2** mappings and records live as long as the pool and each of its threads (THREAD-1).
//! - **POOL-3** the word in front of the table of frame words is mapped and zero.

mod background;
mod budget;
mod builder;
mod bytes;
mod check;
mod consumers;
mod debug;
mod explain;
mod faults;
mod fork;
mod grow;
mod held;
mod hot;
mod life;
mod memory;
mod misuse;
mod mode;
mod owned;
mod owned_range;
mod pages;
mod plan;
mod poison;
mod range;
mod records;
mod resident;
mod thread;
mod touch;
mod trim;
mod upkeep;
mod worker;

pub use budget::{BudgetError, BudgetFault};
pub use builder::{Backing, BuildError, Builder, CpuMap, NodeBinding, Notice, ZoneSize};
pub use explain::Explanation;
pub use faults::{FailAlloc, FailCounts};
pub use held::HeldReport;
pub use hot::{HotPages, Missed, MissedFree};
pub use memory::{MemoryFault, MemoryRange};
pub use misuse::{FreedBy, Misuse, OnMisuse};
pub use owned::OwnedPages;
pub use owned_range::OwnedRange;
pub use pages::Pages;
pub use range::{PageRange, RangeError, Ranges};
pub use resident::Resident;
pub use touch::PrefaultProgress;
pub use trim::TrimError;

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::{
    self as core_alloc, Allocator, NumaEvents, Request, Sysctl, SysctlError, ZoneStats,
};
use zonal_core::frame::PageState;
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, NodeId, Order, PAGE_SIZE, Pfn};
use zonal_core::zone::state::Zone;

use crate::error::{AllocError, FreeError};
use crate::platform::ProcessPlatform;
use crate::reclaim::{Registry, is_inside};
use crate::rseq::FastRef;
use hot::{address_at, frame_at};

use crate::sys::map::Mapping;
use poison::Poison;
use records::Records;
use worker::Worker;

/// The allocator of a pool. It never leaves the crate: it takes and gives back pages by number, and
/// its references say that they live for ever.
pub(crate) type PoolAllocator = Allocator<'static, ProcessPlatform>;

/// A pool of pages: real memory under the zoned allocator, from which threads take blocks of 4 KiB
/// to 4 MiB of the node they run on. They share it by reference, or by handles: a clone is another
/// handle of the same pool.
///
/// ```
/// use zonal::{Order, Pool};
///
/// let pool = Pool::builder().size(64 << 20).build()?;
/// let mut page = pool.alloc(Order::ZERO)?; // freed when dropped
/// page[..5].copy_from_slice(b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Blocks that free themselves come from [`alloc`](Pool::alloc), raw ones from
/// [`alloc_pages`](Pool::alloc_pages), thousands at once from [`alloc_bulk`](Pool::alloc_bulk).
/// [`ranges`](Pool::ranges) hands out pages in a row of any number. [`Pages::into_owned`] makes a
/// block that borrows nothing. [`explain`](Pool::explain) says why a request gets a block, or is
/// refused.
pub struct Pool {
    /// The hot page's way begins here.
    fast: FastRef,
    pub(crate) shared: Arc<Shared>,
}

/// State shared with the pool's threads.
pub(crate) struct Shared {
    /// Constants of the fast path; what it points to is in `records`.
    fast: FastRef,
    /// Pages of the pool.
    pub(crate) pages: usize,
    poison: Option<Poison>,
    faults: Option<faults::Faults>,
    allocator: PoolAllocator,
    trimmed_bytes: AtomicU64,
    residency: resident::Residency,
    /// One trim at a time, and none across a fork.
    trimming: Mutex<()>,
    growth: grow::Growth,
    misuses: misuse::Misuses,
    life: life::Life,
    worker: Mutex<Option<Worker>>,
    background: background::Background,
    wants_background: bool,
    budget: budget::Budget,
    grants: mode::Grants,
    // Below: what the fields above point into (POOL-2).
    memory: Mapping,
    records: Records,
    _plan: plan::Plan,
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
                Ok(start) => Ok(hot::zeroed(start, order, gfp)),
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
                Ok(start) => hot::zeroed(start, order, gfp).as_ptr(),
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
    /// One misuse is found late or not at all, because finding it at once would take an atomic
    /// exchange on every free: two threads that free one block within the few nanoseconds between a
    /// free's check and its mark. Both may return `Ok`; the block is then handed out once, and the
    /// stray copy is counted when it is popped ([`ZoneStats::double_frees`]). If one of the two
    /// stalls in that gap until the block is in use again, the new owner loses it, as with any use
    /// after free.
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
        self.fast.push_block(start, order)
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
            let address = |pfn: Pfn| address_at(base, pfn.0 as usize) as *mut u8;
            match shared.allocator.alloc_bulk_with(request, rest, address) {
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
        let pfn = |page: &*mut u8| Pfn(frame_at(base, *page as usize) as u64);
        if shared.poison.is_some() {
            pages.iter().for_each(|page| shared.poison_block(pfn(page), order));
        }
        let page = |pfn: Pfn| address_at(base, pfn.0 as usize) as *mut u8;
        let freed = shared.allocator.free_bulk_with(pages, order, pfn, page);
        freed.map_err(|(done, error)| (done, shared.refused(pages[done], error)))
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
    /// Writes a setting, as a kernel's sysctl.
    ///
    /// # Errors
    /// [`SysctlError`] names the accepted values; the old value stays.
    pub fn set(&self, sysctl: Sysctl, value: i64) -> Result<(), SysctlError> {
        self.shared.allocator.set(sysctl, value)
    }
    /// Refreshes one CPU, as the refresh thread does for each: folds its counters, decays its
    /// lists, and drains its pages of other nodes. For pools without that thread. Returns whether
    /// there was anything to do; `false` also for a CPU that has no lists.
    pub fn refresh(&self, cpu: CpuId) -> bool {
        (cpu.0 as usize) < self.shared.allocator.cpus() && self.shared.allocator.refresh(cpu)
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
    /// Pages not handed out: free ones and those on pcps. What a refill or drain has in
    /// its hands is not counted for that moment.
    pub fn free_page_count(&self) -> u64 {
        self.shared.allocator.free_pages()
    }
    /// Empties all pcps. Returns the pages moved.
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

    pub(crate) fn allocator(&self) -> &PoolAllocator {
        &self.shared.allocator
    }

    /// Walks everything and changes nothing. Call it while nothing else uses the pool; the pool's
    /// own threads wait. In a forked child it counts what threads of the parent had in their hands
    /// ([`HeldReport::elsewhere`]).
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), zonal_core::alloc::Fault> {
        // Inside a consumer this thread may be a background reclaimer itself.
        let platform = self.shared.allocator.platform();
        let _still = (!is_inside()).then(|| platform.bells().hold_steps());
        // After the steps: a consumer that validates waits for this, and a step waits for it.
        let refresh = self.shared.worker().as_ref().and_then(Worker::lock);
        let _quiet = refresh.as_deref().map(worker::pause);
        if self.shared.allocator.zones().iter().any(Zone::may_have_strays) {
            let mut held = Vec::new();
            self.shared.allocator.hold_all(&mut |one| held.push(one));
            self.shared.allocator.stats().count_strays(&held);
            // Zone locks before pcps: the reverse of how they were taken.
            while held.pop().is_some() {}
        }
        self.shared.allocator.validate()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.shared.life.let_go() {
            return;
        }
        let refresh = self.shared.worker().take();
        refresh.into_iter().for_each(Worker::end);
        self.shared.stop_background();
        self.shared.growth.stop();
        life::orphan(&self.shared);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        fork::unregister(self);
    }
}

impl Shared {
    pub(crate) fn allocator(&self) -> &PoolAllocator {
        &self.allocator
    }

    fn consumers(&self) -> &Arc<Registry> {
        self.allocator.platform().consumers()
    }

    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn address(&self, pfn: Pfn) -> NonNull<u8> {
        self.fast.address(pfn.0 as usize)
    }

    /// The page frame number of an address; far out of range for one that is not page-aligned or
    /// below the pool.
    #[inline]
    fn pfn(&self, address: usize) -> Pfn {
        Pfn(self.fast.frame(address) as u64)
    }

    #[cold]
    #[inline(never)]
    fn alloc_by_core(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        self.inject(&request)?;
        loop {
            let pfn = self.allocator.alloc(request)?;
            if self.prepare(pfn, request.order, request.gfp) {
                return Ok(self.address(pfn));
            }
            // A thread wrote to the block after it was freed. It stays out of use: the thread may
            // write again.
        }
    }

    #[cold]
    #[inline(never)]
    fn free_by_core(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
        let pfn = self.pfn(start.as_ptr() as usize);
        self.poison_block(pfn, order);
        let freed = self.allocator.free(pfn, order);
        freed.map_err(|error| self.refused(start.as_ptr(), error))
    }

    /// Why a block was not freed.
    #[cold]
    fn refused(&self, start: *mut u8, error: core_alloc::FreeError) -> FreeError {
        let (base, address) = (self.fast.base, start as usize);
        let memory = base..base + self.pages * PAGE_SIZE;
        let around = memory.contains(&address).then(|| self.around((address - base) / PAGE_SIZE));
        FreeError::new(memory, address, error, around.flatten())
    }

    /// The block that a frame is in, and whether it is free. One moment's answer, for a message.
    fn around(&self, frame: usize) -> Option<(Order, bool)> {
        Order::all().find_map(|size| {
            let (order, free) =
                match self.allocator.frame_state(frame & !(size.pages() as usize - 1)) {
                    PageState::Free { order, .. } => (order, true),
                    PageState::Cached { order, .. } => (order, true),
                    PageState::Allocated { order, .. } | PageState::Range { order, .. } => {
                        (order, false)
                    }
                    PageState::None | PageState::Corrupt(_) => return None,
                };
            // A smaller block that ends before the frame is not around it.
            (order >= size).then_some((order, free))
        })
    }

    /// Zeroes a block if the request asks for it. `false`: the block was written to while it was
    /// free.
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

    /// As [`prepare`](Self::prepare) for many order-0 pages: those that may be used are in front
    /// afterwards. Returns how many.
    fn prepare_all(&self, pages: &mut [*mut u8], gfp: Gfp) -> usize {
        let mut good = 0;
        for index in 0..pages.len() {
            let page = pages[index];
            if self.prepare(self.pfn(page as usize), Order::ZERO, gfp) {
                pages[good] = page;
                good += 1;
            }
        }
        good
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
        if self.allocator.tables().is_allocated(pfn, order) {
            poison.fill(self.address(pfn), order);
        }
    }
}
