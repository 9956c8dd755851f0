//! The cache of an engine: pages of its own size, over its own I/O.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use zonal::{Order, PAGE_SIZE, Pool};

use crate::backing::{Backing, Guarded};
use crate::errors::Cursor;
use crate::file::File;
use crate::options::{Options, Replacement};
use crate::owner::Owner;
use crate::pager::Pager;
use crate::stats::Stats;

/// Bytes of the largest page.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// The page cache of an engine that brings its own I/O: a B-tree, a column store, a log of pages.
/// Clones are the same cache; it ends with the last of them and of its [`Pager`]s.
///
/// It is the cache of files with another bottom: the same lists, limits, write-back, errors and
/// reclaim by the pool, over an engine's [`Backing`] instead of files, with pages of 4 to 64 KiB.
///
/// ```
/// use std::collections::HashMap;
/// use std::io;
/// use std::sync::{Arc, Mutex};
/// use zonal_cache::{Backing, EngineCache, PageWrite, WriteFailed};
///
/// #[derive(Default)]
/// struct Heap(Mutex<HashMap<u64, Vec<u8>>>);
///
/// impl Backing for Heap {
///     fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
///         match self.0.lock().unwrap().get(&page) {
///             Some(stored) => bytes.copy_from_slice(stored),
///             None => bytes.fill(0),
///         }
///         Ok(())
///     }
///     fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
///         let mut heap = self.0.lock().unwrap();
///         heap.extend(batch.iter().map(|write| (write.page, write.bytes.to_vec())));
///         Ok(())
///     }
///     fn sync(&self) -> io::Result<()> {
///         Ok(())
///     }
/// }
///
/// let pool = Arc::new(zonal::Pool::builder().size(16 << 20).build()?);
/// let cache = EngineCache::builder(pool).page_bytes(16 << 10).max_pages(256).build()?;
/// let pager = cache.open(Heap::default())?;
/// let mut page = pager.pin_mut(7)?; // shared by nobody
/// page[..5].copy_from_slice(b"hello");
/// drop(page);
/// assert_eq!(&pager.pin(7)?[..5], b"hello"); // in place, shared with other readers
/// pager.checkpoint()?; // what was dirty is written, and synced
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a forked child nothing is read or written: every call fails with
/// [`io::ErrorKind::Unsupported`], pins of the parent can be read, and dropping does nothing.
/// Another thread of the parent may have been anywhere, with any lock, so the child takes none.
#[derive(Clone)]
pub struct EngineCache {
    owner: Arc<Owner>,
    /// Errors of all pagers that this clone has reported.
    told: Cursor,
}

impl fmt::Debug for EngineCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCache").field("stats", &self.stats()).finish()
    }
}

/// Configuration of an [`EngineCache`]. Every option has a default.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    pool: Arc<Pool>,
    page_bytes: usize,
    options: Options,
}

impl EngineBuilder {
    /// Bytes of a page: a power of two, 4 KiB to 64 KiB. Default: 4 KiB.
    pub fn page_bytes(mut self, bytes: usize) -> EngineBuilder {
        self.page_bytes = bytes;
        self
    }
    /// Pages at most, whatever the pool has. At least 4. Default: no bound but the pool's.
    pub fn max_pages(mut self, pages: u64) -> EngineBuilder {
        self.options.max_pages = pages.max(4);
        self
    }
    /// Which page leaves when one must. Default: [`Replacement::ActiveInactive`].
    pub fn replacement(mut self, rule: Replacement) -> EngineBuilder {
        self.options.replacement = rule;
        self
    }
    /// As [`Builder::dirty_percent`](crate::Builder::dirty_percent). An engine that paces its own
    /// writers says 100 for `hard`. Default: 10 and 20.
    pub fn dirty_percent(mut self, background: u32, hard: u32) -> EngineBuilder {
        self.options.background_percent = background.min(100);
        self.options.dirty_percent = hard.min(100);
        self
    }
    /// As [`Builder::dirty_expire`](crate::Builder::dirty_expire). Default: 30 seconds.
    pub fn dirty_expire(mut self, age: Duration) -> EngineBuilder {
        self.options.dirty_expire = age;
        self
    }
    /// As [`Builder::writeback_every`](crate::Builder::writeback_every). Default: 5 seconds.
    pub fn writeback_every(mut self, interval: Duration) -> EngineBuilder {
        self.options.writeback_interval = interval;
        self
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a page size that it cannot have, or an interval of 0;
    /// the operating system could not start a thread.
    pub fn build(self) -> io::Result<EngineCache> {
        let bytes = self.page_bytes;
        let fits = bytes.is_power_of_two() && (PAGE_SIZE..=PAGE_BYTES_MAX).contains(&bytes);
        let order = Order::for_bytes(bytes).filter(|_| fits).ok_or_else(|| {
            let text = format!(
                "invalid value for page_bytes: {bytes} (a power of two from {PAGE_SIZE} to \
                 {PAGE_BYTES_MAX})"
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let owner = Arc::new(Owner::start(self.pool, Options { order, ..self.options })?);
        let told = owner.inner.errors.listen();
        Ok(EngineCache { owner, told })
    }
}

impl EngineCache {
    /// A description to fill in.
    pub fn builder(pool: Arc<Pool>) -> EngineBuilder {
        let options = Options { logged: true, ..Options::default() };
        EngineBuilder { pool, page_bytes: PAGE_SIZE, options }
    }

    /// Pages of one more backing: a table, a file, a device. They share the cache's memory with the
    /// others, and stay in it as long as a [`Pager`] of the backing does. A backing is opened once:
    /// clone its pager for more handles.
    ///
    /// # Errors
    /// In a forked child, and inside a backing of the cache.
    pub fn open(&self, backing: impl Backing + 'static) -> io::Result<Pager> {
        let inner = &self.owner.inner;
        inner.entry.check()?;
        let backing = Arc::new(Guarded::new(Box::new(backing), inner.entry.cache));
        let mut files = inner.files_mut();
        let file = File::new(files.new_id(), backing);
        let file = files.add(file);
        Ok(Pager::new(Arc::clone(&self.owner), file, &mut files))
    }

    /// The pool that the pages are from.
    pub fn pool(&self) -> &Pool {
        self.owner.inner.frames.pool()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.owner.inner.frames.page_bytes()
    }

    /// What the cache did and holds, in its own pages.
    pub fn stats(&self) -> Stats {
        self.owner.inner.stats()
    }

    /// A [checkpoint](Pager::checkpoint) of every pager.
    ///
    /// # Errors
    /// The first error; the other pagers were written nevertheless. Else the last error of any
    /// pager that this clone of the cache has not reported yet.
    pub fn checkpoint(&self) -> io::Result<()> {
        let inner = &self.owner.inner;
        inner.entry.check()?;
        let synced = inner.sync_all();
        let earlier = inner.errors.tell(&self.told);
        synced.and_then(|()| earlier.map_or(Ok(()), Err))
    }

    /// Returns up to `pages` clean pages to the pool, in the order of the
    /// [rule](EngineBuilder::replacement); dirty ones are written if there are too few. Returns how
    /// many; none inside a backing of the cache, and in a forked child.
    pub fn evict(&self, pages: u64) -> u64 {
        let inner = &self.owner.inner;
        if inner.entry.check().is_err() {
            return 0;
        }
        // Relaxed: a figure.
        let before = inner.counters.evicted.load(Relaxed);
        inner.shrink_by(pages);
        inner.counters.evicted.load(Relaxed) - before
    }

    /// Walks everything. Call it while nothing else uses the cache.
    ///
    /// # Errors
    /// The first broken invariant; in a forked child, that it is one.
    pub fn validate(&self) -> Result<(), String> {
        self.owner.inner.entry.check_here().map_err(|error| error.to_string())?;
        self.owner.inner.validate()
    }
}
