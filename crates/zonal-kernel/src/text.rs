//! `zoneinfo`, `buddyinfo`, `pagetypeinfo` and `vmstat` without memory of their own: line by line
//! into any [`Write`]. Names, order and widths are those of the crate `zonal-text`, whose documents
//! read them back. A [`Layout`] says of which releases: [`Layout::Linux7`] is the newest.
//!
//! Counters that only a process's pool has, of reclaim and its consumers, print 0.

use core::fmt::{Result, Write};

use zonal_core::alloc::{Allocator, FreeAreas, LISTED_BLOCKS_MAX, ZoneStats};
use zonal_core::platform::Platform;
use zonal_core::types::{
    CpuId, Migratetype, NR_ORDERS, NodeId, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, ZoneKind,
};
use zonal_core::zone::state::Zone;
use zonal_core::zone::watermark::{MovableMin, Watermark, Watermarks};
use zonal_text::counters::{Counter, Group};
use zonal_text::forms;

pub use zonal_text::Layout;

/// The text of `/proc/zoneinfo`: every node, and of each every kind of zone. CPUs of which `is_up`
/// says `false` are left out, as Linux leaves out those that are offline; a kernel passes
/// [`Fences::is_up`](crate::fence::Fences::is_up).
///
/// # Errors
/// Those of `out`.
pub fn zoneinfo<P: Platform>(
    out: &mut dyn Write,
    of: &Allocator<'_, P>,
    layout: Layout,
    is_up: impl Fn(u32) -> bool,
) -> Result {
    for node in 0..of.nodes().len() as u16 {
        let mut is_first = true;
        for kind in ZoneKind::ALL {
            forms::zone(out, node.into(), &kind)?;
            match zone_of(of, NodeId(node), kind) {
                Some(zone) => {
                    if is_first {
                        forms::per_node_stats(out)?;
                        group(out, Group::Node, layout, |_| 0)?;
                    }
                    is_first = false;
                    populated(out, of, zone, layout, &is_up)?;
                }
                None => unpopulated(out, kind, layout)?,
            }
        }
    }
    Ok(())
}

/// The text of `/proc/buddyinfo`: every populated zone.
///
/// # Errors
/// Those of `out`.
pub fn buddyinfo<P: Platform>(out: &mut dyn Write, of: &Allocator<'_, P>) -> Result {
    in_order(of, |zone| {
        let blocks = of.zone_stats(zone.id()).nr_free.map(u64::from);
        forms::free_blocks(out, zone.node().0.into(), &zone.kind(), blocks)
    })
}

/// The text of `/proc/pagetypeinfo`: every node with memory. Walks the free lists with the zone's
/// lock held.
///
/// # Errors
/// Those of `out`.
pub fn pagetypeinfo<P: Platform>(out: &mut dyn Write, of: &Allocator<'_, P>) -> Result {
    for node in 0..of.nodes().len() as u16 {
        let zones = || ZoneKind::ALL.into_iter().filter_map(|kind| zone_of(of, NodeId(node), kind));
        if zones().next().is_none() {
            continue;
        }
        let block = u64::from(PAGEBLOCK_ORDER.get());
        forms::page_types(out, block, PAGEBLOCK_PAGES, NR_ORDERS)?;
        for zone in zones() {
            let areas = of.stats().free_areas(zone.id());
            for mt in Migratetype::ALL {
                let blocks = areas.blocks.iter().map(|by_type| by_type[mt.index()]);
                let blocks = blocks.map(|n| (u64::from(n), n >= LISTED_BLOCKS_MAX));
                forms::free_of_type(out, (node.into(), &zone.kind(), mt.name()), blocks)?;
            }
        }
        out.write_char('\n')?;
        let names = Migratetype::ALL.map(Migratetype::name);
        forms::pageblock_types(out, "Number of blocks type ", names)?;
        for zone in zones() {
            let blocks = of.stats().free_areas(zone.id()).pageblocks.map(u64::from);
            forms::pageblocks(out, node.into(), &zone.kind(), blocks)?;
        }
    }
    Ok(())
}

/// The text of `/proc/vmstat`.
///
/// # Errors
/// Those of `out`.
pub fn vmstat<P: Platform>(out: &mut dyn Write, of: &Allocator<'_, P>, layout: Layout) -> Result {
    let sum = |value: &dyn Fn(&Zone, &ZoneStats) -> u64| -> u64 {
        of.zones().iter().map(|zone| value(zone, &of.zone_stats(zone.id()))).sum()
    };
    for counter in Group::Zone.of(layout) {
        line(out, counter, sum(&|_, stats| item(stats, counter.name)))?;
    }
    for counter in Group::Numa.of(layout) {
        line(out, counter, sum(&|_, stats| numa(stats, counter.name)))?;
    }
    for counter in Group::Node.of(layout).chain(Group::Limit.of(layout)) {
        line(out, counter, 0)?;
    }
    for counter in Group::Event.of(layout) {
        let value = match counter.name {
            "pgfree" => sum(&|_, stats| stats.freed_pages),
            name => name.strip_prefix("pgalloc_").map_or(0, |kind| {
                sum(&|zone, stats| match zone.kind().name().eq_ignore_ascii_case(kind) {
                    true => stats.allocated_pages,
                    false => 0,
                })
            }),
        };
        line(out, counter, value)?;
    }
    out.write_str("nr_unstable 0\n")
}

fn line(out: &mut dyn Write, counter: &Counter, value: u64) -> Result {
    writeln!(out, "{} {value}", counter.name)
}

fn zone_of<'a, P: Platform>(
    of: &Allocator<'a, P>,
    node: NodeId,
    kind: ZoneKind,
) -> Option<&'a Zone> {
    of.zones().iter().find(|zone| (zone.node(), zone.kind()) == (node, kind))
}

/// Every populated zone by node, then by kind.
fn in_order<P: Platform>(of: &Allocator<'_, P>, mut each: impl FnMut(&Zone) -> Result) -> Result {
    for node in 0..of.nodes().len() as u16 {
        for kind in ZoneKind::ALL {
            zone_of(of, NodeId(node), kind).map_or(Ok(()), &mut each)?;
        }
    }
    Ok(())
}

/// The items of a group, of a node or a zone.
fn group(out: &mut dyn Write, group: Group, layout: Layout, value: impl Fn(&str) -> u64) -> Result {
    group.of(layout).try_for_each(|counter| forms::item(out, counter.name, value(counter.name)))
}

fn populated<P: Platform>(
    out: &mut dyn Write,
    of: &Allocator<'_, P>,
    zone: &Zone,
    layout: Layout,
    is_up: &impl Fn(u32) -> bool,
) -> Result {
    let (stats, areas) = (of.zone_stats(zone.id()), of.stats().free_areas(zone.id()));
    let marks = zone.watermarks();
    page_counts(out, layout, |name| match name {
        "free" => stats.free_pages,
        "spanned" => zone.spanned(),
        "present" => zone.present(),
        "managed" => zone.managed(),
        name => mark(&marks, name),
    })?;
    forms::protection(out, ZoneKind::ALL.map(|kind| zone.reserve(kind)))?;
    group(out, Group::Zone, layout, |name| item(&stats, name))?;
    group(out, Group::Numa, layout, |name| numa(&stats, name))?;
    forms::pagesets(out)?;
    for cpu in (0..of.cpus() as u32).filter(|cpu| is_up(*cpu)) {
        pageset(out, of, zone, layout, cpu)?;
    }
    for counter in Group::ZoneTail.of(layout) {
        forms::tail(out, counter.name, tail(zone, &areas, counter.name))?;
    }
    Ok(())
}

fn page_counts(out: &mut dyn Write, layout: Layout, value: impl Fn(&str) -> u64) -> Result {
    for (at, counter) in Group::ZonePages.of(layout).enumerate() {
        forms::pages(out, at == 0, counter.name, value(counter.name))?;
    }
    Ok(())
}

fn pageset<P: Platform>(
    out: &mut dyn Write,
    of: &Allocator<'_, P>,
    zone: &Zone,
    layout: Layout,
    cpu: u32,
) -> Result {
    let (batch, high_min, high_max) = zone.pcp_sizes();
    let lists = of.pcp(zone.id(), CpuId(cpu));
    forms::cpu(out, cpu)?;
    for counter in Group::Pageset.of(layout) {
        let value = match counter.name {
            "count" => of.stats().kept_pages(zone.id(), CpuId(cpu)),
            "high" => lists.high(),
            "batch" => batch,
            "high_min" => high_min,
            "high_max" => high_max,
            _ => 0,
        };
        forms::pageset(out, layout, counter.name, value.into())?;
    }
    forms::threshold(out, zone.stat_threshold().into())
}

/// A kind of zone without pages: marks as the rule gives them for nothing (LB C.2).
fn unpopulated(out: &mut dyn Write, kind: ZoneKind, layout: Layout) -> Result {
    let movable = match layout {
        Layout::Linux6_1 => MovableMin::Share,
        _ => MovableMin::Capped,
    };
    let marks = Watermarks::unpopulated(kind, movable);
    page_counts(out, layout, |name| mark(&marks, name))?;
    forms::protection(out, ZoneKind::ALL.map(|_| 0))
}

fn mark(marks: &Watermarks, name: &str) -> u64 {
    match name {
        "boost" => marks.boost,
        "min" => marks.of(Watermark::Min),
        "low" => marks.of(Watermark::Low),
        "high" => marks.of(Watermark::High),
        "promo" => marks.of(Watermark::Promo),
        _ => 0,
    }
}

fn item(stats: &ZoneStats, name: &str) -> u64 {
    let blocks = |order: Order| u64::from(stats.nr_free[order.index()]) << order.get();
    match name {
        "nr_free_pages" => stats.free_pages,
        "nr_free_pages_blocks" => PAGEBLOCK_ORDER.and_above().map(blocks).sum(),
        _ => 0,
    }
}

fn numa(stats: &ZoneStats, name: &str) -> u64 {
    let events = &stats.numa;
    match name {
        "numa_hit" => events.hit,
        "numa_miss" => events.miss,
        "numa_foreign" => events.foreign,
        "numa_local" => events.local,
        "numa_other" => events.other,
        _ => 0,
    }
}

fn tail(zone: &Zone, areas: &FreeAreas, name: &str) -> u64 {
    match name {
        "start_pfn" => zone.start_pfn().0,
        "reserved_highatomic" => areas.reserved_highatomic,
        "free_highatomic" => areas.free_highatomic,
        _ => 0,
    }
}
