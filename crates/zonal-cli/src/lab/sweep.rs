//! `zonal lab sweep`: many runs into one file.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, ensure};
use serde::Serialize;
use signal_hook::flag;
use zonal_lab::recipe::{Recipe, quoted};
use zonal_lab::report;
use zonal_lab::sweep::{Column, Done, Merged, Row, Shard, Sweep, axes, column, columns, write};
use zonal_lab::tape::is_played;
use zonal_lab::workload::Workload;
use zonal_parquet::{DataSet, join};

use super::args::SweepArgs;
use super::once::{machine, recipe};
use crate::output;
use crate::record::ENDS;
use crate::scratch;
use crate::verdict::Verdict;

const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Serialize)]
struct Swept {
    schema_version: u32,
    kind: &'static str,
    made: usize,
    found: usize,
    missing: usize,
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
    if over.is_empty() && !args.merge.is_empty() {
        return join_all(args);
    }
    let whole = Sweep::new(&base, axes(&over)?, &machine)?;
    if args.list {
        let sweep = sharded(whole, args.shard);
        for text in sweep.texts() {
            output::data(&(text + "\n"))?;
        }
        return Ok(Verdict::Pass);
    }
    let output = args.output.as_deref().context("-o FILE.csv is missing")?;
    check_rows(output)?;
    apart(args, &whole, output)?;
    let page = args.html.as_deref().map(output::Target::new).transpose()?;
    let mut command = command(&base, &whole, output);
    let (sweep, Made { rows, done, stopped }) = if args.merge.is_empty() {
        let jobs = args.jobs.map_or_else(threads, usize::from);
        if let Some(shard) = args.shard {
            command += &format!(" --shard {shard}");
        }
        let sweep = sharded(whole, args.shard);
        output::note(&format!("{command} --jobs {jobs}"));
        let set = DataSet::of(output);
        set.resume()?;
        let made = made(&sweep, &set.rows, jobs)?;
        if made.rows.len() == sweep.points.len() {
            set.finish()?;
        }
        (sweep, made)
    } else {
        let rows = joined(args, Some(&whole))?.0;
        let done = Done { made: 0, found: rows.len() };
        (whole, Made { rows, done, stopped: None })
    };
    let missing = sweep.points.len() - rows.len();
    if let Some(page) = page.filter(|_| stopped.is_none()) {
        ensure!(missing == 0, "{missing} rows are missing, so no page was written");
        page.write(&report::sweep_html(&sweep, &rows, &command))?;
    }
    // Rows of a Parquet file are beside it until all are there.
    let set = DataSet::of(output);
    let file = if stopped.is_some() { &set.rows } else { output };
    say(args, file, &rows, (done, missing))?;
    Ok(match stopped {
        Some(signal) => Verdict::Interrupted(signal),
        None if missing == 0 => Verdict::Pass,
        None => Verdict::Failed,
    })
}

/// Refuses what no rows can be added to.
fn check_rows(output: &Path) -> anyhow::Result<()> {
    output::check_name(output)?;
    let is_plain = std::fs::metadata(output).map_or(true, |there| there.is_file());
    ensure!(
        is_plain,
        "-o {}: expected a plain file, which rows are added to; --json prints all of them",
        output.display()
    );
    Ok(())
}

/// What is written is neither written twice nor played.
fn apart(args: &SweepArgs, sweep: &Sweep, output: &Path) -> anyhow::Result<()> {
    if let Some(page) = &args.html {
        ensure!(!output::same(page, output), "--html and -o: both are {}", page.display());
    }
    let played: BTreeSet<&str> = sweep.points.iter().map(|point| &*point.recipe.workload).collect();
    for workload in played {
        let workload: Workload = workload.parse()?;
        for file in args.html.as_deref().into_iter().chain([output]) {
            let file_of = is_played(&workload, file);
            ensure!(!file_of, "{}: the workload is read from it; write another", file.display());
        }
    }
    Ok(())
}

fn sharded(sweep: Sweep, shard: Option<Shard>) -> Sweep {
    match shard {
        Some(shard) => sweep.shard(shard),
        None => sweep,
    }
}

fn say(
    args: &SweepArgs,
    file: &Path,
    rows: &[Row],
    (done, missing): (Done, usize),
) -> anyhow::Result<()> {
    let Done { made, found } = done;
    output::data(&match args.json {
        true => {
            let (schema_version, kind) = (SCHEMA_VERSION, "simulated");
            let rows = rows.iter().map(fields).collect();
            let swept = Swept { schema_version, kind, made, found, missing, rows };
            serde_json::to_string_pretty(&swept)? + "\n"
        }
        false => {
            let left = if missing > 0 { format!(", {missing} missing") } else { String::new() };
            let (count, file) = (rows.len(), file.display());
            let runs = output::counted(count as u64, "run");
            format!("{runs} (simulated) in {file}: {made} made, {found} found there{left}\n")
        }
    })?;
    Ok(())
}

/// Joins the files of `--merge`, whatever sweeps their rows are of.
fn join_all(args: &SweepArgs) -> anyhow::Result<Verdict> {
    ensure!(args.html.is_none(), "--html needs the sweep whose page it is: expected --over");
    let given = args.given();
    ensure!(
        given.is_empty(),
        "no row of files that are joined depends on {}: expected --over too, or --merge alone",
        given.join(", ")
    );
    let (rows, output) = joined(args, None)?;
    say(args, output, &rows, (Done { made: 0, found: rows.len() }, 0))?;
    Ok(Verdict::Pass)
}

/// Joins the files of `--merge` with what the output has already: no row of it is lost.
fn joined<'a>(args: &'a SweepArgs, sweep: Option<&Sweep>) -> anyhow::Result<(Vec<Row>, &'a Path)> {
    let output = args.output.as_deref().context("-o FILE.csv is missing")?;
    let set = DataSet::of(output);
    let mut own = vec![output.to_owned(), set.rows.clone()];
    own.dedup();
    own.retain(|file| file.exists());
    let lost = join(&own, None)?.rows.len() - join(&own, sweep)?.rows.len();
    ensure!(
        lost == 0,
        "{}: {lost} of its rows are not of this sweep and would be lost: expected another -o",
        output.display()
    );
    let inputs = [&args.merge[..], &own].concat();
    let Merged { rows, missing } = join(&inputs, sweep)?;
    let of = if sweep.is_some() { "of this sweep " } else { "" };
    ensure!(!rows.is_empty(), "no row {of}is in the files of --merge: nothing was written");
    write(&set.rows, &rows)?;
    set.finish()?;
    if let (Some(sweep), Some(first)) = (sweep, missing.first()) {
        output::note(&format!(
            "{} of {} rows are in none of the files, the first at {}; the same command without \
             --merge makes them",
            missing.len(),
            sweep.points.len(),
            sweep.label(&sweep.points[*first]),
        ));
    }
    Ok((rows, output))
}

/// What was made of a sweep.
pub struct Made {
    /// Its rows, as far as there are any.
    pub rows: Vec<Row>,
    /// How many were made, and how many found.
    pub done: Done,
    /// The signal that stopped it before the last row.
    pub stopped: Option<i32>,
}

/// The rows of a sweep, with a progress bar. A first Ctrl-C, SIGTERM or SIGHUP ends it after the
/// runs that are under way, a second one at once; the file is valid either way.
///
/// # Errors
/// As [`Sweep::run`].
pub fn made(sweep: &Sweep, file: &Path, jobs: usize) -> anyhow::Result<Made> {
    let (stop, by) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    scratch::command_ends_itself_once()?;
    for signal in ENDS {
        // The number is there when the flag is set.
        flag::register_usize(signal, Arc::clone(&by), signal as usize)?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    let steps = output::Steps::new("sweep", "runs", sweep.points.len() as u64);
    let result = sweep.run_until(file, jobs, &stop, &|runs| steps.add(runs as u64));
    drop(steps);
    let (rows, done) = result?;
    let is_stopped = stop.load(Relaxed) && rows.len() < sweep.points.len();
    if is_stopped {
        output::note("stopped; the same command makes the rows that are missing");
    }
    // Relaxed: the runs of the sweep have ended.
    let stopped = is_stopped.then(|| by.load(Relaxed) as i32);
    Ok(Made { rows, done, stopped })
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

/// A row as JSON has it: counts and figures as numbers, a count that is not given as null.
fn fields(row: &Row) -> serde_json::Map<String, serde_json::Value> {
    let value = |name: &str, text: &str| match column(name) {
        Column::Count if text.is_empty() => serde_json::Value::Null,
        Column::Count => text.parse::<u64>().map_or(text.into(), Into::into),
        Column::Figure => text.parse::<f64>().map_or(text.into(), Into::into),
        Column::Text => text.into(),
    };
    let header = columns();
    let pairs = header.names().zip(row.fields());
    pairs.map(|(name, text)| (name.to_owned(), value(name, text))).collect()
}
