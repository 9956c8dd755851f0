//! `zonal record`: one recording, or one after the other.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::ensure;

use super::load::Output;
use super::{RecordArgs, Signals, check_load, dry_run, make, windows};
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// The step that failed; dropped events, unless they are allowed.
pub fn run(args: &RecordArgs) -> anyhow::Result<Verdict> {
    let name = args.output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ensure!(
        name.ends_with(".zonal") && !args.output.is_dir(),
        "-o {}: expected the name of a file that ends in .zonal",
        args.output.display()
    );
    check_load(args)?;
    if args.dry_run {
        return dry_run(args);
    }
    if let (Some(every), Some(window)) = (args.every, args.window) {
        windows::run(args, every, window)?;
        return Ok(Verdict::Pass);
    }
    let signal = Arc::new(AtomicUsize::new(0));
    make(args, (&signal, Signals::Ends), None, Output::Ours)?;
    Ok(Verdict::Pass)
}
