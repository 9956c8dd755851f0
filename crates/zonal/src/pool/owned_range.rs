//! Owned ranges without a lifetime: pages in a row that may go to any thread, and outlive every
//! handle of their pool. What keeps the pool alive is said in `life`.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

use zonal_core::gfp::Gfp;
use zonal_core::types::PAGE_SIZE;

use super::bytes::owns_bytes;
use super::range::Extent;
use super::{PageRange, Pool, RangeError, Shared, life};
use crate::error::FreeError;

/// Pages in a row that borrow nothing: they go to other threads, into structures and across
/// `await`. Freed when dropped, by any thread.
///
/// As with [`OwnedPages`](super::OwnedPages), the pool's memory stays until its last handle and all
/// that is owned have gone. All methods work without a handle, too.
///
/// ```
/// use zonal::{OwnedRange, Pool};
///
/// let pool = Pool::builder().size(64 << 20).build()?;
/// let mut table: OwnedRange = pool.ranges().alloc(5)?.into_owned(); // 20 KiB
/// drop(pool); // the table keeps the memory
/// let filled = std::thread::spawn(move || {
///     table[20_000] = 1;
///     table
/// });
/// let (front, back) = filled.join().unwrap().split(3)?;
/// drop(front);
/// assert_eq!(back[20_000 - 3 * 4096], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedRange {
    /// The pool, alive while these pages are handed out (LIFE-1).
    pool: NonNull<Shared>,
    start: NonNull<u8>,
    pages: usize,
}

owns_bytes!(OwnedRange, range: range.pages * PAGE_SIZE);

impl<'p> PageRange<'p> {
    /// The same range without the borrow of the pool.
    pub fn into_owned(self) -> OwnedRange {
        let (pool, extent) = (self.pool(), self.extent());
        let _ = self.into_raw();
        OwnedRange::new(life::owner(pool), extent)
    }
}

impl OwnedRange {
    /// `extent` is a range of `pool`, or a part of one, that nobody else owns.
    fn new(pool: NonNull<Shared>, Extent { start, pages }: Extent) -> OwnedRange {
        OwnedRange { pool, start, pages }
    }

    fn extent(&self) -> Extent {
        Extent { start: self.start, pages: self.pages }
    }

    /// The same range, borrowed from a handle of its pool.
    ///
    /// # Errors
    /// The range itself, if it is another pool's.
    pub fn into_range(self, pool: &Pool) -> Result<PageRange<'_>, OwnedRange> {
        if !self.is_of(pool) {
            return Err(self);
        }
        let range = ManuallyDrop::new(self);
        Ok(PageRange::new(pool, range.extent()))
    }

    /// Whether it is a range of this pool.
    pub fn is_of(&self, pool: &Pool) -> bool {
        life::is_of(self.pool, pool)
    }
    /// Pages of the range.
    pub fn pages(&self) -> usize {
        self.pages
    }
    /// The raw range and its pages, to be freed by [`Ranges::free_raw`](super::Ranges::free_raw) or
    /// taken over by [`from_raw`](Self::from_raw), at once or in parts. Until then it keeps the
    /// pool's memory, with or without handles.
    pub fn into_raw(self) -> (NonNull<u8>, usize) {
        let range = ManuallyDrop::new(self);
        (range.start, range.pages)
    }

    /// Takes a raw range over.
    ///
    /// # Safety
    /// 1. `start` is the first of `pages` pages of a range from `pool`, or of a part of one, handed
    ///    out.
    /// 2. Nobody else owns them or uses their memory: they are freed when the result is dropped.
    pub unsafe fn from_raw(pool: &Pool, start: NonNull<u8>, pages: usize) -> OwnedRange {
        OwnedRange::new(life::owner(pool), Extent { start, pages })
    }

    /// Takes the `more` pages right behind the range, whose bytes are what their last owner left.
    ///
    /// No consumer is asked to give up pages: one might own this range. Where that is wanted,
    /// [`into_range`](Self::into_range) borrows it for [`PageRange::try_grow`].
    ///
    /// # Errors
    /// [`RangeError`] names the first page that cannot be had. The range is as before.
    pub fn try_grow(&mut self, more: usize) -> Result<(), RangeError> {
        let extent = self.extent();
        self.visit(|pool| {
            // NOWAIT: no code of the user is called (`life::visit`).
            extent.grow(pool, more, Gfp::NOWAIT).map(|()| ((), more as i64))
        })?;
        self.pages += more;
        Ok(())
    }

    /// Frees all but the first `pages` pages. With 0, or at least as many as there are, nothing
    /// happens: a range has at least one page, and [`drop`] frees all of them.
    ///
    /// # Errors
    /// [`FreeError`] only if the range is not this owner's, which takes unsafe code.
    pub fn shrink(&mut self, pages: usize) -> Result<(), FreeError> {
        let extent = self.extent();
        let shrink = |pool: &Shared| {
            let freed = extent.shrink(pool, pages)?;
            Ok((freed, -(freed as i64)))
        };
        self.pages -= self.visit(shrink)?;
        Ok(())
    }

    /// Two ranges, the first of `pages` pages.
    ///
    /// # Errors
    /// The reason, if one of them would be empty. The range is freed then.
    pub fn split(self, pages: usize) -> Result<(OwnedRange, OwnedRange), FreeError> {
        let extent = self.extent();
        let halves = self.visit(|pool| extent.split(pool, pages).map(|halves| (halves, 0)))?;
        let pool = self.pool;
        let _ = self.into_raw();
        Ok(halves.map(|half| OwnedRange::new(pool, half)).into())
    }

    /// Frees the pages in `part`, counted from the first, and returns what stays in front of them
    /// and behind them.
    ///
    /// # Errors
    /// The reason, if the part is empty or not inside the range. The range is freed then.
    pub fn free_part(
        self,
        part: Range<usize>,
    ) -> Result<(Option<OwnedRange>, Option<OwnedRange>), FreeError> {
        let extent = self.extent();
        let pages = part.len() as i64;
        let free = |pool: &Shared| extent.free_part(pool, part).map(|rest| (rest, -pages));
        let rest = self.visit(free)?;
        // The pool may be gone, if that was all of the range.
        let pool = self.pool;
        let _ = self.into_raw();
        Ok(rest.map(|rest| rest.map(|rest| OwnedRange::new(pool, rest))).into())
    }

    /// Calls `work`, which calls no code of the user, with the pool of this range.
    fn visit<T, E>(&self, work: impl FnOnce(&Shared) -> Result<(T, i64), E>) -> Result<T, E> {
        // SAFETY: (1) the range is handed out; (2) as said above, by the callers in this file.
        unsafe { life::visit(self.pool, work) }.map_err(|(error, _)| error)
    }
}

impl Drop for OwnedRange {
    fn drop(&mut self) {
        let extent = self.extent();
        let pages = -(extent.pages as i64);
        // SAFETY: (1) the range is handed out; (2) a free calls nobody.
        let freed =
            unsafe { life::visit(self.pool, |pool| extent.free(pool).map(|()| ((), pages))) };
        if let Err((error, pool)) = freed {
            pool.misuses.tell(&extent.misuse(error));
        }
    }
}

impl fmt::Debug for OwnedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnedRange { start, pages, .. } = self;
        f.debug_struct("OwnedRange").field("start", start).field("pages", pages).finish()
    }
}
