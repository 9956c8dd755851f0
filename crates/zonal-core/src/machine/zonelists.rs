//! The zonelists of a machine (LB A.4), from the fallback order of its nodes (LB A.5).

#[cfg(feature = "history")]
#[path = "../history/machine.rs"]
mod history;

use super::spec::Machine;
use crate::policy::walk::{ZonelistOrder, ZonelistPolicy};
use crate::types::{NodeId, ZoneId, ZoneKind};
use crate::zonelist::Node;
use crate::zonelist::order::{NODES_MAX, NodeTable, fallback_order};

/// Up to so many nodes lists are built in 200 bytes of stack, which a kernel has at boot; more take
/// 12 KiB.
const FEW_NODES: usize = 16;

/// Entries of all lists. Sorted by nodes, the list of a node's own zones is the front of its other
/// list; sorted by zones it needs its own place.
pub(super) fn entries(machine: &Machine<'_>, policy: &ZonelistPolicy) -> usize {
    let lists = machine.nodes() * machine.zones.len();
    // Private nodes' own lists are no part of another.
    let own = machine.zones.iter().filter(|zone| policy.private.has(zone.node)).count();
    let lists = lists + own;
    match policy.order {
        ZonelistOrder::Node => lists,
        #[cfg(feature = "history")]
        ZonelistOrder::Zone => lists + machine.zones.len(),
    }
}

/// Builds every node's lists into `nodes` and `entries`, which have room for nodes and for
/// [`entries`]. The machine has been checked.
pub(crate) fn build(
    machine: &Machine<'_>,
    policy: &ZonelistPolicy,
    nodes: &mut [Node],
    entries: &mut [ZoneId],
) {
    match machine.nodes() {
        0..=FEW_NODES => build_within::<FEW_NODES>(machine, policy, nodes, entries),
        _ => build_within::<NODES_MAX>(machine, policy, nodes, entries),
    }
}

/// The same, for at most `N` nodes: 12 bytes of stack for each.
#[inline(never)]
fn build_within<const N: usize>(
    machine: &Machine<'_>,
    policy: &ZonelistPolicy,
    nodes: &mut [Node],
    entries: &mut [ZoneId],
) {
    let (mut has_memory, mut has_cpu) = ([false; N], [false; N]);
    let (mut load, mut order, mut zones_of) = ([0; N], [NodeId(0); N], [(0, 0); N]);
    let room = Room {
        has_memory: &mut has_memory,
        has_cpu: &mut has_cpu,
        load: &mut load,
        order: &mut order,
        zones_of: &mut zones_of,
    };
    build_in(room, machine, policy, nodes, entries);
}

/// What is known of each node while lists are built: entries of 0 at first, one for each node at
/// least.
struct Room<'r> {
    has_memory: &'r mut [bool],
    has_cpu: &'r mut [bool],
    load: &'r mut [u32],
    order: &'r mut [NodeId],
    zones_of: &'r mut [(u16, u16)],
}

/// One copy for all sizes.
#[inline(never)]
fn build_in(
    room: Room<'_>,
    machine: &Machine<'_>,
    policy: &ZonelistPolicy,
    nodes: &mut [Node],
    entries: &mut [ZoneId],
) {
    let count = machine.nodes();
    let Room { has_memory, has_cpu, load, order, zones_of } = room;
    for (position, zone) in machine.zones.iter().enumerate() {
        let node = zone.node.0 as usize;
        has_memory[node] |= zone.kind != ZoneKind::Device;
        let (first, end) = &mut zones_of[node];
        *first = if *end == 0 { position as u16 } else { *first };
        *end = position as u16 + 1;
    }
    nodes.iter_mut().for_each(|node| node.cpus = 0);
    for node in machine.cpus {
        let node = node.0 as usize;
        has_cpu[node] = true;
        nodes[node].cpus += 1;
    }
    let table = NodeTable::new(machine.distances, &has_memory[..count], &has_cpu[..count])
        .expect("the machine was checked: its slices fit together")
        .load_rule(policy.load);
    let mut writer = Writer { machine, zones_of, entries, next: 0 };
    for local in 0..count {
        let local = NodeId(local as u16);
        let len = fallback_order(&table, local, load, order);
        // Nobody is sent to private nodes.
        let mut public = 0;
        for at in 0..len {
            if !policy.private.has(order[at]) {
                order[public] = order[at];
                public += 1;
            }
        }
        let len = public;
        let first = writer.next;
        let (end, own_first, own) = match policy.order {
            ZonelistOrder::Node if policy.private.has(local) => {
                writer.by_node(&order[..len], local);
                let end = writer.next;
                (end, end, writer.zones_of(local))
            }
            ZonelistOrder::Node => {
                let own = writer.by_node(&order[..len], local);
                (writer.next, first, own)
            }
            #[cfg(feature = "history")]
            ZonelistOrder::Zone => {
                writer.by_zone(&order[..len]);
                let end = writer.next;
                (end, end, writer.zones_of(local))
            }
        };
        let list = &writer.entries[first..end];
        let ordinary = |zone: &&ZoneId| machine.zones[zone.0 as usize].kind <= ZoneKind::Normal;
        let preferred = list.iter().find(ordinary).or(list.first());
        let node = &mut nodes[local.0 as usize];
        (node.first, node.len) = (first as u32, list.len() as u32);
        (node.own_first, node.own) = (own_first as u32, own);
        node.preferred = *preferred.unwrap_or(&ZoneId(0));
    }
}

/// Kinds that are on lists, highest first.
fn kinds() -> impl Iterator<Item = ZoneKind> {
    ZoneKind::ALL.iter().rev().copied().filter(|kind| *kind != ZoneKind::Device)
}

/// Writes lists consecutively.
struct Writer<'a> {
    machine: &'a Machine<'a>,
    /// By node: the position of its first zone, and the one behind its last.
    zones_of: &'a [(u16, u16)],
    entries: &'a mut [ZoneId],
    next: usize,
}

impl Writer<'_> {
    /// The node's zone of this kind, if it has one.
    fn zone(&mut self, node: NodeId, kind: ZoneKind) {
        let (first, end) = self.zones_of[node.0 as usize];
        for zone in first..end {
            let spec = &self.machine.zones[usize::from(zone)];
            if (spec.node, spec.kind) == (node, kind) {
                self.entries[self.next] = ZoneId(zone);
                self.next += 1;
            }
        }
    }

    /// A node's zones, from the highest kind down. Returns how many were written.
    fn zones_of(&mut self, node: NodeId) -> u32 {
        let begun = self.next;
        kinds().for_each(|kind| self.zone(node, kind));
        (self.next - begun) as u32
    }

    /// All zones, node after node. Returns how many are `local`'s; they come first.
    fn by_node(&mut self, order: &[NodeId], local: NodeId) -> u32 {
        let mut own = 0;
        for node in order {
            let zones = self.zones_of(*node);
            own += if *node == local { zones } else { 0 };
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::machine::{Layout, ZoneSpec};
    use crate::policy::Policy;

    /// Node 0 has DMA32 and Normal, node 1 Normal and Movable, node 2 a CPU and device memory.
    fn lists(order: ZonelistOrder) -> Vec<(Vec<u16>, Vec<u16>)> {
        let zone = |node, kind, start_pfn| {
            let node = NodeId(node);
            ZoneSpec { node, kind, start_pfn, spanned: 1024, present: 1024 }
        };
        let zones = [
            zone(0, ZoneKind::Dma32, 0),
            zone(0, ZoneKind::Normal, 1024),
            zone(1, ZoneKind::Normal, 2048),
            zone(1, ZoneKind::Movable, 3072),
            zone(2, ZoneKind::Device, 4096),
        ];
        let machine = Machine {
            distances: &[10, 20, 20, 20, 10, 20, 20, 20, 10],
            zones: &zones,
            cpus: &[NodeId(0), NodeId(1), NodeId(2)],
            cache_slice_bytes: 0,
            caches: &[],
        };
        let zonelist = ZonelistPolicy { order, ..ZonelistPolicy::LINUX };
        let policy = Policy { zonelist, ..Policy::LINUX_6_18 };
        let layout = Layout::of(&machine, &policy).unwrap();
        let mut nodes: Vec<Node> = (0..3).map(|_| Node::default()).collect();
        let mut entries = vec![ZoneId(99); layout.zonelist];
        build(&machine, &zonelist, &mut nodes, &mut entries);
        let ids = |zones: &[ZoneId]| zones.iter().map(|zone| zone.0).collect();
        let of =
            |node: &Node| (ids(node.zonelist(&entries, false)), ids(node.zonelist(&entries, true)));
        nodes.iter().map(of).collect()
    }

    #[test]
    fn sorted_by_nodes_all_zones_of_a_node_come_first() {
        assert_eq!(
            lists(ZonelistOrder::Node),
            [
                (vec![1, 0, 3, 2], vec![1, 0]),
                (vec![3, 2, 1, 0], vec![3, 2]),
                (vec![1, 0, 3, 2], vec![]),
            ]
        );
    }

    #[cfg(feature = "history")]
    #[test]
    fn sorted_by_zones_the_low_zones_of_all_nodes_come_last() {
        assert_eq!(
            lists(ZonelistOrder::Zone),
            [
                (vec![3, 1, 2, 0], vec![1, 0]),
                (vec![3, 2, 1, 0], vec![3, 2]),
                (vec![3, 1, 2, 0], vec![]),
            ]
        );
    }
}
