//! `cargo xtask kernel`: `examples/kernel` is built, booted in QEMU on machines of many shapes, and
//! judged by what it prints.
//!
//! ```text
//!  machines ── QEMU ── serial port ──► passed lines, counts, texts ──► table
//!                                                  └── capture ── zonal conform ──► table
//! ```
//! On each machine the kernel runs random programs on all CPUs against a bitmap, with timers that
//! interrupt them and allocate, exhausts its memory, lets a CPU leave and come back, and meets
//! faults. It checks itself; a check that fails ends the line `END OK` from ever being printed.
//! What its `zoneinfo` says is judged by the rules of `zonal conform`, as a kernel of the policy's
//! release. Instructions are counted by QEMU (`-icount shift=0`), one CPU, interrupts masked.

pub mod arceos;
mod conform;
mod machines;
mod monitor;
pub mod ostd;
mod output;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::tools::{cargo, target_directory};
use machines::{Arch, Machine};
use output::{Output, watch, watch_and};

/// What a run is told.
#[derive(Debug, Default)]
struct Plan {
    /// Processors to run, all if empty.
    only: Vec<String>,
    /// What the names of its machines contain.
    machine: String,
    /// The file for the report.
    write: Option<PathBuf>,
}

impl Plan {
    /// From `[PROCESSOR...] [--machine WORDS] [--write FILE]`.
    fn parse(args: &[&str]) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--write" => {
                    let file = args.next().context("--write: name the file")?;
                    plan.write = Some(PathBuf::from(file));
                }
                "--machine" => {
                    let words = args.next().context("--machine: a part of its name is missing")?;
                    plan.machine = (*words).to_owned();
                }
                name if Arch::ALL.iter().any(|arch| arch.name() == name) => {
                    plan.only.push(name.to_owned());
                }
                other => {
                    anyhow::bail!(
                        "{other}: expected x86-64, aarch64, riscv64, --machine WORDS or \
                         --write FILE"
                    )
                }
            }
        }
        Ok(plan)
    }

    /// The machines of a processor that were chosen; none without its emulator, which is told.
    fn machines(&self, arch: Arch) -> Vec<Machine> {
        if !self.only.is_empty() && !self.only.iter().any(|only| only == arch.name()) {
            return Vec::new();
        }
        if Command::new(arch.emulator()).arg("--version").output().is_err() {
            let (emulator, package) = (arch.emulator(), arch.package());
            eprintln!("note: SKIPPED: {emulator} is missing (apt-get install {package})");
            return Vec::new();
        }
        let chosen = |machine: &Machine| machine.name.contains(&self.machine);
        Machine::all(arch).into_iter().filter(chosen).collect()
    }
}

/// How long a machine may run: emulated CPUs share the host's.
const LIMIT: Duration = Duration::from_secs(600);

/// Linux' instructions for a pair of order 0 on x86-64 by the same method: measured with its own
/// kernels in QEMU, `alloc_pages` and `__free_pages` called by a module. No other processor's
/// instructions compare with them.
const LINUX: [(&str, u32); 2] = [("x86-64, Linux 6.12", 840), ("x86-64, Linux 6.1", 697)];

/// How the lines of a machine begin that are told while it runs.
const TOLD: [&str; 8] =
    ["passed: ", "count: ", "PANIC", "FAULT", "cannot boot", "programs: ", "growth: ", "dimm: "];

/// Builds, boots and judges; true if all is well. A processor without its emulator is told as
/// SKIPPED; without any, this is an error.
pub fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let plan = Plan::parse(args)?;
    let (mut good, mut ran) = (true, 0);
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    let mut judged = Vec::new();
    let mut grown = Vec::new();
    for arch in Arch::ALL {
        let machines = plan.machines(arch);
        if machines.is_empty() {
            continue;
        }
        let plain = build(root, arch, "")?;
        let sections = build(root, arch, "sections")?;
        for machine in machines {
            ran += 1;
            println!("== {}: {}", arch.name(), machine.name);
            let image = if machine.sections { &sections } else { &plain };
            let output = boot(arch, &machine, &image.join(machine.program))?;
            for start in TOLD {
                output.all(start).for_each(|line| println!("   {start}{line}"));
            }
            good &= output.is_good();
            let what = if output.is_good() { "passed" } else { "FAILED" };
            println!("   {what} in {:.1} s", output.took.as_secs_f64());
            if machine.counts() {
                counts.push((way(arch, &machine), output));
                continue;
            }
            if machine.release.is_some() {
                let result = conform::judge(root, arch, &machine, &output)?;
                good &= result.agrees();
                println!("   conform: {result}");
                judged.push(vec![arch.name().into(), machine.name.into(), result.to_string()]);
                continue;
            }
            // The first line of a DIMM is that it is waited for.
            if let Some(growth) = output.all("growth: ").next().or(output.all("dimm: ").nth(1)) {
                let boot = output.all("boot: ").next().unwrap_or("");
                grown.push([arch.name(), machine.name, boot, growth].map(String::from).to_vec());
            }
            rows.push(row(arch, &machine, &output, what));
        }
    }
    ensure!(
        ran > 0,
        "nothing was run: no emulator is installed, or no machine's name has the words"
    );
    let report = report(&rows, &grown, &judged, &counts);
    match &plan.write {
        Some(file) => std::fs::write(root.join(file), report)
            .with_context(|| format!("{}", file.display()))?,
        None => print!("{report}"),
    }
    Ok(good)
}

/// Builds the kernels in a directory of their own, and returns where they are.
fn build(root: &Path, arch: Arch, features: &str) -> Result<PathBuf> {
    let out = target_directory(root).join("kernel").join(format!("with-{features}"));
    let status = cargo(&root.join("examples/kernel"))
        .args(["build", "--quiet", "--release", "--locked", "--target", arch.target()])
        .args(["--features", features])
        .args(arch.programs().iter().flat_map(|program| ["--bin", program]))
        .arg("--target-dir")
        .arg(&out)
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "examples/kernel cannot be built; its target comes by `rustup target add {}`",
        arch.target()
    );
    Ok(out.join(arch.target()).join("release"))
}

/// Runs a machine until it ends or its time is up.
fn boot(arch: Arch, machine: &Machine, image: &Path) -> Result<Output> {
    let mut command = Command::new(arch.emulator());
    command
        .args(arch.options())
        .args(machine.options())
        .arg("-kernel")
        .arg(image)
        .args(["-append", &machine.words]);
    if machine.late_mib == 0 {
        return watch(&mut command, LIMIT);
    }
    // A name for this process alone, and short: sockets' names may not be long.
    let monitor = std::env::temp_dir().join(format!("zonal-monitor-{}", std::process::id()));
    command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
    let output = watch_and(&mut command, LIMIT, |line| match line {
        "dimm: waiting" => monitor::plug(&monitor),
        _ => Ok(()),
    });
    let _ = std::fs::remove_file(&monitor);
    output
}

fn row(arch: Arch, machine: &Machine, output: &Output, what: &str) -> Vec<String> {
    let programs = output.all("programs: ").next().unwrap_or("none");
    let checks = output.all("passed: ").count();
    let exhausted = output.all("exhausted: ").next().unwrap_or("");
    vec![
        arch.name().into(),
        machine.name.into(),
        what.into(),
        checks.to_string(),
        programs.into(),
        exhausted.into(),
    ]
}

fn report(
    rows: &[Vec<String>],
    grown: &[Vec<String>],
    judged: &[Vec<String>],
    counts: &[(String, Output)],
) -> String {
    let mut text = String::from(
        "# The kernel of `examples/kernel`, booted\n\n\
         By `cargo xtask kernel` in QEMU (TCG): real boots of emulated machines, no timing. Every \
         check compares all pages with the bitmap, walks every list and word (`validate`), and \
         counts the pages that are back. With `sections` the kernel allocates and frees by \
         restartable sections in assembly, which interrupts start over, and the core fences the \
         CPU whose lists it closes. With `fences` it does that for each call, and there are no \
         such sections. Sections that are started over are also those that add to a counter, which \
         must be right.\n\n",
    );
    let head = ["processor", "machine", "", "checks passed", "programs", "out of memory"];
    text += &table(&head, rows);
    text += "\n## Memory that comes while requests are served\n\n\
        64 GiB that the host gives as they are touched. A tick is a nanosecond of the host's \
        clock, and all CPUs are threads of one emulator: only the rows among each other say \
        something.\n\n";
    text += &table(&["processor", "machine", "boot", "growth"], grown);
    text += "\n## `zoneinfo` by the rules of `zonal conform`\n\n";
    text += &table(&["processor", "machine", "result"], judged);
    text += "\n## Instructions\n\n\
        QEMU `-icount shift=0`, one CPU, 256 MiB, policy `kernel`, interrupts masked: instructions \
        of an allocation and its free, per page where there are more.\n\n";
    let mut rows = Vec::new();
    for (way, output) in counts {
        for line in output.all("count: ") {
            let (what, count) = line.rsplit_once(": ").unwrap_or((line, "?"));
            rows.push(vec![way.clone(), what.into(), count.into()]);
        }
    }
    for (kernel, count) in LINUX {
        rows.push(vec![kernel.into(), "pair of order 0".into(), count.to_string()]);
    }
    text + &table(&["", "what", "instructions"], &rows)
}

/// How a machine that counts allocates.
fn way(arch: Arch, machine: &Machine) -> String {
    format!("{}{}", arch.name(), if machine.sections { ", sections" } else { "" })
}

/// A Markdown table.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head) + &line(&vec!["--"; head.len()]);
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
    }

    /// Who types what the page shows has the program.
    #[test]
    fn the_tutorial_shows_its_kernel_from_the_first_line_to_the_last() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let page = read("docs/tutorial/boot.md");
        let source = "examples/kernel/src/bin/smallest.rs";
        let mark = format!("```rust,ignore from={source}\n");
        let blocks = page.split(mark.as_str()).skip(1);
        let shown: String = blocks.map(|block| block.split("```").next().unwrap()).collect();
        assert_eq!(lines(&shown), lines(&read(source)));
    }
}
