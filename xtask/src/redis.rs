//! `cargo xtask redis`: a program that nobody here wrote, with its memory out of a pool. Runs
//! Debian's redis-server with its own jemalloc, and with the library of
//! `crates/zonal-c/examples/preload` preloaded, under redis' own benchmark, and prints a table.
//!
//! Each round starts a new server; the rounds are in random order, and the unchanged server runs
//! under two names, whose difference is the error of the measurement.
//!
//! Takes what `apt-get install redis-server redis-tools` installs, or any `redis-server` that is
//! linked with jemalloc and stands in the path.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::capi;
use crate::tools::target_directory;

const PORT: &str = "7391";
/// Bytes of the pool: the server can never use more.
const BYTES: u64 = 512 << 20;
const NAMES: [&str; 3] = ["jemalloc", "jemalloc again", "jemalloc on a pool"];
const TESTS: [&str; 2] = ["SET", "GET"];
const ARGUMENTS: [&str; 9] =
    ["-t", "set,get", "-n", "100000", "-d", "1024", "-r", "100000", "--csv"];

/// Requests a second of each test, and what the server took for all of them.
#[derive(Clone, Copy, Default)]
struct Round {
    rates: [f64; 2],
    resident_mib: f64,
    cpu_seconds: f64,
    faults: f64,
}

/// A server, ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("redis-cli").args(["-p", PORT, "shutdown", "nosave"]).output();
        let _ = self.0.wait();
    }
}

/// Runs so many rounds of each; true if all went through.
pub fn run(root: &Path, rounds: usize) -> Result<bool> {
    let to = target_directory(root).join("capi");
    let library = preload(root, &to)?;
    let stats = to.join("redis-stats.txt");
    let mut results: [Vec<Round>; 3] = Default::default();
    let mut order: Vec<usize> = (0..rounds * 3).map(|place| place % 3).collect();
    shuffle(&mut order);
    let mut in_pool = 0;
    for which in order {
        let server = start(if which == 2 { Some((&library, &stats)) } else { None })?;
        let mut round = bench()?;
        round.resident_mib = resident_mib(&server.0)?;
        (round.cpu_seconds, round.faults) = cost(&server.0)?;
        if which == 2 {
            // Written each second.
            std::thread::sleep(Duration::from_millis(1200));
            in_pool = in_pool.max(pages_in_use(&stats)?);
        }
        eprintln!("{}: {:.0} and {:.0} a second", NAMES[which], round.rates[0], round.rates[1]);
        results[which].push(round);
    }
    ensure!(in_pool > 0, "no page of the pool was in use: the hooks were not taken");
    print(&results, in_pool);
    Ok(true)
}

/// The library, compiled against an installation of its own.
fn preload(root: &Path, to: &Path) -> Result<PathBuf> {
    let prefix = to.join("redis-root");
    capi::install(root, &prefix)?;
    let library = to.join("preload.so");
    let status = Command::new("cc")
        .args(["-std=c99", "-O2", "-shared", "-fPIC", "-Wl,--exclude-libs,ALL", "-o"])
        .arg(&library)
        .arg(format!("-I{}", prefix.join("usr/include").display()))
        .arg(root.join("crates/zonal-c/examples/preload/preload.c"))
        .arg(prefix.join("usr/lib/libzonal.a"))
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lm"])
        .status()?;
    ensure!(status.success(), "the library cannot be compiled");
    Ok(library)
}

fn start(preloaded: Option<(&Path, &Path)>) -> Result<Server> {
    let mut command = Command::new("redis-server");
    command.args(["--port", PORT, "--save", "", "--appendonly", "no"]).stdout(Stdio::null());
    if let Some((library, stats)) = preloaded {
        let _ = std::fs::remove_file(stats);
        command.env("LD_PRELOAD", library).env("ZONAL_STATS", stats);
        command.env("ZONAL_BYTES", BYTES.to_string());
    }
    let server = Server(command.spawn().context("cannot start redis-server")?);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        let answer = Command::new("redis-cli").args(["-p", PORT, "ping"]).output()?;
        if answer.stdout.starts_with(b"PONG") {
            return Ok(server);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("redis-server does not answer")
}

/// One run of redis' own benchmark.
fn bench() -> Result<Round> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", PORT, "-P", "16"]).args(ARGUMENTS);
    let output = command.output().context("cannot start redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut round = Round::default();
    for (name, rate) in TESTS.iter().zip(&mut round.rates) {
        let start = format!("\"{name}\",\"");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let number = line.and_then(|rest| rest.split('"').next()?.parse().ok());
        *rate =
            number.with_context(|| format!("redis-benchmark says nothing of {name}: {text}"))?;
    }
    Ok(round)
}

fn resident_mib(server: &Child) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("no VmRSS in /proc")? / 1024.0)
}

/// CPU seconds of a server, which other load on the machine moves less than its rates, and its page
/// faults.
fn cost(server: &Child) -> Result<(f64, f64)> {
    /// `USER_HZ`, the same on every machine.
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.id()))?;
    // Behind the name, which may have spaces: the state, and the fields from 4 on.
    let (_, rest) = text.rsplit_once(") ").context("no name in /proc/PID/stat")?;
    let fields: Vec<f64> = rest.split(' ').map(|field| field.parse().unwrap_or(0.0)).collect();
    let at = |number: usize| fields.get(number - 3).copied().unwrap_or(0.0);
    Ok(((at(14) + at(15)) / TICKS, at(10)))
}

/// What the pool says while the server runs.
fn pages_in_use(stats: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(stats).context("the pool's figures were not written")?;
    let value = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    Ok(value("zonal_zone_pages_managed{").saturating_sub(value("zonal_zone_nr_free_pages{")))
}

fn shuffle(order: &mut [usize]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

fn print(results: &[Vec<Round>; 3], in_pool: u64) {
    println!("redis-benchmark -P 16 {}; pool of {} MiB", ARGUMENTS.join(" "), BYTES >> 20);
    println!(
        "\nMedians, in brackets the smallest and the largest of {} rounds.\n",
        results[0].len()
    );
    println!(
        "| server | CPU seconds | page faults | SET a second | GET a second | resident, MiB |"
    );
    println!("|--|--|--|--|--|--:|");
    for (name, rounds) in NAMES.iter().zip(results) {
        let of = |test: usize| spread(0, rounds.iter().map(|round| round.rates[test]).collect());
        let resident = middle(rounds.iter().map(|round| round.resident_mib).collect());
        let cpu = spread(2, rounds.iter().map(|round| round.cpu_seconds).collect());
        let faults = spread(0, rounds.iter().map(|round| round.faults).collect());
        println!("| {name} | {cpu} | {faults} | {} | {} | {resident:.0} |", of(0), of(1));
    }
    println!("\nPages of the pool in use, most of what its figures said: {in_pool}.");
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn middle(values: Vec<f64>) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn spread(digits: usize, values: Vec<f64>) -> String {
    let values = sorted(values);
    let (first, last) = (values.first().copied(), values.last().copied());
    let (first, last) = (first.unwrap_or(0.0), last.unwrap_or(0.0));
    format!("{:.digits$} ({first:.digits$} to {last:.digits$})", middle(values))
}
