//! `cargo xtask deep`: hours of random programs, mutated traces and storms, by choice.
//!
//! It prints a table in Markdown (`record`); the last ones are in `results/`. The counts are those
//! of the run. A part ends at its amount or, with `--limit`, when its time is over; random programs
//! go on with `--seed` where the last run ended, and fuzzers from the inputs they found before.
//!
//! Random programs run with the assertions and overflow checks of a debug build, lightly optimised:
//! with both and at the release profile's level, the compiler takes longer than the run.

use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::fuzz;
use crate::record::Record;
use crate::tools::{cargo, target_directory};

/// How much to run.
#[derive(Clone, Copy)]
pub struct Amounts {
    calls: u64,
    inputs: u64,
    seconds: u64,
    /// Seconds after which a part ends, whatever it has done.
    limit: u64,
    seed: u64,
}

impl Amounts {
    /// Reads `--calls N --inputs N --seconds N --limit N --seed N`, each left out or not; an amount
    /// of 0 leaves its part out.
    pub fn parse(args: &[&str]) -> Result<Amounts> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let (calls, inputs, seconds) = (1_000_000_000, 100_000_000, 600);
        let mut amounts = Amounts { calls, inputs, seconds, limit: u64::from(u32::MAX), seed };
        for pair in args.chunks(2) {
            let &[name, value] = pair else { bail!("{}: expected a number after it", pair[0]) };
            let number = value.parse().with_context(|| format!("{name} {value}"))?;
            match name {
                "--calls" => amounts.calls = number,
                "--inputs" => amounts.inputs = number,
                "--seconds" => amounts.seconds = number,
                "--limit" => amounts.limit = number,
                "--seed" => amounts.seed = number,
                _ => bail!("{name}: expected --calls, --inputs, --seconds, --limit or --seed"),
            }
        }
        Ok(amounts)
    }
}

/// Runs all parts; true if none found anything.
pub fn run(root: &Path, amounts: Amounts) -> Result<bool> {
    let mut record = Record::begin(root, &format!("seed {}", amounts.seed));
    let start = Instant::now();
    if amounts.calls > 0 {
        let (ok, what) = programs(root, amounts)?;
        record.row("random programs", start, ok, &what);
    }
    let start = Instant::now();
    if amounts.inputs > 0 {
        let limit = fuzz::Limit { inputs: Some(amounts.inputs), seconds: Some(amounts.limit) };
        let done = fuzz::run(root, limit, fuzz::ANY_SEED)?;
        record.row("mutated traces", start, done.passed, &done.to_string());
    }
    let start = Instant::now();
    if amounts.seconds > 0 {
        let (ok, what) = storms(root, amounts.seconds.min(amounts.limit), amounts.seed)?;
        record.row("storms", start, ok, &what);
    }
    Ok(record.end())
}

fn programs(root: &Path, amounts: Amounts) -> Result<(bool, String)> {
    let test = "random_programs_match_a_model_of_ownership_for_hours";
    let mut command = cargo(root);
    command.args(["test", "--release", "-p", "zonal-core", "--lib"]);
    command.args(["--features", "history", "--", test, "--ignored", "--nocapture"]);
    command.env("CARGO_TARGET_DIR", target_directory(root).join("deep"));
    for (setting, value) in [
        ("DEBUG_ASSERTIONS", "true"),
        ("OVERFLOW_CHECKS", "true"),
        ("OPT_LEVEL", "1"),
        ("LTO", "off"),
        ("CODEGEN_UNITS", "16"),
    ] {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    command.env("ZONAL_DEEP_CALLS", amounts.calls.to_string());
    command.env("ZONAL_DEEP_LIMIT_S", amounts.limit.to_string());
    command.env("ZONAL_DEEP_SEED", amounts.seed.to_string());
    told(command, "deep: ")
}

fn storms(root: &Path, seconds: u64, seed: u64) -> Result<(bool, String)> {
    let mut command = cargo(root);
    command.args(["run", "--release", "-p", "zonal", "--example", "stress"]);
    command.args(["--", "--hotplug", "--memory-limit", "512"]);
    command.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
    told(command, " rounds: ")
}

/// Runs a command; its last line that holds `words`, or all of its output if it failed.
fn told(mut command: Command, words: &str) -> Result<(bool, String)> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    let text = text.concat();
    let line = text.lines().rev().find_map(|line| line.split_once(words));
    match (output.status.success(), line) {
        (true, Some((before, rest))) => Ok((true, format!("{before}{words}{rest}"))),
        (ok, _) => {
            eprintln!("{text}");
            Ok((false, format!("failed: {ok}, see stderr")))
        }
    }
}
