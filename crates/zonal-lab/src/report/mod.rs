//! Tables for others to read: lines of values, and a page that needs nothing else to be shown.

mod page;

pub use page::html;

use crate::experiment::Table;

/// A figure as people write it: whole from 1000 on.
pub fn figure(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// One line of comma-separated values for each cell, with a line of names before.
pub fn csv(table: &Table) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value}"));
    let mut text = String::from(
        "experiment,machine,seed,row,column,published,simulated,error_percent,calibrated\n",
    );
    for cell in &table.cells {
        let fields = [
            table.experiment.to_owned(),
            table.machine.clone(),
            table.seed.to_string(),
            quoted(&cell.row),
            quoted(&cell.column),
            number(cell.published),
            number(Some(cell.simulated)),
            number(cell.error_percent),
            cell.calibrated.to_string(),
        ];
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
