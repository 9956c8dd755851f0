//! What a run beside an earlier one shows, as data and as text. How it comes about: `compare.rs`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A row that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The cell and the subject, as text.
    pub row: String,
    /// Median of the earlier run.
    pub before_ns: f64,
    /// Median of this run.
    pub now_ns: f64,
    /// This run's by the earlier one's.
    pub ratio: f64,
    /// The least ratio that the rounds of both allow: 10th by 90th percentile.
    pub ratio_low: f64,
    /// The largest one.
    pub ratio_high: f64,
}

/// A run beside an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The commit of the earlier run.
    pub commit: String,
    /// What a reader must know: another kernel, a quick run beside a full one.
    pub notices: Vec<String>,
    /// Rows that changed beyond noise, the largest change first.
    pub changed: Vec<Change>,
    /// How many rows did not.
    pub unchanged: usize,
    /// Rows that are not judged: one of the runs had too few undisturbed rounds, or visits.
    pub busy: Vec<String>,
    /// Rows of the earlier run alone.
    pub only_before: Vec<String>,
    /// Rows of this run alone.
    pub only_now: Vec<String>,
}

impl Comparison {
    /// For people: a line for each row that changed, and for those that have no other.
    pub fn text(&self) -> String {
        let (changed, unchanged) = (self.changed.len(), self.unchanged);
        let mut text = format!(
            "beside the run of commit {}: {changed} rows changed beyond noise, {unchanged} did \
             not\n",
            self.commit
        );
        for notice in &self.notices {
            let _ = writeln!(text, "note: {notice}");
        }
        for Change { row, before_ns, now_ns, ratio, ratio_low, ratio_high } in &self.changed {
            let way = if now_ns < before_ns { "faster" } else { "slower" };
            let _ = writeln!(
                text,
                "{way}: {row}: {before_ns:.2} ns before, {now_ns:.2} now: {ratio:.2} x, rounds \
                 {ratio_low:.2} to {ratio_high:.2}"
            );
        }
        let lists = [
            ("not judged, too few undisturbed rounds or visits", &self.busy),
            ("only in the earlier run", &self.only_before),
            ("only in this run", &self.only_now),
        ];
        for (title, rows) in lists {
            rows.iter().for_each(|row| {
                let _ = writeln!(text, "{title}: {row}");
            });
        }
        text
    }
}
