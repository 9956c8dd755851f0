//! A cache's configuration, and its construction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use zonal::Pool;

use crate::cache::Cache;
use crate::options::Options;
use crate::store::{FileStore, MakeStore, Store};

/// Configuration of a cache. Every option has a default.
#[derive(Clone, Debug)]
pub struct Builder {
    pool: Arc<Pool>,
    options: Options,
    make_store: MakeStore,
}

impl Builder {
    fn new(pool: Arc<Pool>) -> Builder {
        Builder { pool, options: Options::default(), make_store: MakeStore::default() }
    }

    /// Pages of 4 KiB at most, whatever the pool has. At least 4. Default: no bound but the pool's.
    pub fn max_pages(mut self, pages: u64) -> Builder {
        self.options.max_pages = pages.max(4);
        self
    }
    /// Pages of a read-ahead window at most; 0 reads nothing ahead. Default: 32, which is 128 KiB.
    pub fn read_ahead(mut self, pages: u32) -> Builder {
        self.options.read_ahead = pages;
        self
    }
    /// Percent of what could be dirty: above `background` the write-back thread writes, above
    /// `hard` writers wait for it. Values above 100 count as 100. Default: 10 and 20
    /// (`dirty_background_ratio`, `dirty_ratio`).
    pub fn dirty_percent(mut self, background: u32, hard: u32) -> Builder {
        self.options.background_percent = background.min(100);
        self.options.dirty_percent = hard.min(100);
        self
    }
    /// Pages that are dirty for this long are written even if they are few. Default: 30 seconds
    /// (`dirty_expire_centisecs`).
    pub fn dirty_expire(mut self, age: Duration) -> Builder {
        self.options.dirty_expire = age;
        self
    }
    /// How often the write-back thread looks for such pages; more than 0. Default: 5 seconds
    /// (`dirty_writeback_centisecs`).
    pub fn writeback_every(mut self, interval: Duration) -> Builder {
        self.options.writeback_interval = interval;
        self
    }
    /// Direct I/O: whether reads and writes bypass the operating system's cache, where the file
    /// system can. Default: no.
    pub fn direct(mut self, direct: bool) -> Builder {
        self.options.direct = direct;
        self
    }
    /// Files that stay in the cache, and open, after their last handle was dropped. Those of the
    /// oldest are written and dropped first. Default: 256.
    pub fn closed_files(mut self, files: usize) -> Builder {
        self.options.closed_files = files;
        self
    }

    /// Whether files are locked while they are in the cache (`flock`): alone, or together with
    /// other readers if they are open for reading only. A file that another cache has locked, in
    /// this process or in another one, cannot be opened. File systems without locks are used
    /// without. Default: yes.
    pub fn lock_files(mut self, lock: bool) -> Builder {
        self.options.lock_files = lock;
        self
    }

    /// Makes a store around each file that is opened. The store can measure, limit or change what
    /// is read and written. Default: the file itself.
    pub fn stores(
        mut self,
        make: impl Fn(FileStore) -> Box<dyn Store> + Send + Sync + 'static,
    ) -> Builder {
        self.make_store = MakeStore(Arc::new(make));
        self
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// The operating system could not start a thread, or the pool has 16 TiB or more.
    /// [`io::ErrorKind::InvalidInput`] for an interval of 0.
    pub fn build(self) -> io::Result<Cache> {
        Cache::start(self.pool, self.options, self.make_store)
    }
}

impl Cache {
    /// A description to fill in.
    pub fn builder(pool: Arc<Pool>) -> Builder {
        Builder::new(pool)
    }

    /// A cache with defaults.
    ///
    /// # Errors
    /// The operating system could not start a thread.
    pub fn new(pool: Arc<Pool>) -> io::Result<Cache> {
        Cache::builder(pool).build()
    }
}
