//! Programs that steps start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Cargo's target directory.
pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory))
}

/// The cargo that runs this.
pub fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The same as a command in a directory: the repository, or a workspace apart.
pub fn cargo(directory: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(directory);
    command
}

/// What a program prints in the repository, without white space around it. What it says of itself
/// meanwhile is in the error.
pub fn said(root: &Path, program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(root).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} failed: {}", args.join(" "), why.trim());
    let text = String::from_utf8(output.stdout);
    Ok(text.with_context(|| format!("{program} printed no text"))?.trim().to_owned())
}

/// A program that is installed, or lies in `target/tools/bin`.
pub fn find(root: &Path, program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = target_directory(root).join("tools/bin");
    let mut directories = std::env::split_paths(&path).chain([ours]);
    directories.find_map(|at| Some(at.join(program)).filter(|file| file.is_file()))
}

/// A program of a registry, at one version.
pub struct Published<'a> {
    pub package: &'a str,
    pub version: &'a str,
    /// One of its programs, and what this prints for `--version` at that version.
    pub program: &'a str,
    pub says: &'a str,
    /// Arguments of `cargo install` besides.
    pub arguments: &'a [&'a str],
}

/// Settings of cargo for a compilation that is quick. Packages have profiles of their own:
/// cargo-semver-checks has what it depends on optimised even in debug.
const QUICKLY: [&str; 3] =
    ["profile.dev.debug=0", "profile.dev.opt-level=0", "profile.dev.package.'*'.opt-level=0"];

/// The program in `target/tools/bin`, compiled there if it is not in this version: not optimised
/// and without debug information, since it takes longer to compile than to run. What was compiled
/// when a run was interrupted is there for the next one.
pub fn installed(root: &Path, tool: &Published) -> Result<PathBuf> {
    let tools = target_directory(root).join("tools");
    let program = tools.join("bin").join(tool.program);
    let version = Command::new(&program).arg("--version").output();
    if version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(tool.says)) {
        return Ok(program);
    }
    let (package, version) = (tool.package, tool.version);
    eprintln!("note: compiling {package} {version} into {}, once", tools.display());
    let build = tools.join(format!("{package}-{version}"));
    let status = cargo(root)
        .args(["install", package, "--version", version, "--locked", "--debug", "--force"])
        .args(tool.arguments)
        .arg("--root")
        .arg(&tools)
        .arg("--target-dir")
        .arg(&build)
        .args(QUICKLY.iter().flat_map(|setting| ["--config", setting]))
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .context("cannot start cargo install")?;
    ensure!(status.success(), "{package} {version} cannot be installed: see above");
    // Nobody needs it any more; if it stays, it only takes room.
    let _ = std::fs::remove_dir_all(build);
    Ok(program)
}

/// The libraries of the workspace for Rust, sorted: not that of C, whose list is of its symbols.
pub fn libraries(root: &Path) -> Result<Vec<String>> {
    let output = cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {said}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let is_library = |package: &&serde_json::Value| {
        let targets = package["targets"].as_array().into_iter().flatten();
        targets.flat_map(|target| target["kind"].as_array()).flatten().any(|kind| kind == "lib")
    };
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(is_library);
    let mut names: Vec<String> =
        packages.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect();
    names.sort_unstable();
    Ok(names)
}
