//! The files that describe the machine of a trace, as one chunk.
//!
//! They are kept as they are, `/proc` texts and `meta.json`, so that nothing of them is lost and a
//! description is read from a `.zonal` file by the code that reads it from a directory.

use zonal_text::NODES_MAX;

use super::columns::wrong;
use super::varint::{Varints, put_varint};
use crate::error::{Fault, TraceError, TraceErrorKind};
use crate::meta;
use crate::source::{DESCRIPTION_BYTES_MAX, Part, Source, read_bytes};

/// What a file tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The machine, and its state at the start of a run.
    Machine,
    /// The state at the end of a run.
    AtEnd,
    /// What was spent and waited in the whole of a run: no part of it can be told.
    Spent,
    /// The run, otherwise.
    Counted,
    /// The machine, or the run, which may have one of its own.
    OfEither,
}

/// Files that are looked for beside a stream.
const FILES: [(&str, What); 40] = [
    ("meta.json", What::Machine),
    ("zoneinfo.pre", What::Machine),
    ("zoneinfo.post", What::AtEnd),
    ("zoneinfo.txt", What::Machine),
    ("before-zoneinfo.txt", What::Machine),
    ("after-zoneinfo.txt", What::AtEnd),
    ("buddyinfo.pre", What::Machine),
    ("buddyinfo.post", What::AtEnd),
    ("buddyinfo.txt", What::Machine),
    ("before-buddyinfo.txt", What::Machine),
    ("after-buddyinfo.txt", What::AtEnd),
    ("pagetypeinfo.pre", What::Machine),
    ("pagetypeinfo.post", What::AtEnd),
    ("pagetypeinfo.txt", What::Machine),
    ("before-pagetypeinfo.txt", What::Machine),
    ("after-pagetypeinfo.txt", What::AtEnd),
    ("vmstat.pre", What::Counted),
    ("vmstat.post", What::Counted),
    ("vmstat.txt", What::Machine),
    ("before-vmstat.txt", What::Counted),
    ("after-vmstat.txt", What::Counted),
    ("reclaimers.pre", What::Spent),
    ("reclaimers.post", What::Spent),
    ("pressure-io.pre", What::Spent),
    ("pressure-io.post", What::Spent),
    ("pressure-memory.pre", What::Spent),
    ("pressure-memory.post", What::Spent),
    ("stat.pre", What::Spent),
    ("stat.post", What::Spent),
    ("sysctl.txt", What::OfEither),
    ("sysctl.post", What::AtEnd),
    ("cmdline.txt", What::Machine),
    ("read-ahead.txt", What::Machine),
    ("cpuinfo.txt", What::Machine),
    ("uname.txt", What::Machine),
    ("iomem.txt", What::Machine),
    ("comms", What::OfEither),
    ("stats.txt", What::Counted),
    ("zpoll.txt", What::Counted),
    ("zpoll.txt.zst", What::Machine),
];

/// Those that tell of something.
pub(crate) fn files_of(what: What) -> impl Iterator<Item = &'static str> {
    FILES.into_iter().filter(move |(_, of)| *of == what).map(|(name, _)| name)
}

/// Files that there are of each node.
const NODE_FILES: [&str; 5] = ["cpulist", "distance", "meminfo", "vmstat", "numastat"];

fn node_file(node: u32, file: &str) -> String {
    format!("node{node}-{file}.txt")
}

/// Most files of a chunk.
const FILES_MAX: u64 = 4096;

/// Files that describe a machine, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFiles {
    files: Vec<(String, Vec<u8>)>,
}

impl MachineFiles {
    /// Collects what `source` has. Compressed files are decompressed, and lose the `.zst` of their
    /// name.
    ///
    /// # Errors
    /// The first file that exists and cannot be read.
    pub fn collect(source: &dyn Source) -> Result<MachineFiles, TraceError> {
        let mut found = MachineFiles::default();
        let mut add = |name: &str| -> Result<(), TraceError> {
            let file = match read_bytes(source, name) {
                Err(error) if matches!(error.kind(), TraceErrorKind::Empty { .. }) => None,
                other => other?,
            };
            if let Some(file) = file {
                found.set(name.strip_suffix(".zst").unwrap_or(name), file);
            }
            Ok(())
        };
        for (name, _) in FILES {
            add(name)?;
        }
        // Ids of nodes may have gaps.
        for node in 0..NODES_MAX {
            for file in NODE_FILES {
                add(&node_file(node, file))?;
            }
        }
        Ok(found)
    }

    /// Names that files beside a stream may have.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        let of_nodes = (0..NODES_MAX).flat_map(|node| NODE_FILES.map(|file| node_file(node, file)));
        FILES.into_iter().map(|(name, _)| name.to_owned()).chain(of_nodes)
    }

    /// The content of a file.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|(known, _)| known == name);
        found.map(|(_, content)| content.as_slice())
    }

    /// Adds a file, or replaces the one of that name.
    pub fn set(&mut self, name: &str, content: Vec<u8>) {
        match self.files.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = content,
            None => self.files.push((name.to_owned(), content)),
        }
    }

    /// Takes a file out, if it is there.
    pub fn remove(&mut self, name: &str) {
        self.files.retain(|(known, _)| known != name);
    }

    /// Takes what tells of a run from `own`, and nothing of another run; all stays where `own` has
    /// no notes of its recorder.
    pub(crate) fn take_run_of(&mut self, own: &MachineFiles) {
        let object = |files: &MachineFiles| -> Option<serde_json::Map<String, serde_json::Value>> {
            serde_json::from_slice(files.get(meta::FILE)?).ok()
        };
        let Some(run) = object(own) else { return };
        for (name, what) in FILES.into_iter().filter(|(_, what)| *what != What::Machine) {
            match own.get(name) {
                Some(content) => self.set(name, content.to_vec()),
                None if what == What::OfEither => {}
                None => self.remove(name),
            }
        }
        if self.get(meta::FILE).is_some_and(|text| !text.is_empty()) && object(self).is_none() {
            // Whoever reads it says what is wrong with it.
            return;
        }
        let mut machine = object(self).unwrap_or_default();
        for (field, _) in meta::OF_RUN {
            machine.remove(field);
            machine.extend(run.get(field).map(|value| (field.to_owned(), value.clone())));
        }
        let text = format!("{:#}\n", serde_json::Value::Object(machine));
        self.set(meta::FILE, text.into_bytes());
    }

    /// The threads whose names were recorded, with the names: lines `THREAD NAME`, as tracefs has
    /// them in `saved_cmdlines`. Lines of another form are left out.
    pub fn thread_names(&self) -> Vec<(i32, String)> {
        let text = String::from_utf8_lossy(self.get("comms").unwrap_or_default());
        let lines = text.lines().filter_map(|line| line.trim_start().split_once(' '));
        lines.filter_map(|(thread, name)| Some((thread.parse().ok()?, name.to_owned()))).collect()
    }

    /// Names and contents.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, content)| (name.as_str(), content.as_slice()))
    }

    /// The same as parts of a recording in memory.
    pub(crate) fn to_parts(&self) -> Vec<Part> {
        self.files.iter().map(|(name, content)| Part::new(name, content.clone())).collect()
    }

    /// All files in one piece, uncompressed.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.files.len() as u64);
        for (name, content) in &self.files {
            put_varint(&mut bytes, name.len() as u64);
            bytes.extend_from_slice(name.as_bytes());
            put_varint(&mut bytes, content.len() as u64);
            bytes.extend_from_slice(content);
        }
        bytes
    }

    /// Decompresses a chunk of `whole` bytes and adds its files.
    pub(super) fn add_packed(&mut self, packed: &[u8], whole: u32) -> Result<(), Fault> {
        if u64::from(whole) > DESCRIPTION_BYTES_MAX {
            return Err(Box::new(TraceErrorKind::TooLarge { limit: DESCRIPTION_BYTES_MAX }));
        }
        let bytes = zstd::bulk::decompress(packed, whole as usize).map_err(|error| {
            Box::new(TraceErrorKind::CompressionDamaged { found: error.to_string() })
        })?;
        let mut fields = Varints::new(&bytes);
        for _ in 0..fields.count("number of files", FILES_MAX)? {
            let length = fields.varint()?;
            let name = std::str::from_utf8(fields.take(length)?).map_err(|_| wrong("file name"))?;
            // Names become files when a trace is unpacked: nothing that leaves the directory.
            let is_plain = |name: &str| {
                !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
            };
            if !is_plain(name) {
                return Err(wrong("file name"));
            }
            let length = fields.varint()?;
            self.set(name, fields.take(length)?.to_vec());
        }
        match fields.is_at_end() {
            true => Ok(()),
            false => Err(wrong("length of the machine's files")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_nodes_are_found_behind_a_gap() {
        let part = |name: &str| Part::new(name, b"0\n".to_vec());
        let parts = vec![part("node0-cpulist.txt"), part("node255-cpulist.txt")];
        let files = MachineFiles::collect(&crate::Parts::new("parts", parts)).unwrap();
        assert!(files.get("node255-cpulist.txt").is_some());
    }

    #[test]
    fn files_come_back_and_stay_in_their_directory() {
        let mut files = MachineFiles::default();
        files.set("meta.json", b"{}".to_vec());
        files.set("zoneinfo.pre", b"Node".to_vec());
        files.set("meta.json", b"{ }".to_vec());
        let read = |bytes: &[u8]| {
            let mut back = MachineFiles::default();
            let packed = zstd::bulk::compress(bytes, 3).unwrap();
            back.add_packed(&packed, bytes.len() as u32).map(|()| back)
        };
        assert_eq!(read(&files.to_bytes()).unwrap(), files);
        for name in ["../x", "/x", "a/b", "", ".", ".."] {
            let mut bad = MachineFiles::default();
            bad.files.push((name.to_owned(), Vec::new()));
            assert!(read(&bad.to_bytes()).is_err(), "{name}");
        }
    }
}
