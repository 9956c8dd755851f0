//! Figures in which the model is farther from the kernel than it may be.

use serde::Serialize;

use super::{Side, error};

/// The model may be off by so many percent of refilled pages, over all that it is judged by.
pub(crate) const REFILL_MAX_PERCENT: f64 = 5.0;
/// The same of drained pages.
pub(crate) const DRAIN_MAX_PERCENT: f64 = 8.0;

/// A figure that says nothing about the recorded kernel: the model is too far off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beyond {
    /// Which: `refill_pages`, `refill_holds`, `drain_pages` or `drain_holds`, as in [`Side`].
    pub figure: &'static str,
    /// The model's number.
    pub model: u64,
    /// The kernel's.
    pub kernel: u64,
    /// By how many percent of the kernel's number the model's is larger; `None` where that is 0.
    pub percent: Option<f64>,
    /// How many it may be.
    pub limit_percent: f64,
}

/// Those of one comparison. Where the kernel moved nothing in a direction, the model's moves count
/// against those of the other one.
pub(super) fn of(model: &Side, kernel: &Side) -> Vec<Beyond> {
    let (refill, drain) = (REFILL_MAX_PERCENT, DRAIN_MAX_PERCENT);
    let all = [
        ("refill_pages", (model.refill_pages, kernel.refill_pages), kernel.drain_pages, refill),
        ("refill_holds", (model.refill_holds, kernel.refill_holds), kernel.drain_holds, refill),
        ("drain_pages", (model.drain_pages, kernel.drain_pages), kernel.refill_pages, drain),
        ("drain_holds", (model.drain_holds, kernel.drain_holds), kernel.refill_holds, drain),
    ];
    let far = |&(_, (model, kernel), other, limit): &(_, (u64, u64), u64, f64)| {
        let of = if kernel == 0 { other } else { kernel };
        model.abs_diff(kernel) as f64 * 100.0 > of as f64 * limit
    };
    let told = |(figure, (model, kernel), _, limit_percent)| {
        let percent = error(model, kernel);
        Beyond { figure, model, kernel, percent, limit_percent }
    };
    all.into_iter().filter(far).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::Moves;

    fn figures(model: [u64; 4], kernel: [u64; 4]) -> Vec<(&'static str, Option<f64>)> {
        let side = |[refill_pages, refill_holds, drain_pages, drain_holds]: [u64; 4]| {
            let moves =
                Moves { refill_pages, refill_holds, drain_pages, drain_holds, ..Moves::default() };
            Side::of(&moves, true)
        };
        of(&side(model), &side(kernel)).into_iter().map(|b| (b.figure, b.percent)).collect()
    }

    #[test]
    fn each_figure_beyond_its_limit_is_told() {
        let kernel = [1000, 100, 1000, 100];
        assert_eq!(figures([1050, 95, 920, 108], kernel), []);
        assert_eq!(
            figures([1051, 94, 919, 109], kernel),
            [
                ("refill_pages", Some(5.1)),
                ("refill_holds", Some(-6.0)),
                ("drain_pages", Some(-8.1)),
                ("drain_holds", Some(9.0)),
            ]
        );
    }

    #[test]
    fn what_the_kernel_did_not_do_counts_against_the_rest() {
        assert_eq!(figures([0; 4], [0; 4]), []);
        assert_eq!(figures([1000, 100, 80, 8], [1000, 100, 0, 0]), []);
        assert_eq!(figures([1000, 100, 81, 8], [1000, 100, 0, 0]), [("drain_pages", None)]);
        assert_eq!(figures([0, 0, 1, 0], [0; 4]), [("drain_pages", None)]);
    }
}
