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
//! | `requests` | blocks out and back, one or thousands |
//! | `figures` | what a pool is and how it stands |
//! | `builder` | sizes, nodes, backing, policy; makes the pool |
//! | `consumers` | consumers that give pages back, and the last resort |
//! | `check` | options that cannot be |
//! | `plan` | zones, CPUs and nodes, before any memory is taken |
//! | `debug` | what `{:?}` says of a pool |
//! | `hot` | the way in and out of the fast path, and what follows when it leaves |
//! | `block` | zeroes and addresses of blocks |
//! | `gated` | the way where no sequence runs |
//! | `typed` | the fast path where pages are grouped by mobility |
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
//! | `observe` | a file that shows the pool to other programs |
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

// Rustdoc shows the methods of `Pool` in the order of the files: those of every day first, upkeep
// last.
mod requests;

mod range;

mod figures;

mod block;
mod brought;
mod budget;
mod build;
mod builder;
mod bytes;

mod check;
mod consumers;
mod debug;
mod explain;
mod faults;
mod fork;
mod gated;
mod grow;
mod held;
mod hot;
mod life;
mod memory;
mod misuse;
mod mode;
mod observe;
mod owned;
mod owned_range;
mod pages;
mod plan;
mod poison;
mod records;
mod resident;
mod thread;
mod touch;
mod trim;
mod typed;
mod upkeep;
mod worker;

mod background;

pub use brought::{MemoryFault, MemoryRange};
pub use budget::{BudgetError, BudgetFault};
pub use builder::{
    Backing, BuildError, Builder, CpuMap, NodeBinding, Notice, PrefaultProgress, ZoneSize,
};
pub use explain::Explanation;
pub use faults::{FailAlloc, FailCounts};
pub use held::HeldReport;
pub use hot::{HotPages, Missed, MissedFree};
pub use misuse::{FreedBy, Misuse, OnMisuse};
pub use owned::OwnedPages;
pub use owned_range::OwnedRange;
pub use pages::Pages;
pub use range::{PageRange, RangeError, Ranges};
pub use resident::Resident;
pub use trim::TrimError;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::{self as core_alloc, Allocator, Request, Sysctl, SysctlError};
use zonal_core::frame::PageState;
use zonal_core::gfp::Gfp;
use zonal_core::types::{CpuId, Order, PAGE_SIZE, Pfn};
use zonal_core::zone::state::Zone;

use crate::error::{AllocError, FreeError};
use crate::platform::ProcessPlatform;
use crate::reclaim::{Registry, is_inside};
use crate::rseq::FastRef;

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
    /// The fast path of a pool that groups by mobility, or keeps to a policy of Linux.
    typed: Option<typed::Typed>,
    /// Pages of the pool.
    pub(crate) pages: usize,
    poison: Option<Poison>,
    faults: Option<faults::Faults>,
    allocator: PoolAllocator,
    owns: gated::Owns,
    trimmed_bytes: AtomicU64,
    residency: resident::Residency,
    /// One trim at a time, and none across a fork.
    trimming: Mutex<()>,
    growth: grow::Growth,
    misuses: misuse::Misuses,
    life: life::Life,
    observer: Option<observe::Observer>,
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

/// A panic of a consumer or another function of the program passes a pool as it passes between two
/// calls: what it unwinds through gives its locks back and leaves nothing half done.
impl RefUnwindSafe for Shared {}
impl UnwindSafe for Shared {}

impl Pool {
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

    /// Empties all pcps. Returns the pages moved.
    pub fn drain_all(&self) -> u64 {
        self.shared.allocator.drain_all()
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
        // Owned pages may outlive this, but nobody writes the file any more.
        self.shared.observer.iter().for_each(observe::Observer::remove);
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
        let Request { order, gfp, node } = request;
        let popped = if node.is_none() { self.pop_typed(order, gfp) } else { None };
        match popped {
            Some(start) => Ok(start),
            None => self.alloc_from_core(request),
        }
    }

    fn alloc_from_core(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
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
        match self.push_typed(self.fast.frame(start.as_ptr() as usize), order) {
            true => Ok(()),
            false => self.free_to_core(start, order),
        }
    }

    fn free_to_core(&self, start: NonNull<u8>, order: Order) -> Result<(), FreeError> {
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
