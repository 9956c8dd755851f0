//! Reading a topology from sysfs.
//!
//! What is missing is made good where there is only one answer (no node folder: one node; no
//! distances: 10 and 20; one node without a CPU list: all CPUs; no folder at all: the CPUs that
//! this thread may use). A file that this process may not read, as under Landlock, AppArmor or a
//! seccomp filter, counts as one that is not there. A malformed file is an error that names the
//! file, its contents and what was expected.

use super::{
    Cpu, DISTANCE_LOCAL, DISTANCE_REMOTE, Llc, Node, Source, SysfsRoots, Topology, TopologyError,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use crate::sys::{files, mask, os};
use zonal_core::types::{CpuId, NodeId};

/// Highest id a list may name. Linux ends at 8192 CPUs and 1024 nodes; the bound keeps a garbage
/// range from filling memory.
const LIST_ID_MAX: u32 = u16::MAX as u32;
/// Characters of a malformed file that an error quotes.
const QUOTE_CHARS: usize = 80;
const EXPECTED_LIST: &str = "a list of ids and ranges such as \"0-3,8\", each at most 65535";

/// Parses a list as the kernel prints it: `0-3,8,10-11`, possibly empty. Ascending, without
/// repeats.
///
/// # Errors
/// The item that is neither an id nor an ascending range.
pub fn parse_list(text: &str) -> Result<Vec<u32>, String> {
    let mut ranges = Vec::new();
    for item in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last <= LIST_ID_MAX => {
                ranges.push((first, last));
            }
            _ => return Err(item.to_string()),
        }
    }
    ranges.sort_unstable();
    let mut ids: Vec<u32> = Vec::new();
    for (first, last) in ranges {
        // A text may say the same again and again.
        let first = ids.last().map_or(first, |said| first.max(said + 1));
        ids.extend(first..=last);
    }
    Ok(ids)
}

impl Topology {
    /// Reads this machine's topology.
    ///
    /// # Errors
    /// [`TopologyError`] names the file that is missing or malformed. A missing node folder is no
    /// error: see [`Source::SysfsWithoutNodes`]. A system without sysfs has one node.
    pub fn read() -> Result<Topology, TopologyError> {
        match os::cpus() {
            Some(cpus) => Ok(plain(cpus)),
            None => Topology::read_from(&SysfsRoots::default()),
        }
    }

    /// Reads a topology from the files below `roots`.
    ///
    /// # Errors
    /// As [`Topology::read`].
    pub fn read_from(roots: &SysfsRoots) -> Result<Topology, TopologyError> {
        read(roots)
    }
}

/// A system that tells only how many CPUs there are.
fn plain(cpus: u32) -> Topology {
    let id = NodeId(0);
    let all: Vec<CpuId> = (0..cpus).map(CpuId).collect();
    let node = Node {
        id,
        cpus: all.clone(),
        mem_bytes: os::memory_and_swap().0,
        has_cpu: true,
        has_memory: true,
        bind_to: None,
    };
    let cpus = all.iter().map(|&cpu| Cpu { id: cpu, node: id, llc: None }).collect();
    let (nodes, distances) = (vec![node], vec![DISTANCE_LOCAL]);
    Topology { nodes, cpus, possible: all, distances, source: Source::Plain }.checked()
}

/// Tries while CPUs come and go between the files of one reading.
const TRIES: u32 = 16;

/// Reads the topology below `roots`. A reading during which the online CPUs changed is made again:
/// its files may tell of different moments.
fn read(roots: &SysfsRoots) -> Result<Topology, TopologyError> {
    let online = || files::snapshot(&roots.cpu.join("online")).ok();
    let mut before = online();
    for _ in 1..TRIES {
        let topology = read_as_it_is(roots);
        let after = online();
        if before == after {
            return topology;
        }
        before = after;
    }
    read_as_it_is(roots)
}

fn read_as_it_is(roots: &SysfsRoots) -> Result<Topology, TopologyError> {
    let node_ids = read_node_ids(&roots.node)?;
    let (possible, online) = read_cpu_lists(roots, &node_ids)?;
    if node_ids.is_empty() {
        return single_node(roots, possible, online);
    }
    let mut nodes = Vec::with_capacity(node_ids.len());
    for &id in &node_ids {
        nodes.push(read_node(roots, id, &node_ids, &online)?);
    }
    mark_states(&roots.node, &mut nodes)?;
    let owners = assign_cpus(&mut nodes, &online);
    let distances = read_distances(&roots.node, &node_ids)?;
    let cpus = read_cpus(&roots.cpu, &owners)?;
    Ok(Topology { nodes, cpus, possible, distances, source: Source::Sysfs }.checked())
}

/// Without NUMA: one node with every CPU and all memory.
fn single_node(
    roots: &SysfsRoots,
    possible: Vec<CpuId>,
    online: Vec<CpuId>,
) -> Result<Topology, TopologyError> {
    let id = NodeId(0);
    let mem_bytes = read_machine_memory(roots)?;
    let owners = online.iter().map(|&cpu| (cpu, id)).collect();
    let cpus = read_cpus(&roots.cpu, &owners)?;
    let node =
        Node { id, cpus: online, mem_bytes, has_cpu: true, has_memory: true, bind_to: Some(id) };
    let (nodes, distances) = (vec![node], vec![DISTANCE_LOCAL]);
    Ok(Topology { nodes, cpus, possible, distances, source: Source::SysfsWithoutNodes }.checked())
}

/// Why nobody can tell which nodes there are: files that this process cannot read. None where the
/// kernel has no nodes to show.
pub(crate) fn hidden(roots: &SysfsRoots) -> Option<String> {
    let [nodes, cpus] = [&roots.node, &roots.cpu].map(|root| root.join("online"));
    let why = |path: &Path, error| format!("cannot read {}: {error}", path.display());
    match files::snapshot(&nodes) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(why(&nodes, error)),
        Ok(_) => None,
        Err(_) => files::snapshot(&cpus).err().map(|error| why(&cpus, error)),
    }
}

/// The online nodes; empty when the kernel shows none, or this process may not see them.
fn read_node_ids(root: &Path) -> Result<Vec<NodeId>, TopologyError> {
    let path = root.join("online");
    if let Some(ids) = read_list_optional(&path)? {
        return ids.into_iter().map(|id| node_id(&path, id)).collect();
    }
    if path.exists() {
        // It may not be read, so what folders there are says nothing about what is in them.
        return Ok(Vec::new());
    }
    // No `online` file: use the existing folders.
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        if let Some(id) = number.and_then(|number| number.parse().ok()) {
            ids.push(NodeId(id));
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// The possible and the online CPUs. Either file stands in for the other; without both, the nodes'
/// lists count; without nodes too, as in a chroot without /sys, the CPUs that this thread may use.
fn read_cpu_lists(
    roots: &SysfsRoots,
    node_ids: &[NodeId],
) -> Result<(Vec<CpuId>, Vec<CpuId>), TopologyError> {
    let possible = read_list_optional(&roots.cpu.join("possible"))?;
    let online = read_list_optional(&roots.cpu.join("online"))?;
    let mut union = possible.clone().unwrap_or_default();
    match &online {
        Some(online) => union.extend(online),
        None if possible.is_none() => {
            for id in node_ids {
                let cpulist = node_folder(&roots.node, *id).join("cpulist");
                union.extend(read_list_optional(&cpulist)?.unwrap_or_default());
            }
            if node_ids.is_empty() {
                let allowed = mask::allowed().unwrap_or_default();
                union.extend(allowed.into_iter().map(|cpu| cpu.0));
            }
        }
        None => {}
    }
    union.sort_unstable();
    union.dedup();
    let online = online.unwrap_or_else(|| union.clone());
    if online.is_empty() {
        let expected = "the online CPUs, such as \"0-3\"".to_string();
        let source =
            std::io::Error::new(ErrorKind::NotFound, "no CPU is listed anywhere; is /sys mounted?");
        return Err(TopologyError::Read { path: roots.cpu.join("online"), expected, source });
    }
    let cpus = |ids: Vec<u32>| ids.into_iter().map(CpuId).collect();
    Ok((cpus(union), cpus(online)))
}

/// One node's CPUs and memory; its states are set by [`mark_states`].
fn read_node(
    roots: &SysfsRoots,
    id: NodeId,
    node_ids: &[NodeId],
    online: &[CpuId],
) -> Result<Node, TopologyError> {
    let folder = node_folder(&roots.node, id);
    let alone = node_ids.len() == 1;
    let cpus = match read_list_optional(&folder.join("cpulist"))? {
        // Between two reads a CPU may have gone: only those online count (TOPO-2).
        Some(ids) => {
            ids.into_iter().map(CpuId).filter(|cpu| online.binary_search(cpu).is_ok()).collect()
        }
        None if alone => online.to_vec(),
        None => return Err(missing(folder.join("cpulist"), EXPECTED_LIST)),
    };
    let mem_bytes = match read_mem_total(&folder.join("meminfo"))? {
        Some(bytes) => bytes,
        None if alone => read_machine_memory(roots)?,
        None => return Err(missing(folder.join("meminfo"), "a line \"Node N MemTotal: N kB\"")),
    };
    let (has_cpu, has_memory) = (!cpus.is_empty(), mem_bytes > 0);
    Ok(Node { id, cpus, mem_bytes, has_cpu, has_memory, bind_to: Some(id) })
}

/// Takes the kernel's word on which nodes have CPUs and memory, where it gives it.
fn mark_states(root: &Path, nodes: &mut [Node]) -> Result<(), TopologyError> {
    let has_cpu = read_list_optional(&root.join("has_cpu"))?;
    let has_memory = match read_list_optional(&root.join("has_memory"))? {
        Some(list) => Some(list),
        // Kernels without movable nodes have only this one (before 3.9).
        None => read_list_optional(&root.join("has_normal_memory"))?,
    };
    for node in nodes {
        let id = u32::from(node.id.0);
        if let Some(list) = &has_cpu {
            node.has_cpu = list.binary_search(&id).is_ok();
        }
        if let Some(list) = &has_memory {
            node.has_memory = list.binary_search(&id).is_ok();
        }
    }
    Ok(())
}

/// Maps each online CPU to its one node (TOPO-2). A CPU that several nodes list, as each does with
/// `numa=fake`, is the first one's; one that no node lists goes to the first node.
fn assign_cpus(nodes: &mut [Node], online: &[CpuId]) -> BTreeMap<CpuId, NodeId> {
    let mut owners = BTreeMap::new();
    for node in nodes.iter_mut() {
        let id = node.id;
        node.cpus.retain(|&cpu| *owners.entry(cpu).or_insert(id) == id);
        node.has_cpu &= !node.cpus.is_empty();
    }
    let orphans: Vec<CpuId> =
        online.iter().copied().filter(|cpu| !owners.contains_key(cpu)).collect();
    if let (Some(first), false) = (nodes.first_mut(), orphans.is_empty()) {
        owners.extend(orphans.iter().map(|&cpu| (cpu, first.id)));
        first.cpus.extend(orphans);
        first.cpus.sort_unstable();
        first.has_cpu = true;
    }
    owners
}

/// The distance table; 10 and 20 for rows that are not there.
fn read_distances(root: &Path, node_ids: &[NodeId]) -> Result<Vec<u8>, TopologyError> {
    let mut distances = Vec::with_capacity(node_ids.len() * node_ids.len());
    for &id in node_ids {
        let path = node_folder(root, id).join("distance");
        let Some(text) = read_optional(&path, "distances")? else {
            let default = |&to| if to == id { DISTANCE_LOCAL } else { DISTANCE_REMOTE };
            distances.extend(node_ids.iter().map(default));
            continue;
        };
        let row: Result<Vec<u8>, _> = text.split_whitespace().map(str::parse).collect();
        match row {
            Ok(row) if row.len() == node_ids.len() => distances.extend(row),
            _ => {
                let nodes = node_ids.len();
                let expected = format!("{nodes} distances below 256, one per online node");
                return Err(malformed(&path, &text, &expected));
            }
        }
    }
    Ok(distances)
}

/// Each CPU with its last-level cache.
fn read_cpus(root: &Path, owners: &BTreeMap<CpuId, NodeId>) -> Result<Vec<Cpu>, TopologyError> {
    let one = |(&id, &node): (&CpuId, &NodeId)| {
        let llc = read_llc(&root.join(format!("cpu{}", id.0)).join("cache"))?;
        Ok(Cpu { id, node, llc })
    };
    owners.iter().map(one).collect()
}

/// The last-level cache: the last leaf, if that holds data (LB E.5); none where sysfs is silent.
fn read_llc(cache: &Path) -> Result<Option<Llc>, TopologyError> {
    let leaves = (0..).take_while(|leaf| cache.join(format!("index{leaf}")).is_dir());
    let Some(last) = leaves.last() else { return Ok(None) };
    let folder = cache.join(format!("index{last}"));
    let Some(kind) = read_optional(&folder.join("type"), "a cache type")? else { return Ok(None) };
    match kind.trim() {
        "Data" | "Unified" => {}
        "Instruction" => return Ok(None),
        _ => {
            let path = folder.join("type");
            return Err(malformed(&path, &kind, "\"Data\", \"Instruction\" or \"Unified\""));
        }
    }
    let size_path = folder.join("size");
    let Some(size) = read_optional(&size_path, "a cache size")? else { return Ok(None) };
    let Some(bytes) = parse_size(&size) else {
        return Err(malformed(&size_path, &size, "a size such as \"32768K\""));
    };
    let sharers_path = folder.join("shared_cpu_list");
    let Some(sharers) = read_list_optional(&sharers_path)? else { return Ok(None) };
    if sharers.is_empty() {
        return Err(malformed(&sharers_path, "", "at least one CPU"));
    }
    Ok(Some(Llc { bytes, sharers: sharers.into_iter().map(CpuId).collect() }))
}

/// All memory of the machine, for a machine of one node.
fn read_machine_memory(roots: &SysfsRoots) -> Result<u64, TopologyError> {
    if let Some(bytes) = read_mem_total(&roots.meminfo)? {
        return Ok(bytes);
    }
    Ok(os::memory_and_swap().0)
}

/// `MemTotal` of a meminfo file, the machine's or a node's; none when the file is not there.
fn read_mem_total(path: &Path) -> Result<Option<u64>, TopologyError> {
    let expected = "a line with \"MemTotal:\" and a number of kB";
    let Some(text) = read_optional(path, expected)? else { return Ok(None) };
    let total = text.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, rest)| rest);
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    match kib.and_then(|kib| kib.checked_mul(1024)) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(malformed(path, total.unwrap_or(&text), expected)),
    }
}

/// A size as sysfs prints it: a number and K, M or G.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn node_folder(root: &Path, id: NodeId) -> std::path::PathBuf {
    root.join(format!("node{}", id.0))
}

/// An id from a list as a node's; lists hold nothing above 65535.
fn node_id(path: &Path, id: u32) -> Result<NodeId, TopologyError> {
    u16::try_from(id).map(NodeId).map_err(|_| malformed(path, &id.to_string(), EXPECTED_LIST))
}

/// A list file; none when it is not there.
fn read_list_optional(path: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let Some(text) = read_optional(path, EXPECTED_LIST)? else { return Ok(None) };
    parse_list(&text).map(Some).map_err(|_| malformed(path, &text, EXPECTED_LIST))
}

/// A text file; none when it is not there, or this process may not read it.
fn read_optional(path: &Path, expected: &str) -> Result<Option<String>, TopologyError> {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match files::snapshot(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => {
            Ok(None)
        }
        Err(source) => {
            let expected = expected.to_string();
            Err(TopologyError::Read { path: path.into(), expected, source })
        }
    }
}

fn missing(path: std::path::PathBuf, expected: &str) -> TopologyError {
    let not_found = || std::io::Error::from(ErrorKind::NotFound);
    let source = files::snapshot(&path).err().unwrap_or_else(not_found);
    TopologyError::Read { path, expected: expected.to_string(), source }
}

fn malformed(path: &Path, content: &str, expected: &str) -> TopologyError {
    let content = content.trim().chars().take(QUOTE_CHARS).collect();
    TopologyError::Malformed { path: path.into(), content, expected: expected.to_string() }
}
