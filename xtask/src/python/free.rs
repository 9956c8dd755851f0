//! Free-threaded interpreters: CPython without its lock, of 3.14 and later. They have no stable ABI
//! before 3.15, so each gets a wheel of its own, from the same sources and features: PyO3 leaves
//! `abi3` aside for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::tools::{
    Build, CRATE, MATURIN, MINORS, TEST_LIMIT, ZIG, bin, environment, install, interpreter, pyenv,
    run_in, skipped, tests, usable, version, wheel, without,
};
use crate::record::Record;
use crate::tools::target_directory;

/// Whether an interpreter is one, and can make environments. PyO3 says which versions it knows.
const IS_ONE: &str = "import sys, sysconfig, venv; \
     sys.exit(not sysconfig.get_config_var('Py_GIL_DISABLED'))";
/// What tells of a free-threaded interpreter in its name.
const MARKS: [&str; 2] = ["t", "-nogil"];

/// `--free-threaded [PYTHON]`: builds the release wheel for that interpreter, or one that is found,
/// and tests it there.
pub fn run(root: &Path, named: Option<&str>) -> Result<bool> {
    let to = target_directory(root).join("python");
    let python = match named {
        Some(name) if !usable(Path::new(name), IS_ONE) => {
            anyhow::bail!("{name}: expected a free-threaded CPython, with venv")
        }
        Some(name) => PathBuf::from(name),
        None => match found() {
            Some(python) => python,
            None => return skipped(NONE),
        },
    };
    let Some(host) = interpreter() else {
        return skipped("no python3 of version 3.9 or newer, with venv, was found");
    };
    let build = to.join("build");
    if let Err(error) = environment(&host, &build, &[MATURIN, ZIG]) {
        return skipped(&format!("{MATURIN} and {ZIG} cannot be installed: {error:#}"));
    }
    let mut record = Record::begin(root, &version(&python));
    each(&mut record, &root.join(CRATE), &to, &build, &python)?;
    Ok(record.end())
}

/// What is said where there is none.
const NONE: &str = "no free-threaded CPython of 3.14 or later, such as python3.14t, was found; \
     --free-threaded PYTHON names one";

/// The step of the whole run, which has made the environment `build`.
pub fn step(record: &mut Record, crate_dir: &Path, to: &Path, build: &Path) -> Result<()> {
    if let Some(python) = found() {
        return each(record, crate_dir, to, build, &python);
    }
    eprintln!("SKIPPED: {NONE}");
    record.row("free-threaded", Instant::now(), true, &format!("SKIPPED: {NONE}"));
    Ok(())
}

fn each(
    record: &mut Record,
    crate_dir: &Path,
    to: &Path,
    build: &Path,
    python: &Path,
) -> Result<()> {
    let start = Instant::now();
    let Some(wheel) = wheel(crate_dir, build, python, &to.join("wheels-t"), Build::Release)? else {
        record.row("free-threaded", start, false, "maturin build failed: see above");
        return Ok(());
    };
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A wheel of the stable ABI would not even load there.
    record.row("free-threaded", start, !name.contains("abi3"), &name);

    // Alone first: the module, its threads and nothing that might switch the GIL on.
    let start = Instant::now();
    let alone = to.join("test-t-alone");
    environment(python, &alone, &[&wheel.display().to_string(), "pytest", "pytest-timeout"])?;
    let smoke = crate_dir.join("tests/smoke.py").display().to_string();
    let threads = crate_dir.join("tests/test_threads.py").display().to_string();
    let cache = format!("cache_dir={}", to.join("pytest").display());
    let args = ["-m", "pytest", "-q", "-rfEs", TEST_LIMIT, "-o", &cache, threads.as_str()];
    let tried =
        run_in(to, &bin(&alone, "python"), &[&smoke])? & run_in(to, &bin(&alone, "python"), &args)?;
    record.row("free-threaded", start, tried, "smoke.py and test_threads.py, nothing else there");

    let start = Instant::now();
    let test = to.join("test-t");
    let missing = install(python, &test, &wheel)?;
    let is_on = gil_is_on(&bin(&test, "python"), &missing)?;
    let tested = tests(crate_dir, &test, to)?;
    let gil = match is_on.as_slice() {
        [] => "no reader switches the GIL on".into(),
        names => format!("the GIL was switched on by {}", names.join(", ")),
    };
    record.row("free-threaded", start, tested, &format!("pytest{}; {gil}", without(&missing)));
    Ok(())
}

/// Readers that switch the GIL on when they are imported.
fn gil_is_on(python: &Path, missing: &[&str]) -> Result<Vec<&'static str>> {
    let names = ["numpy", "pyarrow", "pandas", "polars", "duckdb", "jax", "distributed", "optuna"];
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| !missing.contains(name)) {
        let code = format!("import sys, zonal, {name}; sys.exit(7 * sys._is_gil_enabled())");
        let status = Command::new(python).args(["-W", "ignore", "-c", &code]).status();
        if status.context("cannot start Python")?.code() == Some(7) {
            found.push(name);
        }
    }
    Ok(found)
}

/// A free-threaded interpreter, on the path or among pyenv's.
fn found() -> Option<PathBuf> {
    let minors = MINORS.filter(|minor| *minor >= 14).rev();
    let named = minors.flat_map(|minor| MARKS.map(|mark| format!("python3.{minor}{mark}").into()));
    let ours = |name: &str| name.starts_with("3.") && name.ends_with('t');
    named.chain(pyenv(ours)).find(|python: &PathBuf| usable(python, IS_ONE))
}
