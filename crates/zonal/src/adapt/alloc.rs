//! A pool as an `Allocator` of `allocator-api2`, for its `Vec` and `Box`, `hashbrown` and others.
//!
//! # Invariants
//! - **ALLOC-1** where a layout's memory is follows from the layout and `heap` alone, so it goes
//!   back to where it came from; every layout that fits the same memory leads to the same place.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global};

use crate::{Gfp, Order, Pages, Pool};

/// Layouts up to this many bytes, and no more strictly aligned, are small: a page for one would be
/// at least half empty.
pub const SMALL_MAX: usize = 2048;

/// Whole blocks of a pool for large layouts: each gets one block of 4 KiB to 4 MiB. A collection
/// that grows or shrinks within its block is not moved.
///
/// Small layouts, up to [`SMALL_MAX`] bytes, are refused, or passed on to the heap
/// ([`or_heap`](Self::or_heap)): a `Vec` that starts empty and grows by pushes asks for such ones
/// first. What is larger than 4 MiB is refused.
///
/// It holds a handle of the pool, so the pool lives as long as what was allocated.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use zonal::adapt::alloc::BlockAlloc;
///
/// let pool = zonal::Pool::builder().size(64 << 20).build()?;
/// let mut ids: Vec<u64, BlockAlloc> = Vec::with_capacity_in(1000, BlockAlloc::new(pool));
/// let start = ids.as_ptr();
/// ids.extend(0..1000);
/// ids.reserve_exact(24); // 8 KiB: all of the block
/// assert_eq!(ids.as_ptr(), start);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockAlloc {
    pool: Pool,
    heap: bool,
}

/// Where a layout's memory is.
enum Place {
    /// In a block of this order.
    Block(Order),
    /// On the heap.
    Heap,
}

impl BlockAlloc {
    /// Large layouts from this pool; small ones are refused.
    pub fn new(pool: Pool) -> BlockAlloc {
        BlockAlloc { pool, heap: false }
    }

    /// Passes small layouts on to the heap. To be called before the first allocation: what this
    /// allocator or a clone of it has handed out goes back through one that passes them on as well,
    /// or does not as well.
    pub fn or_heap(mut self) -> BlockAlloc {
        self.heap = true;
        self
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where a layout is (ALLOC-1). `None`: it is larger than any block.
    fn place(&self, layout: Layout) -> Option<Place> {
        let bytes = layout.size().max(layout.align());
        // Nothing at all needs no memory of either.
        if layout.size() == 0 || (bytes <= SMALL_MAX && self.heap) {
            return Some(Place::Heap);
        }
        Order::for_bytes(bytes).map(Place::Block)
    }

    /// Memory for a new layout, which is refused if it is small. One that was large and shrinks
    /// keeps a block.
    fn allocate_new(&self, layout: Layout, gfp: Gfp) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = layout.size().max(layout.align());
        if !self.heap && layout.size() > 0 && bytes <= SMALL_MAX {
            return Err(AllocError);
        }
        self.allocate_with(layout, gfp)
    }

    fn allocate_with(&self, layout: Layout, gfp: Gfp) -> Result<NonNull<[u8]>, AllocError> {
        match self.place(layout).ok_or(AllocError)? {
            Place::Heap if gfp.contains(Gfp::ZERO) => Global.allocate_zeroed(layout),
            Place::Heap => Global.allocate(layout),
            Place::Block(order) => {
                let start = self.pool.alloc_pages(order, gfp).map_err(|_| AllocError)?;
                Ok(NonNull::slice_from_raw_parts(start, order.bytes()))
            }
        }
    }

    /// Changes the layout of memory: in place where the block stays the same.
    ///
    /// # Safety
    /// As for [`Allocator::grow`] or [`Allocator::shrink`].
    unsafe fn change(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
        gfp: Gfp,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let same = match (self.place(old), self.place(new)) {
            (Some(Place::Block(old)), Some(Place::Block(new))) => (old == new).then_some(new),
            _ => None,
        };
        if let Some(order) = same {
            if gfp.contains(Gfp::ZERO) {
                let fresh = new.size().saturating_sub(old.size());
                // SAFETY: (1) both layouts fit in the block (`place`).
                let end = unsafe { start.add(old.size()) };
                // SAFETY: (1) as above; the bytes behind the old layout are nobody's.
                unsafe { end.write_bytes(0, fresh) };
            }
            return Ok(NonNull::slice_from_raw_parts(start, order.bytes()));
        }
        let moved = self.allocate_with(new, gfp)?;
        let bytes = old.size().min(new.size());
        // SAFETY: (1) `start` has `old.size()` bytes, by this function's contract; (2) `moved` has
        // `new.size()`; (3) it was just handed out, so they do not overlap.
        unsafe { start.copy_to_nonoverlapping(moved.cast(), bytes) };
        // SAFETY: (1) this function's contract.
        unsafe { self.deallocate(start, old) };
        Ok(moved)
    }
}

// SAFETY: (1) a block is valid until it is freed or the pool goes, and the pool stays while this
// handle of it or a clone does; a moved handle is one of the same pool. (2) Clones have the same
// pool and the same `heap`, so each frees what another allocated (ALLOC-1).
unsafe impl Allocator for BlockAlloc {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_new(layout, Gfp::KERNEL)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_new(layout, Gfp::KERNEL | Gfp::ZERO)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match self.place(layout) {
            // SAFETY: (1) this function's contract: allocated with this layout, so by the heap
            // (ALLOC-1).
            Some(Place::Heap) => unsafe { Global.deallocate(start, layout) },
            Some(Place::Block(order)) => {
                // SAFETY: (1) this function's contract: a block of this order (ALLOC-1), that goes
                // here.
                drop(unsafe { Pages::from_raw(&self.pool, start, order) });
            }
            None => debug_assert!(false, "{layout:?} was never allocated"),
        }
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: (1) this function's contract.
        unsafe { self.change(start, old, new, Gfp::KERNEL) }
    }

    unsafe fn grow_zeroed(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: (1) this function's contract.
        unsafe { self.change(start, old, new, Gfp::KERNEL | Gfp::ZERO) }
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: (1) this function's contract.
        unsafe { self.change(start, old, new, Gfp::KERNEL) }
    }
}
