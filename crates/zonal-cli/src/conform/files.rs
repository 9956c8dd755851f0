//! Where the texts of a kernel are: a directory that somebody filled, or this machine.

use std::io;
use std::path::{Path, PathBuf};

/// Texts by the names that captures give them.
pub trait Files {
    /// The text, or `None` where there is none.
    ///
    /// # Errors
    /// If it is there and cannot be read as text.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// What messages call it.
    fn path(&self, name: &str) -> String;
}

/// A number and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The number.
    pub value: u64,
    /// Its line, counted from 1.
    pub line: u64,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// What messages call the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
}

impl Place {
    /// Line `line` of `file`.
    pub fn new(file: &str, line: u64) -> Place {
        Place { file: file.to_owned(), line }
    }
}

/// A directory of texts.
#[derive(Debug)]
pub struct Directory(pub PathBuf);

impl Files for Directory {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.0.join(name))
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// Texts under the paths where a running kernel has them.
#[derive(Debug)]
pub struct Live {
    root: PathBuf,
}

impl Live {
    /// The kernel whose `/proc` and `/sys` are below `root`.
    pub fn below(root: impl Into<PathBuf>) -> Live {
        Live { root: root.into() }
    }

    /// The path of a text that captures call `name`.
    fn locate(&self, name: &str) -> PathBuf {
        let stem = name.strip_suffix(".txt").unwrap_or(name);
        let node = stem.strip_prefix("node").and_then(|rest| rest.split_once('-'));
        let path = if let Some(file) = stem.strip_prefix("sys-node-") {
            format!("sys/devices/system/node/{file}")
        } else if let Some(file) = stem.strip_prefix("sys-cpu-") {
            format!("sys/devices/system/cpu/{file}")
        } else if let Some((node, file)) = node {
            format!("sys/devices/system/node/node{node}/{file}")
        } else if let Some(setting) = stem.strip_prefix("vm.") {
            format!("proc/sys/vm/{setting}")
        } else if stem == "thp.enabled" {
            "sys/kernel/mm/transparent_hugepage/enabled".to_owned()
        } else if stem == "osrelease" {
            "proc/sys/kernel/osrelease".to_owned()
        } else {
            format!("proc/{stem}")
        };
        self.root.join(path)
    }
}

impl Files for Live {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.locate(name))
    }
    fn path(&self, name: &str) -> String {
        self.locate(name).display().to_string()
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_kernel_has_its_texts_in_proc_and_sys() {
        let live = Live::below("/");
        for (name, path) in [
            ("zoneinfo.txt", "/proc/zoneinfo"),
            ("node12-distance.txt", "/sys/devices/system/node/node12/distance"),
            ("sys-node-online.txt", "/sys/devices/system/node/online"),
            ("sys-cpu-possible.txt", "/sys/devices/system/cpu/possible"),
            ("vm.min_free_kbytes", "/proc/sys/vm/min_free_kbytes"),
        ] {
            assert_eq!(live.path(name), path);
        }
    }
}
