//! What a pool is made of: its options, and why it could not be made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use zonal_core::machine::MachineError;
use zonal_core::policy::Policy;
use zonal_core::types::ZoneKind;

use super::brought::Brought;
use super::faults::FailAlloc;
use crate::reclaim::LastResort;
use crate::sys::map::MapError;
use crate::sys::topology::TopologyError;

/// How often lists decay and counters are folded (LB F.4, `stat_interval`).
const REFRESH_DEFAULT: Duration = Duration::from_secs(1);

/// The kind of pages that back a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Base pages, or the system's default.
    #[default]
    Base,
    /// Transparent huge pages where the kernel can.
    Transparent,
    /// Reserved 2 MiB pages; falls back to transparent ones, with a notice.
    Huge2M,
}

/// How memory is bound to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeBinding {
    /// Not at all.
    None,
    /// The kernel prefers the node, but may use another.
    #[default]
    Advisory,
    /// The node or nothing: a pool that cannot be bound is not made.
    Strict,
}

/// Which CPUs belong to which fake node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CpuMap {
    /// The first CPUs to the first node, and so on.
    #[default]
    Contiguous,
    /// CPU n to node n modulo the nodes.
    RoundRobin,
    /// As listed, by CPU.
    Explicit(Vec<u16>),
}

/// One zone of a pool that is to have others than one Normal zone per node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSize {
    /// Node.
    pub node: u16,
    /// Kind. A node has each kind at most once, in ascending order.
    pub kind: ZoneKind,
    /// Bytes, a multiple of the page size.
    pub bytes: usize,
}

/// A request that the operating system did not grant, and the fallback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice(pub String);

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a pool could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The size is not possible.
    #[error("a pool of {bytes} bytes: {expected}")]
    Size {
        /// Bytes asked for.
        bytes: usize,
        /// The accepted values.
        expected: &'static str,
    },
    /// A zone cannot have this size.
    #[error("zone {zone}: {bytes} bytes; expected a multiple of 4096, and more than 0")]
    Zone {
        /// The zone, by its place in the list.
        zone: usize,
        /// Bytes asked for.
        bytes: usize,
    },
    /// More memory would be written to than the machine has, or the process's control group allows.
    #[error(
        "{what} would fill {bytes} bytes of memory, and {owner} has {memory}; make the pool \
         smaller, or build it without {what}"
    )]
    Memory {
        /// What fills it.
        what: &'static str,
        /// Bytes it would fill.
        bytes: u64,
        /// Bytes of memory that there are, swap included.
        memory: u64,
        /// Whose they are: "this machine", or a control group with the file of its limit.
        owner: String,
    },
    /// A value of the policy is none that its key accepts.
    #[error("policy: {key}={value}; expected {expected}")]
    Setting {
        /// The value's name.
        key: &'static str,
        /// The value.
        value: String,
        /// What is possible.
        expected: String,
    },
    /// Nodes and CPUs do not fit together.
    #[error("nodes: {0}")]
    Topology(#[from] TopologyError),
    /// The machine described cannot be.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// The operating system refused the memory.
    #[error("memory: {0}")]
    Map(#[from] MapError),
    /// Memory could not be bound to its node, and the binding is strict.
    #[error(
        "node {node}: binding was refused ({errno}); use NodeBinding::Advisory to go on without"
    )]
    Bind {
        /// The operating system's node.
        node: u16,
        /// The kernel's error.
        errno: String,
    },
    /// The policy contradicts itself.
    #[error("policy: {0}")]
    Policy(&'static str),
    /// Options exclude each other, or one has a value that cannot be.
    #[error("options: {0}")]
    Options(&'static str),
    /// A thread of the pool could not be started.
    #[error(
        "the {thread} thread could not be started: {why}; the limits of the process (`ulimit -u`, \
         pids.max of its control group) may allow no more"
    )]
    Thread {
        /// Which.
        thread: &'static str,
        /// Why.
        #[source]
        why: std::io::Error,
    },
    /// The file that shows the pool cannot be written.
    #[error("{}: the pool cannot be shown there: {why}", .path.display())]
    Observe {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The budget cannot be.
    #[error("budget: {0}")]
    Budget(#[from] super::BudgetError),
    /// Memory that the program brings makes no pool.
    #[error("brought memory, range {range}: {why}")]
    Brought {
        /// The range, from 0.
        range: usize,
        /// Why.
        why: super::MemoryFault,
    },
    /// The core refused fresh memory: a bug.
    #[error("memory could not come online: {0}")]
    Online(#[from] zonal_core::alloc::OnlineError),
}

/// How far the memory of a pool is faulted in: [`Builder::on_prefault`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PrefaultProgress {
    /// Bytes that are in memory.
    pub done: usize,
    /// All bytes of the pool.
    pub total: usize,
}

/// Called with the progress.
pub(super) type Progress = Arc<dyn Fn(PrefaultProgress) + Send + Sync>;

/// Configuration of a pool. Every option has a default but the size.
///
/// ```
/// let pool = zonal::Pool::builder().size(64 << 20).build()?;
/// let mut page = pool.alloc(zonal::Order::ZERO)?;
/// page[0] = 1;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    pub(super) bytes: usize,
    pub(super) zones: Vec<ZoneSize>,
    pub(super) fake: Option<(u16, CpuMap)>,
    pub(super) backing: Backing,
    pub(super) binding: NodeBinding,
    pub(super) prefault: bool,
    pub(super) parallel: bool,
    pub(super) progress: Option<Progress>,
    pub(super) brought: Option<Brought>,
    pub(super) deferred: bool,
    pub(super) poison: bool,
    pub(super) rseq: bool,
    pub(super) policy: Policy,
    pub(super) refresh: Option<Duration>,
    pub(super) trim_rate: usize,
    pub(super) background: bool,
    pub(super) budget: Option<usize>,
    pub(super) fail_alloc: Option<FailAlloc>,
    pub(super) misuse: super::OnMisuse,
    pub(super) last_resort: Option<LastResort>,
    pub(super) observe: Option<std::path::PathBuf>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            bytes: 0,
            zones: Vec::new(),
            fake: None,
            backing: Backing::default(),
            binding: NodeBinding::default(),
            prefault: false,
            parallel: false,
            progress: None,
            brought: None,
            deferred: false,
            poison: false,
            rseq: true,
            policy: Policy::default(),
            refresh: Some(REFRESH_DEFAULT),
            trim_rate: 0,
            background: true,
            budget: None,
            fail_alloc: None,
            misuse: super::OnMisuse::default(),
            last_resort: None,
            observe: None,
        }
    }

    /// Bytes of memory, rounded up so that each node gets whole 4 MiB blocks; shared out evenly
    /// over the nodes that have memory.
    pub fn size(mut self, bytes: usize) -> Builder {
        self.bytes = bytes;
        self
    }
    /// Zones other than one Normal zone per node. Replaces [`size`](Self::size). Ascending by node,
    /// then kind.
    pub fn zones(mut self, zones: &[ZoneSize]) -> Builder {
        self.zones = zones.to_vec();
        self
    }
    /// Pretends that the machine has this many nodes, as `numa=fake` does: 1 to 256. Memory is not
    /// bound.
    pub fn fake_nodes(mut self, nodes: u16, cpus: CpuMap) -> Builder {
        self.fake = Some((nodes, cpus));
        self
    }
    /// The kind of pages that back the memory. Default: base pages.
    pub fn backing(mut self, backing: Backing) -> Builder {
        self.backing = backing;
        self
    }
    /// How memory is tied to nodes. Default: advisory.
    pub fn binding(mut self, binding: NodeBinding) -> Builder {
        self.binding = binding;
        self
    }
    /// Whether all memory is faulted in at once. Default: no, the first touch pays.
    pub fn prefault(mut self, prefault: bool) -> Builder {
        self.prefault = prefault;
        self
    }
    /// Whether writes to freed pages are looked for. Slow; default: no.
    pub fn poison(mut self, poison: bool) -> Builder {
        self.poison = poison;
        self
    }
    /// Whether restartable sequences may be used. Default: yes; the environment variable
    /// `ZONAL_RSEQ=off` says no for the whole process.
    pub fn rseq(mut self, rseq: bool) -> Builder {
        self.rseq = rseq;
        self
    }
    /// The policy. Default: [`Policy::ZONAL`].
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }
    /// How often the refresh thread runs; `None` for no such thread. Default: each second.
    pub fn refresh_every(mut self, interval: Option<Duration>) -> Builder {
        self.refresh = interval;
        self
    }
    /// Bytes a second that the refresh thread returns to the operating system, in free blocks of 2
    /// MiB and more; idle lists are drained for it. Default: none.
    pub fn trim_rate(mut self, bytes_per_second: usize) -> Builder {
        self.trim_rate = bytes_per_second;
        self
    }

    /// Whether threads reclaim in the background, one per node, from the first registered consumer
    /// on. Without them requests reclaim for themselves, and those that must not wait never find
    /// reclaimed pages. Default: yes.
    pub fn background_reclaim(mut self, background: bool) -> Builder {
        self.background = background;
        self
    }
}
