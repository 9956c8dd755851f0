//! What a build of the lab is made of, as a hash: the sources of the crates that decide its
//! figures, the entries of the lock for what these compute with, and the compiler. It needs no
//! git, and is the same wherever the same is built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Crates of this repository that a row depends on: the allocator, the lab, and the recordings
/// that loads play.
pub const SOURCES: [&str; 4] = ["zonal-core", "zonal-lab", "zonal-text", "zonal-trace"];
/// What they compute with. Their other dependencies read and write text, and a row has a hash of
/// what was read.
pub const COMPUTES: [&str; 2] = ["rand_core", "rand_pcg"];
/// Directories of a crate that are built into it. Manifests are not in them: `cargo package` writes
/// them anew.
const DIRECTORIES: [&str; 3] = ["src", "build", "machines"];
/// Hexadecimal digits of an identity.
const DIGITS: usize = 12;

/// A hash of named parts.
#[derive(Default)]
pub struct Identity(Sha256);

impl Identity {
    /// Adds a part. Lengths are in the hash, so that no two lists of parts are the same bytes.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        for part in [name.as_bytes(), bytes] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// Adds the sources of a crate: each file by its path and bytes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn add_sources(&mut self, name: &str, root: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for directory in DIRECTORIES {
            walk(root, Path::new(directory), &mut files)?;
        }
        files.sort();
        for file in files {
            let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
            let bytes = fs::read(root.join(&file))?;
            self.add(&format!("{name}/{}", parts.join("/")), &bytes);
        }
        Ok(())
    }

    /// The identity.
    pub fn finish(self) -> String {
        let hash = self.0.finalize();
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        digits[..DIGITS].to_owned()
    }
}

/// Directories of a crate that are in the hash.
pub fn parts(root: &Path) -> impl Iterator<Item = PathBuf> {
    DIRECTORIES.iter().map(|name| root.join(name)).filter(|part| part.exists())
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(root, &path, files)?;
        } else if !is_an_editors(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// A backup or a file in use, which no build reads.
fn is_an_editors(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(['.', '#']) || name.ends_with('~')
}

/// Where the sources of a crate of this repository are, seen from the lab's: beside them, with the
/// version that the lock names in their own where cargo unpacked them.
pub fn sources(own: &Path, name: &str, lock: Option<&Lock>) -> Option<PathBuf> {
    if name == "zonal-lab" {
        return Some(own.to_owned());
    }
    let beside = own.parent()?;
    let unpacked =
        lock.and_then(|lock| lock.version(name)).map(|version| format!("{name}-{version}"));
    let places = [Some(name.to_owned()), unpacked].into_iter().flatten();
    places.map(|place| beside.join(place)).find(|place| place.join("src/lib.rs").is_file())
}

/// A `Cargo.lock`.
pub struct Lock {
    /// Where it is.
    pub path: PathBuf,
    text: String,
}

impl Lock {
    /// The lock in this directory or the nearest one above.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn above(directory: &Path) -> io::Result<Option<Lock>> {
        let mut places = directory.ancestors().map(|each| each.join("Cargo.lock"));
        let Some(path) = places.find(|path| path.is_file()) else { return Ok(None) };
        let text = fs::read_to_string(&path)?;
        Ok(Some(Lock { path, text }))
    }

    /// The version of a package, if there is only one.
    fn version(&self, name: &str) -> Option<String> {
        let entry = self.entry(name)?;
        let mut versions = entry.lines().filter_map(|line| line.strip_prefix("version = "));
        let version = versions.next()?.trim_matches('"').to_owned();
        versions.next().is_none().then_some(version)
    }

    /// Versions and checksums of a package.
    pub fn entry(&self, name: &str) -> Option<String> {
        let name = format!("name = \"{name}\"");
        let wanted = ["version = ", "checksum = "];
        let entries = self
            .text
            .split("[[package]]")
            .filter(|entry| entry.lines().any(|line| line.trim() == name));
        let lines = entries.flat_map(|entry| {
            entry.lines().filter(|line| wanted.iter().any(|want| line.starts_with(want)))
        });
        let lines: Vec<&str> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
