//! What all handles and threads of a cache share, and the steps in the life of one page.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::entry::Entry;
use crate::errors::ErrorSeq;
use crate::file::{Ask, File};
use crate::flusher::Flusher;
use crate::frames::{Exclusive, Frames};
use crate::index::Shadow;
use crate::lru::{End, ZoneLru};
use crate::options::{Options, Replacement};
use crate::readahead::Windows;
use crate::state::PageState;
use crate::stats::{Counters, Stats, count};
use crate::store::Identity;

/// Everything but the handles.
#[derive(Debug)]
pub struct Inner {
    pub frames: Frames,
    /// By zone of the pool.
    pub lru: Box<[ZoneLru]>,
    pub files: RwLock<Files>,
    pub options: Options,
    pub counters: Counters,
    /// Pages dirty or being written, of all files.
    pub dirty: AtomicU64,
    /// Errors of writes and of syncs, of all files.
    pub errors: ErrorSeq,
    pub flusher: Flusher,
    pub windows: Windows,
    /// Threads of the cache that hold pages briefly: they write, read ahead or reclaim.
    pub at_work: AtomicU32,
    pub entry: Entry,
}

/// A thread is at work while this exists.
#[derive(Debug)]
pub struct AtWork<'a>(&'a Inner);

/// Files that have pages or handles.
#[derive(Debug, Default)]
pub struct Files {
    pub by_id: HashMap<u32, Arc<File>>,
    pub by_identity: HashMap<Identity, u32>,
    /// Files without handles, oldest first.
    pub closed: VecDeque<u32>,
    /// Files that cannot be opened any more and still have pages in the cache.
    pub leaving: Vec<u32>,
    pub next_id: u32,
}

impl Files {
    pub fn add(&mut self, file: File) -> Arc<File> {
        let file = Arc::new(file);
        self.by_id.insert(file.id, Arc::clone(&file));
        self.by_identity.extend(file.identity().map(|identity| (identity, file.id)));
        file
    }

    /// One more handle of a file.
    pub fn hold(&mut self, file: &File) {
        self.closed.retain(|id| *id != file.id);
        // Relaxed: under the lock of the files.
        file.handles.fetch_add(1, Relaxed);
    }

    /// A number that no file has.
    pub fn new_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    /// Unlists and unlocks this file. The caller removes its pages.
    pub fn begin_leave(&mut self, file: &File) {
        self.closed.retain(|id| *id != file.id);
        if let Some(identity) = file.identity() {
            self.by_identity.remove(&identity);
        }
        self.leaving.push(file.id);
        file.unlock();
    }
}

impl Inner {
    pub fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn files_mut(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn lru_of(&self, frame: u32) -> &ZoneLru {
        &self.lru[self.frames.zone_of(frame)]
    }

    /// What the cache did and holds.
    pub fn stats(&self) -> Stats {
        let sizes = self.lru.iter().map(ZoneLru::sizes);
        let (inactive, active) = sizes.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        Stats {
            pages: self.frames.owned(),
            active,
            inactive,
            dirty: self.dirty.load(Relaxed),
            ..self.counters.stats()
        }
    }

    /// Call before pages are held briefly.
    pub fn begin_work(&self) -> AtWork<'_> {
        self.at_work.fetch_add(1, Relaxed);
        AtWork(self)
    }

    /// Records a use: the second one makes the page active, where there are active pages.
    pub fn touched(&self, frame: u32, before: PageState) {
        let second = before.has(PageState::REFERENCED)
            && !before.has(PageState::ACTIVE)
            && self.options.replacement == Replacement::ActiveInactive;
        if second && self.lru_of(frame).activate(&self.frames, frame) {
            count(&self.counters.activations, 1);
        }
    }

    /// Inserts a page into a file's index and its list. `false`: there is one already.
    pub fn insert(&self, file: &File, index: u64, page: &Exclusive<'_>) -> bool {
        page.set_owner(file.id, index);
        let Ok(shadow) = file.index.insert(index, page) else { return false };
        if let Some(shadow) = shadow {
            count(&self.counters.refaults, 1);
            if self.lru[shadow.zone as usize].was_needed(shadow.age)
                && self.options.replacement == Replacement::ActiveInactive
            {
                count(&self.counters.refault_activations, 1);
                page.set(PageState::ACTIVE);
            }
        }
        self.lru_of(page.frame()).add(&self.frames, std::slice::from_ref(page), End::New);
        true
    }

    /// Removes a page from its file, dirty or not.
    pub fn discard(&self, file: &File, page: Exclusive<'_>) {
        let (_, index) = page.owner();
        self.lru_of(page.frame()).remove(&self.frames, &page);
        if file.forget_page(index) {
            self.cleaned(page.frame());
        }
        self.unmap(&page);
        page.clear(PageState::DIRTY);
        file.index.remove(index);
        page.release();
    }

    /// Reclaims a clean page that is on no list, and records when. `Err`: it is dirty again,
    /// because a device sync failed since it was written.
    pub fn evict<'a>(&self, file: &File, page: Exclusive<'a>) -> Result<(), Exclusive<'a>> {
        debug_assert!(page.state().is_clean(), "a dirty page is given up: {:?}", page.state());
        let (_, index) = page.owner();
        if !file.give_up(index) {
            self.soil(file, index, &page);
            return Err(page);
        }
        let zone = self.frames.zone_of(page.frame());
        let shadow = Shadow { zone: zone as u16, age: self.lru[zone].evict() };
        file.index.evict(index, shadow, |old| {
            let lru = &self.lru[old.zone as usize];
            let (inactive, active) = lru.sizes();
            lru.distance(old.age) <= inactive + active
        });
        count(&self.counters.evicted, 1);
        page.release();
        Ok(())
    }

    /// Counts a page, to which the caller has a right, as mapped.
    pub fn map(&self, frame: u32) {
        if !self.frames.mark(frame, PageState::MAPPED).has(PageState::MAPPED) {
            self.lru_of(frame).mapped.fetch_add(1, Relaxed);
        }
    }

    /// Counts the page as not mapped.
    pub fn unmap(&self, page: &Exclusive<'_>) {
        if page.state().has(PageState::MAPPED) {
            page.clear(PageState::MAPPED);
            self.lru_of(page.frame()).mapped.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a page as dirty. The caller holds it exclusively.
    pub fn soil(&self, file: &File, index: u64, page: &Exclusive<'_>) {
        if !page.state().has(PageState::DIRTY) {
            page.set(PageState::DIRTY);
            if file.add_dirty(index) {
                self.soiled(page.frame());
            }
        }
    }

    /// One dirty page more.
    pub fn soiled(&self, frame: u32) {
        self.dirty.fetch_add(1, Relaxed);
        self.lru_of(frame).dirty.fetch_add(1, Relaxed);
    }

    /// One dirty page less.
    pub fn cleaned(&self, frame: u32) {
        self.dirty.fetch_sub(1, Relaxed);
        self.lru_of(frame).dirty.fetch_sub(1, Relaxed);
    }

    /// Records the error of a write or a sync for all listeners.
    pub fn fail(&self, file: &File, ask: Ask, error: &io::Error) {
        count(&self.counters.write_errors, 1);
        self.errors.add(error);
        file.fail(ask, error);
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Relaxed);
        self.0.flusher.tell_progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::store::{FileStore, Store};

    #[test]
    fn numbers_of_files_come_round_and_skip_those_in_use() -> io::Result<()> {
        let mut files = Files { next_id: u32::MAX - 1, ..Files::default() };
        let store = || -> io::Result<Box<dyn Store>> {
            Ok(Box::new(FileStore::new(std::fs::File::open("/proc/self/exe")?, None)?))
        };
        for id in [0, u32::MAX] {
            files.add(File::on_disk(id, Arc::new(Disk::new(store()?, None, None, false)?)));
        }
        let new: Vec<u32> = (0..3).map(|_| files.new_id()).collect();
        assert_eq!(new, [u32::MAX - 1, 1, 2]);
        Ok(())
    }
}
