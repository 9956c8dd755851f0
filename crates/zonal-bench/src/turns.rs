//! Two ways that only `zonal` has, beside each other: rounds in random order, and each way under
//! two names, whose difference is the error of the measurement.

use std::time::Instant;

use crate::cell::{Bench, Cell};
use crate::plan::Options;
use crate::rounds::Measured;
use crate::row::{Report, Row, Skip, to_thousandths};
use crate::runner::Burst;
use crate::words::split_mix;

/// Rounds of each name that a median is taken over, at most.
const ROUNDS_MAX: u32 = 21;

/// A way to do something.
pub(crate) struct Way {
    /// The subject of its rows, and that of the rows that measure it a second time.
    pub(crate) names: [&'static str; 2],
    pub(crate) cell: Cell,
    /// Pages handed out for each page asked for, where blocks are larger than what was asked for.
    pub(crate) pages_for_each: Option<f64>,
    /// Nanoseconds of an operation, in another round.
    pub(crate) round: Box<dyn FnMut() -> Result<f64, String>>,
}

/// Measures the two ways that `make` gives if the options ask for `bench`, and appends their rows.
/// The second way is what the first is held against.
pub(crate) fn measure(
    options: &Options,
    bench: Bench,
    report: &mut Report,
    make: impl FnOnce() -> Result<[Way; 2], String>,
) {
    let asked = options.benches.is_empty() || options.benches.contains(&bench);
    if !asked || !options.wants(crate::edge::SUBJECT) {
        return;
    }
    let start = Instant::now();
    match make().and_then(|ways| rows(options.rounds.min(ROUNDS_MAX), ways)) {
        Ok(rows) => report.rows.extend(rows),
        Err(reason) => {
            let subject = crate::edge::SUBJECT.into();
            let cell = Some(bench.to_string());
            report.skipped.push(Skip { subject, cell, reason, fault: false });
        }
    }
    report.measured_s = to_thousandths(report.measured_s + start.elapsed().as_secs_f64());
}

fn rows(rounds: u32, mut ways: [Way; 2]) -> Result<Vec<Row>, String> {
    let mut measured: [Measured; 4] = Default::default();
    for name in turns(rounds) {
        let ns = (ways[name / 2].round)()?;
        measured[name].push(Burst::unjudged(ns));
    }
    let mut rows = Vec::new();
    for (name, measured) in measured.iter().enumerate() {
        let way = &ways[name / 2];
        let row = Row::new(&way.cell, way.names[name % 2], measured);
        let pages_for_each = way.pages_for_each.map(to_thousandths);
        rows.push(Row { pages_for_each, ..row });
    }
    let against = rows[2].ns_per_op;
    for row in &mut rows {
        row.ratio_to_limit = Some(to_thousandths(row.ns_per_op / against));
    }
    Ok(rows)
}

/// Names 0 to 3, each so often, in an order that follows from nothing but a fixed seed.
fn turns(rounds: u32) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..rounds as usize * 4).map(|turn| turn % 4).collect();
    let mut state = 0x7a6f_6e61;
    for last in (1..turns.len()).rev() {
        let other = split_mix(&mut state) % (last as u64 + 1);
        turns.swap(last, other as usize);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_as_many_turns_and_none_has_them_in_a_row() {
        let turns = turns(21);
        for name in 0..4 {
            assert_eq!(turns.iter().filter(|turn| **turn == name).count(), 21);
        }
        let cyclic = turns.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 4);
        assert!(!cyclic, "{turns:?}");
    }

    #[test]
    fn the_second_way_is_what_the_first_is_held_against() {
        let cell =
            Cell { bench: Bench::Ranges, threads: 1, pinned: true, order: 0, touched: false };
        let way = |names, ns: f64| Way {
            names,
            cell,
            pages_for_each: None,
            round: Box::new(move || Ok(ns)),
        };
        let rows = rows(3, [way(["a", "a-again"], 1.0), way(["b", "b-again"], 4.0)]).unwrap();
        let ratios: Vec<_> = rows.iter().map(|row| row.ratio_to_limit).collect();
        assert_eq!(ratios, [Some(0.25), Some(0.25), Some(1.0), Some(1.0)]);
        assert!(rows.iter().all(|row| row.rounds == 3));
    }
}
