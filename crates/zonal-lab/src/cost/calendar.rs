//! When something that serves one at a time is busy.
//!
//! CPUs run one call after the other, in the order in which the calls began. A long call books the
//! lock it takes at its end far ahead of CPUs whose turn comes later, but whose clocks are behind.
//! They must not wait for it: who comes at a time that is not booked is served then.
//!
//! - **CAL-1** times that are booked do not overlap, do not touch, and are sorted.

use std::collections::VecDeque;

/// Booked times.
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    busy: VecDeque<(u64, u64)>,
}

impl Calendar {
    /// Books the first `length` cycles from `now` on that are not booked yet; returns when they
    /// begin.
    pub fn book(&mut self, now: u64, length: u64) -> u64 {
        let mut at = match self.busy.back() {
            Some((_, end)) if *end > now => self.busy.partition_point(|(_, end)| *end <= now),
            _ => self.busy.len(),
        };
        let mut begins = now;
        while let Some((start, end)) = self.busy.get(at)
            && (*start < begins + length || *start <= begins)
        {
            begins = *end;
            at += 1;
        }
        if length > 0 {
            self.insert(at, begins, begins + length);
        }
        begins
    }

    /// Whether none of the `length` cycles from `now` on is booked.
    pub fn is_free(&self, now: u64, length: u64) -> bool {
        let at = self.busy.partition_point(|(_, end)| *end <= now);
        self.busy.get(at).is_none_or(|(start, _)| *start > now && *start >= now + length)
    }

    /// Books what lies before the booked time `at`; joins what touches.
    fn insert(&mut self, at: usize, start: u64, end: u64) {
        let joins_before = at > 0 && self.busy[at - 1].1 == start;
        let joins_behind = self.busy.get(at).is_some_and(|next| next.0 == end);
        match (joins_before, joins_behind) {
            (true, true) => {
                self.busy[at - 1].1 = self.busy[at].1;
                self.busy.remove(at);
            }
            (true, false) => self.busy[at - 1].1 = end,
            (false, true) => self.busy[at].0 = start,
            (false, false) => self.busy.insert(at, (start, end)),
        }
    }

    /// Drops bookings that end before `reached`: no request comes before that time.
    pub fn forget(&mut self, reached: u64) {
        while self.busy.front().is_some_and(|(_, end)| *end < reached) {
            self.busy.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn who_comes_while_it_is_busy_waits_and_who_fits_before_does_not() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.book(1000, 100), 1000);
        assert_eq!(calendar.book(1050, 100), 1100, "behind the first");
        assert_eq!(calendar.book(100, 900), 100, "just fits before");
        assert_eq!(calendar.book(50, 51), 1200, "does not");
        assert_eq!(calendar.book(50, 50), 50);
        assert_eq!(calendar.busy, [(50, 1251)], "all of it touches");
        calendar.forget(1252);
        assert_eq!(calendar.book(1252, 1), 1252);
    }

    #[test]
    fn nobody_is_served_twice_and_nobody_waits_for_a_gap_that_was_there() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut below = |end: u64| random.next_u64() % end;
        for _ in 0..50 {
            let (mut calendar, mut taken) = (Calendar::default(), [false; 2000]);
            for _ in 0..100 {
                let (now, length) = (below(1000), 1 + below(15));
                let free = |at: u64| (at..at + length).all(|cycle| !taken[cycle as usize]);
                let expected = (now..).find(|at| free(*at)).unwrap();
                assert_eq!(calendar.is_free(now, length), expected == now);
                assert_eq!(calendar.book(now, length), expected);
                (expected..expected + length).for_each(|cycle| taken[cycle as usize] = true);
                let sorted = calendar.busy.iter().collect::<Vec<_>>();
                assert!(sorted.windows(2).all(|two| two[0].1 < two[1].0), "CAL-1");
            }
        }
    }
}
