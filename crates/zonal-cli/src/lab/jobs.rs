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
        "{} of {}, {compilers} of them compilers or linkers",
        output::counted(jobs.jobs.len() as u64, "job"),
        match processes.count() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    ));
    output::data(&jobs.to_string())?;
    Ok(Verdict::Pass)
}
