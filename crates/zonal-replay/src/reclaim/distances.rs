//! How many of the reclaimed pages would have stayed with more memory.
//!
//! ```text
//!                        R, the recorder's rings     R + E
//!  distance  0 ····················|···················|·················
//!            stays, if nobody      | stays, if the     | does not
//!            records               | setting frees E   |
//! ```
//! The rings are memory that the load has where nobody records. A page that came back after no more
//! others than they hold would have stayed without them, so that no setting saves it; each other
//! one would have been that much nearer.
//!
//! Background reclaim does not take what is missing, but from its low watermark to its high one, so
//! that little that is missing may be read again many times over. Where memory was free, more than
//! the rings took, and demand since reclaim began is no more than that, it would not have begun.

use super::Share;
use super::cache::{Back, Cache};

/// The recorder's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rings {
    /// Pages that they took.
    pub pages: u64,
    /// Whether so many more than reclaim leaves free were free at some time, so that they are
    /// missing since.
    pub were_free: bool,
}

/// Pages that came back, of those that the kernel counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distances<'a> {
    pub cache: &'a Cache,
    /// Pages that the kernel reclaimed.
    pub reclaimed: u64,
    /// Pages of files that had been reclaimed, and were read again.
    pub read_again: u64,
    pub rings: Rings,
}

impl Distances<'_> {
    /// The share of reclaimed pages that would have stayed with so many more, at least and at most.
    pub fn share(self, more: (f64, f64)) -> Share {
        self.share_of(more, |within| self.recorded(within).sum())
    }

    /// The same on a host that nobody records. At least and at most it is as on one that has the
    /// rings, too: distances are by samples.
    pub fn share_unrecorded(self, more: (f64, f64)) -> Share {
        let recorded = self.share(more);
        if self.rings.pages == 0 {
            return recorded;
        }
        let own = self.share_of(more, |within| self.unrecorded(within).sum());
        Share {
            least: own.least.min(recorded.least),
            mid: own.mid,
            most: own.most.max(recorded.most),
        }
    }

    /// Pages that were read again and would have stayed where nobody records.
    pub fn for_rings(self) -> f64 {
        let pages: f64 = self.back(|back| self.is_for_rings(back)).sum();
        pages.min(self.all())
    }

    /// By how many samples the least of [`share_unrecorded`](Self::share_unrecorded) was found.
    pub fn samples(self, least: f64) -> usize {
        self.recorded(least).count().min(self.unrecorded(least).count())
    }

    fn share_of(self, (least, most): (f64, f64), back: impl Fn(f64) -> f64) -> Share {
        let Distances { reclaimed, read_again, .. } = self;
        if most <= 0.0 || reclaimed == 0 {
            return Share::default();
        }
        // Reclaimed before the recording: nothing tells their distance.
        let all: f64 = self.recorded(f64::INFINITY).sum();
        let unknown = (read_again as f64 - all).max(0.0);
        let of = |kept: f64| kept.min(self.all()) / reclaimed as f64;
        Share::between(of(back(least)), of(back(most) + unknown))
    }

    /// No more than were reclaimed can stay.
    fn all(self) -> f64 {
        self.read_again.min(self.reclaimed) as f64
    }

    /// Pages that came back after no more others than that, by each sample.
    fn recorded(self, within: f64) -> impl Iterator<Item = f64> {
        self.back(move |back| self.pages(back.distance) <= within)
    }

    /// The same where nobody records, and without those that stay there anyway.
    fn unrecorded(self, within: f64) -> impl Iterator<Item = f64> {
        let within = within + self.rings.pages as f64;
        self.back(move |back| !self.is_for_rings(back) && self.pages(back.distance) <= within)
    }

    fn is_for_rings(self, back: &Back) -> bool {
        let Rings { pages, were_free } = self.rings;
        let is_near = self.pages(back.distance) <= pages as f64;
        pages > 0 && (is_near || (were_free && back.demand <= pages))
    }

    fn back(self, is_it: impl Fn(&Back) -> bool) -> impl Iterator<Item = f64> {
        let such = self.cache.back.iter().filter(move |back| is_it(back));
        such.map(move |back| self.pages(back.weight))
    }

    /// Samples in pages, of which the kernel counted all.
    fn pages(self, samples: u64) -> f64 {
        match self.cache.reclaimed {
            0 => 0.0,
            all => samples as f64 * self.reclaimed as f64 / all as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::{of, passes};
    use super::*;

    /// 200 of 230 samples came back, each after 30 others. A sample is 10 pages.
    fn with_rings(pages: u64, were_free: bool, test: impl Fn(Distances<'_>)) {
        let mut cache = of(&passes(3, 100, 70));
        // Half of them came when 200 pages more were in use than when reclaim began, half with 400.
        let half = cache.back.len() / 2;
        for (at, back) in cache.back.iter_mut().enumerate() {
            back.demand = if at < half { 200 } else { 400 };
        }
        let rings = Rings { pages, were_free };
        test(Distances { cache: &cache, reclaimed: 2300, read_again: 2000, rings });
    }

    #[test]
    fn what_comes_back_after_no_more_than_the_rings_hold_is_nothing_that_a_setting_saves() {
        let all = 2000.0 / 2300.0;
        let both = |own: Distances<'_>| {
            let Share { least, mid, most } = own.share_unrecorded((50.0, 400.0));
            (least, mid, most)
        };
        with_rings(0, true, |own| {
            assert_eq!(both(own), (0.0, all / 2.0, all));
            assert_eq!(own.for_rings(), 0.0);
        });
        // 300 pages more would have been enough, and the rings are 250 of them.
        with_rings(250, false, |own| {
            assert_eq!(both(own), (0.0, all, all), "the recorded host had them");
            assert_eq!((own.for_rings(), own.samples(300.0)), (0.0, 200));
        });
        with_rings(300, false, |own| {
            assert_eq!(both(own), (0.0, 0.0, all));
            assert_eq!((own.for_rings(), own.samples(300.0)), (2000.0, 0));
            assert_eq!(own.share((300.0, 400.0)), Share::between(all, all));
        });
    }

    #[test]
    fn while_demand_has_room_without_the_rings_reclaim_would_not_have_begun() {
        with_rings(200, true, |own| {
            assert_eq!(own.for_rings(), 1000.0, "the second half had begun it");
            let Share { mid, .. } = own.share_unrecorded((400.0, 400.0));
            assert_eq!(mid, 1000.0 / 2300.0);
        });
        // What was in use all the time is not missing because of them.
        with_rings(200, false, |own| assert_eq!(own.for_rings(), 0.0));
        with_rings(199, true, |own| assert_eq!(own.for_rings(), 0.0));
    }

    #[test]
    fn what_left_before_the_recording_may_have_any_distance() {
        let mut cache = of(&passes(3, 100, 70));
        cache.back.clear();
        let rings = Rings { pages: 300, were_free: true };
        let own = Distances { cache: &cache, reclaimed: 2300, read_again: 1150, rings };
        assert_eq!(own.share_unrecorded((50.0, 400.0)), Share::between(0.0, 0.5));
        assert_eq!(own.share((-5.0, 0.0)), Share::default());
    }
}
