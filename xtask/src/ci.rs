//! What continuous integration runs, in its order.
//!
//! ```text
//!   cargo test --workspace ── other runs (`--runs`) ─┐
//!   release build ── checks (`--checks`) ────────────┴─► one table
//! ```
//! Checks need no test to have run and mind no neighbour, so `.ci/run` has them done beside the
//! tests and what is run behind them, which leave a processor idle half of the time. Alone,
//! `cargo xtask ci` does all of it in one go.
//!
//! Every step runs even when an earlier one failed, so that one run shows all that is wrong. The
//! run ends with a table of the steps and, alone on the last line, `N passed, N failed`: the sum
//! over the `test result:` lines that the test harness printed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{api, book, cross, fuzz, python, tidy, tools};

/// The README's test command. `.ci/run` runs it by itself first, then passes `--test-log`.
const TEST: &[&str] = &["test", "--workspace"];

/// The features of `zonal` that are off by default, but `stalls`, which the program asks for. One
/// build is without history and with these: no code is in both.
const ADAPTERS: &str = "zonal/allocator-api2,zonal/bytemuck,zonal/bytes,zonal/zerocopy";
/// The core as it takes the least time to compile, where nothing of it is run.
const PLAIN_CORE: &str = "profile.dev.package.zonal-core.opt-level=0";

/// The arguments to cargo of each check after `tidy`, which runs in this process.
const CHECKS: &[(&str, &[&str])] = &[
    ("fmt", &["fmt", "--all", "--check"]),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    (
        "features: clippy",
        &[
            "clippy",
            "-p",
            "zonal-core",
            "-p",
            "zonal",
            "--features",
            ADAPTERS,
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
];

/// The arguments to cargo of what runs after the tests. The workspace has the feature `history`,
/// because the program asks for it; the core and the pool alone do not. Of their tests without it
/// the long ones are left out, and of the doc tests all but those of the adapters.
const RUNS: &[(&str, &[&str])] = &[
    (
        "features: tests",
        &[
            "test",
            "-p",
            "zonal-core",
            "-p",
            "zonal",
            "--features",
            ADAPTERS,
            "--lib",
            "--test",
            "adapt",
            "--",
            "--skip",
            "exhaustive",
            "--skip",
            "every_short_program",
            "--skip",
            "of_two_racing_frees",
            "--skip",
            "at_every_step",
        ],
    ),
    (
        "features: doc tests",
        &["test", "-p", "zonal-core", "-p", "zonal", "--features", ADAPTERS, "--doc", "adapt"],
    ),
    // Not the other subjects: every one is run in every cell by a test of zonal-bench.
    ("quick bench", &["run", "--release", "--", "bench", "--quick", "--only", "zonal"]),
    ("main job", &["run", "--release", "--", "replay"]),
];

/// A target without an operating system. Built for where its standard library is installed; where
/// it is not, tidy's `no-std` check is what keeps `std` out of the core.
pub const BARE_TARGET: &str = "x86_64-unknown-none";

/// How long the fuzzers run, all together.
pub const FUZZ_SECONDS: u64 = 60;
/// Every run of a commit tries the same inputs first; `cargo xtask fuzz` tries others each time.
const FUZZ_SEED: u32 = 1;

/// What was done before, by the file that has what it printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Before<'a> {
    tests: Option<&'a Path>,
    checks: Option<&'a Path>,
    runs: Option<&'a Path>,
}

impl<'a> Before<'a> {
    /// From `[--test-log FILE] [--checks-log FILE] [--runs-log FILE]`.
    ///
    /// # Errors
    /// Another word, or no file behind one of them.
    fn parse(words: &[&'a str]) -> Result<Before<'a>> {
        let mut before = Before::default();
        for pair in words.chunks(2) {
            match *pair {
                ["--test-log", file] => before.tests = Some(Path::new(file)),
                ["--checks-log", file] => before.checks = Some(Path::new(file)),
                ["--runs-log", file] => before.runs = Some(Path::new(file)),
                _ => bail!(
                    "ci {}: expected --checks, --runs, --test-log FILE, --checks-log FILE or \
                     --runs-log FILE",
                    pair.join(" ")
                ),
            }
        }
        Ok(before)
    }
}

/// One finished step.
#[derive(Debug, PartialEq)]
struct Outcome {
    name: String,
    passed: bool,
    took: Duration,
}

/// Sums over `test result:` lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TestCounts {
    binaries: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Cargo itself reported an error, such as a test that does not compile.
    errors: u64,
}

/// Runs all steps in `root` but those that were done before; true if all passed.
fn run(root: &Path, before: &Before) -> Result<bool> {
    let mut outcomes = Vec::new();
    let mut counts = TestCounts::default();

    timed(&mut outcomes, "tests", || match before.tests {
        Some(path) => {
            read(path)?.lines().for_each(|line| counts.add_line(line));
            Ok(counts.all_passed())
        }
        None => Ok(run_tests(root, &mut counts)? && counts.all_passed()),
    });
    let done = |path: &Path| {
        finished(&read(path)?)
            .with_context(|| format!("{}: `cargo xtask ci` has not ended", path.display()))
    };
    match before.checks {
        Some(path) => outcomes.extend(done(path)?),
        None => check(root, &mut outcomes),
    }
    match before.runs {
        Some(path) => outcomes.extend(done(path)?),
        None => other_runs(root, &mut outcomes),
    }

    print_outcomes(&outcomes);
    println!("{} test binaries, {} tests ignored", counts.binaries, counts.ignored);
    println!("{}", counts.closing_line());
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

/// What the arguments ask for; true if all passed.
pub fn command(root: &Path, args: &[&str]) -> Result<bool> {
    match args {
        ["--checks"] => Ok(part(root, check)),
        ["--runs"] => Ok(part(root, other_runs)),
        _ => run(root, &Before::parse(args)?),
    }
}

/// Makes one part alone.
fn part(root: &Path, make: fn(&Path, &mut Vec<Outcome>)) -> bool {
    let mut outcomes = Vec::new();
    make(root, &mut outcomes);
    print_outcomes(&outcomes);
    outcomes.iter().all(|outcome| outcome.passed)
}

fn other_runs(root: &Path, outcomes: &mut Vec<Outcome>) {
    for &(name, args) in RUNS {
        timed(outcomes, name, || cargo(root, args));
    }
}

fn check(root: &Path, outcomes: &mut Vec<Outcome>) {
    timed(outcomes, "tidy", || tidy::run(root));
    for &(name, args) in CHECKS {
        timed(outcomes, name, || cargo(root, args));
    }
    if bare_target_installed(root) {
        let packages = ["-p", "zonal-core", "-p", "zonal-kernel"];
        let target = ["--lib", "--target", BARE_TARGET];
        let args = [&["build", "--config", PLAIN_CORE][..], &packages, &target].concat();
        timed(outcomes, "core, bare target", || cargo(root, &args));
    } else {
        eprintln!("note: {BARE_TARGET} is not installed, so the core was built for this host only");
    }
    timed(outcomes, "other systems", || cross::check(root));
    timed(outcomes, "api", || api::run(root, false));
    timed(outcomes, "book", || book::run(root));
    timed(outcomes, "python: clippy", || python::check(root));
    timed(outcomes, "python: wheel", || python::smoke(root));
    timed(outcomes, "fuzz", || {
        Ok(fuzz::run(root, fuzz::Limit::seconds(FUZZ_SECONDS), FUZZ_SEED)?.passed)
    });
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn timed(outcomes: &mut Vec<Outcome>, name: &str, step: impl FnOnce() -> Result<bool>) {
    println!("== {name}");
    let start = Instant::now();
    // One that cannot be made has failed; the steps behind it are made.
    let passed = step().unwrap_or_else(|error| {
        eprintln!("error: {name}: {error:#}");
        false
    });
    outcomes.push(Outcome { name: name.to_owned(), passed, took: start.elapsed() });
}

/// How the table of steps begins; their number follows, so that one that was cut off is known.
const SUMMARY: &str = "== summary, steps: ";
/// Columns of a step's name in it.
const NAME: usize = 20;

fn print_outcomes(outcomes: &[Outcome]) {
    println!("\n{SUMMARY}{}", outcomes.len());
    for Outcome { name, passed, took } in outcomes {
        let word = if *passed { "ok" } else { "FAILED" };
        println!("{name:<NAME$}{word:<8}{:>6.1} s", took.as_secs_f64());
    }
}

/// The table that [`print_outcomes`] wrote, which ends what was printed.
fn finished(log: &str) -> Result<Vec<Outcome>> {
    let (_, table) = log.rsplit_once(SUMMARY).context("it has no summary")?;
    let mut lines = table.lines().filter(|line| !line.is_empty());
    let steps = lines.next().unwrap_or_default();
    let steps: usize = steps.parse().with_context(|| format!("no number of steps: {steps}"))?;
    let outcomes: Vec<Outcome> = lines
        .map(|line| outcome(line).with_context(|| format!("no step: {line}")))
        .collect::<Result<_>>()?;
    ensure!(outcomes.len() == steps, "its table has {} of {steps} steps", outcomes.len());
    Ok(outcomes)
}

fn outcome(line: &str) -> Option<Outcome> {
    let (name, rest) = line.split_at_checked(NAME)?;
    let mut words = rest.split_whitespace();
    let passed = match words.next()? {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    let took = Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?;
    (words.next()? == "s").then_some(())?;
    Some(Outcome { name: name.trim_end().to_owned(), passed, took })
}

fn cargo_command(root: &Path, args: &[&str]) -> Command {
    println!("$ cargo {}", args.join(" "));
    let mut command = tools::cargo(root);
    command.args(args);
    command
}

fn cargo(root: &Path, args: &[&str]) -> Result<bool> {
    let status = cargo_command(root, args)
        .status()
        .with_context(|| format!("cannot start cargo {}", args.join(" ")))?;
    Ok(status.success())
}

/// Runs the tests, passing their output on line by line while counting.
fn run_tests(root: &Path, counts: &mut TestCounts) -> Result<bool> {
    let mut child = cargo_command(root, TEST)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test --workspace")?;
    let mut reader = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? != 0 {
        std::io::stdout().write_all(&line)?;
        counts.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
}

fn bare_target_installed(root: &Path) -> bool {
    // Asked in the repository, where rust-toolchain.toml names the toolchain.
    Command::new("rustc")
        .args(["--print", "target-libdir", "--target", BARE_TARGET])
        .current_dir(root)
        .output()
        .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

impl TestCounts {
    /// Adds one line of the output of `cargo test`, whatever it is.
    pub fn add_line(&mut self, line: &str) {
        if line.starts_with("error") {
            self.errors += 1;
        }
        let Some(result) = line.trim_end().strip_prefix("test result: ") else { return };
        self.binaries += 1;
        // `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s`
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (number, label) = (words.next(), words.next());
            let Some(Ok(number)) = number.map(str::parse::<u64>) else { continue };
            match label {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }

    /// No failure, no error, and something was run at all.
    pub fn all_passed(&self) -> bool {
        self.failed == 0 && self.errors == 0 && self.passed > 0
    }

    /// `N passed, N failed`.
    pub fn closing_line(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(log: &str) -> TestCounts {
        let mut counts = TestCounts::default();
        log.lines().for_each(|line| counts.add_line(line));
        counts
    }

    #[test]
    fn counts_are_summed_over_all_binaries() {
        let counts = count(
            "running 3 tests\ntest a ... ok\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; \
             finished in 0.02s\n\
             test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; \
             finished in 12.00s\n",
        );
        assert_eq!(
            counts,
            TestCounts { binaries: 2, passed: 43, failed: 0, ignored: 1, errors: 0 }
        );
        assert_eq!(counts.closing_line(), "43 passed, 0 failed");
        assert!(counts.all_passed());
    }

    #[test]
    fn checks_that_were_done_before_are_read_from_their_table() {
        let log = "== tidy\nno\n\n== summary, steps: 2\ntidy                FAILED     1.5 s\n\
                   features: clippy    ok       102.3 s\n";
        let step = |name: &str, passed, ms| Outcome {
            name: name.to_owned(),
            passed,
            took: Duration::from_millis(ms),
        };
        let expected = [step("tidy", false, 1500), step("features: clippy", true, 102_300)];
        assert_eq!(finished(log).unwrap(), expected);
        for end in 0..log.trim_end().len() {
            assert!(finished(&log[..end]).is_err(), "{}", &log[..end]);
        }
        assert!(finished("== summary, steps: 1\n== tidy\n").is_err());
        assert!(finished("== summary, steps: \n").is_err());
        let names = CHECKS.iter().chain(RUNS).map(|(name, _)| name.len());
        assert!(names.max() < Some(NAME), "a name as wide as its column is not told from its word");
    }

    #[test]
    fn other_words_are_refused() {
        let words = ["--test-log", "a", "--checks-log", "b", "--runs-log", "c"];
        let [tests, checks, runs] = ["a", "b", "c"].map(|name| Some(Path::new(name)));
        assert_eq!(Before::parse(&words).unwrap(), Before { tests, checks, runs });
        assert!(Before::parse(&["--test-log"]).is_err() && Before::parse(&["all"]).is_err());
    }

    #[test]
    fn one_failed_test_fails_the_step() {
        let counts = count("test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured\n");
        assert_eq!(counts.closing_line(), "7 passed, 2 failed");
        assert!(!counts.all_passed());
    }

    #[test]
    fn no_test_at_all_and_a_compile_error_fail_the_step() {
        assert!(!count("").all_passed());
        assert!(!count("    Compiling zonal\n").all_passed());
        let ok = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n";
        assert!(count(ok).all_passed());
        assert!(!count(&format!("{ok}error: could not compile `zonal`\n")).all_passed());
        assert!(!count(&format!("{ok}error[E0308]: mismatched types\n")).all_passed());
    }

    #[test]
    fn only_whole_result_lines_count() {
        let counts = count("see `test result: ok. 3 passed; 0 failed`\n");
        assert_eq!(counts, TestCounts::default());
    }
}
