//! `zonal trace`: looking at traces and making others of them.
//!
//! | file | does |
//! |--|--|
//! | `args` | flags |
//! | `info`, `stats` | what a trace says of itself, and what is in it |
//! | `sink` | where events go: a `.zonal` file, text, a directory |
//! | `convert`, `cut`, `scale` | a trace to another |

pub mod args;
mod convert;
mod cut;
mod info;
mod scale;
mod sink;
mod stats;

use std::path::Path;

use zonal_trace::Recording;

use self::args::{InputArgs, TraceCommand};
pub use self::convert::finish as finish_sink;
pub use self::sink::Sink;
use crate::Verdict;

/// Runs the command.
///
/// # Errors
/// Bad input, with file and place, or an output that cannot be written.
pub fn run(command: &TraceCommand) -> anyhow::Result<Verdict> {
    match command {
        TraceCommand::Info(args) => info::run(args)?,
        TraceCommand::Stats(args) => stats::run(args)?,
        TraceCommand::Convert(args) => convert::run(args)?,
        TraceCommand::Cut(args) => cut::run(args)?,
        TraceCommand::Scale(args) => scale::run(args)?,
    }
    Ok(Verdict::Pass)
}

/// Opens a trace of any form, with the machine of another directory if one is given.
///
/// # Errors
/// If either cannot be read.
pub fn open(trace: &Path, machine: Option<&Path>) -> anyhow::Result<Recording> {
    let recording = Recording::open(trace)?;
    Ok(match machine {
        Some(directory) => recording.with_machine(directory)?,
        None => recording,
    })
}

impl InputArgs {
    fn open(&self) -> anyhow::Result<Recording> {
        open(&self.trace, self.machine.as_deref())
    }
}
