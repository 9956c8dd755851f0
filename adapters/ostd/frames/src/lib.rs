//! `zonal-core` as the frame allocator of OSTD, by its trait [`GlobalFrameAllocator`].
//!
//! ```text
//!  boot    add_free_memory ──► Early ── first alloc: zones, metadata, hand-over ──► Allocator
//!  alloc   2^k pages ──► Allocator::alloc, a block      others ──► Ranges::alloc, exactly n
//!  dealloc a block ──► Allocator::free     a part: the block becomes a range ──► Ranges::free
//!          memory that OSTD had before there was an allocator ──► Early::release_to
//! ```
//! OSTD takes frames for itself before there is an allocator, and gives some of them back later.
//! They lie in the gaps between the memory it tells of: a gap below [`LARGEST_GAP`] is treated as
//! reserved memory, which comes online when it is given back. One node: OSTD knows no others.
//!
//! ```ignore
//! #[ostd::global_frame_allocator]
//! static FRAMES: zonal_ostd::Frames = zonal_ostd::Frames::new();
//! ```
//!
//! # Invariants
//! - **OSTD-1** `core` is written once, by the holder of the lock of `early`, before `is_up` is
//!   set; nobody reads it before, and nobody writes it afterwards.
//! - **OSTD-2** metadata comes from memory that OSTD told of, which [`Early`] gives out once and
//!   does not know afterwards, so nobody gives it back; OSTD has all of it below [`MAPPED`] mapped
//!   at [`LINEAR`].
//! - **OSTD-3** the core is called with interrupts of the CPU off, so no handler comes in between
//!   and no thread changes its CPU: masking them again is nothing.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

mod boot;
mod home;
#[cfg(ktest)]
mod tests;

#[cfg(ktest)]
extern crate alloc;

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ostd::irq::{self, DisabledLocalIrqGuard};
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::{PAGE_SIZE, Paddr};
use ostd::sync::{LocalIrqDisabled, SpinLock};
use zonal_core::alloc::{Request, hot};
use zonal_core::early::Early;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};
use zonal_kernel::pages;

use home::REGIONS;

pub use boot::{BootError, LARGEST_GAP, LINEAR, MAPPED};
pub use home::{Core, Ostd};

/// The frame allocator: a `static` marked with `ostd::global_frame_allocator`.
pub struct Frames {
    early: SpinLock<Early<REGIONS>, LocalIrqDisabled>,
    core: UnsafeCell<MaybeUninit<Core>>,
    is_up: AtomicBool,
    counts: Counts,
}

// SAFETY: (1) `core` is shared only once it is never written any more (OSTD-1), and the allocator
// itself may be used by all CPUs at once.
unsafe impl Sync for Frames {}

/// What happened that should be rare.
#[derive(Debug, Default)]
struct Counts {
    late: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_up = self.is_up.load(Relaxed);
        f.debug_struct("Frames").field("is_up", &is_up).field("counts", &self.counts).finish()
    }
}

impl Default for Frames {
    fn default() -> Frames {
        Frames::new()
    }
}

impl Frames {
    /// An allocator without memory.
    pub const fn new() -> Frames {
        Frames {
            early: SpinLock::new(Early::new()),
            core: UnsafeCell::new(MaybeUninit::uninit()),
            is_up: AtomicBool::new(false),
            counts: Counts { late: AtomicU64::new(0), refused: AtomicU64::new(0) },
        }
    }

    /// Calls `body` with the core, with interrupts off. `None`: no frame was asked for yet.
    pub fn with_core<R>(&self, body: impl FnOnce(&Core) -> R) -> Option<R> {
        let _off = irq::disable_local();
        self.core().map(body)
    }

    /// The core, once the first frame was asked for. Interrupts are off (OSTD-3).
    #[inline(always)]
    fn core(&self) -> Option<&Core> {
        // Acquire: pairs with the Release in `bring_up`.
        if !self.is_up.load(Acquire) {
            return None;
        }
        // SAFETY: (1) written before `is_up` was set, and never again (OSTD-1).
        Some(unsafe { (*self.core.get()).assume_init_ref() })
    }

    /// Pages that OSTD had before there was an allocator, and gave back since.
    pub fn late_pages(&self) -> u64 {
        self.counts.late.load(Relaxed)
    }

    /// Frees that were refused: of pages that are free, or were never memory.
    pub fn refused_frees(&self) -> u64 {
        self.counts.refused.load(Relaxed)
    }

    /// `/proc/zoneinfo` of this kernel.
    ///
    /// # Errors
    /// As the writer's.
    pub fn zoneinfo(&self, to: &mut impl Write) -> fmt::Result {
        let text = |core: &Core| {
            let cpus = core.cpus() as u32;
            zonal_kernel::text::zoneinfo(to, core, zonal_text::Layout::Linux6_14, |cpu| cpu < cpus)
        };
        self.with_core(text).unwrap_or(Ok(()))
    }

    /// At the first request: OSTD has told of all memory by then, and a layout wants the whole
    /// machine.
    #[cold]
    #[inline(never)]
    fn bring_up(&self) -> Option<&Core> {
        let mut early = self.early.lock();
        if !self.is_up.load(Relaxed) {
            match boot::bring_up(&mut early) {
                // SAFETY: (1) the lock is held, and nobody reads before `is_up` (OSTD-1).
                Ok(core) => unsafe { (*self.core.get()).write(core) },
                Err(error) => {
                    ostd::early_println!("zonal: no frame allocator: {}", error);
                    return None;
                }
            };
            // Release: pairs with the Acquire in `core`.
            self.is_up.store(true, Release);
        }
        drop(early);
        self.core()
    }

    /// What the running CPU's lists do not have: other blocks, any number of pages, and what is
    /// asked for first of all.
    #[inline(never)]
    fn alloc_pages(&self, layout: Layout, _off: DisabledLocalIrqGuard) -> Option<Paddr> {
        let core = self.core().or_else(|| self.bring_up())?;
        let pages = layout.size().div_ceil(PAGE_SIZE) as u64;
        let align = layout.align().div_ceil(PAGE_SIZE) as u64;
        pages::alloc(core, pages, align, Gfp::KERNEL).ok().map(addr_of)
    }

    /// What does not go to the running CPU's lists: other blocks, pages of a range, a part of a
    /// block, memory that OSTD had before the core, or a mistake.
    #[inline(never)]
    fn free_pages(&self, addr: Paddr, size: usize, _off: DisabledLocalIrqGuard) {
        let Some(core) = self.core() else { return self.add_free_memory(addr, size) };
        let bytes = bytes(addr, size);
        let pages = pages_of(&bytes);
        if pages::free(core, pages.clone()).is_ok() {
            return;
        }
        let released = self.early.lock().release_to(core, bytes.clone());
        match released {
            Ok(_) => self.counts.late.fetch_add(pages.end.0 - pages.start.0, Relaxed),
            Err(error) => {
                ostd::early_println!("zonal: a free of {:#x?} is refused: {}", bytes, error);
                self.counts.refused.fetch_add(1, Relaxed)
            }
        };
    }
}

fn bytes(addr: Paddr, size: usize) -> Range<u64> {
    addr as u64..(addr as u64).saturating_add(size as u64)
}

/// The pages of a range of whole pages.
fn pages_of(bytes: &Range<u64>) -> Range<Pfn> {
    let page = PAGE_SIZE as u64;
    Pfn(bytes.start / page)..Pfn(bytes.end / page)
}

/// The order of a block of so many bytes, a multiple of a page's, if there is one.
#[inline(always)]
fn order_of(bytes: usize) -> Option<Order> {
    // Of no bytes at all the order is far too large.
    let order = bytes.trailing_zeros().wrapping_sub(PAGE_SIZE.trailing_zeros());
    if bytes & bytes.wrapping_sub(1) == 0 { Order::new(order) } else { None }
}

/// The address of a page.
#[inline(always)]
fn addr_of(pfn: Pfn) -> Paddr {
    pfn.0 as usize * PAGE_SIZE
}

// Pages, blocks and ranges have code of their own, and keep nothing for the slow path that it can
// work out again: the fast paths save no register, and all else is a call that does not come back.
impl Frames {
    /// A block from the running CPU's lists.
    #[inline(never)]
    fn alloc_block(&self, order: Order) -> Option<Paddr> {
        let off = irq::disable_local();
        match self.core().and_then(|core| hot::alloc(core, Request::new(order))) {
            Some(pfn) => Some(addr_of(pfn)),
            None => self.alloc_block_by_core(order, off),
        }
    }

    /// Any number of pages, or where they are aligned to more than that.
    #[inline(never)]
    fn alloc_range(&self, layout: Layout) -> Option<Paddr> {
        let off = irq::disable_local();
        let pages = (layout.size() / PAGE_SIZE) as u64;
        if let Some(core) = self.core()
            && layout.align() <= layout.size()
            && let Some(pfn) = hot::alloc_range(core, pages, Gfp::KERNEL)
        {
            return Some(addr_of(pfn));
        }
        self.alloc_pages(layout, off)
    }

    /// As [`alloc_pages`](Self::alloc_pages).
    #[cold]
    #[inline(never)]
    fn alloc_block_by_core(&self, order: Order, off: DisabledLocalIrqGuard) -> Option<Paddr> {
        let size = PAGE_SIZE << order.get();
        self.alloc_pages(Layout::from_size_align(size, size).ok()?, off)
    }

    /// A block back onto the running CPU's lists.
    #[inline(never)]
    fn free_block(&self, addr: Paddr, order: Order) {
        let off = irq::disable_local();
        let pfn = Pfn((addr / PAGE_SIZE) as u64);
        let freed = match self.core() {
            Some(core) => hot::free(core, pfn, order),
            None => Err((pfn, order)),
        };
        if let Err((pfn, order)) = freed {
            self.free_block_by_core(pfn, order, off);
        }
    }

    /// The same of any number of pages.
    #[inline(never)]
    fn free_range(&self, addr: Paddr, size: usize) {
        let off = irq::disable_local();
        let pfn = Pfn((addr / PAGE_SIZE) as u64);
        let pages = (size / PAGE_SIZE) as u64;
        if !self.core().is_some_and(|core| hot::free_range(core, pfn, pages)) {
            self.free_pages(addr, size, off);
        }
    }

    /// As [`free_pages`](Self::free_pages).
    #[cold]
    #[inline(never)]
    fn free_block_by_core(&self, pfn: Pfn, order: Order, off: DisabledLocalIrqGuard) {
        self.free_pages(addr_of(pfn), PAGE_SIZE << order.get(), off);
    }
}

impl GlobalFrameAllocator for Frames {
    #[inline]
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        if layout.size() != PAGE_SIZE || layout.align() > PAGE_SIZE {
            return match order_of(layout.size()).filter(|_| layout.align() <= layout.size()) {
                Some(order) => self.alloc_block(order),
                None => self.alloc_range(layout),
            };
        }
        let off = irq::disable_local();
        match self.core().and_then(|core| hot::alloc(core, Request::new(Order::ZERO))) {
            Some(pfn) => Some(addr_of(pfn)),
            None => self.alloc_block_by_core(Order::ZERO, off),
        }
    }

    #[inline]
    fn dealloc(&self, addr: Paddr, size: usize) {
        if size != PAGE_SIZE {
            return match order_of(size) {
                Some(order) => self.free_block(addr, order),
                None => self.free_range(addr, size),
            };
        }
        let off = irq::disable_local();
        let pfn = Pfn((addr / PAGE_SIZE) as u64);
        let freed = match self.core() {
            Some(core) => hot::free(core, pfn, Order::ZERO),
            None => Err((pfn, Order::ZERO)),
        };
        if let Err((pfn, _)) = freed {
            self.free_block_by_core(pfn, Order::ZERO, off);
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        if self.core().is_some() {
            // Memory that OSTD had, or that was allocated.
            return self.dealloc(addr, size);
        }
        let bytes = bytes(addr, size);
        let added = self.early.lock().add(bytes.clone(), Default::default());
        if let Err(error) = added {
            ostd::early_println!("zonal: memory {:#x?} is not used: {}", bytes, error);
        }
    }
}

/// The allocator of the kernel that this is linked into.
#[cfg(feature = "global")]
#[ostd::global_frame_allocator]
pub static FRAMES: Frames = Frames::new();
