//! Stress: storms over pools of every kind until the time is up, each page with an owner's stamp.
//!
//! ```sh
//! cargo run --release -p zonal --example stress -- --seconds 60
//! cargo run --release -p zonal --example stress -- --seconds 600 --hotplug --memory-limit 256
//! ```
//! Each round draws a plan from the seed and prints it in one line: mode, threads, orders, rate of
//! signals, nodes, size, policy. A round is one storm (`tests/support/storm.rs`): workers allocate,
//! free, use the bulk calls and hand blocks to each other; signal handlers allocate and free on the
//! threads they interrupt; threads move between CPUs; others drain, trim, change the budget and
//! sysctls. Checked all the time: a page has one owner, and keeps what its owner wrote. Checked at
//! the end of a round: every page came back, every counter agrees, `Pool::validate` finds nothing.
//!
//! Behind each storm threads free the same blocks at the same moment, in every way that there is
//! (`tests/support/raced.rs`), in a pool under locks: of each block one free must count.
//!
//! Exit codes: 0 nothing found, 1 an error was found, 2 bad arguments, 43 a round hung.

mod bugs;
mod host;
mod plan;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use plan::Round;
use support::raced::{self, Raced, raced_frees};
use support::storm::{Report, assert_calm, storm};
use support::{Rng, Watchdog};

/// Storms over pools of every kind until the time is up.
#[derive(Parser)]
struct Args {
    /// How long to go on.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// First number of every draw; the same seed draws the same plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this round of the seed, by its number.
    #[arg(long)]
    round: Option<u64>,
    /// Only pools in this mode.
    #[arg(long)]
    mode: Option<plan::ModeArg>,
    /// Rate of signals to each thread; drawn from 1000 to 5000 if not given, 0 for none.
    #[arg(long)]
    signals_hz: Option<u32>,
    /// Take the last CPU offline and online again all the time, where the system allows it.
    #[arg(long)]
    hotplug: bool,
    /// Run in a memory cgroup of so many MiB, where the system allows it. Pools get a quarter of
    /// it.
    #[arg(long, value_name = "MIB")]
    memory_limit: Option<u64>,
    /// Plant a bug that the checks, or a sanitizer, must find: the run must fail.
    #[arg(long)]
    plant: Option<bugs::Bug>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.memory_limit.is_some() || args.hotplug {
        match host::around(args.memory_limit, args.hotplug) {
            Ok(None) => {}
            Ok(Some(code)) => return ExitCode::from(code as u8),
            Err(why) => {
                eprintln!("stress: cannot be run in a process of its own: {why}");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(bug) = args.plant {
        bugs::plant(bug);
        eprintln!("the planted bug was not found");
        return ExitCode::SUCCESS;
    }
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let (mut sum, mut rounds) = (Report::default(), 0);
    let mut raced = Raced::default();
    let mut number = args.round.unwrap_or(0);
    loop {
        let mut rng = Rng::new(args.seed << 24 ^ number);
        let round = Round::draw(&mut rng, args.mode, args.signals_hz, args.memory_limit);
        println!("seed {} round {number}: {round}", args.seed);
        // A panic names what is wrong; the line above says how to see it again.
        add(&mut sum, &run(&round, args.seed << 24 ^ number));
        raced.add(&race(&round, args.seed << 24 ^ number));
        rounds += 1;
        number += 1;
        if args.round.is_some() || Instant::now() >= end {
            break;
        }
    }
    println!(
        "{rounds} rounds: {} operations, {} in {} signals, {} lives of threads, {} moves, {} pages \
         drained, {} MiB trimmed, {} settings changed, {} times full; at the same moment {raced}: \
         nothing found",
        sum.operations,
        sum.signal_operations,
        sum.signals,
        sum.lives,
        sum.moves,
        sum.drained,
        sum.trimmed >> 20,
        sum.settings,
        sum.full,
    );
    ExitCode::SUCCESS
}

/// Far above what a round takes, on any machine: a hang must end.
const HUNG: Duration = Duration::from_secs(300);

fn run(round: &Round, seed: u64) -> Report {
    let _watchdog = Watchdog::new("a round of stress", HUNG);
    let pool = round.pool().expect("the system gives memory for the pool");
    let report = storm(&pool, round.plan(seed));
    assert_calm(&pool, &report);
    report
}

/// Rounds of wrong frees behind a storm: about as long as the storm.
const RACES: u32 = 100;
/// Bytes of their pool.
const RACE_BYTES: usize = 32 << 20;

/// Under locks: what two sequences tell of one page is another matter (see `Pool::free_pages`).
fn race(round: &Round, seed: u64) -> Raced {
    let _watchdog = Watchdog::new("wrong frees", HUNG);
    let pool = raced::pool(RACE_BYTES, false, round.policy());
    raced_frees(&pool, 2 + seed as usize % 3, RACES, seed)
}

fn add(sum: &mut Report, one: &Report) {
    sum.operations += one.operations;
    sum.signals += one.signals;
    sum.signal_operations += one.signal_operations;
    sum.lives += one.lives;
    sum.moves += one.moves;
    sum.drained += one.drained;
    sum.trimmed += one.trimmed;
    sum.settings += one.settings;
    sum.full += one.full;
}
