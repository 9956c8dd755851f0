//! `cargo xtask engine`: an embedded engine's own tests, with its storage in the page cache.
//!
//! The engine is redb, as published. `adapters/redb` puts a redb storage backend on an
//! `EngineCache`. The published sources are copied twice, below target/engine: once as they are,
//! and once with the lines changed that open a file, so that every database that any test opens by
//! its path has its pages in one small cache of the process. Both run all of redb's tests; what
//! passes without the cache must pass with it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::tools::{self, target_directory};

/// What the copy under the cache has besides: the adapter's own source, and one cache for all.
const MODULE: &str = r#"//! Files of this process in one page cache, far too small for them.
#[path = "@ADAPTER@/src/cached.rs"]
mod cached;
mod engine {
    pub(crate) use crate::{BackendError, StorageBackend};
}
use std::sync::{Arc, LazyLock};

static CACHE: LazyLock<zonal_cache::EngineCache> = LazyLock::new(|| {
    let pool = zonal::Pool::builder().size(16 << 20).build().unwrap();
    let cache = zonal_cache::EngineCache::builder(Arc::new(pool));
    cache.page_bytes(16 << 10).max_pages(256).build().unwrap()
});

pub(crate) fn under_cache<S: crate::StorageBackend>(
    storage: S,
) -> std::io::Result<cached::Cached<S>> {
    static REPORT: std::sync::Once = std::sync::Once::new();
    REPORT.call_once(|| {
        // SAFETY: (1) a plain function that lives as long as the program.
        unsafe { libc::atexit(report) };
    });
    cached::Cached::new(storage, &CACHE)
}

extern "C" fn report() {
    let stats = CACHE.stats();
    eprintln!("\npage-cache {} {} {} {}", stats.hits, stats.misses, stats.evicted, stats.written);
}
"#;
/// The line that opens a file, what it becomes, and how often it is there.
const OPENS: (&str, &str, usize) = (
    "Box::new(FileBackend::from_file(file)),",
    "Box::new(crate::zonal_engine::under_cache(FileBackend::from_file(file))?),",
    3,
);

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// What the tests of a copy did.
#[derive(Default)]
struct Tests {
    /// By program and name.
    outcomes: BTreeMap<(String, String), Outcome>,
    /// Pages that the page cache of all programs hit, missed, evicted and wrote.
    pages: [u64; 4],
}

impl Tests {
    /// Reads what `cargo test` printed.
    fn parse(output: &str) -> Tests {
        let (mut program, mut tests) = (String::new(), Tests::default());
        for line in output.lines() {
            let line = line.trim_start();
            if let Some(rest) = line.strip_prefix("Running ") {
                let path = rest.strip_prefix("unittests ").unwrap_or(rest);
                program = path.split(' ').next().unwrap_or(path).to_owned();
            }
            if let Some(counts) = line.strip_prefix("page-cache ") {
                let counts = counts.split(' ').map(|count| count.parse().unwrap_or(0));
                tests.pages.iter_mut().zip(counts).for_each(|(sum, count): (_, u64)| *sum += count);
            }
            let Some((name, outcome)) =
                line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            else {
                continue;
            };
            let outcome = match outcome.split([',', ' ']).next() {
                Some("ok") => Outcome::Passed,
                Some("ignored") => Outcome::Ignored,
                _ => Outcome::Failed,
            };
            tests.outcomes.insert((program.clone(), name.to_owned()), outcome);
        }
        tests
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.values().filter(|of| **of == outcome).count()
    }
}

impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [passed, failed, ignored] =
            [Outcome::Passed, Outcome::Failed, Outcome::Ignored].map(|of| self.count(of));
        write!(f, "{passed} passed, {failed} failed, {ignored} ignored")
    }
}

/// Runs both; true if the cache changes no test's outcome to the worse.
pub fn run(root: &Path) -> Result<bool> {
    let adapter = root.join("adapters/redb");
    let (source, version) = published(&adapter, "redb")?;
    let out = target_directory(root).join("engine");
    fs::create_dir_all(&out)?;
    println!("redb {version}, its own tests");
    let plain = copy(&source, &out.join("plain"))?;
    let before = test(&plain, &out)?;
    println!("on its own file backend: {before}");
    let cached = copy(&source, &out.join("cached"))?;
    patch(&cached, root, &adapter)?;
    let after = test(&cached, &out)?;
    println!("under the page cache:    {after}");
    let [hits, misses, evicted, written] = after.pages;
    println!("the cache: {hits} hits, {misses} misses, {evicted} evicted, {written} written");
    ensure!(before.count(Outcome::Passed) > 0, "no test ran: see {}", out.display());
    ensure!(evicted > 0, "no page went through the cache: see {}", out.display());
    let mut worse = 0;
    for ((program, name), was) in &before.outcomes {
        let is = after.outcomes.get(&(program.clone(), name.clone()));
        if *was == Outcome::Passed && is != Some(&Outcome::Passed) {
            println!("{program}: {name}: passed, and under the cache {is:?}");
            worse += 1;
        }
    }
    println!("{worse} tests that pass without the cache do not pass with it");
    Ok(worse == 0)
}

/// Directory and version of a package that the adapter depends on.
fn published(adapter: &Path, name: &str) -> Result<(PathBuf, String)> {
    let metadata = cargo(adapter)
        .args(["metadata", "--format-version", "1"])
        .output()
        .context("cargo metadata")?;
    ensure!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let package = packages.iter().find(|package| package["name"] == name);
    let package = package.with_context(|| format!("{name} is not among the packages"))?;
    let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
    let version = package["version"].as_str().context("a package without a version")?;
    let directory = Path::new(manifest).parent().context("a manifest without a directory")?;
    Ok((directory.to_path_buf(), version.to_owned()))
}

/// A fresh copy that is a workspace of its own and is built by this toolchain.
fn copy(source: &Path, to: &Path) -> Result<PathBuf> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    copy_tree(source, to).with_context(|| format!("{} to {}", source.display(), to.display()))?;
    let toolchain = to.join("rust-toolchain");
    if toolchain.exists() {
        fs::remove_file(toolchain)?;
    }
    append(&to.join("Cargo.toml"), "\n[workspace]\n")?;
    Ok(to.to_path_buf())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &to)?,
            // Not `fs::copy`: sources in the registry may be read-only.
            false => fs::write(to, fs::read(entry.path())?)?,
        }
    }
    Ok(())
}

fn append(path: &Path, text: &str) -> Result<()> {
    let before = fs::read_to_string(path)?;
    fs::write(path, before + text).with_context(|| format!("{}", path.display()))
}

/// Puts the pages of every file that is opened into the cache.
fn patch(copy: &Path, root: &Path, adapter: &Path) -> Result<()> {
    let crates = root.join("crates");
    let dependencies = ["zonal", "zonal-cache"].map(|name| {
        format!("\n[dependencies.{name}]\npath = {:?}\n", crates.join(name).display().to_string())
    });
    append(&copy.join("Cargo.toml"), &dependencies.concat())?;
    let adapter = adapter.display().to_string();
    fs::write(copy.join("src/zonal_engine.rs"), MODULE.replace("@ADAPTER@", &adapter))?;
    append(&copy.join("src/lib.rs"), "\nmod zonal_engine;\n")?;
    let path = copy.join("src/db.rs");
    let text = fs::read_to_string(&path)?;
    let (line, becomes, times) = OPENS;
    let found = text.matches(line).count();
    if found != times {
        bail!("{}: {found} lines open a file, expected {times}: {line}", path.display());
    }
    fs::write(&path, text.replace(line, becomes))?;
    Ok(())
}

/// Runs all tests of a copy.
fn test(copy: &Path, out: &Path) -> Result<Tests> {
    let log = copy.with_extension("log");
    let output = File::create(&log)?;
    let status = cargo(copy)
        .args(["test", "--lib", "--tests", "--no-fail-fast"])
        .arg("--target-dir")
        .arg(out.join("build"))
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("cargo test")?;
    let text = fs::read_to_string(&log)?;
    let tests = Tests::parse(&text);
    // A program that died printed no result of its last tests.
    let died = text.lines().any(|line| line.contains("process didn't exit successfully"));
    if !status.success() && tests.count(Outcome::Failed) == 0 || died {
        println!("note: not every program came to its end: {}", log.display());
    }
    Ok(tests)
}

fn cargo(directory: &Path) -> Command {
    let mut cargo = tools::cargo(directory);
    cargo.env_remove("RUSTFLAGS");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_test_prints_is_counted_by_program_and_name() {
        let tests = Tests::parse(
            "     Running unittests src/lib.rs (build/redb-1)\n\
             test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... ok\n\
                  Running tests/x.rs (build/x-1)\n\
             test a::b ... ignored, too long\ntest result: ok. 1 passed; 0 failed\n\
             page-cache 10 2 1 0\npage-cache 1 1 1 1\n",
        );
        assert_eq!(tests.pages, [11, 3, 2, 1]);
        assert_eq!(tests.to_string(), "2 passed, 1 failed, 1 ignored");
        let key = ("tests/x.rs".to_owned(), "a::b".to_owned());
        assert_eq!(tests.outcomes[&key], Outcome::Ignored);
    }
}
