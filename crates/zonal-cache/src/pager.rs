//! Pages of one backing, as an engine uses them.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::errors::Cursor;
use crate::file::File;
use crate::fill::{READ_MAX, Touch};
use crate::find::{Held, Need, Pages, cut};
use crate::flusher::PATIENCE;
use crate::frames::{Exclusive, Frames, Shared};
use crate::inner::{Files, Inner};
use crate::lock::Until;
use crate::owner::Owner;
use crate::pin::{PinnedPage, PinnedPageMut};
use crate::pin_owned::{OwnedPinnedPage, OwnedPinnedPageMut};
use crate::readahead::Window;
use crate::state::PageState;
use crate::writeback::Busy;

/// Pages have numbers below this, so that every byte of them has an offset.
const PAGES_MAX: u64 = 1 << 47;

/// A handle of the pages of one [`Backing`](crate::Backing). Threads may share it by reference; a
/// clone is a handle of its own, which reports each error itself.
///
/// Pages are numbered as the engine likes, below 2^47. Readers of a page share it; a writer has it
/// alone. A thread that wants a page that another holds waits for it, without fairness: an engine
/// takes its pages in an order of its own, as it would take latches, and does not ask for a page
/// that the same thread holds in the other way.
///
/// A thread must not hold a lock that its backing takes while it calls this
/// ([contract](crate::Backing#contract)).
pub struct Pager {
    owner: Arc<Owner>,
    file: Arc<File>,
    /// Errors that this handle has reported.
    told: Cursor,
}

impl fmt::Debug for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pager").field("page_bytes", &self.page_bytes()).finish_non_exhaustive()
    }
}

impl Pager {
    pub(crate) fn new(owner: Arc<Owner>, file: Arc<File>, files: &mut Files) -> Pager {
        let told = file.errors.listen();
        files.hold(&file);
        Pager { owner, file, told }
    }

    fn inner(&self) -> &Inner {
        &self.owner.inner
    }

    fn pages(&self, held: Held) -> Pages<'_> {
        Pages { inner: self.inner(), file: &self.file, held }
    }

    fn frames(&self) -> &Frames {
        &self.inner().frames
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.frames().page_bytes()
    }

    /// The cache, for a call that is not from inside a backing of it, about a page that can be.
    fn enter(&self, page: u64) -> io::Result<&Inner> {
        self.inner().entry.check_outside()?;
        self.inner().entry.check_not_forked()?;
        if page >= PAGES_MAX {
            let text = format!("invalid page number: {page} (below 2^47)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.inner())
    }

    /// `None`: another thread holds it, and is not waited for.
    fn try_share(&self, page: u64, held: Held) -> io::Result<Option<Shared<'_>>> {
        self.enter(page)?;
        let window = || Window { start: page, pages: 1, marker: None };
        let found = self.pages(held).page(page, Touch::Used, || Some(()), window)?;
        Ok(found.map(|(page, ..)| page))
    }

    fn share(&self, page: u64) -> io::Result<Shared<'_>> {
        // Waited for, and every page exists: it is there.
        self.try_share(page, Held::Wait)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn exclude(&self, page: u64, need: Need) -> io::Result<Exclusive<'_>> {
        // As for `share`.
        self.try_exclude(page, need, Held::Wait)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// `None`: another thread holds it, and is not waited for.
    fn try_exclude(&self, page: u64, need: Need, held: Held) -> io::Result<Option<Exclusive<'_>>> {
        let inner = self.enter(page)?;
        inner.entry.check_here()?;
        inner.balance(&self.file)?;
        let found = self.pages(held).page_to_change(page, || need);
        let found = found.map_err(|error| inner.why_no_page(&self.file, error))?;
        let Some((mut right, _)) = found else { return Ok(None) };
        if need == Need::Page {
            self.file.written_over(page);
            right.bytes_mut().fill(0);
            right.set(PageState::UPTODATE);
        }
        inner.soil(&self.file, page, &right);
        let before = right.state();
        right.set(PageState::REFERENCED);
        inner.touched(right.frame(), before);
        Ok(Some(right))
    }

    /// A page in place, to be read; from the backing if it is not in memory. It stays where it is
    /// until the pin is dropped, and nobody changes it meanwhile.
    ///
    /// # Errors
    /// The backing's; [`io::ErrorKind::OutOfMemory`] if neither the pool nor the cache has a page
    /// to give, or the error of writing that keeps pages dirty; [`LostWrites`](crate::LostWrites);
    /// [`io::ErrorKind::InvalidInput`] for a number from 2^47 on; [`io::ErrorKind::Deadlock`] from
    /// inside a backing of the cache; [`io::ErrorKind::Unsupported`] in a forked child.
    pub fn pin(&self, page: u64) -> io::Result<PinnedPage<'_>> {
        let right = self.share(page)?;
        Ok(PinnedPage::new(right, self.page_bytes()))
    }

    /// A page in place, for this pin alone, to be changed. It is dirty from now on, and is written
    /// some time after the pin is dropped, with what a panic left in it too.
    ///
    /// Waits a bounded time while too much is dirty. A forgotten pin ([`std::mem::forget`]) is held
    /// for good: its page is never written, and a checkpoint waits forever.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_mut(&self, page: u64) -> io::Result<PinnedPageMut<'_>> {
        let right = self.exclude(page, Need::Bytes)?;
        Ok(PinnedPageMut::new(right, self.page_bytes()))
    }

    /// As [`pin_mut`](Self::pin_mut), for a page that will be all new: it is zero, and was not
    /// read.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin), but for those of reading.
    pub fn pin_new(&self, page: u64) -> io::Result<PinnedPageMut<'_>> {
        let right = self.exclude(page, Need::Page)?;
        Ok(PinnedPageMut::new(right, self.page_bytes()))
    }

    /// As [`pin`](Self::pin), but waits for no other holder of the page: `None` if a thread, this
    /// one included, has it for itself.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn try_pin(&self, page: u64) -> io::Result<Option<PinnedPage<'_>>> {
        let right = self.try_share(page, Held::Leave)?;
        Ok(right.map(|right| PinnedPage::new(right, self.page_bytes())))
    }

    /// As [`pin_mut`](Self::pin_mut), but waits for no other holder of the page: `None` if anybody,
    /// this thread included, has a pin of it, or while it is written. An engine that takes pages
    /// against its order tries.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn try_pin_mut(&self, page: u64) -> io::Result<Option<PinnedPageMut<'_>>> {
        let right = self.try_exclude(page, Need::Bytes, Held::Leave)?;
        Ok(right.map(|right| PinnedPageMut::new(right, self.page_bytes())))
    }

    /// As [`pin`](Self::pin), without the borrow: the pin may go to other threads and outlive every
    /// other handle.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_owned(self: &Arc<Self>, page: u64) -> io::Result<OwnedPinnedPage> {
        let right = self.share(page)?;
        Ok(OwnedPinnedPage::new(right.keep(self, Pager::frames), self.page_bytes()))
    }

    /// As [`pin_mut`](Self::pin_mut), without the borrow.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_mut_owned(self: &Arc<Self>, page: u64) -> io::Result<OwnedPinnedPageMut> {
        let right = self.exclude(page, Need::Bytes)?;
        Ok(OwnedPinnedPageMut::new(right.keep(self, Pager::frames), self.page_bytes()))
    }

    /// Reads pages that will be wanted, in a thread of the cache: a hint. Errors are told to those
    /// who pin the pages.
    pub fn prefetch(&self, pages: Range<u64>) {
        let end = pages.end.min(PAGES_MAX);
        if pages.start >= end || self.inner().entry.check().is_err() {
            return;
        }
        let most = u64::from(READ_MAX);
        let windows = (pages.start..end).step_by(READ_MAX as usize);
        // The queue is short; what does not fit is not read ahead.
        for start in windows.take(Window::QUEUE_MAX) {
            let window = Window { start, pages: (end - start).min(most) as u32, marker: None };
            self.inner().windows.push(&self.file, window);
        }
    }

    /// Writes every page that is dirty now, waits for those that a writer has pinned, and syncs the
    /// backing. Other threads go on meanwhile; what they change after the call began may or may not
    /// be in it.
    ///
    /// `Ok` means: everything that was changed before the call is safe, and nothing has failed
    /// since this handle last reported an error. Do not hold a page for writing in this thread.
    ///
    /// # Errors
    /// A failure now, or in the background since this handle last reported one: every handle that
    /// was open at the time reports it once. Pages that are in memory stay dirty, and the next
    /// checkpoint writes them again; those that are not are [lost](crate::LostWrites), which every
    /// checkpoint says until they were written anew or the loss is [accepted](Self::accept_loss).
    pub fn checkpoint(&self) -> io::Result<()> {
        let inner = self.enter(0)?;
        inner.entry.check_here()?;
        let synced = inner.sync_file(&self.file);
        let earlier = self.file.errors.tell(&self.told);
        synced.and_then(|()| earlier.map_or(Ok(()), Err))
    }

    /// Drops the pages from `first` on, dirty or not, without writing them: the engine has cut its
    /// storage there, or will. Waits until none of them is pinned, and until no page of the storage
    /// is being read; meanwhile others go on, but let this call go first where they can.
    ///
    /// # Errors
    /// In a forked child, and inside a backing of the cache.
    pub fn truncate(&self, first: u64) -> io::Result<()> {
        let inner = self.enter(0)?;
        inner.entry.check_here()?;
        while let Some(busy) = self.try_truncate(inner, first) {
            // Nothing is held here, so the page's user can go on.
            inner.frames.wait(busy, Until::Unused);
        }
        Ok(())
    }

    /// As [`truncate`](Self::truncate); returns the frame of a page that another thread holds.
    fn try_truncate(&self, inner: &Inner, first: u64) -> Option<u32> {
        let _cut = cut(&self.file);
        match self.pages(Held::Wait).hold_from(first) {
            Ok(held) => held.into_iter().for_each(|(_, page)| inner.discard(&self.file, page)),
            Err(busy) => return Some(busy),
        }
        self.file.index.forget(first);
        self.file.cut_dirty(first);
        None
    }

    /// Pages that were written and are lost: the cache had given them up after it wrote them, and
    /// the sync that followed failed. If there are very many, near ranges are joined. None in a
    /// forked child.
    pub fn lost(&self) -> Vec<Range<u64>> {
        if !self.owner.is_here() {
            return Vec::new();
        }
        self.file.lost().iter().collect()
    }

    /// Accepts that the pages of [`lost`](Self::lost) are lost, and returns which: from now on they
    /// read as the backing has them. An engine with a log replays it there.
    ///
    /// # Errors
    /// In a forked child, and inside a backing of the cache.
    pub fn accept_loss(&self) -> io::Result<Vec<Range<u64>>> {
        let inner = self.enter(0)?;
        inner.entry.check_here()?;
        Ok(inner.accept_loss(&self.file).iter().collect())
    }

    /// A [checkpoint](Self::checkpoint), and the end of this handle. If it was the last one, the
    /// cache drops the pages and the backing.
    ///
    /// # Errors
    /// As for [`checkpoint`](Self::checkpoint). Dirty pages stay in the cache, which tries again.
    pub fn close(self) -> io::Result<()> {
        self.checkpoint()?;
        let (owner, file) = (Arc::clone(&self.owner), Arc::clone(&self.file));
        drop(self);
        owner.inner.forget(&file, Busy::Until(Instant::now() + PATIENCE));
        Ok(())
    }
}

impl Clone for Pager {
    /// One more handle. It knows of the errors that this one has reported.
    fn clone(&self) -> Pager {
        // Nor does the drop of a handle count in a forked child.
        if self.owner.is_here() {
            self.inner().files_mut().hold(&self.file);
        }
        let (owner, file) = (Arc::clone(&self.owner), Arc::clone(&self.file));
        Pager { owner, file, told: self.told.clone() }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if self.owner.is_here() {
            self.inner().released(&self.file);
        }
    }
}
