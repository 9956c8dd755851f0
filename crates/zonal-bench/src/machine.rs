//! What a report says about where it was made: a number without its machine means nothing.

use serde::{Deserialize, Serialize};
use std::fs;
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
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&meminfo, "MemTotal").and_then(|v| v.trim_end_matches(" kB").parse().ok());
        let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: field(&cpuinfo, "model name").unwrap_or_else(unknown),
            cpus,
            memory_mib: kib.map_or(0, |kib: u64| kib / 1024),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            huge_pages: thp.ok().and_then(|t| selected(&t)).unwrap_or_else(unknown),
            commit: commit().unwrap_or_else(unknown),
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

fn unknown() -> String {
    "unknown".into()
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// The choice in brackets of a sysfs file such as `always [madvise] never`.
fn selected(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "vendor\t: x\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").unwrap(), "Fast CPU @ 3 GHz");
        assert_eq!(field(text, "nothing"), None);
        assert_eq!(selected("always [madvise] never\n").unwrap(), "madvise");
    }
}
