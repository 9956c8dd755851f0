//! Owned pages: a block that frees itself.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use zonal_core::types::Order;

use super::bytes::owns_bytes;
use super::{FreedBy, Misuse, Pool};

/// A block of 2^order pages, aligned to its size. Freed when dropped.
pub struct Pages<'p> {
    pool: &'p Pool,
    start: NonNull<u8>,
    order: Order,
}

owns_bytes!(Pages<'_>, block: block.order.bytes());

impl<'p> Pages<'p> {
    /// `start` is a block of `order` that the caller has just got from `pool`.
    #[inline]
    pub(super) fn new(pool: &'p Pool, start: NonNull<u8>, order: Order) -> Pages<'p> {
        Pages { pool, start, order }
    }

    /// The pool that it is borrowed from.
    #[inline]
    pub(super) fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// The block's order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }
    /// The raw block, to be freed by [`Pool::free_pages`].
    pub fn into_raw(self) -> (NonNull<u8>, Order) {
        let pages = ManuallyDrop::new(self);
        (pages.start, pages.order)
    }
    /// Takes a raw block over.
    ///
    /// # Safety
    /// 1. `start` is a block of `order` from `pool`, handed out and without another owner.
    pub unsafe fn from_raw(pool: &'p Pool, start: NonNull<u8>, order: Order) -> Pages<'p> {
        Pages { pool, start, order }
    }
}

impl Drop for Pages<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: (1) the block is ours and goes out of use here.
        let freed = unsafe { self.pool.free_pages(self.start, self.order) };
        if let Err(error) = freed {
            let Pages { start, order, .. } = *self;
            self.pool.shared.misuses.tell(&Misuse { start, order, error, by: FreedBy::Drop });
        }
    }
}

impl fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("start", &self.start).field("order", &self.order).finish()
    }
}
