//! The result of a run: rows, skipped cells with reasons, and the machine. JSON and CSV.

use crate::cell::{Bench, Cell};
use crate::comparison::Comparison;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::rounds::{Kept, Measured};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;

/// Version of the JSON form of [`Report`]; grows by one when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// One subject in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The loop.
    pub bench: Bench,
    /// The subject.
    pub subject: String,
    /// Threads at once.
    pub threads: u32,
    /// The order of the blocks; 0 for `mix`.
    pub order: u32,
    /// One word of every page was written.
    pub touched: bool,
    /// Median over the rounds, nanoseconds per operation; the crate's essay defines the unit.
    pub ns_per_op: f64,
    /// The round at the 10th percentile.
    pub p10_ns: f64,
    /// The round at the 90th percentile.
    pub p90_ns: f64,
    /// Latency of single allocation calls: median. For `bulk4096` a call is 4096 pages.
    pub p50_ns: f64,
    /// Latency of single allocation calls: 99th percentile.
    pub p99_ns: f64,
    /// Latency of single allocation calls: 99.9th percentile.
    pub p999_ns: f64,
    /// Latency of single calls that free: 99.9th percentile.
    pub free_p999_ns: f64,
    /// `ns_per_op` divided by that of [`crate::LIMIT`] in the same cell, if it was measured; for
    /// `edge` by that of `room`, for `ranges` by that of powers of two, for `prefault` by that of
    /// one thread, for `owned` by that of a page that borrows.
    pub ratio_to_limit: Option<f64>,
    /// Pages handed out for each page asked for, of `ranges`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pages_for_each: Option<f64>,
    /// Rounds that the median is taken over.
    pub rounds: u32,
    /// Rounds that were discarded: their threads had fewer CPUs than they should have.
    #[serde(default)]
    pub rounds_discarded: u32,
    /// Too few other rounds were left: the median is over disturbed rounds, too.
    #[serde(default)]
    pub busy: bool,
    /// The 95 % confidence interval of the median begins here. Below six rounds it is the range of
    /// them all, and less certain.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub low_ns: Option<f64>,
    /// It ends here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub high_ns: Option<f64>,
    /// Median of the CPU time of all threads per operation, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_ns_per_op: Option<f64>,
    /// The longest allocation call of the latency pass.
    #[serde(default)]
    pub max_ns: f64,
    /// Latency of single calls that free: median.
    #[serde(default)]
    pub free_p50_ns: f64,
    /// Latency of single calls that free: 99th percentile.
    #[serde(default)]
    pub free_p99_ns: f64,
    /// The longest call that frees.
    #[serde(default)]
    pub free_max_ns: f64,
    /// A thread lost its CPU in each latency pass: the longest calls are those of the machine.
    #[serde(default)]
    pub latency_busy: bool,
    /// Pages that wait in the lists of CPUs or threads when the cell ends, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub list_pages: Option<u64>,
    /// The same of depots, which CPUs or threads share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub depot_pages: Option<u64>,
    /// Medians of the cell's visits, which are spread over the run, nanoseconds per operation; none
    /// in benches that are visited once, and of older programs. A text in CSV.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "numbers")]
    pub visits_ns: Vec<f64>,
}

/// Numbers as a list, or as the words of a text.
fn numbers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        List(Vec<f64>),
        One(f64),
        Text(String),
    }
    let number = |word: &str| word.parse().map_err(serde::de::Error::custom);
    match Option::<Form>::deserialize(from)? {
        None => Ok(Vec::new()),
        Some(Form::List(list)) => Ok(list),
        Some(Form::One(one)) => Ok(vec![one]),
        Some(Form::Text(text)) => text.split_whitespace().map(number).collect(),
    }
}

impl Row {
    /// The row of `subject` in `cell`.
    pub(crate) fn new(cell: &Cell, subject: &str, measured: &Measured) -> Row {
        let Kept { ns_per_op: rounds, cpu_ns_per_op, visits_ns, discarded, busy } = measured.kept();
        let (low, high) = median_interval(&rounds);
        let cpu = (!cpu_ns_per_op.is_empty()).then(|| quantile(&cpu_ns_per_op, 0.5));
        let latency = measured.latency;
        Row {
            bench: cell.bench,
            subject: subject.into(),
            threads: cell.threads,
            order: cell.order,
            touched: cell.touched,
            ns_per_op: to_thousandths(quantile(&rounds, 0.5)),
            p10_ns: to_thousandths(quantile(&rounds, 0.1)),
            p90_ns: to_thousandths(quantile(&rounds, 0.9)),
            p50_ns: to_thousandths(latency.p50_ns),
            p99_ns: to_thousandths(latency.p99_ns),
            p999_ns: to_thousandths(latency.p999_ns),
            free_p999_ns: to_thousandths(latency.free_p999_ns),
            ratio_to_limit: None,
            pages_for_each: None,
            rounds: rounds.len() as u32,
            rounds_discarded: discarded,
            busy,
            low_ns: low.map(to_thousandths),
            high_ns: high.map(to_thousandths),
            cpu_ns_per_op: cpu.map(to_thousandths),
            max_ns: to_thousandths(latency.max_ns),
            free_p50_ns: to_thousandths(latency.free_p50_ns),
            free_p99_ns: to_thousandths(latency.free_p99_ns),
            free_max_ns: to_thousandths(latency.free_max_ns),
            latency_busy: latency.disturbed,
            list_pages: measured.waiting.map(|waiting| waiting.lists),
            depot_pages: measured.waiting.and_then(|waiting| waiting.depots),
            visits_ns: visits_ns.into_iter().map(to_thousandths).collect(),
        }
    }

    /// Whether two rows belong to the same cell.
    pub fn same_cell(&self, other: &Row) -> bool {
        let key = |row: &Row| (row.bench, row.threads, row.order, row.touched);
        key(self) == key(other)
    }
}

/// The value at `q` (0 to 1) of sorted values, nearest rank; 0 without values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0.0)
}

/// The 95 % confidence interval of the median, by ranks: it assumes nothing about how the values
/// are spread. `None` without values.
fn median_interval(sorted: &[f64]) -> (Option<f64>, Option<f64>) {
    let count = sorted.len() as f64;
    // 1.96 times the standard deviation of how many values lie below the median.
    let below = (count / 2.0 - 0.98 * count.sqrt()).floor().max(1.0) as usize - 1;
    (sorted.get(below).copied(), sorted.iter().rev().nth(below).copied())
}

/// Rounded to three decimals: a picosecond is far below the noise, and JSON stays readable.
pub(crate) fn to_thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Something that was not measured, and why: never left out silently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The subject.
    pub subject: String,
    /// The cell, as text; absent if the subject did not run at all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cell: Option<String>,
    /// Why.
    pub reason: String,
    /// The subject did something wrong (handed a block out twice, lost contents, did other work),
    /// as opposed to not being able to take part.
    #[serde(default)]
    pub fault: bool,
}

impl Skip {
    /// A subject that does not run at all.
    pub fn subject(subject: &str, reason: impl Into<String>) -> Skip {
        Skip { subject: subject.into(), cell: None, reason: reason.into(), fault: false }
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this form.
    pub schema_version: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// Whether it was a quick run: fewer cells, fewer and shorter rounds.
    pub quick: bool,
    /// Seconds that measuring took.
    pub measured_s: f64,
    /// Hash of the checked work of all cells, in hexadecimal; equal for equal plans (FAIR-7).
    pub result_hash: String,
    /// The results, by cell, subjects in the order in which they were given.
    pub rows: Vec<Row>,
    /// The skipped cell.
    pub skipped: Vec<Skip>,
    /// The rows beside those of an earlier run, if one was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comparison: Option<Comparison>,
}

impl Report {
    /// Fills in every row's ratio to the limit subject.
    pub(crate) fn set_ratios(&mut self) {
        let limits: Vec<Row> =
            self.rows.iter().filter(|row| row.subject == crate::LIMIT).cloned().collect();
        for row in &mut self.rows {
            let limit = limits.iter().find(|limit| limit.same_cell(row));
            let ratio = |limit: &Row| to_thousandths(row.ns_per_op / limit.ns_per_op);
            row.ratio_to_limit = limit.map(ratio);
        }
    }

    /// What subjects did wrong; a program that finds any exits with 1.
    pub fn faults(&self) -> impl Iterator<Item = &Skip> {
        self.skipped.iter().filter(|skip| skip.fault)
    }

    /// The report as JSON, one object, for `--json`.
    ///
    /// # Panics
    /// Never: a report holds nothing that JSON cannot say.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The rows as CSV; the machine, kernel and commit are columns, so a file explains itself.
    pub fn to_csv(&self) -> String {
        let mut csv = String::from(
            "bench,subject,threads,order,touched,ns_per_op,p10_ns,p90_ns,p50_ns,p99_ns,p999_ns,\
             free_p999_ns,ratio_to_limit,rounds,cpu,cpus,kernel,commit,pages_for_each,\
             rounds_discarded,busy,low_ns,high_ns,cpu_ns_per_op,max_ns,free_p50_ns,free_p99_ns,\
             free_max_ns,latency_busy,list_pages,depot_pages,visits_ns\n",
        );
        let Machine { cpu, cpus, kernel, commit, .. } = &self.machine;
        let origin = [quoted(cpu), cpus.to_string(), quoted(kernel), quoted(commit)].join(",");
        for row in &self.rows {
            let Row { bench, subject, threads, order, touched, .. } = row;
            let _ = write!(csv, "{bench},{},{threads},{order},{touched},", quoted(subject));
            let Row { ns_per_op, p10_ns, p90_ns, p50_ns, p99_ns, p999_ns, free_p999_ns, .. } = row;
            for ns in [ns_per_op, p10_ns, p90_ns, p50_ns, p99_ns, p999_ns, free_p999_ns] {
                let _ = write!(csv, "{ns:.3},");
            }
            let field = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
            let (ratio, pages) = (field(row.ratio_to_limit), field(row.pages_for_each));
            let Row { rounds, rounds_discarded, busy, .. } = row;
            let _ = write!(csv, "{ratio},{rounds},{origin},{pages},{rounds_discarded},{busy},");
            let [low, high, cpu] = [row.low_ns, row.high_ns, row.cpu_ns_per_op].map(field);
            let _ = write!(csv, "{low},{high},{cpu},");
            let Row { max_ns, free_p50_ns, free_p99_ns, free_max_ns, latency_busy, .. } = row;
            let _ = write!(csv, "{max_ns:.3},{free_p50_ns:.3},{free_p99_ns:.3},{free_max_ns:.3},");
            let count = |pages: Option<u64>| pages.map_or_else(String::new, |n| n.to_string());
            let (lists, depots) = (count(row.list_pages), count(row.depot_pages));
            let visits: Vec<String> = row.visits_ns.iter().map(|ns| format!("{ns:.3}")).collect();
            let _ = writeln!(csv, "{latency_busy},{lists},{depots},{}", visits.join(" "));
        }
        csv
    }

    /// Writes [`Report::to_csv`] to a file.
    ///
    /// # Errors
    /// [`BenchError::File`] with the path.
    pub fn write_csv(&self, path: &Path) -> Result<(), BenchError> {
        std::fs::write(path, self.to_csv())
            .map_err(|source| BenchError::File { path: path.into(), source })
    }
}

/// A CSV field: in quotes if it holds a comma, a quote or a line break.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_take_the_nearest_rank() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        let at = [0.0, 0.1, 0.5, 0.9, 1.0].map(|q| quantile(&values, q));
        assert_eq!(at, [1.0, 1.0, 3.0, 5.0, 5.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_interval_of_a_median_is_by_ranks() {
        let values: Vec<f64> = (1..=61).map(f64::from).collect();
        assert_eq!(median_interval(&values), (Some(22.0), Some(40.0)));
        assert_eq!(median_interval(&values[..3]), (Some(1.0), Some(3.0)));
        assert_eq!(median_interval(&values[..1]), (Some(1.0), Some(1.0)));
        assert_eq!(median_interval(&[]), (None, None));
    }

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
