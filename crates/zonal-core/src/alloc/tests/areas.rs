//! Free blocks by order and type, and pageblocks.

use std::vec::Vec;

use super::platform::{Shape, distances, zone};
use crate::alloc::Request;
use crate::policy::Policy;
use crate::types::{Migratetype, NodeId, Order, Pfn, ZoneId, ZoneKind};

#[test]
fn free_areas_and_counters_agree() {
    for policy in [Policy::LINUX_6_12, Policy::LINUX_6_18, Policy::ZONAL] {
        let pool = Shape::uniform(2, 1 << 14, 2).boot(policy);
        let held: Vec<Pfn> =
            (0..3000).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
        for pfn in held.iter().step_by(3) {
            pool.free(*pfn, Order::ZERO).unwrap();
        }
        pool.drain_all();
        for id in [ZoneId(0), ZoneId(1)] {
            let (areas, stats) = (pool.stats().free_areas(id), pool.zone_stats(id));
            for (blocks, nr_free) in areas.blocks.iter().zip(stats.nr_free) {
                assert_eq!(blocks.iter().sum::<u32>(), nr_free);
            }
            assert_eq!(areas.pageblocks.iter().sum::<u32>(), (1 << 14) / 512);
        }
    }
}

/// A DMA zone of Linux begins at page frame 1, in the middle of a pageblock.
#[test]
fn a_pageblock_that_begins_before_the_zone_counts() {
    let shape = Shape {
        distances: distances(1),
        zones: [zone(0, ZoneKind::Dma, 1, 4095), zone(0, ZoneKind::Dma32, 4096, 1 << 14)].to_vec(),
        cpus: [NodeId(0)].to_vec(),
        cache_slice_bytes: 0,
        caches: Vec::new(),
    };
    let pool = shape.boot(Policy::LINUX_6_12);
    let areas = pool.stats().free_areas(ZoneId(0));
    assert_eq!(areas.pageblocks.iter().sum::<u32>(), 8);
    assert_eq!(areas.blocks[0].iter().sum::<u32>(), 1);
    assert_eq!(areas.blocks[10].iter().sum::<u32>(), 3);
    assert_eq!(areas.pageblocks[Migratetype::HighAtomic.index()], 0);
}
