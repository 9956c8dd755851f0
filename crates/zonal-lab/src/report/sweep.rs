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
    let plotted = PLOTTED.map(|(name, title, unit, size)| {
        let title = format!("{title}, simulated");
        against(sweep, rows, (name, size), (title, unit))
    });
    let [waits, throughput, _] = &plotted;
    let conclusion = conclusion(throughput, waits);
    let plots: String = plotted.iter().map(lines).collect();
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
        "{conclusion}<p>Simulated, {count} runs. Make them again: <code>{}</code></p>{plots}\
         <details open><summary>Every run, and the command that makes it alone</summary>\
         {runs}{more}</details>",
        escape(command)
    )
}

/// What the sweep comes to, in one sentence: who makes the most calls at the last place, by how
/// much, and how long both ends wait. Nothing where there is nothing to compare.
fn conclusion(throughput: &Lines, waits: &Lines) -> String {
    let Some(last) = throughput.places.len().checked_sub(1) else { return String::new() };
    let mut ends: Vec<(f64, usize)> = (0..throughput.series.len())
        .filter_map(|at| Some((mean(throughput, at, last)?, at)))
        .collect();
    ends.sort_by(|one, other| other.0.total_cmp(&one.0));
    let (Some(most), Some(least)) = (ends.first(), ends.last()) else { return String::new() };
    if ends.len() < 2 {
        return String::new();
    }
    let name = |end: &(f64, usize)| &throughput.series[end.1].name;
    let times = match least.0 > 0.0 {
        true => format!("{:.2} times as many as", most.0 / least.0),
        false => "more than".to_owned(),
    };
    let waited = [most, least].map(|end| mean(waits, end.1, last));
    let waited = match waited {
        [Some(one), Some(other)] => format!(
            "; they wait for zone locks {} and {} % of their cycles",
            grouped(one),
            grouped(other)
        ),
        _ => String::new(),
    };
    let sentence = format!(
        "{} {}: {} makes most calls, {} million a second, {times} {} ({}){waited}.",
        throughput.x,
        throughput.places[last],
        name(most),
        grouped(most.0),
        name(least),
        grouped(least.0)
    );
    format!("<p class=\"conclusion\">{}</p>", escape(&sentence))
}

/// The mean of a line at a place.
fn mean(lines: &Lines, series: usize, place: usize) -> Option<f64> {
    let values = lines.series.get(series)?.values.get(place)?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(values: &[(&str, f64)]) -> Lines {
        let series = values.iter().map(|(name, value)| Series {
            name: (*name).to_owned(),
            values: vec![vec![99.0], vec![value - 1.0, value + 1.0]],
        });
        Lines {
            title: String::new(),
            y: String::new(),
            x: "CPUs of the machine".into(),
            places: vec!["2".into(), "8".into()],
            series: series.collect(),
        }
    }

    #[test]
    fn the_conclusion_is_of_the_last_place_and_names_both_ends() {
        let calls = lines(&[("policy=a", 10.0), ("policy=b", 30.0), ("policy=<c>", 20.0)]);
        let waits = lines(&[("policy=a", 90.0), ("policy=b", 5.0), ("policy=<c>", 50.0)]);
        let says = conclusion(&calls, &waits);
        for part in [
            "CPUs of the machine 8: policy=b makes most calls, 30 million a second",
            "3.00 times as many as policy=a (10)",
            "they wait for zone locks 5 and 90 % of their cycles.",
        ] {
            assert!(says.contains(part), "{part} is not in {says}");
        }
        assert!(!says.contains("<c>"));
    }

    #[test]
    fn one_line_or_none_concludes_nothing() {
        for some in [&[][..], &[("policy=a", 1.0)]] {
            assert_eq!(conclusion(&lines(some), &lines(some)), "");
        }
        let zero = lines(&[("a", 1.0), ("b", 1.0)]);
        assert!(!conclusion(&zero, &zero).contains("inf"), "{zero:?}");
    }
}
