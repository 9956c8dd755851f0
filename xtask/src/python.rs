//! `cargo xtask python`: the package of Python as others get it. Builds the wheel by maturin in a
//! fresh environment, linked by zig for hosts from glibc 2.17 on, installs it into another with
//! what reads Arrow and DLPack, runs its tests and examples there, checks its types with mypy and
//! pyright, and repeats the tests with every other interpreter from 3.9 on that is there.
//!
//! A free-threaded interpreter gets a wheel of its own (`free`).
//!
//! `--quick`: a wheel without optimisation across crates, this interpreter only, no types. Without
//! an interpreter or the registry of packages it says SKIPPED and passes. CI runs `check`, which
//! needs neither, and `--smoke`: a wheel from what the workspace's tests left compiled, in an
//! environment with nothing else, tried once, and the tests of what results are made of.

mod free;
pub mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::tools::{
    Build, CRATE, MATURIN, MINORS, TESTERS, ZIG, bin, environment, in_environment, install,
    interpreter, pip, pyenv, pytest, run_in, shared, skipped, tests, usable, version, wheel,
    without,
};
use crate::record::Record;
use crate::tools::{cargo, target_directory};

/// Whether results have the fields that the library writes, and what the pages name is there.
const QUICK: [&str; 2] = ["tests/test_results.py", "tests/test_documented.py"];
const CHECKERS: [&str; 2] = ["mypy", "pyright[nodejs]"];

/// All of it; true if nothing failed.
fn run(root: &Path, quick: bool) -> Result<bool> {
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
    let how = if quick { Build::Quick } else { Build::Release };
    let built = wheel(&crate_dir, &build, &python, &to.join("wheels"), how)?;
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
        free::step(&mut record, &crate_dir, &to, &build)?;
    }
    Ok(record.end())
}

/// Builds the shared wheel, installs it into a fresh environment with nothing else, and runs
/// `tests/smoke.py` there; then, with pytest, the tests of what the library's other crates decide.
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
    let Some(wheel) = wheel(&crate_dir, &build, &python, &to.join("wheels"), Build::Shared(root))?
    else {
        return Ok(false);
    };
    let fresh = to.join("fresh");
    environment(&python, &fresh, &["--no-index", &wheel.display().to_string()])?;
    let program = crate_dir.join("tests/smoke.py").display().to_string();
    let works = run_in(&to, &bin(&fresh, "python"), &[&program])?;
    if pip(&fresh, &TESTERS).is_err() {
        eprintln!("SKIPPED: {} cannot be installed", TESTERS.join(" and "));
        return Ok(works);
    }
    let quick = QUICK.map(|path| crate_dir.join(path).display().to_string());
    Ok(works & pytest(&to, &fresh, &[&quick[0], &quick[1]])?)
}

/// What the arguments ask for.
pub fn command(root: &Path, args: &[&str]) -> Result<bool> {
    match args {
        [] => run(root, false),
        ["--quick"] => run(root, true),
        ["--smoke"] => smoke(root),
        ["--free-threaded"] => free::run(root, None),
        ["--free-threaded", python] => free::run(root, Some(python)),
        _ => bail!(
            "python {}: expected --quick, --smoke or --free-threaded [PYTHON]",
            args.join(" ")
        ),
    }
}

/// What the workspace's own steps do not reach: the crate is a workspace apart. The stable ABI is
/// the same for all, so this needs no Python.
pub fn check(root: &Path) -> Result<bool> {
    let mut passed = true;
    for args in [&["fmt", "--check"][..], &["clippy", "--locked", "--", "-D", "warnings"]] {
        let mut command = cargo(root);
        command.current_dir(root.join(CRATE)).args(&args[..1]);
        if args[0] != "fmt" {
            shared(&mut command, root);
        }
        command.args(&args[1..]);
        command.env("PYO3_NO_PYTHON", "1").env("PYO3_BUILD_EXTENSION_MODULE", "1");
        passed &= command.status().context("cannot start cargo")?.success();
    }
    Ok(passed)
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
    let prefix = format!("3.{minor}.");
    let pyenv = pyenv(|name| name.starts_with(&prefix) && !name.ends_with('t'));
    let code = format!("import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))");
    std::iter::once(named).chain(pyenv).find(|python| usable(python, &code))
}
