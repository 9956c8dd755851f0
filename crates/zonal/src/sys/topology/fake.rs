//! Made-up topologies: NUMA on a machine that has none, for tests, benches and demonstrations.
//!
//! Two ways: [`Topology::fake`] and [`Topology::fake_from`] make up everything; [`Topology::split`]
//! cuts each real node into equal pieces, as the kernel's `numa=fake=<N>U` does with memory. Which
//! CPUs belong to which piece is the caller's choice ([`CpuPlacement`]); contiguous is the default,
//! because CPUs with neighbouring numbers are what real nodes have.
//!
//! A made-up node keeps the real node behind it in `bind_to`, so that memory still goes to a node
//! that exists: `mbind` to a made-up id would fail.

use super::{Cpu, DISTANCE_LOCAL, DISTANCE_REMOTE, Node, Source, Topology, TopologyError};
use zonal_core::machine::CPUS_MAX;
use zonal_core::types::{CpuId, NodeId, PAGE_SIZE};
use zonal_core::zonelist::order::NODES_MAX;

/// Memory of a made-up node, unless said otherwise.
pub const FAKE_NODE_BYTES_DEFAULT: u64 = 1 << 30;

/// Most nodes that a machine is cut into. What a pool computes from its nodes grows with their
/// square, and each has 4 MiB at least.
pub const FAKE_NODES_MAX: usize = 256;

/// Which node each CPU belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpuPlacement {
    /// CPUs 0, 1, ... to the first node, then the second: even shares, the first ones larger by one
    /// when it does not come out even.
    #[default]
    Contiguous,
    /// CPU 0 to the first node, CPU 1 to the second, and round again.
    RoundRobin,
    /// Entry `i` is the node of the `i`-th CPU.
    Map(Vec<NodeId>),
}

/// A made-up machine: nodes 0 to `nodes - 1`, CPUs 0 to `cpus - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeSpec {
    /// Number of nodes, at least one.
    pub nodes: u16,
    /// Number of CPUs, at least one. There may be fewer CPUs than nodes: some nodes then have none.
    pub cpus: u32,
    /// Memory of each node; 0 makes every node memory-less.
    pub node_bytes: u64,
    /// Which CPU is where.
    pub placement: CpuPlacement,
}

impl Topology {
    /// A made-up machine of `nodes` nodes of 1 GiB and `cpus` CPUs, contiguous, at distances 10 and
    /// 20. A count of 0 is taken as 1, and one that no allocator takes as the most that one does.
    pub fn fake(nodes: u16, cpus: u32) -> Topology {
        let (nodes, cpus) = (nodes.clamp(1, NODES_MAX as u16), cpus.clamp(1, CPUS_MAX as u32));
        let owner = contiguous(cpus as usize, nodes.into());
        let owner = owner.into_iter().map(|index| NodeId(index as u16)).collect();
        assemble_fake(nodes, FAKE_NODE_BYTES_DEFAULT, owner)
    }

    /// A made-up machine, spelt out.
    ///
    /// # Errors
    /// [`TopologyError::Fake`] when there is no node or no CPU, or there are more than an allocator
    /// takes, or the map does not fit.
    pub fn fake_from(spec: &FakeSpec) -> Result<Topology, TopologyError> {
        let (nodes, cpus) = (usize::from(spec.nodes), spec.cpus as usize);
        if !(1..=NODES_MAX).contains(&nodes) || !(1..=CPUS_MAX).contains(&cpus) {
            let problem = format!("{nodes} nodes and {cpus} CPUs");
            let expected = format!("at least one of each, at most {NODES_MAX} and {CPUS_MAX}");
            return Err(fake_error(problem, &expected));
        }
        let node_ids: Vec<NodeId> = (0..spec.nodes).map(NodeId).collect();
        let owner = place(&spec.placement, spec.cpus as usize, &node_ids)?;
        Ok(assemble_fake(spec.nodes, spec.node_bytes, owner))
    }

    /// Cuts each node into `pieces` equal ones, as `numa=fake=<pieces>U` does; new ids count from
    /// 0, the pieces of one node being neighbours. The memory is cut evenly (in whole pages, the
    /// remainder to the last piece), and the CPUs of each real node are shared out among its
    /// pieces.
    ///
    /// Between pieces of different nodes the real distance stays. Between pieces of one node it is
    /// 20, or the smallest real distance between two nodes where that is smaller: a sibling is
    /// never farther than a neighbour.
    ///
    /// # Errors
    /// [`TopologyError::Fake`] when `pieces` is 0, there would be more than `FAKE_NODES_MAX`, or
    /// a map names a piece that was not cut from the CPU's real node (a map has one entry per
    /// online CPU, ascending by id).
    pub fn split(&self, pieces: u16, placement: &CpuPlacement) -> Result<Topology, TopologyError> {
        let total = self.nodes.len().saturating_mul(pieces.into());
        if pieces == 0 || total > FAKE_NODES_MAX {
            let problem = format!("{} nodes cut into {pieces} pieces each", self.nodes.len());
            let expected = format!("at least one piece, and at most {FAKE_NODES_MAX} in all");
            return Err(fake_error(problem, &expected));
        }
        let owner = self.split_owners(pieces, placement)?;
        let mut cpus = self.cpus.clone();
        for (cpu, &node) in cpus.iter_mut().zip(&owner) {
            cpu.node = node;
        }
        let mut nodes = Vec::with_capacity(total);
        for real in &self.nodes {
            let share = real.mem_bytes / u64::from(pieces);
            let share = share - share % PAGE_SIZE as u64;
            for piece in 0..pieces {
                let rest = real.mem_bytes - share * u64::from(pieces - 1);
                let mem_bytes = if piece == pieces - 1 { rest } else { share };
                let id = NodeId(nodes.len() as u16);
                nodes.push(make_node(id, mem_bytes, &cpus, real.bind_to));
            }
        }
        let distances = self.split_distances(pieces.into());
        let possible = self.possible.clone();
        Ok(Topology { nodes, cpus, possible, distances, source: Source::Fake }.checked())
    }

    /// The piece of each online CPU.
    fn split_owners(
        &self,
        pieces: u16,
        placement: &CpuPlacement,
    ) -> Result<Vec<NodeId>, TopologyError> {
        let piece_ids = |index: usize| -> Vec<NodeId> {
            let first = index as u16 * pieces;
            (first..first + pieces).map(NodeId).collect()
        };
        let mut owner = vec![NodeId(0); self.cpus.len()];
        if let CpuPlacement::Map(map) = placement {
            let all: Vec<NodeId> = (0..self.nodes.len()).flat_map(piece_ids).collect();
            owner = place(&CpuPlacement::Map(map.clone()), self.cpus.len(), &all)?;
        }
        for (index, real) in self.nodes.iter().enumerate() {
            let ids = piece_ids(index);
            let members = self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.node == real.id);
            let members: Vec<usize> = members.map(|(position, _)| position).collect();
            if let CpuPlacement::Map(_) = placement {
                if let Some(&cpu) = members.iter().find(|&&cpu| !ids.contains(&owner[cpu])) {
                    let problem = format!("{:?} was put into {:?}", self.cpus[cpu].id, owner[cpu]);
                    return Err(fake_error(problem, &format!("a piece of {:?}", real.id)));
                }
                continue;
            }
            for (&cpu, id) in members.iter().zip(place(placement, members.len(), &ids)?) {
                owner[cpu] = id;
            }
        }
        Ok(owner)
    }

    /// Distances between pieces; see [`Topology::split`].
    fn split_distances(&self, pieces: usize) -> Vec<u8> {
        let real_nodes = self.nodes.len();
        let real = |row: usize, column: usize| self.distances[row * real_nodes + column];
        let pairs =
            (0..real_nodes).flat_map(|row| (0..real_nodes).map(move |column| (row, column)));
        let remote =
            pairs.filter(|(row, column)| row != column).map(|(row, column)| real(row, column));
        let sibling = remote.min().unwrap_or(DISTANCE_REMOTE).min(DISTANCE_REMOTE);
        let total = real_nodes * pieces;
        let mut distances = Vec::with_capacity(total * total);
        for row in 0..total {
            for column in 0..total {
                distances.push(match (row / pieces, column / pieces) {
                    (from, to) if from != to => real(from, to),
                    _ if row == column => DISTANCE_LOCAL,
                    _ => sibling,
                });
            }
        }
        distances
    }
}

/// A wholly made-up machine; entry `i` of `owner` is the node of CPU `i`.
fn assemble_fake(nodes: u16, node_bytes: u64, owner: Vec<NodeId>) -> Topology {
    let one = |(id, &node): (usize, &NodeId)| Cpu { id: CpuId(id as u32), node, llc: None };
    let cpus: Vec<Cpu> = owner.iter().enumerate().map(one).collect();
    let possible = cpus.iter().map(|cpu| cpu.id).collect();
    let side = usize::from(nodes);
    let distance = |cell| {
        if cell / side == cell % side { DISTANCE_LOCAL } else { DISTANCE_REMOTE }
    };
    let distances = (0..side * side).map(distance).collect();
    let nodes = (0..nodes).map(|id| make_node(NodeId(id), node_bytes, &cpus, None)).collect();
    Topology { nodes, cpus, possible, distances, source: Source::Fake }.checked()
}

/// A node with those of `cpus` that are its own.
fn make_node(id: NodeId, mem_bytes: u64, cpus: &[Cpu], bind_to: Option<NodeId>) -> Node {
    let own: Vec<CpuId> = cpus.iter().filter(|cpu| cpu.node == id).map(|cpu| cpu.id).collect();
    Node { id, has_cpu: !own.is_empty(), cpus: own, mem_bytes, has_memory: mem_bytes > 0, bind_to }
}

/// The node of each of `count` CPUs, out of `node_ids` (not empty).
fn place(
    placement: &CpuPlacement,
    count: usize,
    node_ids: &[NodeId],
) -> Result<Vec<NodeId>, TopologyError> {
    match placement {
        CpuPlacement::Contiguous => {
            Ok(contiguous(count, node_ids.len()).into_iter().map(|index| node_ids[index]).collect())
        }
        CpuPlacement::RoundRobin => Ok(node_ids.iter().copied().cycle().take(count).collect()),
        CpuPlacement::Map(map) => {
            if map.len() != count {
                let problem = format!("a map of {} entries for {count} CPUs", map.len());
                return Err(fake_error(problem, "one node per CPU"));
            }
            if let Some(node) = map.iter().find(|node| !node_ids.contains(node)) {
                let problem = format!("a CPU was put into {node:?}");
                return Err(fake_error(problem, &format!("one of {} nodes", node_ids.len())));
            }
            Ok(map.clone())
        }
    }
}

/// Even contiguous shares: `count` positions over `parts` parts, the first ones larger by one.
fn contiguous(count: usize, parts: usize) -> Vec<usize> {
    let (share, larger) = (count / parts, count % parts);
    let part = |index| std::iter::repeat_n(index, share + usize::from(index < larger));
    (0..parts).flat_map(part).collect()
}

fn fake_error(problem: String, expected: &str) -> TopologyError {
    TopologyError::Fake { problem, expected: expected.to_string() }
}
