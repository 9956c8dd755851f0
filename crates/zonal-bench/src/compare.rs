//! A run beside an earlier one: the rows that changed beyond noise.
//!
//! The cells of a run are visited several times ([`crate::Options`]), minutes apart, and each visit
//! has a median of its own. A row has changed if all of these lie beyond all of the earlier run's,
//! and their middles are at least [`LEAST`] apart: five medians of either run lie so by chance once
//! in 126 times, and runs of one program differ by a few percent of themselves (clock speed, which
//! pages a pool got). Rows without visits (of older programs, or of benches that are visited once)
//! have changed if the middle of their rounds, from the 10th to the 90th percentile, lies beyond
//! that of the earlier run. Rows of fewer than [`ROUNDS_JUDGED`] rounds, or of some visits but
//! fewer than [`VISITS_JUDGED`], are not judged: so few lie apart by chance.
//!
//! The machine itself may be slower than it was, in some cells more than in others. The limit
//! ([`LIMIT`]) is the same loop in every run and depends on nothing but the machine, so a row has
//! to be as far apart once more when it is divided by what the limit of its cell took now and
//! before.

use crate::LIMIT;
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
        let before = |now: &Row| earlier.rows.iter().find(|row| row.same_place(now));
        let of_limit = self.rows.iter().filter(|row| row.subject == LIMIT);
        let limits: Vec<(&Row, Option<f64>)> =
            of_limit.filter_map(|now| Some((now, limit(before(now)?, now)))).collect();
        let busy = limits.iter().filter(|(_, slower)| slower.is_none());
        comparison.busy.extend(busy.map(|(now, _)| now.place()));
        for now in self.rows.iter().filter(|row| row.subject != LIMIT) {
            let Some(before) = before(now) else { continue };
            let of_cell = limits.iter().find(|(limit, _)| limit.same_cell(now));
            let slower = of_cell.and_then(|(_, slower)| *slower).unwrap_or(1.0);
            judge(&mut comparison, (before, now), slower);
        }
        comparison
            .notices
            .extend(notice(limits.iter().filter_map(|(_, slower)| *slower).collect()));
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

/// How many times what it took before the limit of a cell takes now, if that can be said.
fn limit(before: &Row, now: &Row) -> Option<f64> {
    let (before, now) = spreads(before, now)?;
    Some(now.middle / before.middle)
}

/// What a reader must know of the machine, where it is not as fast as it was.
fn notice(mut machine: Vec<f64>) -> Option<String> {
    machine.sort_by(f64::total_cmp);
    let (&low, &high) = (machine.first()?, machine.last()?);
    let middle = machine[machine.len() / 2];
    (low < 1.0 - LEAST || high > 1.0 + LEAST).then(|| {
        format!(
            "the machine is not as fast as it was: {LIMIT} takes {low:.2} to {high:.2} times \
             what it took, {middle:.2} in the middle of {} cells; rows are judged by what is more",
            machine.len()
        )
    })
}

/// Where the times of two rows lie; `None` if they are not judged.
fn spreads(before: &Row, now: &Row) -> Option<(Spread, Spread)> {
    let few = |row: &Row| {
        let visits = row.visits_ns.len();
        row.busy || row.rounds < ROUNDS_JUDGED || (1..VISITS_JUDGED).contains(&visits)
    };
    if few(before) || few(now) {
        return None;
    }
    let visits = Spread::of_visits(&before.visits_ns).zip(Spread::of_visits(&now.visits_ns));
    Some(visits.unwrap_or_else(|| (Spread::of_rounds(before), Spread::of_rounds(now))))
}

/// `slower`: how many times what it took before the limit takes now.
fn judge(comparison: &mut Comparison, (before, now): (&Row, &Row), slower: f64) {
    let Some((before_at, now_at)) = spreads(before, now) else {
        comparison.busy.push(now.place());
        return;
    };
    let by_limit = Spread {
        low: now_at.low / slower,
        middle: now_at.middle / slower,
        high: now_at.high / slower,
    };
    let changed = now_at.is_beyond(&before_at) && by_limit.is_beyond(&before_at);
    if !changed || (by_limit.middle < before_at.middle) != (now_at.middle < before_at.middle) {
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

    fn is_beyond(&self, other: &Spread) -> bool {
        let apart = self.low > other.high || self.high < other.low;
        let longer = self.middle.max(other.middle);
        apart && (self.middle - other.middle).abs() >= longer * LEAST
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
