//! `cargo xtask fuzz`: the fuzzers of the trace readers, for a given time together.
//!
//! They are built with the coverage of the stable compiler and without a sanitizer (the readers
//! have no `unsafe`), in a directory of their own below the target directory, so that nothing else
//! is rebuilt. Each starts from the corpus that is checked in; what it finds new is left in the
//! target directory, and what fails beside it.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::tools::{cargo, target_directory};

/// The fuzzers, one for each form.
const TARGETS: [&str; 6] = ["text", "ring", "dat", "perf", "zonal", "perfetto"];

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

/// The fuzzers take turns of this length: one form takes thirty times as long for an input as
/// another, and the same number of inputs for each would be a run of that one.
const TURN_SECONDS: u64 = 120;

/// Lets the engine choose a seed, which it prints.
pub const ANY_SEED: u32 = 0;

/// When the fuzzers end, all together: at what comes first.
#[derive(Clone, Copy, Default)]
pub struct Limit {
    /// After this many seconds.
    pub seconds: Option<u64>,
    /// After this many inputs.
    pub inputs: Option<u64>,
}

impl Limit {
    /// After this many seconds.
    pub fn seconds(seconds: u64) -> Limit {
        Limit { seconds: Some(seconds), inputs: None }
    }

    /// Arguments of the engine for a turn of one fuzzer; none if the limit is reached. Each form
    /// has its first turn, and no more than its share of the inputs then.
    fn turn(self, turn: usize, inputs: u64, elapsed: u64) -> Option<[String; 2]> {
        let (forms, first) = (TARGETS.len() as u64, turn < TARGETS.len());
        let seconds = self.seconds.unwrap_or(u64::MAX);
        let all = self.inputs.unwrap_or(u64::MAX);
        let most = if first { (all / forms).max(1) } else { all.saturating_sub(inputs) };
        // The engine takes a signed number of 32 bits, and -1 as no bound.
        let most = most.min(i32::MAX as u64);
        let length = TURN_SECONDS.min((seconds / forms).max(1));
        let goes_on = first || (most > 0 && elapsed < seconds);
        goes_on.then(|| [format!("-max_total_time={length}"), format!("-runs={most}")])
    }
}

/// What was run.
#[derive(Clone, Copy)]
pub struct Done {
    /// Whether no fuzzer found anything.
    pub passed: bool,
    /// Inputs of each fuzzer, of turns that ended well.
    inputs: [u64; TARGETS.len()],
    skipped: bool,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skipped {
            true => write!(f, "SKIPPED: there is no C++ compiler"),
            false => {
                write!(f, "{} inputs:", self.inputs.iter().sum::<u64>())?;
                let mut forms = TARGETS.iter().zip(self.inputs);
                forms.try_for_each(|(form, inputs)| write!(f, " {form} {inputs}"))
            }
        }
    }
}

/// Runs all fuzzers until the limit.
pub fn run(root: &Path, limit: Limit, seed: u32) -> Result<Done> {
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("note: SKIPPED: the fuzzing engine needs a C++ compiler; none found");
        return Ok(Done { passed: true, inputs: [0; TARGETS.len()], skipped: true });
    }
    let host = host(root)?;
    let target = target_directory(root).join("fuzz");
    let status = cargo(&root.join("fuzz"))
        .args(["build", "--release", "--target", &host, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cannot start cargo build in fuzz/")?;
    ensure!(status.success(), "the fuzzers cannot be built");
    let mut done = Done { passed: true, inputs: [0; TARGETS.len()], skipped: false };
    let start = Instant::now();
    for turn in 0.. {
        let form = turn % TARGETS.len();
        let elapsed = start.elapsed().as_secs();
        let Some(until) = limit.turn(turn, done.inputs.iter().sum(), elapsed) else { break };
        let name = TARGETS[form];
        let (new, found) = (target.join("corpus").join(name), target.join("found"));
        for directory in [&new, &found] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("{}: cannot be made", directory.display()))?;
        }
        eprintln!("$ fuzz {name} {}", until.join(" "));
        let output = Command::new(target.join(&host).join("release").join(name))
            .args(&until)
            .arg(format!("-seed={seed}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            .arg(format!("-artifact_prefix={}/{name}-", found.display()))
            .args([&new, &root.join("fuzz/corpus").join(name)])
            .output()
            .with_context(|| format!("cannot start the fuzzer {name}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            eprintln!("{text}\nthe input is in {}", found.display());
            done.passed = false;
            break;
        }
        let last = text.lines().last().unwrap_or_default();
        eprintln!("{last}");
        done.inputs[form] += runs(last);
    }
    Ok(done)
}

/// The number in the engine's last line, `Done 123 runs in 4 second(s)`.
fn runs(line: &str) -> u64 {
    line.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The name of this machine's target.
pub fn host(root: &Path) -> Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(root).output();
    let output = output.context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Limit, TARGETS};

    #[test]
    fn each_form_has_a_turn_and_the_limit_is_kept() {
        let all = 2 * TARGETS.len() as u64;
        let few = Limit { seconds: None, inputs: Some(all) };
        for turn in 0..TARGETS.len() {
            let until = few.turn(turn, 2 * turn as u64, 1_000_000).unwrap();
            assert_eq!(until[1], "-runs=2");
        }
        assert_eq!(few.turn(TARGETS.len(), all, 0), None);
        let short = Limit::seconds(5);
        assert!(short.turn(TARGETS.len() - 1, 1, 8).is_some());
        assert_eq!(short.turn(TARGETS.len(), 1, 8), None);
    }
}
