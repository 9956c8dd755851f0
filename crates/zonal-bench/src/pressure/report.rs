//! Measured figures beside published ones, row by row.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::error::PressureError;
use super::options::{DiskSpeed, Options, Variant};

const SCHEMA_VERSION: u32 = 1;
/// The published table, with its source.
const PUBLISHED: &str = include_str!("published.csv");
/// What the two tables have in common, and how they differ.
const NOTES: [&str; 3] = [
    "measured on this machine: files through zonal-cache over a pool of two made-up nodes, the \
     load on the CPUs of the first; direct I/O where the file system takes it",
    "published: 24 threads on a machine of 2011 with 24 to 96 times the memory, as many times the \
     data, and the same disk. Directions can be compared, counts and times cannot: a nap of a \
     background reclaimer lasts a tenth of a second there and here, in which the load uses up all \
     that lies between two marks of so small a node, so it takes over what node reclaim did",
    "direct scans are those of direct reclaim and of node reclaim; pages in and out are KiB; \
     slabs_scanned counts names of files, which the load keeps as objects. node_reclaim_* are the \
     four answers, zlc_* what the zonelist cache was told and passed; rows from there on were not \
     published (docs/reference/replay.md)",
];

/// One run.
#[derive(Serialize, Debug)]
pub struct Column {
    policy: &'static str,
    zlc: String,
    /// The published column with this zonelist cache.
    published_as: Option<&'static str>,
    measured: BTreeMap<&'static str, f64>,
    published: BTreeMap<String, f64>,
    #[serde(skip)]
    order: Vec<&'static str>,
}

/// All runs.
#[derive(Serialize, Debug)]
pub struct Report {
    schema_version: u32,
    workload: &'static str,
    pool_mib: u64,
    data_mib: u64,
    disk: String,
    huge_every_s: u64,
    columns: Vec<Column>,
    notes: [&'static str; 3],
}

impl Column {
    /// Measured figures, in the order of the rows.
    pub(super) fn new(variant: &Variant, figures: Vec<(&'static str, f64)>) -> Column {
        let zlc = variant.policy.settings().find(|value| value.setting.key == "zlc");
        Column {
            policy: variant.policy.name,
            zlc: zlc.map_or_else(String::new, |zlc| zlc.value().to_string()),
            published_as: variant.column,
            order: figures.iter().map(|(metric, _)| *metric).collect(),
            measured: figures.into_iter().collect(),
            published: BTreeMap::new(),
        }
    }

    fn title(&self) -> String {
        match self.published_as {
            Some(column) => format!("{column} ({})", self.zlc),
            None => self.zlc.clone(),
        }
    }
}

impl Report {
    /// Puts the published figures beside the measured ones.
    ///
    /// # Errors
    /// The published table, which is part of the program, cannot be read.
    pub(super) fn new(
        options: &Options,
        mut columns: Vec<Column>,
    ) -> Result<Report, PressureError> {
        for column in &mut columns {
            if let Some(name) = column.published_as {
                column.published = published(options.workload.name(), name)?;
            }
        }
        Ok(Report {
            schema_version: SCHEMA_VERSION,
            workload: options.workload.name(),
            pool_mib: options.pool_mib,
            data_mib: options.data_mib,
            disk: disk_in_words(options.disk),
            huge_every_s: options.huge_every.as_secs(),
            columns,
            notes: NOTES,
        })
    }

    fn rows(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.columns.iter().take(1).flat_map(|column| column.order.iter().copied())
    }

    /// One line for each metric of each run.
    pub fn csv(&self) -> String {
        let mut text = String::from("workload,metric,zlc,measured,published\n");
        for metric in self.rows() {
            for column in &self.columns {
                let measured = column.measured.get(metric).copied().map(figure).unwrap_or_default();
                let published = column.published.get(metric).copied().map(figure);
                let published = published.unwrap_or_default();
                let zlc = &column.zlc;
                // A String takes all that is written to it.
                let _ = writeln!(text, "{},{metric},{zlc},{measured},{published}", self.workload);
            }
        }
        text
    }
}

/// A table for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let titles = self.columns.iter().flat_map(|column| [column.title(), "published".into()]);
        table.set_header(std::iter::once("metric".to_owned()).chain(titles));
        for metric in self.rows() {
            let cell = |value: Option<&f64>| value.map_or_else(|| "-".into(), |v| figure(*v));
            let cells = self.columns.iter().flat_map(|column| {
                [cell(column.measured.get(metric)), cell(column.published.get(metric))]
            });
            table.add_row(std::iter::once(metric.to_owned()).chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let policy = self.columns.first().map_or("", |column| column.policy);
        let notes: String = self.notes.iter().map(|note| format!("note: {note}\n")).collect();
        write!(
            f,
            "{} (measured), policy {policy}, pool {} MiB, {} MiB written, {}\n\n{}\n\n{notes}",
            self.workload,
            self.pool_mib,
            self.data_mib,
            self.disk,
            table.trim_fmt()
        )
    }
}

/// A disk in words.
fn disk_in_words(disk: Option<DiskSpeed>) -> String {
    match disk {
        None => "this machine's disk as it is".into(),
        Some(DiskSpeed { mib_s, seek }) => {
            let us = seek.as_micros();
            format!("this machine's disk slowed to {mib_s} MiB/s and {us} us a seek")
        }
    }
}

/// Whole numbers as such, others with two digits.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A column of the published table, for one load.
fn published(workload: &str, column: &str) -> Result<BTreeMap<String, f64>, PressureError> {
    let mut lines = PUBLISHED.lines().filter(|line| !line.starts_with('#'));
    let header = lines
        .next()
        .ok_or_else(|| PressureError::Published("the published table has no header".to_owned()))?;
    let at = header.split(',').position(|name| name == column);
    let at = at.ok_or_else(|| {
        PressureError::Published(format!("the published table has no column {column}"))
    })?;
    let mut figures = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.first() == Some(&workload) {
            let metric = fields
                .get(1)
                .ok_or_else(|| PressureError::Published(format!("no metric in: {line}")))?;
            let value = fields.get(at).and_then(|value| value.parse().ok());
            let value = value.ok_or_else(|| {
                PressureError::Published(format!("no figure for {column} in: {line}"))
            })?;
            figures.insert((*metric).to_owned(), value);
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_is_the_one_that_is_shared() {
        let shared =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/published/zone-reclaim.csv");
        match std::fs::read_to_string(shared) {
            Ok(text) => assert_eq!(text, PUBLISHED),
            Err(error) => eprintln!("skipped: {shared}: {error}"),
        }
    }

    #[test]
    fn each_load_has_all_columns() {
        for workload in ["fsmark", "largedd", "streamwriter"] {
            for column in ["vanilla", "zlcfirst", "zlcreconsider"] {
                let figures = published(workload, column).unwrap();
                assert!(figures.contains_key("kswapd_pages_scanned"), "{workload} {column}");
            }
        }
        assert_eq!(published("fsmark", "vanilla").unwrap()["direct_pages_scanned"], 13_091_697.0);
    }
}
