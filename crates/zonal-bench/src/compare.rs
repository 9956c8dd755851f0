//! A run beside an earlier one: the rows that changed beyond noise.
//!
//! A row has changed if the middle of its rounds, from the 10th to the 90th percentile, lies beyond
//! that of the earlier run. Runs of one program differ by more than the confidence intervals of
//! their medians (clock speed, which pages a pool got), so those would call too much a change. Rows
//! of fewer than [`ROUNDS_JUDGED`] rounds are not judged: so few lie apart by chance.

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

fn judge(comparison: &mut Comparison, before: &Row, now: &Row) {
    let few = |row: &Row| row.busy || row.rounds < ROUNDS_JUDGED;
    if few(before) || few(now) {
        comparison.busy.push(now.place());
    } else if now.p10_ns > before.p90_ns || now.p90_ns < before.p10_ns {
        comparison.changed.push(Change {
            row: now.place(),
            before_ns: before.ns_per_op,
            now_ns: now.ns_per_op,
            ratio: to_thousandths(now.ns_per_op / before.ns_per_op),
            ratio_low: to_thousandths(now.p10_ns / before.p90_ns),
            ratio_high: to_thousandths(now.p90_ns / before.p10_ns),
        });
    } else {
        comparison.unchanged += 1;
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
