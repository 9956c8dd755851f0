//! What the cache knows of one file, or of an engine's storage: a set of numbered pages over a
//! backing.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use zonal::PAGE_SIZE;

use crate::backing::Backing;
use crate::dirty::Dirty;
use crate::disk::Disk;
use crate::errors::ErrorSeq;
use crate::index::Index;
use crate::ranges::Ranges;
use crate::store::Identity;

/// First pause after a failed write, and the longest; each failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One file.
pub struct File {
    pub id: u32,
    pub backing: Arc<dyn Backing>,
    /// The backing again, if this is a file and not an engine's.
    pub disk: Option<Arc<Disk>>,
    pub index: Index,
    /// Shared by users of pages below the end; exclusive while the file is cut. Taken in `find`.
    pub resize: RwLock<()>,
    /// Threads that wait to cut the file.
    pub cutting: AtomicU32,
    /// Handles of the program. Changed with the list of files locked.
    pub handles: AtomicU32,
    /// The file left the cache: nothing of it is read any more. Set with `resize` held alone.
    pub gone: AtomicBool,
    /// Errors of writes and of syncs.
    pub errors: ErrorSeq,
    /// Held during a device sync, so that each caller gets its own error.
    pub syncing: Mutex<()>,
    dirty: Mutex<Dirty>,
    /// There are pages that were written and are not known to be safe.
    unsynced: AtomicBool,
    /// There are pages whose bytes are lost.
    damaged: AtomicBool,
    pause: Mutex<Pause>,
    sync_pause: Mutex<Pause>,
}

/// When to try again what failed.
#[derive(Default)]
struct Pause {
    until: Option<Instant>,
    len: Duration,
}

impl Pause {
    fn fail(&mut self) {
        self.len = (self.len * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.until = Some(Instant::now() + self.len);
    }

    fn is_over(&self) -> bool {
        self.until.is_none_or(|at| at <= Instant::now())
    }
}

/// Failures of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Write,
    Sync,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("id", &self.id).finish_non_exhaustive()
    }
}

impl File {
    /// A file.
    pub fn on_disk(id: u32, disk: Arc<Disk>) -> File {
        File { disk: Some(Arc::clone(&disk)), ..File::new(id, disk) }
    }

    /// An engine's pages.
    pub fn new(id: u32, backing: Arc<dyn Backing>) -> File {
        File {
            id,
            backing,
            disk: None,
            index: Index::default(),
            resize: RwLock::new(()),
            cutting: AtomicU32::new(0),
            handles: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            errors: ErrorSeq::default(),
            syncing: Mutex::default(),
            dirty: Mutex::default(),
            unsynced: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            pause: Mutex::default(),
            sync_pause: Mutex::default(),
        }
    }

    /// Identity of the operating system's file, if it is one.
    pub fn identity(&self) -> Option<Identity> {
        self.disk.as_ref().and_then(|disk| disk.identity)
    }

    /// The first page that the file does not have. An engine's pages have no end.
    pub fn end_page(&self) -> u64 {
        let end = |disk: &Arc<Disk>| disk.len.load(Relaxed).div_ceil(PAGE_SIZE as u64);
        self.disk.as_ref().map_or(u64::MAX, end)
    }

    fn dirty(&self) -> MutexGuard<'_, Dirty> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn pause(&self, ask: Ask) -> MutexGuard<'_, Pause> {
        let pause = match ask {
            Ask::Write => &self.pause,
            Ask::Sync => &self.sync_pause,
        };
        pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks the file. The cache neither reads nor writes it any more.
    pub fn unlock(&self) {
        self.disk.iter().for_each(|disk| disk.unlock());
    }

    /// Changes the record of dirty pages, and the flags that repeat it without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Dirty) -> T) -> T {
        let mut dirty = self.dirty();
        let changed = change(&mut dirty);
        // Relaxed: set under the lock. A reader of `unsynced` has loaded a page's state after the
        // write that set it.
        self.unsynced.store(dirty.is_unsynced(), Relaxed);
        self.damaged.store(!dirty.lost().is_empty(), Relaxed);
        changed
    }

    /// Adds a page to the dirty ones. Returns whether it was new.
    pub fn add_dirty(&self, index: u64) -> bool {
        self.dirty().add(index)
    }

    /// Dirty pages now, in order.
    pub fn dirty_pages(&self) -> Vec<u64> {
        self.dirty().pages().collect()
    }

    /// Up to `max` dirty pages from the first one at or behind `from`, to be written in one call:
    /// those of a file follow one another without a gap.
    pub fn dirty_run(&self, from: u64, max: usize) -> Vec<u64> {
        let dirty = self.dirty();
        match self.takes_gaps() {
            true => dirty.pages_from(from).take(max).collect(),
            false => dirty.run(from, max),
        }
    }

    /// Whether one call of the backing may write pages that are not neighbours.
    pub fn takes_gaps(&self) -> bool {
        self.disk.is_none()
    }

    /// Something has to be written.
    pub fn is_dirty(&self) -> bool {
        self.dirty().is_dirty()
    }

    /// Age of the oldest dirty page.
    pub fn dirty_for(&self) -> Duration {
        self.dirty().age()
    }

    /// After a write-back that left pages dirty: sets the age of the oldest.
    pub fn restart_age(&self) {
        self.dirty().restart_age();
    }

    /// Device syncs that failed so far.
    pub fn failed_syncs(&self) -> u64 {
        self.dirty().failed()
    }

    /// A page was written ([`Dirty::written`]).
    pub fn written(&self, index: u64, failed_syncs: u64) -> Option<bool> {
        self.change(|dirty| dirty.written(index, failed_syncs))
    }

    /// Whether a clean page that the caller holds exclusively may leave the cache. `false`: make it
    /// dirty instead.
    pub fn give_up(&self, index: u64) -> bool {
        // Relaxed: see `change`.
        !self.unsynced.load(Relaxed) || self.change(|dirty| dirty.give_up(index))
    }

    /// A page leaves the cache for good. Returns whether it was dirty.
    pub fn forget_page(&self, index: u64) -> bool {
        self.change(|dirty| dirty.forget(index))
    }

    /// The file ends before the page `first`.
    pub fn cut_dirty(&self, first: u64) {
        self.change(|dirty| dirty.cut(first));
    }

    /// Every byte of a page is new.
    pub fn written_over(&self, index: u64) {
        // Relaxed: as for `give_up`; losses are set under the lock.
        if self.unsynced.load(Relaxed) || self.damaged.load(Relaxed) {
            self.change(|dirty| dirty.written_over(index));
        }
    }

    /// Syncs the device and records the result. The caller holds `syncing`.
    pub fn sync_device(&self) -> io::Result<()> {
        self.change(Dirty::begin_sync);
        let synced = self.backing.sync();
        self.change(|dirty| match &synced {
            Ok(()) => dirty.sync_worked(),
            Err(_) => dirty.sync_failed(),
        });
        synced
    }

    /// Clean pages that must be written again.
    pub fn dirty_again(&self) -> Vec<u64> {
        // Relaxed: see `change`.
        match self.unsynced.load(Relaxed) {
            true => self.dirty().again(),
            false => Vec::new(),
        }
    }

    /// Marks a page that must be written again as dirty, if `mark` says that it was clean.
    pub fn soil_again(&self, index: u64, mark: impl FnOnce() -> bool) {
        self.change(|dirty| dirty.soil_again(index, mark));
    }

    /// Something was written and is not known to be safe.
    pub fn is_unsynced(&self) -> bool {
        self.dirty().is_unsynced()
    }

    /// What was written and is lost.
    pub fn lost(&self) -> Ranges {
        match self.is_damaged() {
            true => self.dirty().lost().clone(),
            false => Ranges::default(),
        }
    }

    /// Whether anything is lost. Relaxed: a caller that knows of it has taken locks since.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// Whether what was written to a page is lost.
    pub fn is_lost(&self, index: u64) -> bool {
        self.is_damaged() && self.dirty().lost().contains(index)
    }

    /// The program accepts what is lost.
    pub fn accept_loss(&self, known: &Ranges) {
        self.change(|dirty| dirty.accept_loss(known));
    }

    /// Records an error and delays the next try.
    pub fn fail(&self, ask: Ask, error: &io::Error) {
        self.errors.add(error);
        self.pause(ask).fail();
    }

    /// Success: the next try need not wait.
    pub fn succeed(&self, ask: Ask) {
        *self.pause(ask) = Pause::default();
    }

    /// Whether a background try is due.
    pub fn may_try(&self, ask: Ask) -> bool {
        self.pause(ask).is_over()
    }

    /// The error that keeps the file from being written, if one does.
    pub fn standing_failure(&self) -> Option<io::Error> {
        self.pause(Ask::Write).until?;
        self.errors.last()
    }
}
