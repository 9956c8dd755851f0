//! A fast path in front of the core, by restartable sections in assembly: no compare-and-swap, and
//! interrupts stay as they are. A pair of a page takes about half the instructions of the core's
//! own fast path.
//!
//! ```text
//!  request ── plain page? ── section of the first list ──► page
//!     │                        │ left
//!     └── list, by order and flags ── section ──► block
//!                              │ left
//!         masked: the list is made active ── section ──► block
//!                                               │ left: the core
//!  free ── the same, the list by order and the type that the pageblock has now
//! ```
//! A section runs on the pcp of the running CPU, which it finds by what GS points to: a cell of
//! each CPU ([`OwnCell`]). The core fences a CPU before it touches that CPU's pcp; what is under
//! way there starts over ([`restart`](super::restart)).
//!
//! # Invariants
//! - **KSEC-1** a section finds its pcp by GS and commits on the CPU that GS was that of: whatever
//!   takes the CPU from it in between has started it over.
//! - **KSEC-2** between the begin of a section and its last instruction nothing that others see is
//!   written except slots above the top, which are dead (PCP-2), and by a push, as the last thing
//!   before the commit, the word of the block that is being freed. A push that starts over from
//!   there takes that back: its block is nobody else's until the commit.
//! - **KSEC-3** the commit is the last instruction of a section, and one store.
//! - **KSEC-4** each section stands in the table that the entry of every interrupt asks.
//! - **KSEC-5** a list is made active with interrupts masked: no section of the CPU comes between,
//!   one that was interrupted has been started over, and the CPU answers no fence until that is
//!   done (KFENCE-1).

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use zonal_core::alloc::{AllocError, Allocator, FreeError, Raw, Request, hot};
use zonal_core::gfp::Gfp;
use zonal_core::pcp::offsets::{BLOCK_SHIFT, LIST_BYTES, ZONE_FAST};
use zonal_core::pcp::state::Pcp;
use zonal_core::sync::Masked;
use zonal_core::types::{
    CpuId, Migratetype, NR_MIGRATETYPES, NR_ORDERS, Order, PAGEBLOCK_ORDER, Pfn,
};

pub use super::own::{OwnCell, RunsSections};
use super::x86_64::{self as sections, Popped};
use crate::kernel::KernelPlatform;

/// Flags of requests that are not for the first list, or for it on some machines only.
const OTHERS: u32 = Gfp::DMA
    .union(Gfp::DMA32)
    .union(Gfp::HIGHMEM)
    .union(Gfp::MOVABLE)
    .union(Gfp::RECLAIMABLE)
    .union(Gfp::WRITE)
    .union(Gfp::THISNODE)
    .bits();
/// Flags that say which list serves a request.
const WHAT: u32 = OTHERS & !Gfp::WRITE.union(Gfp::THISNODE).bits();
const KINDS: usize = WHAT as usize + 1;
/// Rows of the tables: orders, and types of pageblocks, up to powers of two, so that no index
/// needs a check.
const ROWS: usize = NR_ORDERS.next_power_of_two();
const TYPES: usize = NR_MIGRATETYPES.next_power_of_two();
/// In the tables: no list.
const NONE: u16 = u16::MAX;
/// The type of pageblock whose pages are freed to the first list.
const FIRST: i8 = Migratetype::Unmovable as i8;

/// Why a kernel has no fast path by sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastError {
    /// [`Kernel::has_sections`](crate::Kernel::has_sections) says `false`: the core has a fast path
    /// of its own.
    NoSections,
    /// The policy leaves single pages to the core.
    Policy,
    /// There is no such CPU.
    NoSuchCpu(CpuId),
}

impl fmt::Display for FastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FastError::NoSections => {
                f.write_str("`Kernel::has_sections` says that the core's own fast path runs")
            }
            FastError::Policy => f.write_str(
                "the policy leaves single pages to the core: it records each allocation, has two \
                 sets of lists, or pageblocks that CPUs own",
            ),
            FastError::NoSuchCpu(cpu) => write!(f, "the machine was described without {cpu:?}"),
        }
    }
}

impl core::error::Error for FastError {}

/// The allocator of a kernel in which sections run.
type On<'a, K> = Allocator<'a, KernelPlatform<'a, K>>;

/// An allocator with sections in front.
#[derive(Debug)]
pub struct FastPages<'a, K: RunsSections> {
    core: &'a On<'a, K>,
    words: &'a [AtomicU64],
    types: &'a [AtomicU8],
    /// Flags whose requests the core has to decide, besides those without a list.
    others: u32,
    /// Bytes from the first list to that of a request, by order and [`WHAT`].
    by_request: [[u16; KINDS]; ROWS],
    /// The same by order and type of pageblock.
    by_type: [[u16; TYPES]; ROWS],
}

impl<'a, K: RunsSections> FastPages<'a, K> {
    /// Sections in front of this allocator.
    ///
    /// # Errors
    /// [`FastError`] where sections would serve nothing.
    pub fn new(core: &'a On<'a, K>) -> Result<FastPages<'a, K>, FastError> {
        if !core.platform().kernel().has_sections() {
            return Err(FastError::NoSections);
        }
        let bytes = |list: Option<usize>| list.map_or(NONE, |list| (list * LIST_BYTES) as u16);
        // SAFETY: (1) a section writes the word of a block that its owner gives up, as the core
        // does (KSEC-2), and types are only read; (2) each commit is one store, so that records
        // agree before and after it.
        let raw = unsafe { Raw::new(core) };
        let mut fast = FastPages {
            core,
            words: raw.words(),
            types: raw.blocks(),
            others: 0,
            by_request: [[NONE; KINDS]; ROWS],
            by_type: [[NONE; TYPES]; ROWS],
        };
        for flag in [Gfp::WRITE, Gfp::THISNODE] {
            if hot::list_of_request(core, Order::ZERO, flag).is_none() {
                fast.others |= flag.bits();
            }
        }
        for order in Order::all() {
            for (kind, list) in fast.by_request[order.index()].iter_mut().enumerate() {
                *list = bytes(hot::list_of_request(core, order, Gfp::from_bits(kind as u32)));
            }
            for (mt, list) in fast.by_type[order.index()].iter_mut().enumerate() {
                let mt = Migratetype::new(mt as u32);
                *list = bytes(mt.and_then(|mt| hot::list_of_block(core, order, mt)));
            }
        }
        let first = (fast.by_request[0][0], fast.by_type[0][FIRST as usize]);
        if first == (0, 0) { Ok(fast) } else { Err(FastError::Policy) }
    }

    /// Tells a CPU what its sections work on. On that CPU with interrupts masked, or before it
    /// runs.
    ///
    /// # Safety
    /// For as long as sections run on the CPU, or until its cell is told something else:
    /// 1. `cell` is the one that GS points to on `cpu`, and what another CPU was told is in another
    ///    one. Two CPUs with one pcp would both have its pages.
    /// 2. On the CPU, functions of a `FastPages` of this allocator alone are called: those of
    ///    another allocator would take this one's pages for theirs.
    /// 3. Fences hear the truth about the CPU: [`Fences::up`], [`Fences::answer`] and
    ///    [`Fences::down`], and what [`hotplug`](crate::hotplug) makes of them, are called when and
    ///    where they say. The core works on the pcp of a CPU that has answered, or is down.
    ///
    /// Safe code tells no CPU anything:
    ///
    /// ```compile_fail,E0133
    /// use zonal_core::types::CpuId;
    /// use zonal_kernel::sections::fast::{FastPages, OwnCell, RunsSections};
    ///
    /// fn as_another<K: RunsSections>(fast: &FastPages<'_, K>, cell: &OwnCell) {
    ///     let _ = fast.tell(CpuId(1), cell);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`FastError::NoSuchCpu`].
    ///
    /// [`Fences::up`]: crate::fence::Fences::up
    /// [`Fences::answer`]: crate::fence::Fences::answer
    /// [`Fences::down`]: crate::fence::Fences::down
    pub unsafe fn tell(&self, cpu: CpuId, cell: &OwnCell) -> Result<(), FastError> {
        let tables = self.core.tables();
        if !tables.has_cpu(cpu) {
            return Err(FastError::NoSuchCpu(cpu));
        }
        let zone = tables.preferred_zone(cpu);
        let pcp: NonNull<Pcp> = self.core.pcp(zone, cpu).into();
        let zone: NonNull<u8> = NonNull::from(&self.core.zones()[usize::from(zone.0)]).cast();
        let at = pcp.cast::<u8>().as_ptr();
        // SAFETY: (1) the record has this field, which never changes.
        let shift = unsafe { at.wrapping_add(BLOCK_SHIFT).cast::<u64>().read() } as usize;
        // Relaxed: on this very CPU, or before it runs.
        cell.types.store(self.types.as_ptr().cast_mut().cast::<u8>().wrapping_add(shift), Relaxed);
        cell.frames.store(self.words.len() as u64, Relaxed);
        cell.zone.store(zone.as_ptr().wrapping_add(ZONE_FAST), Relaxed);
        cell.pcp.store(at, Relaxed);
        Ok(())
    }

    /// The allocator.
    pub fn core(&self) -> &'a On<'a, K> {
        self.core
    }

    /// A block by a section. `None`: nothing was done; [`alloc_missed`](Self::alloc_missed) may
    /// have one.
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        if order.get() != 0 || gfp.bits() & OTHERS != 0 {
            return self.alloc_listed(order, gfp);
        }
        // SAFETY: (1) the words are those of the allocator whose `tell` told the cell, as that
        // asks.
        let popped = unsafe { sections::pop_page::<K>(self.words()) };
        self.page(popped)
    }

    /// As [`alloc`](Self::alloc), from any list.
    #[inline(never)]
    fn alloc_listed(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let list = self.list_of_request(order, gfp)?;
        self.page(self.pop(order, list))
    }

    /// As [`Allocator::alloc`], for a request that [`alloc`](Self::alloc) has just had no block
    /// for. A function of its own of the caller's, `#[cold]` and `#[inline(never)]`, keeps its
    /// frame off the fast path.
    ///
    /// # Errors
    /// As [`Allocator::alloc`].
    pub fn alloc_missed(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let list = self.list_of_request(order, gfp).filter(|list| self.make_active(*list));
        match list.and_then(|list| self.page(self.pop(order, list))) {
            Some(pfn) => Ok(pfn),
            None => hot::alloc_missed(self.core, Request::new(order).gfp(gfp)),
        }
    }

    /// Takes a block back by a section.
    ///
    /// # Errors
    /// The block once more, so that the caller need not keep it meanwhile. Nothing was done;
    /// [`free_missed`](Self::free_missed) takes it back, or says why not.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), (Pfn, Order)> {
        let done = match order {
            // SAFETY: (1) as in `alloc`.
            Order::ZERO => unsafe { sections::push_page::<K, FIRST>(self.words(), pfn.0) },
            _ => self.free_listed(pfn, order),
        };
        if done { Ok(()) } else { Err((pfn, order)) }
    }

    /// As [`free`](Self::free), onto any list.
    #[inline(never)]
    fn free_listed(&self, pfn: Pfn, order: Order) -> bool {
        self.list_of_block(pfn, order).is_some_and(|list| self.push(list, pfn))
    }

    /// As [`Allocator::free`], for a block that [`free`](Self::free) has just not taken: such as a
    /// page of another list than that of pages for the kernel itself.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn free_missed(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        match self.list_of_block(pfn, order) {
            Some(list) if self.push(list, pfn) => Ok(()),
            Some(list) if self.make_active(list) && self.push(list, pfn) => Ok(()),
            _ => hot::free_missed(self.core, pfn, order),
        }
    }

    /// The list that serves a request.
    #[inline(always)]
    fn list_of_request(&self, order: Order, gfp: Gfp) -> Option<usize> {
        if gfp.bits() & self.others != 0 {
            return None;
        }
        listed(self.by_request[order.index() % ROWS][(gfp.bits() & WHAT) as usize])
    }

    /// The list that a block is freed to.
    #[inline(always)]
    fn list_of_block(&self, pfn: Pfn, order: Order) -> Option<usize> {
        // On another CPU meanwhile, whose zone is another one: a hint of another page, or none.
        let block = sections::own_types::<K>()
            .wrapping_add((pfn.0 >> PAGEBLOCK_ORDER.get()) as usize)
            .wrapping_sub(self.types.as_ptr().addr());
        // Relaxed: written under the zone lock; a reader without it wants a hint.
        let mt = self.types.get(block)?.load(Relaxed);
        listed(self.by_type[order.index() % ROWS][usize::from(mt) % TYPES])
    }

    /// Pops from a list, if it is the active one.
    #[inline(always)]
    fn pop(&self, order: Order, list: usize) -> Popped {
        // SAFETY: (1) as in `alloc`; (2) the list is one of the tables.
        unsafe { sections::pop_block::<K>(self.words(), list, 1 << order.get()) }
    }

    /// Pushes onto a list, if it is the active one.
    #[inline(always)]
    fn push(&self, list: usize, pfn: Pfn) -> bool {
        // SAFETY: (1) as in `free`; (2) the list is one of the tables.
        unsafe { sections::push_block::<K>(self.words(), list, pfn.0) }
    }

    /// The page words.
    #[inline(always)]
    fn words(&self) -> *const u64 {
        self.words.as_ptr().cast()
    }

    /// What a pop came to; a copy that was dropped is counted.
    #[inline(always)]
    fn page(&self, popped: Popped) -> Option<Pfn> {
        let page = popped.page();
        if page.is_none() && popped.is_stray() {
            self.count_stray();
        }
        page
    }

    /// Makes a list the active one. `false`: there is something else in the way.
    fn make_active(&self, list: usize) -> bool {
        let _masked = Masked::new(self.core.platform());
        // SAFETY: (1), (2) masked (KSEC-5).
        unsafe { hot::make_active(self.core, list / LIST_BYTES) }
    }

    #[cold]
    #[inline(never)]
    fn count_stray(&self) {
        self.core.count_stray(CpuId(self.core.platform().kernel().cpu()));
    }
}

/// A list, if there is one.
#[inline(always)]
fn listed(bytes: u16) -> Option<usize> {
    (bytes != NONE).then_some(usize::from(bytes))
}
