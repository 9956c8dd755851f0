//! Makes written pages safe, or reports their loss.
//!
//! A device sync covers the pages that were written before it began. If it fails, none of them is
//! known to be safe, nor is a page whose write ran meanwhile ([`Dirty`](crate::dirty::Dirty)):
//! pages in memory become dirty again, and pages that were reclaimed count as lost until the
//! program [accepts](Inner::accept_loss) it.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::file::{Ask, File};
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::ranges::Ranges;
use crate::state::PageState;
use crate::writeback::Busy;

/// The file has bytes that were written and are lost: the cache gave their pages up after it had
/// written them, and the device sync that followed failed.
///
/// It is inside the [`io::Error`] that [`sync`](crate::CachedFile::sync) returns, and reads of
/// these bytes, until the program rewrites them or [accepts the
/// loss](crate::CachedFile::accept_loss).
#[derive(Debug)]
pub struct LostWrites {
    /// Bytes of the file that may be older than what was written, in whole pages. If there are
    /// very many, near ranges are joined.
    pub ranges: Vec<Range<u64>>,
    /// The device's last error.
    pub cause: io::Error,
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        let first = self.ranges.first().map_or(0, |range| range.start);
        write!(
            f,
            "up to {bytes} bytes in {} ranges, the first at {first}, were written and are lost: a \
             sync failed ({}) after their pages had been given up; write them again, or accept the \
             loss (CachedFile::accept_loss)",
            self.ranges.len(),
            self.cause
        )
    }
}

impl Error for LostWrites {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// Pages of `page` bytes as bytes.
pub fn bytes_of(pages: &Ranges, page: u64) -> Vec<Range<u64>> {
    pages.iter().map(|range| range.start * page..range.end.saturating_mul(page)).collect()
}

impl Inner {
    /// Writes all that is dirty in a file, and returns when it is safe.
    ///
    /// # Errors
    /// Any failure meanwhile, in this thread or another: it may concern these bytes.
    pub fn sync_file(&self, file: &File) -> io::Result<()> {
        let before = file.errors.count();
        let soiled = self.soil_again(file, Busy::Wait);
        let written = self.write_pages(file, &file.dirty_pages(), Busy::Wait);
        // Sync what could be written even after an error.
        soiled.and(written).and(self.sync_device(file))?;
        match file.errors.last() {
            Some(error) if file.errors.count() != before => Err(error),
            _ => self.loss(file).map_or(Ok(()), Err),
        }
    }

    /// Syncs every file.
    ///
    /// # Errors
    /// The first one; the other files were written nevertheless.
    pub fn sync_all(&self) -> io::Result<()> {
        let files: Vec<Arc<File>> = self.files().by_id.values().cloned().collect();
        let mut outcome = Ok(());
        for file in files {
            outcome = outcome.and(self.sync_file(&file));
        }
        outcome
    }

    /// Syncs the device.
    pub fn sync_device(&self, file: &File) -> io::Result<()> {
        // One at a time: Linux reports an error to one caller per descriptor.
        let one = file.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = file.sync_device();
        match &synced {
            Ok(()) => file.succeed(Ask::Sync),
            Err(error) => self.fail(file, Ask::Sync, error),
        }
        drop(one);
        if synced.is_err() {
            // What stays out is made dirty by the next sync.
            let _ = self.soil_again(file, Busy::Pass);
        }
        synced
    }

    /// Makes pages dirty that must be written again.
    ///
    /// # Errors
    /// A page has too many pins to be marked; the others were.
    pub fn soil_again(&self, file: &File, busy: Busy) -> io::Result<()> {
        let mut outcome = Ok(());
        for index in file.dirty_again() {
            while let Some(frame) = self.try_soil_again(file, index) {
                if let Err(error) = self.frames.check_room(frame) {
                    outcome = outcome.and(Err(error));
                    break;
                }
                if !self.wait(frame, Until::Shareable, busy) {
                    break;
                }
            }
        }
        outcome
    }

    /// Makes a page dirty that must be written again. Returns its frame if another thread holds it
    /// exclusively: that thread changes or reclaims the page, and sees that it is dirty.
    fn try_soil_again(&self, file: &File, index: u64) -> Option<u32> {
        match file.index.share(&self.frames, index, PageState::default()) {
            Found::Page(page, _) => {
                file.soil_again(index, || {
                    let clean = page.soil_again();
                    if clean {
                        self.soiled(page.frame());
                    }
                    clean
                });
                None
            }
            Found::Busy(frame) => Some(frame),
            Found::Absent => None,
        }
    }

    /// The error for the lost pages of a file.
    pub fn loss(&self, file: &File) -> Option<io::Error> {
        let lost = file.lost();
        if lost.is_empty() {
            return None;
        }
        let cause = file.errors.last().unwrap_or_else(|| io::ErrorKind::Other.into());
        let kind = cause.kind();
        let ranges = bytes_of(&lost, self.frames.page_bytes() as u64);
        Some(io::Error::new(kind, LostWrites { ranges, cause }))
    }

    /// Accepts what is lost and returns it: reads now return what the store has there.
    pub fn accept_loss(&self, file: &File) -> Ranges {
        let lost = file.lost();
        for index in file.index.pages(0).into_iter().filter(|index| lost.contains(*index)) {
            self.drop_clean(file, index);
        }
        file.accept_loss(&lost);
        lost
    }

    /// Removes a page that was read while the store's bytes were not safe, unless the program has
    /// changed it since.
    fn drop_clean(&self, file: &File, index: u64) {
        loop {
            match file.index.exclude(&self.frames, index) {
                Found::Page(page, _) if page.state().is_clean() => self.discard(file, page),
                Found::Page(..) | Found::Absent => {}
                Found::Busy(frame) => {
                    self.frames.wait(frame, Until::Unused);
                    continue;
                }
            }
            return;
        }
    }
}
