//! The requests of a week, and when ranges end.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::f64::consts::TAU;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::setup::{Setup, WEEK_S};
use super::subject::Held;

/// Pages of a range at most: the largest block of Linux' rules.
const PAGES_MAX: f64 = 1024.0;
/// Lives of ranges: how many of a hundred, and their mean, s.
const LIVES: [(f64, f64); 3] = [(0.70, 300.0), (0.25, 3.0 * 3600.0), (0.05, 36.0 * 3600.0)];
/// More requests than the mean at noon, and as many fewer at midnight.
const SWING: f64 = 0.3;
const DAY_S: f64 = 86_400.0;

/// What is due at a moment.
pub(super) enum Due {
    /// A range ends.
    End(Held),
    /// A range of so many pages, that lives until then.
    Request { pages: u64, until: f64 },
}

/// The week, from its first second on.
pub(super) struct Week {
    random: Pcg64Mcg,
    /// Requests a second, on average.
    rate: f64,
    /// When the next request comes.
    next: f64,
    ends: BinaryHeap<End>,
}

struct End {
    at: f64,
    /// Makes the order of ends at one moment the same in each run.
    number: u64,
    range: Held,
}

impl Week {
    pub fn new(setup: &Setup) -> Week {
        let life: f64 = LIVES.iter().map(|(part, mean)| part * mean).sum();
        // The mean of a log-uniform size.
        let pages = (PAGES_MAX - 1.0) / PAGES_MAX.ln();
        let rate = setup.used * setup.pages as f64 / (life * pages);
        let random = Pcg64Mcg::seed_from_u64(setup.seed);
        let mut week = Week { random, rate, next: 0.0, ends: BinaryHeap::new() };
        week.next = week.pause();
        week
    }

    /// What is due next, and when.
    pub fn next(&mut self) -> Option<(f64, Due)> {
        if self.ends.peek().is_some_and(|end| end.at <= self.next) {
            return self.ends.pop().map(|end| (end.at, Due::End(end.range)));
        }
        let at = self.next;
        self.next += self.pause();
        let pages = PAGES_MAX.powf(self.uniform()) as u64;
        let class = self.uniform();
        let mut below = 0.0;
        let life = LIVES.iter().find(|(part, _)| {
            below += part;
            class < below
        });
        let mean = life.map_or(LIVES[0].1, |(_, mean)| *mean);
        Some((at, Due::Request { pages, until: at + self.exponential(mean) }))
    }

    /// A range that lives until then.
    pub fn live(&mut self, range: Held, until: f64) {
        let number = range.number;
        self.ends.push(End { at: until, number, range });
    }

    /// Time to the next request. Random numbers do not depend on what was refused.
    fn pause(&mut self) -> f64 {
        if self.rate <= 0.0 {
            // Once behind the end, so that looks are taken up to it.
            return WEEK_S;
        }
        let now = 1.0 + SWING * (TAU * self.next / DAY_S).sin();
        self.exponential(1.0 / (self.rate * now))
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// From 0 up to, not including, 1.
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Ord for End {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &End) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &End) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for End {}
