//! Pages in place: rights to the bytes of a cached page, for as long as a program holds them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::frames::{Exclusive, Shared};

/// A page that stays where it is until this is dropped. It keeps its file, cache and pool in use,
/// and its bytes are borrowed from it:
///
/// ```compile_fail,E0505
/// # fn f(file: zonal_cache::CachedFile) -> std::io::Result<u8> {
/// let page = file.pin(0)?;
/// drop(file);
/// Ok(page[0])
/// # }
/// ```
/// ```compile_fail,E0505
/// # fn f(file: &zonal_cache::CachedFile) -> std::io::Result<u8> {
/// let page = file.pin(0)?;
/// let bytes: &[u8] = &page;
/// drop(page);
/// Ok(bytes[0])
/// # }
/// ```
pub struct PinnedPage<'f> {
    page: Shared<'f>,
    len: usize,
}

impl<'f> PinnedPage<'f> {
    /// The first `len` bytes of a page, for as long as the right to it exists.
    pub(crate) fn new(page: Shared<'f>, len: usize) -> PinnedPage<'f> {
        PinnedPage { page, len }
    }

    /// The right and the length.
    pub(crate) fn into_parts(self) -> (Shared<'f>, usize) {
        (self.page, self.len)
    }
}

impl Deref for PinnedPage<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.page.bytes()[..self.len]
    }
}

impl fmt::Debug for PinnedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPage").field("len", &self.len).finish()
    }
}

/// An exclusive, writable page until this is dropped. A [`PinnedPage`] cannot change it, and its
/// bytes cannot outlive this:
///
/// ```compile_fail,E0594
/// # fn f(file: &zonal_cache::CachedFile) -> std::io::Result<()> {
/// let mut page = file.pin(0)?;
/// page[0] = 1;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail,E0505
/// # fn f(file: &zonal_cache::CachedFile) -> std::io::Result<()> {
/// let mut page = file.pin_mut(0)?;
/// let bytes: &mut [u8] = &mut page;
/// drop(page);
/// bytes[0] = 1;
/// # Ok(())
/// # }
/// ```
pub struct PinnedPageMut<'f> {
    page: Exclusive<'f>,
    len: usize,
}

impl<'f> PinnedPageMut<'f> {
    /// As [`PinnedPage::new`], for an exclusive right.
    pub(crate) fn new(page: Exclusive<'f>, len: usize) -> PinnedPageMut<'f> {
        PinnedPageMut { page, len }
    }

    /// The right and the length.
    pub(crate) fn into_parts(self) -> (Exclusive<'f>, usize) {
        (self.page, self.len)
    }
}

impl PinnedPageMut<'_> {
    /// For a page of a [`Pager`](crate::Pager): the engine's log must be safe up to `lsn` before
    /// the page is written ([`Backing::before_write`](crate::Backing::before_write)). The highest
    /// number since the page was last written counts; 0 is none. Nothing for a page of a file.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.page.raise_lsn(lsn);
    }
}

impl Deref for PinnedPageMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.page.bytes()[..self.len]
    }
}

impl DerefMut for PinnedPageMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.page.bytes_mut()[..self.len]
    }
}

impl fmt::Debug for PinnedPageMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPageMut").field("len", &self.len).finish()
    }
}
