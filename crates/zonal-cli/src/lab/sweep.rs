//! `zonal lab sweep`: many runs into one file.

use std::num::NonZero;
use std::path::Path;
use std::thread;

use serde::Serialize;
use zonal_lab::recipe::{Recipe, quoted};
use zonal_lab::report;
use zonal_lab::run::FIGURES;
use zonal_lab::sweep::{Done, Row, Sweep, axes, columns};

use super::args::SweepArgs;
use super::once::{machine, recipe};
use crate::output;
use crate::verdict::Verdict;

const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Serialize)]
struct Swept {
    schema_version: u32,
    kind: &'static str,
    made: usize,
    found: usize,
    rows: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// Runs the command.
///
/// # Errors
/// An empty sweep, a value that cannot be, or a file that cannot be written.
pub fn run(args: &SweepArgs) -> anyhow::Result<Verdict> {
    let base = recipe(&args.of, &args.policy)?;
    let mut over = args.over.clone();
    over.extend(args.seeds.as_ref().map(|seeds| format!("seed={seeds}")));
    let sweep = Sweep::new(&base, axes(&over)?, &machine)?;
    let jobs = args.jobs.map_or_else(threads, usize::from);
    let command = command(&base, &sweep, &args.output);
    output::note(&format!("{command} --jobs {jobs}"));
    let page = args.html.as_deref().map(output::Target::new).transpose()?;
    let (rows, done) = made(&sweep, &args.output, jobs)?;
    if let Some(page) = page {
        page.write(&report::sweep_html(&sweep, &rows, &command))?;
    }
    output::data(&match args.json {
        true => {
            let Done { made, found } = done;
            let (schema_version, kind) = (SCHEMA_VERSION, "simulated");
            let rows = rows.iter().map(fields).collect();
            let swept = Swept { schema_version, kind, made, found, rows };
            serde_json::to_string_pretty(&swept)? + "\n"
        }
        false => format!(
            "{} runs (simulated) in {}: {} made, {} found there\n",
            rows.len(),
            args.output.display(),
            done.made,
            done.found
        ),
    })?;
    Ok(Verdict::Pass)
}

/// The rows of a sweep, with a progress bar.
///
/// # Errors
/// As [`Sweep::run`].
pub fn made(sweep: &Sweep, file: &Path, jobs: usize) -> anyhow::Result<(Vec<Row>, Done)> {
    let bar = output::progress("sweep", "runs", Some(sweep.points.len() as u64));
    let result = sweep.run(file, jobs, &|runs| bar.inc(runs as u64));
    bar.finish_and_clear();
    Ok(result?)
}

/// CPUs of this machine that this process may use.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The command line that makes the sweep again, on any number of threads.
pub fn command(base: &Recipe, sweep: &Sweep, file: &Path) -> String {
    let run = base.command();
    let run = run.strip_prefix("zonal lab once").unwrap_or(&run);
    let swept_seeds = sweep.axes.iter().any(|axis| axis.key == "seed");
    let seed = format!(" --seed {}", base.seed);
    let run = if swept_seeds { run.replace(&seed, "") } else { run.to_owned() };
    let axes = sweep.axes.iter().map(|axis| {
        let separator = if axis.values.iter().any(|value| value.contains(',')) { ";" } else { "," };
        let list = axis.values.join(separator);
        // One value with a comma must not be taken for several.
        let end = if axis.values.len() == 1 && separator == ";" { ";" } else { "" };
        format!(" --over {}", quoted(&format!("{}={list}{end}", axis.key)))
    });
    let axes: String = axes.collect();
    format!("zonal lab sweep{run}{axes} -o {}", quoted(&file.display().to_string()))
}

/// A row as JSON has it: counts and figures as numbers.
fn fields(row: &Row) -> serde_json::Map<String, serde_json::Value> {
    let value = |name: &str| {
        let text = row.get(name).unwrap_or_default();
        let count = COUNTS.contains(&name).then(|| text.parse::<u64>().ok()).flatten();
        let figure = FIGURES.iter().any(|figure| figure.name == name);
        let figure = figure.then(|| text.parse::<f64>().ok()).flatten();
        count.map(Into::into).or(figure.map(Into::into)).unwrap_or_else(|| text.into())
    };
    columns().names().map(|name| (name.to_owned(), value(name))).collect()
}

/// Columns with whole numbers.
const COUNTS: [&str; 6] = ["busy", "seed", "warm_us", "run_us", "cpus", "nodes"];
