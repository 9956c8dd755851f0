//! The one table of all counters: names, order, layouts, and the meaning of those that an allocator
//! alone can count.
//!
//! Every text, the JSON and the metrics of a pool follow this table, so a counter is added here and
//! nowhere else. The order and the layouts are those of captured kernels; the test
//! `the_table_is_what_kernels_print` compares them with every sample.
//!
//! ```text
//!   /proc/vmstat        Zone, Numa, Node, Limit, Event, `nr_unstable`
//!   nodeN/vmstat        Zone, Numa, Node
//!   /proc/zoneinfo      Node once per node; ZonePages, Zone, Numa, Pageset, ZoneTail per zone
//!   nodeN/meminfo       Memory
//! ```
//!
//! A counter without [`help`](Counter::help) counts something that a page allocator never does,
//! such as writing pages to swap. It prints 0, as in a kernel where it never happened.

mod counter;
mod table;

pub use counter::{Counter, Kind};

use crate::layout::Layout;

/// Where a counter is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `zoneinfo`: the page counts of a zone before `protection`.
    ZonePages,
    /// Items of a zone.
    Zone,
    /// NUMA events of a zone.
    Numa,
    /// `zoneinfo`: a CPU's lists.
    Pageset,
    /// `zoneinfo`: the end of a zone.
    ZoneTail,
    /// Items of a node.
    Node,
    /// `vmstat`: limits, and pages of metadata.
    Limit,
    /// `vmstat`: events.
    Event,
    /// `meminfo` of a node, in KiB or huge pages.
    Memory,
    /// Counters of a zone that no kernel prints: in the metrics only.
    Own,
    /// Counters of the whole allocator that no kernel prints: in the metrics only.
    Whole,
    /// What `buddyinfo` prints without a name, of an order of a zone.
    Order,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 12] = [
        Group::ZonePages,
        Group::Zone,
        Group::Numa,
        Group::Pageset,
        Group::ZoneTail,
        Group::Node,
        Group::Limit,
        Group::Event,
        Group::Memory,
        Group::Own,
        Group::Whole,
        Group::Order,
    ];

    /// The counters of this group, in the order of printing, of all layouts.
    pub fn counters(self) -> &'static [Counter] {
        match self {
            Group::ZonePages => table::ZONE_PAGES,
            Group::Zone => table::ZONE,
            Group::Numa => table::NUMA,
            Group::Pageset => table::PAGESET,
            Group::ZoneTail => table::ZONE_TAIL,
            Group::Node => table::NODE,
            Group::Limit => table::LIMIT,
            Group::Event => table::EVENT,
            Group::Memory => table::MEMORY,
            Group::Own => table::OWN,
            Group::Whole => table::WHOLE,
            Group::Order => table::ORDER,
        }
    }

    /// The counters of this group that `layout` prints.
    pub fn of(self, layout: Layout) -> impl Iterator<Item = &'static Counter> {
        let has = move |counter: &&Counter| (counter.first..=counter.last).contains(&layout);
        self.counters().iter().filter(has)
    }

    /// The counters of this group that mean something.
    pub fn meaningful(self) -> impl Iterator<Item = &'static Counter> {
        self.counters().iter().filter(|counter| !counter.help.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{buddyinfo, meminfo, vmstat, zoneinfo};
    use std::path::Path;

    /// A release of each layout, and a captured kernel of it.
    const SAMPLES: [(&str, Layout); 4] = [
        ("6.1-n1-1g-c1", Layout::Linux6_1),
        ("6.12-n2-2g-c4", Layout::Linux6_12),
        ("6.18-n1-1g-c1", Layout::Linux6_14),
        ("7.2-n3-memless1", Layout::Linux7),
    ];

    fn text(sample: &str, name: &str) -> String {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        std::fs::read_to_string(data.join(sample).join(name)).unwrap()
    }

    fn names(groups: &[Group], layout: Layout) -> Vec<&'static str> {
        groups.iter().flat_map(|group| group.of(layout)).map(|counter| counter.name).collect()
    }

    fn printed(stats: &[crate::Stat]) -> Vec<&str> {
        stats.iter().map(|stat| stat.name.as_str()).collect()
    }

    #[test]
    fn the_table_is_what_kernels_print() {
        for (sample, layout) in SAMPLES {
            let node_groups = [Group::Zone, Group::Numa, Group::Node];
            let node = vmstat::parse(&text(sample, "vmstat-node0.txt")).unwrap();
            assert_eq!(printed(&node.stats), names(&node_groups, layout), "{sample}");

            let mut all = names(&node_groups, layout);
            all.extend(names(&[Group::Limit, Group::Event], layout));
            all.push("nr_unstable");
            let vmstat = vmstat::parse(&text(sample, "vmstat.txt")).unwrap();
            assert_eq!(printed(&vmstat.stats), all, "{sample}");

            let numastat = vmstat::parse(&text(sample, "numastat-node0.txt")).unwrap();
            let numa: Vec<&str> = Group::Numa.of(layout).map(Counter::numastat_name).collect();
            assert_eq!(printed(&numastat.stats), numa, "{sample}");

            let meminfo = meminfo::parse(&text(sample, "node0-meminfo.txt")).unwrap();
            let amounts: Vec<(&str, bool)> =
                meminfo.amounts.iter().map(|a| (a.name.as_str(), a.in_kib)).collect();
            let memory: Vec<(&str, bool)> =
                Group::Memory.of(layout).map(|c| (c.name, c.is_kib())).collect();
            assert_eq!(amounts, memory, "{sample}");
        }
    }

    #[test]
    fn the_table_is_what_zoneinfo_prints() {
        for (sample, layout) in SAMPLES {
            for zone in zoneinfo::parse(&text(sample, "zoneinfo.txt")).unwrap().zones {
                assert_eq!(printed(&zone.pages), names(&[Group::ZonePages], layout), "{sample}");
                if let Some(stats) = &zone.node_stats {
                    assert_eq!(printed(stats), names(&[Group::Node], layout), "{sample}");
                }
                let Some(pagesets) = &zone.pagesets else { continue };
                let items = names(&[Group::Zone, Group::Numa], layout);
                assert_eq!(printed(&zone.items), items, "{sample}");
                assert_eq!(printed(&zone.tail), names(&[Group::ZoneTail], layout), "{sample}");
                let fields = names(&[Group::Pageset], layout);
                assert!(pagesets.iter().all(|p| printed(&p.fields) == fields), "{sample}");
            }
        }
    }

    /// The definition that a pool prints by: free blocks of a pageblock or more.
    #[test]
    fn free_pages_in_blocks_are_those_of_large_orders() {
        for sample in ["6.18-n1-1g-c1", "7.2-n3-memless1"] {
            let zones = buddyinfo::parse(&text(sample, "buddyinfo.txt")).unwrap().zones;
            let pages: u64 =
                zones.iter().map(|z| (z.free_blocks[9] << 9) + (z.free_blocks[10] << 10)).sum();
            let vmstat = vmstat::parse(&text(sample, "vmstat.txt")).unwrap();
            assert_eq!(vmstat.value("nr_free_pages_blocks"), Some(pages), "{sample}");
        }
    }

    #[test]
    fn a_layout_has_each_name_once() {
        for layout in Layout::ALL {
            for group in Group::ALL {
                let mut names = names(&[group], layout);
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all, "{layout} {group:?}");
            }
        }
    }
}
