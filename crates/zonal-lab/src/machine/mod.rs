//! Machines as data: how many CPUs, how they share caches and memory, and how long a cache line
//! takes from one to another. Each figure's source stands beside it in the file.
//!
//! ```text
//!  socket ── cores ── threads (share L1 and L2)       cpu = thread * cores + core, as Linux counts
//!     │       └── those that share a last-level cache
//!     └── nodes: cores and memory; a node may also span all sockets
//! ```
//! | module | holds |
//! |--|--|
//! | `check` | which machines can be |
//! | `load` | presets, files, names such as `broadwell-2017-88@512` |
//! | `resize` | the same kind of machine with another number of CPUs |

mod check;
mod load;
mod resize;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::mechanism::Mechanisms;
use crate::provenance::{Origin, Provenance};
use crate::units::{LOW_END, MIB_PAGES};

pub(crate) use self::check::CPUS_MAX;
pub use self::check::MachineError;
pub use self::load::split_size;

/// A machine, as its file says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name on the command line.
    pub name: String,
    /// One line about it.
    #[serde(default)]
    pub about: String,
    /// Processor packages.
    pub sockets: u32,
    /// NUMA nodes of the machine: a multiple or a divisor of `sockets`. Cores and memory are
    /// shared out evenly.
    pub nodes: u32,
    /// Cores of each package.
    pub cores_per_socket: u32,
    /// Hardware threads of each core, which share its L1 and L2.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Offline CPUs: the last ones.
    #[serde(default, skip_serializing_if = "is_none")]
    pub offline_cpus: u32,
    /// Nodes that share their cores one by one, in the order of their numbers; without it each
    /// node has cores in a row. For zones that a node is divided into (`variant`).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub interleaved_nodes: u32,
    /// Clock under load, in GHz. All costs are in cycles of it.
    pub ghz: f64,
    /// Clock with one core at work, in GHz; without it the clock is always the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost_ghz: Option<f64>,
    /// Memory of each node, in MiB.
    pub memory_mib: u64,
    /// Of the first node's memory, what lies below 4 GiB, in MiB; without it all that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_memory_mib: Option<u64>,
    /// Distances between nodes, row by row; without it 10 to itself and 20 to others, or 12 and 21
    /// to those of the same and of another socket where sockets have several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<Vec<Vec<u8>>>,
    /// Caches.
    pub cache: Caches,
    /// How long lines take.
    pub line: LineCosts,
    /// How pages' contents come, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentCosts>,
    /// Memory without CPUs, as a node behind all others, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<FarMemory>,
    /// How long work takes that touches no shared line.
    pub work: WorkCosts,
    /// Its disk, for loads that use files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskCosts>,
    /// Where each figure is from, by its name; names of figures with the same source are separated
    /// by commas, and the name of a table stands for those of its figures that are not named.
    #[serde(default)]
    pub sources: BTreeMap<String, Provenance>,
    /// Mechanisms of the model that it is simulated without. No part of its file.
    #[serde(skip)]
    pub without: Mechanisms,
}

/// Sizes and sharing of caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// L1 of a core for data, in KiB.
    pub l1_kib: u64,
    /// L2 of a core, in KiB.
    pub l2_kib: u64,
    /// Last-level cache, in KiB.
    pub llc_kib: u64,
    /// Cores that share one.
    pub llc_cores: u32,
    /// It takes what L2 caches let go, instead of holding all that they hold.
    #[serde(default)]
    pub llc_victims: bool,
}

/// How pages' contents come. Missing values are those of lines under contention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentCosts {
    /// Lines that a core has under way at a time; 10 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Gigabytes (10^9 bytes) a second that the memory of a node delivers; without it no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// Cycles until a line has come from the last-level cache, without contention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<u64>,
    /// From another core under the same last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u64>,
    /// From another last-level cache of the same socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u64>,
    /// From another socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<u64>,
}

/// Memory that no CPU is near to, as that of a CXL device: a node of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarMemory {
    /// In MiB.
    pub memory_mib: u64,
    /// Cycles until a line has come from it.
    pub line: u64,
    /// Gigabytes (10^9 bytes) a second that it delivers.
    pub gb_s: f64,
    /// Distance from every other node.
    pub distance: u8,
}

/// Cycles until a line has come, by where it is. One column for each place; a nearer place never
/// takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCosts {
    /// In the core's own L1.
    pub l1: u64,
    /// In the core's own L2.
    pub l2: u64,
    /// Clean, in the shared last-level cache.
    pub llc: u64,
    /// Changed by a core under the same last-level cache.
    pub core: u64,
    /// Changed or held under another last-level cache of the same socket.
    pub socket: u64,
    /// Changed or held in another socket.
    pub remote: u64,
    /// In memory of the own node.
    pub dram: u64,
    /// In memory of another node.
    pub dram_remote: u64,
    /// How long the line's home serves one request; the next one waits.
    pub serve: u64,
    /// A locked read-modify-write of a line that the core has already.
    pub locked: u64,
}

/// Cycles of work on lines that a core has to itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkCosts {
    /// An order-0 allocation from the per-CPU list, without statistics.
    pub alloc: u64,
    /// The free that goes with it.
    pub free: u64,
    /// One counter update: load, add, compare, store, with preemption off.
    pub update: u64,
    /// Adding to a per-CPU counter in one instruction, with preemption off.
    pub add: u64,
    /// Masking interrupts and setting them back.
    pub mask: u64,
    /// An unlocked compare-and-exchange of a line that the core has.
    pub cmpxchg: u64,
    /// Moving one block between a per-CPU list and the buddy under the zone lock, beside the lines
    /// that come for it (`cost::lock`).
    pub page: u64,
}

/// A disk with one head and a queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskCosts {
    /// MiB per second, in a run.
    pub mib_s: u64,
    /// Microseconds to somewhere else, on average: the seek, and half a turn.
    pub seek_us: u64,
    /// Requests that its queue holds.
    pub requests: u64,
    /// The largest request, in KiB.
    pub request_kib: u64,
    /// Microseconds that it waits behind a read for the next one, before it writes.
    pub idle_us: u64,
    /// Read-ahead of a file, in KiB.
    pub readahead_kib: u64,
}

const fn one() -> u32 {
    1
}

const fn is_none(count: &u32) -> bool {
    *count == 0
}

const fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Machine {
    /// Logical CPUs that are online.
    pub fn cpus(&self) -> u32 {
        self.cores() * self.threads_per_core - self.offline_cpus
    }

    /// Cores.
    pub fn cores(&self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// NUMA nodes with CPUs.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// NUMA nodes, and that of far memory, which is the last.
    pub fn all_nodes(&self) -> u32 {
        self.nodes + u32::from(self.far.is_some())
    }

    /// The first page frame of far memory: behind all other.
    pub(crate) fn far_start(&self) -> u64 {
        let low_end = self.low_memory_mib.map_or(LOW_END, |mib| mib * MIB_PAGES);
        u64::from(self.nodes) * self.memory_mib * MIB_PAGES + (LOW_END - low_end)
    }

    /// The core of a CPU: first one thread of every core, then the next.
    pub fn core_of(&self, cpu: u32) -> u32 {
        cpu % self.cores()
    }

    /// The node of a core.
    pub fn node_of_core(&self, core: u32) -> u32 {
        let groups = self.nodes / self.interleaved_nodes;
        let group = core * groups / self.cores();
        group * self.interleaved_nodes + core % self.interleaved_nodes
    }

    /// The socket of a core.
    pub fn socket_of_core(&self, core: u32) -> u32 {
        core / self.cores_per_socket
    }

    /// The last-level cache of a core.
    pub fn llc_of_core(&self, core: u32) -> u32 {
        core / self.cache.llc_cores
    }

    /// Bytes of last-level cache that one CPU may count as its own (LB E.5).
    pub fn cache_slice_bytes(&self) -> u64 {
        self.cache.llc_kib * 1024 / u64::from(self.cache.llc_cores * self.threads_per_core)
    }

    /// Distance between two nodes.
    pub fn distance(&self, from: u32, to: u32) -> u8 {
        let socket = |node: u32| node * self.sockets / self.nodes;
        let last = from.max(to) == self.nodes && from != to;
        let far = self.far.filter(|_| last).map(|far| far.distance);
        match &self.distances {
            _ if far.is_some() => far.unwrap_or_default(),
            Some(_) if from == to => 10,
            Some(rows) => rows[from as usize][to as usize],
            None if from == to => 10,
            None if self.nodes <= self.sockets => 20,
            None if socket(from) == socket(to) => 12,
            None => 21,
        }
    }

    /// Every figure with its value and where it is from, by name.
    pub fn figures(&self) -> Vec<Figure> {
        let Ok(toml::Value::Table(table)) = toml::Value::try_from(self) else { return Vec::new() };
        let mut figures = Vec::new();
        for (name, value) in table {
            match value {
                _ if ["name", "about", "sources"].contains(&name.as_str()) => {}
                toml::Value::Table(inner) => {
                    let inner =
                        inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), value));
                    figures.extend(inner.map(|(name, value)| self.figure(name, &value)));
                }
                value => figures.push(self.figure(name, &value)),
            }
        }
        figures
    }

    /// The same with each cost of a line and of work twice as high, but for those that were fitted:
    /// what hardly moves by it is made of these alone.
    ///
    /// # Panics
    /// Never: a machine has a form in TOML, and larger numbers change none of it.
    pub(crate) fn costs_doubled_but_fitted(&self) -> Machine {
        let mut table = toml::Table::try_from(self).expect("a machine has a form in TOML");
        for figure in self.figures() {
            let fitted = figure.source.is_some_and(|from| from.origin() == Origin::Fitted);
            let Some((part @ ("line" | "work"), key)) = figure.name.split_once('.') else {
                continue;
            };
            let cost = table.get_mut(part).and_then(|part| part.get_mut(key));
            if let (false, Some(toml::Value::Integer(cost))) = (fitted, cost) {
                *cost *= 2;
            }
        }
        let doubled: Machine = table.try_into().expect("larger numbers change no form");
        Machine { without: self.without, ..doubled }
    }

    fn figure(&self, name: String, value: &toml::Value) -> Figure {
        let of = |wanted: &str| {
            let names = |key: &&String| key.split(',').any(|key| key.trim() == wanted);
            self.sources.iter().find(|(key, _)| names(key)).map(|(_, source)| source.clone())
        };
        let table = name.split_once('.').map(|(table, _)| table);
        let source = of(&name).or_else(|| of(table?));
        Figure { source, value: value.to_string(), name }
    }
}

/// A figure of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Its name, as in `line.remote`.
    pub name: String,
    /// Its value, as the file writes it.
    pub value: String,
    /// Where it is from, if the machine says; in JSON its text, `estimated: the reason`.
    #[serde(serialize_with = "as_text")]
    pub source: Option<Provenance>,
}

fn as_text<S: Serializer>(source: &Option<Provenance>, to: S) -> Result<S::Ok, S::Error> {
    source.as_ref().map(Provenance::to_string).serialize(to)
}
