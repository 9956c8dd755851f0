//! `zonal bench`: the pool beside what needs no C++ to build. The loops, the schedule and the
//! report are those of crate `zonal-bench`; the program in `bench/` adds the C and C++ peers.

use std::sync::Arc;

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use zonal_bench::{Cpus, Crew, Options, Report, edge, run, subjects, table};

use crate::cli::BenchArgs;
use crate::{Verdict, output};

/// Measures and prints.
pub fn run_bench(args: &BenchArgs) -> anyhow::Result<Verdict> {
    ensure!(
        !cfg!(debug_assertions),
        "a debug build measures nothing; run `cargo run --release -- bench`"
    );
    let base = if args.quick { Options::quick() } else { Options::full() };
    let options = Options { only: args.only.clone(), benches: args.bench.clone(), ..base };
    // A file that cannot be written is found before the minutes of measuring, not after.
    if let Some(path) = &args.csv {
        std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let crew = Arc::new(Crew::new(Cpus::of_process()));
    let (runners, skipped) = subjects::all(&crew);
    for only in &options.only {
        let known = subjects::NAMES.contains(&only.as_str());
        ensure!(known, "there is no subject {only}; there are {}", subjects::NAMES.join(", "));
    }
    let bar = output::progress("measuring", "cells", None);
    let mut report = run(&options, crew.cpus(), runners, skipped, |step| show(&bar, &step));
    edge::measure(&options, &crew, &mut report);
    bar.finish_and_clear();
    if let Some(path) = &args.csv {
        report.write_csv(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(args, &report)?;
    let failed = report.faults().next().is_some();
    Ok(if failed { Verdict::Failed } else { Verdict::Pass })
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
    } else {
        table::whole(report)
    };
    output::data(&text).context("cannot write to stdout")
}
