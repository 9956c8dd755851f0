//! `zonal conform`: holds what kernels printed to what the core computes for the same machines.
//!
//! ```text
//!  texts of a kernel ─► capture ─► model: nodes, CPUs and sizes in the core ─► judge ─► report
//!  (directory or live)     │                                                     ▲
//!                          └──────────── what the kernel computed ───────────────┘
//! ```
//! | file | does |
//! |--|--|
//! | `files` | finds texts: in a directory, or in `/proc` and `/sys` |
//! | `zones`, `settings`, `meta`, `capture` | reads them, with the line of each value |
//! | `ints` | numbers in a text that is written to a sysctl |
//! | `era` | which rules a release follows |
//! | `model` | the machine in the core |
//! | `stale` | sizes that zones had when limits were computed |
//! | `judge` | comparisons |
//! | `report` | what came out |

mod capture;
mod era;
mod files;
mod ints;
mod judge;
mod meta;
mod model;
mod report;
mod settings;
mod stale;
mod zones;

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{bail, ensure};

use self::capture::Capture;
use self::files::{Directory, Live};
use self::report::{BadInput, Case, Report};
use crate::cli::ConformArgs;
use crate::{Verdict, output};

/// Runs the command.
///
/// # Errors
/// If a capture is bad input; the others have been judged and printed.
pub fn run(args: &ConformArgs) -> anyhow::Result<Verdict> {
    let mut report = Report::default();
    let total = args.captures.len() + usize::from(args.live);
    let bar = output::progress("judging", "captures", Some(total as u64));
    let mut add = |name: String, judged: anyhow::Result<Case>| {
        match judged {
            Ok(case) => report.push(case),
            Err(error) => {
                report.bad_input.push(BadInput { name, error: output::chain(&error) });
            }
        }
        bar.inc(1);
    };
    for directory in &args.captures {
        let name = name(directory);
        let judged = directory_case(&name, directory);
        add(name, judged);
    }
    if args.live {
        add("live".to_owned(), Capture::live(&Live::below("/")).and_then(|c| judge::judge(&c)));
    }
    bar.finish_and_clear();
    output::data(&if args.json { report.json()? } else { report.text() })?;
    match report.bad_input.as_slice() {
        [] if report.mismatches > 0 => Ok(Verdict::Failed),
        [] => Ok(Verdict::Pass),
        [bad] => bail!("{}", bad.error),
        [others @ .., last] => {
            others.iter().for_each(|bad| output::note(&format!("error: {}", bad.error)));
            bail!("{}", last.error)
        }
    }
}

fn directory_case(name: &str, directory: &Path) -> anyhow::Result<Case> {
    ensure!(directory.is_dir(), "{}: no such directory", directory.display());
    if !directory.join(meta::FILE).exists() {
        let captures = captures_in(directory);
        ensure!(
            captures.is_empty(),
            "{}: no capture, but a directory of captures: give them one by one, {}",
            directory.display(),
            captures.join(" ")
        );
    }
    judge::judge(&Capture::read(name, &Directory(directory.to_owned()))?)
}

/// The captures that lie in a directory, by their names.
fn captures_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let captures = entries.filter(|entry| entry.path().join(meta::FILE).is_file());
    let mut names: Vec<String> =
        captures.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn name(directory: &Path) -> String {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| directory.display().to_string())
}
