//! Files of sweeps that are Parquet: read as the CSV files that they stand for, and written from
//! them. A Parquet file cannot grow row by row, so a sweep keeps its rows in `FILE.parquet.csv`
//! until all are made.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonal_lab::sweep::{Column, Merged, Row, Sweep, column, columns, extend, hold, merge, write};

use crate::Error;
use crate::reader::is_parquet;
use crate::table::{Cell, read_table, write_table};

/// The file of a sweep.
#[derive(Debug)]
pub struct DataSet {
    /// Where its rows are added.
    pub rows: PathBuf,
    /// The Parquet file that they become.
    parquet: Option<PathBuf>,
}

impl DataSet {
    /// The file that `-o` names. Nothing is written.
    pub fn of(output: &Path) -> DataSet {
        if output.extension() != Some(OsStr::new("parquet")) {
            return DataSet { rows: output.to_owned(), parquet: None };
        }
        let mut rows = output.as_os_str().to_owned();
        rows.push(".csv");
        DataSet { rows: rows.into(), parquet: Some(output.to_owned()) }
    }

    /// Takes over the rows of a Parquet file that is there already.
    ///
    /// # Errors
    /// It is no sweep's, has rows of another version, or cannot be read.
    pub fn resume(&self) -> Result<(), Error> {
        let Some(parquet) = self.parquet.as_ref().filter(|parquet| parquet.exists()) else {
            return Ok(());
        };
        Ok(extend(&self.rows, join(std::slice::from_ref(parquet), None)?.rows)?)
    }

    /// Writes the Parquet file from the rows, and those that it has already, in the order of their
    /// keys. No sweep has the rows meanwhile, and none that begins with them loses any.
    ///
    /// # Errors
    /// It cannot be written, or another sweep is writing the rows; they are kept then.
    pub fn finish(&self) -> Result<(), Error> {
        let Some(parquet) = &self.parquet else { return Ok(()) };
        let _held = hold(&self.rows)?;
        let mut inputs = vec![self.rows.clone()];
        inputs.extend(Some(parquet.clone()).filter(|parquet| parquet.exists()));
        let rows = join(&inputs, None)?.rows;
        let texts = rows.iter().map(|row| row.fields().map(str::to_owned).collect::<Vec<_>>());
        let header = columns();
        write_table(parquet, &cells(header.names()), texts)?;
        // Before others can have them: whoever waits for the rows finds them in the Parquet file.
        fs::remove_file(&self.rows).map_err(Error::io(&self.rows))
    }
}

fn cells<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, Cell)> {
    let cell = |name| match column(name) {
        Column::Text => Cell::Text,
        Column::Count => Cell::Count,
        Column::Figure => Cell::Number,
    };
    names.map(|name| (name, cell(name))).collect()
}

/// Joins files of sweeps, CSV and Parquet, as [`merge`] does.
///
/// # Errors
/// As [`merge`]; a Parquet file that is no sweep's.
pub fn join(inputs: &[PathBuf], sweep: Option<&Sweep>) -> Result<Merged, Error> {
    let scratch = TempDir::new().map_err(Error::io(&std::env::temp_dir()))?;
    let mut files = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        if !is_parquet(input) {
            files.push(input.clone());
            continue;
        }
        let header = columns();
        let texts = read_table(input, &cells(header.names()))?;
        let row = |(at, fields): (usize, &Vec<String>)| {
            let wrong = |error: zonal_lab::LabError| Error::Row {
                path: input.clone(),
                row: at as u64 + 1,
                what: error.to_string(),
            };
            Row::of(fields).map_err(wrong)
        };
        let rows = texts.iter().enumerate().map(row).collect::<Result<Vec<Row>, Error>>()?;
        let file = scratch.path().join(format!("{number}.csv"));
        write(&file, &rows)?;
        files.push(file);
    }
    Ok(merge(&files, sweep)?)
}
