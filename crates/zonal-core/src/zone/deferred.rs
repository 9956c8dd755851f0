//! Memory of a zone that comes online later (LB A.8): its ranges, where the next section of each
//! starts, and how many sections are claimed.
//!
//! # Invariants
//! - **GROW-1** each section is claimed once: the `next` of a range only grows, by
//!   compare-and-exchange.
//! - **GROW-2** `claimed` counts the ranges that are claimed and not yet in the buddy. A claim is
//!   counted before it is made, so with nothing left and nothing claimed all memory is online.

use core::ops::Range;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::types::Pfn;

/// Pages of a section: 128 MiB (LB A.8, `PAGES_PER_SECTION`). Memory comes online in these.
pub const SECTION_PAGES: u64 = 1 << 15;

/// Most ranges of a zone that can be put off: a zone has as many as there are holes in it.
pub const DEFERRED_MAX: usize = 16;

/// A zone's memory to come. Empty in a zone that is complete.
#[derive(Debug, Default)]
pub struct Deferred {
    parts: [Part; DEFERRED_MAX],
    claimed: AtomicU32,
}

/// A range that was put off. Empty: 0 to 0.
#[derive(Debug, Default)]
struct Part {
    next: AtomicU64,
    end: AtomicU64,
}

impl Part {
    /// The next `pages` pages, fewer at the end.
    fn take(&self, pages: u64) -> Option<Range<Pfn>> {
        let end = self.end.load(Ordering::Relaxed);
        let up_to = |start: u64| start.saturating_add(pages).min(end);
        let claim = |start| (start < end).then(|| up_to(start));
        // Relaxed: the claim is of a number; its pages have no owner yet (GROW-1).
        let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).ok()?;
        Some(Pfn(start)..Pfn(up_to(start)))
    }
}

/// Where the memory of a zone from `start` on is put off: at the first section that begins a whole
/// section after the start (LB A.8: more than a section's pages were looked at, the first of the
/// next one included).
pub const fn first_deferred(start: u64) -> u64 {
    (start + SECTION_PAGES).next_multiple_of(SECTION_PAGES)
}

impl Deferred {
    /// Puts the range off, behind those that were before. Before other threads see the zone.
    /// `false`: there is no room for one more.
    pub(crate) fn put_off(&self, range: Range<Pfn>) -> bool {
        let unused = self.parts.iter().find(|part| part.end.load(Ordering::Relaxed) == 0);
        let Some(part) = unused else { return false };
        part.next.store(range.start.0, Ordering::Relaxed);
        part.end.store(range.end.0, Ordering::Relaxed);
        true
    }

    /// Whether one of these pages was put off and is not claimed yet.
    pub(crate) fn has(&self, pages: &Range<Pfn>) -> bool {
        // Relaxed: `next` only grows, so what is not to be claimed now never is (GROW-1).
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let shares = |part: &Part| {
            let (next, end) = (load(&part.next), load(&part.end));
            next < end && pages.start.0 < end && next < pages.end.0
        };
        self.parts.iter().any(shares)
    }

    /// Pages not yet claimed.
    pub fn left(&self) -> u64 {
        // Relaxed: a figure; a claim looks for itself.
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.parts.iter().map(|part| load(&part.end).saturating_sub(load(&part.next))).sum()
    }

    /// Whether ranges are on their way into the buddy.
    pub fn is_claimed(&self) -> bool {
        // Acquire: pairs with the Release in `finish`; a reader that sees none sees their pages.
        self.claimed.load(Ordering::Acquire) != 0
    }

    /// The next `pages` pages, fewer at the end. [`finish`](Self::finish) must follow.
    pub(crate) fn claim(&self, pages: u64) -> Option<Range<Pfn>> {
        self.claimed.fetch_add(1, Ordering::Relaxed);
        let range = self.take(pages);
        if range.is_none() {
            self.finish();
        }
        range
    }

    /// As [`claim`](Self::claim), for a caller that holds the zone lock until the pages are free:
    /// no reader can see them missing.
    pub(crate) fn take(&self, pages: u64) -> Option<Range<Pfn>> {
        self.parts.iter().find_map(|part| part.take(pages))
    }

    /// A claimed range is in the buddy.
    pub(crate) fn finish(&self) {
        // Release: pairs with the Acquire in `is_claimed`.
        self.claimed.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_starts_with_at_least_a_whole_section() {
        let section = SECTION_PAGES;
        assert_eq!(first_deferred(0), section);
        assert_eq!(first_deferred(32 * section), 33 * section);
        assert_eq!(first_deferred(1), 2 * section);
        assert_eq!(first_deferred(section - 1), 2 * section);
    }

    #[test]
    fn every_page_is_claimed_once() {
        let deferred = Deferred::default();
        assert_eq!(deferred.claim(8), None);
        assert!(!deferred.is_claimed());
        assert!(deferred.put_off(Pfn(100)..Pfn(120)));
        assert_eq!((deferred.left(), deferred.is_claimed()), (20, false));
        assert_eq!(deferred.claim(8), Some(Pfn(100)..Pfn(108)));
        let has = |start, end| deferred.has(&(Pfn(start)..Pfn(end)));
        assert!(!has(90, 108) && has(107, 109) && has(119, 130) && !has(120, 130) && has(0, 200));
        assert_eq!(deferred.take(8), Some(Pfn(108)..Pfn(116)));
        assert_eq!(deferred.claim(8), Some(Pfn(116)..Pfn(120)));
        assert_eq!((deferred.claim(8), deferred.take(8)), (None, None));
        assert!(deferred.is_claimed());
        deferred.finish();
        deferred.finish();
        assert_eq!((deferred.left(), deferred.is_claimed()), (0, false));
    }

    #[test]
    fn each_range_that_is_put_off_comes_as_far_as_there_is_room_for_ranges() {
        let deferred = Deferred::default();
        for n in 1..=DEFERRED_MAX as u64 {
            assert!(deferred.put_off(Pfn(100 * n)..Pfn(100 * n + 10)));
        }
        assert!(!deferred.put_off(Pfn(10_000)..Pfn(10_001)), "no room");
        assert_eq!(deferred.left(), 10 * DEFERRED_MAX as u64);
        for n in 1..=DEFERRED_MAX as u64 {
            assert_eq!(deferred.take(8), Some(Pfn(100 * n)..Pfn(100 * n + 8)));
            assert_eq!(deferred.take(8), Some(Pfn(100 * n + 8)..Pfn(100 * n + 10)));
        }
        assert_eq!((deferred.take(8), deferred.left()), (None, 0));
    }
}
