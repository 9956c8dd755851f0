//! The machine's NUMA topology: nodes, CPUs, distances, memory, last-level caches.
//!
//! ```text
//!   /sys/devices/system/node  online has_cpu has_memory nodeN/{cpulist,distance,meminfo}
//!   /sys/devices/system/cpu   possible online cpuN/cache/indexI/{type,size,shared_cpu_list}
//!        |  read.rs                                  fake.rs: made-up nodes, or real ones split
//!        v                                              |
//!   Topology  <-----------------------------------------+
//! ```
//!
//! # Invariants
//! - **TOPO-1** `nodes` is sorted by id, ids are unique, there is at least one. Ids may have gaps.
//! - **TOPO-2** `cpus` is sorted by id, holds exactly the online CPUs, at least one, and each is in
//!   exactly one node: `sum over nodes of |node.cpus| == |cpus|`.
//! - **TOPO-3** `distances` has `|nodes| * |nodes|` entries, row by row in the order of `nodes`;
//!   the kernel's rows, too, have one entry per *online* node, not per id.
//! - **TOPO-4** every online CPU is possible.
//!
//! A node may have no memory, or no CPUs (LB A.1): both are kept, and the zonelists skip them.
//! This module describes; it does not watch for hotplug: read again for a new picture.

use std::path::PathBuf;
use zonal_core::types::{CpuId, NodeId};

mod fake;
mod read;
#[cfg(test)]
mod tests;

pub use fake::{CpuPlacement, FAKE_NODE_BYTES_DEFAULT, FakeSpec};
pub(crate) use read::hidden;
pub use read::parse_list;

/// Where Linux describes the nodes.
pub const SYSFS_NODE: &str = "/sys/devices/system/node";
/// Where Linux describes the CPUs.
pub const SYSFS_CPU: &str = "/sys/devices/system/cpu";
/// Where Linux says how much memory there is.
pub const PROC_MEMINFO: &str = "/proc/meminfo";

/// Distance of a node to itself (ACPI SLIT).
pub const DISTANCE_LOCAL: u8 = 10;
/// Distance of two nodes if sysfs has none (ACPI SLIT).
pub const DISTANCE_REMOTE: u8 = 20;

/// The files a topology is read from. Tests point it at forged trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysfsRoots {
    /// The folder with `nodeN` folders.
    pub node: PathBuf,
    /// The folder with `cpuN` folders.
    pub cpu: PathBuf,
    /// The file with the machine's `MemTotal`, used when there is no node folder.
    pub meminfo: PathBuf,
}

impl Default for SysfsRoots {
    fn default() -> SysfsRoots {
        SysfsRoots { node: SYSFS_NODE.into(), cpu: SYSFS_CPU.into(), meminfo: PROC_MEMINFO.into() }
    }
}

/// Where a topology came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From sysfs.
    Sysfs,
    /// From sysfs without a node folder (a kernel built without NUMA, or a container or a sandbox
    /// that hides it): one node with everything.
    SysfsWithoutNodes,
    /// One node with as many CPUs as the system tells of, which is no Linux.
    Plain,
    /// Made up.
    Fake,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id, as Linux numbers it.
    pub id: NodeId,
    /// Its online CPUs, ascending; empty for a CPU-less node.
    pub cpus: Vec<CpuId>,
    /// Its memory, as `MemTotal` counts it; 0 for a memory-less node.
    pub mem_bytes: u64,
    /// Whether it has an online CPU.
    pub has_cpu: bool,
    /// Whether it has memory.
    pub has_memory: bool,
    /// The real node to bind memory to: itself when read from sysfs, the one it was cut from when
    /// split, none when made up.
    pub bind_to: Option<NodeId>,
}

/// An online CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its id, as Linux numbers it.
    pub id: CpuId,
    /// Its node.
    pub node: NodeId,
    /// Its last-level cache, where sysfs tells.
    pub llc: Option<Llc>,
}

/// The last cache level that a CPU can hold data in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Llc {
    /// Its size.
    pub bytes: u64,
    /// The CPUs that share it, ascending, at least one.
    pub sharers: Vec<CpuId>,
}

impl Llc {
    /// One CPU's share: size divided by sharers (LB E.5).
    pub fn slice_bytes(&self) -> u64 {
        self.bytes / self.sharers.len().max(1) as u64
    }
}

/// The machine. See the module's invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    cpus: Vec<Cpu>,
    possible: Vec<CpuId>,
    distances: Vec<u8>,
    source: Source,
}

/// A topology could not be read or made up.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file could not be read.
    #[error("cannot read {}: {source}; expected {expected}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has unexpected contents.
    #[error("{} holds {content:?}: expected {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its contents, shortened.
        content: String,
        /// What should be in it.
        expected: String,
    },
    /// A made-up machine that cannot be.
    #[error("cannot make up this machine: {problem}; expected {expected}")]
    Fake {
        /// The fault.
        problem: String,
        /// What would be right.
        expected: String,
    },
}

impl Topology {
    /// The nodes, ascending by id.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.node_index(id).map(|index| &self.nodes[index])
    }

    /// Position of a node among [`Topology::nodes`].
    pub fn node_index(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    /// The online CPUs, ascending by id.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The online CPU with this id.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }

    /// The node of an online CPU.
    pub fn node_of_cpu(&self, id: CpuId) -> Option<NodeId> {
        self.cpu(id).map(|cpu| cpu.node)
    }

    /// The CPUs that are or may come online, ascending.
    pub fn possible_cpus(&self) -> &[CpuId] {
        &self.possible
    }

    /// One more than the highest possible CPU id: the length of a table indexed by CPU.
    pub fn cpu_ids_max(&self) -> u32 {
        self.possible.last().map_or(0, |cpu| cpu.0) + 1
    }

    /// Distance from one node to another, 10 being local.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        let (row, column) = (self.node_index(from)?, self.node_index(to)?);
        Some(self.distances[row * self.nodes.len() + column])
    }

    /// Distances from one node to each of [`Topology::nodes`], in that order.
    pub fn distance_row(&self, from: NodeId) -> Option<&[u8]> {
        let row = self.node_index(from)?;
        self.distances.chunks_exact(self.nodes.len()).nth(row)
    }

    /// The last-level cache of each CPU, by CPU id, named by the first CPU that shares it; CPUs
    /// without cache information form one group. Empty where no cache is known.
    pub fn caches(&self) -> Vec<u16> {
        let first = |cpu: u32| {
            let llc = self.cpu(CpuId(cpu))?.llc.as_ref()?;
            llc.sharers.first().map(|sharer| sharer.0 as u16)
        };
        let known: Vec<_> = (0..self.cpu_ids_max().max(1)).map(first).collect();
        match known.iter().any(Option::is_some) {
            true => known.into_iter().map(|cache| cache.unwrap_or(u16::MAX)).collect(),
            false => Vec::new(),
        }
    }

    /// A CPU's share of its last-level cache (LB E.5), where sysfs tells.
    pub fn llc_slice_bytes(&self, id: CpuId) -> Option<u64> {
        self.cpu(id)?.llc.as_ref().map(Llc::slice_bytes)
    }

    /// Memory of all nodes.
    pub fn mem_bytes(&self) -> u64 {
        self.nodes.iter().fold(0, |bytes, node| bytes.saturating_add(node.mem_bytes))
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Asserts TOPO-1 to TOPO-4 in debug builds; every constructor ends here.
    fn checked(self) -> Topology {
        debug_assert!(!self.nodes.is_empty(), "TOPO-1");
        debug_assert!(self.nodes.is_sorted_by(|a, b| a.id < b.id), "TOPO-1");
        debug_assert!(!self.cpus.is_empty(), "TOPO-2");
        debug_assert!(self.cpus.is_sorted_by(|a, b| a.id < b.id), "TOPO-2");
        let in_nodes: usize = self.nodes.iter().map(|node| node.cpus.len()).sum();
        debug_assert_eq!(in_nodes, self.cpus.len(), "TOPO-2");
        debug_assert_eq!(self.distances.len(), self.nodes.len() * self.nodes.len(), "TOPO-3");
        debug_assert!(
            self.cpus.iter().all(|cpu| self.possible.binary_search(&cpu.id).is_ok()),
            "TOPO-4"
        );
        self
    }
}
