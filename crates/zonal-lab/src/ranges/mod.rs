//! What a week of a mixed load of ranges leaves of a zone: the largest range that can be had each
//! hour, beside first fit and Linux' rules. All simulated; the same seed gives the same week.
//!
//! Requests come at random, more by day than by night. Sizes are log-uniform from one page to 4
//! MiB. Most ranges live for minutes, some for hours, a few for days, whatever their size. A range
//! that is refused is not asked for again.

mod load;
mod setup;
mod subject;

pub use setup::{Look, Setup};
pub use subject::Rules;

use crate::LabError;
use crate::report::{Lines, Series, lines};
use load::{Due, Week};
use setup::WEEK_S;
use subject::Subject;

/// Seconds between two looks at the zone.
const LOOK_S: f64 = 3600.0;
const PAGES_PER_MIB: f64 = 256.0;

/// What a week came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// One look for each hour.
    pub looks: Vec<Look>,
    /// Requests.
    pub asked: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Pages that requests were given and had not asked for, of all that they were given.
    pub wasted: f64,
}

impl Setup {
    /// Plays the week under these rules.
    ///
    /// # Errors
    /// A zone that the core does not take.
    pub fn run(&self, rules: Rules) -> Result<Outcome, LabError> {
        subject::with(rules, self.pages, |subject| self.play(subject))
    }

    fn play(&self, subject: &mut dyn Subject) -> Outcome {
        let mut week = Week::new(self);
        let mut outcome = Outcome { looks: Vec::new(), asked: 0, refused: 0, wasted: 0.0 };
        let (mut given, mut wanted) = (0, 0);
        let mut next_look = LOOK_S;
        while let Some((at, due)) = week.next().filter(|(at, _)| *at <= WEEK_S) {
            while next_look <= at {
                outcome.looks.push(subject.look());
                next_look += LOOK_S;
            }
            match due {
                Due::End(range) => subject.free(range),
                Due::Request { pages, until } => {
                    outcome.asked += 1;
                    match subject.alloc(pages) {
                        Some(range) => {
                            given += range.pages;
                            wanted += pages;
                            week.live(range, until);
                        }
                        None => outcome.refused += 1,
                    }
                }
            }
        }
        outcome.wasted = (given - wanted) as f64 / (given.max(1)) as f64;
        outcome
    }
}

impl Outcome {
    /// The lowest and the median of the longest runs, pages.
    pub fn longest(&self) -> (u64, u64) {
        let mut longest: Vec<u64> = self.looks.iter().map(|look| look.longest).collect();
        longest.sort_unstable();
        let at = |at: usize| longest.get(at).copied().unwrap_or(0);
        (at(0), at(longest.len() / 2))
    }

    /// The lowest part of the free pages that the longest run had.
    pub fn least_share(&self) -> f64 {
        let share = |look: &Look| look.longest as f64 / look.free.max(1) as f64;
        self.looks.iter().map(share).fold(1.0, f64::min)
    }
}

/// A plot of the longest runs, every sixth hour, over all seeds.
pub fn plot(runs: &[(Rules, Vec<Outcome>)]) -> String {
    let hours: Vec<usize> = (0..28).map(|at| at * 6).collect();
    let series = |(rules, outcomes): &(Rules, Vec<Outcome>)| Series {
        name: rules.to_string(),
        values: hours.iter().map(|hour| longest_at(outcomes, *hour)).collect(),
    };
    lines(&Lines {
        title: "Longest free run over a week (simulated)".into(),
        y: "MiB".into(),
        x: "day".into(),
        places: hours.iter().map(|hour| format!("{:.2}", *hour as f64 / 24.0)).collect(),
        series: runs.iter().map(series).collect(),
    })
}

fn longest_at(outcomes: &[Outcome], hour: usize) -> Vec<f64> {
    let looks = outcomes.iter().filter_map(|outcome| outcome.looks.get(hour));
    looks.map(|look| look.longest as f64 / PAGES_PER_MIB).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Setup = Setup { pages: 1 << 15, used: 0.7, seed: 1 };

    #[test]
    fn the_same_seed_is_the_same_week_and_another_one_is_not() {
        for rules in Rules::ALL {
            let week = SMALL.run(rules).unwrap();
            assert_eq!(week, SMALL.run(rules).unwrap(), "{rules}");
            assert_ne!(week, Setup { seed: 2, ..SMALL }.run(rules).unwrap(), "{rules}");
            assert!(week.looks.len() > 160 && week.asked > 1000, "{rules}");
            assert!(week.looks.iter().all(|look| look.longest <= look.free), "{rules}");
        }
    }

    #[test]
    fn only_blocks_waste_pages_and_all_rules_are_asked_the_same() {
        let weeks = Rules::ALL.map(|rules| SMALL.run(rules).unwrap());
        let [ranges, packed, first_fit, blocks] = &weeks;
        assert_eq!((ranges.wasted, packed.wasted, first_fit.wasted), (0.0, 0.0, 0.0));
        assert!(blocks.wasted > 0.1 && blocks.wasted < 0.5, "{}", blocks.wasted);
        assert!(weeks.iter().all(|week| week.asked == ranges.asked));
        // The core hands the same addresses out as a plain first fit, but for what it keeps back.
        assert!(packed.longest().1 > 2 * ranges.longest().1, "packed ranges keep long runs free");
        assert!(packed.refused <= blocks.refused, "what is wasted is missing elsewhere");
    }

    #[test]
    fn an_empty_week_has_the_whole_zone_in_one_run() {
        let none = Setup { used: 0.0, ..SMALL };
        for rules in Rules::ALL {
            let week = none.run(rules).unwrap();
            assert!(week.looks.iter().all(|look| look.longest == SMALL.pages), "{rules}");
            assert_eq!(week.refused, 0);
        }
    }
}
