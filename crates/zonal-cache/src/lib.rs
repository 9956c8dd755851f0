//! A page cache over a [`zonal::Pool`]: files in a bounded amount of memory.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_cache::Cache;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data");
//! let pool = Arc::new(zonal::Pool::builder().size(16 << 20).build()?);
//! let cache = Cache::new(pool)?;
//! let file = cache.create(&path)?;
//! file.write_at(b"hello, page", 0)?;
//! let mut start = [0; 5];
//! assert_eq!(file.read_at(&mut start, 0)?, 5); // no system call: the page is in the pool
//! assert_eq!(&start, b"hello");
//! file.pin_mut(0)?[..5].copy_from_slice(b"HELLO"); // in place, without a copy
//! file.sync()?; // what is dirty is written, and safe
//! assert_eq!(std::fs::read(&path)?, b"HELLO, page");
//! println!("{}", cache.stats());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Pages come from the node of the thread that needs them. Two lists per zone of the pool keep
//! pages that are used more than once; a page that is read again soon after it was reclaimed counts
//! as such. One thread reads ahead for sequential readers. Another writes dirty pages, and writers
//! wait for it when there are too many. Concurrent readers of one page share one read.
//!
//! An engine that brings its own I/O has the same cache as an [`EngineCache`]: pages of 4 to 64 KiB
//! over its [`Backing`], pinned in place, written back behind its log, made safe by checkpoints.
//!
//! When not to use it: where the operating system's own cache is large enough and a copy from it
//! fast enough; or for files that others change at the same time.
//!
//! # What a sync says
//! [`CachedFile::sync`] returns `Ok` if every byte that was written before the call is on the
//! device. A failed write leaves its pages dirty. A failed *device sync* is worse: Linux marks the
//! pages clean that it could not write, tells of it once, and the next `fsync` succeeds although
//! the bytes are gone. (PostgreSQL lost data this way until 2018.) So the cache never relies on a
//! second `fsync` for the same write:
//!
//! - Pages that were written since the last good device sync, or while one failed, are **dirty
//!   again**, and the next sync writes them again. A program whose data is still in the cache loses
//!   nothing, and need not abort.
//! - Pages that the cache had reclaimed in between cannot be written again. Their bytes are
//!   **lost**: every sync of the file and every read of them fails with [`LostWrites`] until the
//!   program has rewritten these pages as a whole, has cut them off, or calls
//!   [`CachedFile::accept_loss`]. A program with a log replays it there. (Before the failure is
//!   reported, such a page may read as it was before: Linux drops what it could not write.)
//! - **Each** handle of the file that was open when an error occurred reports it **once**, at its
//!   next sync, also if the data was made safe since; so does each clone of the [`Cache`], at
//!   [`Cache::sync`]. This includes errors of the write-back thread and of reclaim. An error that
//!   no handle has reported goes to the next handle that is opened, as in Linux. Dropping a handle
//!   reports nothing.
//! - A file without handles stays in the cache until it is safe.
//!
//! A cut or a growth of the file ([`CachedFile::set_len`]) is passed to the store at once; the file
//! system keeps it, or fails for good.
//!
//! # One cache for a file
//! A file is known by its inode, or by its device number: under all its names, renamed or deleted,
//! it is the same file. Two caches of one file would each serve old pages, and write over all 4096
//! bytes of a page where the other one changed a few. So a cache locks its files (`flock`,
//! [`Builder::lock_files`]): no other cache, in this process or another, can open a file that one
//! may write; any number of caches may read. The lock lasts until the file leaves the cache
//! ([`CachedFile::close`]), or the process ends. It is advisory: the cache does not see the writes
//! of a program that ignores it, and may overwrite them.
//!
//! # Modules
//! A module uses only modules above it:
//!
//! | module | does |
//! |--|--|
//! | `options`, `stats`, `store` | settings, counters, where files are |
//! | `backing`, `entry` | where pages are outside the cache; who may call |
//! | `disk` | the backing that a file is |
//! | `state`, `lock` | one page's state word, and waiting for it |
//! | `frames` | a page's record, rights to its bytes |
//! | `index` | the pages of a file |
//! | `ranges`, `dirty` | which pages were changed, and what became of them |
//! | `errors` | errors that each listener reports once |
//! | `file` | the record of a file, or of an engine's backing |
//! | `lru` | active and inactive lists, the age of shadows |
//! | `readahead` | windows to be read |
//! | `flusher` | when the write-back thread wakes, and which writers wait |
//! | `inner` | what all threads share, the steps in a page's life |
//! | `writeback` | pages to their stores |
//! | `durable` | device syncs, lost pages |
//! | `reclaim` | pages back to the pool |
//! | `fill` | pages from the pool and the backing |
//! | `find` | pages for a program, to read or to change |
//! | `closing`, `check` | files leave the cache; everything is checked |
//! | `owner` | the cache's threads, and its end |
//! | `pin`, `handle`, `pin_owned`, `cache`, `builder` | what a program holds |
//! | `pager`, `engine` | what an engine holds |
//!
//! # Locks
//! In this order. No lock is held while a page is waited for; none but `resize`, shared, while one
//! is taken from the pool or a store is read; none but `syncing` during a device sync.
//!
//! 0. a file's `syncing`, while its device makes safe what was written;
//! 1. a file's `resize`; shared while a page is looked for and read, exclusive while the file is
//!    cut. Who wants it exclusively never queues: the reader inside may wait for one outside;
//! 2. a page's state, by its users; several pages only by those who wait for none of them;
//! 3. the list of files, to open and close them and to look up a page's file;
//! 4. a stripe of an index; a zone's lists; a file's dirty pages and failures; a handle's
//!    read-ahead; queues; one of these at a time, for a moment.
//!
//! Reclaim only *tries* rank 2 and does not use rank 1, so it may run inside any allocation. The
//! program itself may hold pinned pages as long as it likes; what it must not do with them is said
//! at [`CachedFile::pin`] and [`CachedFile::pin_mut`].

mod backing;
mod builder;
mod cache;
mod check;
mod closing;
mod dirty;
mod disk;
mod durable;
mod engine;
mod entry;
mod errors;
mod file;
mod fill;
mod find;
mod flusher;
mod frames;
mod handle;
mod index;
mod inner;
mod lock;
mod lru;
mod options;
mod owner;
mod pager;
mod pin;
mod pin_owned;
mod ranges;
mod readahead;
mod reclaim;
mod state;
mod stats;
mod store;
mod sync;
mod unwind;
mod writeback;

pub use backing::{Backing, PageWrite, WriteFailed};
pub use builder::Builder;
pub use cache::{Cache, CloseError};
pub use durable::LostWrites;
pub use engine::{EngineBuilder, EngineCache};
pub use handle::CachedFile;
pub use options::Replacement;
pub use pager::Pager;
pub use pin::{PinnedPage, PinnedPageMut};
pub use pin_owned::{OwnedPinnedPage, OwnedPinnedPageMut};
pub use stats::Stats;
pub use store::{FileStore, Store};
