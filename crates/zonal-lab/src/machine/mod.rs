//! Machines as data: how many CPUs, how they share caches and memory, and how long a cache line
//! takes from one to another. Each figure's source stands beside it in the file.
//!
//! ```text
//!  socket ── nodes ── cores ── threads (share L1)     cpu = thread * cores + core, as Linux counts
//!            each node: its memory, its last-level cache(s)
//! ```

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::check::MachineError;

/// A machine, as its file says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What the command line calls it.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// Processor packages.
    pub sockets: u32,
    /// NUMA nodes of each; its cores and memory are shared out evenly.
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
    /// Cores of each package.
    pub cores_per_socket: u32,
    /// Hardware threads of each core, which share its L1 and L2.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Clock under load, in GHz. All costs are in cycles of it.
    pub ghz: f64,
    /// Memory of each node, in MiB.
    pub memory_mib: u64,
    /// Distances between nodes, row by row; without it 10 to itself and 20 to others, 21 to those
    /// of another socket where sockets have several nodes.
    #[serde(default)]
    pub distances: Option<Vec<Vec<u8>>>,
    /// Caches.
    pub cache: Caches,
    /// How long lines take.
    pub line: LineCosts,
    /// How long work takes that touches no shared line.
    pub work: WorkCosts,
    /// Figures that were set so that a published cell comes out; every other cell of an experiment
    /// is a prediction.
    #[serde(default)]
    pub calibrated: Vec<Calibrated>,
    /// Where each figure is from, by its name.
    pub sources: BTreeMap<String, String>,
}

/// A published cell that was used to set a figure of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// The figure.
    pub figure: String,
    /// The experiment.
    pub experiment: String,
    /// Its row.
    pub row: String,
    /// Its column; without it the whole row.
    #[serde(default)]
    pub column: Option<String>,
}

/// Sizes and sharing of caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// L2 of a core, in KiB.
    pub l2_kib: u64,
    /// Last-level cache, in KiB.
    pub llc_kib: u64,
    /// Cores that share one.
    pub llc_cores: u32,
}

/// Cycles until a line that is not in the core's own cache has come, by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCosts {
    /// Clean, in the shared last-level cache.
    pub llc: u64,
    /// Changed by a core under the same last-level cache.
    pub core: u64,
    /// Changed or held by a core elsewhere.
    pub remote: u64,
    /// How long the line's home serves one such request; the next one waits.
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
    /// Moving one page between a per-CPU list and the buddy under the zone lock.
    pub page: u64,
}

const fn one() -> u32 {
    1
}

/// Presets by name, as they stand in the files.
const PRESETS: &[&str] = &[
    include_str!("../../machines/xeon-2007-8.toml"),
    include_str!("../../machines/broadwell-2017-88.toml"),
];

impl Machine {
    /// A machine from the text of its file.
    ///
    /// # Errors
    /// [`MachineError`] with the line for text that is no machine, or with the field for one that
    /// cannot be.
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start.min(text.len())].lines().count().max(1);
            MachineError::Text { line, what: error.message().to_owned() }
        })?;
        check::check(&machine)?;
        Ok(machine)
    }

    /// Every preset.
    ///
    /// # Panics
    /// If a preset's file is no machine, which a test rules out.
    pub fn presets() -> Vec<Machine> {
        let parse = |text: &&str| Machine::parse(text).expect("a preset is a machine");
        PRESETS.iter().map(parse).collect()
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// [`MachineError::Unknown`] with the names there are.
    pub fn named(name: &str) -> Result<Machine, MachineError> {
        let mut presets = Machine::presets();
        let names = presets.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>();
        let unknown = || MachineError::Unknown { name: name.to_owned(), known: names.join(", ") };
        let at = names.iter().position(|known| *known == name).ok_or_else(unknown)?;
        Ok(presets.swap_remove(at))
    }

    /// This machine with so many CPUs, spread as they were: first fewer or more cores per socket,
    /// sockets and threads staying.
    ///
    /// # Errors
    /// [`MachineError`] if `cpus` cannot be shared out evenly.
    pub fn resized(&self, cpus: u32) -> Result<Machine, MachineError> {
        let mut machine = self.clone();
        if cpus < machine.sockets * machine.threads_per_core {
            machine.sockets = 1;
            machine.threads_per_core = machine.threads_per_core.min(cpus).max(1);
        }
        let whole_socket = self.cache.llc_cores == self.cores_per_socket;
        let cores = cpus / (machine.sockets * machine.threads_per_core);
        let divisor = |most: u32| (1..=most.min(cores)).rev().find(|n| cores.is_multiple_of(*n));
        machine.cores_per_socket = cores;
        machine.cache.llc_cores =
            if whole_socket { cores } else { divisor(self.cache.llc_cores).unwrap_or(1) };
        machine.nodes_per_socket = divisor(self.nodes_per_socket).unwrap_or(1);
        machine.name = format!("{}@{cpus}", self.name);
        check::check(&machine)?;
        match machine.cpus() == cpus {
            true => Ok(machine),
            false => Err(MachineError::Field {
                field: "cpus",
                what: format!("{cpus} cannot be shared out over the sockets of {}", self.name),
            }),
        }
    }

    /// Logical CPUs.
    pub fn cpus(&self) -> u32 {
        self.cores() * self.threads_per_core
    }

    /// Cores.
    pub fn cores(&self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// NUMA nodes.
    pub fn nodes(&self) -> u32 {
        self.sockets * self.nodes_per_socket
    }

    /// The core of a CPU: first one thread of every core, then the next.
    pub fn core_of(&self, cpu: u32) -> u32 {
        cpu % self.cores()
    }

    /// The node of a core.
    pub fn node_of_core(&self, core: u32) -> u32 {
        let in_socket = core % self.cores_per_socket;
        let node = in_socket * self.nodes_per_socket / self.cores_per_socket;
        core / self.cores_per_socket * self.nodes_per_socket + node
    }

    /// The last-level cache of a core.
    pub fn llc_of_core(&self, core: u32) -> u32 {
        core / self.cache.llc_cores
    }

    /// Whether a published cell was used to set a figure of this machine.
    pub fn is_calibrated(&self, experiment: &str, row: &str, column: &str) -> bool {
        self.calibrated.iter().any(|cell| {
            cell.experiment == experiment
                && cell.row == row
                && cell.column.as_deref().is_none_or(|name| name == column)
        })
    }

    /// Bytes of last-level cache that one CPU may count as its own (LB E.5).
    pub fn cache_slice_bytes(&self) -> u64 {
        self.cache.llc_kib * 1024 / u64::from(self.cache.llc_cores * self.threads_per_core)
    }

    /// Distance between two nodes.
    pub fn distance(&self, from: u32, to: u32) -> u8 {
        match &self.distances {
            Some(rows) => rows[from as usize][to as usize],
            None if from == to => 10,
            None if self.nodes_per_socket == 1 => 20,
            None if from / self.nodes_per_socket == to / self.nodes_per_socket => 12,
            None => 21,
        }
    }
}
