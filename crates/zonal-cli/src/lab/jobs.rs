//! `zonal lab jobs`: a recorded build as jobs.

use serde::Serialize;
use zonal_lab::workload::jobs_of;

use super::args::JobsArgs;
use crate::output;
use crate::verdict::Verdict;

/// Grows when a field changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema_version: u32,
    jobs: Vec<Vec<PrintedProcess<'a>>>,
}

#[derive(Serialize)]
struct PrintedProcess<'a> {
    depth: usize,
    /// Blocks that it allocates for itself.
    blocks: u32,
    /// Of these, those that others free.
    left: u32,
    is_compiler: bool,
    /// Places of its children in the job.
    children: &'a [usize],
    /// Runs of calls, as in a file of jobs.
    calls: String,
}

/// Runs the command.
///
/// # Errors
/// A file that is no recording, or one without jobs.
pub fn run(args: &JobsArgs) -> anyhow::Result<Verdict> {
    let jobs = jobs_of(&args.recording)?;
    let processes = jobs.jobs.iter().flatten();
    let compilers = processes.clone().filter(|process| process.is_compiler()).count();
    output::note(&format!(
        "{} of {}, {compilers} of them compilers or linkers",
        output::counted(jobs.jobs.len() as u64, "job"),
        match processes.count() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    ));
    if !args.json {
        output::data(&jobs.to_string())?;
        return Ok(Verdict::Pass);
    }
    let printed = jobs.jobs.iter().map(|job| {
        let processes = job.iter().map(|process| PrintedProcess {
            depth: process.depth,
            blocks: process.blocks,
            left: process.left,
            is_compiler: process.is_compiler(),
            children: &process.children,
            calls: process.calls(),
        });
        processes.collect()
    });
    let printed = Printed { schema_version: SCHEMA_VERSION, jobs: printed.collect() };
    output::data(&(serde_json::to_string(&printed)? + "\n"))?;
    Ok(Verdict::Pass)
}
