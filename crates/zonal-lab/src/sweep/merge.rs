//! Files of sweeps joined into one.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
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

/// Rows from wherever they come, each once.
#[derive(Debug, Default)]
pub struct Join(Rows);

impl Join {
    /// Adds the rows of a CSV file.
    ///
    /// # Errors
    /// A file that is missing or no sweep's, and rows of another version or that contradict others.
    pub fn file(&mut self, path: &Path) -> Result<(), LabError> {
        let wrong: String = match fs::metadata(path) {
            Ok(there) if there.is_file() => return file::read(path, &mut self.0),
            Ok(there) if there.is_dir() => "this is a directory; expected the files in it".into(),
            Ok(_) => "this is no regular file; expected the file of a sweep".into(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "there is no such file; expected the file of a sweep".into()
            }
            Err(error) => error.to_string(),
        };
        Err(file::wrong(path, &wrong))
    }

    /// Adds a row. The same row again changes nothing.
    ///
    /// # Errors
    /// The same run with other figures.
    pub fn row(&mut self, row: Row) -> Result<(), LabError> {
        file::add(&mut self.0, row)
    }

    /// All rows: with a sweep in the order of its points, and without rows that are not its own;
    /// without one in the order of their keys.
    pub fn finish(mut self, sweep: Option<&Sweep>) -> Merged {
        let Some(sweep) = sweep else {
            return Merged { rows: self.0.into_values().collect(), missing: Vec::new() };
        };
        let found = sweep.take(&mut self.0);
        let missing = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        Merged { rows: found.into_iter().flatten().collect(), missing }
    }
}

/// Joins the rows of several files as [`Join`] does.
///
/// # Errors
/// As [`Join::file`].
pub fn merge(inputs: &[PathBuf], sweep: Option<&Sweep>) -> Result<Merged, LabError> {
    let mut join = Join::default();
    inputs.iter().try_for_each(|input| join.file(input))?;
    Ok(join.finish(sweep))
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
