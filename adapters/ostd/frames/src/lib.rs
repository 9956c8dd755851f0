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
//! - **OSTD-4** a CPU's `OWN` is null, or what the core says that the CPU serves itself from: only
//!   that CPU writes it, with interrupts off, once it has seen that `is_up`. A kernel has one
//!   allocator, so there is one core, whatever [`Frames`] it is called through.
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
use core::mem::{MaybeUninit, transmute};
use core::num::{NonZeroU64, NonZeroUsize};
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ostd::cpu_local_cell;
use ostd::irq::{self, DisabledLocalIrqGuard};
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::{PAGE_SIZE, Paddr};
use ostd::sync::{LocalIrqDisabled, SpinLock};
use zonal_core::alloc::hot::Own;
use zonal_core::early::Early;
use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform as _;
use zonal_core::types::{Order, Pfn};
use zonal_kernel::pages;

use home::REGIONS;

/// Two pages.
const TWO_PAGES: usize = 2 * PAGE_SIZE;
/// The order of a block of them.
const TWO: Order = Order::new(1).expect("an order");

pub use boot::{BootError, LARGEST_GAP, LINEAR, MAPPED};
pub use home::{Core, Ostd};

/// The frame allocator: a `static` marked with `ostd::global_frame_allocator`. A kernel has one:
/// all values of this type are the same allocator.
#[derive(Default)]
pub struct Frames;

/// What [`Frames`] stands for.
struct Global {
    early: SpinLock<Early<REGIONS>, LocalIrqDisabled>,
    core: UnsafeCell<MaybeUninit<Core>>,
    is_up: AtomicBool,
    counts: Counts,
}

// SAFETY: (1) `core` is shared only once it is never written any more (OSTD-1), and the allocator
// itself may be used by all CPUs at once.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    early: SpinLock::new(Early::new()),
    core: UnsafeCell::new(MaybeUninit::uninit()),
    is_up: AtomicBool::new(false),
    counts: Counts { late: AtomicU64::new(0), refused: AtomicU64::new(0) },
};

cpu_local_cell! {
    /// What this CPU serves itself from: an `Own`; null where it has not asked yet (OSTD-4).
    static OWN: *const () = core::ptr::null();
}

/// What happened that should be rare.
#[derive(Debug)]
struct Counts {
    late: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_up = GLOBAL.is_up.load(Relaxed);
        f.debug_struct("Frames").field("is_up", &is_up).field("counts", &GLOBAL.counts).finish()
    }
}

impl Frames {
    /// The allocator. It has no memory until OSTD has told of some.
    pub const fn new() -> Frames {
        Frames
    }

    /// Calls `body` with the core, with interrupts off. `None`: no frame was asked for yet.
    pub fn with_core<R>(&self, body: impl FnOnce(&Core) -> R) -> Option<R> {
        let _off = irq::disable_local();
        self.core().map(body)
    }

    /// The core, once the first frame was asked for. Interrupts are off (OSTD-3).
    fn core(&self) -> Option<&'static Core> {
        // Acquire: pairs with the Release in `bring_up`.
        if !GLOBAL.is_up.load(Acquire) {
            return None;
        }
        // SAFETY: (1) written before `is_up` was set, and never again (OSTD-1).
        Some(unsafe { (*GLOBAL.core.get()).assume_init_ref() })
    }

    /// The core and what the running CPU serves itself from, once it has asked for that.
    #[inline(always)]
    fn own(&self, _off: &DisabledLocalIrqGuard) -> Option<(&'static Core, Own<'static>)> {
        // SAFETY: (1) null or an `Own`, which is a reference and nothing else (OSTD-4).
        let own = unsafe { transmute::<*const (), Option<Own<'static>>>(OWN.load()) }?;
        // SAFETY: (1) this CPU has seen that it is up (OSTD-4), and it is never written again
        // (OSTD-1).
        Some((unsafe { (*GLOBAL.core.get()).assume_init_ref() }, own))
    }

    /// Has the running CPU know what it serves itself from, on its first way past the fast path.
    fn settle(&self, core: &'static Core, _off: &DisabledLocalIrqGuard) {
        if OWN.load().is_null() {
            // SAFETY: (1) a kernel has one core (OSTD-4).
            let own = unsafe { Own::new(core, core.platform().cpu()) };
            // SAFETY: (1) an `Option` of a reference is a pointer, null if there is none.
            OWN.store(unsafe { transmute::<Option<Own<'static>>, *const ()>(own) });
        }
    }

    /// Pages that OSTD had before there was an allocator, and gave back since.
    pub fn late_pages(&self) -> u64 {
        GLOBAL.counts.late.load(Relaxed)
    }

    /// Frees that were refused: of pages that are free, or were never memory.
    pub fn refused_frees(&self) -> u64 {
        GLOBAL.counts.refused.load(Relaxed)
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
    fn bring_up(&self) -> Option<&'static Core> {
        let mut early = GLOBAL.early.lock();
        if !GLOBAL.is_up.load(Relaxed) {
            match boot::bring_up(&mut early) {
                // SAFETY: (1) the lock is held, and nobody reads before `is_up` (OSTD-1).
                Ok(core) => unsafe { (*GLOBAL.core.get()).write(core) },
                Err(error) => {
                    ostd::early_println!("zonal: no frame allocator: {}", error);
                    return None;
                }
            };
            // Release: pairs with the Acquire in `core`.
            GLOBAL.is_up.store(true, Release);
        }
        drop(early);
        self.core()
    }

    /// What the running CPU's lists do not have: other blocks, any number of pages, and what is
    /// asked for first of all.
    #[inline(never)]
    fn alloc_pages(&self, layout: Layout, off: DisabledLocalIrqGuard) -> Option<Paddr> {
        let core = self.core().or_else(|| self.bring_up())?;
        self.settle(core, &off);
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
        let released = GLOBAL.early.lock().release_to(core, bytes.clone());
        match released {
            Ok(_) => GLOBAL.counts.late.fetch_add(pages.end.0 - pages.start.0, Relaxed),
            Err(error) => {
                ostd::early_println!("zonal: a free of {:#x?} is refused: {}", bytes, error);
                GLOBAL.counts.refused.fetch_add(1, Relaxed)
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

/// The order of a block of so many bytes, a power of two.
#[inline(always)]
fn order_of(bytes: usize) -> Option<Order> {
    // Of no bytes at all the order is far too large.
    Order::new(bytes.trailing_zeros().wrapping_sub(PAGE_SIZE.trailing_zeros()))
}

/// Whether so many bytes are taken for a block, and not for a range: a power of two, and none.
#[inline(always)]
fn is_block(bytes: usize) -> bool {
    bytes & bytes.wrapping_sub(1) == 0
}

/// The pages that so many bytes take.
#[inline(always)]
fn pages_over(bytes: NonZeroUsize) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(((bytes.get() - 1) / PAGE_SIZE) as u64)
}

/// The address of a page.
#[inline(always)]
fn addr_of(pfn: Pfn) -> Paddr {
    pfn.0 as usize * PAGE_SIZE
}

// Pages, blocks and ranges have code of their own, and keep nothing for the slow path that it can
// work out again: the fast paths save no register, and all else is a call that does not come back.
// So have the blocks of two pages: what is known when compiled costs nothing.
impl Frames {
    /// A block from the running CPU's lists.
    #[inline(always)]
    fn alloc_order(&self, order: Order) -> Option<Paddr> {
        let off = irq::disable_local();
        match self.own(&off).and_then(|(core, own)| own.alloc(core, order, Gfp::KERNEL)) {
            Some(pfn) => Some(addr_of(pfn)),
            None => self.alloc_block_by_core(order, off),
        }
    }

    #[inline(never)]
    fn alloc_page(&self) -> Option<Paddr> {
        self.alloc_order(Order::ZERO)
    }

    #[inline(never)]
    fn alloc_two(&self) -> Option<Paddr> {
        self.alloc_order(TWO)
    }

    /// A block of any order.
    #[inline(never)]
    fn alloc_block(&self, size: usize) -> Option<Paddr> {
        match order_of(size) {
            Some(order) => self.alloc_order(order),
            None => self.alloc_by_core(size, irq::disable_local()),
        }
    }

    /// Any number of pages: so many bytes, or what is missing of the last page more.
    #[inline(never)]
    fn alloc_range(&self, size: NonZeroUsize) -> Option<Paddr> {
        let off = irq::disable_local();
        let pages = pages_over(size);
        let kept =
            self.own(&off).and_then(|(core, own)| own.alloc_range(core, pages, Gfp::KERNEL));
        match kept {
            Some(pfn) => Some(addr_of(pfn)),
            None => self.alloc_by_core(pages.get() as usize * PAGE_SIZE, off),
        }
    }

    /// Where pages are to be aligned to more than one. That of a block is aligned to its size.
    #[cold]
    #[inline(never)]
    fn alloc_aligned(&self, layout: Layout) -> Option<Paddr> {
        match order_of(layout.size()).filter(|_| is_block(layout.size())) {
            Some(order) if layout.align() <= layout.size() => self.alloc_order(order),
            _ => self.alloc_pages(layout, irq::disable_local()),
        }
    }

    /// So many bytes, as [`alloc_pages`](Self::alloc_pages).
    #[cold]
    #[inline(never)]
    fn alloc_by_core(&self, size: usize, off: DisabledLocalIrqGuard) -> Option<Paddr> {
        self.alloc_pages(Layout::from_size_align(size, PAGE_SIZE).ok()?, off)
    }

    /// As [`alloc_pages`](Self::alloc_pages).
    #[cold]
    #[inline(never)]
    fn alloc_block_by_core(&self, order: Order, off: DisabledLocalIrqGuard) -> Option<Paddr> {
        self.alloc_by_core(PAGE_SIZE << order.get(), off)
    }

    /// A block back onto the running CPU's lists.
    #[inline(always)]
    fn free_order(&self, addr: Paddr, order: Order) {
        let off = irq::disable_local();
        let pfn = Pfn((addr / PAGE_SIZE) as u64);
        let freed = match self.own(&off) {
            Some((core, own)) => own.free(core, pfn, order),
            None => Err((pfn, order)),
        };
        if let Err((pfn, order)) = freed {
            self.free_block_by_core(pfn, order, off);
        }
    }

    #[inline(never)]
    fn free_page(&self, addr: Paddr) {
        self.free_order(addr, Order::ZERO);
    }

    #[inline(never)]
    fn free_two(&self, addr: Paddr) {
        self.free_order(addr, TWO);
    }

    /// A block of any order.
    #[inline(never)]
    fn free_block(&self, addr: Paddr, size: usize) {
        match order_of(size) {
            Some(order) => self.free_order(addr, order),
            None => self.free_pages(addr, size, irq::disable_local()),
        }
    }

    /// Any number of pages, as [`alloc_range`](Self::alloc_range).
    #[inline(never)]
    fn free_range(&self, addr: Paddr, size: NonZeroUsize) {
        let off = irq::disable_local();
        let range = (Pfn((addr / PAGE_SIZE) as u64), pages_over(size));
        let freed = match self.own(&off) {
            Some((core, own)) => own.free_range(core, range.0, range.1),
            None => Err(range),
        };
        if let Err((pfn, pages)) = freed {
            self.free_pages(addr_of(pfn), pages.get() as usize * PAGE_SIZE, off);
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
        let size = layout.size();
        if layout.align() > PAGE_SIZE {
            return self.alloc_aligned(layout);
        }
        match size {
            PAGE_SIZE => self.alloc_page(),
            TWO_PAGES => self.alloc_two(),
            _ if is_block(size) => self.alloc_block(size),
            // SAFETY: (1) no bytes at all are taken for a block.
            _ => self.alloc_range(unsafe { NonZeroUsize::new_unchecked(size) }),
        }
    }

    #[inline]
    fn dealloc(&self, addr: Paddr, size: usize) {
        match size {
            PAGE_SIZE => self.free_page(addr),
            TWO_PAGES => self.free_two(addr),
            _ if is_block(size) => self.free_block(addr, size),
            // SAFETY: (1) no bytes at all are taken for a block.
            _ => self.free_range(addr, unsafe { NonZeroUsize::new_unchecked(size) }),
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        if self.core().is_some() {
            // Memory that OSTD had, or that was allocated.
            return self.dealloc(addr, size);
        }
        let bytes = bytes(addr, size);
        let added = GLOBAL.early.lock().add(bytes.clone(), Default::default());
        if let Err(error) = added {
            ostd::early_println!("zonal: memory {:#x?} is not used: {}", bytes, error);
        }
    }
}

/// The allocator of the kernel that this is linked into.
#[cfg(feature = "global")]
#[ostd::global_frame_allocator]
pub static FRAMES: Frames = Frames::new();
