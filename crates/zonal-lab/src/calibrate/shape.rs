//! The shape of this machine: sockets, cores, threads, nodes and caches, as sysfs tells them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::machine::Caches;
use zonal::CpuId;
use zonal::sys::files::snapshot;
use zonal::sys::topology::{SysfsRoots, Topology, TopologyError, parse_list};

/// Cache sizes where sysfs is silent, in KiB: what most servers have at least.
const USUAL: Caches =
    Caches { l1_kib: 32, l2_kib: 1024, llc_kib: 16384, llc_cores: 1, llc_victims: false };

/// What sysfs says of the machine, made regular.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Processor packages.
    pub sockets: u32,
    /// Cores of each.
    pub cores_per_socket: u32,
    /// Threads of each core.
    pub threads_per_core: u32,
    /// Memory nodes.
    pub nodes: u32,
    /// Memory of each node.
    pub memory_mib: u64,
    /// Distances between nodes.
    pub distances: Vec<Vec<u8>>,
    /// Caches.
    pub cache: Caches,
    /// Online CPUs, and which caches each shares.
    pub cpus: Vec<Cpu>,
    /// What sysfs does not say, or what had to be made regular, by the figure it concerns.
    pub notes: Vec<(&'static str, String)>,
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Its package.
    pub socket: u32,
    /// The first CPU of its core.
    pub core: u32,
    /// The first CPU of its last-level cache.
    pub llc: u32,
    /// Its node's position.
    pub node: u32,
}

impl Shape {
    /// The shape of the machine below `roots`.
    ///
    /// # Errors
    /// The file that is missing or malformed.
    pub fn read(roots: &SysfsRoots) -> Result<Shape, TopologyError> {
        let topology = Topology::read_from(roots)?;
        let mut notes = Vec::new();
        let folder = |cpu: CpuId| roots.cpu.join(format!("cpu{}", cpu.0));
        let threads = |cpu: CpuId| {
            let lists = ["topology/core_cpus_list", "topology/thread_siblings_list"];
            lists.iter().find_map(|list| ids(&folder(cpu).join(list))).unwrap_or(vec![cpu.0])
        };
        let cpus: Vec<Cpu> = topology
            .cpus()
            .iter()
            .map(|cpu| Cpu {
                id: cpu.id,
                socket: number(&folder(cpu.id).join("topology/physical_package_id")).unwrap_or(0),
                core: threads(cpu.id).first().copied().unwrap_or(cpu.id.0),
                llc: cpu.llc.as_ref().map_or(0, |llc| llc.sharers[0].0),
                node: topology.node_index(cpu.node).unwrap_or(0) as u32,
            })
            .collect();
        let distinct =
            |part: fn(&Cpu) -> u32| cpus.iter().map(part).collect::<BTreeSet<u32>>().len() as u32;
        let (sockets, all_cores) = (distinct(|cpu| cpu.socket), distinct(|cpu| cpu.core));
        let cores_per_socket = all_cores.div_ceil(sockets);
        let threads_per_core = (cpus.len() as u32).div_ceil(all_cores);
        if cores_per_socket * sockets * threads_per_core != cpus.len() as u32 {
            let what = format!(
                "not regular: {} CPUs on {all_cores} cores of {sockets} sockets; rounded up",
                cpus.len()
            );
            notes.push(("cores_per_socket", what));
        }
        let cores = cores_per_socket * sockets;
        let real = topology.nodes().len() as u32;
        let fits = |nodes: &u32| {
            let whole = nodes.is_multiple_of(sockets) || sockets.is_multiple_of(*nodes);
            whole && cores.is_multiple_of(*nodes)
        };
        let nodes = (1..=real).rev().find(fits).unwrap_or(1);
        let mut distances: Vec<Vec<u8>> = topology
            .nodes()
            .iter()
            .filter_map(|node| topology.distance_row(node.id).map(<[u8]>::to_vec))
            .collect();
        if nodes != real {
            notes.push(("nodes", format!("not regular: {real} nodes; taken as {nodes}")));
            distances.clear();
        }
        let cache = caches(&topology, &folder(cpus[0].id), cores_per_socket, &cpus, &mut notes);
        let memory_mib = (topology.mem_bytes() >> 20) / u64::from(nodes);
        Ok(Shape {
            sockets,
            cores_per_socket,
            threads_per_core,
            nodes,
            memory_mib,
            distances,
            cache,
            cpus,
            notes,
        })
    }
}

/// Sizes from the first CPU's caches, sharing from the topology.
fn caches(
    topology: &Topology,
    cpu: &Path,
    cores_per_socket: u32,
    cpus: &[Cpu],
    notes: &mut Vec<(&'static str, String)>,
) -> Caches {
    let mut silent = |figure, kib: u64| {
        notes.push((figure, format!("sysfs does not say; taken as {kib}")));
        kib
    };
    let level = |level: u32| {
        let folders = (0..).map(|leaf| cpu.join(format!("cache/index{leaf}")));
        let data = folders.take_while(|folder| folder.is_dir()).find(|folder| {
            let kind = snapshot(&folder.join("type")).unwrap_or_default();
            number(&folder.join("level")) == Some(level) && kind.trim() != "Instruction"
        })?;
        let size = snapshot(&data.join("size")).ok()?;
        size.trim().strip_suffix('K')?.parse::<u64>().ok()
    };
    let l1_kib = level(1).unwrap_or_else(|| silent("cache.l1_kib", USUAL.l1_kib));
    let l2_kib = level(2).unwrap_or_else(|| silent("cache.l2_kib", USUAL.l2_kib.max(l1_kib)));
    let llc = topology.cpus().first().and_then(|cpu| cpu.llc.as_ref());
    let Some(llc) = llc else {
        let llc_kib = silent("cache.llc_kib", USUAL.llc_kib.max(l2_kib));
        silent("cache.llc_cores", u64::from(cores_per_socket));
        return Caches { l1_kib, l2_kib, llc_kib, llc_cores: cores_per_socket, ..USUAL };
    };
    let sharing = cpus.iter().filter(|cpu| llc.sharers.contains(&cpu.id));
    let sharing = sharing.map(|cpu| cpu.core).collect::<BTreeSet<u32>>().len() as u32;
    let most = sharing.clamp(1, cores_per_socket);
    let llc_cores = (1..=most).rev().find(|n| cores_per_socket.is_multiple_of(*n)).unwrap_or(1);
    if llc_cores != sharing {
        notes.push(("cache.llc_cores", format!("not regular: {sharing}; taken as {llc_cores}")));
    }
    let llc_kib = (llc.bytes >> 10).max(l2_kib);
    Caches { l1_kib, l2_kib, llc_kib, llc_cores, ..USUAL }
}

fn number(file: &Path) -> Option<u32> {
    snapshot(file).ok()?.trim().parse().ok()
}

fn ids(file: &Path) -> Option<Vec<u32>> {
    parse_list(&snapshot(file).ok()?).ok().filter(|ids| !ids.is_empty())
}
