//! `cargo xtask semver [REVISION]`: what changed for users of the libraries, by
//! `cargo-semver-checks`, since a revision: the last tag, or where there is none the commit before.
//! It says which version the next release must at least have.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::record::Record;
use crate::tools;

/// Libraries that others use.
const LIBRARIES: [&str; 5] = ["zonal-core", "zonal", "zonal-cache", "zonal-text", "zonal-trace"];

/// Compares the libraries with those of the revision.
pub fn run(root: &Path, revision: Option<&str>) -> Result<bool> {
    let revision = match revision {
        Some(revision) => revision.to_owned(),
        None => last_tag(root).unwrap_or_else(|| "HEAD~1".to_owned()),
    };
    let mut record = Record::begin(root, &format!("against {revision}"));
    let Some(tool) = tools::find(root, "cargo-semver-checks") else {
        let missing = "SKIPPED: `cargo install cargo-semver-checks --locked` first";
        record.row("semver", Instant::now(), true, missing);
        return Ok(record.end());
    };
    for library in LIBRARIES {
        let start = Instant::now();
        let status = Command::new(&tool)
            .args(["semver-checks", "--package", library, "--baseline-rev", &revision])
            .current_dir(root)
            .status()
            .context("cannot start cargo-semver-checks")?;
        record.row(library, start, status.success(), "no change that its version forbids");
    }
    Ok(record.end())
}

fn last_tag(root: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0"]).current_dir(root);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
