//! How many of a cache's pages passes have in hand (LB H.4). Many requests that reclaim at once
//! would each take 32 pages off a list, until the next one finds it empty and concludes that there
//! is nothing to reclaim. So a request waits while others have too many of them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zonal_core::gfp::Gfp;

use super::parking::{park, unpark_all};

/// Longest wait (`HZ/50`).
const WAIT: Duration = Duration::from_millis(20);

/// A thread waits.
const WAITED_FOR: u32 = 1;

/// Pages of one cache that passes have in hand.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    pages: AtomicU64,
    /// Changes when there are fewer; its lowest bit is [`WAITED_FOR`].
    fewer: AtomicU32,
    stalls: AtomicU64,
}

/// Pages in hand, until dropped.
pub(super) struct Isolated<'a> {
    of: &'a Isolation,
    pages: u64,
}

/// How many of a list's pages others may have in hand before a request waits (LB H.4): requests
/// that may use files leave more to those that may not, for which they might wait.
pub(super) fn limit(inactive: u64, gfp: Gfp) -> u64 {
    if gfp.contains(Gfp::IO | Gfp::FS) { inactive / 8 } else { inactive }
}

impl Isolation {
    /// A pass takes these pages. Waits a bounded time while others have more than `limit`; without
    /// a limit it never waits.
    pub(super) fn take(&self, pages: u64, limit: Option<u64>) -> Option<Isolated<'_>> {
        let limit = limit.unwrap_or(u64::MAX);
        let mut end = None;
        loop {
            let out = self.pages.load(Relaxed);
            if out <= limit {
                let new = out.saturating_add(pages);
                if self.pages.compare_exchange_weak(out, new, Relaxed, Relaxed).is_ok() {
                    return Some(Isolated { of: self, pages });
                }
                continue;
            }
            let end = *end.get_or_insert_with(|| {
                self.stalls.fetch_add(1, Relaxed);
                Instant::now() + WAIT
            });
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // AcqRel: pairs with the one in `Isolated::drop`: either that sees the bit, or this
            // thread sees the fewer pages.
            let seen = self.fewer.fetch_or(WAITED_FOR, Ordering::AcqRel) | WAITED_FOR;
            if self.pages.load(Relaxed) > limit {
                park(&self.fewer, seen, Some(left));
            }
        }
    }

    /// Times a request had to wait.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }

    /// In a forked child: no other thread has pages in hand.
    pub(super) fn forked(&self) {
        self.pages.store(0, Relaxed);
    }
}

impl Drop for Isolated<'_> {
    fn drop(&mut self) {
        let less = |out: u64| Some(out.saturating_sub(self.pages));
        let _ = self.of.pages.fetch_update(Relaxed, Relaxed, less);
        // AcqRel: pairs with the one in `take`.
        let before = self.of.fewer.fetch_and(!WAITED_FOR, Ordering::AcqRel);
        if before & WAITED_FOR != 0 {
            // Another value for those who have set the bit and do not sleep yet.
            self.of.fewer.fetch_add(2, Relaxed);
            unpark_all(&self.of.fewer);
        }
    }
}
