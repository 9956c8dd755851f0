//! `cargo xtask perfetto`: traces of `zonal-perfetto` by Perfetto's own definitions, which the
//! Python package `perfetto` brings. A recording becomes a Perfetto trace, which the definitions
//! decode; they write it again in another way, and that is read and compared with the recording.
//! Without an interpreter or the registry of packages it says SKIPPED and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::python::tools::{bin, environment, interpreter, run_in};
use crate::record::Record;
use crate::tools::{cargo, target_directory};

const CRATE: &str = "crates/zonal-perfetto";
/// A build with all kinds of moves; its events are in the repository.
const RECORDING: &str = "crates/zonal-trace/samples/zlib-make-j4";
const PACKAGES: [&str; 2] = ["perfetto", "protobuf"];

/// The task with what stands behind its name.
pub fn command(root: &Path, rest: &[&str]) -> Result<bool> {
    match rest {
        [] => run(root, None),
        [recording] if !recording.starts_with('-') => run(root, Some(Path::new(recording))),
        _ => bail!(
            "perfetto {}: expected nothing or a recording; `cargo xtask help` says more",
            rest.join(" ")
        ),
    }
}

/// All of it, with this recording or the one of the repository; true if nothing differed.
fn run(root: &Path, recording: Option<&Path>) -> Result<bool> {
    let to = target_directory(root).join("perfetto");
    let Some(python) = interpreter() else { return skipped("no python3 with venv was found") };
    let tools = to.join("environment");
    if let Err(error) = environment(&python, &tools, &PACKAGES) {
        return skipped(&format!("{} cannot be installed: {error:#}", PACKAGES.join(" and ")));
    }
    let recording = recording.map_or_else(|| root.join(RECORDING), Path::to_path_buf);
    let mut record = Record::begin(root, "Perfetto's definitions");
    let file = |name: &str| to.join(name);
    let all = ["ours.perfetto-trace", "ours.txt", "other.perfetto-trace", "other.zonal"].map(file);
    let (ours, text, other, back) = (&all[0], &all[1], &all[2], &all[3]);
    let (again, script) = (file("other.txt"), root.join(CRATE).join("tests/published.py"));
    for old in all.iter().chain([&again]).filter(|old| old.exists()) {
        fs::remove_file(old)?;
    }

    let start = Instant::now();
    let made = convert(root, &recording, text)? && convert(root, &recording, ours)?;
    let args = [&script, ours, text, other].map(|path| path.display().to_string());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let read = made && run_in(root, &bin(&tools, "python"), &args)?;
    record.row("out", start, read, "decoded by the published definitions, event by event");

    let start = Instant::now();
    let made = read && convert(root, other, back)? && convert(root, back, &again)?;
    let equal = made && by_cpu(text)? == by_cpu(&again)?;
    record.row("in", start, equal, "encoded by them, compressed, with other events between");
    Ok(record.end())
}

fn skipped(why: &str) -> Result<bool> {
    println!("SKIPPED: cargo xtask perfetto: {why}");
    Ok(true)
}

fn convert(root: &Path, from: &Path, to: &PathBuf) -> Result<bool> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "-p", "zonal-perfetto", "--example", "convert"]);
    command.arg("--").arg(from).arg(to).stdout(std::io::stderr());
    Ok(command.status().context("cannot start cargo")?.success())
}

/// The events of each CPU, in their order.
fn by_cpu(text: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(text).with_context(|| format!("{}", text.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_by_key(|line| line.split(' ').nth(1).and_then(|cpu| cpu.parse::<u32>().ok()));
    Ok(lines)
}
