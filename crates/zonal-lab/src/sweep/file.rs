//! The file of a sweep: one line of names, one line for each run.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use super::point::{Point, Sweep};
use crate::LabError;
use crate::run::{FIGURES, Figures};
use crate::units::hex;

/// Columns before the figures; the first nine are a row's key.
const BEFORE: [&str; 12] = [
    "version",
    "machine",
    "machine_id",
    "policy",
    "workload",
    "busy",
    "seed",
    "warm_us",
    "run_us",
    "point",
    "cpus",
    "nodes",
];
const KEY_COLUMNS: usize = 9;
const POINT: usize = 9;
const CPUS: usize = 10;
/// Columns after the figures.
const AFTER: [&str; 2] = ["result_hash", "command"];

/// Names of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header(Vec<String>);

/// One run of a sweep, as its line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(Vec<String>);

/// Names of the columns of a sweep's file.
pub fn columns() -> Header {
    Header::new(FIGURES.iter().map(|figure| figure.name))
}

impl Header {
    fn new<'a>(figures: impl Iterator<Item = &'a str>) -> Header {
        let names = BEFORE.into_iter().chain(figures).chain(AFTER);
        Header(names.map(str::to_owned).collect())
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }
}

impl Row {
    pub(super) fn new(sweep: &Sweep, point: &Point, figures: &Figures) -> Row {
        let machine = &point.plan.machine;
        let mut fields = key(point);
        fields.push(sweep.label(point));
        fields.extend([machine.cpus().to_string(), machine.nodes().to_string()]);
        fields.extend(figures.each().map(|(_, value)| value.to_string()));
        fields.extend([figures.hash.clone(), point.recipe.command()]);
        Row(fields)
    }

    /// The same run may be a point of another sweep.
    pub(super) fn relabel(&mut self, sweep: &Sweep, point: &Point) {
        self.0[POINT] = sweep.label(point);
    }

    /// A field, by the name of its column.
    pub fn get(&self, name: &str) -> Option<&str> {
        columns().position(name).map(|at| self.0[at].as_str())
    }

    /// A figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> u32 {
        self.0[CPUS].parse().unwrap_or(0)
    }
}

/// Everything that a run depends on.
pub(super) fn key(point: &Point) -> Vec<String> {
    let recipe = &point.recipe;
    let id = hex(&Sha256::digest(point.plan.machine.to_toml()));
    vec![
        env!("CARGO_PKG_VERSION").to_owned(),
        recipe.machine.clone(),
        id[..12].to_owned(),
        recipe.policy.clone(),
        recipe.workload.clone(),
        recipe.busy.map_or_else(String::new, |busy| busy.to_string()),
        recipe.seed.to_string(),
        recipe.warm_us.to_string(),
        recipe.run_us.to_string(),
    ]
}

fn wrong(path: &Path, what: &dyn std::fmt::Display) -> LabError {
    LabError::Plan(format!("{}: {what}", path.display()))
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> LabError {
    wrong(path, &format!("cannot be written: {error}; expected a file in an existing folder"))
}

/// Rows of the file by their key; none if there is no file. Half a line at the end is the run that
/// was under way when the sweep was interrupted.
pub(super) fn read(path: &Path) -> Result<BTreeMap<Vec<String>, Row>, LabError> {
    let mut text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(wrong(path, &format!("cannot be read: {error}"))),
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole == 0 && !text.is_empty() && !first_line().starts_with(&text) {
        return Err(no_sweep(path, &text));
    }
    text.truncate(whole);
    let mut lines = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut rows = BTreeMap::new();
    for (number, line) in lines.records().enumerate() {
        let line = line.map_err(|error| wrong(path, &format!("line {}: {error}", number + 1)))?;
        let fields: Vec<String> = line.iter().map(str::to_owned).collect();
        if number > 0 {
            rows.insert(fields[..KEY_COLUMNS].to_vec(), Row(fields));
        } else if fields != columns().0 {
            return Err(no_sweep(path, &text));
        }
    }
    Ok(rows)
}

fn no_sweep(path: &Path, text: &str) -> LabError {
    let line = text.lines().next().unwrap_or_default();
    let found: String = line.chars().take(60).collect();
    let expected = "the names of a sweep's columns; name another file with -o";
    wrong(path, &format!("line 1: '{found}'; expected {expected}"))
}

fn first_line() -> String {
    columns().0.join(",") + "\n"
}

/// The file, with its line of names and without half a line, ready for more lines.
pub(super) fn append(path: &Path) -> Result<File, LabError> {
    let fail = |error: std::io::Error| unwritable(path, &error);
    let mut options = OpenOptions::new();
    let mut file = options.create(true).read(true).append(true).open(path).map_err(fail)?;
    let text = fs::read_to_string(path).map_err(fail)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64).map_err(fail)?;
    if whole == 0 {
        file.write_all(first_line().as_bytes()).map_err(fail)?;
    }
    Ok(file)
}

/// Writes a row in one piece, so that an interruption leaves it whole or not at all as far as the
/// system allows.
pub(super) fn write(file: &Mutex<File>, row: &Row) -> Result<(), LabError> {
    let fail = |error: &dyn std::fmt::Display| {
        LabError::Plan(format!("a row cannot be written: {error}; the rows before it are kept"))
    };
    let line = line(row).map_err(|error| fail(&error))?;
    let mut file = file.lock().map_err(|error| fail(&error))?;
    file.write_all(&line).map_err(|error| fail(&error))
}

fn line(row: &Row) -> Result<Vec<u8>, csv::Error> {
    let mut line = csv::Writer::from_writer(Vec::new());
    line.write_record(&row.0)?;
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
    let mut text = first_line().into_bytes();
    for row in rows {
        text.extend(line(row).map_err(|error| unwritable(path, &error))?);
    }
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| unwritable(path, &error))
}
