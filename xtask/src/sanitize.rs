//! `cargo xtask sanitize`: Miri, ThreadSanitizer and AddressSanitizer, where their toolchain is.
//!
//! - **miri**: tests of the core and of the trace readers that call neither the system nor C; it
//!   finds undefined behaviour and pointers without provenance.
//! - **thread**: the stress program, stores under their locks, no signals; it finds accesses
//!   without an order between them.
//! - **address**: the same; it finds use of memory that is gone and reads behind an end.
//!
//! The assembly of the restartable sections is invisible to all three; the abort tests and the
//! storms are for that. Each tool first gets a planted bug (`stress --plant`) and must find it: a
//! tool that finds nothing there proves nothing. The storm itself gets one too.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::fuzz::{host, target_directory};

/// The toolchain; another one may not build what the lock file names.
const TOOLCHAIN: &str = "nightly-2026-07-21";
/// Tests of the core for Miri: everything with `unsafe`, and short walks through the rest.
const MIRI_CORE: &[&str] =
    &["sync::", "lanes::", "frame::", "pcp::word", "pcp::stack", "buddy::tests::cases", "paths::"];
/// Tests of the trace readers that need neither zstd nor a file.
const MIRI_TRACE: &[&str] =
    &["bytes::", "lines::", "fields::", "gfp::", "ftrace::", "tracefs::", "notice::", "varint::"];

/// One step and its expected result.
struct Step<'a> {
    name: &'static str,
    flags: &'static str,
    /// Arguments to cargo after the toolchain.
    args: Vec<&'a str>,
    /// What a planted bug must make the tool print; `None`: the step must pass.
    finds: Option<&'static str>,
}

/// Runs all steps, each stress for `seconds`; true if all went as they must.
pub fn run(root: &Path, seconds: u64) -> Result<bool> {
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
    let seconds = seconds.to_string();
    let mut passed = true;
    for step in steps(&target, &seconds) {
        let start = Instant::now();
        let output = cargo(root, &step)?;
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let ok = match step.finds {
            None => output.status.success(),
            Some(words) => !output.status.success() && text.contains(words),
        };
        let what = match (ok, step.finds) {
            (true, None) => summary(&text),
            (true, Some(words)) => format!("the planted bug is found: \"{words}\""),
            (false, None) => "FAILED".to_owned(),
            (false, Some(words)) => format!("FAILED: the planted bug is not found (\"{words}\")"),
        };
        println!("{:<18} {:>6.0} s  {what}", step.name, start.elapsed().as_secs_f64());
        if !ok {
            println!("$ cargo +{TOOLCHAIN} {}\n{text}", step.args.join(" "));
        }
        passed &= ok;
    }
    Ok(passed)
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
        step(
            "storm, planted",
            "",
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
