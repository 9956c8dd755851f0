//! `cargo xtask sanitize`: Miri, ThreadSanitizer and AddressSanitizer, where their toolchain is.
//!
//! - **miri**: tests of the core and of the trace readers that call neither the system nor C; it
//!   finds undefined behaviour and pointers without provenance.
//! - **thread**: the stress program, pcps under their locks, no signals; it finds accesses without
//!   an order between them.
//! - **address**: the same; it finds use of memory that is gone and reads behind an end.
//!
//! The assembly of the restartable sequences is invisible to all three; the abort tests and the
//! storms are for that. Each tool first gets a planted bug (`stress --plant`) and must find it: a
//! tool that finds nothing there proves nothing. The storm itself gets one too.
//!
//! Miri is some thousand times slower than a processor, and a zone has thousands of pages: of the
//! core it runs what has `unsafe`, and a sample of the rest.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::fuzz::host;
use crate::record::Record;
use crate::tools::target_directory;

/// The toolchain; another one may not build what the lock file names.
const TOOLCHAIN: &str = "nightly-2026-07-21";
/// Tests of the core for Miri; the last four are on whole zones, and take a minute each.
const MIRI_CORE: &[&str] = &[
    "sync::",
    "lanes::",
    "frame::",
    "types::",
    "zone::",
    "zonelist::",
    "pcp::word",
    "pcp::stack",
    "pcp::lists",
    "pcp::drain",
    "pcp::size",
    "vmstat::threshold",
    "vmstat::worker",
    "vmstat::percpu",
    "a_block_in_the_middle",
    "a_refused_free_names",
    "double_free::a_second",
    "double_free::while",
];
/// Tests of the trace readers that need neither zstd nor a file.
const MIRI_TRACE: &[&str] =
    &["bytes::", "lines::", "fields::", "gfp::", "ftrace::", "tracefs::", "notice::", "varint::"];

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long each storm blows.
    seconds: u64,
    /// Only steps whose names have this in them.
    only: String,
}

impl Plan {
    /// Reads `--seconds N --only PART`, each left out or not.
    pub fn parse(args: &[&str]) -> Result<Plan> {
        let mut plan = Plan { seconds: 60, only: String::new() };
        for pair in args.chunks(2) {
            match *pair {
                ["--seconds", value] => {
                    plan.seconds = value.parse().with_context(|| format!("--seconds {value}"))?;
                }
                ["--only", part] => plan.only = part.to_owned(),
                _ => bail!("{}: expected --seconds N or --only PART", pair.join(" ")),
            }
        }
        Ok(plan)
    }
}

/// One step and its expected result.
struct Step<'a> {
    name: &'static str,
    flags: &'static str,
    /// Arguments to cargo after the toolchain.
    args: Vec<&'a str>,
    /// What a planted bug must make the tool print; `None`: the step must pass.
    finds: Option<&'static str>,
}

/// The steps with these words in their names.
fn chosen<'a>(mut steps: Vec<Step<'a>>, only: &str) -> Result<Vec<Step<'a>>> {
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    steps.retain(|step| step.name.contains(only));
    ensure!(
        !steps.is_empty(),
        "--only {only}: no step has such a name; there are: {}",
        names.join("; ")
    );
    Ok(steps)
}

/// Runs the steps and prints a table; true if all went as they must.
pub fn run(root: &Path, plan: &Plan) -> Result<bool> {
    let has = |component: &str| {
        let output = Command::new("rustup")
            .args(["component", "list", "--installed", "--toolchain", TOOLCHAIN])
            .output();
        output.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(component))
    };
    if !has("miri") || !has("rust-src") {
        eprintln!(
            "note: SKIPPED: needs `rustup toolchain install {TOOLCHAIN} --profile minimal -c \
             rust-src -c miri`"
        );
        return Ok(true);
    }
    let target = host(root)?;
    let seconds = plan.seconds.to_string();
    let steps = chosen(steps(&target, &seconds), &plan.only)?;
    let mut record = Record::begin(root, TOOLCHAIN);
    for step in steps {
        let start = Instant::now();
        let output = cargo(root, &step)?;
        let text = [&output.stdout, &output.stderr].map(|out| String::from_utf8_lossy(out));
        let text = text.concat();
        let ok = match step.finds {
            None => output.status.success(),
            Some(words) => !output.status.success() && text.contains(words),
        };
        let what = match (ok, step.finds) {
            (true, None) => summary(&text),
            (true, Some(words)) => format!("the planted bug is found: \"{words}\""),
            (false, None) => "see stderr".to_owned(),
            (false, Some(words)) => format!("the planted bug is not found (\"{words}\")"),
        };
        record.row(step.name, start, ok, &what);
        if !ok {
            eprintln!("$ cargo +{TOOLCHAIN} {}\n{text}", step.args.join(" "));
        }
    }
    Ok(record.end())
}

fn steps<'a>(target: &'a str, seconds: &'a str) -> Vec<Step<'a>> {
    let stress = |rest: &[&'a str]| {
        let build = ["run", "--release", "-Zbuild-std", "--target", target];
        let what = ["-p", "zonal", "--example", "stress", "--"];
        [&build[..], &what[..], rest].concat()
    };
    let storm = ["--mode", "lock", "--signals-hz", "0", "--seconds", seconds];
    let miri = |package: &'a str, names: &[&'a str]| {
        [&["miri", "test", "-p", package, "--lib", "--"][..], names].concat()
    };
    let (thread, address) = ("-Zsanitizer=thread", "-Zsanitizer=address");
    let planted =
        ["miri", "run", "-p", "zonal", "--example", "stress", "--", "--plant", "overflow"];
    let step = |name, flags, args, finds| Step { name, flags, args, finds };
    vec![
        step("miri, planted", "", planted.to_vec(), Some("Undefined Behavior")),
        step("miri, core", "", miri("zonal-core", MIRI_CORE), None),
        step("miri, traces", "", miri("zonal-trace", MIRI_TRACE), None),
        step("thread, planted", thread, stress(&["--plant", "race"]), Some("data race")),
        step("thread, storm", thread, stress(&storm), None),
        step(
            "address, planted",
            address,
            stress(&["--plant", "overflow"]),
            Some("heap-buffer-overflow"),
        ),
        step("address, storm", address, stress(&storm), None),
        // Neither tool can see this one: the storm's own stamps do.
        step(
            "storm, planted",
            address,
            stress(&["--plant", "double-owner"]),
            Some("a page in two hands"),
        ),
    ]
}

fn cargo(root: &Path, step: &Step<'_>) -> Result<Output> {
    let folder = if step.flags.is_empty() { "miri" } else { step.flags };
    let folder = folder.trim_start_matches("-Zsanitizer=");
    Command::new("rustup")
        .args(["run", TOOLCHAIN, "cargo"])
        .args(&step.args)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target_directory(root).join("sanitize").join(folder))
        .env("RUSTFLAGS", step.flags)
        // Built once, run for a minute: what counts is to compile soon, and lines in reports.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation")
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .env("PROPTEST_CASES", "1")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC")
        .env_remove("CARGO")
        .output()
        .with_context(|| format!("cannot start {}", step.name))
}

/// The line that says how much was run.
fn summary(text: &str) -> String {
    let line = text
        .lines()
        .rev()
        .find(|line| line.starts_with("test result:") || line.contains(" rounds: "));
    line.unwrap_or("nothing was said").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_no_step_has_is_refused_with_the_names_that_there_are() {
        let only = |part: &str| chosen(steps("x", "1"), part).map(|steps| steps.len());
        assert_eq!(only("miri").unwrap(), 3);
        let error = only("Miri").unwrap_err().to_string();
        assert!(
            error.contains("--only Miri") && error.contains("miri, core; miri, traces"),
            "{error}"
        );
    }
}
