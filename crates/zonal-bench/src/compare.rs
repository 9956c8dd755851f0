//! A run beside an earlier one: the rows that changed beyond noise.
//!
//! The cells of a run are visited several times ([`crate::Options`]), minutes apart, and each visit
//! has a median of its own. A row has changed if all of these lie beyond all of the earlier run's,
//! and their middles are at least [`LEAST`] apart: five medians of either run lie so by chance once
//! in 126 times, and runs of one program differ by a few percent of themselves (clock speed, which
//! pages a pool got). Rows of fewer than [`VISITS_JUDGED`] visits (of older programs, or of benches
//! that are visited once) have changed if the middle of their rounds, from the 10th to the 90th
//! percentile, lies beyond that of the earlier run. Rows of fewer than [`ROUNDS_JUDGED`] rounds are
//! not judged: so few lie apart by chance.

use crate::cell::Cell;
use crate::comparison::{Change, Comparison};
use crate::earlier::{CompareError, Earlier};
use crate::rounds::ROUNDS_JUDGED;
use crate::row::{Report, Row, to_thousandths};

impl Report {
    /// Holds the rows against those of an earlier run.
    ///
    /// # Errors
    /// [`CompareError::NothingShared`] if no row is in both.
    pub fn compare(&mut self, earlier: &Earlier) -> Result<(), CompareError> {
        let mut comparison = Comparison {
            commit: earlier.commit().to_owned(),
            notices: earlier.notices(self),
            changed: Vec::new(),
            unchanged: 0,
            busy: Vec::new(),
            only_before: only(&earlier.rows, &self.rows),
            only_now: only(&self.rows, &earlier.rows),
        };
        for now in &self.rows {
            if let Some(before) = earlier.rows.iter().find(|row| row.same_place(now)) {
                judge(&mut comparison, before, now);
            }
        }
        if comparison.only_now.len() == self.rows.len() {
            return Err(CompareError::NothingShared);
        }
        let size = |change: &Change| change.ratio.max(f64::MIN_POSITIVE).ln().abs();
        comparison.changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
        self.comparison = Some(comparison);
        Ok(())
    }
}

/// Fewest visits of a row that is judged by them.
const VISITS_JUDGED: usize = 4;
/// Runs of one program differ by less, as a part of the longer time.
const LEAST: f64 = 0.05;

fn judge(comparison: &mut Comparison, before: &Row, now: &Row) {
    let few = |row: &Row| row.busy || row.rounds < ROUNDS_JUDGED;
    if few(before) || few(now) {
        comparison.busy.push(now.place());
        return;
    }
    let visits = [before, now].map(|row| Spread::of_visits(&row.visits_ns));
    let (least, [before_at, now_at]) = match visits {
        [Some(before), Some(now)] => (LEAST, [before, now]),
        _ => (0.0, [before, now].map(Spread::of_rounds)),
    };
    if !now_at.is_beyond(&before_at, least) {
        comparison.unchanged += 1;
        return;
    }
    comparison.changed.push(Change {
        row: now.place(),
        before_ns: before.ns_per_op,
        now_ns: now.ns_per_op,
        ratio: to_thousandths(now.ns_per_op / before.ns_per_op),
        ratio_low: to_thousandths(now_at.low / before_at.high),
        ratio_high: to_thousandths(now_at.high / before_at.low),
    });
}

/// Where the times of a row lie.
struct Spread {
    low: f64,
    middle: f64,
    high: f64,
}

impl Spread {
    fn of_rounds(row: &Row) -> Spread {
        Spread { low: row.p10_ns, middle: row.ns_per_op, high: row.p90_ns }
    }

    /// `None`: too few to say.
    fn of_visits(visits_ns: &[f64]) -> Option<Spread> {
        let mut visits = visits_ns.to_vec();
        visits.sort_by(f64::total_cmp);
        let (&low, &high) = (visits.first()?, visits.last()?);
        let middle = visits[visits.len() / 2];
        (visits.len() >= VISITS_JUDGED).then_some(Spread { low, middle, high })
    }

    fn is_beyond(&self, other: &Spread, least: f64) -> bool {
        let apart = self.low > other.high || self.high < other.low;
        let longer = self.middle.max(other.middle);
        apart && (self.middle - other.middle).abs() >= longer * least
    }
}

/// Rows without another in the same place.
fn only(rows: &[Row], others: &[Row]) -> Vec<String> {
    let alone = |row: &&Row| !others.iter().any(|other| other.same_place(row));
    rows.iter().filter(alone).map(Row::place).collect()
}

impl Row {
    /// Whether two rows are of one subject in one cell.
    pub(crate) fn same_place(&self, other: &Row) -> bool {
        self.subject == other.subject && self.same_cell(other)
    }

    /// Whether the row is one of `cell`.
    pub(crate) fn is_of(&self, cell: &Cell) -> bool {
        let key = (self.bench, self.threads, self.order, self.touched);
        key == (cell.bench, cell.threads, cell.order, cell.touched)
    }

    /// The cell and the subject.
    pub(crate) fn place(&self) -> String {
        let Row { bench, threads, order, touched, .. } = *self;
        let cell = Cell { bench, threads, pinned: true, order, touched };
        format!("{cell}, {}", self.subject)
    }
}
