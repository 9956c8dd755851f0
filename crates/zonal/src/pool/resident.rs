//! Memory that stays as it is while something other than the process' page tables points to it: a
//! device, or the kernel with registered buffers. A page that was given back and faulted in again
//! is another page, and what is written to the old one is lost.
//!
//! # Invariant
//! - **RESIDENT-1** no page is given back to the system while a [`Resident`] lives: who gives back
//!   is counted first and looks for one then, who makes one is counted first and waits for those.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::Pool;

/// Who gives pages back, and who needs that none is.
#[derive(Debug, Default)]
pub(super) struct Residency {
    /// Blocks on their way back to the system.
    releases: AtomicUsize,
    /// [`Resident`]s.
    keeps: AtomicUsize,
}

/// While it lives no page of the pool is given back to the system: [`Pool::trim`] and the
/// background trim find nothing, and a smaller budget withholds blocks that stay in memory. For
/// memory that something else than this process' page tables points to: buffers registered with
/// io_uring, with a network card, with a GPU.
///
/// It holds a handle of the pool.
pub struct Resident {
    pool: Pool,
}

impl Residency {
    /// Calls `release`, unless pages must stay: `None`.
    pub(super) fn release<T>(&self, release: impl FnOnce() -> T) -> Option<T> {
        // SeqCst: pairs with the two in `Resident::new`. Each side writes its count and then reads
        // the other's, so at least one sees the other (RESIDENT-1).
        self.releases.fetch_add(1, SeqCst);
        let released = (self.keeps.load(SeqCst) == 0).then(release);
        // SeqCst: pairs with the load in `Resident::new`, which sees the pages as they are now.
        self.releases.fetch_sub(1, SeqCst);
        released
    }

    /// In a forked child: other threads of the parent give nothing back here.
    pub(super) fn forked(&self) {
        // SeqCst: pairs with the load in `Resident::new`; the child has one thread.
        self.releases.store(0, SeqCst);
    }
}

impl Resident {
    /// Keeps the pool's pages where they are until the result is dropped.
    pub fn new(pool: &Pool) -> Resident {
        let residency = &pool.shared.residency;
        // SeqCst: pairs with the two in `Residency::release`, as said there.
        residency.keeps.fetch_add(1, SeqCst);
        while residency.releases.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        Resident { pool: pool.clone() }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SeqCst: pairs with the load in `Residency::release`.
        self.pool.shared.residency.keeps.fetch_sub(1, SeqCst);
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident").finish_non_exhaustive()
    }
}
