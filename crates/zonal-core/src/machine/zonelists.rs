//! The zonelists of a machine (LB A.4), from the fallback order of its nodes (LB A.5).

#[cfg(feature = "history")]
#[path = "../history/machine.rs"]
mod history;

use super::spec::Machine;
use crate::policy::walk::{ZonelistOrder, ZonelistPolicy};
use crate::types::{NodeId, ZoneId, ZoneKind};
use crate::zonelist::Node;
use crate::zonelist::order::{Distances, place_nodes};

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
#[inline(never)]
pub(crate) fn build(
    machine: &Machine<'_>,
    policy: &ZonelistPolicy,
    nodes: &mut [Node],
    entries: &mut [ZoneId],
) {
    let nodes = &mut nodes[..machine.nodes()];
    for node in &mut *nodes {
        (node.cpus, node.load) = (0, 0);
        node.zones = (0, 0);
    }
    for (position, zone) in machine.zones.iter().enumerate() {
        if zone.kind == ZoneKind::Device {
            continue;
        }
        let (first, end) = &mut nodes[zone.node.0 as usize].zones;
        *first = if *end == 0 { position as u16 } else { *first };
        *end = position as u16 + 1;
    }
    for node in machine.cpus {
        nodes[node.0 as usize].cpus += 1;
    }
    let distances = Distances { of: machine.distances, rule: policy.load };
    let mut writer = Writer { machine, policy, nodes, entries, next: 0 };
    for local in 0..writer.nodes.len() {
        let local = NodeId(local as u16);
        let places = place_nodes(distances, local, writer.nodes);
        let first = writer.next;
        let (own, apart) = match policy.order {
            ZonelistOrder::Node => (writer.by_node(places, local), policy.private.has(local)),
            #[cfg(feature = "history")]
            ZonelistOrder::Zone => {
                writer.by_zone(places);
                (0, true)
            }
        };
        let end = writer.next;
        let (own_first, own) = if apart { (end, writer.zones_of(local)) } else { (first, own) };
        let list = &writer.entries[first..end];
        let ordinary = |zone: &&ZoneId| machine.zones[zone.0 as usize].kind <= ZoneKind::Normal;
        let preferred = list.iter().find(ordinary).or(list.first());
        let preferred = *preferred.unwrap_or(&ZoneId(0));
        let node = &mut writer.nodes[local.0 as usize];
        (node.first, node.len) = (first as u32, (end - first) as u16);
        (node.own_first, node.own) = (own_first as u32, own);
        node.preferred = preferred;
    }
}

/// Kinds that are on lists, highest first.
fn kinds() -> impl Iterator<Item = ZoneKind> {
    ZoneKind::ALL.iter().rev().copied().filter(|kind| *kind != ZoneKind::Device)
}

/// Writes lists consecutively.
struct Writer<'a> {
    machine: &'a Machine<'a>,
    policy: &'a ZonelistPolicy,
    nodes: &'a mut [Node],
    entries: &'a mut [ZoneId],
    next: usize,
}

impl Writer<'_> {
    /// The node at a place, unless it is private: nobody is sent there.
    fn public(&self, place: usize) -> Option<NodeId> {
        let node = self.nodes[place].placed;
        (!self.policy.private.has(node)).then_some(node)
    }

    /// The node's zone of this kind, if it has one.
    fn zone(&mut self, node: NodeId, kind: ZoneKind) {
        let (first, end) = self.nodes[node.0 as usize].zones;
        for zone in first..end {
            let spec = &self.machine.zones[usize::from(zone)];
            if (spec.node, spec.kind) == (node, kind) {
                self.entries[self.next] = ZoneId(zone);
                self.next += 1;
            }
        }
    }

    /// A node's zones, from the highest kind down. Returns how many were written.
    #[inline(never)]
    fn zones_of(&mut self, node: NodeId) -> u16 {
        let begun = self.next;
        kinds().for_each(|kind| self.zone(node, kind));
        (self.next - begun) as u16
    }

    /// All zones of the nodes at the first places, node after node. Returns how many are
    /// `local`'s; they come first.
    fn by_node(&mut self, places: usize, local: NodeId) -> u16 {
        let mut own = 0;
        for place in 0..places {
            let Some(node) = self.public(place) else { continue };
            let zones = self.zones_of(node);
            own += if node == local { zones } else { 0 };
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
