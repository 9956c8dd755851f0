//! `cargo xtask deep`: hours of random programs, mutated traces and storms, by choice.
//!
//! It prints a table in Markdown with the date and the commit; the last one is in `results/`.

use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::fuzz;

/// How much to run.
#[derive(Clone, Copy)]
pub struct Amounts {
    calls: u64,
    inputs: u64,
    seconds: u64,
}

impl Amounts {
    /// Reads `--calls N --inputs N --seconds N`, each left out or not; 0 leaves that part out.
    pub fn parse(args: &[&str]) -> Result<Amounts> {
        let mut amounts = Amounts { calls: 1_000_000_000, inputs: 100_000_000, seconds: 600 };
        for pair in args.chunks(2) {
            let &[name, value] = pair else { bail!("{}: expected a number after it", pair[0]) };
            let number = value.parse().with_context(|| format!("{name} {value}"))?;
            match name {
                "--calls" => amounts.calls = number,
                "--inputs" => amounts.inputs = number,
                "--seconds" => amounts.seconds = number,
                _ => bail!("{name}: expected --calls, --inputs or --seconds"),
            }
        }
        Ok(amounts)
    }
}

/// Runs all parts; true if none found anything.
pub fn run(root: &Path, amounts: Amounts) -> Result<bool> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    println!("commit {}, seed {seed}\n", commit(root));
    println!("| part | passed | seconds | what was run |\n|--|--|--:|--|");
    let mut passed = true;
    let mut row = |part: &str, start: Instant, (ok, what): (bool, String)| {
        let word = if ok { "yes" } else { "NO" };
        println!("| {part} | {word} | {:.0} | {what} |", start.elapsed().as_secs_f64());
        passed &= ok;
    };
    if amounts.calls > 0 {
        let start = Instant::now();
        row("random programs", start, programs(root, amounts.calls, seed)?);
    }
    if amounts.inputs > 0 {
        let start = Instant::now();
        let ok = fuzz::run(root, fuzz::Limit::Inputs(amounts.inputs), fuzz::ANY_SEED)?;
        row("mutated traces", start, (ok, format!("{} inputs, five forms", amounts.inputs)));
    }
    if amounts.seconds > 0 {
        let start = Instant::now();
        row("storms", start, storms(root, amounts.seconds, seed)?);
    }
    Ok(passed)
}

fn programs(root: &Path, calls: u64, seed: u64) -> Result<(bool, String)> {
    let test = "random_programs_match_a_model_of_ownership_for_hours";
    let mut command = cargo(root, &["test", "--release", "-p", "zonal-core", "--lib"]);
    command.args(["--features", "history", "--", test, "--ignored", "--nocapture"]);
    command.env("ZONAL_DEEP_CALLS", calls.to_string()).env("ZONAL_DEEP_SEED", seed.to_string());
    told(command, "deep: ")
}

fn storms(root: &Path, seconds: u64, seed: u64) -> Result<(bool, String)> {
    let mut command = cargo(root, &["run", "--release", "-p", "zonal", "--example", "stress"]);
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

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root);
    command
}

fn commit(root: &Path) -> String {
    let output =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    output.map_or_else(|_| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().into())
}
