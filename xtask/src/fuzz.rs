//! `cargo xtask fuzz`: the fuzzers of the trace readers, for a given time together.
//!
//! They are built with the coverage of the stable compiler and without a sanitizer (the readers
//! have no `unsafe`), in a directory of their own below the target directory, so that nothing else
//! is rebuilt. Each starts from the corpus that is checked in; what it finds new is left in the
//! target directory, and what fails beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The fuzzers, one for each form.
const TARGETS: [&str; 5] = ["text", "ring", "dat", "perf", "zonal"];

/// Coverage for libFuzzer; `fuzzing` makes readers pass over checksums, which no fuzzer can guess.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Most memory that a reader may use for one input, in MiB.
const MEMORY_MIB: u32 = 2048;
/// Most time for one input, in seconds.
const INPUT_SECONDS: u32 = 20;

/// Lets the engine choose a seed, which it prints.
pub const ANY_SEED: u32 = 0;

/// When the fuzzers end, all together.
#[derive(Clone, Copy)]
pub enum Limit {
    /// After this many seconds.
    Seconds(u64),
    /// After this many inputs.
    Inputs(u64),
}

/// Runs all fuzzers until the limit; true if none found anything.
pub fn run(root: &Path, limit: Limit, seed: u32) -> Result<bool> {
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("note: SKIPPED: the fuzzing engine needs a C++ compiler; none found");
        return Ok(true);
    }
    let host = host(root)?;
    let target = target_directory(root).join("fuzz");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--target", &host, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", FLAGS)
        .current_dir(root.join("fuzz"))
        .status()
        .context("cannot start cargo build in fuzz/")?;
    ensure!(status.success(), "the fuzzers cannot be built");
    let each = |all: u64| (all / TARGETS.len() as u64).max(1);
    let until = match limit {
        Limit::Seconds(seconds) => format!("-max_total_time={}", each(seconds)),
        Limit::Inputs(inputs) => format!("-runs={}", each(inputs)),
    };
    let mut passed = true;
    for name in TARGETS {
        let (new, found) = (target.join("corpus").join(name), target.join("found"));
        for directory in [&new, &found] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("{}: cannot be made", directory.display()))?;
        }
        println!("$ fuzz {name} {until}");
        let output = Command::new(target.join(&host).join("release").join(name))
            .arg(&until)
            .arg(format!("-seed={seed}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            .arg(format!("-artifact_prefix={}/{name}-", found.display()))
            .args([&new, &root.join("fuzz/corpus").join(name)])
            .output()
            .with_context(|| format!("cannot start the fuzzer {name}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => println!("{}", text.lines().last().unwrap_or_default()),
            false => {
                passed = false;
                println!("{text}\nthe input is in {}", found.display());
            }
        }
    }
    Ok(passed)
}

/// The name of this machine's target.
pub fn host(root: &Path) -> Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(root).output();
    let output = output.context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Cargo's target directory.
pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory))
}
