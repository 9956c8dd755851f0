//! How many of a cache's pages passes have in hand (LB H.4). Many requests that reclaim at once
//! would each take 32 pages off a list, until the next one finds it empty and believes that there
//! is nothing to reclaim. So a request waits while others have too many of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_core::gfp::Gfp;

/// Longest wait (`HZ/50`).
const WAIT: Duration = Duration::from_millis(20);

/// Pages of one cache that passes have in hand.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    pages: Mutex<u64>,
    fewer: Condvar,
    stalls: AtomicU64,
}

/// Pages in hand, until dropped.
pub(super) struct Isolated<'a> {
    of: &'a Isolation,
    pages: u64,
}

/// How many of a list's pages others may have in hand before a request waits (LB H.4): those that
/// may use files leave more to those that may not, whom they might wait for.
pub(super) fn limit(inactive: u64, gfp: Gfp) -> u64 {
    if gfp.contains(Gfp::IO | Gfp::FS) { inactive / 8 } else { inactive }
}

impl Isolation {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass takes these pages. Waits while others have more than `limit`, and gives up where they
    /// still do; without a limit it never waits.
    pub(super) fn take(&self, pages: u64, limit: Option<u64>) -> Option<Isolated<'_>> {
        let mut out = self.lock();
        if let Some(limit) = limit.filter(|limit| *out > *limit) {
            self.stalls.fetch_add(1, Relaxed);
            let many = |out: &mut u64| *out > limit;
            let waited = self.fewer.wait_timeout_while(out, WAIT, many);
            out = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *out > limit {
                return None;
            }
        }
        *out += pages;
        Some(Isolated { of: self, pages })
    }

    /// Times a request had to wait.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }
}

impl Drop for Isolated<'_> {
    fn drop(&mut self) {
        *self.of.lock() -= self.pages;
        self.of.fewer.notify_all();
    }
}
