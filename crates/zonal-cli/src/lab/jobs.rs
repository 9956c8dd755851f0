//! `zonal lab jobs`: a recorded build as jobs.

use zonal_lab::workload::jobs_of;

use super::args::JobsArgs;
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// A file that is no recording, or one without jobs.
pub fn run(args: &JobsArgs) -> anyhow::Result<Verdict> {
    let jobs = jobs_of(&args.recording)?;
    let processes = jobs.jobs.iter().flatten();
    let compilers = processes.clone().filter(|process| process.is_compiler()).count();
    output::note(&format!(
        "{} jobs of {} processes, {compilers} of them compilers or linkers",
        jobs.jobs.len(),
        processes.count()
    ));
    output::data(&jobs.to_string())?;
    Ok(Verdict::Pass)
}
