//! Owned pages: a block that frees itself.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zonal_core::types::Order;

use super::{FreedBy, Misuse, Pool};

/// A block of 2^order pages, aligned to its size. Freed when dropped.
pub struct Pages<'p> {
    pool: &'p Pool,
    start: NonNull<u8>,
    order: Order,
}

// SAFETY: (1) a block is owned memory, and a pool is shared between threads by reference.
unsafe impl Send for Pages<'_> {}
// SAFETY: (1) `&Pages` gives `&[u8]` only.
unsafe impl Sync for Pages<'_> {}

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
    /// Bytes of the block.
    #[inline]
    pub fn len(&self) -> usize {
        self.order.bytes()
    }
    /// Never: a block has at least one page.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }
    /// First byte.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }
    /// First byte.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
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

impl Deref for Pages<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: (1) the block is ours, mapped for as long as the pool, and every byte of an
        // anonymous mapping is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl DerefMut for Pages<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: (1) as for `deref`, and `&mut self` excludes other readers.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.order.bytes()) }
    }
}

impl AsRef<[u8]> for Pages<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
impl AsMut<[u8]> for Pages<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
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
