//! The file of a sweep: one line of names, one line for each run.
//!
//! Rows are added at its end, each in one write, so that a process that is killed leaves whole
//! lines and at most one that is cut off, which the next one drops.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use zonal_trace::place;

use super::row::{Row, columns};
use crate::LabError;

/// Rows by what tells them from others.
pub(super) type Rows = BTreeMap<String, Row>;

pub(super) fn wrong(path: &Path, what: &dyn std::fmt::Display) -> LabError {
    LabError::Plan(format!("{}: {what}", path.display()))
}

pub(super) fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> LabError {
    wrong(path, &format!("cannot be written: {error}; expected a file in an existing folder"))
}

/// Adds the rows of the file, none if there is no file. Half a line at the end is the row that was
/// being written when the sweep was interrupted.
///
/// # Errors
/// A file that is no sweep's, a row of another version, a damaged row, or one that contradicts
/// another.
pub(super) fn read(path: &Path, rows: &mut Rows) -> Result<(), LabError> {
    let unread = |error: std::io::Error| wrong(path, &format!("cannot be read: {error}"));
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.map_err(unread)?,
    };
    let whole = whole(&mut file).map_err(unread)?;
    let mut start = Vec::new();
    file.rewind().map_err(unread)?;
    (&mut file).take(first_line().len() as u64).read_to_end(&mut start).map_err(unread)?;
    let no_sweep = || no_sweep(path, &String::from_utf8_lossy(&start));
    if whole == 0 {
        return if first_line().as_bytes().starts_with(&start) { Ok(()) } else { Err(no_sweep()) };
    }
    file.rewind().map_err(unread)?;
    let mut lines =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file.take(whole));
    let (mut line, mut number) = (csv::StringRecord::new(), 0);
    loop {
        number += 1;
        let at = |error: &dyn std::fmt::Display| wrong(path, &format!("line {number}: {error}"));
        match lines.read_record(&mut line) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                return Err(wrong(path, &"is no text; expected the file of a sweep"));
            }
            Err(error) => return Err(at(&error)),
        }
        if number == 1 {
            if !columns().names().eq(&line) {
                return Err(no_sweep());
            }
            continue;
        }
        Row::checked(line.iter()).and_then(|row| add(rows, row)).map_err(|error| at(&error))?;
    }
}

/// Bytes up to the end of the last whole line.
fn whole(file: &mut File) -> std::io::Result<u64> {
    let mut chunk = [0; 1 << 12];
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(chunk.len() as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(last) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Adds a row. The same row again changes nothing.
///
/// # Errors
/// The same run with other figures.
pub(super) fn add(rows: &mut Rows, row: Row) -> Result<(), LabError> {
    match rows.get(row.key()) {
        Some(known) if !known.agrees(&row) => Err(LabError::Plan(format!(
            "a second row of `{}` has other figures; expected the same from each run of the same \
             text: one of the two was changed, or is of another program",
            row.get("command").unwrap_or_default()
        ))),
        Some(_) => Ok(()),
        None => {
            rows.insert(row.key().to_owned(), row);
            Ok(())
        }
    }
}

fn no_sweep(path: &Path, text: &str) -> LabError {
    let line = text.lines().next().unwrap_or_default();
    let found: String = line.chars().take(60).collect();
    let expected = "the names of a sweep's columns; name another file with -o";
    wrong(path, &format!("line 1: '{found}'; expected {expected}"))
}

fn first_line() -> String {
    columns().names().collect::<Vec<_>>().join(",") + "\n"
}

/// Makes the file end with a whole line: its names at least.
pub(super) fn trim(file: &mut File, path: &Path) -> Result<(), LabError> {
    let fail = |error: std::io::Error| unwritable(path, &error);
    let whole = whole(file).map_err(fail)?;
    file.set_len(whole).map_err(fail)?;
    if whole == 0 {
        file.write_all(first_line().as_bytes()).map_err(fail)?;
    }
    Ok(())
}

/// Writes a row in one piece, so that an interruption leaves it whole or not at all as far as the
/// system allows.
pub(super) fn write(file: &mut File, row: &Row) -> Result<(), LabError> {
    let fail = |error: &dyn std::fmt::Display| {
        LabError::Plan(format!("a row cannot be written: {error}; the rows before it are kept"))
    };
    let line = line(row).map_err(|error| fail(&error))?;
    file.write_all(&line).map_err(|error| fail(&error))
}

fn line(row: &Row) -> Result<Vec<u8>, csv::Error> {
    let mut line = csv::Writer::from_writer(Vec::new());
    line.write_record(row.fields())?;
    line.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// Writes a new file beside the old one, then replaces it.
pub(super) fn rewrite<'a>(
    path: &Path,
    rows: impl Iterator<Item = &'a Row>,
) -> Result<(), LabError> {
    let path = &place::plain(path).map_err(|error| unwritable(path, &error))?;
    let part = place::part(path).unwrap_or_else(|| path.clone());
    let written = || -> Result<(), Box<dyn std::error::Error>> {
        let mut file = csv::Writer::from_writer(BufWriter::new(File::create(&part)?));
        file.write_record(columns().names())?;
        for row in rows {
            file.write_record(row.fields())?;
        }
        let file = file.into_inner().map_err(csv::IntoInnerError::into_error)?;
        file.into_inner()?.sync_all()?;
        Ok(fs::rename(&part, path)?)
    };
    written().map_err(|error| {
        // What could not become the file is of no use.
        let _ = fs::remove_file(&part);
        unwritable(path, &error)
    })
}
