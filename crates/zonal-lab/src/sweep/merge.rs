//! Files of sweeps joined into one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::file::{self, Rows};
use super::lock::{Held, hold};
use super::point::Sweep;
use super::row::Row;
use crate::LabError;

/// What a join gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The rows.
    pub rows: Vec<Row>,
    /// Numbers of the sweep's points that no file has.
    pub missing: Vec<usize>,
}

/// Joins the rows of several files, each row once. With a sweep in the order of its points, and
/// without rows that are not its own; without one in the order of their keys.
///
/// # Errors
/// A file that is missing or no sweep's, and rows of another version or that contradict each other.
pub fn merge(inputs: &[PathBuf], sweep: Option<&Sweep>) -> Result<Merged, LabError> {
    let mut rows = Rows::new();
    for input in inputs {
        if !input.is_file() {
            let what = "there is no such file; expected the file of a sweep";
            return Err(LabError::Plan(format!("{}: {what}", input.display())));
        }
        let mut own = Rows::new();
        file::read(input, &mut own)?;
        for row in own.into_values() {
            let at = |error| LabError::Plan(format!("{}: {error}", input.display()));
            file::add(&mut rows, row).map_err(at)?;
        }
    }
    let Some(sweep) = sweep else {
        return Ok(Merged { rows: rows.into_values().collect(), missing: Vec::new() });
    };
    let found = sweep.take(&mut rows);
    let missing = (0..found.len()).filter(|at| found[*at].is_none()).collect();
    Ok(Merged { rows: found.into_iter().flatten().collect(), missing })
}

/// Writes rows as the file of a sweep, in place of what is there.
///
/// # Errors
/// It cannot be written, it has a row that is not among them, or a sweep is writing it.
pub fn write(path: &Path, rows: &[Row]) -> Result<(), LabError> {
    let (_held, there) = taken(path)?;
    let known: BTreeSet<&str> = rows.iter().map(Row::key).collect();
    if let Some((_, row)) = there.iter().find(|(key, _)| !known.contains(key.as_str())) {
        let command = row.get("command").unwrap_or_default();
        let what = format!("the row of `{command}` in it would be lost; expected another file");
        return Err(file::wrong(path, &what));
    }
    file::rewrite(path, rows.iter())
}

/// Adds rows to the file of a sweep, which is made if there is none.
///
/// # Errors
/// It cannot be written, a row contradicts the one that is there, or a sweep is writing it.
pub fn extend(path: &Path, rows: Vec<Row>) -> Result<(), LabError> {
    let (_held, mut all) = taken(path)?;
    let before = all.len();
    for row in rows {
        file::add(&mut all, row).map_err(|error| file::wrong(path, &error))?;
    }
    if all.len() == before && before > 0 {
        return Ok(());
    }
    file::rewrite(path, all.values())
}

/// The file with its rows, which nobody changes meanwhile. What is no sweep stays as it is.
pub(super) fn taken(path: &Path) -> Result<(Held, Rows), LabError> {
    let held = hold(path)?;
    let mut rows = Rows::new();
    file::read(path, &mut rows)?;
    Ok((held, rows))
}
