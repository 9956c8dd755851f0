//! `zonal lab`: simulated machines and what can be tried on them, one file per command.

mod ablation;
pub mod args;
mod calibrate;
mod compare;
mod jobs;
mod kept;
mod list;
pub mod machines;
mod measure;
mod moves;
mod once;
mod places;
pub mod prices;
mod report;
mod run;
mod sweep;

use self::args::LabCommand;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// Output of the command.
pub fn run(command: &LabCommand) -> anyhow::Result<Verdict> {
    match command {
        LabCommand::List(args) => list::run(args),
        LabCommand::Machines(args) => machines::list(args),
        LabCommand::Machine(args) => machines::show(args),
        LabCommand::Calibrate(args) => calibrate::run(args),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Once(args) => once::run(args),
        LabCommand::Sweep(args) => sweep::run(args),
        LabCommand::Compare(args) => compare::run(args),
        LabCommand::Jobs(args) => jobs::run(args),
        LabCommand::Report(args) => report::run(args),
        LabCommand::Ablation(args) => ablation::run(args),
    }
}
