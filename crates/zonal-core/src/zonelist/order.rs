//! In which order a node's requests fall back to other nodes (LB A.5).
//!
//! Nearest first. Among equally near nodes the first place goes round: each time a node is put
//! first in a group of equal distance it gets a load, and the next list prefers another. So lists
//! depend on the lists built before them, and a full rebuild starts from zero loads and takes the
//! nodes in ascending order of their ids.
//!
//! A list is made by one sort: putting a node on it changes that node's load alone, so what the
//! others cost stays as it is. It is made in memory of the caller's, slices or the records of an
//! allocator's nodes; nothing is allocated.

use super::Node;
use crate::policy::walk::NodeLoad;
use crate::types::NodeId;

/// Most nodes a machine may have: the usual build of x86-64 distributions (LB A.1). Also a factor
/// that makes any difference in distance outweigh any load.
pub const NODES_MAX: usize = 1024;

/// Inputs of the order. Rows and entries are by node id, from 0.
#[derive(Clone, Copy, Debug)]
pub struct NodeTable<'a> {
    distance: &'a [u8],
    has_memory: &'a [bool],
    has_cpu: &'a [bool],
    memoryless_first: bool,
    rule: NodeLoad,
}

/// Why a table of nodes is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeTableError {
    /// More than [`NODES_MAX`] nodes.
    TooManyNodes(usize),
    /// `has_cpu` has this many entries and `has_memory` has that many.
    Lengths(usize, usize),
    /// The distance matrix has this many entries, not nodes times nodes.
    Distances(usize),
}

impl<'a> NodeTable<'a> {
    /// A table of `has_memory.len()` nodes; `distance` holds row after row, `[from * nodes + to]`.
    ///
    /// # Errors
    /// [`NodeTableError`] where the lengths do not fit together.
    pub fn new(
        distance: &'a [u8],
        has_memory: &'a [bool],
        has_cpu: &'a [bool],
    ) -> Result<NodeTable<'a>, NodeTableError> {
        let nodes = has_memory.len();
        if nodes > NODES_MAX {
            return Err(NodeTableError::TooManyNodes(nodes));
        }
        if has_cpu.len() != nodes {
            return Err(NodeTableError::Lengths(has_cpu.len(), nodes));
        }
        if distance.len() != nodes * nodes {
            return Err(NodeTableError::Distances(distance.len()));
        }
        Ok(NodeTable {
            distance,
            has_memory,
            has_cpu,
            memoryless_first: false,
            rule: NodeLoad::Accumulated,
        })
    }

    /// Lists a node without memory first in its own order, as 6.1 prints it; it has no zones, so
    /// allocation does not see the difference (`shared/reference/check_zoneinfo_formulas.py`).
    pub const fn memoryless_first(self) -> NodeTable<'a> {
        NodeTable { memoryless_first: true, ..self }
    }

    /// With another rule for who is first among equally near nodes.
    pub const fn load_rule(self, rule: NodeLoad) -> NodeTable<'a> {
        NodeTable { rule, ..self }
    }

    fn distances(&self) -> Distances<'a> {
        Distances { of: self.distance, rule: self.rule }
    }

    /// Number of nodes.
    pub const fn nodes(&self) -> usize {
        self.has_memory.len()
    }

    /// Distance between two nodes.
    ///
    /// # Panics
    /// If there is no such node.
    pub const fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        assert!((to.0 as usize) < self.nodes(), "a node that is not in the table");
        self.distance[from.0 as usize * self.nodes() + to.0 as usize]
    }
}

/// Distances, row after row, and who is first among equally near nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distances<'a> {
    pub of: &'a [u8],
    pub rule: NodeLoad,
}

/// Nodes of which an order is made, and the places that it has.
pub(crate) trait Nodes {
    /// How many there are.
    fn count(&self) -> usize;
    /// Whether the order of `local` has the node.
    fn is_listed(&self, local: NodeId, node: NodeId) -> bool;
    /// Whether the node has CPUs.
    fn has_cpu(&self, node: NodeId) -> bool;
    /// Its load.
    fn load(&self, node: NodeId) -> u32;
    /// Changes it.
    fn set_load(&mut self, node: NodeId, load: u32);
    /// The node at a place.
    fn at(&self, place: usize) -> NodeId;
    /// Puts a node there.
    fn put(&mut self, place: usize, node: NodeId);
}

/// In the records of a machine's nodes.
impl Nodes for [Node] {
    fn count(&self) -> usize {
        self.len()
    }
    fn is_listed(&self, _: NodeId, node: NodeId) -> bool {
        self[node.0 as usize].zones.1 > 0
    }
    fn has_cpu(&self, node: NodeId) -> bool {
        self[node.0 as usize].cpus > 0
    }
    fn load(&self, node: NodeId) -> u32 {
        self[node.0 as usize].load.into()
    }
    fn set_load(&mut self, node: NodeId, load: u32) {
        self[node.0 as usize].load = load as u16;
    }
    fn at(&self, place: usize) -> NodeId {
        self[place].placed
    }
    fn put(&mut self, place: usize, node: NodeId) {
        self[place].placed = node;
    }
}

/// By a table, in slices.
struct Given<'t, 'a> {
    table: &'t NodeTable<'a>,
    load: &'t mut [u32],
    order: &'t mut [NodeId],
}

impl Nodes for Given<'_, '_> {
    fn count(&self) -> usize {
        self.table.nodes()
    }
    fn is_listed(&self, local: NodeId, node: NodeId) -> bool {
        let local_first = node == local && self.table.memoryless_first;
        local_first || self.table.has_memory[node.0 as usize]
    }
    fn has_cpu(&self, node: NodeId) -> bool {
        self.table.has_cpu[node.0 as usize]
    }
    fn load(&self, node: NodeId) -> u32 {
        self.load[node.0 as usize]
    }
    fn set_load(&mut self, node: NodeId, load: u32) {
        self.load[node.0 as usize] = load;
    }
    fn at(&self, place: usize) -> NodeId {
        self.order[place]
    }
    fn put(&mut self, place: usize, node: NodeId) {
        self.order[place] = node;
    }
}

/// Writes the nodes that requests of `local` try, in order, to the start of `order` and returns how
/// many there are. `load` carries the loads from one call to the next.
///
/// # Panics
/// If `local` is no node of the table, or `load` or `order` is shorter than the table.
pub fn fallback_order(
    table: &NodeTable<'_>,
    local: NodeId,
    load: &mut [u32],
    order: &mut [NodeId],
) -> usize {
    assert!((local.0 as usize) < table.nodes(), "{local:?} is not in the table");
    assert!(load.len() >= table.nodes(), "a load for each node");
    assert!(order.len() >= table.nodes(), "a place for each node");
    place_nodes(table.distances(), local, &mut Given { table, load, order })
}

/// Puts the nodes that requests of `local` try at the first places, in order, and returns how many
/// there are. The loads are carried from one call to the next.
pub(crate) fn place_nodes<N: Nodes + ?Sized>(
    distances: Distances<'_>,
    local: NodeId,
    nodes: &mut N,
) -> usize {
    let mut len = 0;
    for node in (0..nodes.count()).map(|node| NodeId(node as u16)) {
        if nodes.is_listed(local, node) {
            nodes.put(len, node);
            len += 1;
        }
    }
    sort(distances, local, len, nodes);
    let row = local.0 as usize * nodes.count();
    let mut previous = local;
    for place in 0..len {
        let next = nodes.at(place);
        let distance = |to: NodeId| distances.of[row + to.0 as usize];
        if distance(next) != distance(previous) {
            let load = match distances.rule {
                #[cfg(feature = "history")]
                NodeLoad::Countdown => (nodes.count() - place) as u32,
                NodeLoad::Accumulated => nodes.load(next) + 1,
            };
            nodes.set_load(next, load);
        }
        previous = next;
    }
    len
}

/// Sorts the first places by [`rank`], by exchanges over gaps that get shorter: little code, as it
/// runs when an allocator is made. The library's sorts are 6 KiB.
fn sort<N: Nodes + ?Sized>(distances: Distances<'_>, local: NodeId, len: usize, nodes: &mut N) {
    let mut gap = len;
    let mut sorted = len < 2;
    while !sorted {
        gap = (gap * 10 / 13).max(1);
        sorted = gap == 1;
        for place in gap..len {
            let (one, other) = (nodes.at(place - gap), nodes.at(place));
            if rank(distances, local, one, nodes) > rank(distances, local, other, nodes) {
                nodes.put(place - gap, other);
                nodes.put(place, one);
                sorted = false;
            }
        }
    }
}

/// Builds every node's order, as a full rebuild does: row `n` of `orders` holds node `n`'s, and
/// `lens[n]` says how long it is. `load` is cleared first and left as the rebuild leaves it.
///
/// # Panics
/// If a slice is shorter than nodes (`load`, `lens`) or nodes times nodes (`orders`).
pub fn fallback_orders(
    table: &NodeTable<'_>,
    load: &mut [u32],
    orders: &mut [NodeId],
    lens: &mut [u16],
) {
    let nodes = table.nodes();
    load[..nodes].fill(0);
    for local in 0..nodes {
        let row = &mut orders[local * nodes..(local + 1) * nodes];
        lens[local] = fallback_order(table, NodeId(local as u16), load, row) as u16;
    }
}

/// Where `node` is on the list of `local`: the node itself first, then the cheapest; the lowest id
/// among equals.
#[inline(never)]
fn rank<N: Nodes + ?Sized>(
    distances: Distances<'_>,
    local: NodeId,
    node: NodeId,
    nodes: &N,
) -> u64 {
    let cost = cost(distances, local, node, nodes);
    debug_assert!(cost < 1 << 47);
    u64::from(node != local) << 63 | cost << 16 | u64::from(node.0)
}

/// What it costs `local` to go to `node`: distance first, then a preference for higher ids and for
/// nodes without CPUs, whose memory nobody else is near to, then load (LB A.5).
fn cost<N: Nodes + ?Sized>(
    distances: Distances<'_>,
    local: NodeId,
    node: NodeId,
    nodes: &N,
) -> u64 {
    let distance = distances.of[local.0 as usize * nodes.count() + node.0 as usize];
    let penalty = u64::from(node < local) + u64::from(nodes.has_cpu(node));
    // Any difference in distance outweighs any load: those counted down are at most the number of
    // nodes, those accumulated at most one for each list.
    let weight = match distances.rule {
        #[cfg(feature = "history")]
        NodeLoad::Countdown => NODES_MAX * nodes.count(),
        NodeLoad::Accumulated => NODES_MAX,
    };
    (u64::from(distance) + penalty) * weight as u64 + u64::from(nodes.load(node))
}

impl core::fmt::Display for NodeTableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            NodeTableError::TooManyNodes(nodes) => {
                write!(f, "{nodes} nodes; expected at most {NODES_MAX}")
            }
            NodeTableError::Lengths(cpu, memory) => {
                write!(f, "CPUs are given for {cpu} nodes, memory for {memory}; expected as many")
            }
            NodeTableError::Distances(len) => {
                write!(f, "{len} distances; expected one for each pair of nodes, rows in order")
            }
        }
    }
}
impl core::error::Error for NodeTableError {}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::types::Choice;

    /// All orders of a machine, and the loads left behind.
    fn orders(table: &NodeTable<'_>) -> (Vec<Vec<u16>>, Vec<u32>) {
        let nodes = table.nodes();
        let mut load = vec![7; nodes];
        let mut flat = vec![NodeId(0); nodes * nodes];
        let mut lens = vec![0; nodes];
        fallback_orders(table, &mut load, &mut flat, &mut lens);
        let row = |(n, &len): (usize, &u16)| {
            flat[n * nodes..][..len as usize].iter().map(|id| id.0).collect()
        };
        (lens.iter().enumerate().map(row).collect(), load)
    }

    fn cost(table: &NodeTable<'_>, local: NodeId, node: NodeId, load: &mut [u32]) -> u64 {
        super::cost(table.distances(), local, node, &Given { table, load, order: &mut [] })
    }

    fn uniform(nodes: usize) -> Vec<u8> {
        (0..nodes * nodes).map(|i| if i % (nodes + 1) == 0 { 10 } else { 20 }).collect()
    }

    /// The order as Linux makes it: again and again the cheapest node that is left.
    fn one_by_one(table: &NodeTable<'_>, local: NodeId, load: &mut [u32]) -> Vec<NodeId> {
        let mut order: Vec<NodeId> = Vec::new();
        let mut previous = local;
        loop {
            let local_counts = table.has_memory[local.0 as usize] || table.memoryless_first;
            let left = (0..table.nodes() as u16).map(NodeId);
            let left = left.filter(|node| table.has_memory[node.0 as usize]);
            let left = left.filter(|node| !order.contains(node));
            let next = match local_counts && !order.contains(&local) {
                true => Some(local),
                false => left.min_by_key(|node| cost(table, local, *node, load)),
            };
            let Some(next) = next else { return order };
            if table.distance(local, next) != table.distance(local, previous) {
                match table.rule {
                    #[cfg(feature = "history")]
                    NodeLoad::Countdown => {
                        load[next.0 as usize] = (table.nodes() - order.len()) as u32;
                    }
                    NodeLoad::Accumulated => load[next.0 as usize] += 1,
                }
            }
            order.push(next);
            previous = next;
        }
    }

    proptest::proptest! {
        #[test]
        fn one_sort_makes_the_list_that_one_node_after_another_makes(
            nodes in 1usize..12,
            distances in proptest::collection::vec(10u8..14, 144),
            memory in proptest::collection::vec(proptest::bool::ANY, 12),
            cpu in proptest::collection::vec(proptest::bool::ANY, 12),
            memoryless_first in proptest::bool::ANY,
        ) {
            let distance = |i: usize| if i.is_multiple_of(nodes + 1) { 10 } else { distances[i] };
            let distance: Vec<u8> = (0..nodes * nodes).map(distance).collect();
            let table = NodeTable::new(&distance, &memory[..nodes], &cpu[..nodes]).unwrap();
            for (_, rule) in <NodeLoad as Choice>::ALL {
            let table = NodeTable { memoryless_first, ..table }.load_rule(*rule);
            let (mut load, mut load_by_one) = (vec![0; nodes], vec![0; nodes]);
            let record = |node: usize| Node {
                zones: (0, u16::from(memory[node])),
                cpus: u16::from(cpu[node]),
                ..Node::default()
            };
            let mut records: Vec<Node> = (0..nodes).map(record).collect();
            for local in (0..nodes as u16).map(NodeId) {
                let mut order = vec![NodeId(0); nodes];
                let len = fallback_order(&table, local, &mut load, &mut order);
                let want = one_by_one(&table, local, &mut load_by_one);
                proptest::prop_assert_eq!(&order[..len], &want[..]);
                proptest::prop_assert_eq!(&load, &load_by_one);
                // In the nodes' records as in slices; those know no node without memory.
                if memoryless_first {
                    continue;
                }
                let places = place_nodes(table.distances(), local, &mut records[..]);
                let placed: Vec<NodeId> = records.iter().map(|node| node.placed).collect();
                proptest::prop_assert_eq!(&placed[..places], &want[..]);
                let loads: Vec<u32> = records.iter().map(|node| node.load.into()).collect();
                proptest::prop_assert_eq!(&loads, &load_by_one);
            }
            }
        }
    }

    #[test]
    fn uniform_machines_rotate() {
        for nodes in [2usize, 4, 8] {
            let (distance, all) = (uniform(nodes), vec![true; nodes]);
            let (got, load) = orders(&NodeTable::new(&distance, &all, &all).unwrap());
            for (local, row) in got.iter().enumerate() {
                let want: Vec<u16> = (0..nodes).map(|i| ((local + i) % nodes) as u16).collect();
                assert_eq!(*row, want);
            }
            assert_eq!(load, vec![1; nodes]);
        }
    }

    #[test]
    fn nodes_of_one_socket_come_before_the_other_socket() {
        let distance = [10, 21, 31, 31, 21, 10, 31, 31, 31, 31, 10, 21, 31, 31, 21, 10];
        let (got, _) = orders(&NodeTable::new(&distance, &[true; 4], &[true; 4]).unwrap());
        assert_eq!(got, [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]);
    }

    #[test]
    fn memory_only_nodes_follow_their_near_node() {
        let distance = [10, 21, 17, 28, 21, 10, 28, 17, 17, 28, 10, 28, 28, 17, 28, 10];
        let cpus = [true, true, false, false];
        let (got, _) = orders(&NodeTable::new(&distance, &[true; 4], &cpus).unwrap());
        assert_eq!(got, [[0, 2, 1, 3], [1, 3, 0, 2], [2, 0, 3, 1], [3, 1, 2, 0]]);
    }

    #[test]
    fn a_node_without_memory_is_in_no_order() {
        let (distance, cpus) = (uniform(3), [true; 3]);
        let table = NodeTable::new(&distance, &[false, true, true], &cpus).unwrap();
        assert_eq!(orders(&table).0, [[1, 2], [1, 2], [2, 1]]);
        let old = orders(&table.memoryless_first()).0;
        assert_eq!(old, [vec![0, 1, 2], vec![1, 2], vec![2, 1]]);
    }

    /// Two sockets of two nodes. Counted down, both nodes of the second socket go to node 0 first;
    /// accumulated, one of them goes to node 1.
    #[cfg(feature = "history")]
    #[test]
    fn loads_counted_down_pile_up_where_accumulated_ones_spread() {
        let distance = [10, 12, 32, 32, 12, 10, 32, 32, 32, 32, 10, 12, 32, 32, 12, 10];
        let table = NodeTable::new(&distance, &[true; 4], &[true; 4]).unwrap();
        let (got, load) = orders(&table.load_rule(NodeLoad::Countdown));
        assert_eq!(got, [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 0, 1]]);
        assert_eq!(load, [2, 3, 3, 3]);
        let (got, load) = orders(&table);
        assert_eq!(got, [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]);
        assert_eq!(load, [2, 2, 2, 2]);
    }

    #[cfg(feature = "history")]
    #[test]
    fn both_rules_give_the_same_lists_on_uniform_machines() {
        for nodes in [2usize, 4, 8] {
            let (distance, all) = (uniform(nodes), vec![true; nodes]);
            let table = NodeTable::new(&distance, &all, &all).unwrap();
            assert_eq!(orders(&table).0, orders(&table.load_rule(NodeLoad::Countdown)).0);
        }
    }

    #[test]
    fn a_table_whose_lengths_differ_is_refused() {
        let err = |d: &[u8], m: &[bool], c: &[bool]| NodeTable::new(d, m, c).err();
        assert_eq!(err(&[10], &[true], &[]), Some(NodeTableError::Lengths(0, 1)));
        assert_eq!(err(&[10, 20], &[true], &[true]), Some(NodeTableError::Distances(2)));
        let many = vec![true; NODES_MAX + 1];
        assert_eq!(err(&[], &many, &many), Some(NodeTableError::TooManyNodes(1025)));
        assert_eq!(err(&[], &[], &[]), None);
    }
}
