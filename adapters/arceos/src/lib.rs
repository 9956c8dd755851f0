//! `zonal-core` as a page allocator of ArceOS, by its trait [`PageAllocator`].
//!
//! ```
//! use ax_allocator::{BaseAllocator, PageAllocator};
//! use std::mem::MaybeUninit;
//! use zonal_arceos::{Pages, Span};
//!
//! // All memory that may ever come: 64 MiB of addresses.
//! static SPAN: Span = Span::new(0x8000_0000, 0x8400_0000);
//! let mut records = vec![MaybeUninit::uninit(); SPAN.record_bytes().unwrap()];
//! let mut pages = Pages::new(&SPAN, &mut records).unwrap();
//! pages.init(0x8000_0000, 32 << 20);
//! pages.add_memory(0x8300_0000, 16 << 20).unwrap();
//! let three = pages.alloc_pages(3, 4096).unwrap();
//! pages.dealloc_pages(three, 3);
//! assert_eq!(pages.available_pages(), (48 << 20) / 4096);
//! ```
//! Addresses are whatever ArceOS calls its pages by: nothing here reads or writes them. The trait
//! has its callers one at a time (`&mut self`), behind a lock that masks interrupts, so there is
//! one CPU, and no interrupts. Records come from the caller, 8 bytes a page and little more, since
//! memory that comes later needs them, too.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;

use ax_allocator::{AllocError, AllocResult, BaseAllocator, PageAllocator};
use zonal_core::alloc::{Allocator, Fault, Stats};
use zonal_core::gfp::Gfp;
use zonal_core::machine::{Layout, Machine, MachineError, ZoneSpec};
use zonal_core::platform::FixedPolicy;
use zonal_core::policy::{MinFreeRule, Policy, WatermarkPolicy};
use zonal_core::types::{NodeId, Pfn, ZoneId, ZoneKind};
use zonal_kernel::fence::{Fences, Patience};
use zonal_kernel::{Kernel, KernelPlatform, pages};

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// No reserves: the trait does not say which request may use them.
const POLICY: Policy = Policy {
    name: "arceos",
    watermark: WatermarkPolicy { min_free: MinFreeRule::Kbytes(0), ..Policy::KERNEL.watermark },
    ..Policy::KERNEL
};

/// Whoever calls: one at a time, never interrupted.
#[derive(Debug)]
pub struct Alone;

impl Kernel for Alone {
    const POLICY: Option<FixedPolicy> = Some(Policy::fix(&POLICY));

    #[inline(always)]
    fn cpu(&self) -> u32 {
        0
    }
    #[inline(always)]
    fn mask(&self) -> usize {
        0
    }
    #[inline(always)]
    fn unmask(&self, _was: usize) {}
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

/// The core, as this adapter has it. Kept inside: what it hands out is counted here.
type Core<'a> = Allocator<'a, KernelPlatform<'static, Alone>>;

/// A page allocator for addresses in one span.
#[derive(Debug)]
pub struct Pages<'a> {
    core: Core<'a>,
    span: Range<Pfn>,
    total: u64,
    used: u64,
    refused: u64,
}

/// Why there is no allocator.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PagesError {
    /// The span has no whole page, or the machine cannot be described.
    Machine(MachineError),
    /// The records need more bytes: how many, and how many there are.
    Records(usize, usize),
}

impl fmt::Display for PagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PagesError::Machine(error) => error.fmt(f),
            PagesError::Records(need, have) => {
                write!(
                    f,
                    "records need {need} bytes, and there are {have}; ask `Span::record_bytes`"
                )
            }
        }
    }
}

impl core::error::Error for PagesError {}

/// The whole pages of a range of addresses.
const fn pages_of(start: usize, end: usize) -> Range<Pfn> {
    let start = start.div_ceil(PAGE_SIZE);
    let end = end / PAGE_SIZE;
    Pfn(start as u64)..Pfn(if end < start { start } else { end } as u64)
}

/// Addresses of all memory that may ever come.
#[derive(Clone, Copy, Debug)]
pub struct Span([ZoneSpec; 1]);

impl Span {
    /// The whole pages between two addresses.
    pub const fn new(start: usize, end: usize) -> Span {
        let pages = pages_of(start, end);
        let count = pages.end.0 - pages.start.0;
        Span([ZoneSpec {
            node: NodeId(0),
            kind: ZoneKind::Normal,
            start_pfn: pages.start.0,
            spanned: count,
            present: count,
        }])
    }

    fn machine(&self) -> Machine<'_> {
        Machine {
            distances: &[10],
            zones: &self.0,
            cpus: &[NodeId(0)],
            cache_slice_bytes: 0,
            caches: &[],
        }
    }

    fn layout(&self) -> Result<Layout, PagesError> {
        Layout::of(&self.machine(), &POLICY).map_err(PagesError::Machine)
    }

    /// Bytes of records that [`Pages::new`] needs.
    ///
    /// # Errors
    /// [`PagesError::Machine`].
    pub fn record_bytes(&self) -> Result<usize, PagesError> {
        Ok(self.layout()?.carve_bytes())
    }
}

impl<'a> Pages<'a> {
    /// An allocator without memory, for addresses of `span`. Keeps its records in `records`, at
    /// least [`Span::record_bytes`] of them.
    ///
    /// # Errors
    /// [`PagesError`].
    pub fn new(
        span: &'a Span,
        records: &'a mut [MaybeUninit<u8>],
    ) -> Result<Pages<'a>, PagesError> {
        let (need, have) = (span.record_bytes()?, records.len());
        let Some(records) = records.get_mut(..need) else {
            return Err(PagesError::Records(need, have));
        };
        let metadata = span.layout()?.carve(records).map_err(PagesError::Machine)?;
        let platform = KernelPlatform::new(Alone, Fences::new(&[], Patience::DEFAULT));
        let core = Allocator::new(&span.machine(), POLICY, metadata, platform);
        let core = core.map_err(PagesError::Machine)?;
        let start = span.0[0].start_pfn;
        let span = Pfn(start)..Pfn(start + span.0[0].spanned);
        Ok(Pages { core, span, total: 0, used: 0, refused: 0 })
    }

    /// Calls that the trait cannot refuse, and that did nothing: memory outside of the span or
    /// there already, pages that are not handed out.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Looks at all records of the core, for tests. Slow.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub fn validate(&mut self) -> Result<(), Fault> {
        self.core.validate()
    }

    /// The core's figures.
    pub fn stats(&mut self) -> Stats<'_, 'a, KernelPlatform<'static, Alone>> {
        self.core.stats()
    }

    /// So many pages, and their alignment in pages.
    fn wanted(&self, count: usize, align: usize) -> AllocResult<(u64, u64)> {
        if count == 0 || !align.is_power_of_two() || align < PAGE_SIZE {
            return Err(AllocError::InvalidParam);
        }
        Ok((count as u64, (align / PAGE_SIZE) as u64))
    }
}

impl BaseAllocator for Pages<'_> {
    /// As [`add_memory`](BaseAllocator::add_memory). What cannot be used is counted
    /// ([`Pages::refused`]).
    fn init(&mut self, start: usize, size: usize) {
        if self.add_memory(start, size).is_err() {
            self.refused += 1;
        }
    }

    fn add_memory(&mut self, start: usize, size: usize) -> AllocResult {
        let end = start.checked_add(size).ok_or(AllocError::InvalidParam)?;
        let pages = pages_of(start, end);
        if pages.is_empty() || pages.start < self.span.start || pages.end > self.span.end {
            return Err(AllocError::InvalidParam);
        }
        let count = pages.end.0 - pages.start.0;
        self.core.online(ZoneId(0), pages).map_err(|_| AllocError::MemoryOverlap)?;
        self.core.setup();
        self.total += count;
        Ok(())
    }
}

impl PageAllocator for Pages<'_> {
    const PAGE_SIZE: usize = PAGE_SIZE;

    fn alloc_pages(&mut self, num_pages: usize, align: usize) -> AllocResult<usize> {
        let (count, align) = self.wanted(num_pages, align)?;
        let pfn = pages::alloc(&self.core, count, align, Gfp::KERNEL | Gfp::MEMALLOC);
        let pfn = pfn.map_err(|_| AllocError::NoMemory)?;
        self.used += count;
        Ok(pfn.0 as usize * PAGE_SIZE)
    }

    fn alloc_pages_at(
        &mut self,
        base: usize,
        num_pages: usize,
        align: usize,
    ) -> AllocResult<usize> {
        let (count, _) = self.wanted(num_pages, align)?;
        let bytes = num_pages.checked_mul(PAGE_SIZE).and_then(|bytes| base.checked_add(bytes));
        let end = bytes.filter(|_| base.is_multiple_of(align)).ok_or(AllocError::InvalidParam)?;
        let at = self.core.ranges().alloc_at(pages_of(base, end), Gfp::KERNEL | Gfp::MEMALLOC);
        at.map_err(|_| AllocError::NoMemory)?;
        self.used += count;
        Ok(base)
    }

    /// Takes back pages that were allocated, or any part of them. What is not handed out stays as
    /// it is, and is counted ([`Pages::refused`]).
    fn dealloc_pages(&mut self, pos: usize, num_pages: usize) {
        let bytes = num_pages.checked_mul(PAGE_SIZE).and_then(|bytes| pos.checked_add(bytes));
        let pages = bytes.filter(|_| pos.is_multiple_of(PAGE_SIZE)).map(|end| pages_of(pos, end));
        match pages.map(|pages| pages::free(&self.core, pages)) {
            Some(Ok(())) => self.used -= num_pages as u64,
            _ => self.refused += 1,
        }
    }

    fn total_pages(&self) -> usize {
        self.total as usize
    }

    fn used_pages(&self) -> usize {
        self.used as usize
    }

    fn available_pages(&self) -> usize {
        (self.total - self.used) as usize
    }
}
