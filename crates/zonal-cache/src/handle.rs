//! Open files: what a program reads, writes and syncs.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use zonal::PAGE_SIZE;

use crate::disk::Disk;
use crate::durable::bytes_of;
use crate::errors::Cursor;
use crate::file::File;
use crate::fill::{READ_MAX, Touch};
use crate::find::{Held, Need, Pages, cut, uncut};
use crate::flusher::PATIENCE;
use crate::frames::{Exclusive, Frames, Shared};
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::owner::Owner;
use crate::pin::{PinnedPage, PinnedPageMut};
use crate::readahead::Ahead;
use crate::state::PageState;
use crate::stats::count;
use crate::writeback::Busy;

const PAGE: u64 = PAGE_SIZE as u64;

/// An open file of a [`Cache`](crate::Cache). Threads may share it by reference.
///
/// Reads and writes of one page exclude each other; those of several pages are not one step.
pub struct CachedFile {
    owner: Arc<Owner>,
    file: Arc<File>,
    disk: Arc<Disk>,
    writable: bool,
    ahead: Mutex<Ahead>,
    /// Errors that this handle has reported.
    told: Cursor,
    /// The page that was written last.
    written: AtomicU64,
    mapped: bool,
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFile").field("len", &self.len()).finish()
    }
}

impl CachedFile {
    pub(crate) fn new(
        owner: Arc<Owner>,
        file: Arc<File>,
        disk: Arc<Disk>,
        writable: bool,
    ) -> CachedFile {
        let told = file.errors.listen();
        CachedFile {
            owner,
            file,
            disk,
            writable,
            ahead: Mutex::default(),
            told,
            written: u64::MAX.into(),
            mapped: false,
        }
    }

    /// The table of the cache's pages.
    pub(crate) fn frames(&self) -> &Frames {
        &self.inner().frames
    }

    fn inner(&self) -> &Inner {
        &self.owner.inner
    }

    fn pages(&self) -> Pages<'_> {
        Pages { inner: self.inner(), file: &self.file, held: Held::Wait }
    }

    /// Whether pages that this handle pins count as mapped, like those of a memory-mapped file:
    /// reclaim passes them once after each use, and node reclaim skips them unless its mode allows
    /// unmapping. Default: no.
    pub fn mapped(mut self, mapped: bool) -> CachedFile {
        self.mapped = mapped;
        self
    }

    fn map(&self, frame: u32) {
        if self.mapped {
            self.inner().map(frame);
        }
    }

    /// Length in bytes, unwritten data included.
    pub fn len(&self) -> u64 {
        // Relaxed: a figure; other uses hold `resize`.
        self.disk.len.load(Relaxed)
    }

    /// The file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether reads and writes bypass the operating system's cache.
    pub fn is_direct(&self) -> bool {
        self.disk.store.is_direct()
    }

    /// Fills `buffer` from `offset` on. Returns the bytes read: fewer only at the end of the file.
    ///
    /// # Errors
    /// The store's error; the count of bytes read before it is not returned.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.saturating_add(done as u64);
            let (index, inside) = (at / PAGE, (at % PAGE) as usize);
            let wanted = (inside + buffer.len() - done).div_ceil(PAGE_SIZE);
            let rest = &mut buffer[done..];
            let part = match self.page(index, wanted.min(READ_MAX as usize) as u32) {
                Ok(Some((page, len))) => copy(page.bytes(), inside, len, rest),
                Ok(None) => 0,
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    self.read_past(rest, at)?
                }
                Err(error) => return Err(error),
            };
            if part == 0 {
                break;
            }
            done += part;
        }
        Ok(done)
    }

    /// Reads a part of one page, uncached. Returns the bytes read.
    fn read_past(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.inner();
        let (index, inside) = (offset / PAGE, (offset % PAGE) as usize);
        loop {
            let busy = {
                let _uncut = uncut(&self.file);
                self.pages().check_not_lost(index)?;
                let part = self.part_of_page(index).saturating_sub(inside).min(buffer.len());
                match self.file.index.share(&inner.frames, index, PageState::default()) {
                    // Another thread has cached the page meanwhile, and may have changed it.
                    Found::Page(page, _) => {
                        return Ok(copy(page.bytes(), inside, inside + part, buffer));
                    }
                    Found::Busy(frame) => frame,
                    Found::Absent => {
                        count(&inner.counters.bypassed, 1);
                        let buffer = &mut [IoSliceMut::new(&mut buffer[..part])];
                        self.disk.read_from(offset, buffer)?;
                        return Ok(part);
                    }
                }
            };
            inner.frames.check_room(busy)?;
            inner.frames.wait(busy, Until::Shareable);
        }
    }

    /// A right to read a page, and the bytes of the file in it; `None` past the end. The caller
    /// will ask for `wanted` pages from there on.
    fn page(&self, index: u64, wanted: u32) -> io::Result<Option<(Shared<'_>, usize)>> {
        let inner = self.inner();
        inner.entry.check_not_forked()?;
        let touch = match self.ahead().used(index) {
            true => Touch::Used,
            false => Touch::Again,
        };
        let exists = || Some(self.part_of_page(index)).filter(|len| *len > 0);
        let window = || self.ahead().miss(index, wanted, inner.options.read_ahead);
        let found = self.pages().page(index, touch, exists, window)?;
        Ok(found.map(|(page, before, len)| {
            self.start_next(&page, index, before);
            (page, len)
        }))
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next window if this page is the marker of the last one.
    fn start_next(&self, page: &Shared<'_>, index: u64, before: PageState) {
        let marker = PageState::MARKER;
        if before.has(marker) && page.clear(marker).has(marker) {
            let inner = self.inner();
            let next = self.ahead().next(index, inner.options.read_ahead);
            next.into_iter().for_each(|window| inner.windows.push(&self.file, window));
        }
    }

    /// Writes `bytes` at `offset`, into the cache; the file grows if need be. Returns the bytes
    /// written: fewer if an error followed.
    ///
    /// Waits while too much of the cache is dirty.
    ///
    /// # Errors
    /// No page is available, the rest of a page could not be read, the file is open for reading
    /// only, or too much is dirty and cannot be written: then the error of writing.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.writable {
            return Err(read_only());
        }
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            let text = "a file ends before 2^63 bytes";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let part = (PAGE_SIZE - (at % PAGE) as usize).min(bytes.len() - done);
            match self.write_part(&bytes[done..done + part], at) {
                Ok(()) => done += part,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes into one page.
    fn write_part(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let inner = self.inner();
        // Call before anything is held: it may wait for the write-back thread.
        inner.balance(&self.file)?;
        let (index, inside) = (offset / PAGE, (offset % PAGE) as usize);
        let end = offset + bytes.len() as u64;
        let found = self.pages().page_to_change(index, || {
            let len = self.len();
            let keeps = (inside > 0 && index * PAGE < len) || end < len.min((index + 1) * PAGE);
            if keeps { Need::Bytes } else { Need::Page }
        });
        let found = found.map_err(|error| inner.why_no_page(&self.file, error))?;
        let (mut page, need) = found.ok_or_else(|| self.behind_the_end(index))?;
        if need == Need::Page {
            self.file.written_over(index);
        }
        page.bytes_mut()[inside..inside + bytes.len()].copy_from_slice(bytes);
        page.set(PageState::UPTODATE);
        // Before the page can be written to its store, which looks at the length. The file is not
        // cut below this page while it is held.
        self.disk.len.fetch_max(end, Relaxed);
        self.soil(index, &page);
        Ok(())
    }

    /// The page is changed now.
    fn soil(&self, index: u64, page: &Exclusive<'_>) {
        let inner = self.inner();
        inner.soil(&self.file, index, page);
        let before = page.state();
        page.set(PageState::REFERENCED);
        // Writing a page in pieces is one use. Relaxed: a hint.
        if self.written.swap(index, Relaxed) != index {
            inner.touched(page.frame(), before);
        }
    }

    /// Cuts the file, or makes it longer with zeroes, here and in its store.
    ///
    /// Waits until no page past the new end is pinned: do not hold such a page.
    ///
    /// # Errors
    /// What the store says; nothing has changed then.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if !self.writable {
            return Err(read_only());
        }
        while let Some(busy) = self.try_set_len(len)? {
            // Nothing is held here, so the page's user can go on.
            self.inner().frames.wait(busy, Until::Unused);
        }
        Ok(())
    }

    /// As [`set_len`](Self::set_len); returns the frame of a page that another thread holds.
    fn try_set_len(&self, len: u64) -> io::Result<Option<u32>> {
        let (inner, file) = (self.inner(), &*self.file);
        let _cut = cut(file);
        let held = match self.pages().hold_from(len / PAGE) {
            Ok(held) => held,
            Err(busy) => return Ok(Some(busy)),
        };
        self.disk.store.set_len(len)?;
        // Relaxed: under `resize`; and write-back, which does not take it, has a right to the page.
        self.disk.len.store(len, Relaxed);
        for (index, mut page) in held {
            if index * PAGE < len {
                page.bytes_mut()[(len - index * PAGE).min(PAGE) as usize..].fill(0);
            } else {
                inner.discard(file, page);
            }
        }
        file.index.forget(len.div_ceil(PAGE));
        file.cut_dirty(len.div_ceil(PAGE));
        Ok(None)
    }

    /// Writes what is dirty in this file, and returns when it is safe (`fsync`).
    ///
    /// `Ok` means that every byte written before the call is on the device, and that no write or
    /// sync of this file failed since this handle last reported one.
    ///
    /// Waits for pages that are pinned for writing: do not hold one of this file.
    ///
    /// # Errors
    /// A failure now, or in the background since this handle last reported one: every handle that
    /// was open at the time reports it once. What is in memory stays dirty, also if the device sync
    /// failed, and the next call writes all of it again.
    ///
    /// If the cache had reclaimed pages that were not safe yet, each call returns
    /// [`LostWrites`](crate::LostWrites) until the program has rewritten them or [accepts the
    /// loss](Self::accept_loss).
    pub fn sync(&self) -> io::Result<()> {
        let synced = self.inner().sync_file(&self.file);
        let earlier = self.file.errors.tell(&self.told);
        synced.and_then(|()| earlier.map_or(Ok(()), Err))
    }

    /// Bytes that were written and are lost ([`LostWrites`](crate::LostWrites)).
    pub fn lost(&self) -> Vec<Range<u64>> {
        bytes_of(&self.file.lost(), PAGE)
    }

    /// Accepts that the bytes of [`lost`](Self::lost) are lost, and returns which. Reads there now
    /// return what the store has: the written bytes, the old ones, or a mix in each page.
    ///
    /// Waits until no page there is pinned: do not hold one.
    pub fn accept_loss(&self) -> Vec<Range<u64>> {
        bytes_of(&self.inner().accept_loss(&self.file), PAGE)
    }

    /// [Syncs](Self::sync) the file and drops this handle. If it was the last one, the file leaves
    /// the cache now: its pages, its descriptor and its [lock](crate::Builder::lock_files).
    ///
    /// # Errors
    /// As for [`sync`](Self::sync). Dirty pages stay in the cache; the next handle has them.
    pub fn close(self) -> io::Result<()> {
        self.sync()?;
        let (owner, file) = (Arc::clone(&self.owner), Arc::clone(&self.file));
        drop(self);
        if owner.is_here() {
            owner.inner.forget(&file, Busy::Until(Instant::now() + PATIENCE));
        }
        Ok(())
    }

    /// A page of the file, in place. It stays in the cache until it is dropped.
    ///
    /// The slice ends with the file, so the last page may be shorter than 4096 bytes. While a
    /// thread holds it, the page cannot be changed: the thread must not write to that page itself.
    ///
    /// # Errors
    /// The store's error; [`io::ErrorKind::UnexpectedEof`] past the end of the file.
    pub fn pin(&self, index: u64) -> io::Result<PinnedPage<'_>> {
        let found = self.page(index, 1)?;
        let (page, len) = found.ok_or_else(|| self.behind_the_end(index))?;
        self.map(page.frame());
        Ok(PinnedPage::new(page, len))
    }

    /// A page of the file, in place, writable. It is dirty from now on, and is written after it is
    /// dropped.
    ///
    /// While a thread holds it, the page cannot be read: the thread must not read that page itself,
    /// nor [`sync`](Self::sync) the file. A forgotten one ([`std::mem::forget`]) is held for good:
    /// its page is never written, and a sync waits forever.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin) and [`write_at`](Self::write_at).
    pub fn pin_mut(&self, index: u64) -> io::Result<PinnedPageMut<'_>> {
        if !self.writable {
            return Err(read_only());
        }
        let inner = self.inner();
        inner.balance(&self.file)?;
        let found = self.pages().page_to_change(index, || match self.part_of_page(index) {
            0 => Need::Nothing,
            _ => Need::Bytes,
        });
        let found = found.map_err(|error| inner.why_no_page(&self.file, error))?;
        let (page, _) = found.ok_or_else(|| self.behind_the_end(index))?;
        // The file is not cut below this page while it is held.
        let len = self.part_of_page(index);
        self.soil(index, &page);
        self.map(page.frame());
        Ok(PinnedPageMut::new(page, len))
    }

    /// Bytes of the file in a page.
    fn part_of_page(&self, index: u64) -> usize {
        let start = index.checked_mul(PAGE);
        start.map_or(0, |start| self.len().saturating_sub(start)).min(PAGE) as usize
    }

    fn behind_the_end(&self, index: u64) -> io::Error {
        let len = self.len();
        let text = format!("page {index} is past the end of the file, which has {len} bytes");
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

fn read_only() -> io::Error {
    let text = "the file is open for reading only; open it with the right to write";
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Copies the bytes from `from` to `to` of a page, or as many as fit. Returns how many.
fn copy(page: &[u8], from: usize, to: usize, buffer: &mut [u8]) -> usize {
    let bytes = page.get(from..to).unwrap_or(&[]);
    let part = bytes.len().min(buffer.len());
    buffer[..part].copy_from_slice(&bytes[..part]);
    part
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if self.owner.is_here() {
            self.inner().released(&self.file);
        }
    }
}
