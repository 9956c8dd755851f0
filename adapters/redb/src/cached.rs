//! A storage backend of redb on the pages of an engine's cache.
//!
//! # Invariants
//! - **REDB-1** while the cache is used, no other handle of the storage exists: redb has taken its
//!   exclusive lock on all of the data. Without that lock calls go to the storage as they are.
//! - **REDB-2** pages hold zeroes past `len`, and nothing is written there, so that a storage that
//!   grows again reads zeroes.
//! - **REDB-3** the storage's length and `len` change together, under `resizing`. Its holder waits
//!   for pages, so a thread that holds a page does not take it.
//!
//! Both atomics are Relaxed: redb locks the storage before it shares it, and a write-back that must
//! see a shorter length takes a right to a page after the thread that set it (the page's state).

use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use zonal_cache::{Backing, EngineCache, PageWrite, Pager, WriteFailed};

use super::engine::{BackendError, StorageBackend};

/// The bytes of redb's data end below this; its locks begin here.
const DATA_END: u64 = 1 << 62;

/// A storage whose pages are in a cache.
pub struct Cached<S> {
    storage: Arc<Storage<S>>,
    pager: Pager,
    /// The engine has the storage for itself (REDB-1).
    alone: AtomicBool,
    /// One change of the length at a time (REDB-3).
    resizing: Mutex<()>,
}

impl<S> fmt::Debug for Cached<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("alone", &self.alone).finish_non_exhaustive()
    }
}

/// The storage below the cache.
struct Storage<S> {
    under: S,
    /// Bytes of the storage.
    len: AtomicU64,
    page_bytes: u64,
}

impl<S> Storage<S> {
    /// Where a page begins, and its bytes that the storage has.
    fn extent(&self, page: u64) -> (u64, usize) {
        let offset = page * self.page_bytes;
        let len = self.len.load(Relaxed).saturating_sub(offset).min(self.page_bytes);
        (offset, len as usize)
    }
}

/// The cache's reference to the storage.
struct Under<S>(Arc<Storage<S>>);

impl<S: StorageBackend> Backing for Under<S> {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (offset, len) = self.0.extent(page);
        let (there, behind) = bytes.split_at_mut(len);
        behind.fill(0);
        match there.is_empty() {
            true => Ok(()),
            false => self.0.under.read(offset, there),
        }
    }

    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        for (written, write) in batch.iter().enumerate() {
            let (offset, len) = self.0.extent(write.page);
            if len > 0
                && let Err(error) = self.0.under.write(offset, &write.bytes[..len])
            {
                return Err(WriteFailed { written, error });
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.under.sync_data()
    }
}

impl<S: StorageBackend> Cached<S> {
    /// `storage` with its pages in `cache`.
    ///
    /// # Errors
    /// The storage's, for its length.
    pub fn new(storage: S, cache: &EngineCache) -> io::Result<Cached<S>> {
        let len = AtomicU64::new(storage.len()?);
        let storage =
            Arc::new(Storage { under: storage, len, page_bytes: cache.page_bytes() as u64 });
        let pager = cache.open(Under(Arc::clone(&storage)))?;
        let (alone, resizing) = (AtomicBool::new(false), Mutex::default());
        Ok(Cached { storage, pager, alone, resizing })
    }

    fn is_alone(&self) -> bool {
        self.alone.load(Relaxed)
    }

    /// The engine has taken a lock of its own on a range.
    fn locked(&self, start: Bound<u64>, end: Bound<u64>) -> io::Result<()> {
        let from_start = matches!(start, Bound::Unbounded | Bound::Included(0));
        let to_end = match end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) => end >= DATA_END,
        };
        if from_start && to_end && !self.is_alone() {
            // Others may have changed it until now.
            self.pager.truncate(0)?;
            self.storage.len.store(self.storage.under.len()?, Relaxed);
            self.alone.store(true, Relaxed);
        }
        Ok(())
    }

    /// Writes everything, and uses the cache no more. What could not be written is dropped, as at
    /// the end of a process: later the storage is another's (REDB-1).
    ///
    /// # Errors
    /// Something could not be written; or the pages could not be dropped, and the engine is still
    /// [alone](Self::is_alone).
    fn leave(&self) -> io::Result<()> {
        if !self.is_alone() {
            return Ok(());
        }
        let written = self.pager.checkpoint();
        self.pager.truncate(0)?;
        self.alone.store(false, Relaxed);
        written
    }

    /// The parts of a range of bytes by page: number, bytes inside it, bytes of the range.
    fn parts(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
        let bytes = self.storage.page_bytes;
        let end = offset + len as u64;
        (offset / bytes..end.div_ceil(bytes)).map(move |page| {
            let start = page * bytes;
            let (from, to) = (offset.max(start), end.min(start + bytes));
            let inside = (from - start) as usize..(to - start) as usize;
            (page, inside, (from - offset) as usize..(to - offset) as usize)
        })
    }

    /// Gives the storage the length that `to` makes of the one it has.
    fn resize(&self, to: impl FnOnce(u64) -> u64) -> io::Result<()> {
        let _one = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.storage.len.load(Relaxed);
        let len = to(before);
        if !self.is_alone() || len >= before {
            self.storage.under.set_len(len)?;
            self.storage.len.store(len, Relaxed);
            return Ok(());
        }
        // First the length, so that no write that begins now goes past it; then what is under way
        // ends, because both calls wait for its pages (REDB-2).
        self.storage.len.store(len, Relaxed);
        let bytes = self.storage.page_bytes;
        self.pager.truncate(len.div_ceil(bytes))?;
        let inside = (len % bytes) as usize;
        if inside > 0 {
            self.pager.pin_mut(len / bytes)?[inside..].fill(0);
        }
        self.storage.under.set_len(len)
    }

    /// # Errors
    /// The range ends behind the storage.
    fn check(&self, offset: u64, bytes: usize) -> io::Result<()> {
        let len = self.storage.len.load(Relaxed);
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= len => Ok(()),
            _ => {
                let text = format!("{bytes} bytes at {offset} are not all in {len} bytes");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
            }
        }
    }
}

impl<S: StorageBackend> StorageBackend for Cached<S> {
    fn len(&self) -> io::Result<u64> {
        match self.is_alone() {
            true => Ok(self.storage.len.load(Relaxed)),
            false => self.storage.under.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.is_alone() {
            return self.storage.under.read(offset, out);
        }
        self.check(offset, out.len())?;
        for (page, inside, part) in self.parts(offset, out.len()) {
            out[part].copy_from_slice(&self.pager.pin(page)?[inside]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(|_| len)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.is_alone() {
            true => self.pager.checkpoint(),
            false => self.storage.under.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.is_alone() {
            return self.storage.under.write(offset, data);
        }
        let end = offset.checked_add(data.len() as u64);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if end > self.storage.len.load(Relaxed) {
            // So that every page up to there can be read. Another write may have gone further.
            self.resize(|len| len.max(end))?;
        }
        for (page, inside, part) in self.parts(offset, data.len()) {
            let whole = inside.len() as u64 == self.storage.page_bytes;
            let mut pin =
                if whole { self.pager.pin_new(page)? } else { self.pager.pin_mut(page)? };
            pin[inside].copy_from_slice(&data[part]);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        let left = self.leave();
        self.storage.under.close().and(left)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let locked = self.storage.under.try_lock_range(start, end)?;
        if locked {
            self.locked(start, end).map_err(BackendError::Io)?;
        }
        Ok(locked)
    }
    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.storage.under.try_lock_shared_range(start, end)
    }
    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.under.lock_range(start, end)?;
        self.locked(start, end).map_err(BackendError::Io)
    }
    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.under.lock_shared_range(start, end)
    }
    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        if !matches!(start, Bound::Unbounded | Bound::Included(0)) {
            return self.storage.under.unlock_range(start, end);
        }
        let left = self.leave().map_err(BackendError::Io);
        if self.is_alone() {
            // Pages of it are in the cache: the lock stays.
            return left;
        }
        self.storage.under.unlock_range(start, end).and(left)
    }
    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.under.query_lock_range(start, end)
    }
}
