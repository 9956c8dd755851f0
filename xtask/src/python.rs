//! `cargo xtask python`: the package of Python as others get it. Builds the wheel by maturin in a
//! fresh environment, linked by zig for hosts from glibc 2.17 on, installs it into another with
//! what reads Arrow and DLPack, runs its tests and examples there, checks its types with mypy and
//! pyright, and repeats the tests with every other interpreter from 3.9 on that is there.
//!
//! `--quick`: a wheel without optimisation across crates, this interpreter only, no types. Without
//! an interpreter or the registry of packages it says SKIPPED and passes. CI runs `check`, which
//! needs neither, and `--smoke`: the quick wheel in an environment with nothing else, tried once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::fuzz::target_directory;
use crate::record::Record;
use crate::tools::cargo;

const CRATE: &str = "crates/zonal-python";
const MATURIN: &str = "maturin==1.16.0";
/// A linker that knows old versions of the C library, so that the wheel does for hosts older than
/// the one that builds it.
const ZIG: &str = "ziglang==0.17.1";
/// The hosts that the wheel is for: glibc 2.17 is of 2012, and the oldest that Rust supports.
const HOSTS: &str = "manylinux_2_17";
/// What runs the tests, and ends one that hangs.
const TESTERS: [&str; 2] = ["pytest", "pytest-timeout"];
/// Seconds that no single test takes, on whatever host.
const TEST_LIMIT: &str = "--timeout=1200";
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
const CHECKERS: [&str; 2] = ["mypy", "pyright[nodejs]"];
/// The oldest and the newest minor version of CPython 3 that are tried.
const MINORS: std::ops::RangeInclusive<u32> = 9..=14;

/// All of it; true if nothing failed.
pub fn run(root: &Path, quick: bool) -> Result<bool> {
    let to = target_directory(root).join("python");
    let crate_dir = root.join(CRATE);
    let Some(python) = interpreter() else {
        return skipped("no python3 of version 3.9 or newer, with venv, was found");
    };
    let build = to.join("build");
    let tools: &[&str] = if quick { &[MATURIN] } else { &[MATURIN, ZIG] };
    if let Err(error) = environment(&python, &build, tools) {
        return skipped(&format!("{} cannot be installed: {error:#}", tools.join(" and ")));
    }
    let mut record = Record::begin(root, &version(&python));

    let start = Instant::now();
    let checked = check(root)?;
    record.row("source", start, checked, "fmt, clippy");

    let start = Instant::now();
    let built = wheel(&crate_dir, &build, &python, &to.join("wheels"), quick)?;
    let Some(wheel) = built else {
        record.row("wheel", start, false, "maturin build failed: see above");
        return Ok(record.end());
    };
    let bytes = fs::metadata(&wheel)?.len();
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    record.row("wheel", start, true, &format!("{name}, {} KiB", bytes >> 10));

    let start = Instant::now();
    let test = to.join("test");
    let missing = install(&python, &test, &wheel)?;
    let tested = tests(&crate_dir, &test, &to)?;
    record.row("tests", start, tested, &format!("pytest{}", without(&missing)));

    let start = Instant::now();
    let shown = run_in(&crate_dir, &bin(&test, "python"), &["examples/kv_cache.py"])?;
    record.row("example", start, shown, "examples/kv_cache.py");

    if !quick {
        types(&mut record, &crate_dir, &test)?;
        others(&mut record, &crate_dir, &to, &python, &wheel)?;
    }
    Ok(record.end())
}

/// Builds the quick wheel, installs it into a fresh environment with nothing else, and runs
/// `tests/smoke.py` there.
pub fn smoke(root: &Path) -> Result<bool> {
    let to = target_directory(root).join("python-smoke");
    let crate_dir = root.join(CRATE);
    let Some(python) = interpreter() else {
        return skipped("no python3 of version 3.9 or newer, with venv, was found");
    };
    let build = to.join("build");
    if let Err(error) = environment(&python, &build, &[MATURIN]) {
        return skipped(&format!("{MATURIN} cannot be installed: {error:#}"));
    }
    let Some(wheel) = wheel(&crate_dir, &build, &python, &to.join("wheels"), true)? else {
        return Ok(false);
    };
    let fresh = to.join("fresh");
    environment(&python, &fresh, &["--no-index", &wheel.display().to_string()])?;
    let program = crate_dir.join("tests/smoke.py").display().to_string();
    run_in(&to, &bin(&fresh, "python"), &[&program])
}

/// What does not take long: `--smoke`, or all of it with the quick wheel.
pub fn quick(root: &Path, how: &str) -> Result<bool> {
    if how == "--smoke" { smoke(root) } else { run(root, true) }
}

fn skipped(why: &str) -> Result<bool> {
    eprintln!("SKIPPED: the package of Python is neither built nor tested: {why}");
    println!("SKIPPED: cargo xtask python: {why}");
    Ok(true)
}

fn without(missing: &[&str]) -> String {
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

fn usable(python: &Path, code: &str) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", code]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn version(python: &Path) -> String {
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

fn pip(environment: &Path, packages: &[&str]) -> Result<()> {
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

/// What the workspace's own steps do not reach: the crate is a workspace apart. The stable ABI is
/// the same for all, so this needs no Python.
pub fn check(root: &Path) -> Result<bool> {
    let mut passed = true;
    for args in [&["fmt", "--check"][..], &["clippy", "--locked", "--", "-D", "warnings"]] {
        let mut command = cargo(root);
        command.args(args).current_dir(root.join(CRATE));
        command.env("PYO3_NO_PYTHON", "1").env("PYO3_BUILD_EXTENSION_MODULE", "1");
        passed &= command.status().context("cannot start cargo")?.success();
    }
    Ok(passed)
}

/// Builds the wheel; `None` if that fails.
fn wheel(
    crate_dir: &Path,
    build: &Path,
    python: &Path,
    to: &Path,
    quick: bool,
) -> Result<Option<PathBuf>> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let profile = if quick { "dev" } else { "release" };
    let mut command = in_environment(build, "maturin")?;
    command.args(["build", "--locked", "--profile", profile, "--interpreter"]).arg(python);
    command.arg("--out").arg(to).current_dir(crate_dir);
    // Its tag says for which hosts it is, and maturin refuses one that needs newer ones. The quick
    // wheel stays here.
    command.args(["--compatibility", if quick { "linux" } else { HOSTS }]);
    if !quick {
        command.arg("--zig");
    }
    if !command.status()?.success() {
        return Ok(None);
    }
    let mut files = fs::read_dir(to)?.filter_map(|file| Some(file.ok()?.path()));
    let wheel = files.find(|file| file.extension().is_some_and(|end| end == "whl"));
    wheel.map(Some).with_context(|| format!("{}: maturin left no wheel", to.display()))
}

/// A fresh environment with the wheel, and the readers that can be had. Returns the others.
fn install(python: &Path, at: &Path, wheel: &Path) -> Result<Vec<&'static str>> {
    let path = wheel.display().to_string();
    environment(python, at, &[&[path.as_str()], &TESTERS[..]].concat())?;
    if pip(at, &READERS).is_ok() {
        return Ok(Vec::new());
    }
    Ok(READERS.into_iter().filter(|reader| pip(at, &[reader]).is_err()).collect())
}

/// The tests, in a directory where nothing but the installed package can be imported.
fn tests(crate_dir: &Path, environment: &Path, to: &Path) -> Result<bool> {
    let python = bin(environment, "python");
    let tests = crate_dir.join("tests").display().to_string();
    let cache = format!("cache_dir={}", to.join("pytest").display());
    let args = ["-m", "pytest", "-q", "-rs", TEST_LIMIT, "-o", &cache];
    let package = ["--pyargs", "--doctest-modules", "zonal"];
    Ok(run_in(to, &python, &[&args[..], &[tests.as_str()]].concat())?
        & run_in(to, &python, &[&args[..], &package].concat())?)
}

/// Types of the package, its stubs beside what is there, and the example.
fn types(record: &mut Record, crate_dir: &Path, environment: &Path) -> Result<()> {
    for checker in CHECKERS {
        let start = Instant::now();
        if pip(environment, &[checker]).is_err() {
            eprintln!("SKIPPED: {checker} cannot be installed");
            record.row("types", start, true, &format!("SKIPPED: {checker} cannot be installed"));
            continue;
        }
        let python = bin(environment, "python");
        let (name, passed) = match checker {
            "mypy" => {
                let sources = ["-m", "mypy", "--strict", "python/zonal", "examples"];
                let stubs = ["-m", "mypy.stubtest", "zonal._native"];
                let all = run_in(crate_dir, &python, &sources)?;
                ("mypy --strict, stubtest", all & run_in(crate_dir, &python, &stubs)?)
            }
            _ => {
                let path = python.display().to_string();
                let sources = ["-m", "pyright", "--pythonpath", &path, "python/zonal", "examples"];
                let known = ["--verifytypes", "zonal", "--ignoreexternal"];
                let all = run_in(crate_dir, &python, &sources)?;
                ("pyright, --verifytypes", all & activated(crate_dir, environment, &known)?)
            }
        };
        record.row("types", start, passed, name);
    }
    Ok(())
}

/// Runs pyright as in a shell where the environment is active: it looks for packages by that.
fn activated(directory: &Path, environment: &Path, args: &[&str]) -> Result<bool> {
    let mut command = in_environment(environment, "pyright")?;
    command.args(args).current_dir(directory).stdout(std::io::stderr());
    Ok(command.status().context("cannot start pyright")?.success())
}

/// A program of an environment, as in a shell where that is active.
fn in_environment(environment: &Path, program: &str) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = std::iter::once(environment.join("bin")).chain(std::env::split_paths(&path));
    let mut command = Command::new(bin(environment, program));
    command.env("PATH", std::env::join_paths(ours)?).env("VIRTUAL_ENV", environment);
    Ok(command)
}

/// The same wheel in the other interpreters that are there.
fn others(
    record: &mut Record,
    crate_dir: &Path,
    to: &Path,
    python: &Path,
    wheel: &Path,
) -> Result<()> {
    let own = version(python);
    for minor in MINORS {
        let Some(other) = found(minor).filter(|other| version(other) != own) else { continue };
        let start = Instant::now();
        let at = to.join(format!("test-3.{minor}"));
        let missing = install(&other, &at, wheel)?;
        let tested = tests(crate_dir, &at, to)?;
        let what = format!("{}: the same wheel{}", version(&other), without(&missing));
        record.row("tests", start, tested, &what);
    }
    Ok(())
}

/// CPython 3.`minor`, on the path or among pyenv's.
fn found(minor: u32) -> Option<PathBuf> {
    let named = PathBuf::from(format!("python3.{minor}"));
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let of_minor = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&format!("3.{minor}."))
    };
    let versions = versions.into_iter().flatten().filter_map(|each| Some(each.ok()?.path()));
    let pyenv = versions.filter(of_minor).map(|path| path.join("bin/python"));
    let code = format!("import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))");
    std::iter::once(named).chain(pyenv).find(|python| usable(python, &code))
}
