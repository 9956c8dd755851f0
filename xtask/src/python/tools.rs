//! What builds a wheel, makes environments for it and tests it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tools::target_directory;

pub const CRATE: &str = "crates/zonal-python";
pub const MATURIN: &str = "maturin==1.16.0";
/// A linker that knows old versions of the C library, so that the wheel does for hosts older than
/// the one that builds it.
pub const ZIG: &str = "ziglang==0.17.1";
/// The hosts that the wheel is for: glibc 2.17 is of 2012, and the oldest that Rust supports.
const HOSTS: &str = "manylinux_2_17";
/// What runs the tests, and ends one that hangs.
pub const TESTERS: [&str; 2] = ["pytest", "pytest-timeout"];
/// Seconds that no single test takes, on whatever host.
pub const TEST_LIMIT: &str = "--timeout=1200";
/// What reads the results; each is installed if it can be had. PyTorch is not among them: with what
/// it needs it takes six gigabytes.
const READERS: [&str; 15] = [
    "numpy",
    "jax",
    "pyarrow",
    "pandas",
    "polars",
    "duckdb",
    "tqdm",
    "distributed",
    "fsspec",
    "s3fs",
    "moto[server]",
    "optuna",
    "nbclient",
    "nbformat",
    "ipykernel",
];
/// Packages whose level of optimisation the package of Python sets.
const OPTIMISED: [&str; 3] = ["zonal-core", "zonal", "zonal-lab"];
/// The oldest and the newest minor version of CPython 3 that are tried.
pub const MINORS: std::ops::RangeInclusive<u32> = 9..=14;

pub fn skipped(why: &str) -> Result<bool> {
    eprintln!("SKIPPED: the package of Python is neither built nor tested: {why}");
    println!("SKIPPED: cargo xtask python: {why}");
    Ok(true)
}

pub fn without(missing: &[&str]) -> String {
    match missing {
        [] => String::new(),
        missing => format!("; SKIPPED what needs {}", missing.join(", ")),
    }
}

/// The interpreter of this host.
pub fn interpreter() -> Option<PathBuf> {
    let python = PathBuf::from("python3");
    usable(&python, "import sys, venv; sys.exit(sys.version_info < (3, 9))").then_some(python)
}

pub fn usable(python: &Path, code: &str) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", code]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub fn version(python: &Path) -> String {
    let code = "import sys; print('Python', sys.version.split()[0])";
    let output = Command::new(python).args(["-c", code]).output();
    output.map_or_else(
        |_| "Python".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

pub fn bin(environment: &Path, program: &str) -> PathBuf {
    environment.join("bin").join(program)
}

/// A fresh environment with these packages.
pub fn environment(python: &Path, at: &Path, packages: &[&str]) -> Result<()> {
    if at.exists() {
        fs::remove_dir_all(at)?;
    }
    let made = Command::new(python).args(["-m", "venv"]).arg(at).status()?;
    ensure!(made.success(), "python -m venv failed");
    pip(at, packages)
}

pub fn pip(environment: &Path, packages: &[&str]) -> Result<()> {
    let mut command = Command::new(bin(environment, "python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    command.args(["--only-binary", ":all:"]).args(packages);
    ensure!(command.status()?.success(), "pip install {} failed", packages.join(" "));
    Ok(())
}

pub fn run_in(directory: &Path, program: &Path, args: &[&str]) -> Result<bool> {
    eprintln!("$ {} {}", program.display(), args.join(" "));
    let mut command = Command::new(program);
    command.args(args).current_dir(directory).stdout(std::io::stderr());
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(status.success())
}

/// How a wheel is built.
#[derive(Clone, Copy)]
pub enum Build<'a> {
    /// As others get it: for hosts from glibc 2.17 on, which zig links for.
    Release,
    /// For this host, without optimisation across crates.
    Quick,
    /// For this host, from what the tests of this workspace left compiled: see [`shared`].
    Shared(&'a Path),
}

/// The crate is a workspace apart, but its lock file names the same versions. Built where the
/// workspace is, it finds there what others wrote; what the project wrote has other features here
/// and is compiled again, so not optimised. What the environment says of debug lines counts for
/// both.
pub fn shared<'c>(command: &'c mut Command, root: &Path) -> &'c mut Command {
    command.env("CARGO_TARGET_DIR", target_directory(root));
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    if std::env::var_os("CARGO_PROFILE_DEV_DEBUG").is_none() {
        command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    }
    for package in OPTIMISED {
        command.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=0"));
    }
    command
}

/// Builds the wheel; `None` if that fails.
pub fn wheel(
    crate_dir: &Path,
    build: &Path,
    python: &Path,
    to: &Path,
    how: Build,
) -> Result<Option<PathBuf>> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let release = matches!(how, Build::Release);
    let profile = if release { "release" } else { "dev" };
    let mut command = in_environment(build, "maturin")?;
    command.args(["build", "--locked", "--profile", profile, "--interpreter"]).arg(python);
    command.arg("--out").arg(to).current_dir(crate_dir);
    // Its tag says for which hosts it is, and maturin refuses one that needs newer ones. Other
    // wheels stay here.
    command.args(["--compatibility", if release { HOSTS } else { "linux" }]);
    match how {
        Build::Release => _ = command.arg("--zig"),
        Build::Quick => {}
        Build::Shared(root) => _ = shared(&mut command, root),
    }
    if !command.status()?.success() {
        return Ok(None);
    }
    let mut files = fs::read_dir(to)?.filter_map(|file| Some(file.ok()?.path()));
    let wheel = files.find(|file| file.extension().is_some_and(|end| end == "whl"));
    wheel.map(Some).with_context(|| format!("{}: maturin left no wheel", to.display()))
}

/// A fresh environment with the wheel, and the readers that can be had. Returns the others.
pub fn install(python: &Path, at: &Path, wheel: &Path) -> Result<Vec<&'static str>> {
    let path = wheel.display().to_string();
    environment(python, at, &[&[path.as_str()], &TESTERS[..]].concat())?;
    if pip(at, &READERS).is_ok() {
        return Ok(Vec::new());
    }
    Ok(READERS.into_iter().filter(|reader| pip(at, &[reader]).is_err()).collect())
}

/// The tests, in a directory where nothing but the installed package can be imported.
pub fn tests(crate_dir: &Path, environment: &Path, to: &Path) -> Result<bool> {
    let tests = crate_dir.join("tests").display().to_string();
    Ok(pytest(to, environment, &[&tests])?
        & pytest(to, environment, &["--pyargs", "--doctest-modules", "zonal"])?)
}

/// Some of them.
pub fn pytest(to: &Path, environment: &Path, what: &[&str]) -> Result<bool> {
    let cache = format!("cache_dir={}", to.join("pytest").display());
    let args = ["-m", "pytest", "-q", "-rfEs", TEST_LIMIT, "-o", &cache];
    run_in(to, &bin(environment, "python"), &[&args[..], what].concat())
}

/// A program of an environment, as in a shell where that is active.
pub fn in_environment(environment: &Path, program: &str) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = std::iter::once(environment.join("bin")).chain(std::env::split_paths(&path));
    let mut command = Command::new(bin(environment, program));
    command.env("PATH", std::env::join_paths(ours)?).env("VIRTUAL_ENV", environment);
    Ok(command)
}

/// Interpreters of pyenv whose version is one of these.
pub fn pyenv(is_one: impl Fn(&str) -> bool) -> impl Iterator<Item = PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let paths = versions.into_iter().flatten().filter_map(|each| Some(each.ok()?.path()));
    let of_version =
        move |path: &PathBuf| is_one(&path.file_name().unwrap_or_default().to_string_lossy());
    paths.filter(of_version).map(|path| path.join("bin/python"))
}
