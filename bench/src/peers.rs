//! The peers: how each is built, started and kept apart.
//!
//! Every peer is a program of its own in a process of its own (`src/bin/peer_*.rs`), for two
//! reasons. Allocators bring constructors, thread hooks and environment variables that would reach
//! the others in one process; and a peer that does not compile on a machine must cost its own rows
//! only. So the peers are built from here, with the cargo that runs us, when the program starts;
//! after the first time that takes a fraction of a second each.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zonal_bench::{Remote, Runner, Skip};

/// One peer: a subject name, the program it needs, the environment it runs in.
struct Peer {
    subject: &'static str,
    program: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Compiler flags that the build needs beyond the crate's own.
    cxxflags: &'static str,
    /// A shared library to preload, and the Debian package that has it.
    preload: Option<(&'static str, &'static str)>,
}

const fn peer(subject: &'static str, program: &'static str) -> Peer {
    Peer { subject, program, environment: &[], cxxflags: "", preload: None }
}

const PEERS: [Peer; 8] = [
    Peer {
        // Without cmake its crate leaves the assertions on: a pair then takes 24 ns, not 6.
        cxxflags: "-DNDEBUG",
        ..peer("snmalloc", "peer-snmalloc")
    },
    peer("mimalloc", "peer-mimalloc"),
    peer("jemalloc", "peer-jemalloc"),
    Peer {
        environment: &[(
            "_RJEM_MALLOC_CONF",
            "oversize_threshold:0,tcache_nslots_small_min:1024,tcache_nslots_small_max:2048,\
             tcache_nslots_large:256",
        )],
        ..peer("jemalloc-tuned", "peer-jemalloc")
    },
    Peer {
        // glibc would otherwise register rseq first, and tcmalloc falls back.
        environment: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        ..peer("tcmalloc-percpu", "peer-tcmalloc")
    },
    peer("tcmalloc-default", "peer-tcmalloc"),
    Peer {
        preload: Some(("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")),
        ..peer("gperftools", "peer-libc")
    },
    peer("dpdk-mempool", "peer-dpdk"),
];

/// Builds and starts the peers that `wanted` accepts; those that cannot run come back with the
/// reason.
pub fn start(
    wanted: impl Fn(&str) -> bool,
    llfree: Option<&Path>,
) -> (Vec<Box<dyn Runner>>, Vec<Skip>) {
    let (mut runners, mut skipped): (Vec<Box<dyn Runner>>, _) = (Vec::new(), Vec::new());
    let mut add = |subject: &str, started| match started {
        Ok(remote) => runners.push(Box::new(remote) as Box<dyn Runner>),
        Err(reason) => {
            eprintln!("skipped {subject}: {reason}");
            skipped.push(Skip::subject(subject, reason));
        }
    };
    for peer in PEERS.iter().filter(|peer| wanted(peer.subject)) {
        add(peer.subject, start_one(peer));
    }
    if wanted(LLFREE) {
        add(LLFREE, start_llfree(llfree));
    }
    (runners, skipped)
}

/// The peer that comes from a checkout.
const LLFREE: &str = "llfree";

fn start_llfree(checkout: Option<&Path>) -> Result<Remote, String> {
    let checkout = checkout.ok_or("no checkout of luhsra/llfree-rs was named (--llfree DIR)")?;
    let (target, cargo) = (target()?, cargo().ok_or("no cargo here to build it")?);
    let manifest = crate::llfree::package(checkout, &target)?;
    eprintln!("building peer-llfree (minutes the first time)");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(&target);
    finish_build(command)?;
    let program = Command::new(target.join("release/peer-llfree"));
    Remote::start(LLFREE, program).map_err(|error| error.to_string())
}

fn start_one(peer: &Peer) -> Result<Remote, String> {
    let mut command = match peer.preload {
        None => Command::new(build(peer)?),
        Some((library, package)) => {
            let path = find_library(library)
                .ok_or_else(|| format!("no {library} here (Debian: apt install {package})"))?;
            let mut command = Command::new(build(peer)?);
            command.env("LD_PRELOAD", path);
            command
        }
    };
    command.arg(peer.subject).envs(peer.environment.iter().copied());
    Remote::start(peer.subject, command).map_err(|error| error.to_string())
}

/// Builds a peer's program and returns its path. Without cargo (a copied program) it must lie
/// beside this one.
fn build(peer: &Peer) -> Result<PathBuf, String> {
    let program = peer.program;
    let here = std::env::current_exe().map_err(|error| format!("where are we: {error}"))?;
    let beside = here.with_file_name(program);
    let Some(cargo) = cargo() else {
        let found = beside.exists().then_some(beside);
        return found.ok_or_else(|| format!("no {program} beside this program, and no cargo"));
    };
    let target = target()?;
    eprintln!("building {program} (minutes the first time)");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "--release", "--bin", program]);
    command.args(["--features", program, "--manifest-path"]).arg(manifest());
    command.arg("--target-dir").arg(target);
    if !peer.cxxflags.is_empty() {
        let given = std::env::var("CXXFLAGS").unwrap_or_default();
        command.env("CXXFLAGS", format!("{given} {}", peer.cxxflags));
    }
    finish_build(command)?;
    Ok(beside)
}

/// The cargo that runs us, or the one on the path where we lie in a target folder, which cargo
/// marks; if the sources are here, too.
fn cargo() -> Option<OsString> {
    let on_path = || {
        let ours = target().is_ok_and(|target| target.join("CACHEDIR.TAG").exists());
        let mut version = Command::new("cargo");
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        (ours && version.status().is_ok_and(|status| status.success())).then(|| "cargo".into())
    };
    std::env::var_os("CARGO").or_else(on_path).filter(|_| manifest().exists())
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")
}

/// The target folder that this program lies in.
fn target() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| format!("where are we: {error}"))?;
    let target = here.parent().and_then(Path::parent).map(Path::to_owned);
    target.ok_or_else(|| "this program has no target folder".into())
}

/// Runs a build, and says what is wrong if it fails.
fn finish_build(mut command: Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cargo did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    eprint!("{text}");
    Err(format!("it did not build: {}", complaint(&text)))
}

/// The line of a build's output that says what is wrong: a build script's panic, else the C
/// compiler's first error, else cargo's last one.
fn complaint(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let panicked = lines.clone().skip_while(|line| !line.contains("panicked at")).nth(1);
    let compiler = lines.clone().find(|line| line.contains(": error:"));
    let said = panicked.or(compiler).or_else(|| lines.rfind(|line| line.contains("error")));
    said.unwrap_or("no message").into()
}

/// A shared library's path by the loader's cache.
fn find_library(name: &str) -> Option<PathBuf> {
    let caches = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"];
    let run = |program| Command::new(program).arg("-p").output().ok();
    let output = caches.into_iter().find_map(run)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.rsplit(" => ").next().map(PathBuf::from).filter(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_build_is_found() {
        let text = "error: failed to run custom build command\n\n  thread 'main' panicked at \
                    build.rs:17:19:\n  libdpdk was not found\n  note: run with\n";
        assert_eq!(complaint(text), "libdpdk was not found");
        assert_eq!(complaint("error: one\nerror: two\nhelp\n"), "error: two");
        let text = "error: failed\ncargo:warning=a.c:2:5: error: 'x' undeclared\nerror occurred\n";
        assert_eq!(complaint(text), "cargo:warning=a.c:2:5: error: 'x' undeclared");
        assert_eq!(complaint(""), "no message");
    }
}
