//! What a change saves, and how sure that is.

use serde::Serialize;

use crate::moves::Moves;
use crate::report::error;

/// Prices are of another load than this one: they may be this many times too high or too low.
pub(crate) const PRICE_FACTOR: f64 = 1.5;

/// Where nobody timed the recorded host's kernel, prices may be this many times too low.
pub(crate) const UNMEASURED_FACTOR: f64 = 3.0;

/// Less than this, in percent of a CPU or of the time, is not worth a change.
pub(crate) const WORTH_PERCENT: f64 = 0.5;

/// By how much the model is off on this recording, in percent of the kernel's number; `None` where
/// the kernel moved nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ModelError {
    /// Refilled pages.
    pub refill_pages: Option<f64>,
    /// Drained pages.
    pub drain_pages: Option<f64>,
    /// The larger one, without its sign. Where the kernel moved nothing in a direction, what the
    /// model moved there, in percent of the other direction; `None`: the kernel moved nothing.
    #[serde(skip)]
    pub most: Option<f64>,
}

impl ModelError {
    /// The error of what was moved while the model can be judged.
    pub(crate) fn of(model: &Moves, kernel: &Moves) -> ModelError {
        let refill_pages = error(model.refill_pages, kernel.refill_pages);
        let drain_pages = error(model.drain_pages, kernel.drain_pages);
        let moved = kernel.refill_pages.max(kernel.drain_pages);
        let of_all = |own: Option<f64>, model: u64| own.or(error(moved + model, moved));
        let most = of_all(refill_pages, model.refill_pages)
            .into_iter()
            .chain(of_all(drain_pages, model.drain_pages))
            .map(f64::abs)
            .reduce(f64::max);
        ModelError { refill_pages, drain_pages, most }
    }
}

/// What a change saves, in percent of one CPU or of the time; less than nothing is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Saving {
    /// At least, by the model's error and the prices' uncertainty.
    pub low: f64,
    /// By the model.
    pub mid: f64,
    /// At most.
    pub high: f64,
}

impl Saving {
    /// From the time that is saved in each second, by prices that may be `most` times too low.
    pub(crate) fn new(us_per_s: f64, error: ModelError, most: f64) -> Saving {
        let mid = us_per_s / 1e4;
        let off = error.most.unwrap_or(100.0).min(100.0) / 100.0;
        let (near, far) = (mid / PRICE_FACTOR * (1.0 - off), mid * most * (1.0 + off));
        let round = |percent: f64| (percent * 1e4).round() / 1e4;
        Saving { low: round(near.min(far)), mid: round(mid), high: round(near.max(far)) }
    }

    /// Of a shorter time, or a longer one.
    pub(crate) fn times(self, times: f64) -> Saving {
        Saving { low: self.low * times, mid: self.mid * times, high: self.high * times }
    }

    /// Both together.
    pub(crate) fn plus(self, other: Saving) -> Saving {
        let (low, mid) = (self.low + other.low, self.mid + other.mid);
        Saving { low, mid, high: self.high + other.high }
    }

    /// The same, where all that can be saved is `cost`.
    pub(crate) fn at_most(self, cost: f64) -> Saving {
        let Saving { low, mid, high } = self;
        Saving { low: low.min(cost), mid: mid.min(cost), high: high.min(cost) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_never_moved_counts_against_the_model() {
        let moves =
            |refill_pages, drain_pages| Moves { refill_pages, drain_pages, ..Moves::default() };
        let none = ModelError::of(&moves(70, 5), &moves(0, 0));
        assert_eq!(none, ModelError::default(), "nothing to hold the model to");
        let only_refills = ModelError::of(&moves(110, 50), &moves(100, 0));
        assert_eq!((only_refills.drain_pages, only_refills.most), (None, Some(50.0)));
        let both = ModelError::of(&moves(110, 80), &moves(100, 100));
        assert_eq!(both.most, Some(20.0));
    }

    #[test]
    fn savings_have_an_interval_that_holds_the_middle() {
        let error = ModelError { most: Some(9.0), ..ModelError::default() };
        for us_per_s in [-500.0, 0.0, 500.0] {
            let Saving { low, mid, high } = Saving::new(us_per_s, error, PRICE_FACTOR);
            assert!(low <= mid && mid <= high, "{low} {mid} {high}");
            let wide = Saving::new(us_per_s, error, UNMEASURED_FACTOR);
            assert_eq!(wide.mid, mid);
            assert!((wide.high - wide.low) >= (high - low), "prices that nobody measured");
        }
    }
}
