//! In which order a node's requests fall back to other nodes (LB A.5).
//!
//! Nearest first. Among equally near nodes the first place goes round: each time a node is put
//! first in a group of equal distance it gets a load, and the next list prefers another. So lists
//! depend on the lists built before them, and a full rebuild starts from zero loads and takes the
//! nodes in ascending order of their ids.
//!
//! A list is made by one sort: putting a node on it changes that node's load alone, so what the
//! others cost stays as it is. The caller owns every slice; nothing is allocated.

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
    let mut len = 0;
    for node in (0..table.nodes() as u16).map(NodeId) {
        let local_first = node == local && table.memoryless_first;
        if local_first || table.has_memory[node.0 as usize] {
            order[len] = node;
            len += 1;
        }
    }
    sort(table, local, load, &mut order[..len]);
    let mut previous = local;
    #[cfg_attr(not(feature = "history"), expect(unused_variables, reason = "read by old rules"))]
    for (position, next) in order[..len].iter().enumerate() {
        if table.distance(local, *next) != table.distance(local, previous) {
            let load = &mut load[next.0 as usize];
            match table.rule {
                #[cfg(feature = "history")]
                NodeLoad::Countdown => *load = (table.nodes() - position) as u32,
                NodeLoad::Accumulated => *load += 1,
            }
        }
        previous = *next;
    }
    len
}

/// Sorts by [`rank`], in place: a heap sort. The library's sorts are 6 KiB of code, and this one
/// runs when an allocator is made.
fn sort(table: &NodeTable<'_>, local: NodeId, load: &[u32], nodes: &mut [NodeId]) {
    // First the heap is built, then its top goes behind it, again and again.
    let mut at = nodes.len() / 2;
    let mut end = nodes.len();
    while at > 0 || end > 1 {
        if at > 0 {
            at -= 1;
        } else {
            end -= 1;
            nodes.swap(0, end);
        }
        let mut parent = at;
        loop {
            let mut top = parent;
            for child in (2 * parent + 1..end).take(2) {
                let rank = |at: usize| rank(table, local, nodes[at], load);
                if rank(child) > rank(top) {
                    top = child;
                }
            }
            if top == parent {
                break;
            }
            nodes.swap(parent, top);
            parent = top;
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
fn rank(table: &NodeTable<'_>, local: NodeId, node: NodeId, load: &[u32]) -> u64 {
    let cost = cost(table, local, node, load);
    debug_assert!(cost < 1 << 47);
    u64::from(node != local) << 63 | cost << 16 | u64::from(node.0)
}

/// What it costs `local` to go to `node`: distance first, then a preference for higher ids and for
/// nodes without CPUs, whose memory nobody else is near to, then load (LB A.5).
fn cost(table: &NodeTable<'_>, local: NodeId, node: NodeId, load: &[u32]) -> u64 {
    let distance = u64::from(table.distance(local, node));
    let penalty = u64::from(node < local) + u64::from(table.has_cpu[node.0 as usize]);
    // Any difference in distance outweighs any load: those counted down are at most the number of
    // nodes, those accumulated at most one for each list.
    let weight = match table.rule {
        #[cfg(feature = "history")]
        NodeLoad::Countdown => NODES_MAX * table.nodes(),
        NodeLoad::Accumulated => NODES_MAX,
    };
    (distance + penalty) * weight as u64 + u64::from(load[node.0 as usize])
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
            for local in (0..nodes as u16).map(NodeId) {
                let mut order = vec![NodeId(0); nodes];
                let len = fallback_order(&table, local, &mut load, &mut order);
                let want = one_by_one(&table, local, &mut load_by_one);
                proptest::prop_assert_eq!(&order[..len], &want[..]);
                proptest::prop_assert_eq!(&load, &load_by_one);
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
