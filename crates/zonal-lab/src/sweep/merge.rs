//! Files of sweeps joined into one.

use std::path::{Path, PathBuf};

use super::file::{self, Rows};
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
/// It cannot be written, or a sweep is writing it.
pub fn write(path: &Path, rows: &[Row]) -> Result<(), LabError> {
    let mut before = Rows::new();
    file::read(path, &mut before)?;
    let _lock = file::lock(path)?;
    file::rewrite(path, rows.iter())
}
