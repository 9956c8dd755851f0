//! Texts of pools: what they say, and that they read back.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use zonal_core::alloc::{FreeAreas, LISTED_BLOCKS_MAX, NumaEvents, ZoneStats};
use zonal_core::gfp::Gfp;
use zonal_core::platform::reclaimer::{Holdings, Shrunk};
use zonal_core::reclaim::ReclaimStats;
use zonal_core::types::{Migratetype, NR_MIGRATETYPES, NR_ORDERS};
use zonal_core::types::{NodeId, Order, PAGE_SIZE, ZoneKind};
use zonal_core::zone::reclaim::Scans;
use zonal_core::zone::watermark::Watermarks;
use zonal_text::counters::Group;
use zonal_text::{Error, zoneinfo};

use super::reading::{NodeState, PagesetState, WholeState, ZoneState};
use super::{Layout, Policy, State, layout_of};
use crate::{CpuMap, Pages, Pool, Request, ZoneSize};

const MIB: usize = 1 << 20;

/// Two nodes, one of two zones; without a refresh thread nothing moves but what a test moves.
fn pool(policy: Policy) -> Pool {
    let zone = |node, kind, mib| ZoneSize { node, kind, bytes: mib * MIB };
    let zones = [
        zone(0, ZoneKind::Dma32, 32),
        zone(0, ZoneKind::Normal, 64),
        zone(1, ZoneKind::Normal, 64),
    ];
    let builder = Pool::builder().zones(&zones).fake_nodes(2, CpuMap::RoundRobin).policy(policy);
    builder.refresh_every(None).build().unwrap()
}

/// A pool that has worked, with what it handed out.
fn used(pool: &Pool) -> Vec<Pages<'_>> {
    let orders = [0, 0, 1, 3, 0, 5, 2, 0].map(|order| Order::new(order).unwrap());
    let mut pages: Vec<Pages<'_>> =
        orders.iter().cycle().take(600).map(|order| pool.alloc(*order).unwrap()).collect();
    pages.truncate(250);
    pages
}

fn reads_back<D: Display + FromStr<Err = Error> + PartialEq + Debug>(document: &D) {
    let read: D = document.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read, *document);
}

#[test]
fn every_text_reads_back_in_every_layout() {
    for &policy in Policy::PRESETS {
        let pool = pool(policy);
        let pages = used(&pool);
        for layout in Layout::ALL {
            let zoneinfo = pool.state().zoneinfo(layout);
            assert_eq!(zoneinfo.zones.len(), 2 * ZoneKind::ALL.len());
            reads_back(&zoneinfo);
            reads_back(&pool.state().vmstat(layout));
            for node in pool.state().nodes() {
                reads_back(&pool.state().node_vmstat(node, layout));
                reads_back(&pool.state().node_meminfo(node, layout));
            }
        }
        reads_back(&pool.state().buddyinfo());
        reads_back(&pool.state().pagetypeinfo());
        reads_back(&pool.state().numastat(NodeId(1)));
        drop(pages);
    }
}

#[test]
fn texts_of_one_reading_agree() {
    let pool = pool(Policy::ZONAL);
    let pages = used(&pool);
    let held: u64 = pages.iter().map(|block| (block.len() / PAGE_SIZE) as u64).sum();
    let state = pool.state();
    let layout = Layout::Linux7;
    let (zoneinfo, vmstat) = (state.zoneinfo(layout), state.vmstat(layout));
    let populated = || zoneinfo.zones.iter().filter(|zone| zone.is_populated());
    let sum = |of: &dyn Fn(&zoneinfo::ZoneInfo) -> u64| populated().map(of).sum::<u64>();

    let free = sum(&|zone| zone.page_count("free").unwrap());
    assert_eq!(vmstat.value("nr_free_pages"), Some(free));
    let blocks: u64 = state.buddyinfo().zones.iter().map(|zone| zone.free_pages()).sum();
    assert_eq!(blocks, free);
    let by_type = state.pagetypeinfo().nodes.into_iter().flat_map(|node| node.free);
    let pages_of = |(order, count): (usize, &zonal_text::pagetypeinfo::Count)| {
        assert!(!count.capped);
        count.blocks << order
    };
    let listed: u64 =
        by_type.map(|row| row.counts.iter().enumerate().map(pages_of).sum::<u64>()).sum();
    assert_eq!(listed, free);

    // Every page is free, on a list, or handed out.
    let cached = sum(&|zone| zone.pagesets.iter().flatten().map(|set| set.values().count).sum());
    let managed = sum(&|zone| zone.page_count("managed").unwrap());
    assert_eq!(managed, free + cached + held);
    let memory = |name: &str| -> u64 {
        state.nodes().map(|node| state.node_meminfo(node, layout).value(name).unwrap()).sum()
    };
    assert_eq!((memory("MemTotal"), memory("MemFree")), (managed * 4, free * 4));
    assert_eq!(memory("MemUsed"), (managed - free) * 4);

    // Events: what was allocated and not freed is held; each allocation was local or not.
    let event = |name: &str| vmstat.value(name).unwrap();
    let allocated: u64 = ["dma", "dma32", "normal", "movable", "device"]
        .map(|kind| event(&format!("pgalloc_{kind}")))
        .iter()
        .sum();
    assert_eq!(allocated - event("pgfree"), held);
    assert_eq!(event("numa_hit") + event("numa_miss"), 600);
    assert_eq!(event("numa_local") + event("numa_other"), 600);
    assert_eq!(event("numa_miss"), event("numa_foreign"));
    let local: u64 =
        state.nodes().map(|node| state.numastat(node).value("local_node").unwrap()).sum();
    assert_eq!(local, event("numa_local"));
    drop(pages);
}

#[test]
fn zones_of_a_node_are_printed_as_linux_orders_them() {
    let pool = pool(Policy::LINUX_6_12);
    let zoneinfo = pool.state().zoneinfo(layout_of(pool.policy()));
    assert_eq!(zoneinfo.layout, Layout::Linux6_12);
    let of = |node: u32| zoneinfo.zones.iter().filter(move |zone| zone.node == node);
    let names: Vec<&str> = of(0).map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["DMA", "DMA32", "Normal", "Movable", "Device"]);
    let with_stats = |node| of(node).find(|zone| zone.node_stats.is_some()).map(|z| z.name.clone());
    assert_eq!(with_stats(0).as_deref(), Some("DMA32"));
    assert_eq!(with_stats(1).as_deref(), Some("Normal"));
    // An empty movable zone has a min watermark, an empty device zone has none (LB C.2).
    let min = |name: &str| of(1).find(|zone| zone.name == name).unwrap().page_count("min");
    assert_eq!((min("Movable"), min("Device")), (Some(32), Some(0)));
    // DMA32 keeps a 256th of Normal back from requests that could use Normal (LB A.7).
    let dma32 = of(0).find(|zone| zone.name == "DMA32").unwrap();
    assert_eq!(dma32.protection, [0, 0, 64, 64, 64]);
}

#[test]
fn nodes_are_in_order_wherever_their_memory_lies() {
    let zone = |node| ZoneSize { node, kind: ZoneKind::Normal, bytes: 16 * MIB };
    let builder = Pool::builder().zones(&[zone(1), zone(0)]).fake_nodes(2, CpuMap::RoundRobin);
    let pool = builder.build().unwrap();
    let nodes: Vec<u32> = pool.state().buddyinfo().zones.iter().map(|zone| zone.node).collect();
    assert_eq!(nodes, [0, 1]);
}

/// A zone in which every number is another one.
fn numbered() -> State {
    let mut blocks = [[0; NR_MIGRATETYPES]; NR_ORDERS];
    blocks[0][Migratetype::Movable.index()] = LISTED_BLOCKS_MAX;
    blocks[10][Migratetype::HighAtomic.index()] = 3;
    let mut nr_free = [0; NR_ORDERS];
    (nr_free[0], nr_free[9], nr_free[10]) = (123_456, 2, 3);
    let numa = NumaEvents { hit: 21, miss: 22, foreign: 23, local: 24, other: 25 };
    let zone = ZoneState {
        node: NodeId(0),
        kind: ZoneKind::Normal,
        start_pfn: 31,
        spanned: 15,
        present: 14,
        managed: 13,
        watermarks: Watermarks { min: 1000, low: 2000, high: 3000, promo: 4000, boost: 5 },
        protection: vec![0, 0, 0, 41, 42],
        stat_threshold: 51,
        stats: ZoneStats { free_pages: 127_552, nr_free, numa, ..ZoneStats::default() },
        areas: FreeAreas {
            blocks,
            pageblocks: [61, 62, 63, 64, 65],
            free_highatomic: 71,
            reserved_highatomic: 72,
        },
        pagesets: vec![PagesetState {
            cpu: 6,
            count: 81,
            high: 82,
            batch: 83,
            high_min: 84,
            high_max: 85,
        }],
    };
    let whole = WholeState {
        reclaim: ReclaimStats {
            success: 201,
            failed: 202,
            direct: [203, 204, 205, 206, 207],
            direct_throttled: 208,
            background_runs: 209,
            low_hit_quickly: 210,
            high_hit_quickly: 211,
            out_of_memory: 212,
            ..ReclaimStats::default()
        },
        objects_scanned: 7,
        slow_paths: 1,
        failures: 2,
        whole_drains: 3,
        claims: 4,
        steals: 5,
        misuses: 6,
    };
    State { nodes: 1, whole, reclaim: vec![NodeState::default()], zones: vec![zone] }
}

/// `zoneinfo` without the lines of counters that are 0 and the zones without pages.
fn normal_zone(layout: Layout) -> String {
    let text = numbered().zoneinfo(layout).to_string();
    let start = text.find("Node 0, zone   Normal").unwrap();
    let end = text.find("Node 0, zone  Movable").unwrap();
    let item = |line: &str| line.starts_with("      ") && line.ends_with(" 0");
    text[start..end].lines().filter(|line| !item(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_number_stands_where_linux_prints_it() {
    let pages = "  pages free     127552
        boost    5
        min      1005
        low      2005
        high     3005
        promo    4005
        spanned  15
        present  14
        managed  13
        protection: (0, 0, 0, 41, 42)
";
    let numa = "      numa_hit     21
      numa_miss    22
      numa_foreign 23
      numa_local   24
      numa_other   25
  pagesets
    cpu: 6
";
    let tail = "  vm stats threshold: 51
  node_unreclaimable:  0
  start_pfn:           31
";
    let start = "Node 0, zone   Normal\n  per-node stats\n";
    let narrow = "              count: 81\n              high:  82\n              batch: 83\n";
    let wide = "              count:    81
              high:     82
              batch:    83
              high_min: 84
              high_max: 85
";
    let free = "      nr_free_pages 127552\n";
    assert_eq!(normal_zone(Layout::Linux6_12), format!("{start}{pages}{free}{numa}{narrow}{tail}"));
    assert_eq!(
        normal_zone(Layout::Linux6_1),
        format!("{start}{pages}{free}{numa}{narrow}{tail}").replace("        promo    4005\n", "")
    );
    let blocks = format!("{free}      nr_free_pages_blocks 4096\n");
    let highatomic = "  reserved_highatomic: 72\n  free_highatomic:     71\n";
    assert_eq!(normal_zone(Layout::Linux6_14), format!("{start}{pages}{blocks}{numa}{wide}{tail}"));
    assert_eq!(
        normal_zone(Layout::Linux7),
        format!("{start}{pages}{blocks}{numa}{wide}{tail}{highatomic}")
    );
}

#[test]
fn blocks_and_types_stand_where_linux_prints_them() {
    assert_eq!(
        numbered().buddyinfo().to_string(),
        "Node 0, zone   Normal 123456      0      0      0      0      0      0      0      0      \
         2      3 \n"
    );
    let text = numbered().pagetypeinfo().to_string();
    for line in [
        "Page block order: 9\nPages per block:  512\n\n",
        "\nFree pages count per migrate type at order       0      1      2 ",
        "\nNode    0, zone   Normal, type      Movable >100000      0      0 ",
        "\nNode    0, zone   Normal, type   HighAtomic      0      0      0 ",
        "      0      3 \n",
        "\n\nNumber of blocks type     Unmovable      Movable  Reclaimable   HighAtomic ",
        "\nNode 0, zone   Normal           61           62           63           64           65 ",
    ] {
        assert!(text.contains(line), "{line:?} is missing in:\n{text}");
    }
}

#[test]
fn layouts_follow_policies() {
    for (policy, layout) in [
        (Policy::LINUX_6_12, Layout::Linux6_12),
        (Policy::LINUX_6_18, Layout::Linux6_14),
        (Policy::ZONAL, Layout::Linux6_14),
        (Policy { name: "pcp-patch3", ..Policy::ZONAL }, Layout::Linux6_1),
        (Policy { name: "linux-2.6.24", ..Policy::ZONAL }, Layout::Linux6_1),
    ] {
        assert_eq!(layout_of(&policy), layout, "{}", policy.name);
    }
}

#[test]
fn a_counter_has_a_value_if_the_table_says_what_it_means() {
    let pool = pool(Policy::ZONAL);
    let state = pool.state();
    let zone = &state.zones[0];
    for group in Group::ALL {
        for counter in group.counters() {
            let value = match group {
                Group::Pageset => zone.pagesets[0].value(counter.name),
                Group::Event => state.event(counter.name),
                Group::Whole => state.whole(counter.name),
                Group::Node => state.node_item(Some(NodeId(0)), counter.name),
                Group::Memory => state.memory(NodeId(0), counter.name),
                // Printed by order, not by name.
                Group::Order => Some(0),
                group => zone.value(group, counter.name),
            };
            assert_eq!(value.is_some(), !counter.help.is_empty(), "{group:?} {}", counter.name);
        }
    }
}

/// In each layout, whether it has them among the items of nodes or among the events.
#[test]
fn what_reclaim_did_is_printed_by_the_kernels_names() {
    let mut state = numbered();
    let pages = |scanned, reclaimed| Shrunk { scanned, reclaimed, slab: 9999 };
    let node = NodeState {
        held: Holdings {
            file: 101,
            inactive_file: 102,
            active_file: 103,
            file_mapped: 104,
            file_dirty: 105,
            slab: 106,
            ..Holdings::default()
        },
        scans: Scans { background: pages(110, 111), direct: pages(120, 121), node: pages(1, 2) },
    };
    state.reclaim = vec![node];
    for layout in Layout::ALL {
        let vmstat = state.vmstat(layout);
        for (name, value) in [
            ("nr_file_pages", 101),
            ("nr_inactive_file", 102),
            ("nr_active_file", 103),
            ("nr_mapped", 104),
            ("nr_dirty", 105),
            ("nr_slab_reclaimable", 106),
            ("pgscan_kswapd", 110),
            ("pgsteal_kswapd", 111),
            // Node reclaim is the request's own.
            ("pgscan_direct", 121),
            ("pgsteal_direct", 123),
            ("pgscan_file", 231),
            ("pgsteal_file", 234),
            ("slabs_scanned", 7),
            ("zone_reclaim_failed", 202),
            ("allocstall_dma", 203),
            ("allocstall_normal", 205),
            ("pgscan_direct_throttle", 208),
            ("pageoutrun", 209),
            ("kswapd_low_wmark_hit_quickly", 210),
            ("kswapd_high_wmark_hit_quickly", 211),
            ("oom_kill", 212),
        ] {
            assert_eq!(vmstat.value(name), Some(value), "{layout} {name}");
        }
        let items = state.node_vmstat(NodeId(0), layout);
        assert_eq!(items.value("nr_file_pages"), Some(101));
        let zones = state.zoneinfo(layout).zones;
        let first = zones.into_iter().find_map(|zone| zone.node_stats).unwrap();
        assert!(first.iter().any(|stat| *stat == zonal_text::Stat::new("nr_file_pages", 101)));
    }
    let metrics = state.openmetrics();
    assert!(metrics.contains("\nzonal_node_pgsteal_kswapd_total{node=\"0\"} 111\n"), "{metrics}");
    assert!(metrics.contains("\nzonal_oom_kill_total 212\n"), "{metrics}");
}

#[test]
fn a_node_that_is_not_there_has_nothing() {
    let state = pool(Policy::ZONAL).state();
    assert!(state.numastat(NodeId(7)).stats.iter().all(|stat| stat.value == 0));
    assert_eq!(state.node_meminfo(NodeId(7), Layout::Linux6_12).value("MemTotal"), Some(0));
}

#[test]
fn metrics_name_each_zone_and_end() {
    let pool = pool(Policy::ZONAL);
    let request = Request { order: Order::ZERO, gfp: Gfp::DMA32, node: None };
    let pages: Vec<Pages<'_>> = (0..3).map(|_| pool.alloc_with(request).unwrap()).collect();
    let text = pool.state().openmetrics();
    assert!(text.ends_with("# EOF\n"));
    for line in [
        "zonal_pgalloc_dma32_total 3\n",
        "zonal_zone_pages_managed{node=\"0\",zone=\"DMA32\"} 8192\n",
        "# TYPE zonal_numa_hit counter\n",
        "# HELP zonal_zone_lock_holds times the zone lock was taken\n",
        "zonal_pageset_count{node=\"1\",zone=\"Normal\",cpu=\"0\"} ",
        "zonal_zone_free_blocks{node=\"0\",zone=\"Normal\",order=\"10\"} ",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    drop(pages);
}

#[test]
fn metrics_explain_every_counter_that_means_something() {
    let text = pool(Policy::ZONAL).state().openmetrics();
    let groups = Group::ALL.into_iter().filter(|group| *group != Group::Memory);
    for counter in groups.flat_map(Group::meaningful) {
        let end = format!("{} {}", counter.name, counter.help);
        let explained = |line: &str| line.starts_with("# HELP zonal_") && line.ends_with(&end);
        assert!(text.lines().any(explained), "no line of HELP ends with `{end}`");
    }
}

#[test]
fn a_state_outlives_its_pool() {
    let state: State = pool(Policy::ZONAL).state();
    assert_eq!(state.buddyinfo().zones.len(), 3);
}
