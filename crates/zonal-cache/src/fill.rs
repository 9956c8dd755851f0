//! Fills pages: takes them from the pool, within the cache's bound, and reads them from the file's
//! store.
//!
//! # Invariants
//! - **FILL-1** nobody is given a right to a page that was not filled: its filler has it alone
//!   until all its bytes were read, and takes it out of the cache if that fails in any way, by a
//!   panic too.

use std::io::{self, IoSliceMut};
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use zonal::Gfp;

use crate::file::File;
use crate::flusher::{LOOK_AGAIN, PATIENCE};
use crate::frames::{Exclusive, Shared};
use crate::inner::Inner;
use crate::options::Replacement;
use crate::readahead::Window;
use crate::state::PageState;
use crate::stats::count;

/// Rights of a page for the cache: for a user, anywhere, and it may wait and reclaim.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;
/// The same for a page that is not needed at once.
const GFP_AHEAD: Gfp = GFP.union(Gfp::NORETRY).union(Gfp::NOWARN);
/// Fruitless attempts to reclaim a page before a request is refused.
const LOOKS_ALONE: u32 = 2;
/// Pages read in one call of a store at most.
pub const READ_MAX: u32 = 256;

/// Whether a read counts as a use of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// It does.
    Used,
    /// Part of a use that was counted.
    Again,
}

impl Inner {
    /// Takes a page from the pool, within the cache's bound, for the caller's exclusive use.
    fn take(&self, gfp: Gfp) -> io::Result<Exclusive<'_>> {
        if !self.make_room(gfp) {
            let text = "the cache is at its bound, and every page of it is in use or dirty";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        self.frames
            .take(gfp, None)
            .map_err(|refused| io::Error::new(io::ErrorKind::OutOfMemory, refused))
    }

    /// Makes room for one page below the cache's bound, and reserves it. `false`: every page is in
    /// use or cannot be written.
    ///
    /// Waits for pages that the cache's own threads hold, unless the request must not wait.
    fn make_room(&self, gfp: Gfp) -> bool {
        let mut end = None;
        let mut alone = 0;
        while !self.frames.reserve(self.options.max_pages) {
            if self.shrink_to_bound() {
                continue;
            }
            let end = *end.get_or_insert_with(|| Instant::now() + PATIENCE);
            if gfp.contains(Gfp::NORETRY) || Instant::now() >= end {
                return false;
            }
            // Relaxed: a hint; a thread that ends during a scan causes another one.
            if self.at_work.load(Relaxed) > 0 {
                alone = 0;
                self.flusher.wait_progress(LOOK_AGAIN);
            } else if alone == LOOKS_ALONE {
                return false;
            } else {
                alone += 1;
            }
        }
        true
    }

    /// A page that is going to be written.
    pub fn take_for_write(&self) -> io::Result<Exclusive<'_>> {
        self.take(GFP.union(Gfp::WRITE))
    }

    /// Takes up to `wanted` pages; none only if there are none.
    fn take_some(&self, wanted: u32, gfp: Gfp) -> io::Result<Vec<Exclusive<'_>>> {
        let mut pages = vec![self.take(gfp)?];
        let more = (1..wanted).map_while(|_| self.take(GFP_AHEAD).ok());
        pages.extend(more);
        Ok(pages)
    }

    /// Reads a window of a file into pages. Returns a right to the first one; `None`: another
    /// thread has inserted it meanwhile, or the window begins past the end of the file.
    ///
    /// The caller holds `resize`, shared.
    pub fn fill(
        &self,
        file: &File,
        window: Window,
        touch: Touch,
    ) -> io::Result<Option<Shared<'_>>> {
        self.fill_with(file, window, touch, GFP)
    }

    /// As [`fill`](Self::fill), for read-ahead.
    pub fn fill_ahead(&self, file: &File, window: Window) -> io::Result<()> {
        let filled = self.fill_with(file, window, Touch::Again, GFP_AHEAD)?;
        if filled.is_some() {
            // The window's first page is read ahead too.
            count(&self.counters.read_ahead, 1);
        }
        Ok(())
    }

    fn fill_with(
        &self,
        file: &File,
        window: Window,
        touch: Touch,
        gfp: Gfp,
    ) -> io::Result<Option<Shared<'_>>> {
        let left = file.end_page().saturating_sub(window.start);
        let wanted = u64::from(window.pages.min(READ_MAX)).min(left);
        if wanted == 0 || file.index.has(window.start) {
            return Ok(None);
        }
        // Take all pages before inserting any: taking one may reclaim, which must not meet a
        // half-made page of this thread.
        let pages = self.take_some(wanted as u32, gfp)?;
        let mut unread = Unread { inner: self, file, pages };
        let kept = self.insert_run(file, window, &unread.pages);
        unread.pages.drain(kept..).for_each(Exclusive::release);
        if unread.pages.is_empty() {
            return Ok(None);
        }
        let mut read = read_pages(file, window.start, &mut unread.pages);
        if read.is_err() {
            count(&self.counters.read_errors, 1);
            // Only the first page was requested: errors of later ones do not fail it.
            unread.pages.drain(1..).for_each(|page| self.discard(file, page));
            read = read_pages(file, window.start, &mut unread.pages);
        }
        read?;
        let pages = mem::take(&mut unread.pages);
        count(&self.counters.read, pages.len() as u64);
        count(&self.counters.read_ahead, pages.len() as u64 - 1);
        let mut rest = pages.into_iter();
        let first = rest.next();
        rest.for_each(|page| page.set(PageState::UPTODATE));
        Ok(first.map(|page| {
            // With one list all pages would be referenced, and the oldest leave: the second use
            // counts.
            let counts = self.options.replacement == Replacement::ActiveInactive;
            page.set(match touch {
                Touch::Used if counts => PageState::UPTODATE.with(PageState::REFERENCED),
                Touch::Used | Touch::Again => PageState::UPTODATE,
            });
            page.downgrade()
        }))
    }

    /// Inserts pages into the file's index and the lists, up to the first that is present already.
    /// Returns how many.
    fn insert_run(&self, file: &File, window: Window, pages: &[Exclusive<'_>]) -> usize {
        let mut kept = 0;
        for (index, page) in (window.start..).zip(pages.iter()) {
            if window.marker == Some(index) {
                page.set(PageState::MARKER);
            }
            if !self.insert(file, index, page) {
                page.clear(PageState::MARKER);
                break;
            }
            kept += 1;
        }
        kept
    }
}

/// Pages in a file's index with what their last owner left in them. Those that are still here when
/// this is dropped leave the cache: FILL-1.
struct Unread<'i, 'f> {
    inner: &'i Inner,
    file: &'f File,
    pages: Vec<Exclusive<'i>>,
}

impl Drop for Unread<'_, '_> {
    fn drop(&mut self) {
        self.pages.drain(..).for_each(|page| self.inner.discard(self.file, page));
    }
}

/// Reads pages that follow one another.
fn read_pages(file: &File, start: u64, pages: &mut [Exclusive<'_>]) -> io::Result<()> {
    let mut buffers: Vec<IoSliceMut<'_>> =
        pages.iter_mut().map(|page| IoSliceMut::new(page.bytes_mut())).collect();
    file.backing.read_run(start, &mut buffers)
}
