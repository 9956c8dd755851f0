//! Which pages of files were reclaimed, after how many others they came back, and how many more
//! pages than at the first of them would have been enough for all.
//!
//! ```text
//!  reclaim takes a    alloc b    alloc c    alloc a: it comes back    free b
//!  demand        0          1          2          2                        1
//! ```

use std::collections::HashMap;

use zonal_trace::{CachedPage, Event, EventKind, Notice, ORDER_MAX};

use super::pages::{Movers, Reclaimers, SAMPLED_BITS, is_sampled};
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
    /// Samples that were reclaimed, and when the first of them was.
    pub(super) reclaimed: u64,
    pub(super) since_ns: Option<u64>,
    /// Those that came back.
    pub(super) back: Vec<Back>,
    movers: Movers,
    /// Pages in use more than when reclaim took the first page of a file, if what it takes were
    /// never read again: now, and at most so far.
    demand: (i64, i64),
    /// Samples that were read.
    pub(super) read: u64,
    /// By whom.
    pub(super) readers: Readers,
}

/// A sample that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Back {
    /// How many others had been reclaimed since.
    pub distance: u64,
    /// Samples that its block is.
    pub weight: u64,
    /// The largest demand so far, in pages: with so many more nothing had been reclaimed yet.
    pub demand: u64,
}

impl Cache {
    /// Forgets times and pages so far: what follows is the recording.
    pub fn begin(&mut self, now_ns: u64) {
        let Cache { mut reclaimers, movers, .. } = std::mem::take(self);
        reclaimers.begin(now_ns);
        *self = Cache { reclaimers, movers, ..Cache::default() };
    }

    /// Whether pages of files were reclaimed.
    pub fn has_reclaimed(&self) -> bool {
        self.reclaimed > 0
    }

    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        self.movers.see(event);
        if self.reclaimed > 0 {
            self.use_pages(event);
        }
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
                    true => {
                        self.since_ns.get_or_insert(event.time_ns);
                        self.reclaim(page);
                    }
                    // The file went, or that part of it.
                    false => drop(self.out.remove(&key(page))),
                }
            }
            _ => {}
        }
    }

    /// Counts what is allocated, and what is freed by others than reclaim and who moves pages.
    fn use_pages(&mut self, event: &Event) {
        let thread = event.pid;
        match event.kind {
            EventKind::Alloc { pfn: Some(_), order, .. } => self.demand(1 << order.min(ORDER_MAX)),
            EventKind::Free { order, .. }
                if !self.reclaimers.has(thread) && !self.movers.has(thread) =>
            {
                self.demand(-1 << order.min(ORDER_MAX));
            }
            _ => {}
        }
    }

    fn demand(&mut self, more: i64) {
        let (now, most) = &mut self.demand;
        *now += more;
        *most = (*most).max(*now);
    }

    fn add(&mut self, page: CachedPage) {
        let weight = weight(page);
        self.read += weight;
        if let Some(place) = self.out.remove(&key(page)) {
            let distance = self.reclaimed - place;
            self.back.push(Back { distance, weight, demand: self.demand.1 as u64 });
            // Its pages would be there still.
            self.demand.0 -= (weight << SAMPLED_BITS) as i64;
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
        let expected = Back { distance: 30, weight: 1, demand: 0 };
        assert!(cache.back.iter().all(|back| *back == expected), "{:?}", cache.back);
        assert_eq!((cache.reclaimed, cache.read), (230, 300));
    }

    #[test]
    fn demand_is_what_is_in_use_more_than_when_reclaim_began_if_nothing_were_read_again() {
        let mut cache = Cache::default();
        let mut see = |pid, kind| {
            cache.see(&Event { time_ns: 0, cpu: 0, pid, kind });
            cache.demand
        };
        let alloc = |order| EventKind::Alloc { pfn: Some(8), order, migratetype: 1, gfp: 0 };
        let free = |order| EventKind::Free { pfn: 8, order };
        let (zone_start, sync) = (0, false);
        let (out, again) = (Notice::CacheRemove(page(1, 0)), Notice::CacheAdd(page(1, 0)));
        see(KSWAPD, EventKind::Notice(Notice::KswapdWake { node: 0, order: 0 }));
        assert_eq!(see(9, alloc(3)), (0, 0), "before reclaim took anything");
        see(KSWAPD, EventKind::Notice(out));
        assert_eq!(see(KSWAPD, free(6)), (0, 0));
        assert_eq!(see(9, alloc(6)), (64, 64));
        assert_eq!(see(9, EventKind::Notice(again)), (0, 64), "its pages would be there still");
        assert_eq!(see(9, alloc(5)), (32, 64));
        see(9, EventKind::Notice(Notice::CompactionBegin { zone_start, sync }));
        assert_eq!(see(9, free(0)), (32, 64), "moved");
        see(9, EventKind::Notice(Notice::CompactionEnd { zone_start, sync, status: 8 }));
        assert_eq!(see(9, free(0)), (31, 64));
        assert_eq!(see(9, alloc(6)), (95, 95));
        assert_eq!(cache.back[0].demand, 64);
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
