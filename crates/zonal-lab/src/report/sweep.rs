//! The page of a sweep: contention, throughput and memory held, against size.

use super::page::{page, table};
use super::plot::{Lines, Series, lines};
use super::text::escape;
use super::text::grouped;
use crate::sweep::{Axis, Row, Sweep};

/// A figure that is plotted: its name, what stands above the plot, its unit, and the unit's size.
const PLOTTED: [(&str, &str, &str, f64); 3] = [
    (
        "lock_wait_percent",
        "contention: part of the cycles spent waiting for zone locks",
        "percent",
        1.0,
    ),
    (
        "calls_per_s",
        "throughput: calls of all CPUs in a second of virtual time",
        "million calls a second",
        1e6,
    ),
    ("listed_pages_max", "memory held: the most on per-CPU lists and in depots", "MiB", 256.0),
];
/// Figures beside each run.
const LISTED: [&str; 5] =
    ["calls_per_s", "cycles_per_call", "lock_wait_percent", "listed_pages_max", "result_hash"];
/// Rows that a page lists; the file has them all.
const ROWS_MAX: usize = 1000;

/// The page: plots, then every run with the command that makes it again.
pub fn sweep_html(sweep: &Sweep, rows: &[Row], command: &str) -> String {
    page("Sweep (simulated)", &sweep_part(sweep, rows, command))
}

/// What such a page says below its title.
pub fn sweep_part(sweep: &Sweep, rows: &[Row], command: &str) -> String {
    let plots: String = PLOTTED
        .iter()
        .map(|(name, title, unit, size)| {
            let title = format!("{title}, simulated");
            lines(&against(sweep, rows, (name, *size), (title, unit)))
        })
        .collect();
    let names: Vec<&str> = ["run"].into_iter().chain(LISTED).chain(["command"]).collect();
    let fields = |row: &Row| {
        let get = |name: &&str| match row.figure(name) {
            Some(value) => grouped(value),
            None => row.get(name).unwrap_or_default().chars().take(8).collect(),
        };
        let mut fields = vec![row.get("point").unwrap_or_default().to_owned()];
        fields.extend(LISTED.iter().map(get));
        fields.push(row.get("command").unwrap_or_default().to_owned());
        fields
    };
    let runs = table("runs", &names, rows.iter().take(ROWS_MAX).map(fields));
    let more = match rows.len() > ROWS_MAX {
        true => format!("<p>{ROWS_MAX} of {} runs; the file has all.</p>", rows.len()),
        false => String::new(),
    };
    let count = rows.len();
    format!(
        "<p>Simulated, {count} runs. Make them again: <code>{}</code></p>{plots}\
         <details open><summary>Every run, and the command that makes it alone</summary>\
         {runs}{more}</details>",
        escape(command)
    )
}

/// The axis that lies below the plots: sizes, or else the first with numbers, or else the first.
fn below(axes: &[Axis]) -> usize {
    let numbers = |axis: &Axis| axis.values.iter().all(|value| value.parse::<f64>().is_ok());
    let several = |axis: &&Axis| axis.values.len() > 1 && axis.key != "seed";
    let position =
        |fits: &dyn Fn(&Axis) -> bool| axes.iter().position(|axis| several(&axis) && fits(axis));
    position(&|axis| axis.key == "cpus")
        .or_else(|| position(&|axis| axis.key == "machine"))
        .or_else(|| position(&numbers))
        .or_else(|| position(&|_| true))
        .unwrap_or(0)
}

fn against(
    sweep: &Sweep,
    rows: &[Row],
    (name, size): (&str, f64),
    (title, unit): (String, &str),
) -> Lines {
    let x = below(&sweep.axes);
    let places = &sweep.axes[x].values;
    let mut series: Vec<Series> = Vec::new();
    for (point, row) in sweep.points.iter().zip(rows) {
        let others = sweep.axes.iter().zip(&point.values).enumerate();
        let line: Vec<String> = others
            .filter(|(at, (axis, _))| *at != x && axis.key != "seed" && axis.values.len() > 1)
            .map(|(_, (axis, value))| format!("{}={value}", axis.key))
            .collect();
        let line = line.join(" ");
        let at = series.iter().position(|known| known.name == line).unwrap_or_else(|| {
            series.push(Series { name: line, values: vec![Vec::new(); places.len()] });
            series.len() - 1
        });
        let place = places.iter().position(|place| *place == point.values[x]);
        if let (Some(place), Some(value)) = (place, row.figure(name)) {
            series[at].values[place].push(value / size);
        }
    }
    let x = sweep.axes[x].key.clone();
    let x = if x == "cpus" { "CPUs of the machine".into() } else { x };
    Lines { title, y: unit.to_owned(), x, places: places.clone(), series }
}
