//! What a report says about where it was made: a number without its machine means nothing.

use serde::{Deserialize, Serialize};
use std::process::Command;

/// The machine, the kernel and the source of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// The source's git commit, with `-dirty` if files had changed, or `unknown`.
    pub commit: String,
}

impl Machine {
    /// Reads the machine's description; what cannot be read is `unknown`, never an error.
    pub fn read(cpus: usize) -> Machine {
        let machine = zonal::sys::machine::Machine::read();
        Machine {
            cpu: machine.cpu_model,
            cpus,
            memory_mib: machine.mem_bytes >> 20,
            kernel: machine.kernel_release,
            huge_pages: machine.transparent_huge,
            commit: commit().unwrap_or_else(|| "unknown".into()),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let Machine { cpu, cpus, memory_mib, kernel, huge_pages, commit } = self;
        format!(
            "{cpu}, {cpus} CPUs, {memory_mib} MiB, Linux {kernel}, huge pages {huge_pages}, \
             commit {commit}"
        )
    }
}

/// The commit of the source tree that this crate was built from, if it is still there.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let directory = env!("CARGO_MANIFEST_DIR");
        let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    if !git(&["status", "--porcelain"])?.is_empty() {
        commit += "-dirty";
    }
    Some(commit)
}
