//! Files leave the cache: after their last handle, when there are too many, and at the cache's end.
//!
//! A file leaves once all that was written to it is safe on its device: else a later
//! [`sync`](crate::Cache::sync) of the cache would return `Ok` for bytes that are gone. A file that
//! cannot be written or synced stays, and is retried.
//!
//! Without a handle no page is in use, except briefly by the cache's own threads, and for good by a
//! pin that the program has forgotten (`std::mem::forget`). So every wait here is bounded. The page
//! of a forgotten pin is leaked.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::file::{Ask, File};
use crate::find::cut;
use crate::flusher::PATIENCE;
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::writeback::Busy;

impl Inner {
    /// Removes every page of a file without handles, dirty or not. Returns whether none is left.
    pub fn empty(&self, file: &File, busy: Busy) -> bool {
        let _resize = cut(file);
        // Relaxed: under `resize`.
        file.gone.store(true, Relaxed);
        let mut empty = true;
        for index in file.index.pages(0) {
            loop {
                match file.index.exclude(&self.frames, index) {
                    Found::Page(page, _) => self.discard(file, page),
                    Found::Busy(frame) if self.wait(frame, Until::Unused, busy) => continue,
                    Found::Busy(_) => empty = false,
                    Found::Absent => {}
                }
                break;
            }
        }
        file.index.forget(0);
        empty
    }

    /// The last handle of a file may have gone.
    pub fn released(&self, file: &Arc<File>) {
        {
            let mut files = self.files_mut();
            // Relaxed: under the lock of the files.
            if file.handles.fetch_sub(1, Relaxed) != 1 {
                return;
            }
            files.closed.push_back(file.id);
        }
        match file.identity() {
            // The thread is inside a backing: the write-back thread does it.
            None if self.entry.check_outside().is_err() => self.flusher.kick(),
            // It cannot be opened again. On an error it stays, and the write-back thread retries.
            None => self.forget(file, Busy::Until(Instant::now() + PATIENCE)),
            Some(_) if self.files().closed.len() > self.options.closed_files => self.flusher.kick(),
            Some(_) => {}
        }
    }

    /// Drops files without handles, the oldest first, until `keep` are left, and those that cannot
    /// be opened again.
    pub fn drop_closed(&self, keep: usize, busy: Busy) {
        let (closed, leaving): (Vec<Arc<File>>, Vec<Arc<File>>) = {
            let files = self.files();
            let excess = files.closed.len().saturating_sub(keep);
            let closed = files.closed.iter().enumerate();
            let of = closed.filter_map(|(at, id)| files.by_id.get(id).map(|file| (at, file)));
            let due = of.filter(|(at, file)| *at < excess || file.identity().is_none());
            let leaving = files.leaving.iter().filter_map(|id| files.by_id.get(id));
            (due.map(|(_, file)| Arc::clone(file)).collect(), leaving.cloned().collect())
        };
        let may_try = |file: &&Arc<File>| file.may_try(Ask::Write) && file.may_try(Ask::Sync);
        closed.iter().filter(may_try).for_each(|file| self.forget(file, busy));
        leaving.iter().for_each(|file| self.leave(file, busy));
    }

    /// Writes a file without handles and drops it, unless that cannot be made safe, or it is opened
    /// again.
    pub fn forget(&self, file: &Arc<File>, busy: Busy) {
        if self.soil_again(file, busy).is_err() {
            return;
        }
        let written = self.write_pages(file, &file.dirty_pages(), busy);
        if written.is_err() || file.is_dirty() {
            return;
        }
        if file.is_unsynced() && self.sync_device(file).is_err() {
            return;
        }
        // The next handle of the file reports what is lost.
        let is_owed = file.is_damaged() && file.identity().is_some();
        {
            let mut files = self.files_mut();
            let in_use = file.handles.load(Relaxed) != 0;
            if in_use || is_owed || file.is_dirty() || file.is_unsynced() {
                return;
            }
            files.begin_leave(file);
        }
        self.leave(file, busy);
    }

    /// Removes the pages of a file that cannot be opened again, and then the file.
    pub fn leave(&self, file: &File, busy: Busy) {
        if self.empty(file, busy) {
            let mut files = self.files_mut();
            files.leaving.retain(|id| *id != file.id);
            files.by_id.remove(&file.id);
        }
    }
}
