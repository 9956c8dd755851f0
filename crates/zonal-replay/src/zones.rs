//! Which zone and node a recorded page frame is in.

use zonal_core::types::ZoneKind;
use zonal_text::buddyinfo::BuddyInfo;
use zonal_trace::{MachineDescription, PolledState, PolledZone, ZoneDescription};

/// Memory of 32-bit kernels above what they map for good (LB A.2).
const HIGH: &str = "HighMem";
/// The least that a block has which a kernel calls a pageblock.
const PAGEBLOCK_ORDER: u8 = 9;

/// The populated zones of a recorded machine, by ascending page frame.
#[derive(Debug, Clone, Default)]
pub struct ZoneMap {
    zones: Vec<ZoneAt>,
    /// Node of each CPU, by position of the node in the description.
    cpu_nodes: Vec<u16>,
}

/// Where a zone lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAt {
    /// The node's number.
    pub node: u32,
    /// The node's position among the nodes described.
    pub node_index: u16,
    /// The zone's kind, such as `Normal`.
    pub kind: String,
    /// First page frame.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Pages of a batch, as recorded; 0 if unknown.
    pub batch: u64,
    /// The largest limit of a list that was recorded; 0 if unknown.
    pub list_high: u64,
}

/// The core's kind for a zone of this name. Memory that a 32-bit kernel does not map for good
/// stands in the core's movable zone, by whose rules it is kept; what else such a kernel may have
/// is not modelled, nor are unknown names.
pub fn kind_of(machine: &MachineDescription, name: &str) -> Option<ZoneKind> {
    let has_high = machine.zones.iter().any(|zone| zone.kind == HIGH);
    match name {
        HIGH => Some(ZoneKind::Movable),
        "Movable" | "Device" if has_high => None,
        name => ZoneKind::from_name(name),
    }
}

/// The kinds of zones that the kernel was built with, in its order; `None`: one of no use to the
/// core.
pub fn kinds(machine: &MachineDescription) -> Vec<Option<ZoneKind>> {
    let first = machine.zones.first().map(|zone| zone.node);
    let of_first = machine.zones.iter().filter(|zone| Some(zone.node) == first);
    of_first.map(|zone| kind_of(machine, &zone.kind)).collect()
}

/// The zone in a sample.
pub fn polled_zone<'s>(sample: &'s PolledState, zone: &ZoneDescription) -> Option<&'s PolledZone> {
    sample.zones.iter().find(|polled| (polled.node, &polled.kind) == (zone.node, &zone.kind))
}

/// The largest limit of the zone's lists, of all that was recorded: a recorder may have kept them
/// short before the start.
fn list_high(machine: &MachineDescription, zone: &ZoneDescription) -> u64 {
    let samples = machine.start.iter().chain(&machine.end);
    let polled = samples.filter_map(|sample| polled_zone(sample, zone));
    let sets = polled.flat_map(|polled| &polled.pagesets).chain(&zone.pagesets);
    sets.map(|set| set.high).max().unwrap_or(0)
}

impl ZoneMap {
    /// The zones of `machine`; none if it says nothing about zones.
    pub fn new(machine: &MachineDescription) -> ZoneMap {
        let index_of = |node: u32| machine.nodes.iter().position(|n| n.id == node).unwrap_or(0);
        let zone = |zone: &ZoneDescription| ZoneAt {
            node: zone.node,
            node_index: index_of(zone.node) as u16,
            kind: zone.kind.clone(),
            start: zone.start_pfn,
            end: zone.start_pfn.saturating_add(zone.spanned),
            batch: zone.pagesets.iter().map(|set| set.batch).max().unwrap_or(0),
            list_high: list_high(machine, zone),
        };
        let mut zones: Vec<ZoneAt> =
            machine.zones.iter().filter(|zone| zone.is_populated()).map(zone).collect();
        zones.sort_by_key(|zone| zone.start);
        let mut cpu_nodes = vec![0; machine.cpus.unwrap_or(0) as usize];
        for (index, node) in machine.nodes.iter().enumerate() {
            for cpu in &node.cpus {
                if let Some(slot) = cpu_nodes.get_mut(*cpu as usize) {
                    *slot = index as u16;
                }
            }
        }
        ZoneMap { zones, cpu_nodes }
    }

    /// All zones.
    pub fn zones(&self) -> &[ZoneAt] {
        &self.zones
    }

    /// The position of the zone that spans `pfn`.
    pub fn of(&self, pfn: u64) -> Option<usize> {
        let index = self.zones.partition_point(|zone| zone.start <= pfn).checked_sub(1)?;
        (pfn < self.zones[index].end).then_some(index)
    }

    /// The node, by position, that a page frame is on.
    pub fn node_of(&self, pfn: u64) -> Option<u16> {
        self.of(pfn).map(|zone| self.zones[zone].node_index)
    }

    /// The node, by position, that a CPU is on.
    pub fn node_of_cpu(&self, cpu: u32) -> u16 {
        self.cpu_nodes.get(cpu as usize).copied().unwrap_or(0)
    }
}

/// The order of the largest free block of a zone, where that is less than a pageblock's.
pub(crate) fn largest_block(machine: &MachineDescription, (node, kind): (u32, &str)) -> Option<u8> {
    let is_its = |own: &&BuddyInfo| own.node == node && own.zone == kind;
    let blocks = &machine.buddyinfo.iter().find(is_its)?.free_blocks;
    let largest = blocks.iter().rposition(|blocks| *blocks > 0)?;
    u8::try_from(largest).ok().filter(|order| *order < PAGEBLOCK_ORDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_free_block_is_told_where_it_is_less_than_a_pageblock() {
        let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
        let normal = |machine: &_| largest_block(machine, (0, "Normal"));
        assert_eq!(normal(&machine), None);
        let blocks = machine.buddyinfo.iter_mut().find(|own| own.zone == "Normal").unwrap();
        blocks.free_blocks[8..].copy_from_slice(&[1, 0, 0]);
        assert_eq!(normal(&machine), Some(8));
        assert_eq!(largest_block(&machine, (0, "DMA32")), None);
        assert_eq!(largest_block(&machine, (1, "Normal")), None, "nothing says");
        machine.buddyinfo.iter_mut().for_each(|own| own.free_blocks.fill(0));
        assert_eq!(normal(&machine), None, "nothing is free");
    }

    #[test]
    fn frames_in_holes_have_no_zone() {
        let machine = zonal_trace::samples::zlib_make_j4().unwrap();
        let map = ZoneMap::new(machine.description());
        let kinds: Vec<&str> = map.zones().iter().map(|zone| zone.kind.as_str()).collect();
        assert_eq!(kinds, ["DMA", "DMA32", "Normal"]);
        assert_eq!(map.of(0), None);
        assert_eq!(map.of(1), Some(0));
        assert_eq!(map.of(1_048_576), Some(2));
        assert_eq!(map.of(1_048_576 + 5_505_024), None);
        assert_eq!(map.zones()[2].batch, 63);
    }
}
