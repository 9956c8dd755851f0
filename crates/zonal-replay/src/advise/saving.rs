//! What a change saves, and how sure that is.

use serde::Serialize;

use crate::report::error;
use crate::what_if::{KernelMoves, TrialCounts};

/// Prices are those of another machine: they may be this many times too high or too low.
pub(super) const PRICE_FACTOR: f64 = 1.5;

/// By how much the model is off on this recording, in percent of the kernel's number; `None` where
/// the kernel moved nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ModelError {
    /// Refilled pages.
    pub refill_pages: Option<f64>,
    /// Drained pages.
    pub drain_pages: Option<f64>,
}

impl ModelError {
    pub(super) fn of(model: &TrialCounts, kernel: &KernelMoves) -> ModelError {
        ModelError {
            refill_pages: error(model.refill_pages, kernel.moves.refill_pages),
            drain_pages: error(model.drain_pages, kernel.moves.drain_pages),
        }
    }

    /// The larger one, without its sign.
    pub(super) fn most(self) -> f64 {
        let all = [self.refill_pages, self.drain_pages];
        all.into_iter().flatten().map(f64::abs).fold(0.0, f64::max)
    }
}

/// What a change saves, in percent of one CPU; less than nothing is lost.
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
    /// From the time that is saved in each second.
    pub(super) fn new(us_per_s: f64, error: ModelError) -> Saving {
        let mid = us_per_s / 1e4;
        let off = error.most().min(100.0) / 100.0;
        let (near, far) = (mid / PRICE_FACTOR * (1.0 - off), mid * PRICE_FACTOR * (1.0 + off));
        let round = |percent: f64| (percent * 1e4).round() / 1e4;
        Saving { low: round(near.min(far)), mid: round(mid), high: round(near.max(far)) }
    }

    /// The same, where all that can be saved is `cost`, in percent of one CPU.
    pub(super) fn at_most(self, cost: f64) -> Saving {
        let Saving { low, mid, high } = self;
        Saving { low: low.min(cost), mid: mid.min(cost), high: high.min(cost) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_have_an_interval_that_holds_the_middle() {
        let error = ModelError { refill_pages: Some(-9.0), drain_pages: None };
        for us_per_s in [-500.0, 0.0, 500.0] {
            let Saving { low, mid, high } = Saving::new(us_per_s, error);
            assert!(low <= mid && mid <= high, "{low} {mid} {high}");
        }
    }
}
