//! Backings: where pages are when they are not in the cache. The cache knows nothing else of a
//! file or of an engine's storage; files are the implementation in `disk`.
//!
//! A thread that is inside a backing is marked, so that a backing that calls the cache it is under
//! gets an error instead of waiting for itself.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem;
use std::panic::{self, AssertUnwindSafe};

/// A page that is to be written.
#[derive(Clone, Copy)]
pub struct PageWrite<'a> {
    /// Its number.
    pub page: u64,
    /// All its bytes. They do not change meanwhile.
    pub bytes: &'a [u8],
}

impl fmt::Debug for PageWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWrite").field("page", &self.page).finish_non_exhaustive()
    }
}

/// A write that failed, and how far it came.
#[derive(Debug)]
pub struct WriteFailed {
    /// Pages at the front of the batch that were written as a whole. They count as written; the
    /// others stay dirty.
    pub written: usize,
    /// The reason.
    pub error: io::Error,
}

impl From<io::Error> for WriteFailed {
    /// None of the pages is known to be written.
    fn from(error: io::Error) -> WriteFailed {
        WriteFailed { written: 0, error }
    }
}

/// An engine's own I/O: where the pages of a [`Pager`](crate::Pager) are when they are not in the
/// cache.
///
/// # Contract
/// 1. **Any thread, any time.** The cache calls from its own threads, and from every thread inside
///    any call of the cache or of the pool: a thread that needs a page may have to write another
///    one first. Calls for different pages overlap; the cache never has two calls under way that
///    write the same page, or that read a page while it is written.
/// 2. **No lock twice.** So a thread must not hold a lock that its backing takes while it calls the
///    cache; the lock of a log that [`before_write`](Self::before_write) takes is the usual one.
/// 3. **No way back.** A call of the cache from inside a backing of it fails with
///    [`io::ErrorKind::Deadlock`]. A thread that a backing waits for may take pages, but not those
///    at hand; nor may it call what waits for all of them: [`truncate`](crate::Pager::truncate),
///    `checkpoint` and `close`. A backing takes no pages of the cache's pool.
/// 4. **Slow is allowed.** Only threads that want the pages at hand wait, and writers while too
///    much is dirty.
/// 5. **Failure is allowed.** A read that fails fails the caller and leaves no page. A write that
///    fails leaves its pages dirty; each handle reports the error once, at its next checkpoint. A
///    panic counts as an error.
/// 6. **A sync that fails says nothing of what was written since the last good one.** The cache
///    writes those pages again that it still has, and reports the others as
///    [lost](crate::LostWrites).
pub trait Backing: Send + Sync {
    /// Fills `bytes`, the whole page. A page that was never written reads as the engine likes:
    /// usually zeroes.
    ///
    /// # Errors
    /// The engine's; it fails the call of the cache that asked for the page.
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Fills pages that follow one another from `first` on: what one look-ahead asks for.
    ///
    /// # Errors
    /// As for [`read`](Self::read). The cache asks for the first page alone then.
    fn read_run(&self, first: u64, pages: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        (first..).zip(pages).try_for_each(|(page, bytes)| self.read(page, bytes))
    }

    /// Writes pages, in rising order of their numbers, with gaps. They need not be safe before a
    /// [`sync`](Self::sync), nor be written in this order.
    ///
    /// # Errors
    /// The engine's, and how many pages were written; `?` turns an [`io::Error`] into "none".
    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed>;

    /// Returns when everything is safe that was written before the call.
    ///
    /// # Errors
    /// The engine's.
    fn sync(&self) -> io::Result<()>;

    /// Returns when the engine's log is safe up to `lsn`, the highest number that one of the pages
    /// about to be written was given ([`PinnedPageMut::set_lsn`](crate::PinnedPageMut::set_lsn)).
    /// Not called for pages without.
    ///
    /// # Errors
    /// The engine's. The pages are not written, and stay dirty.
    fn before_write(&self, lsn: u64) -> io::Result<()> {
        let _ = lsn;
        Ok(())
    }
}

/// Calls a program's storage. A panic in it becomes an error of the call, so that no page stays
/// half done and no thread of the cache ends.
pub fn caught<T>(what: &str, call: impl FnOnce() -> T) -> io::Result<T> {
    // The storage's own state is its business: the cache calls it again, as after an error.
    panic::catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let error = io::Error::other(format!("{what} panicked: {}", text.unwrap_or("no text")));
        // The panic's payload may panic again when it is dropped.
        mem::forget(panic);
        error
    })
}

thread_local! {
    /// Caches whose engine's backing this thread is inside of.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is inside a backing of the cache with this number. In the destructors of a
/// thread that ends it no longer knows, and is not.
pub fn is_inside(cache: u64) -> bool {
    INSIDE.try_with(|inside| inside.borrow().contains(&cache)).unwrap_or(false)
}

/// This thread is inside, while this exists.
struct Inside;

impl Inside {
    fn enter(cache: u64) -> Option<Inside> {
        INSIDE.try_with(|inside| inside.borrow_mut().push(cache)).ok().map(|()| Inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

/// An engine's backing: its panics are errors, and calls back are found.
pub struct Guarded {
    backing: Box<dyn Backing>,
    /// The cache's number.
    cache: u64,
}

impl Guarded {
    pub fn new(backing: Box<dyn Backing>, cache: u64) -> Guarded {
        Guarded { backing, cache }
    }

    fn call<T, E: From<io::Error>>(
        &self,
        call: impl FnOnce(&dyn Backing) -> Result<T, E>,
    ) -> Result<T, E> {
        let _inside = Inside::enter(self.cache);
        caught("the backing", || call(&*self.backing)).unwrap_or_else(|error| Err(error.into()))
    }
}

impl Backing for Guarded {
    fn read(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.call(|backing| backing.read(page, bytes))
    }
    fn read_run(&self, first: u64, pages: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.call(|backing| backing.read_run(first, pages))
    }
    fn write(&self, batch: &[PageWrite<'_>]) -> Result<(), WriteFailed> {
        self.call(|backing| backing.write(batch))
    }
    fn sync(&self) -> io::Result<()> {
        self.call(|backing| backing.sync())
    }
    fn before_write(&self, lsn: u64) -> io::Result<()> {
        self.call(|backing| backing.before_write(lsn))
    }
}
