//! `zonal record`: one recording, or one after the other.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::ensure;

use super::load::Output;
use super::{RecordArgs, Signals, check_load, dry_run, is_directory, is_replaced, make, windows};
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// The step that failed; dropped events, unless they are allowed.
pub fn run(args: &RecordArgs) -> anyhow::Result<Verdict> {
    check_output(args)?;
    check_load(args)?;
    let windows = args.every.zip(args.window);
    if let Some((every, window)) = windows {
        ensure!(
            window <= every,
            "--for {window:?} is longer than --every {every:?}: leave both out"
        );
    }
    if args.dry_run {
        return dry_run(args);
    }
    if let Some((every, window)) = windows {
        let (all, failed) = windows::run(args, every, window)?;
        if failed == 0 {
            return Ok(Verdict::Pass);
        }
        output::note(&format!("{failed} of {all} windows are left out"));
        return Ok(Verdict::Failed);
    }
    if is_replaced(args) {
        output::note(&format!(
            "{} is there already: this recording replaces it once it is written",
            args.output.display()
        ));
    }
    let signal = Arc::new(AtomicUsize::new(0));
    let output = if args.json { Output::Errors } else { Output::Ours };
    make(args, (&signal, Signals::Ends), None, output)?;
    Ok(Verdict::Pass)
}

/// Refuses a name that nothing can be written to, before anything is recorded.
fn check_output(args: &RecordArgs) -> anyhow::Result<()> {
    let path = args.output.display();
    output::check_folder("-o", &args.output)?;
    if is_directory(&args.output) {
        ensure!(!args.output.exists(), "-o {path}: it is there already; expected a new directory");
        ensure!(args.every.is_none(), "-o {path}: expected FILE.zonal: windows are files");
        return Ok(());
    }
    let is_zonal = args.output.extension().is_some_and(|ending| ending == "zonal");
    ensure!(
        is_zonal && !args.output.is_dir(),
        "-o {path}: expected the name of a file that ends in .zonal, or a new directory's without \
         a dot"
    );
    Ok(())
}
