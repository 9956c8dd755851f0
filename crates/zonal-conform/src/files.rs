//! Source of a kernel's texts: a directory, or this machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes of one text. `zoneinfo` has 130 for each zone and CPU.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Texts by the names that captures give them.
pub trait Files {
    /// The text, or `None` if the file is missing.
    ///
    /// # Errors
    /// The file exists and cannot be read as text.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// What messages call it.
    fn path(&self, name: &str) -> String;
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

/// Reads a text of a regular file: nothing that never ends, or that waits for a writer.
fn read(path: &Path) -> io::Result<Option<String>> {
    let bad = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let is_file = match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !is_file {
        return bad("not a regular file".to_owned());
    }
    let mut text = String::new();
    File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return bad(format!("larger than {} MiB", TEXT_BYTES_MAX >> 20));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str| Directory(directory.path().to_owned()).read(name);
        assert!(read("none").unwrap().is_none());
        std::fs::create_dir(directory.path().join("folder")).unwrap();
        assert_eq!(read("folder").unwrap_err().to_string(), "not a regular file");
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("endless")).unwrap();
        assert_eq!(read("endless").unwrap_err().to_string(), "not a regular file");
        std::fs::write(directory.path().join("bytes"), [0xff]).unwrap();
        assert!(read("bytes").is_err());
        let large = File::create(directory.path().join("large")).unwrap();
        large.set_len(TEXT_BYTES_MAX + 1).unwrap();
        assert_eq!(read("large").unwrap_err().to_string(), "larger than 256 MiB");
    }

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
