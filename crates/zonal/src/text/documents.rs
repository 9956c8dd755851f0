//! Numbers to texts.

use zonal_core::alloc::LISTED_BLOCKS_MAX;
use zonal_core::types::{Migratetype, NodeId, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, ZoneKind};
use zonal_core::zone::watermark::{MovableMin, Watermarks};
use zonal_text::counters::{Counter, Group};
use zonal_text::openmetrics::Metrics;
use zonal_text::{Layout, Stat, buddyinfo, meminfo, pagetypeinfo, vmstat, zoneinfo};

use super::reading::{PagesetState, State, ZoneState};

/// Groups whose counters a node's `vmstat` sums over its zones.
const SUMMED: [Group; 2] = [Group::Zone, Group::Numa];

impl State {
    /// `/proc/zoneinfo`: every node, and of each every kind of zone (LB I.1).
    pub fn zoneinfo(&self, layout: Layout) -> zoneinfo::Document {
        let of_node = |node: NodeId| {
            let first = self.zones_of(node).next().map(|zone| zone.kind);
            ZoneKind::ALL.into_iter().map(move |kind| {
                match self.zones_of(node).find(|zone| zone.kind == kind) {
                    Some(zone) => {
                        let is_first = first == Some(kind);
                        let items = || self.node_items(Some(node), layout).collect();
                        zoneinfo::ZoneInfo { node_stats: is_first.then(items), ..zone.info(layout) }
                    }
                    None => unpopulated(node, kind, layout),
                }
            })
        };
        zoneinfo::Document { zones: self.nodes().flat_map(of_node).collect(), layout }
    }

    /// `/proc/buddyinfo`: every populated zone (LB I.2).
    pub fn buddyinfo(&self) -> buddyinfo::Document {
        let zone = |zone: &ZoneState| buddyinfo::BuddyInfo {
            node: zone.node.0.into(),
            zone: zone.kind.name().to_owned(),
            free_blocks: zone.stats.nr_free.map(u64::from).to_vec(),
        };
        buddyinfo::Document { zones: self.zones.iter().map(zone).collect() }
    }

    /// `/proc/pagetypeinfo`: every node with memory (LB I.2).
    pub fn pagetypeinfo(&self) -> pagetypeinfo::Document {
        let node = |node: NodeId| pagetypeinfo::PageTypeInfo {
            pageblock_order: PAGEBLOCK_ORDER.get().into(),
            pages_per_block: PAGEBLOCK_PAGES,
            free: self.zones_of(node).flat_map(ZoneState::free_rows).collect(),
            migratetypes: Migratetype::ALL.map(|mt| mt.name().to_owned()).to_vec(),
            blocks: self.zones_of(node).map(ZoneState::blocks_row).collect(),
            mixed_blocks: None,
        };
        let nodes = self.nodes().filter(|id| self.zones_of(*id).next().is_some());
        pagetypeinfo::Document { nodes: nodes.map(node).collect() }
    }

    /// `/proc/vmstat` (LB I.3).
    pub fn vmstat(&self, layout: Layout) -> vmstat::Document {
        let mut stats = sums(&self.zones, layout);
        stats.extend(self.node_items(None, layout));
        stats.extend(zeros(Group::Limit, layout));
        let events = Group::Event.of(layout);
        stats.extend(events.map(|c| Stat::new(c.name, self.event(c.name).unwrap_or(0))));
        // Items whose counters could not be read at one moment: none.
        stats.push(Stat::new("nr_unstable", 0));
        vmstat::Document { stats }
    }

    /// `nodeN/vmstat`: the items of a node, without events (LB I.4).
    pub fn node_vmstat(&self, node: NodeId, layout: Layout) -> vmstat::Document {
        let mut stats = sums(self.zones_of(node), layout);
        stats.extend(self.node_items(Some(node), layout));
        vmstat::Document { stats }
    }

    /// The items of a node, or of all.
    fn node_items(&self, node: Option<NodeId>, layout: Layout) -> impl Iterator<Item = Stat> {
        let value = move |c: &Counter| self.node_item(node, c.name).unwrap_or(0);
        Group::Node.of(layout).map(move |c| Stat::new(c.name, value(c)))
    }

    /// `nodeN/numastat` (LB I.4). All layouts have the same names.
    pub fn numastat(&self, node: NodeId) -> vmstat::Document {
        let value = |counter: &Counter| {
            let of_zone = |zone: &ZoneState| zone.value(Group::Numa, counter.name);
            let value = self.zones_of(node).filter_map(of_zone).sum();
            Stat::new(counter.numastat_name(), value)
        };
        vmstat::Document { stats: Group::Numa.counters().iter().map(value).collect() }
    }

    /// `nodeN/meminfo` (LB I.4).
    pub fn node_meminfo(&self, node: NodeId, layout: Layout) -> meminfo::Document {
        let amount = |counter: &Counter| meminfo::Amount {
            name: counter.name.to_owned(),
            value: self.memory(node, counter.name).unwrap_or(0),
            in_kib: counter.is_kib(),
        };
        let amounts = Group::Memory.of(layout).map(amount).collect();
        // All later ones print the same form.
        let layout = layout.min(Layout::Linux6_12);
        meminfo::Document { node: Some(node.0.into()), layout, amounts }
    }

    /// All counters that an allocator has, as OpenMetrics text: each zone's and each CPU's, totals
    /// as counters, everything else as gauges.
    pub fn openmetrics(&self) -> String {
        let mut metrics = Metrics::new();
        for (group, prefix) in [
            (Group::ZonePages, "zonal_zone_pages_"),
            (Group::Zone, "zonal_zone_"),
            (Group::Numa, "zonal_"),
            (Group::ZoneTail, "zonal_zone_"),
            (Group::Own, "zonal_zone_"),
        ] {
            for counter in group.meaningful() {
                let mut family = metrics.family(prefix, counter);
                for zone in &self.zones {
                    let labels: [(&str, &dyn std::fmt::Display); 2] =
                        [("node", &zone.node.0), ("zone", &zone.kind)];
                    family.sample(&labels, zone.value(group, counter.name).unwrap_or(0));
                }
            }
        }
        for counter in Group::Node.meaningful() {
            let mut family = metrics.family("zonal_node_", counter);
            for node in self.nodes() {
                let value = self.node_item(Some(node), counter.name).unwrap_or(0);
                family.sample(&[("node", &node.0)], value);
            }
        }
        for counter in Group::Order.meaningful() {
            let mut family = metrics.family("zonal_zone_", counter);
            for zone in &self.zones {
                for order in Order::all() {
                    let labels: [(&str, &dyn std::fmt::Display); 3] =
                        [("node", &zone.node.0), ("zone", &zone.kind), ("order", &order)];
                    family.sample(&labels, zone.stats.nr_free[order.index()].into());
                }
            }
        }
        for counter in Group::Pageset.meaningful() {
            let mut family = metrics.family("zonal_pageset_", counter);
            for zone in &self.zones {
                for pageset in &zone.pagesets {
                    let labels: [(&str, &dyn std::fmt::Display); 3] =
                        [("node", &zone.node.0), ("zone", &zone.kind), ("cpu", &pageset.cpu)];
                    family.sample(&labels, pageset.value(counter.name).unwrap_or(0));
                }
            }
        }
        for counter in Group::Event.meaningful() {
            let value = self.event(counter.name).unwrap_or(0);
            metrics.family("zonal_", counter).sample(&[], value);
        }
        for counter in Group::Whole.meaningful() {
            let value = self.whole(counter.name).unwrap_or(0);
            metrics.family("zonal_", counter).sample(&[], value);
        }
        metrics.finish()
    }
}

impl ZoneState {
    /// Without the items of its node.
    fn info(&self, layout: Layout) -> zoneinfo::ZoneInfo {
        let stats = |group: Group| -> Vec<Stat> {
            let value = |c: &Counter| self.value(group, c.name).unwrap_or(0);
            group.of(layout).map(|c| Stat::new(c.name, value(c))).collect()
        };
        let mut items = stats(Group::Zone);
        items.extend(stats(Group::Numa));
        let pageset = |pageset: &PagesetState| zoneinfo::PagesetInfo {
            cpu: pageset.cpu,
            fields: Group::Pageset
                .of(layout)
                .map(|c| Stat::new(c.name, pageset.value(c.name).unwrap_or(0)))
                .collect(),
            stat_threshold: Some(self.stat_threshold.into()),
        };
        let protection = self.protection.iter();
        zoneinfo::ZoneInfo {
            node: self.node.0.into(),
            name: self.kind.name().to_owned(),
            node_stats: None,
            pages: stats(Group::ZonePages),
            protection: protection.map(|p| i64::try_from(*p).unwrap_or(i64::MAX)).collect(),
            items,
            pagesets: Some(self.pagesets.iter().map(pageset).collect()),
            tail: stats(Group::ZoneTail),
        }
    }

    fn free_rows(&self) -> impl Iterator<Item = pagetypeinfo::FreeRow> + '_ {
        Migratetype::ALL.into_iter().map(|mt| {
            let count = |blocks: u32| pagetypeinfo::Count {
                blocks: blocks.into(),
                capped: blocks >= LISTED_BLOCKS_MAX,
            };
            let counts = self.areas.blocks.iter().map(|by_type| count(by_type[mt.index()]));
            pagetypeinfo::FreeRow {
                node: self.node.0.into(),
                zone: self.kind.name().to_owned(),
                migratetype: mt.name().to_owned(),
                counts: counts.collect(),
            }
        })
    }

    fn blocks_row(&self) -> pagetypeinfo::BlocksRow {
        pagetypeinfo::BlocksRow {
            node: self.node.0.into(),
            zone: self.kind.name().to_owned(),
            counts: self.areas.pageblocks.map(u64::from).to_vec(),
        }
    }
}

/// A kind of zone without pages: no items, and marks as the rule gives them for nothing (LB C.2).
fn unpopulated(node: NodeId, kind: ZoneKind, layout: Layout) -> zoneinfo::ZoneInfo {
    let movable = match layout {
        Layout::Linux6_1 => MovableMin::Share,
        _ => MovableMin::Capped,
    };
    let watermarks = Watermarks::unpopulated(kind, movable);
    let value = |name: &str| match name {
        "min" => watermarks.min,
        "low" => watermarks.low,
        "high" => watermarks.high,
        "promo" => watermarks.promo,
        _ => 0,
    };
    let pages = Group::ZonePages.of(layout).map(|c| Stat::new(c.name, value(c.name)));
    zoneinfo::ZoneInfo {
        node: node.0.into(),
        name: kind.name().to_owned(),
        node_stats: None,
        pages: pages.collect(),
        protection: vec![0; ZoneKind::ALL.len()],
        items: Vec::new(),
        pagesets: None,
        tail: Vec::new(),
    }
}

/// Items and NUMA events, summed over zones.
fn sums<'a>(zones: impl IntoIterator<Item = &'a ZoneState> + Clone, layout: Layout) -> Vec<Stat> {
    let counters = SUMMED.iter().flat_map(|group| group.of(layout).map(move |c| (*group, c)));
    let sum = |(group, counter): (Group, &Counter)| {
        let zones = zones.clone().into_iter();
        let value = zones.filter_map(|zone| zone.value(group, counter.name)).sum();
        Stat::new(counter.name, value)
    };
    counters.map(sum).collect()
}

/// Counters that no allocator has.
fn zeros(group: Group, layout: Layout) -> impl Iterator<Item = Stat> {
    group.of(layout).map(|counter| Stat::new(counter.name, 0))
}
