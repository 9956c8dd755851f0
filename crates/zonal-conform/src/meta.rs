//! `meta.json` of a capture: the kernel, and the sysctls written.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;
use crate::place::Place;

/// The file's name.
pub const FILE: &str = "meta.json";

/// The recorder's notes. Fields that are not here are not needed.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Meta {
    /// The capture's name.
    pub name: Option<String>,
    /// Such as `6.12.117+deb12-amd64`.
    pub kernel_release: String,
    /// `uname -a`; names the processor.
    #[serde(default)]
    pub uname: String,
    /// Lines of the kernel's log: `Fallback order for Node 0: 0 1`.
    #[serde(default)]
    pub fallback_order: Vec<String>,
    /// Sysctls that were written before the texts were read, with the values written.
    #[serde(default)]
    pub sysctl_set: BTreeMap<String, String>,
    /// What the kernel said to each: `vm.min_free_kbytes=4096 ok`.
    #[serde(default)]
    pub sysctl_set_result: Vec<String>,
    /// Sysctls as the boot left them.
    #[serde(default)]
    pub sysctls_at_boot: BTreeMap<String, String>,
    /// Sysctls when the texts were read.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Distances between the nodes.
    pub guest_distances: Option<Vec<Vec<u32>>>,
    /// CPUs of each node, as lists.
    pub guest_node_cpus: Option<BTreeMap<String, String>>,
    /// Where it stands, for messages.
    #[serde(skip)]
    pub source: Source,
}

/// The text of the file, to find lines in.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// What messages call the file.
    pub file: String,
    text: String,
}

impl Meta {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// With file and line.
    pub fn parse(file: String, text: &str) -> Result<Meta, Error> {
        let mut meta: Meta = serde_json::from_str(text).map_err(|error| {
            Error::at(&file, error.line() as u64, &format!("bad JSON: {error}"))
        })?;
        meta.source = Source { file, text: text.to_owned() };
        Ok(meta)
    }

    /// The processor's architecture, as `uname` says it.
    pub fn is_x86(&self) -> bool {
        self.uname.contains("x86_64")
    }
}

impl Source {
    /// The first line that contains `text`, after the first one with `after`.
    pub fn find(&self, after: &str, text: &str) -> Place {
        let mut lines = self.text.lines().zip(1..).skip_while(|(line, _)| !line.contains(after));
        let line = lines.find(|(line, _)| line.contains(text)).map_or(1, |(_, line)| line);
        Place::new(&self.file, line)
    }

    /// The first line that contains `text`, with its number.
    pub fn line_with(&self, text: &str) -> Option<(u64, &str)> {
        let mut lines = self.text.lines().zip(1..).map(|(line, number)| (number, line));
        lines.find(|(_, line)| line.contains(text))
    }
}
