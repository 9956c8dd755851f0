//! `zonal conform`: holds what kernels printed to what the core computes for the same machines, by
//! crate `zonal-conform`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use zonal_conform::{Report, Source, judge_all};

use crate::output;
use crate::verdict::Verdict;

/// Flags of `zonal conform`.
#[derive(Args, Debug)]
pub struct ConformArgs {
    /// Directories of captures: the texts that one kernel printed.
    #[arg(value_name = "DIR", required_unless_present = "live")]
    pub captures: Vec<PathBuf>,

    /// Judge the running kernel too, by its /proc and /sys. Read only.
    #[arg(long)]
    pub live: bool,

    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    /// Grows when a field changes its meaning or goes.
    schema_version: u32,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command.
///
/// # Errors
/// If a capture is bad input; the others have been judged and printed.
pub fn run(args: &ConformArgs) -> anyhow::Result<Verdict> {
    let directories = args.captures.iter().cloned().map(Source::Directory);
    let sources: Vec<Source> = directories.chain(args.live.then_some(Source::Live)).collect();
    let bar = output::progress("judging", "captures", Some(sources.len() as u64));
    let report = judge_all(&sources, &mut |step| bar.set_position(step.done as u64));
    bar.finish_and_clear();
    let printed = Printed { schema_version: 1, report: &report };
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&printed)? + "\n",
        false => report.to_string(),
    })?;
    match report.bad_input.as_slice() {
        [] if report.mismatches > 0 => Ok(Verdict::Failed),
        [] => Ok(Verdict::Pass),
        [others @ .., last] => {
            others.iter().for_each(|bad| output::note(&format!("error: {}", bad.error)));
            bail!("{}", last.error)
        }
    }
}
