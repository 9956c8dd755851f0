//! `cargo xtask cross`: tests on other C libraries and processors, and checks for other systems.
//!
//! ```text
//!  musl                 test programs run as they are: this processor, another libc
//!  riscv64, ppc64le,    test programs in qemu's user emulation, which has no restartable sequences
//!  s390x (big-endian)   and no membarrier for them: pools are in lock mode
//!  FreeBSD, macOS,      the libraries are compiled as far as `cargo check` goes, and run nowhere
//!  Windows
//!  s390x                the program is compiled, as far as that, for a processor that not all of
//!                       the crates it uses know
//!  riscv32imac, i686    the core, and the pool, are refused there by one error that says what is
//!                       lacking
//! ```
//! It installs nothing: what is missing is named with its package, and the row says SKIPPED.
//! `--check` does only the last part, which is a step of continuous integration.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::record::Record;
use crate::tools::{cargo, find, libraries, target_directory};

/// A target that tests run on here.
struct Target {
    /// As a user names it.
    name: &'static str,
    triple: &'static str,
    /// Compiler and linker.
    gcc: &'static str,
    /// What runs its programs, with arguments; nothing for this processor.
    emulator: &'static [&'static str],
    /// Packages of Debian that have all this.
    packages: &'static str,
}

const TARGETS: [Target; 4] = [
    Target {
        name: "musl",
        triple: "x86_64-unknown-linux-musl",
        gcc: "musl-gcc",
        emulator: &[],
        packages: "musl-tools",
    },
    Target {
        name: "riscv64",
        triple: "riscv64gc-unknown-linux-gnu",
        gcc: "riscv64-linux-gnu-gcc",
        emulator: &["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"],
        packages: "qemu-user gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    },
    Target {
        name: "ppc64le",
        triple: "powerpc64le-unknown-linux-gnu",
        gcc: "powerpc64le-linux-gnu-gcc",
        emulator: &["qemu-ppc64le", "-L", "/usr/powerpc64le-linux-gnu"],
        packages: "qemu-user gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross",
    },
    Target {
        name: "s390x",
        triple: "s390x-unknown-linux-gnu",
        gcc: "s390x-linux-gnu-gcc",
        emulator: &["qemu-s390x", "-L", "/usr/s390x-linux-gnu"],
        packages: "qemu-user gcc-s390x-linux-gnu libc6-dev-s390x-cross",
    },
];

/// What runs on every target.
const TESTS: [&[&str]; 2] =
    [&["-p", "zonal-text", "-p", "zonal-trace"], &["-p", "zonal-core", "-p", "zonal", "--lib"]];
/// What only a processor that is not emulated runs in minutes: storms, models, threads.
const TESTS_AT_FULL_SPEED: &[&str] = &["-p", "zonal", "--tests"];
/// Tests of the libraries that no emulator of a process runs.
const NOT_EMULATED: [&str; 7] = [
    // They try every order of something, which takes hours.
    "exhaustive",
    "every_short_program",
    "of_two_racing_frees",
    "at_every_step",
    // They start themselves as another program: the kernel does not know the emulator.
    "host_tests",
    // It reserves 64 GiB at a time, for which the emulator makes tables until it is killed.
    "dropping_gives_the_addresses_back",
    // It reads in smaps what was advised; the emulator advises nothing.
    "advice_reaches_the_kernel",
];

/// Systems that nothing runs on here. Windows with the names of GNU: with Microsoft's, the build of
/// zstd asks for Microsoft's compiler.
const CHECKED: [&str; 3] =
    ["x86_64-unknown-freebsd", "aarch64-apple-darwin", "x86_64-pc-windows-gnu"];
/// A processor that the program is compiled for, and that nothing else here has it for.
const PROGRAM: (&str, &str) = ("s390x-unknown-linux-gnu", "zonal-cli");
/// Targets without 64-bit atomics and without 64-bit words, what is refused there, and its words.
const REFUSED: [(&str, &str, &str); 2] = [
    ("riscv32imac-unknown-none-elf", "zonal-core", "64-bit atomics"),
    ("i686-unknown-linux-gnu", "zonal", "64-bit target"),
];
/// The library that is not compiled for them: the bench is of Linux.
const OF_LINUX: &str = "zonal-bench";

/// Runs the tests on the targets with these names, all without, and then the checks.
pub fn run(root: &Path, names: &[&str]) -> Result<bool> {
    if let Some(name) = names.iter().find(|name| TARGETS.iter().all(|t| t.name != **name)) {
        let known = TARGETS.map(|target| target.name).join(", ");
        anyhow::bail!("{name}: no such target; expected {known}");
    }
    let mut record = Record::begin(root, "user emulation");
    for target in TARGETS.iter().filter(|t| names.is_empty() || names.contains(&t.name)) {
        test(root, target, &mut record)?;
    }
    if names.is_empty() {
        check_all(root, &mut record)?;
    }
    Ok(record.end())
}

/// Compiles the libraries and the program for systems and processors that nothing runs on here.
pub fn check(root: &Path) -> Result<bool> {
    let mut record = Record::begin(root, "cargo check");
    check_all(root, &mut record)?;
    Ok(record.end())
}

fn test(root: &Path, target: &Target, record: &mut Record) -> Result<()> {
    let start = Instant::now();
    if let Some(missing) = target.missing(root) {
        record.row(target.name, start, true, &format!("SKIPPED: {missing}"));
        return Ok(());
    }
    let mut sets = TESTS.to_vec();
    if target.emulator.is_empty() {
        sets.push(TESTS_AT_FULL_SPEED);
    }
    let mut passed = true;
    for set in &sets {
        let status = target.cargo_test(root, set).status().context("cannot start cargo test")?;
        passed &= status.success();
    }
    let how = target.emulator.first().copied().unwrap_or("this processor");
    let what = sets.concat().join(" ");
    record.row(target.name, start, passed, &format!("{} in {how}: {what}", target.triple));
    Ok(())
}

fn check_all(root: &Path, record: &mut Record) -> Result<()> {
    let libraries = libraries(root)?;
    let libraries = libraries.iter().filter(|library| *library != OF_LINUX);
    for triple in CHECKED {
        check_one(root, record, (triple, "the libraries"), libraries.clone())?;
    }
    let (triple, program) = PROGRAM;
    check_one(root, record, (triple, "the program"), std::iter::once(program))?;
    REFUSED.into_iter().try_for_each(|refused| refuse(root, record, refused))
}

fn check_one(
    root: &Path,
    record: &mut Record,
    (triple, what): (&str, &str),
    packages: impl Iterator<Item = impl AsRef<OsStr>>,
) -> Result<()> {
    let start = Instant::now();
    if !can_have(root, triple) {
        let missing = format!("SKIPPED: `rustup target add {triple}` does not work here");
        record.row(triple, start, true, &missing);
        return Ok(());
    }
    // In the folder of the workspace, where macros and build scripts are compiled already.
    let mut check = cargo(root);
    check.args(["check", "--quiet", "--target", triple]);
    for package in packages {
        check.arg("-p").arg(package);
    }
    // The C of zstd is not compiled: that takes the system's own headers, and a check links
    // nothing.
    let check = check.env("CC", "true").env("AR", "true").env("RUSTFLAGS", "-Dwarnings");
    let status = check.status().context("cannot start cargo check")?;
    let row = format!("cargo check of {what}; nothing is run");
    record.row(triple, start, status.success(), &row);
    Ok(())
}

/// Compiles a library for a target that it cannot run on, and expects the one error that says so.
fn refuse(
    root: &Path,
    record: &mut Record,
    (triple, library, words): (&str, &str, &str),
) -> Result<()> {
    let start = Instant::now();
    if !can_have(root, triple) {
        let missing = format!("SKIPPED: `rustup target add {triple}` does not work here");
        record.row(triple, start, true, &missing);
        return Ok(());
    }
    let output = cargo(root)
        .args(["check", "--color", "never", "--message-format", "short", "--target", triple])
        .args(["-p", library])
        .output()
        .context("cannot start cargo check")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let refused = !output.status.success() && is_one_refusal(&printed, words);
    if !refused {
        eprintln!("{printed}");
    }
    record.row(
        triple,
        start,
        refused,
        &format!("{library} is refused, by one error that says why"),
    );
    Ok(())
}

/// Whether a compiler's errors, one on a line, are the library's own alone.
fn is_one_refusal(printed: &str, words: &str) -> bool {
    let mut errors = printed.lines().filter(|line| line.contains(": error"));
    errors.next().is_some_and(|error| error.contains(words)) && errors.next().is_none()
}

impl Target {
    /// What is not installed, and how to install it.
    fn missing(&self, root: &Path) -> Option<String> {
        if !can_have(root, self.triple) {
            return Some(format!("`rustup target add {}` does not work here", self.triple));
        }
        let programs = [Some(&self.gcc), self.emulator.first()];
        let absent =
            programs.into_iter().flatten().find(|program| find(root, program).is_none())?;
        Some(format!("{absent} is not installed; `apt-get install {}`", self.packages))
    }

    fn cargo_test(&self, root: &Path, set: &[&str]) -> Command {
        let variable = |what: &str| {
            let triple = self.triple.to_uppercase().replace('-', "_");
            format!("CARGO_TARGET_{triple}_{what}")
        };
        let mut command = cargo(root);
        command
            .args(["test", "--quiet", "--no-fail-fast", "--target", self.triple])
            .args(set)
            .arg("--target-dir")
            .arg(directory(root))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env(format!("CC_{}", self.triple.replace('-', "_")), self.gcc);
        if !self.emulator.is_empty() {
            command
                .env(variable("RUNNER"), self.emulator.join(" "))
                .env(variable("LINKER"), self.gcc)
                .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
                .arg("--")
                .args(NOT_EMULATED.iter().flat_map(|name| ["--skip", name]));
        }
        command
    }
}

/// A target directory of its own, so that other flags do not build the workspace anew.
fn directory(root: &Path) -> std::path::PathBuf {
    target_directory(root).join("cross")
}

/// Whether the toolchain compiles for the target: rustup adds what is not there.
fn can_have(root: &Path, triple: &str) -> bool {
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", triple]).current_dir(root);
    rustup.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_by_package() {
        let target = Target {
            name: "none",
            triple: "no-such-triple",
            gcc: "no-such-gcc",
            emulator: &[],
            packages: "gcc-none",
        };
        let missing = target.missing(Path::new("/")).unwrap();
        assert!(missing.contains("rustup target add no-such-triple"), "{missing}");
        assert!(find(Path::new("/"), "no-such-gcc").is_none());
    }

    #[test]
    fn a_refusal_is_one_error_and_the_librarys_own() {
        let is_one_refusal = |printed: &str| is_one_refusal(printed, "64-bit atomics");
        let own = "src/lib.rs:26:1: error: zonal-core needs a target with 64-bit atomics\n";
        let end = "error: could not compile `zonal-core` (lib) due to 1 previous error\n";
        assert!(is_one_refusal(&format!("{own}{end}")));
        let other = "src/sync.rs:9:1: error[E0432]: unresolved import `AtomicU64`\n";
        assert!(!is_one_refusal(&format!("{own}{other}{end}")));
        assert!(!is_one_refusal(&format!("{other}{end}")));
        assert!(!is_one_refusal(end));
    }

    #[test]
    fn a_target_that_nobody_knows_is_named() {
        let error = run(Path::new("/"), &["vax"]).unwrap_err().to_string();
        assert!(error.contains("vax") && error.contains("s390x"), "{error}");
    }
}
