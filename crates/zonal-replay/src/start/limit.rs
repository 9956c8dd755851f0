//! The limit of a CPU's lists at the start, under other settings than the recorded ones.

use zonal_core::pcp::tune::clamp_hi_first;
use zonal_trace::Pageset;

/// A recorded limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    high: u32,
    /// Its lower and upper bound, from 6.7 on (LB E.4).
    bounds: Option<(u32, u32)>,
}

impl Limit {
    pub(super) fn of(set: &Pageset) -> Limit {
        let bounds = set.high_min.zip(set.high_max);
        let bounds = bounds.map(|(min, max)| (min as u32, max as u32));
        Limit { high: set.high as u32, bounds }
    }

    /// `high` under these bounds. A lower bound holds the limit up: where it is lower now than in
    /// the recording, only what tuning had added to it stays. A limit below its bound was not asked
    /// for since lists were kept short, and the next free raises it.
    pub(super) fn under(self, (min, max): (u32, u32)) -> u32 {
        let Limit { high, bounds: Some((low, top)) } = self else { return self.high };
        let now = min.min(max);
        match low.min(top) {
            then if now < then && then <= high => now + high.saturating_sub(low),
            _ => high,
        }
    }

    /// The most that lists can hold at the start under bounds that a setting makes others than
    /// they are without it. What is more has gone back to the buddy before.
    pub(super) fn room(self, without: (u32, u32), now: (u32, u32)) -> Option<u32> {
        let (min, max) = now;
        (without != now).then(|| clamp_hi_first(self.under(now), min, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(high: u32, then: (u32, u32), now: (u32, u32)) -> u32 {
        Limit { high, bounds: Some(then) }.under(now)
    }

    #[test]
    fn under_the_recorded_bounds_it_is_as_recorded() {
        for high in [0, 252, 905, 1_500, 4_000, 9_999] {
            for bounds in [(905, 4_000), (905, 905), (573_027, 337_885)] {
                assert_eq!(under(high, bounds, bounds), high);
            }
            assert_eq!(Limit { high, bounds: None }.under((1, 2)), high);
        }
    }

    #[test]
    fn a_lower_bound_that_falls_takes_what_it_held_up_and_leaves_what_tuning_added() {
        assert_eq!(under(1_500, (905, 4_000), (100, 4_000)), 695);
        assert_eq!(under(905, (905, 4_000), (100, 4_000)), 100);
        // Recorded under a `min_free_kbytes` of 4 GiB: the lower bound is above the upper one.
        assert_eq!(under(438_725, (573_027, 337_885), (8_380, 337_885)), 8_380);
    }

    #[test]
    fn lists_hold_no_more_than_their_limit_under_other_bounds() {
        let (then, small, large) = ((10_089, 337_885), (2_691, 2_691), (42_000, 42_000));
        let tuned = Limit { high: 40_819, bounds: Some(then) };
        assert_eq!(tuned.room(then, then), None, "as recorded");
        assert_eq!(tuned.room(then, small), Some(2_691));
        assert_eq!(tuned.room(then, large), Some(42_000));
        // Half the lower bound: what tuning had added to it stays.
        assert_eq!(tuned.room(then, (5_000, 337_885)), Some(5_000 + 40_819 - 10_089));
        let untold = Limit { high: 40_819, bounds: None };
        assert_eq!(untold.room(then, small), Some(2_691));
    }

    #[test]
    fn a_limit_below_its_bound_and_a_bound_that_rises_change_nothing() {
        assert_eq!(under(252, (905, 4_000), (100, 4_000)), 252);
        assert_eq!(under(1_500, (905, 4_000), (2_000, 4_000)), 1_500);
    }
}
