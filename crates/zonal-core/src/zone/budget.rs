//! One number of pages for all lists and depots of a zone.
//!
//! ```text
//!  limit  ├── depots' arrays ──┼── granted to pcps ─────────┼── left ──┤
//!                                 grows as lists need it: on refills and frees that decide
//!                                 shrinks as they do: a refresh, a drain
//! ```
//! Booked is the number of pages that a pcp *may* hold, not its contents. A fast operation stays
//! below the limit that its pcp was granted, so it books nothing; a pcp that needs more asks here,
//! when it is closed anyway, and gets unbooked pages.
//!
//! # Invariants
//! - **BUDGET-1** `reserved` = what the zone's pcps are granted + what its depots have room for,
//!   and `reserved <= limit`.
//! - **BUDGET-2** while a pcp's gate is open its lists hold, and by fast operations will hold, at
//!   most what it is granted. So the zone's lists and depots never hold more than `limit` pages,
//!   except one block of each closed pcp.
//!
//! It does not depend on pcps, so that the interleaving model (crates/zonal/tests/loom_budget.rs)
//! compiles this very file with its own atomics.

use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::PageCount;

/// The budget of a zone. Its numbers publish nothing else, so `Relaxed` is enough.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Budget {
    limit: AtomicU32,
    reserved: AtomicU32,
}

impl Budget {
    /// Most pages; 0: there is no budget. `reserved` of them are the depots'.
    pub fn set_up(&self, limit: PageCount, reserved: PageCount) {
        self.limit.store(limit.get(), Relaxed);
        self.reserved.store(reserved.get(), Relaxed);
    }

    /// Whether there is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.limit().is_zero()
    }

    /// Most pages that lists and depots may hold together.
    #[inline]
    pub fn limit(&self) -> PageCount {
        PageCount::new(self.limit.load(Relaxed))
    }

    /// Pages that pcps and depots may hold by what they were granted.
    pub fn reserved(&self) -> PageCount {
        PageCount::new(self.reserved.load(Relaxed))
    }

    /// Books up to `pages` of the pages left. Returns how many.
    #[inline]
    pub fn take(&self, pages: PageCount) -> PageCount {
        let (pages, limit) = (pages.get(), self.limit().get());
        let left = |reserved: u32| pages.min(limit.saturating_sub(reserved));
        let more = |reserved: u32| Some(reserved + left(reserved)).filter(|new| *new != reserved);
        PageCount::new(self.reserved.fetch_update(Relaxed, Relaxed, more).map_or(0, left))
    }

    /// Books `pages` pages even beyond the limit: the lists hold them already.
    pub fn force(&self, pages: PageCount) {
        self.reserved.fetch_add(pages.get(), Relaxed);
    }

    /// `pages` booked pages are free for others.
    #[inline]
    pub fn give(&self, pages: PageCount) {
        self.reserved.fetch_sub(pages.get(), Relaxed);
    }

    /// Whether `pages` more would not be left.
    pub fn is_short(&self, pages: PageCount) -> bool {
        self.is_on() && self.limit().saturating_sub(self.reserved()) < pages
    }
}
