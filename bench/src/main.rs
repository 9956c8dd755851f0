//! Zonal's bench with the C and C++ peers beside it: all subjects in one table.
//!
//! ```text
//! cargo run --release --manifest-path bench/Cargo.toml -- [--quick] [--json] [--csv FILE]
//! ```
//! The loops, the schedule and the report are those of `crates/zonal-bench`; this program adds the
//! peers (`peers.rs`). It is a workspace of its own so that building and testing Zonal itself
//! compiles no C++.
//!
//! Data goes to stdout, notes to stderr. Exit codes: 0 measured, 1 a subject did something wrong
//! (handed a block out twice, lost contents), 2 usage or the system refused.

mod llfree;
mod peers;

use anyhow::{Context, ensure};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use zonal_bench::{
    Bench, Cpus, Crew, Earlier, Machine, Options, Report, measure_alone, run, subjects,
    table,
};

/// Measures page allocation, every allocator in the same loops of the same run.
#[derive(Parser)]
#[command(name = "zonal-bench-peers", version)]
struct Arguments {
    /// A run of at most 60 seconds of measuring: fewer cells, fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// Print the latencies of single calls, too: p50, p99, p99.9 and the longest of allocations and
    /// frees.
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    latency: bool,
    /// Also write the rows to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Say which rows changed beyond noise since an earlier run on this machine: a file of --csv or
    /// --json.
    #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
    compare: Option<PathBuf>,
    /// Take about so many minutes for the cells: shorter rounds, down to 30 ms for all rounds of a
    /// subject in a cell.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Measure only this subject, beside the limit; may be repeated.
    #[arg(long, value_name = "SUBJECT")]
    only: Vec<String>,
    /// A checkout of luhsra/llfree-rs, which is then a peer, too.
    #[arg(long, value_name = "DIR")]
    llfree: Option<PathBuf>,
    /// Measure only this bench; may be repeated.
    #[arg(long, value_name = "BENCH", value_parser = parse_bench)]
    bench: Vec<Bench>,
    /// Print the summary as the README's Markdown table instead.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn parse_bench(name: &str) -> Result<Bench, String> {
    let names = || Bench::ALL.map(Bench::name).join(", ");
    let found = Bench::ALL.into_iter().find(|bench| bench.name() == name);
    found.ok_or_else(|| format!("there is no such bench; there are {}", names()))
}

fn main() -> ExitCode {
    match measure(Arguments::parse()) {
        Ok(report) if report.faults().next().is_some() => ExitCode::from(1),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: Arguments) -> anyhow::Result<Report> {
    // Read first, so that a wrong file costs no minutes of measuring, and before --csv may replace
    // it.
    let mut earlier = arguments.compare.as_deref().map(read_earlier).transpose()?;
    ensure!(!cfg!(debug_assertions), "a debug build measures nothing: run it with --release");
    let base = if arguments.quick { Options::quick() } else { Options::full() };
    let base = base.within(arguments.minutes);
    let options = Options { only: arguments.only, benches: arguments.bench, ..base };
    // A file that cannot be written is found before the minutes of measuring, not after.
    if let Some(path) = &arguments.csv {
        std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let crew = Arc::new(Crew::new(Cpus::of_process()));
    if let (Some(earlier), Some(file)) = (&mut earlier, &arguments.compare) {
        let here = Machine::read(crew.cpus().count());
        let suits = earlier.restrict(&options, crew.cpus(), &here);
        suits.with_context(|| file.display().to_string())?;
    }
    let (mut runners, mut skipped) = subjects::all(&crew);
    let (peers, absent) =
        peers::start(|subject| options.wants(subject), arguments.llfree.as_deref());
    runners.extend(peers);
    skipped.extend(absent);
    for only in &options.only {
        let known = runners.iter().any(|runner| runner.name() == only);
        let absent = skipped.iter().any(|skip| &skip.subject == only);
        ensure!(known || absent, "there is no subject {only}");
    }
    let mut report = run(&options, crew.cpus(), runners, skipped, |step| {
        eprintln!("{}/{} {}", step.done + 1, step.total, step.cell);
    });
    measure_alone(&options, &crew, &mut report);
    if let Some(path) = &arguments.csv {
        report.write_csv(path)?;
    }
    let compared = earlier.map_or(Ok(()), |earlier| report.compare(&earlier));
    if arguments.json {
        println!("{}", report.to_json());
    } else if arguments.markdown {
        println!("{}", table::summary(&report, table::Style::Markdown));
    } else {
        print!("{}", table::whole(&report));
        if arguments.latency {
            println!("\n{}", table::latencies(&report, table::Style::Terminal));
        }
    }
    compared.context("--compare")?;
    Ok(report)
}

fn read_earlier(file: &Path) -> anyhow::Result<Earlier> {
    Earlier::read(file).with_context(|| file.display().to_string())
}
