//! `cargo xtask semver [REVISION]`: what changed for users of the libraries, by
//! `cargo-semver-checks`, since a revision: the last tag, or where there is none the commit before.
//! It says which version the next release must at least have. Breaking changes of what was never
//! released are allowed; the table then says what they are.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::record::Record;
use crate::tools;

/// What compares them.
const CHECKER: tools::Published = tools::Published {
    package: "cargo-semver-checks",
    version: "0.51.0",
    program: "cargo-semver-checks",
    says: "0.51.0",
    arguments: &[],
};
/// Its exit code for changes that the version forbids.
const FORBIDDEN: i32 = 100;

/// Compares the libraries with those of the revision.
pub fn run(root: &Path, revision: Option<&str>) -> Result<bool> {
    let released = last_tag(root);
    let revision = match (revision, &released) {
        (Some(revision), _) => revision.to_owned(),
        (None, Some(tag)) => tag.clone(),
        (None, None) => "HEAD~1".to_owned(),
    };
    let commit = format!("{revision}^{{commit}}");
    let known = tools::said(root, "git", &["rev-parse", "--verify", &commit]).is_ok();
    ensure!(known, "{revision}: no such revision; expected a tag or commit of this repository");
    let mut record = Record::begin(root, &format!("against {revision}"));
    let tool = match tools::installed(root, &CHECKER) {
        Ok(tool) => tool,
        Err(error) => {
            record.row("semver", Instant::now(), true, &format!("SKIPPED: {error:#}"));
            return Ok(record.end());
        }
    };
    for library in tools::libraries(root)? {
        let start = Instant::now();
        if !existed(root, &library, &revision) {
            record.row(&library, start, true, "not there at that revision");
            continue;
        }
        let status = Command::new(&tool)
            .args(["semver-checks", "--package", &library, "--baseline-rev", &revision])
            .current_dir(root)
            .status()
            .context("cannot start cargo-semver-checks")?;
        let (passed, what) = match (status.code(), &released) {
            (Some(0), _) => (true, "nothing that its version forbids"),
            (Some(FORBIDDEN), None) => (true, "changes that break users: nothing is released yet"),
            (Some(FORBIDDEN), Some(_)) => (false, "changes that its version forbids, see above"),
            _ => (false, "it could not compare them, see above"),
        };
        record.row(&library, start, passed, what);
    }
    Ok(record.end())
}

/// Whether a crate was there.
fn existed(root: &Path, library: &str, revision: &str) -> bool {
    let manifest = format!("{revision}:crates/{library}/Cargo.toml");
    tools::said(root, "git", &["cat-file", "-e", &manifest]).is_ok()
}

fn last_tag(root: &Path) -> Option<String> {
    tools::said(root, "git", &["describe", "--tags", "--abbrev=0"]).ok()
}
