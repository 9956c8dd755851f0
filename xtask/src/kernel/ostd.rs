//! `cargo xtask ostd`: OSTD, a kernel framework, with `zonal-core` as its frame allocator.
//!
//! ```text
//!  adapters/ostd/kernel ── cargo osdk build ──► with ours, with its default ── QEMU ──► counts
//!  adapters/ostd/frames ── cargo osdk test ───► OSTD's tests and ours, 1 and 4 CPUs ──► outcomes
//! ```
//! OSTD is a published crate and is compiled by its own tool with the nightly compiler that it asks
//! for. None of its files is in this repository. Its tool runs the tests of the packages in the
//! workspace alone, by a list in the program that it generates; the tests of all others are linked
//! in and passed over. So the tool calls a `cargo` of ours, which adds OSTD to that list and goes
//! on as Cargo. The tests of OSTD's default frame allocator stay out: they ask that allocator.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::output::{Output, watch};
use super::table;
use crate::tools::{self, target_directory};

/// The compiler that OSTD asks for: `adapters/ostd/rust-toolchain.toml` says the same.
pub(super) const TOOLCHAIN: &str = "nightly-2026-07-21";
/// The version of OSTD's tool, the same as OSTD's.
const TOOL: &str = "0.19.0";
const EMULATOR: &str = "qemu-system-x86_64";
/// A kernel that runs longer hangs: emulated CPUs share the host's.
const LIMIT: Duration = Duration::from_secs(600);

/// Builds, boots and tests, by `[--write FILE]`; true if all is well.
pub fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let write = match args {
        [] => None,
        ["--write", file] => Some(Path::new(file)),
        _ => anyhow::bail!("ostd {}: expected nothing or --write FILE", args.join(" ")),
    };
    let missing = missing(root);
    ensure!(missing.is_empty(), "SKIPPED: OSTD cannot be built or booted here\n{missing}");
    let mut good = true;
    let mut counts = Vec::new();
    let mut rows = Vec::new();
    for (name, features) in [("default", ""), ("zonal", "zonal")] {
        println!("== kernel on OSTD, frame allocator {name}");
        let image = build(root, name, features)?;
        let output = boot(&image, &["-smp", "1", "-icount", "shift=0"])?;
        let mut runs = vec![("1 CPU", output)];
        if name == "zonal" {
            runs.push(("4 CPUs", boot(&image, &["-smp", "4"])?));
        }
        for (cpus, output) in &runs {
            let is_it = |line: &String| line.ends_with(&format!("frame allocator {name}"));
            ensure!(output.lines.iter().any(is_it), "{name}: the image has another allocator");
            good &= tell(output);
            let passed = output.all("passed: ").next().unwrap_or("none to make");
            let word = if output.is_good() { "passed" } else { "FAILED" };
            rows.push([name, *cpus, word, passed].map(String::from).to_vec());
        }
        counts.push(runs.swap_remove(0).1);
    }
    let mut tests = Vec::new();
    for cpus in ["1", "4"] {
        println!("== kernel tests, {cpus} CPUs");
        let outcome = Tests::run(root, cpus)?;
        good &= outcome.is_good();
        println!("   {outcome:?}");
        tests.push(outcome.row(cpus));
    }
    let report = report(&rows, &tests, &counts);
    match write {
        Some(file) => std::fs::write(root.join(file), report)
            .with_context(|| format!("{}", file.display()))?,
        None => print!("{report}"),
    }
    Ok(good)
}

/// What has to be installed first, a line each.
fn missing(root: &Path) -> String {
    let mut text = String::new();
    let runs = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    if runs(EMULATOR, &["--version"]).is_none() {
        let _ = writeln!(text, "{EMULATOR} is missing: apt-get install qemu-system-x86");
    }
    let sysroot = runs("rustup", &["run", TOOLCHAIN, "rustc", "--print", "sysroot"]);
    let sources = sysroot.is_some_and(|path| {
        let path = PathBuf::from(String::from_utf8_lossy(&path).trim());
        path.join("lib/rustlib/src/rust/library/core").is_dir()
    });
    if !sources {
        let _ = writeln!(
            text,
            "{TOOLCHAIN} with its sources is missing: rustup toolchain install {TOOLCHAIN} \
             --profile minimal --component rust-src"
        );
    }
    let tool = tools::find(root, "cargo-osdk").and_then(|path| {
        let version = runs(&path.to_string_lossy(), &["osdk", "--version"])?;
        String::from_utf8_lossy(&version).contains(TOOL).then_some(())
    });
    if tool.is_none() {
        let _ = writeln!(
            text,
            "cargo-osdk {TOOL} is missing: cargo install cargo-osdk --version {TOOL} --root {}",
            target_directory(root).join("tools").display()
        );
    }
    text
}

/// Takes what names the compiler of this repository out of a command's variables.
pub(super) fn clean(command: &mut Command) -> &mut Command {
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "CARGO_TARGET_DIR", "RUSTC", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// Builds the kernel, and returns a copy of the image.
fn build(root: &Path, name: &str, features: &str) -> Result<PathBuf> {
    let mut command = Command::new(tools::find(root, "cargo-osdk").context("no cargo-osdk")?);
    clean(&mut command).current_dir(root.join("adapters/ostd/kernel"));
    command.args(["osdk", "build", "--release"]);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    // Its tool takes what it made last for what is asked for, whatever the features.
    for made in ["zonal-ostd-kernel", "zonal-ostd-kernel-run-base"] {
        let made = root.join("adapters/ostd/target/osdk").join(made);
        if made.exists() {
            std::fs::remove_dir_all(&made).with_context(|| format!("{}", made.display()))?;
        }
    }
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "adapters/ostd/kernel cannot be built: see above");
    let built = "adapters/ostd/target/osdk/zonal-ostd-kernel/zonal-ostd-kernel-osdk-bin.elf";
    let to = target_directory(root).join("ostd");
    std::fs::create_dir_all(&to)?;
    let to = to.join(format!("{name}.elf"));
    std::fs::copy(root.join(built), &to).with_context(|| built.to_owned())?;
    Ok(to)
}

/// Boots a kernel. With less than 3 GiB OSTD finds no room for its tables under PVH.
fn boot(image: &Path, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(EMULATOR);
    command
        .args(["-machine", "q35", "-cpu", "max", "-m", "3G", "-nodefaults", "-display", "none"])
        .args(["-serial", "stdio", "-no-reboot"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .args(more)
        .arg("-kernel")
        .arg(image);
    watch(&mut command, LIMIT)
}

/// Prints what a kernel said, and whether it came to its end.
fn tell(output: &Output) -> bool {
    for start in ["passed: ", "count: ", "programs: "] {
        output.all(start).for_each(|line| println!("   {start}{line}"));
    }
    if !output.is_good() {
        let from = output.lines.len().saturating_sub(20);
        output.lines[from..].iter().for_each(|line| println!("   {line}"));
    }
    output.is_good()
}

/// The `cargo` that OSTD's tool calls.
const CARGO: &str = r#"#!/bin/sh
if [ "$1" = build ] && [ -f src/main.rs ]; then
    sed -i 's/^    "zonal-ostd",$/    "zonal-ostd", "ostd", "osdk-heap-allocator",/' src/main.rs
fi
exec "$ZONAL_CARGO" "$@"
"#;

/// What the kernel tests of a package did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tests {
    /// Package, passed, failed.
    packages: Vec<(String, u32, u32)>,
    /// All that were asked for had their turn.
    is_whole: bool,
}

impl Tests {
    /// Runs them on so many CPUs.
    fn run(root: &Path, cpus: &str) -> Result<Tests> {
        let bin = target_directory(root).join("ostd/bin");
        let cargo = tools::find(root, "cargo").context("there is no cargo in PATH")?;
        std::fs::create_dir_all(&bin)?;
        let shim = bin.join("cargo");
        std::fs::write(&shim, CARGO)?;
        std::fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let tool = tools::find(root, "cargo-osdk").context("there is no cargo-osdk")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new(tool);
        clean(&mut command).current_dir(root.join("adapters/ostd/frames"));
        command.env("PATH", path).env("ZONAL_CARGO", cargo).args(["osdk", "test", "--release"]);
        command.args(["--features", "global"]).arg(format!("--qemu-args=-smp {cpus}"));
        let output = command.stderr(std::process::Stdio::inherit()).output()?;
        let tests = Tests::parse(&String::from_utf8_lossy(&output.stdout));
        if !tests.is_good() {
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(tests)
    }

    /// Reads what the test kernel printed.
    fn parse(text: &str) -> Tests {
        let mut tests = Tests::default();
        let mut package = String::new();
        for line in text.lines().map(plain) {
            if let Some((_, name)) = line.split_once(" tests in crate ") {
                package = name.trim_matches('"').to_owned();
            }
            if let Some(result) = line.strip_prefix("test result: ") {
                let number = |what| {
                    let before = result.split(what).next().unwrap_or_default();
                    before.rsplit([' ', '.']).find_map(|word| word.parse().ok()).unwrap_or(0)
                };
                let counts = (number(" passed"), number(" failed"));
                tests.packages.push((package.clone(), counts.0, counts.1));
            }
            tests.is_whole |= line == "[ktest runner] All crates tested.";
        }
        tests
    }

    /// OSTD's tests and ours ran, and none failed.
    fn is_good(&self) -> bool {
        let ran = |name| self.packages.iter().any(|(of, passed, _)| of == name && *passed > 0);
        let failed: u32 = self.packages.iter().map(|(_, _, failed)| failed).sum();
        self.is_whole && failed == 0 && ran("ostd") && ran("zonal-ostd")
    }

    fn row(&self, cpus: &str) -> Vec<String> {
        let counts = self
            .packages
            .iter()
            .map(|(name, passed, failed)| format!("`{name}`: {passed} passed, {failed} failed"));
        let counts: Vec<String> = counts.collect();
        let word = if self.is_good() { "passed" } else { "FAILED" };
        vec![cpus.to_owned(), word.to_owned(), counts.join("; ")]
    }
}

/// A line without a terminal's colours.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut parts = line.trim_end_matches('\r').split('\x1b');
    text += parts.next().unwrap_or_default();
    for part in parts {
        text += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    text
}

fn report(rows: &[Vec<String>], tests: &[Vec<String>], counts: &[Output]) -> String {
    let mut text = String::from(
        "# OSTD with `zonal-core` as its frame allocator\n\n\
         By `cargo xtask ostd`: OSTD 0.19 in QEMU (TCG), 3 GiB, built by its own tool. `default` \
         is OSTD's own frame allocator, `zonal` is `adapters/ostd` with the policy `kernel`. No \
         timing.\n\n## Tests that run in the kernel\n\n",
    );
    text += &table(&["CPUs", "", "tests"], tests);
    text += "\n## Random programs\n\n\
        Two tasks for each CPU take segments of 1 to 20 pages, write to them, cut them, give them \
        to others and drop them; at the end the core is checked (`validate`) and every page \
        counted.\n\n";
    text += &table(&["frame allocator", "machine", "", "check"], rows);
    text += "\n## Instructions\n\n\
        QEMU `-icount shift=0`, one CPU: instructions of an allocation and its free through OSTD's \
        trait, a pair, per page where pages are held.\n\n";
    let of = |at: usize| counts.get(at).map(|output| output.all("count: ").collect::<Vec<_>>());
    text + &beside(&of(0).unwrap_or_default(), &of(1).unwrap_or_default())
}

/// A table of counts beside those of the default allocator: lines that end with `: COUNT`.
pub(super) fn beside(by_default: &[&str], ours: &[&str]) -> String {
    let mut rows = Vec::new();
    for line in ours {
        let (what, count) = line.rsplit_once(": ").unwrap_or((line, "?"));
        let same = |line: &&&str| line.rsplit_once(": ").is_some_and(|(of, _)| of == what);
        let default = by_default.iter().find(same).and_then(|line| line.rsplit_once(": "));
        let default = default.map_or("?", |(_, count)| count);
        let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
        let ratio = format!("{:.2}", number(count) / number(default));
        rows.push([what, default, count, &ratio].map(String::from).to_vec());
    }
    table(&["", "default", "zonal", "ratio"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: &str = "running 221 tests in crate \"ostd\"\n\n\
        test ostd::a::b ... \x1b[32mok\x1b[39m\r\n\
        test result: \x1b[32mok\x1b[39m. 221 passed; 0 failed; 0 filtered out.\n\
        running 6 tests in crate \"zonal-ostd\"\n\
        test result: \x1b[31mFAILED\x1b[39m. 5 passed; 1 failed; 0 filtered out.\n";

    #[test]
    fn tests_that_fail_or_do_not_run_are_no_success() {
        let failed = Tests::parse(RAN);
        assert_eq!(failed.packages[0], ("ostd".into(), 221, 0));
        assert_eq!(failed.packages[1], ("zonal-ostd".into(), 5, 1));
        assert!(!failed.is_good());
        let all = RAN.replace("5 passed; 1 failed", "6 passed; 0 failed");
        assert!(!Tests::parse(&all).is_good(), "the machine may have stopped");
        let end = "[ktest runner] All crates tested.\n";
        assert!(Tests::parse(&(all.clone() + end)).is_good());
        let without = all.replace("\"ostd\"", "\"osdk-heap-allocator\"");
        assert!(!Tests::parse(&(without + end)).is_good(), "OSTD's tests did not run");
    }

    #[test]
    fn the_compiler_is_the_one_that_the_adapter_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        assert!(read("adapters/ostd/rust-toolchain.toml").contains(TOOLCHAIN));
        assert!(read("adapters/ostd/Cargo.toml").contains(&format!("\"={TOOL}\"")));
    }
}
