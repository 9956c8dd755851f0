//! The kernel's memory: pages are `zonal-core`'s, bytes those of ArceOS' TLSF, which gets pages
//! when it has no more.
//!
//! # Invariants
//! - **ARCEOS-1** records of the page allocator lie at the start of the largest free range, which
//!   is mapped; that part of it is given to nobody else.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use ax_allocator::{BaseAllocator, ByteAllocator, PageAllocator, TlsfByteAllocator};
use kspin::SpinNoIrq;
use zonal_arceos::{PAGE_SIZE, Pages, Span};

use crate::memory::Free;

/// Pages that the allocator of bytes gets at least.
const AT_LEAST: usize = 64;

struct Memory {
    pages: Pages<'static>,
    bytes: TlsfByteAllocator,
    /// Pages that `bytes` got.
    taken: usize,
}

static MEMORY: SpinNoIrq<Option<Memory>> = SpinNoIrq::new(None);

/// Makes the page allocator and gives it all memory, and makes that of bytes, without any.
pub fn bring_up(free: &Free) {
    let start = free.iter().map(|range| range.start).min().expect("memory");
    let end = free.iter().map(|range| range.end).max().expect("memory");
    let largest = free.iter().max_by_key(|range| range.len()).expect("memory").clone();
    let span = Span::new(start, end);
    let need = span.record_bytes().expect("a span that can be described");
    let at = largest.start.next_multiple_of(PAGE_SIZE);
    // The span behind the records.
    let behind = at + need.next_multiple_of(PAGE_SIZE);
    let rest = behind + PAGE_SIZE;
    assert!(rest < largest.end, "the largest range has no room for the records");
    // SAFETY: (1) mapped memory that nobody else gets (ARCEOS-1); (2) any bytes will do.
    let (span, records): (&'static Span, _) = unsafe {
        let kept = behind as *mut Span;
        kept.write(span);
        (&*kept, core::slice::from_raw_parts_mut(at as *mut MaybeUninit<u8>, need))
    };
    let mut pages = Pages::new(span, records).expect("the records fit");
    for range in free.iter() {
        let from = if *range == largest { rest } else { range.start };
        // A range without a whole page is refused, and counted.
        pages.init(from, range.end - from);
    }
    assert_eq!(pages.refused(), 0, "all ranges have pages");
    *MEMORY.lock() = Some(Memory { pages, bytes: TlsfByteAllocator::new(), taken: 0 });
}

/// Runs `body` with the page allocator.
pub fn with_pages<R>(body: impl FnOnce(&mut Pages<'static>) -> R) -> R {
    body(&mut MEMORY.lock().as_mut().expect("it is up").pages)
}

/// Pages that the allocator of bytes has.
pub fn pages_of_bytes() -> usize {
    MEMORY.lock().as_ref().expect("it is up").taken
}

/// The allocator of what the kernel allocates.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

impl Memory {
    fn alloc(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        if let Ok(at) = self.bytes.alloc(layout) {
            return Some(at);
        }
        // What the largest block of it loses to its records, and to the alignment.
        let bytes = layout.size() + layout.align() + PAGE_SIZE;
        let pages = bytes.div_ceil(PAGE_SIZE).next_power_of_two().max(AT_LEAST);
        let at = self.pages.alloc_pages(pages, PAGE_SIZE).ok()?;
        self.bytes.add_memory(at, pages * PAGE_SIZE).ok()?;
        self.taken += pages;
        self.bytes.alloc(layout).ok()
    }
}

// SAFETY: (1) blocks are TLSF's, which hands out each byte once, out of pages that the page
// allocator hands out once; (2) under one lock, with interrupts masked.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = MEMORY.lock().as_mut().and_then(|memory| memory.alloc(layout));
        block.map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let (Some(memory), Some(at)) = (MEMORY.lock().as_mut(), NonNull::new(at)) {
            memory.bytes.dealloc(at, layout);
        }
    }
}
