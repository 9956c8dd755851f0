//! The file of a sweep: one line of names, one line for each run.
//!
//! Rows are added at its end, each in one write, so that a process that is killed leaves whole
//! lines and at most one that is cut off, which the next one drops.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

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
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        // The cut may be inside a character.
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let bytes = fs::read(path).map_err(|error| wrong(path, &error))?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            text = String::from_utf8(bytes[..whole].to_vec())
                .map_err(|_| wrong(path, &"is no text; expected the file of a sweep"))?;
        }
        Err(error) => return Err(wrong(path, &format!("cannot be read: {error}"))),
    }
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole == 0 && !text.is_empty() && !first_line().starts_with(&text) {
        return Err(no_sweep(path, &text));
    }
    text.truncate(whole);
    let mut lines =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    for (number, line) in lines.records().enumerate() {
        let at =
            |error: &dyn std::fmt::Display| wrong(path, &format!("line {}: {error}", number + 1));
        let line = line.map_err(|error| at(&error))?;
        if number == 0 {
            if !columns().names().eq(&line) {
                return Err(no_sweep(path, &text));
            }
            continue;
        }
        let fields: Vec<String> = line.iter().map(str::to_owned).collect();
        Row::of(&fields).and_then(|row| add(rows, row)).map_err(|error| at(&error))?;
    }
    Ok(())
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
    let bytes = fs::read(path).map_err(fail)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64).map_err(fail)?;
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
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let written = || -> Result<(), Box<dyn std::error::Error>> {
        let mut file = BufWriter::new(File::create(&part)?);
        file.write_all(first_line().as_bytes())?;
        for row in rows {
            file.write_all(&line(row)?)?;
        }
        file.into_inner()?.sync_all()?;
        Ok(fs::rename(&part, path)?)
    };
    written().map_err(|error| {
        // What could not become the file is of no use.
        let _ = fs::remove_file(&part);
        unwritable(path, &error)
    })
}
