//! Pages in place that borrow nothing: they keep the handle of their file instead.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::frames::{Exclusive, Kept, Shared};
use crate::handle::CachedFile;

/// As [`PinnedPage`](crate::PinnedPage), but it borrows nothing: it goes to other threads, into
/// structures and across `await`. It keeps the handle of its file or of its pages, and so the cache
/// and the pool, at the cost of one reference count: [`CachedFile::pin_owned`],
/// [`Pager::pin_owned`](crate::Pager::pin_owned).
pub struct OwnedPinnedPage {
    page: Kept<Shared<'static>>,
    len: usize,
}

impl OwnedPinnedPage {
    pub(crate) fn new(page: Kept<Shared<'static>>, len: usize) -> OwnedPinnedPage {
        OwnedPinnedPage { page, len }
    }
}

impl Deref for OwnedPinnedPage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.page.bytes()[..self.len]
    }
}

impl AsRef<[u8]> for OwnedPinnedPage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedPinnedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPinnedPage").field("len", &self.len).finish()
    }
}

/// As [`PinnedPageMut`](crate::PinnedPageMut), but it borrows nothing:
/// [`CachedFile::pin_mut_owned`], [`Pager::pin_mut_owned`](crate::Pager::pin_mut_owned).
pub struct OwnedPinnedPageMut {
    page: Kept<Exclusive<'static>>,
    len: usize,
}

impl OwnedPinnedPageMut {
    pub(crate) fn new(page: Kept<Exclusive<'static>>, len: usize) -> OwnedPinnedPageMut {
        OwnedPinnedPageMut { page, len }
    }
}

impl OwnedPinnedPageMut {
    /// As [`PinnedPageMut::set_lsn`](crate::PinnedPageMut::set_lsn).
    pub fn set_lsn(&mut self, lsn: u64) {
        self.page.raise_lsn(lsn);
    }
}

impl Deref for OwnedPinnedPageMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.page.bytes()[..self.len]
    }
}

impl DerefMut for OwnedPinnedPageMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.page.bytes_mut()[..self.len]
    }
}

impl fmt::Debug for OwnedPinnedPageMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPinnedPageMut").field("len", &self.len).finish()
    }
}

impl CachedFile {
    /// As [`pin`](Self::pin), without the borrow: the page may outlive every other handle, and
    /// keeps the file in use meanwhile.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Arc::new(zonal::Pool::builder().size(16 << 20).build()?);
    /// let cache = zonal_cache::Cache::new(pool)?;
    /// let file = Arc::new(cache.create(dir.path().join("data"))?);
    /// file.write_at(b"hello", 0)?;
    /// let page = file.pin_owned(0)?;
    /// drop((file, cache));
    /// std::thread::spawn(move || assert_eq!(&page[..], b"hello")).join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_owned(self: &Arc<Self>, index: u64) -> io::Result<OwnedPinnedPage> {
        let (page, len) = self.pin(index)?.into_parts();
        Ok(OwnedPinnedPage::new(page.keep(self, CachedFile::frames), len))
    }

    /// As [`pin_mut`](Self::pin_mut), without the borrow.
    ///
    /// # Errors
    /// As for [`pin_mut`](Self::pin_mut).
    pub fn pin_mut_owned(self: &Arc<Self>, index: u64) -> io::Result<OwnedPinnedPageMut> {
        let (page, len) = self.pin_mut(index)?.into_parts();
        Ok(OwnedPinnedPageMut::new(page.keep(self, CachedFile::frames), len))
    }
}
