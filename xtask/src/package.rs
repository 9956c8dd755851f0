//! `cargo xtask package`: what others install, built and tried.
//!
//! ```text
//!  cargo package      every crate that can be published, compiled from its own archive
//!  cargo build        the program; it prints completions and pages of the manual
//!  cargo deb          zonal_*.deb; with crates/zonal-c also libzonal0 and libzonal-dev
//!  lintian            each package, errors and warnings
//!  dpkg --root        installed in an empty root, the program run, and removed again
//! ```
//! Everything lies in `target/package`. What is not installed is named, and its row says SKIPPED;
//! `--quick` packages the crates without compiling them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::fuzz::target_directory;
use crate::record::Record;
use crate::tools::{cargo, find};

/// Packages of Debian, and the crates and variants of `[package.metadata.deb]` they are made from.
const PACKAGES: [(&str, &str, Option<&str>); 3] = [
    ("zonal", "zonal-cli", None),
    ("libzonal0", "zonal-c", None),
    ("libzonal-dev", "zonal-c", Some("dev")),
];
/// Shells, and where they look for completions below `target/package`.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "completions/zonal"),
    ("zsh", "completions/_zonal"),
    ("fish", "completions/zonal.fish"),
];
/// Files of the package `zonal` that must be there once it is installed.
const INSTALLED: [&str; 6] = [
    "usr/bin/zonal",
    "usr/share/man/man1/zonal.1.gz",
    "usr/share/man/man1/zonal-replay.1.gz",
    "usr/share/bash-completion/completions/zonal",
    "usr/share/zsh/vendor-completions/_zonal",
    "usr/share/fish/vendor_completions.d/zonal.fish",
];

/// Makes and tries all packages; true if nothing was wrong.
pub fn run(root: &Path, quick: bool) -> Result<bool> {
    let output = target_directory(root).join("package");
    fs::create_dir_all(&output).with_context(|| format!("{}: not made", output.display()))?;
    let mut record = Record::begin(root, "packages");

    let start = Instant::now();
    let mut package = cargo(root);
    package.args(["package", "--workspace", "--exclude", "xtask", "--allow-dirty"]);
    if quick {
        package.arg("--no-verify");
    }
    let passed = package.status().context("cannot start cargo package")?.success();
    let how = if quick { "not compiled again" } else { "compiled from their archives" };
    record.row("crates", start, passed, &format!("cargo package --workspace: {how}"));

    let start = Instant::now();
    let program = build(root, &output)?;
    record.row("program", start, true, "completions and pages of the manual from the definition");

    for (name, krate, variant) in PACKAGES {
        deb(root, &output, &program, (name, krate, variant), &mut record)?;
    }
    Ok(record.end())
}

/// Builds the program, and lets it write what is installed beside it. Returns where it is.
fn build(root: &Path, output: &Path) -> Result<PathBuf> {
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
    let changelog = "zonal (0.1.0-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n \
                     -- The Zonal developers <zonal@users.invalid>  \
                     Sun, 22 Nov 2026 00:00:00 +0000\n";
    fs::write(output.join("changelog"), changelog)?;
    let mit = fs::read_to_string(root.join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let apache = "At your choice, the licence is instead the Apache License, version 2.0:\n\
                  on Debian systems /usr/share/common-licenses/Apache-2.0 has its text.\n";
    fs::write(output.join("copyright"), format!("{mit}\n{apache}"))?;
    Ok(program)
}

/// Makes a package, looks at it, installs it in an empty root and removes it.
fn deb(
    root: &Path,
    output: &Path,
    program: &Path,
    (name, krate, variant): (&str, &str, Option<&str>),
    record: &mut Record,
) -> Result<()> {
    let start = Instant::now();
    if !root.join("crates").join(krate).join("Cargo.toml").is_file() {
        record.row(name, start, true, &format!("SKIPPED: crates/{krate} does not exist"));
        return Ok(());
    }
    let Some(tool) = find(root, "cargo-deb") else {
        let missing = "SKIPPED: cargo-deb is not installed; `cargo install cargo-deb --locked`";
        record.row(name, start, true, missing);
        return Ok(());
    };
    let file = output.join(format!("{name}.deb"));
    let mut make = Command::new(tool);
    make.args(["-p", krate, "--no-build", "--output"]).arg(&file).current_dir(root);
    if let Some(variant) = variant {
        make.args(["--variant", variant]);
    }
    let made = make.status().context("cannot start cargo-deb")?.success();
    record.row(name, start, made, &format!("cargo-deb: {}", file.display()));
    if !made {
        return Ok(());
    }
    let start = Instant::now();
    let mut lintian = Command::new("lintian");
    // No upload to Debian, so there is no bug that asks for the package.
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    match lintian.args(["--fail-on", "error,warning"]).arg(&file).status() {
        Ok(status) => record.row(name, start, status.success(), "lintian: no error, no warning"),
        Err(_) => record.row(name, start, true, "SKIPPED: lintian is not installed"),
    }
    let start = Instant::now();
    let files = if name == "zonal" { &INSTALLED[..] } else { &[] };
    let tried = install(output, &file, name, files)
        .and_then(|()| if name == "zonal" { same_version(output, program) } else { Ok(()) })
        .and_then(|()| remove(output, name));
    let what = match &tried {
        Ok(()) => "installed in an empty root, run, and removed".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    record.row(name, start, tried.is_ok(), &what);
    Ok(())
}

fn clean_root(output: &Path) -> PathBuf {
    output.join("root")
}

/// `dpkg` on the empty root. Its packages' libraries are those of this system, so what they depend
/// on is not asked for.
fn dpkg(output: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("dpkg")
        .arg(format!("--root={}", clean_root(output).display()))
        .args(["--force-depends", "--force-not-root", "--force-script-chrootless"])
        .args(arguments)
        .output()
        .context("cannot start dpkg")?;
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success(), "dpkg {} failed: {text}", arguments.join(" "));
    Ok(())
}

fn install(output: &Path, file: &Path, name: &str, files: &[&str]) -> Result<()> {
    let root = clean_root(output);
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    dpkg(output, &["--install", &file.display().to_string()])?;
    dpkg(output, &["--verify", name])?;
    for file in files {
        ensure!(root.join(file).exists(), "{file} is not in the package {name}");
    }
    Ok(())
}

/// The installed program runs, and says what the built one says.
fn same_version(output: &Path, program: &Path) -> Result<()> {
    let said = |program: &Path| -> Result<Vec<u8>> {
        Ok(Command::new(program).arg("--version").output()?.stdout)
    };
    let installed = said(&clean_root(output).join("usr/bin/zonal"))?;
    ensure!(!installed.is_empty(), "the installed program says no version");
    ensure!(installed == said(program)?, "the installed program is another one");
    Ok(())
}

fn remove(output: &Path, name: &str) -> Result<()> {
    dpkg(output, &["--purge", name])?;
    let left = INSTALLED.iter().find(|file| clean_root(output).join(file).exists());
    ensure!(left.is_none(), "{} is left after removal", left.unwrap_or(&""));
    Ok(())
}
