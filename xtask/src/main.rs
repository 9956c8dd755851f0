//! `cargo xtask`: what continuous integration runs, runnable by hand.
//!
//! - `cargo xtask tidy` checks the house rules that neither rustfmt nor clippy knows (`tidy`).
//! - `cargo xtask api` compares the public API of every library with its checked-in list (`api`).
//! - `cargo xtask ci` runs every check of continuous integration in its order (`ci`).
//! - `cargo xtask deep` runs for hours: random programs, fuzzers, storms (`deep`).
//! - `cargo xtask fuzz` runs the fuzzers of the trace readers (`fuzz`).
//! - `cargo xtask sanitize` runs Miri and the sanitizers (`sanitize`).
//! - `cargo xtask aarch64` runs the allocator's tests in an emulated aarch64 machine (`aarch64`).
//! - `cargo xtask cross` runs tests on other libcs and processors, and checks other systems
//!   (`cross`).
//! - `cargo xtask package` makes the crates' archives and the Debian packages (`package`).
//! - `cargo xtask semver` compares the libraries with those of a revision (`semver`).
//! - `cargo xtask book` builds the book of `docs/` and checks its links (`book`).
//! - `cargo xtask capi` installs the C interface and runs its programs against it (`capi`).
//! - `cargo xtask python` builds and tests the package of Python (`python`).
//! - `cargo xtask perfetto` holds Perfetto traces against the published definitions (`perfetto`).
//! - `cargo xtask redis` runs redis-server with its memory out of a pool (`redis`).
//! - `cargo xtask ostd` builds, boots and tests a kernel framework on the core (`kernel::ostd`).
//! - `cargo xtask arceos` boots a kernel of ArceOS' crates on the core (`kernel::arceos`).
//! - `cargo xtask kernel` boots the kernel of `examples/kernel` in QEMU (`kernel`).
//! - `cargo xtask size` measures a minimal image and the instructions of its calls (`size`).
//! - `cargo xtask predict` makes the predictions of `results/predictions` again (`predict`).
//! - `cargo xtask table CSV` writes the bench table of the book (`table`).
//!
//! Exit codes: 0 all is well, 1 a finding or a failed step, 2 usage, or the checks could not run.

mod aarch64;
mod api;
mod book;
mod capi;
mod ci;
mod cross;
mod deep;
mod engine;
mod fuzz;
mod kernel;
mod markdown;
mod package;
mod perfetto;
mod predict;
mod python;
mod record;
mod redis;
mod sanitize;
mod semver;
mod size;
mod table;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                  check the house rules; each finding is FILE:LINE: [check] message
  tidy --figures        print figures of the structure: files, circles, longest walks, methods
  api [--write]         compare the public items of every library crate with the lists in api/,
                        or write the lists
  ci [--test-log FILE] [--checks-log FILE] [--runs-log FILE]
                        run what continuous integration runs; with a log, what it tells of was run
                        before, and FILE holds what `cargo test --workspace` or `cargo xtask ci
                        --checks` or `--runs` printed
  ci --checks           run what needs no test to have run: formatting, lints, house rules, other
                        targets, public items, the book, the package of Python, fuzzers
  ci --runs             run what is run behind the tests: those of other features, a quick bench,
                        the main job
  deep [--calls N] [--inputs N] [--seconds N] [--limit N] [--seed N]
                        run for hours: N calls of random programs against a model (10^9 without),
                        N mutated traces (10^8), storms for N seconds (600), no part longer than
                        the limit, in seconds; prints a table
  fuzz [--seconds N]    run the fuzzers of the trace readers for N seconds together, 60 without
  sanitize [--seconds N] [--only PART]
                        run Miri, ThreadSanitizer and AddressSanitizer, each storm for N seconds,
                        60 without, or only the steps with PART in their names; prints a table
  aarch64 [PART...]     run the allocator's tests in an emulated aarch64 machine: all, or those
                        programs whose name contains a PART
  aarch64 --fetch       get what that takes with apt-get, into the target directory
  cross [TARGET...]     run tests on musl, and on riscv64, ppc64le and s390x in qemu's user
                        emulation; compile the libraries for FreeBSD, macOS and Windows; a table
  cross --check         only compile the libraries for FreeBSD, macOS and Windows
  package [--quick]     make the archives of the crates and compile them, and Debian packages, and
                        install, use and remove these in a fresh Debian (mmdebstrap); prints a
                        table; quick: compile nothing twice
  semver [REVISION]     what changed for users of the libraries since a revision, the last tag
                        without, by cargo-semver-checks
  book                  build the book of docs/ below target/book, and look at all its links;
                        compiles mdbook into target/tools the first time
  capi                  install the C interface by cargo-c below target/capi, and run its programs
                        by gcc and clang, under valgrind and sanitizers; compiles cargo-c into
                        target/tools the first time
  capi install DIR      install it below DIR, with symbol versions
  python [--quick]      build the wheel of Python's package in a fresh environment, install it into
                        another, run its tests, check its types, with every interpreter that is
                        there; quick: one interpreter, no types; a table
  python --smoke        build the wheel quickly and try it in an environment with nothing else
  python --free-threaded [PYTHON]
                        build the wheel for a free-threaded CPython, this one or one that is found,
                        and run the tests there; a table
  perfetto [RECORDING]  make a Perfetto trace of a recording, and hold it against Perfetto's own
                        definitions, both ways; a table
  redis [ROUNDS]        run redis-server and its benchmark with jemalloc, and with jemalloc on a
                        pool, each so often, 8 without, in random order; prints a table
  kernel [PROCESSOR...] [--machine WORDS] [--write FILE]
                        boot the kernel of examples/kernel in QEMU on machines of many shapes, and
                        judge what it prints; writes the report
  ostd [--write FILE]   build, boot and test OSTD, a kernel framework, with zonal-core as its frame
                        allocator; counts instructions beside its default; writes the report
  arceos [--write FILE] build and boot a kernel of ArceOS' crates, with zonal-core as its page
                        allocator; counts instructions beside its own; writes the report
  size                  text of a minimal image by crate, and instructions of its calls
  engine                run an embedded engine's own tests (redb's), with its files in the page
                        cache of zonal-cache, and without; fetches its published sources
  predict [ID...]       make the predictions of results/predictions again, all or these, in the lab
  table CSV             write the bench table of the book from a file in results/
";

fn main() -> ExitCode {
    if let Some(code) = api::as_rustdoc().or_else(capi::as_linker) {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = repository_root();
    let passed = match args[..] {
        ["tidy"] => tidy::run(&root),
        ["tidy", "--figures"] => tidy::figures::run(&root),
        ["api"] => api::run(&root, false),
        ["api", "--write"] => api::run(&root, true),
        ["ci", ref rest @ ..] => ci::command(&root, rest),
        ["fuzz"] => fuzzers(&root, ci::FUZZ_SECONDS),
        ["fuzz", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => fuzzers(&root, seconds),
            Err(error) => Err(anyhow::anyhow!("--seconds {seconds}: {error}")),
        },
        ["deep", ref rest @ ..] => deep::Amounts::parse(rest).and_then(|all| deep::run(&root, all)),
        ["sanitize", ref rest @ ..] => {
            sanitize::Plan::parse(rest).and_then(|plan| sanitize::run(&root, &plan))
        }
        ["aarch64", "--fetch"] => aarch64::fetch(&root),
        ["aarch64", ref parts @ ..] if !parts.iter().any(|part| part.starts_with('-')) => {
            aarch64::run(&root, parts)
        }
        ["cross", "--check"] => cross::check(&root),
        ["cross", ref names @ ..] if !names.iter().any(|name| name.starts_with('-')) => {
            cross::run(&root, names)
        }
        ["package"] => package::run(&root, false),
        ["package", "--quick"] => package::run(&root, true),
        ["semver"] => semver::run(&root, None),
        ["semver", revision] => semver::run(&root, Some(revision)),
        ["book"] => book::run(&root),
        ["capi"] => capi::run(&root),
        ["capi", "install", to] => capi::install(&root, Path::new(to)).map(|()| true),
        ["python", ref rest @ ..] => python::command(&root, rest),
        ["perfetto", ref rest @ ..] => perfetto::command(&root, rest),
        ["redis"] => redis::run(&root, 8),
        ["redis", rounds] => match rounds.parse() {
            Ok(rounds) => redis::run(&root, rounds),
            Err(error) => Err(anyhow::anyhow!("redis {rounds}: {error}")),
        },
        ["kernel", ref rest @ ..] => kernel::run(&root, rest),
        ["ostd", ref rest @ ..] => kernel::ostd::run(&root, rest),
        ["arceos", ref rest @ ..] => kernel::arceos::run(&root, rest),
        ["size"] => size::run(&root),
        ["engine"] => engine::run(&root),
        ["predict", ref ids @ ..] => predict::run(&root, ids),
        ["table", csv] => table::run(&root, Path::new(csv)).map(|()| true),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// All fuzzers for so many seconds; true if none found anything.
fn fuzzers(root: &Path, seconds: u64) -> anyhow::Result<bool> {
    Ok(fuzz::run(root, fuzz::Limit::seconds(seconds), fuzz::ANY_SEED)?.passed)
}

/// The directory above this package. Cargo sets the variable when it runs us; the path of the
/// build is the answer when the binary is started by hand.
fn repository_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}
