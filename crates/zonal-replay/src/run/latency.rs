//! How long calls take: a histogram of bounded size with three exact digits.
//!
//! Reading the clock takes longer than most calls, so only one call in [`EVERY`] is timed; a prime,
//! so that no pattern of the trace meets always the same calls.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

/// One call in this many is timed.
pub const EVERY: u32 = 7;
/// Longer calls count as this long.
const NS_MAX: u64 = 10_000_000_000;
const DIGITS: u8 = 3;

/// Times calls of one kind on one thread.
#[derive(Debug)]
pub struct Stopwatch {
    histogram: Histogram<u64>,
    until_next: u32,
}

/// Percentiles of the calls that were timed, the clock's own cost included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Half of the calls took at most this long.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// Calls timed.
    pub timed: u64,
}

impl Default for Stopwatch {
    fn default() -> Stopwatch {
        let histogram = Histogram::new_with_bounds(1, NS_MAX, DIGITS);
        let histogram = histogram.expect("constants: low 1, high above twice that, 3 digits");
        Stopwatch { histogram, until_next: 1 }
    }
}

impl Stopwatch {
    /// Runs `call`, and times it if it is its turn.
    #[inline]
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        self.until_next -= 1;
        if self.until_next > 0 {
            return call();
        }
        self.until_next = EVERY;
        let start = Instant::now();
        let result = call();
        let ns = start.elapsed().as_nanos().min(u128::from(NS_MAX)) as u64;
        self.histogram.saturating_record(ns);
        result
    }

    /// Takes over what another stopwatch saw.
    pub fn merge(&mut self, other: &Stopwatch) {
        self.histogram += &other.histogram;
    }

    /// The percentiles.
    pub fn latency(&self) -> Latency {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Latency {
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            timed: self.histogram.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_seven_is_timed() {
        let (mut one, mut other) = (Stopwatch::default(), Stopwatch::default());
        let sum: u32 = (0..70).map(|i| one.time(|| i)).sum();
        assert_eq!(sum, 69 * 70 / 2);
        (0..7).for_each(|_| other.time(|| ()));
        one.merge(&other);
        let latency = one.latency();
        assert_eq!(latency.timed, 11);
        assert!(latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.p999_ns);
    }
}
