//! The rounds of a subject in a cell, and which of them count.
//!
//! Disturbed rounds (`usage.rs`) are discarded and counted, and others are run instead, up to half
//! as many again. Where fewer than [`ROUNDS_MIN`] are left, on a machine that is busy all the time
//! or has no exact clock of CPU time, the row is made of those that had most CPU time, and says so.

use crate::latency::Latency;
use crate::runner::Burst;
use crate::subject::Waiting;

/// Fewest rounds that a median is taken over, however slow the subject.
pub(crate) const ROUNDS_MIN: u32 = 3;

/// Fewest rounds of a row that is compared with another run. Of two rows that differ in nothing,
/// the middle rounds of one lie beyond those of the other once in 10 times with 3 rounds each, once
/// in 34 with 7, once in 915 with 10.
pub(crate) const ROUNDS_JUDGED: u32 = 10;

/// Rounds end after so many times the time they were given, whatever is left of them.
const LOST: f64 = 4.0;

/// The rounds that a subject should have in a cell.
pub(crate) struct Aim {
    /// So many undisturbed ones.
    pub(crate) rounds: u32,
    /// In so much time, waiting for CPUs included; after it, [`ROUNDS_JUDGED`] are enough.
    pub(crate) wall_ns: f64,
}

/// Results of one subject's rounds in one cell.
#[derive(Default)]
pub(crate) struct Measured {
    bursts: Vec<Burst>,
    /// How many rounds there were when each visit of the cell ended.
    visits: Vec<usize>,
    undisturbed: u32,
    wall_ns: f64,
    pub(crate) latency: Latency,
    pub(crate) waiting: Option<Waiting>,
}

/// The rounds that count.
pub(crate) struct Kept {
    /// Nanoseconds per operation, sorted.
    pub(crate) ns_per_op: Vec<f64>,
    /// CPU time per operation, sorted; empty where it was not measured.
    pub(crate) cpu_ns_per_op: Vec<f64>,
    /// Median of the undisturbed rounds of each visit of the cell that has some.
    pub(crate) visits_ns: Vec<f64>,
    /// Rounds that do not count.
    pub(crate) discarded: u32,
    /// The rounds that count are disturbed, too.
    pub(crate) busy: bool,
}

impl Measured {
    /// Adds a round.
    pub(crate) fn push(&mut self, burst: Burst) {
        self.undisturbed += u32::from(!burst.disturbed);
        self.wall_ns += burst.wall_ns;
        self.bursts.push(burst);
    }

    /// A visit of the cell ends: the next rounds are of another moment.
    pub(crate) fn end_visit(&mut self) {
        self.visits.push(self.bursts.len());
    }

    fn visits_ns(&self) -> Vec<f64> {
        let begins = std::iter::once(0).chain(self.visits.iter().copied());
        let visits = begins.zip(&self.visits).map(|(begin, &end)| &self.bursts[begin..end]);
        let median = |rounds: &[Burst]| {
            let undisturbed = rounds.iter().filter(|round| !round.disturbed);
            let mut ns: Vec<f64> = undisturbed.map(|round| round.ns_per_op).collect();
            ns.sort_by(f64::total_cmp);
            ns.get(ns.len() / 2).copied()
        };
        visits.filter_map(median).collect()
    }

    /// Whether another round is due.
    pub(crate) fn wants_more(&self, aim: &Aim) -> bool {
        let planned = aim.rounds;
        let late = self.wall_ns > aim.wall_ns && self.undisturbed >= ROUNDS_JUDGED;
        let lost = self.wall_ns > aim.wall_ns * LOST && self.bursts.len() >= ROUNDS_MIN as usize;
        let runs =
            self.undisturbed < planned && self.bursts.len() < (planned + planned / 2) as usize;
        runs && !late && !lost
    }

    /// Whether this visit has no undisturbed round yet, and was not tried twice.
    pub(crate) fn wants_a_visit(&self) -> bool {
        let begin = self.visits.last().copied().unwrap_or(0);
        let here = &self.bursts[begin..];
        here.len() < 2 && here.iter().all(|round| round.disturbed)
    }

    /// Discards the disturbed rounds.
    pub(crate) fn kept(&self) -> Kept {
        let mut rounds = self.bursts.clone();
        // Stable: of rounds with the same share the earlier ones are kept.
        rounds.sort_by(|a, b| {
            a.disturbed.cmp(&b.disturbed).then(b.cpu_share.total_cmp(&a.cpu_share))
        });
        let busy = self.undisturbed < ROUNDS_MIN && (self.undisturbed as usize) < rounds.len();
        let keep = if busy { ROUNDS_MIN } else { self.undisturbed } as usize;
        let discarded = rounds.len().saturating_sub(keep) as u32;
        rounds.truncate(keep);
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        Kept {
            ns_per_op: sorted(rounds.iter().map(|round| round.ns_per_op).collect()),
            cpu_ns_per_op: sorted(rounds.iter().filter_map(|r| r.cpu_ns_per_op).collect()),
            visits_ns: self.visits_ns(),
            discarded,
            busy,
        }
    }
}

impl Aim {
    /// What is due at the end of a visit of the cell, the first being 1.
    pub(crate) fn of_visit(&self, visit: u32, visits: u32) -> Aim {
        Aim {
            rounds: (self.rounds * visit).div_ceil(visits),
            wall_ns: self.wall_ns * f64::from(visit) / f64::from(visits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ns_per_op: f64, cpu_share: f64) -> Burst {
        let disturbed = cpu_share < 0.95;
        let cpu_ns_per_op = Some(ns_per_op * cpu_share);
        Burst { cpu_ns_per_op, cpu_share, disturbed, ..Burst::unjudged(ns_per_op) }
    }

    fn measured(rounds: &[(f64, f64)]) -> Measured {
        let mut measured = Measured::default();
        rounds.iter().for_each(|&(ns, share)| measured.push(round(ns, share)));
        measured
    }

    #[test]
    fn disturbed_rounds_are_discarded_and_counted_wherever_they_are() {
        let kept = measured(&[(9.0, 0.5), (4.0, 1.0), (2.0, 0.98), (8.0, 0.6), (3.0, 1.0)]).kept();
        assert_eq!(kept.ns_per_op, [2.0, 3.0, 4.0]);
        assert_eq!(kept.cpu_ns_per_op, [1.96, 3.0, 4.0]);
        assert_eq!((kept.discarded, kept.busy), (2, false));
    }

    #[test]
    fn a_machine_that_is_always_busy_gives_the_least_disturbed_rounds_and_says_so() {
        let kept = measured(&[(9.0, 0.4), (4.0, 1.0), (5.0, 0.9), (6.0, 0.8), (8.0, 0.5)]).kept();
        assert_eq!(kept.ns_per_op, [4.0, 5.0, 6.0]);
        assert_eq!((kept.discarded, kept.busy), (2, true));
    }

    #[test]
    fn each_visit_has_a_median_of_its_own_and_the_rounds_are_shared_out() {
        let mut measured = Measured::default();
        for ns in [[1.0, 2.0, 9.0], [5.0, 4.0, 4.0]] {
            ns.iter().for_each(|&ns| measured.push(round(ns, 1.0)));
            measured.end_visit();
        }
        measured.push(round(7.0, 0.2));
        measured.end_visit();
        assert_eq!(measured.kept().visits_ns, [2.0, 4.0], "the last one was disturbed throughout");
        let aim = Aim { rounds: 21, wall_ns: 100.0 };
        let due: Vec<u32> = (1..=5).map(|visit| aim.of_visit(visit, 5).rounds).collect();
        assert_eq!(due, [5, 9, 13, 17, 21]);
        assert_eq!(aim.of_visit(1, 5).wall_ns, 20.0);
    }

    #[test]
    fn a_late_visit_has_one_undisturbed_round_or_two_disturbed_ones() {
        let mut measured = Measured::default();
        for shares in [&[1.0][..], &[0.5, 1.0], &[0.5, 0.5]] {
            for &share in shares {
                assert!(measured.wants_a_visit());
                measured.push(round(1.0, share));
            }
            assert!(!measured.wants_a_visit());
            measured.end_visit();
        }
        assert_eq!(measured.kept().visits_ns, [1.0, 1.0]);
    }

    #[test]
    fn few_rounds_that_are_all_undisturbed_are_not_busy() {
        let kept = measured(&[(1.0, 1.0), (2.0, 1.0)]).kept();
        assert_eq!((kept.ns_per_op.len(), kept.discarded, kept.busy), (2, 0, false));
        let none = measured(&[]).kept();
        assert_eq!((none.ns_per_op.len(), none.discarded, none.busy), (0, 0, false));
    }

    #[test]
    fn discarded_rounds_are_run_again_but_not_for_ever() {
        let aim = Aim { rounds: 10, wall_ns: 1e9 };
        let mut measured = Measured::default();
        let mut runs = 0;
        while measured.wants_more(&aim) {
            measured.push(round(1.0, if runs % 5 == 0 { 0.5 } else { 1.0 }));
            runs += 1;
        }
        assert_eq!((runs, measured.undisturbed), (13, 10));
        let mut busy = Measured::default();
        while busy.wants_more(&aim) {
            busy.push(round(1.0, 0.5));
        }
        assert_eq!(busy.bursts.len(), 15);
    }
    #[test]
    fn rounds_that_wait_for_cpus_end_with_as_many_as_a_comparison_needs() {
        let aim = Aim { rounds: 30, wall_ns: 50e6 };
        let rounds_of = |cpu_share: f64, wall_ns: f64| {
            let mut measured = Measured::default();
            while measured.wants_more(&aim) {
                measured.push(Burst { wall_ns, ..round(1.0, cpu_share) });
            }
            measured.bursts.len()
        };
        assert_eq!(rounds_of(1.0, 1e6), 30);
        assert_eq!(rounds_of(1.0, 20e6), 10);
        assert_eq!(rounds_of(0.5, 20e6), 11);
        assert_eq!(rounds_of(0.5, 1e9), 3);
    }
}
