//! `zonal bench`: the pool beside what needs no C++ to build. The loops, the schedule and the
//! report are those of crate `zonal-bench`; the program in `bench/` adds the C and C++ peers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::ProgressBar;
use zonal_bench::{
    Bench, Cpus, Crew, Earlier, Machine, Options, Report, measure_alone, run, stalls, subjects,
    table,
};

use crate::output;
use crate::verdict::Verdict;

/// Flags of `zonal bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// At most 60 seconds of measuring: fewer cells, fewer and shorter rounds.
    #[arg(long)]
    pub quick: bool,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,

    /// Print the summary as Markdown.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print the latencies of single calls, too: p50, p99, p99.9 and the longest of allocations and
    /// frees.
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub latency: bool,

    /// Write every row to this file too.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Say which rows changed beyond noise since an earlier run on this machine: a file of --csv or
    /// --json.
    #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
    pub compare: Option<PathBuf>,

    /// Instead: run a load at the edge of memory for so many seconds, and print the ten longest
    /// calls with what they waited for, and how long zone locks were held.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        conflicts_with_all = [
            "quick", "markdown", "latency", "csv", "compare", "minutes", "only", "bench",
        ]
    )]
    pub stalls: Option<u64>,

    /// Take about so many minutes for the cells: shorter rounds, down to 30 ms for all rounds of a
    /// subject in a cell.
    #[arg(
        long,
        value_name = "MINUTES",
        value_parser = clap::value_parser!(u64).range(1..=1440),
        conflicts_with = "quick"
    )]
    pub minutes: Option<u64>,

    /// Measure only this subject, beside the limit; may be repeated.
    #[arg(long, value_name = "SUBJECT")]
    pub only: Vec<String>,

    /// Measure only this bench; may be repeated.
    #[arg(long, value_name = "BENCH", value_parser = bench)]
    pub bench: Vec<Bench>,
}

fn bench(name: &str) -> Result<Bench, String> {
    let names = || Bench::ALL.map(Bench::name).join(", ");
    let found = Bench::ALL.into_iter().find(|bench| bench.name() == name);
    found.ok_or_else(|| format!("no such bench; there are {}", names()))
}

/// Measures and prints.
pub fn run_bench(args: &BenchArgs) -> anyhow::Result<Verdict> {
    if let Some(seconds) = args.stalls {
        return run_stalls(args, Duration::from_secs(seconds));
    }
    // Read first, so that a wrong file costs no minutes of measuring.
    let mut earlier = args.compare.as_deref().map(read_earlier).transpose()?;
    ensure_measures()?;
    let base = if args.quick { Options::quick() } else { Options::full() };
    let base = base.within(args.minutes);
    let options = Options { only: args.only.clone(), benches: args.bench.clone(), ..base };
    // A file that cannot be written is found before the minutes of measuring, not after.
    let csv = args.csv.as_deref().map(output::Target::new).transpose()?;
    let crew = Arc::new(Crew::new(Cpus::of_process()));
    if let (Some(earlier), Some(file)) = (&mut earlier, &args.compare) {
        let here = Machine::read(crew.cpus().count());
        let suits = earlier.restrict(&options, crew.cpus(), &here);
        suits.with_context(|| file.display().to_string())?;
    }
    let (runners, skipped) = subjects::all(&crew);
    for only in &options.only {
        let known = subjects::NAMES.contains(&only.as_str());
        ensure!(known, "there is no subject {only}; there are {}", subjects::NAMES.join(", "));
    }
    let bar = output::progress("measuring", "cells", None);
    let mut report = run(&options, crew.cpus(), runners, skipped, |step| show(&bar, &step));
    measure_alone(&options, &crew, &mut report);
    bar.finish_and_clear();
    if let Some(csv) = csv {
        csv.write(&report.to_csv())?;
    }
    let compared = earlier.map_or(Ok(()), |earlier| report.compare(&earlier));
    print(args, &report)?;
    compared.context("--compare")?;
    let failed = report.faults().next().is_some();
    Ok(if failed { Verdict::Failed } else { Verdict::Pass })
}

fn run_stalls(args: &BenchArgs, length: Duration) -> anyhow::Result<Verdict> {
    ensure_measures()?;
    let stalls = stalls::measure(length).map_err(anyhow::Error::msg)?;
    let text = if args.json { stalls.to_json() + "\n" } else { stalls.text() };
    output::data(&text).context("cannot write to stdout")?;
    Ok(Verdict::Pass)
}

fn ensure_measures() -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "a debug build measures nothing; run `cargo run --release -- bench`"
    );
    Ok(())
}

fn read_earlier(file: &Path) -> anyhow::Result<Earlier> {
    Earlier::read(file).with_context(|| file.display().to_string())
}

fn show(bar: &ProgressBar, step: &zonal_bench::Step<'_>) {
    bar.set_length(step.total as u64);
    bar.set_position(step.done as u64);
    bar.set_message(format!("{}", step.cell));
}

fn print(args: &BenchArgs, report: &Report) -> anyhow::Result<()> {
    let text = if args.json {
        report.to_json() + "\n"
    } else if args.markdown {
        table::summary(report, table::Style::Markdown) + "\n"
    } else if args.latency {
        table::whole(report) + "\n" + &table::latencies(report, table::Style::Terminal) + "\n"
    } else {
        table::whole(report)
    };
    output::data(&text).context("cannot write to stdout")
}
