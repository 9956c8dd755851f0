//! Files leave the cache: after their last handle, when there are too many, and at the cache's end.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::file::File;
use crate::index::Found;
use crate::inner::Inner;
use crate::lock::Until;
use crate::writeback::Busy;

impl Inner {
    /// Takes every page of a file out, dirty or not. Nobody has a handle of it.
    pub fn empty(&self, file: &File) {
        let _resize = file.resize.write().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: under `resize`.
        file.gone.store(true, Relaxed);
        for index in file.index.pages(0) {
            loop {
                match file.index.exclude(&self.frames, index) {
                    Found::Page(page, _) => self.discard(file, page),
                    // Reclaim or write-back are at it, and hold nothing that they would wait with.
                    Found::Busy(frame) => {
                        self.frames.wait(frame, Until::Unused);
                        continue;
                    }
                    Found::Absent => {}
                }
                break;
            }
        }
        file.index.forget(0);
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
        match file.identity {
            // Nobody can open it again. An error keeps it, and the write-back thread tries again.
            None => self.forget(file),
            Some(_) if self.files().closed.len() > self.options.closed_files => self.flusher.kick(),
            Some(_) => {}
        }
    }

    /// Drops files without handles, the oldest first, until `keep` are left, and those that nobody
    /// can open again.
    pub fn drop_closed(&self, keep: usize) {
        let files: Vec<Arc<File>> = {
            let files = self.files();
            let excess = files.closed.len().saturating_sub(keep);
            let closed = files.closed.iter().enumerate();
            let of = closed.filter_map(|(at, id)| files.by_id.get(id).map(|file| (at, file)));
            of.filter(|(at, file)| *at < excess || file.identity.is_none())
                .map(|(_, file)| Arc::clone(file))
                .collect()
        };
        files.iter().filter(|file| file.may_try()).for_each(|file| self.forget(file));
    }

    /// Writes a file without handles and drops it, unless it cannot be written or is opened again.
    fn forget(&self, file: &Arc<File>) {
        if self.write_pages(file, &file.dirty_pages(), Busy::Wait).is_err() {
            return;
        }
        {
            let mut guard = self.files_mut();
            let files = &mut *guard;
            if file.handles.load(Relaxed) != 0 || file.is_dirty() {
                return;
            }
            files.closed.retain(|id| *id != file.id);
            if let Some(identity) = file.identity {
                files.by_identity.remove(&identity);
            }
        }
        self.empty(file);
        self.files_mut().by_id.remove(&file.id);
    }
}
