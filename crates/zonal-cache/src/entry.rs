//! Who may enter a cache: not a forked child, and no thread that is inside a backing of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zonal::process::Process;

use crate::backing::is_inside;

/// Numbers of caches handed out.
static CACHES: AtomicU64 = AtomicU64::new(0);

/// The door of one cache.
#[derive(Debug)]
pub struct Entry {
    /// The cache's number: no other's.
    pub cache: u64,
    /// The process that made it.
    process: Process,
}

impl Entry {
    /// Of a new cache.
    pub fn new() -> Entry {
        // Relaxed: a number.
        Entry { cache: CACHES.fetch_add(1, Relaxed), process: Process::this() }
    }

    /// Whether this process made the cache: `false` in a forked child.
    pub fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// # Errors
    /// In a forked child, which has no threads of the cache: a page that another thread held at the
    /// fork is held for good.
    pub fn check_here(&self) -> io::Result<()> {
        if self.is_here() { Ok(()) } else { Err(in_child()) }
    }

    /// The same at the cost of a load, for the calls that are made most; a child that was made
    /// past the handlers of `fork` is not told.
    ///
    /// # Errors
    /// As for [`check_here`](Self::check_here).
    pub fn check_not_forked(&self) -> io::Result<()> {
        if self.process.was_forked() { Err(in_child()) } else { Ok(()) }
    }

    /// # Errors
    /// This thread is inside a backing of the cache.
    pub fn check_outside(&self) -> io::Result<()> {
        if !is_inside(self.cache) {
            return Ok(());
        }
        let text = "a backing called the cache that it is under; it would wait for itself";
        Err(io::Error::new(io::ErrorKind::Deadlock, text))
    }

    /// # Errors
    /// As for the two checks.
    pub fn check(&self) -> io::Result<()> {
        self.check_outside()?;
        self.check_here()
    }
}

fn in_child() -> io::Error {
    let text = "a forked child cannot use the cache of its parent; make one in the child";
    io::Error::new(io::ErrorKind::Unsupported, text)
}
