//! The cache itself, as a program sees it.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use thiserror::Error;
use zonal::Pool;

use crate::disk::Disk;
use crate::errors::Cursor;
use crate::file::File;
use crate::flusher::PATIENCE;
use crate::handle::CachedFile;
use crate::inner::{Files, Inner};
use crate::options::Options;
use crate::owner::Owner;
use crate::stats::Stats;
use crate::store::{FileStore, MakeStore, Store, is_too_many};
use crate::writeback::Busy;

/// A page cache over a [`Pool`]. Clones are the same cache; it ends with the last of them and of
/// its files.
///
/// When it ends, what is dirty is written and every page goes back to the pool. Nothing reports an
/// error of that last write: call [`sync`](Self::sync) or [`close`](Self::close) before.
///
/// A forked child must not use the cache: its threads do not exist there. Dropping it there writes
/// nothing; the parent does.
#[derive(Clone)]
pub struct Cache {
    owner: Arc<Owner>,
    make_store: MakeStore,
    /// Errors of all files that this clone has reported.
    told: Cursor,
}

/// A cache that could not be closed, because not everything could be written.
#[derive(Debug, Error)]
#[error("the cache holds pages that cannot be written: {error}")]
pub struct CloseError {
    /// The cache, with all that is dirty.
    pub cache: Cache,
    /// The first error.
    #[source]
    pub error: io::Error,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish()
    }
}

impl Cache {
    pub(crate) fn start(
        pool: Arc<Pool>,
        options: Options,
        make_store: MakeStore,
    ) -> io::Result<Cache> {
        let owner = Arc::new(Owner::start(pool, options)?);
        let told = owner.inner.errors.listen();
        Ok(Cache { owner, make_store, told })
    }

    fn inner(&self) -> &Inner {
        &self.owner.inner
    }

    /// The pool that the pages are from.
    pub fn pool(&self) -> &Pool {
        self.inner().frames.pool()
    }

    /// What the cache did and holds.
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }

    /// Pages that may be dirty before the write-back thread starts, and before writers wait.
    pub fn dirty_limits(&self) -> (u64, u64) {
        self.inner().dirty_limits()
    }

    /// Opens a file for reading and, if permitted, writing. A file that is already in the cache is
    /// the same file under any of its names.
    ///
    /// While a file is in the cache, change it only through the cache, which does not see other
    /// writes.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<CachedFile> {
        let path = path.as_ref();
        let both = || fs::OpenOptions::new().read(true).write(true).open(path);
        let file = match self.with_room(both) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                self.with_room(|| fs::File::open(path))?
            }
            opened => opened?,
        };
        self.open_file(file)
    }

    /// Creates a file, or empties it, for reading and writing.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<CachedFile> {
        // Emptied through the cache, which may have pages of it.
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let path = path.as_ref();
        let file = self.open_file(self.with_room(|| options.open(path))?)?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Opens something; if the process has too many open files, once more after files without
    /// handles were dropped.
    fn with_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_too_many(&error) => {
                let closed = self.inner().files().closed.len();
                let busy = Busy::Until(Instant::now() + PATIENCE);
                self.inner().drop_closed(closed / 2, busy);
                open()
            }
            opened => opened,
        }
    }

    /// As [`open`](Self::open), for a file that is already open.
    ///
    /// The file is in the cache for reading only if it was opened so first; a handle writes if its
    /// own file may.
    ///
    /// # Errors
    /// The operating system's error; [`io::ErrorKind::InvalidInput`] for what [`FileStore::new`]
    /// refuses, and for a file to be written that has handles open for reading only;
    /// [`io::ErrorKind::ResourceBusy`] for one that [is locked](crate::Builder::lock_files).
    pub fn open_file(&self, file: fs::File) -> io::Result<CachedFile> {
        let direct = match self.inner().options.direct {
            // Falls back to buffered I/O.
            true => self.with_room(|| FileStore::direct_of(&file)).unwrap_or(None),
            false => None,
        };
        let store = FileStore::new(file, direct)?;
        let (identity, writable) = (store.identity()?, store.is_writable());
        let inner = self.inner();
        let lock = inner.options.lock_files.then(|| store.lock());
        let store = (self.make_store.0)(store);
        let mut guard = inner.files_mut();
        let files = &mut *guard;
        let mut old = None;
        let known = files.by_identity.get(&identity).and_then(|id| files.by_id.get(id));
        let known = known.and_then(|file| Some((file, file.disk.as_ref()?)));
        let (file, disk) = match known {
            Some((file, disk)) if disk.writable || !writable => {
                (Arc::clone(file), Arc::clone(disk))
            }
            Some((file, _)) if file.handles.load(Relaxed) > 0 => {
                let text = "the file is in the cache for reading only; close it there first";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            other => {
                // The file was open for reading and has no handles: drop it and read it again.
                // Unlock it first, or it would block its successor.
                old = other.map(|(file, _)| Arc::clone(file));
                old.iter().for_each(|old| files.begin_leave(old));
                lock.iter().try_for_each(|lock| lock.take(writable))?;
                let disk = Arc::new(Disk::new(store, Some(identity), lock, writable)?);
                let file = File::on_disk(files.new_id(), Arc::clone(&disk));
                (files.add(file), disk)
            }
        };
        let handle = self.handle(files, file, disk, writable);
        drop(guard);
        old.iter().for_each(|old| inner.leave(old, Busy::Pass));
        Ok(handle)
    }

    /// Opens a file over a store of the program. It stays in the cache as long as its handles do.
    ///
    /// # Errors
    /// What the store says of its length.
    pub fn open_store(&self, store: impl Store + 'static) -> io::Result<CachedFile> {
        let mut files = self.inner().files_mut();
        let disk = Arc::new(Disk::new(Box::new(store), None, None, true)?);
        let file = File::on_disk(files.new_id(), Arc::clone(&disk));
        let file = files.add(file);
        Ok(self.handle(&mut files, file, disk, true))
    }

    fn handle(
        &self,
        files: &mut Files,
        file: Arc<File>,
        disk: Arc<Disk>,
        writable: bool,
    ) -> CachedFile {
        files.hold(&file);
        CachedFile::new(Arc::clone(&self.owner), file, disk, writable)
    }

    /// Writes all that is dirty, in all files, and returns when it is safe (`syncfs`).
    ///
    /// # Errors
    /// The first error; the other files were written nevertheless. Else the last error of any file
    /// that this clone of the cache has not reported yet: each clone reports each error once,
    /// besides the file's own handles.
    pub fn sync(&self) -> io::Result<()> {
        let synced = self.inner().sync_all();
        let earlier = self.inner().errors.tell(&self.told);
        synced.and_then(|()| earlier.map_or(Ok(()), Err))
    }

    /// Returns up to `pages` clean pages to the pool, least recently used first. Returns how many.
    pub fn evict(&self, pages: u64) -> u64 {
        let inner = self.inner();
        let before = inner.counters.evicted.load(Relaxed);
        inner.shrink_by(pages);
        inner.counters.evicted.load(Relaxed) - before
    }

    /// Writes all that is dirty, and drops this handle if all of it is safe. An earlier error that
    /// a later write repaired does not count.
    ///
    /// # Errors
    /// The first error, with the cache.
    pub fn close(self) -> Result<(), CloseError> {
        match self.inner().sync_all() {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError { cache: self, error }),
        }
    }

    /// Walks everything. Call it while nothing else uses the cache.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), String> {
        self.inner().validate()
    }
}
