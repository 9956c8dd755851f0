//! Owned pages without a lifetime: a block that may go to any thread, and outlive every handle of
//! its pool. What keeps the pool alive is said in `life.rs`.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use zonal_core::types::Order;

use super::bytes::owns_bytes;
use super::{Pages, Pool, Shared, life};
use crate::rseq::FastRef;

/// A block of 2^order pages, aligned to its size, that borrows nothing: it goes to other threads,
/// into structures and across `await`. Freed when dropped, by any thread.
///
/// It costs what [`Pages`] cost: there is no count of references per block. The pool's memory stays
/// until its last handle and its last owned block have gone; the pool's threads end with the last
/// handle.
///
/// ```
/// use zonal::{Order, OwnedPages, Pool};
///
/// let pool = Pool::builder().size(64 << 20).build()?;
/// let mut page: OwnedPages = pool.alloc(Order::ZERO)?.into_owned();
/// let filled = std::thread::spawn(move || {
///     page[..5].copy_from_slice(b"hello");
///     page
/// });
/// drop(pool); // the page keeps the memory
/// let page = filled.join().unwrap();
/// assert_eq!(&page[..5], b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedPages {
    /// The pool, alive while this block is handed out (LIFE-1).
    pool: NonNull<Shared>,
    start: NonNull<u8>,
    order: Order,
}

owns_bytes!(OwnedPages, block: block.order.bytes());

impl<'p> Pages<'p> {
    /// The same block without the borrow of the pool.
    #[inline]
    pub fn into_owned(self) -> OwnedPages {
        let pool = self.pool();
        let (start, order) = self.into_raw();
        OwnedPages::new(pool, start, order)
    }
}

impl OwnedPages {
    /// `start` is a block of `order` of `pool` that nobody else owns.
    #[inline]
    fn new(pool: &Pool, start: NonNull<u8>, order: Order) -> OwnedPages {
        OwnedPages { pool: life::owner(pool), start, order }
    }

    /// The same block, borrowed from a handle of its pool.
    ///
    /// # Errors
    /// The block itself, if it is another pool's.
    pub fn into_pages(self, pool: &Pool) -> Result<Pages<'_>, OwnedPages> {
        if !self.is_of(pool) {
            return Err(self);
        }
        let (start, order) = self.into_raw();
        Ok(Pages::new(pool, start, order))
    }

    /// Whether it is a block of this pool.
    #[inline]
    pub fn is_of(&self, pool: &Pool) -> bool {
        life::is_of(self.pool, pool)
    }

    /// The block's order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }
    /// The raw block, to be freed by [`Pool::free_pages`] or taken over by
    /// [`from_raw`](Self::from_raw). Until then it keeps the pool's memory, with or without
    /// handles.
    #[inline]
    pub fn into_raw(self) -> (NonNull<u8>, Order) {
        let pages = ManuallyDrop::new(self);
        (pages.start, pages.order)
    }
    /// Takes a raw block over.
    ///
    /// # Safety
    /// 1. `start` is a block of `order` from `pool`, handed out.
    /// 2. Nobody else owns it or uses its memory: it is freed when the result is dropped.
    #[inline]
    pub unsafe fn from_raw(pool: &Pool, start: NonNull<u8>, order: Order) -> OwnedPages {
        OwnedPages::new(pool, start, order)
    }
}

impl Drop for OwnedPages {
    #[inline]
    fn drop(&mut self) {
        let OwnedPages { pool, start, order } = *self;
        // By value: no reference to the pool lives across a free that may end it (LIFE-2).
        //
        // SAFETY: (1) the block is handed out, so the pool is alive (LIFE-1).
        let fast: FastRef = unsafe { pool.as_ref() }.fast;
        let freed = match order {
            Order::ZERO => match fast.push_page(start) {
                Ok(()) => true,
                Err(frame) => fast.push_page_again(frame),
            },
            _ => fast.push_block(start, order),
        };
        if !freed {
            // SAFETY: (1) the block is ours and goes out of use here.
            unsafe { life::free_by_core(pool, start, order) };
        }
    }
}

impl fmt::Debug for OwnedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPages")
            .field("start", &self.start)
            .field("order", &self.order)
            .finish()
    }
}
