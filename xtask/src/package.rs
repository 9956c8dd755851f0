//! `cargo xtask package`: what others install, made and tried.
//!
//! ```text
//!  cargo publish --dry-run  every crate that can be published, compiled from its own archive;
//!                           each archive has its readme and both licences
//!  cargo build, cargo-c     the program, its completions and pages of the manual; the library of C
//!  cargo deb, lintian       zonal, libzonal0, libzonal-dev
//!  mmdebstrap               a fresh Debian: installed, used (package/try.sh), removed
//! ```
//! Everything lies in `target/package`. What is not installed is named, and its row says SKIPPED;
//! `--quick` packages the crates without compiling them again.

mod archives;
mod debian;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::record::Record;
use crate::tools::{cargo, target_directory};

/// Shells, and where they look for completions below `target/package`.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "completions/zonal"),
    ("zsh", "completions/_zonal"),
    ("fish", "completions/zonal.fish"),
];

/// Makes and tries all packages; true if nothing was wrong.
pub fn run(root: &Path, quick: bool) -> Result<bool> {
    let output = target_directory(root).join("package");
    fs::create_dir_all(&output).with_context(|| format!("{}: not made", output.display()))?;
    let mut record = Record::begin(root, "packages");
    let version = crates(root, quick, &mut record)?;

    let start = Instant::now();
    build(root, &output, &version)?;
    record.row("program", start, true, "completions and pages of the manual from the definition");
    debian::run(root, &output, &version, &mut record)?;
    Ok(record.end())
}

/// Packages the crates. Returns their version, which is one.
fn crates(root: &Path, quick: bool, record: &mut Record) -> Result<String> {
    let start = Instant::now();
    let crates = archives::publishable(root)?;
    let (_, version) = crates.first().context("no crate can be published")?;
    archives::forget(root)?;
    let mut publish = cargo(root);
    publish.args(["publish", "--workspace", "--dry-run", "--allow-dirty"]);
    if quick {
        publish.arg("--no-verify");
    }
    let passed = publish.status().context("cannot start cargo publish")?.success();
    let how = if quick { "not compiled again" } else { "compiled from their archives" };
    let what = format!("cargo publish --workspace --dry-run: {} crates, {how}", crates.len());
    record.row("crates", start, passed, &what);
    if passed {
        let start = Instant::now();
        let files = archives::look(root, &crates)?;
        let what = format!("{files} files; a readme, both licences and a whole manifest in each");
        record.row("archives", start, true, &what);
    }
    Ok(version.clone())
}

/// Builds the program, and lets it write what is installed beside it.
fn build(root: &Path, output: &Path, version: &str) -> Result<()> {
    let built = cargo(root).args(["build", "--release", "-p", "zonal-cli"]).status()?;
    ensure!(built.success(), "the program cannot be built");
    let program = target_directory(root).join("release/zonal");
    for directory in ["man", "completions"] {
        let directory = output.join(directory);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)?;
    }
    let status = Command::new(&program).arg("man").arg(output.join("man")).status()?;
    ensure!(status.success(), "zonal man failed");
    for (shell, file) in SHELLS {
        let script = Command::new(&program).args(["completions", shell]).output()?;
        ensure!(script.status.success(), "zonal completions {shell} failed");
        fs::write(output.join(file), script.stdout)?;
    }
    let changelog = format!(
        "zonal ({version}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
         -- The Zonal developers <zonal@users.invalid>  \
         Sun, 22 Nov 2026 00:00:00 +0000\n"
    );
    fs::write(output.join("changelog"), changelog)?;
    let mit = fs::read_to_string(root.join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let apache = "At your choice, the licence is instead the Apache License, version 2.0:\n\
                  on Debian systems /usr/share/common-licenses/Apache-2.0 has its text.\n";
    fs::write(output.join("copyright"), format!("{mit}\n{apache}"))?;
    Ok(())
}
