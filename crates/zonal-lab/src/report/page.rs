//! The page: one file with its style and its plots inside.

use plotters::prelude::*;

use super::figure;
use crate::experiment::{Cell, Table};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;\
padding:0 1em;color:#222}table{border-collapse:collapse;width:100%}td,th{padding:.2em .6em;\
border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child,td:nth-child(2),\
th:nth-child(2){text-align:left}.calibrated{color:#888}svg{max-width:100%;height:auto}\
code{background:#f4f4f4;padding:.1em .3em}";
const PLOT: (u32, u32) = (900, 360);
const PUBLISHED: RGBColor = RGBColor(120, 120, 120);
const SIMULATED: RGBColor = RGBColor(200, 80, 30);

/// The page of one table: what was run, a plot for each column, every cell.
pub fn html(table: &Table) -> String {
    let title = format!("{} (simulated)", table.experiment);
    let plots: String = columns(table).iter().map(|column| plot(table, column)).collect();
    let rows: String = table.cells.iter().map(row).collect();
    let notes: String = table.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>\
         <p>Machine <b>{}</b>, seed {}, result <code>{}</code>. Run it again: \
         <code>zonal lab run {} --seed {}</code></p><p>Published: {}</p>{plots}\
         <table><thead><tr><th>row</th><th>column</th><th>published</th><th>simulated</th>\
         <th>error %</th><th></th></tr></thead><tbody>{rows}</tbody></table>{notes}\
         </body></html>\n",
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

/// A column as a plot: rows side by side, published as circles, simulated as a line with points.
fn plot(table: &Table, column: &str) -> String {
    let cells: Vec<&Cell> = table.cells.iter().filter(|cell| cell.column == column).collect();
    let mut svg = String::new();
    match draw(&mut svg, column, &cells) {
        Ok(()) => format!("<figure>{svg}</figure>"),
        Err(error) => format!("<p>no plot of {}: {}</p>", escape(column), escape(&error)),
    }
}

fn draw(svg: &mut String, column: &str, cells: &[&Cell]) -> Result<(), String> {
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let values = |cell: &&Cell| [Some(cell.simulated), cell.published];
    let top = cells.iter().flat_map(values).flatten().fold(0.0, f64::max) * 1.1;
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    area.fill(&WHITE).map_err(|e| fail(&e))?;
    let last = cells.len().saturating_sub(1) as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{column}, simulated (line) and published (circles)"), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(90)
        .build_cartesian_2d(-0.5..last + 0.5, 0.0..top.max(f64::MIN_POSITIVE))
        .map_err(|e| fail(&e))?;
    let name = |at: &f64| {
        let whole = (at - at.round()).abs() < 0.01 && *at >= 0.0;
        let cell = if whole { cells.get(at.round() as usize) } else { None };
        cell.map_or_else(String::new, |cell| cell.row.clone())
    };
    chart
        .configure_mesh()
        .x_labels(2 * cells.len() + 1)
        .x_label_formatter(&name)
        .y_label_formatter(&|value| figure(*value))
        .disable_x_mesh()
        .draw()
        .map_err(|e| fail(&e))?;
    let at = |(i, cell): (usize, &&Cell)| (i as f64, cell.simulated);
    let points: Vec<(f64, f64)> = cells.iter().enumerate().map(at).collect();
    chart.draw_series(LineSeries::new(points.clone(), &SIMULATED)).map_err(|e| fail(&e))?;
    let dots = points.into_iter().map(|point| Circle::new(point, 3, SIMULATED.filled()));
    chart.draw_series(dots).map_err(|e| fail(&e))?;
    let known = cells.iter().enumerate().filter_map(|(i, c)| Some((i as f64, c.published?)));
    let circles = known.map(|point| Circle::new(point, 6, PUBLISHED.stroke_width(2)));
    chart.draw_series(circles).map_err(|e| fail(&e))?;
    area.present().map_err(|e| fail(&e))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
