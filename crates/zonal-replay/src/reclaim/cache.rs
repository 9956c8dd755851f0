//! Which pages of files were reclaimed, and after how many others they came back.

use std::collections::HashMap;

use zonal_trace::{CachedPage, Event, EventKind, Notice};

use super::pages::{Reclaimers, SAMPLED_BITS, is_sampled};
use super::readers::Readers;

/// Pages that are remembered at most: each is one of 64.
const PAGES_MAX: usize = 1 << 22;

/// Collects what came back while a trace is read. Its unit is a *sample*, a page that stands for
/// those around it.
#[derive(Debug, Default)]
pub struct Cache {
    reclaimers: Reclaimers,
    /// Time in direct reclaim, of all threads.
    pub(super) direct_ns: u64,
    /// Where each reclaimed page stands in the row of all that were.
    out: HashMap<(u32, u64, u64), u64>,
    /// Samples that were reclaimed.
    pub(super) reclaimed: u64,
    /// Distance and weight of each that came back.
    pub(super) back: Vec<(u64, u64)>,
    /// Samples that were read.
    pub(super) read: u64,
    /// By whom.
    pub(super) readers: Readers,
}

impl Cache {
    /// Forgets times and pages so far: what follows is the recording.
    pub fn begin(&mut self, now_ns: u64) {
        let Cache { mut reclaimers, .. } = std::mem::take(self);
        reclaimers.begin(now_ns);
        *self = Cache { reclaimers, ..Cache::default() };
    }

    /// Whether pages of files were reclaimed.
    pub fn has_reclaimed(&self) -> bool {
        self.reclaimed > 0
    }

    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let EventKind::Notice(notice) = event.kind else { return };
        self.direct_ns += self.reclaimers.see(event);
        self.readers.see(event);
        match notice {
            Notice::CacheAdd(page) if is_sampled(page) => {
                self.readers.read(event, weight(page));
                self.add(page);
            }
            Notice::CacheRemove(page) if is_sampled(page) => {
                match self.reclaimers.has(event.pid) {
                    true => self.reclaim(page),
                    // The file went, or that part of it.
                    false => drop(self.out.remove(&key(page))),
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, page: CachedPage) {
        self.read += weight(page);
        if let Some(place) = self.out.remove(&key(page)) {
            self.back.push((self.reclaimed - place, weight(page)));
        }
    }

    fn reclaim(&mut self, page: CachedPage) {
        if self.out.len() < PAGES_MAX {
            // Before itself: it needs a place, too.
            self.out.insert(key(page), self.reclaimed);
        }
        self.reclaimed += weight(page);
    }
}

fn key(page: CachedPage) -> (u32, u64, u64) {
    (page.device, page.inode, page.index)
}

/// Samples that a block is.
fn weight(page: CachedPage) -> u64 {
    1 << page.order.saturating_sub(SAMPLED_BITS).min(63)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const KSWAPD: i32 = 45;

    /// A page of the file, by samples.
    fn page(inode: u64, sample: u64) -> CachedPage {
        CachedPage { device: 8, inode, index: sample << SAMPLED_BITS, order: 0 }
    }

    pub(crate) fn of(events: &[(i32, Notice)]) -> Cache {
        let mut cache = Cache::default();
        for (at, (pid, notice)) in events.iter().enumerate() {
            let kind = EventKind::Notice(*notice);
            cache.see(&Event { time_ns: at as u64 * 10, cpu: 0, pid: *pid, kind });
        }
        cache
    }

    /// `passes` over a file of `pages` samples, of which the last `fit` stay: what is older is
    /// reclaimed in the order in which it was read.
    pub(crate) fn passes(passes: u64, pages: u64, fit: u64) -> Vec<(i32, Notice)> {
        let mut events = vec![(KSWAPD, Notice::KswapdWake { node: 0, order: 0 })];
        let mut cached: std::collections::VecDeque<u64> = Default::default();
        for sample in (0..passes).flat_map(|_| 0..pages) {
            if cached.contains(&sample) {
                continue;
            }
            events.push((9, Notice::CacheAdd(page(1, sample))));
            cached.push_back(sample);
            if cached.len() as u64 > fit {
                let oldest = cached.pop_front().unwrap();
                events.push((KSWAPD, Notice::CacheRemove(page(1, oldest))));
            }
        }
        events
    }

    #[test]
    fn a_page_that_comes_back_has_the_others_between_as_its_distance() {
        let cache = of(&passes(3, 100, 70));
        // The whole first pass is new; of the second and third each page comes back after 30 of
        // the others: with 30 more it would have stayed.
        assert_eq!(cache.back.len(), 200);
        assert!(cache.back.iter().all(|back| *back == (30, 1)), "{:?}", cache.back);
        assert_eq!((cache.reclaimed, cache.read), (230, 300));
    }

    #[test]
    fn what_a_program_removes_is_not_reclaimed() {
        let wake = Notice::KswapdWake { node: 0, order: 0 };
        let (gone, again) = (Notice::CacheRemove(page(1, 0)), Notice::CacheAdd(page(1, 0)));
        let cache = of(&[(KSWAPD, wake), (9, gone), (9, again)]);
        assert_eq!((cache.reclaimed, cache.back.len()), (0, 0));
        // Reclaimed first, and removed with its file: a new one of the same number is another.
        let removed = [(KSWAPD, wake), (KSWAPD, gone), (9, gone), (9, again)];
        assert_eq!((of(&removed).reclaimed, of(&removed).back.len()), (1, 0));
    }

    #[test]
    fn direct_reclaim_is_between_its_events() {
        let begin = Notice::ReclaimBegin { order: 0, gfp: 0 };
        let (out, end) = (Notice::CacheRemove(page(1, 0)), Notice::ReclaimEnd { pages: 1 });
        let cache = of(&[(9, begin), (9, out), (8, out), (9, end), (9, out)]);
        assert_eq!((cache.reclaimed, cache.direct_ns), (1, 30));
    }

    #[test]
    fn only_sampled_pages_count_and_large_blocks_count_for_all_they_are() {
        let mut odd = page(1, 1);
        odd.index += 1;
        let large = CachedPage { order: 9, ..page(1, 8) };
        let wake = Notice::KswapdWake { node: 0, order: 0 };
        let both = [odd, large].map(|page| (KSWAPD, Notice::CacheRemove(page)));
        assert_eq!(of(&[&[(KSWAPD, wake)], &both[..]].concat()).reclaimed, 8);
    }
}
