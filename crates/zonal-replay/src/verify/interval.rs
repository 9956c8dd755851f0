//! Mean and interval of few numbers.

use serde::Serialize;

/// A figure with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// At least.
    pub low: f64,
    /// The mean, or the middle one.
    pub mid: f64,
    /// At most.
    pub high: f64,
}

/// Half of the 95 % interval of Student's t, in standard errors, by degrees of freedom from 1.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean of `numbers`, with the interval in which it lies 95 times of 100; `None` of fewer than
/// two.
pub fn mean_of(numbers: &[f64]) -> Option<Interval> {
    exact_mean_of(numbers).map(Interval::rounded)
}

fn exact_mean_of(numbers: &[f64]) -> Option<Interval> {
    let count = numbers.len() as f64;
    let freedom = numbers.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mid = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mid).powi(2)).sum();
    let error = (squares / freedom as f64 / count).sqrt();
    let half = error * T95[(freedom - 1).min(T95.len() - 1)];
    Some(Interval { low: mid - half, mid, high: mid + half })
}

/// From the smallest to the largest of `numbers`, with the middle one; `None` of none.
pub fn range_of(numbers: &[f64]) -> Option<Interval> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let mid = match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    };
    Some(Interval { low, mid, high }.rounded())
}

/// What is saved, in percent, where each of `logs` is the logarithm of a figure with the setting by
/// the same figure without it: the geometric mean of the ratios, so that nothing saves more than
/// 100. `None` of fewer than two.
pub fn saving_of(logs: &[f64]) -> Option<Interval> {
    let Interval { low, mid, high } = exact_mean_of(logs)?;
    let saved = |log: f64| (1.0 - log.exp()) * 100.0;
    // A longer time is less saved.
    Some(Interval { low: saved(high), mid: saved(mid), high: saved(low) }.rounded())
}

impl Interval {
    /// In percent of a figure, an interval wider than this says nothing.
    const WIDEST_PERCENT: f64 = 100.0;

    /// Whether it is too wide to say anything of a figure that it is a percentage of.
    pub fn says_nothing(&self) -> bool {
        self.high - self.low > Interval::WIDEST_PERCENT
    }

    fn rounded(self) -> Interval {
        let round = |number: f64| (number * 1e4).round() / 1e4;
        Interval { low: round(self.low), mid: round(self.mid), high: round(self.high) }
    }

    /// Whether both have a value in common.
    pub fn meets(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether it is clear of zero.
    pub fn is_clear(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Mean 3, standard deviation 1.5811, five numbers: 2.776 * 1.5811 / sqrt(5) = 1.9629.
        let found = mean_of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(found, Interval { low: 1.0371, mid: 3.0, high: 4.9629 });
        assert_eq!(mean_of(&[2.0, 2.0]), Some(Interval { low: 2.0, mid: 2.0, high: 2.0 }));
        assert_eq!((mean_of(&[1.0]), mean_of(&[])), (None, None));
        assert!(mean_of(&vec![1.0; 100]).is_some());
    }

    #[test]
    fn nothing_saves_more_than_all_however_far_runs_are_apart() {
        let of = |ratios: &[f64]| saving_of(&ratios.iter().map(|r| r.ln()).collect::<Vec<_>>());
        let exact = |mid: f64| Some(Interval { low: mid, mid, high: mid });
        assert_eq!(of(&[1.2, 1.2, 1.2]), exact(-20.0));
        assert_eq!(of(&[0.5, 0.5]), exact(50.0));
        // Half and twice the time are no difference.
        assert_eq!(of(&[0.5, 2.0]).unwrap().mid, 0.0);
        let noisy = of(&[0.9, 1.1, 8.0, 0.3, 1.0]).unwrap();
        assert!(noisy.says_nothing() && noisy.high < 100.0 && noisy.low < -100.0, "{noisy:?}");
        assert!(!of(&[0.9, 0.95, 1.0]).unwrap().says_nothing());
    }

    #[test]
    fn a_range_has_the_middle_one() {
        let of = |numbers: &[f64]| range_of(numbers).map(|i| (i.low, i.mid, i.high));
        assert_eq!(of(&[3.0, 1.0, 10.0]), Some((1.0, 3.0, 10.0)));
        assert_eq!(of(&[3.0, 1.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[]), None);
    }
}
