//! Sizes of lists where most memory came online later, before and after the fix of 2019 (LB E.11).

use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;

use super::platform::{Script, Shape, zone};
use crate::alloc::Allocator;
use crate::machine::ZoneSpec;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, NodeId, ZoneKind};

/// The machine of `deferred-init-pagesets.csv`: two sockets, 256 CPUs. Node 0 has DMA, DMA32 with
/// its hole below 4 GiB, and Normal from 4 GiB on; node 1 has Normal. Both Normals start with a
/// section. The source does not say how large they are: 8 GiB here, of which 16 MiB are reserved.
fn epyc() -> Shape {
    const NORMAL: u64 = 8 << 18;
    let holes =
        |kind, start_pfn, pages, present| ZoneSpec { present, ..zone(0, kind, start_pfn, pages) };
    Shape {
        distances: std::vec![10, 32, 32, 10],
        zones: std::vec![
            holes(ZoneKind::Dma, 1, 4095, 3999),
            holes(ZoneKind::Dma32, 4096, (1 << 20) - 4096, 700_000),
            zone(0, ZoneKind::Normal, 1 << 20, NORMAL),
            zone(1, ZoneKind::Normal, (1 << 20) + NORMAL, NORMAL),
        ],
        cpus: (0..256).map(|cpu| NodeId(cpu / 64 % 2)).collect(),
        cache_slice_bytes: 0,
        caches: Vec::new(),
    }
}

/// Stores by (batch, high), as the published table counts them.
fn counted<P: Platform>(pool: &Allocator<'_, P>) -> BTreeMap<(u32, u32), u32> {
    let mut counts = BTreeMap::new();
    for zone in pool.zones() {
        for cpu in 0..pool.cpus() {
            let pcp = pool.pcp(zone.id(), CpuId(cpu as u32));
            *counts.entry((pcp.batch.load(Relaxed), pcp.high())).or_insert(0) += 1;
        }
    }
    counts
}

/// The table of the fix of 2019, exactly (LB E.11).
#[test]
fn the_published_pagesets_come_out() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/published/deferred-init-pagesets.csv"
    );
    let Ok(table) = std::fs::read_to_string(path) else {
        std::eprintln!("SKIPPED: {path} is not there");
        return;
    };
    let mut published: BTreeMap<String, BTreeMap<(u32, u32), u32>> = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with(['#', 'w'])) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |field: usize| fields[field].parse::<u32>().unwrap();
        let counts = published.entry(fields[0].to_string()).or_default();
        counts.insert((number(2), number(3)), number(1));
    }
    let shape = epyc();
    for (preset, when) in [("linux-5.4", "before"), ("linux-5.4-resetpcpu", "after")] {
        let policy = Policy::preset(preset).unwrap();
        let pool = shape.clone().boot_deferred(policy, Script::default(), 4096);
        assert_eq!(counted(&pool), published["before"], "{preset} while memory is to come");
        pool.finish_growth().unwrap();
        assert_eq!(counted(&pool), published[when], "{preset}");
    }
}
