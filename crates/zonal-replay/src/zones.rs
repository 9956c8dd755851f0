//! Which zone and node a recorded page frame is in.

use zonal_core::types::{Migratetype, Order, PageRules, ZoneKind};
use zonal_text::buddyinfo::BuddyInfo;
use zonal_trace::{MachineDescription, Pageset, PolledState, PolledZone, ZoneDescription};

/// Memory of 32-bit kernels above what they map for good (LB A.2).
const HIGH: &str = "HighMem";

/// Orders of free blocks.
pub(crate) const ORDERS: usize = Order::MAX.get() as usize + 1;
/// Types of free memory that are told apart, in the order of their numbers.
pub(crate) const TYPES: usize = 3;
/// Order of the blocks that have one type.
pub(crate) const TYPED: usize = 9;

/// The populated zones of a recorded machine, by ascending page frame.
#[derive(Debug, Clone)]
pub struct ZoneMap {
    zones: Vec<ZoneAt>,
    /// Node of each CPU, by position of the node in the description.
    cpu_nodes: Vec<u16>,
    /// Order of a pageblock, and of a huge page, in the recorded kernel.
    block_order: u8,
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
    /// The largest lower bound of these limits that was recorded.
    pub list_high_min: Option<u64>,
}

/// The largest order of blocks of a few pages: these have lists in each kernel.
pub(crate) const COSTLY_ORDER: u8 = Order::COSTLY.get() as u8;

/// The sizes that the recorded kernel's rules follow from. The model's pageblocks have 512 pages
/// whatever they are; which pageblock a page is in matters where migratetypes mix.
pub fn page_rules(machine: &MachineDescription) -> PageRules {
    match machine.page_size {
        // A description without a recording behind it.
        0 => PageRules::OWN,
        size => PageRules { shift: size.ilog2() as u8, block_order: machine.pageblock_order },
    }
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

/// The zone as it was when the replay starts, where a sample tells.
pub(crate) fn at_start<'m>(
    machine: &'m MachineDescription,
    zone: &ZoneDescription,
) -> Option<&'m PolledZone> {
    polled_zone(machine.start.as_ref()?, zone)
}

/// Its lists then; without a sample, as the machine's files have them.
pub(crate) fn sets_at_start<'m>(
    machine: &'m MachineDescription,
    zone: &'m ZoneDescription,
) -> &'m [Pageset] {
    at_start(machine, zone).map_or(&zone.pagesets, |polled| &polled.pagesets)
}

/// The zone's lists in all that was recorded of them: a recorder may have kept them short before
/// the start.
fn all_sets<'m>(
    machine: &'m MachineDescription,
    zone: &'m ZoneDescription,
) -> impl Iterator<Item = &'m Pageset> {
    let samples = machine.start.iter().chain(&machine.end);
    let polled = samples.filter_map(|sample| polled_zone(sample, zone));
    polled.flat_map(|polled| &polled.pagesets).chain(&zone.pagesets)
}

impl Default for ZoneMap {
    /// No zones, and pageblocks of the usual order.
    fn default() -> ZoneMap {
        let block_order = PageRules::OWN.block_order;
        ZoneMap { zones: Vec::new(), cpu_nodes: Vec::new(), block_order }
    }
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
            list_high: all_sets(machine, zone).map(|set| set.high).max().unwrap_or(0),
            list_high_min: all_sets(machine, zone).filter_map(|set| set.high_min).max(),
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
        ZoneMap { zones, cpu_nodes, block_order: page_rules(machine).block_order }
    }

    /// All zones.
    pub fn zones(&self) -> &[ZoneAt] {
        &self.zones
    }

    /// Order of a pageblock in the recorded kernel.
    pub(crate) fn block_order(&self) -> u8 {
        self.block_order
    }

    /// Whether blocks of this order go through the kernel's per-CPU lists (LB E.1).
    pub(crate) fn has_lists(&self, order: u8) -> bool {
        order <= COSTLY_ORDER || order == self.block_order
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

/// Free blocks of a zone, by type and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeBlocks(pub(crate) [[u64; ORDERS]; TYPES]);

impl FreeBlocks {
    /// Pages of a pageblock.
    pub(crate) const PAGEBLOCK: u64 = 1 << TYPED;

    /// Those of a recorded zone; `None`: no file says, or nothing was free.
    pub(crate) fn of(
        machine: &MachineDescription,
        (node, kind): (u32, &str),
    ) -> Option<FreeBlocks> {
        let is_its = |own: &&BuddyInfo| own.node == node && own.zone == kind;
        let all = &machine.buddyinfo.iter().find(is_its)?.free_blocks;
        let mut blocks = [[0; ORDERS]; TYPES];
        let add = |row: &mut [u64; ORDERS], order: usize, count: u64| {
            let at = order.min(ORDERS - 1);
            row[at] = row[at].saturating_add(count << (order - at).min(20));
        };
        let rows = machine.pagetypeinfo.iter().flat_map(|info| &info.free);
        let of_types = || rows.clone().filter(|row| row.node == node && row.zone == kind);
        for (order, count) in all.iter().enumerate() {
            let mut left = *count;
            for (name, of) in [("Unmovable", 0), ("Reclaimable", 2)] {
                let row = of_types().find(|row| row.migratetype == name);
                let own = row.and_then(|row| row.counts.get(order)).map_or(0, |own| own.blocks);
                let own = own.min(left);
                left -= own;
                add(&mut blocks[of], order, own);
            }
            add(&mut blocks[Migratetype::Movable as usize], order, left);
        }
        blocks.iter().flatten().any(|count| *count > 0).then_some(FreeBlocks(blocks))
    }

    /// Pageblocks that are wholly free.
    pub(crate) fn pageblocks(&self) -> u64 {
        let of = |row: &[u64; ORDERS]| {
            row.iter().enumerate().skip(TYPED).map(|(order, count)| count << (order - TYPED)).sum()
        };
        self.0.iter().map(of).fold(0, |sum: u64, own: u64| sum.saturating_add(own))
    }

    /// The order of the largest.
    pub(crate) fn largest(&self) -> Option<usize> {
        (0..ORDERS).rev().find(|order| self.0.iter().any(|row| row[*order] > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_told_by_type_where_a_file_says() {
        let mut machine = zonal_trace::samples::zlib_make_j4().unwrap().description().clone();
        let normal = |machine: &_| FreeBlocks::of(machine, (0, "Normal"));
        let blocks = normal(&machine).unwrap();
        assert!(blocks.pageblocks() > 1000 && blocks.0[0].iter().sum::<u64>() > 0, "{blocks:?}");
        machine.pagetypeinfo.clear();
        let all = normal(&machine).unwrap();
        assert_eq!((all.pageblocks(), all.0[0]), (blocks.pageblocks(), [0; ORDERS]));
        machine.buddyinfo.iter_mut().for_each(|own| own.free_blocks.fill(0));
        assert_eq!(normal(&machine), None, "nothing is free");
        assert_eq!(FreeBlocks::of(&machine, (1, "Normal")), None, "nothing says");
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
