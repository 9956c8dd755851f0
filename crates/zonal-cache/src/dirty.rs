//! The changed pages of one file, until they are safe or lost.
//!
//! ```text
//!          written            a device sync begins        it works
//!   dirty ─────────► unsynced ────────────────────► asked ─────────► safe
//!     ▲                 │                             │
//!     │                 ├─── a device sync fails ─────┤
//!     └── in memory ────┘                             └──── given up meanwhile ───► lost
//! ```
//! A written page is safe once a device sync that began later has succeeded. If one fails, the
//! device or the kernel may have dropped any of these bytes, and a second, successful sync says
//! nothing about them: Linux marks pages clean whose write failed, and reports that once. So every
//! page that is still in memory is written again (`again`, then `dirty`), and one that was
//! reclaimed is lost: only the program can restore it.
//!
//! # Invariants
//! - **DIRTY-1** a page that was written, and not written over as a whole since, is in `dirty`,
//!   `again`, `unsynced`, `asked` or `lost`, or safe on the device.
//! - **DIRTY-2** pages of `kept` and `again` are in the cache; a page leaves it through
//!   [`give_up`](Dirty::give_up) or [`forget`](Dirty::forget).
//! - **DIRTY-3** a page in `again` is not in `pages`.

use std::collections::BTreeSet;
use std::mem;
use std::time::{Duration, Instant};

use crate::ranges::Ranges;

/// The changed pages of a file.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Dirty pages, and those being written.
    pages: BTreeSet<u64>,
    /// When the first of them became dirty.
    since: Option<Instant>,
    /// Written since the last device sync began.
    unsynced: Written,
    /// Written before that; the device sync has not ended.
    asked: Written,
    /// Clean pages to be made dirty, because a device sync failed.
    again: BTreeSet<u64>,
    /// Written, given up, and not safe when a device sync failed.
    lost: Ranges,
    /// Device syncs that failed.
    failed: u64,
}

/// Pages that were written.
#[derive(Debug, Default)]
struct Written {
    /// Pages that have stayed in the cache since.
    kept: BTreeSet<u64>,
    /// Pages that were reclaimed. The store may or may not hold them.
    gone: Ranges,
}

impl Written {
    fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.gone.is_empty()
    }

    fn take(&mut self, other: Written) {
        self.kept.extend(other.kept);
        self.gone.insert_all(&other.gone);
    }

    fn give_up(&mut self, page: u64) {
        if self.kept.remove(&page) {
            self.gone.insert(page);
        }
    }

    fn cut(&mut self, first: u64) {
        self.kept.split_off(&first);
        self.gone.cut(first);
    }
}

impl Dirty {
    /// Marks a page dirty. Returns whether it was clean.
    pub fn add(&mut self, page: u64) -> bool {
        self.since.get_or_insert_with(Instant::now);
        self.again.remove(&page);
        self.pages.insert(page)
    }

    /// Removes a page from the dirty ones. Returns whether it was there.
    fn remove(&mut self, page: u64) -> bool {
        let was = self.pages.remove(&page);
        if self.pages.is_empty() {
            self.since = None;
        }
        was
    }

    /// Dirty pages now, in order.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().copied()
    }

    /// Dirty pages at or behind `from`, in order.
    pub fn pages_from(&self, from: u64) -> impl Iterator<Item = u64> {
        self.pages.range(from..).copied()
    }

    /// Up to `max` dirty pages that follow one another without a gap, from the first one at or
    /// behind `from`.
    pub fn run(&self, from: u64, max: usize) -> Vec<u64> {
        let mut run: Vec<u64> = Vec::new();
        for &page in self.pages.range(from..).take(max) {
            if run.last().is_some_and(|last| last + 1 != page) {
                break;
            }
            run.push(page);
        }
        run
    }

    /// Whether anything has to be written.
    pub fn is_dirty(&self) -> bool {
        !self.pages.is_empty() || !self.again.is_empty()
    }

    /// Age of the oldest dirty page.
    pub fn age(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// After a write-back that left pages dirty: sets the age of the oldest.
    pub fn restart_age(&mut self) {
        if self.since.is_some() {
            self.since = Some(Instant::now());
        }
    }

    /// Device syncs that failed so far. A write does not count if this number changed while it ran.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// A page was written, by a write that began after `failed` failed device syncs. Returns
    /// whether it was on the list; `None`: it stays dirty, because a device sync failed meanwhile
    /// and may have dropped these bytes.
    pub fn written(&mut self, page: u64, failed: u64) -> Option<bool> {
        if failed != self.failed {
            return None;
        }
        self.unsynced.kept.insert(page);
        Some(self.remove(page))
    }

    /// Whether a clean page may leave the cache. `false`: make it dirty instead.
    pub fn give_up(&mut self, page: u64) -> bool {
        if self.again.contains(&page) {
            return false;
        }
        self.unsynced.give_up(page);
        self.asked.give_up(page);
        true
    }

    /// A page leaves the cache and its contents are discarded. Returns whether it was dirty.
    pub fn forget(&mut self, page: u64) -> bool {
        self.again.remove(&page);
        self.unsynced.kept.remove(&page);
        self.asked.kept.remove(&page);
        self.remove(page)
    }

    /// The file ends before the page `first`.
    pub fn cut(&mut self, first: u64) {
        self.unsynced.cut(first);
        self.asked.cut(first);
        self.lost.cut(first);
    }

    /// Every byte of a page is new, so earlier writes to it no longer matter. The page becomes
    /// dirty next.
    pub fn written_over(&mut self, page: u64) {
        self.unsynced.gone.remove(page);
        self.asked.gone.remove(page);
        self.lost.remove(page);
    }

    /// A device sync begins.
    pub fn begin_sync(&mut self) {
        let unsynced = mem::take(&mut self.unsynced);
        self.asked.take(unsynced);
    }

    /// The device sync succeeded.
    pub fn sync_worked(&mut self) {
        self.asked = Written::default();
    }

    /// The device sync failed: nothing that was written since the last good one is known to be
    /// safe. Pages in memory are written [again](Self::again).
    pub fn sync_failed(&mut self) {
        self.failed += 1;
        let mut suspect = mem::take(&mut self.unsynced);
        suspect.take(mem::take(&mut self.asked));
        self.lost.insert_all(&suspect.gone);
        self.again.extend(suspect.kept.difference(&self.pages));
    }

    /// Clean pages that must become dirty.
    pub fn again(&self) -> Vec<u64> {
        self.again.iter().copied().collect()
    }

    /// Makes a page dirty again. `mark` sets the flag in the page's state, whose write may be about
    /// to end; it returns `false` if a writer has set it already and will [add](Self::add) the
    /// page.
    pub fn soil_again(&mut self, page: u64, mark: impl FnOnce() -> bool) {
        if self.again.remove(&page) && mark() {
            self.add(page);
        }
    }

    /// Whether anything was written that is not known to be safe.
    pub fn is_unsynced(&self) -> bool {
        !self.unsynced.is_empty() || !self.asked.is_empty() || !self.again.is_empty()
    }

    /// What is lost.
    pub fn lost(&self) -> &Ranges {
        &self.lost
    }

    /// The program accepts what is lost.
    pub fn accept_loss(&mut self, known: &Ranges) {
        self.lost.remove_all(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that were dirty, and are written now.
    fn written(pages: std::ops::Range<u64>) -> Dirty {
        let mut dirty = Dirty::default();
        for page in pages {
            assert!(dirty.add(page));
            assert_eq!(dirty.written(page, dirty.failed()), Some(true));
        }
        dirty
    }

    fn lost(dirty: &Dirty) -> Vec<u64> {
        dirty.lost().iter().flatten().collect()
    }

    #[test]
    fn a_page_that_was_given_up_is_lost_whenever_that_was() {
        let mut dirty = written(0..4);
        assert!(dirty.give_up(0), "before the sync");
        dirty.begin_sync();
        assert!(dirty.give_up(1), "during it");
        dirty.sync_failed();
        assert!(!dirty.give_up(2), "after it: it is still in memory");
        assert_eq!((lost(&dirty), dirty.again()), (vec![0, 1], vec![2, 3]));
        dirty.soil_again(2, || true);
        dirty.add(3);
        assert!(dirty.again().is_empty() && dirty.pages().eq([2, 3]));
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        let mut dirty = written(0..2);
        dirty.begin_sync();
        dirty.add(5);
        dirty.written(5, 0);
        dirty.sync_worked();
        assert!(dirty.is_unsynced());
        dirty.begin_sync();
        dirty.sync_failed();
        assert_eq!(dirty.again(), [5]);
        dirty.forget(5);
        assert!(!dirty.is_unsynced() && dirty.give_up(0) && dirty.lost().is_empty());
    }

    #[test]
    fn a_write_that_ran_while_a_sync_failed_counts_for_nothing() {
        let mut dirty = Dirty::default();
        dirty.add(1);
        let before = dirty.failed();
        dirty.begin_sync();
        dirty.sync_failed();
        assert_eq!(dirty.written(1, before), None);
        assert!(dirty.is_dirty() && dirty.again().is_empty());
        assert_eq!(dirty.written(1, dirty.failed()), Some(true));
        assert!(!dirty.is_dirty() && dirty.age() == Duration::ZERO);
    }

    #[test]
    fn what_is_new_or_cut_off_cannot_be_lost() {
        let mut dirty = written(0..6);
        (0..6).for_each(|page| assert!(dirty.give_up(page)));
        dirty.written_over(1);
        dirty.begin_sync();
        dirty.written_over(2);
        dirty.cut(5);
        dirty.sync_failed();
        assert_eq!(lost(&dirty), [0, 3, 4]);
        dirty.written_over(3);
        dirty.cut(4);
        assert_eq!(lost(&dirty), [0]);
        let known = dirty.lost().clone();
        dirty.accept_loss(&known);
        assert!(dirty.lost().is_empty());
    }
}
