//! The zonelists of a machine (LB A.4), from the fallback order of its nodes (LB A.5).

use super::{Machine, ZoneSpec};
use crate::types::{NodeId, ZoneId, ZoneKind};
use crate::zonelist::Node;
use crate::zonelist::order::{NODES_MAX, NodeTable, fallback_order};

/// Builds every node's list into `nodes` and `entries`, which have room for nodes and for nodes
/// times zones. The machine has been checked.
pub(crate) fn build(machine: &Machine<'_>, nodes: &mut [Node], entries: &mut [ZoneId]) {
    let count = machine.nodes();
    let mut has_memory = [false; NODES_MAX];
    let mut has_cpu = [false; NODES_MAX];
    for zone in machine.zones {
        has_memory[zone.node.0 as usize] |= zone.kind != ZoneKind::Device;
    }
    for node in machine.cpus {
        has_cpu[node.0 as usize] = true;
    }
    let table = NodeTable::new(machine.distances, &has_memory[..count], &has_cpu[..count])
        .expect("the machine was checked: its slices fit together");
    let mut load = [0; NODES_MAX];
    let mut order = [NodeId(0); NODES_MAX];
    let mut next = 0;
    for local in 0..count {
        let local = NodeId(local as u16);
        let first = next;
        let mut own = 0;
        let len = fallback_order(&table, local, &mut load, &mut order);
        for node in &order[..len] {
            for kind in ZoneKind::ALL.into_iter().rev().filter(|kind| *kind != ZoneKind::Device) {
                let is = |zone: &ZoneSpec| (zone.node, zone.kind) == (*node, kind);
                let Some(zone) = machine.zones.iter().position(is) else { continue };
                entries[next] = ZoneId(zone as u16);
                next += 1;
                own += u32::from(*node == local);
            }
        }
        let ordinary = |zone: &&ZoneId| machine.zones[zone.0 as usize].kind <= ZoneKind::Normal;
        let list = &entries[first..next];
        nodes[local.0 as usize] = Node {
            first: first as u32,
            len: list.len() as u32,
            own,
            cpus: machine.node_cpus(local),
            preferred: *list.iter().find(ordinary).or(list.first()).unwrap_or(&ZoneId(0)),
        };
    }
}
