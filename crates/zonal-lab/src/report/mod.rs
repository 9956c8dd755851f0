//! Tables for others to read: lines of values, and a page that needs nothing else to be shown.

mod ablation;
mod page;
mod part;
mod plot;
mod sweep;
mod text;
mod whole;

pub use ablation::{ablation_csv, ablation_html};
pub use part::html;
pub(crate) use plot::{Lines, Series, lines};
pub use sweep::{sweep_html, sweep_part};
pub use text::figure;
pub(crate) use text::grouped;
pub use whole::{Part, whole};

use crate::experiment::Table;
use crate::provenance::Label;

/// One line of comma-separated values for each cell, with a line of names before.
///
/// # Panics
/// Never: a vector takes every line.
pub fn csv(table: &Table) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value}"));
    let mut lines = csv::Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 11]| lines.write_record(fields).expect("a vector takes it");
    line(CSV_COLUMNS);
    for cell in &table.cells {
        line([
            table.experiment,
            &table.machine,
            &table.seed.to_string(),
            &cell.row,
            &cell.column,
            &number(cell.published),
            &number(Some(cell.simulated)),
            &number(cell.error_percent),
            &cell.calibrated.to_string(),
            cell.label.map_or("", Label::name),
            cell.not_modelled.unwrap_or_default(),
        ]);
    }
    let bytes = lines.into_inner().expect("a vector takes it");
    String::from_utf8(bytes).expect("text in, text out")
}

const CSV_COLUMNS: [&str; 11] = [
    "experiment",
    "machine",
    "seed",
    "row",
    "column",
    "published",
    "simulated",
    "error_percent",
    "calibrated",
    "label",
    "not_modelled",
];
