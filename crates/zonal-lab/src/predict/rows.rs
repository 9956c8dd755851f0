//! Rows of predictions, as lines of comma-separated values.

use sha2::{Digest, Sha256};

use super::Question;
use crate::LabError;
use crate::recipe::Recipe;
use crate::units::hex;

/// Names of the values of a row.
pub const COLUMNS: [&str; 16] = [
    "id",
    "figure",
    "machine",
    "policy_before",
    "policy_after",
    "before",
    "after",
    "ratio",
    "seed",
    "commit",
    "label",
    "missing",
    "note",
    "result_hash",
    "command_before",
    "command_after",
];

/// A prediction from one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    values: Vec<String>,
}

/// Digits of a simulated figure.
fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A policy and the switches of a run.
fn kernel(recipe: &Recipe) -> String {
    match recipe.variant.is_empty() {
        true => recipe.policy.clone(),
        false => format!("{} [{}]", recipe.policy, recipe.variant),
    }
}

impl Row {
    pub(super) fn new(
        question: &Question,
        sides: [&Recipe; 2],
        [before, after]: [f64; 2],
        hashes: [&str; 2],
        (fitted, commit): (Option<&str>, &str),
    ) -> Row {
        let label = match (question.missing.is_empty(), fitted) {
            (false, _) => "not modelled in full",
            (true, None) => "prediction",
            (true, Some(_)) => "prediction, figure before used",
        };
        let ratio = if before == 0.0 { String::new() } else { digits(after / before) };
        let note: Vec<&str> = [question.note, fitted.unwrap_or_default()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let hash = hex(&Sha256::digest(hashes.concat()));
        let values = [
            question.id,
            &question.figure,
            &sides[0].machine,
            &kernel(sides[0]),
            &kernel(sides[1]),
            &digits(before),
            &digits(after),
            &ratio,
            &sides[0].seed.to_string(),
            commit,
            label,
            question.missing,
            &note.join("; "),
            &hash[..16],
            &sides[0].command(),
            &sides[1].command(),
        ];
        Row { values: values.map(str::to_owned).to_vec() }
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = COLUMNS.iter().position(|column| *column == name)?;
        Some(&self.values[at])
    }
}

/// The rows, under a line of names.
///
/// # Errors
/// None that memory does not give.
pub fn text(rows: &[Row]) -> Result<String, LabError> {
    let wrong = |error: &dyn std::fmt::Display| LabError::Plan(error.to_string());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(|error| wrong(&error))?;
    for row in rows {
        writer.write_record(&row.values).map_err(|error| wrong(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| wrong(&error))?;
    String::from_utf8(bytes).map_err(|error| wrong(&error))
}
