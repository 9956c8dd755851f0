//! The page: one file with its style and its plots inside.

use super::{escape, figure, plot};
use crate::experiment::{Cell, Table};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;\
padding:0 1em;color:#222}table{border-collapse:collapse;width:100%}td,th{padding:.2em .6em;\
border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child,td:nth-child(2),\
th:nth-child(2){text-align:left}.words td{text-align:left}.calibrated{color:#888}\
.runs{font-size:12px}.runs td,.runs th{overflow-wrap:anywhere;vertical-align:top}\
svg{max-width:100%;height:auto}figure{margin:1em 0}code{background:#f4f4f4;padding:.1em .3em;\
overflow-wrap:anywhere}";

/// A page of this title with this body.
pub(super) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )
}

/// A table of HTML: names of columns, and rows of fields that are escaped here.
pub(super) fn table(
    class: &str,
    names: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let head: String = names.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let cells = |row: Vec<String>| -> String {
        row.iter().map(|field| format!("<td>{}</td>", escape(field))).collect()
    };
    let body: String = rows.map(|row| format!("<tr>{}</tr>", cells(row))).collect();
    format!("<table class=\"{class}\"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
}

/// The page of one experiment: what was run, a plot for each column, every cell.
pub fn html(table: &Table) -> String {
    page(&format!("{} (simulated)", table.experiment), &section(table))
}

/// What such a page says below its title.
pub(super) fn section(table: &Table) -> String {
    let plots: String = columns(table)
        .iter()
        .map(|column| {
            let cells = table.cells.iter().filter(|cell| cell.column == *column);
            plot::column(column, &cells.collect::<Vec<_>>())
        })
        .collect();
    let rows: String = table.cells.iter().map(row).collect();
    let notes: String = table.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    format!(
        "<p>Machine <b>{}</b>, seed {}, result <code>{}</code>. Run it again: \
         <code>zonal lab run {} --seed {}</code></p><p>Published: {}</p>{plots}\
         <table><thead><tr><th>row</th><th>column</th><th>published</th><th>simulated</th>\
         <th>error %</th><th></th></tr></thead><tbody>{rows}</tbody></table>{notes}",
        escape(&table.machine),
        table.seed,
        table.result_hash,
        table.experiment,
        table.seed,
        escape(&table.source),
    )
}

fn columns(table: &Table) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for cell in &table.cells {
        if !names.contains(&cell.column) {
            names.push(cell.column.clone());
        }
    }
    names
}

fn row(cell: &Cell) -> String {
    let published = cell.published.map_or_else(|| "-".into(), figure);
    let error = cell.error_percent.map_or_else(|| "-".into(), |error| format!("{error:+.2}"));
    let (class, mark) =
        if cell.calibrated { (" class=calibrated", "calibrated") } else { ("", "") };
    format!(
        "<tr{class}><td>{}</td><td>{}</td><td>{published}</td><td>{}</td><td>{error}</td>\
         <td>{mark}</td></tr>",
        escape(&cell.row),
        escape(&cell.column),
        figure(cell.simulated),
    )
}
