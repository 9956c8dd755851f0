//! Magazines of 64 pages, and lists that have no room for one.

use std::vec::Vec;

use super::depot::give;
use super::platform::{Shape, distances, on_cpu, zone};
use crate::alloc::Request;
use crate::policy::{PcpPolicy, Policy};
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};

/// Of each zone: 300 MiB.
const PAGES: u64 = 76_800;

#[test]
fn a_list_that_is_shorter_than_a_magazine_leaves_it_in_the_depot() {
    let shape = Shape {
        distances: distances(2),
        zones: (0..2)
            .map(|node| zone(node, ZoneKind::Normal, u64::from(node) << 17, PAGES))
            .collect(),
        cpus: [0, 1, 1, 1, 1, 1].map(NodeId).to_vec(),
        cache_slice_bytes: 0,
        caches: Vec::new(),
    };
    let pcp = PcpPolicy { high_batches: 5, scale_max: 0, ..Policy::ZONAL.pcp };
    let pool = shape.boot(Policy { pcp, ..Policy::ZONAL });
    let room = |cpu| pool.pcp(ZoneId(0), CpuId(cpu)).lists[0].cap;
    assert!(room(0) > 64 && room(1) < 64, "{} and {}", room(0), room(1));

    let near = Request { node: Some(NodeId(0)), ..Request::new(Order::ZERO) };
    let take = |cpu, times| -> Vec<Pfn> {
        on_cpu(cpu);
        (0..times).map(|_| pool.alloc(near).expect("there is enough")).collect()
    };
    let pages = take(0, 400);
    give(&pool, 0, Order::ZERO, pages);
    let waiting = pool.stats().depot_pages(ZoneId(0));
    assert!(waiting >= 64, "{waiting}");
    let pages = take(1, 400);
    assert_eq!(pool.stats().depot_pages(ZoneId(0)), waiting);
    pool.validate().unwrap();
    give(&pool, 1, Order::ZERO, pages);
    pool.validate().unwrap();
    pool.drain_all();
    assert_eq!(pool.free_pages(), 2 * PAGES);
}
