//! The threads that are in a pool without a handle of it, and the moment from which there is no
//! handle (LIFE-2). The interleaving model (`tests/loom_life.rs`) compiles this very file with
//! loom's types.

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, yield_now};

/// In `inside`: no handle is left.
const ORPHAN: usize = 1 << (usize::BITS - 1);

/// The ways into a pool for an owner of its pages. `T` keeps the pool alive.
pub(crate) struct Entries<T> {
    /// Threads inside, and [`ORPHAN`].
    inside: AtomicUsize,
    orphan: Mutex<Orphan<T>>,
}

/// A pool without handles.
pub(crate) struct Orphan<T> {
    /// The pool, while pages of it are handed out.
    this: Option<T>,
    /// Base pages that are handed out.
    pages: u64,
}

impl<T> Entries<T> {
    /// Of a pool with a handle.
    pub(crate) fn new() -> Entries<T> {
        let orphan = Mutex::new(Orphan { this: None, pages: 0 });
        Entries { inside: AtomicUsize::new(0), orphan }
    }

    /// Comes in, until [`leave`](Self::leave). `false`: the pool is an orphan, whose lock is the
    /// way in.
    pub(crate) fn enter(&self) -> bool {
        // AcqRel: pairs with the AcqRel in `close`.
        let entered = self.inside.fetch_add(1, Ordering::AcqRel) & ORPHAN == 0;
        if !entered {
            // Relaxed: nothing was done inside.
            self.inside.fetch_sub(1, Ordering::Relaxed);
        }
        entered
    }

    /// Goes out. The pool may be gone when this returns, so it takes no reference.
    ///
    /// # Safety
    /// 1. `this` is alive: the caller has come in and not gone out.
    pub(crate) unsafe fn leave(this: *const Entries<T>) {
        // SAFETY: (1) this function's contract. The subtraction is the last that is touched.
        let inside = unsafe { &raw const (*this).inside };
        // SAFETY: (1) as above. Release: pairs with the Acquire in `close`.
        unsafe { (*inside).fetch_sub(1, Ordering::Release) };
    }

    /// Keeps threads out and waits for those inside (LIFE-2). They are quick: none calls code of
    /// the user.
    pub(crate) fn close(&self) -> MutexGuard<'_, Orphan<T>> {
        let orphan = self.lock();
        // AcqRel: pairs with the AcqRel of `enter`, which then sees the flag.
        self.inside.fetch_or(ORPHAN, Ordering::AcqRel);
        // Acquire: pairs with the Release of `leave`; what was freed is seen as free.
        while self.inside.load(Ordering::Acquire) & !ORPHAN != 0 {
            yield_now();
        }
        orphan
    }

    /// The lock of an orphan; also keeps its pages from being subtracted, across a fork.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Orphan<T>> {
        self.orphan.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// In a forked child: threads inside are nobody's. Their pages stay handed out.
    pub(crate) fn forked(&self) {
        // Relaxed: the child has one thread.
        self.inside.fetch_and(ORPHAN, Ordering::Relaxed);
    }
}

impl<T> Orphan<T> {
    /// Leaves the pool to its pages, of which there is at least one.
    pub(crate) fn keep(&mut self, this: T, pages: u64) {
        (self.this, self.pages) = (Some(this), pages);
    }

    /// So many pages more are handed out, or fewer. The pool itself after the last, to be dropped
    /// when the lock is free.
    pub(crate) fn moved(&mut self, pages: i64) -> Option<T> {
        self.pages = self.pages.saturating_add_signed(pages);
        if self.pages == 0 { self.this.take() } else { None }
    }
}
