//! Files of sweeps that are Parquet: read as the CSV files that they stand for, and written from
//! them. A Parquet file cannot grow row by row, so a sweep keeps its rows in `FILE.parquet.csv`
//! until all are made.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use zonal_lab::sweep::{Column, Join, Merged, Row, Sweep, column, columns, extend, hold};

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

/// Joins files of sweeps, CSV and Parquet, as [`Join`] does.
///
/// # Errors
/// As [`Join::file`]; a Parquet file that is no sweep's.
pub fn join(inputs: &[PathBuf], sweep: Option<&Sweep>) -> Result<Merged, Error> {
    join_until(inputs, sweep, &mut |_| ControlFlow::Continue(()))
}

/// The same. `progress` gets the number of rows of Parquet files so far, and stops the work by
/// `Break`. A file that has the same rows again and again takes no more memory than one that has
/// them once.
///
/// # Errors
/// As [`join`], or [`Error::Stopped`].
pub fn join_until(
    inputs: &[PathBuf],
    sweep: Option<&Sweep>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Merged, Error> {
    let header = columns();
    let cells = cells(header.names());
    let (mut join, mut before) = (Join::default(), 0);
    for input in inputs {
        if !is_parquet(input) {
            join.file(input)?;
            continue;
        }
        let mut rows = 0;
        let mut told = |number| {
            rows = number;
            progress(before + number)
        };
        read_table(input, &cells, &mut told, &mut |row, fields| {
            let added = Row::of(fields).and_then(|row| join.row(row));
            added.map_err(|error| Error::Row { path: input.clone(), row, what: error.to_string() })
        })?;
        before += rows;
    }
    Ok(join.finish(sweep))
}
