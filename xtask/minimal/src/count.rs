//! Makes a call so many times, for a program that counts instructions: `count WHAT TIMES`.

use minimal::{Pages, alloc, free, layout, start};
use zonal_core::alloc::Request;
use zonal_core::alloc::range::RangeRequest;
use zonal_core::gfp::Gfp;
use zonal_core::machine::{Machine, Metadata, ZoneSpec};
use zonal_core::pcp::state::Pcp;
use zonal_core::policy::Policy;
use zonal_core::sync::{AtomicU8, AtomicU32, AtomicU64};
use zonal_core::types::{NodeId, Order, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

use std::hint::black_box;

/// 256 MiB.
const PAGES: u64 = 1 << 16;
/// Pages of one turn of `bulk` and of `bulkcalls`.
const BULK: usize = 512;
/// Pages of one turn of `bulk4096`: more than the lists hold.
const MORE: usize = 4096;

fn some<T>(count: usize, one: impl Fn() -> T) -> &'static mut [T] {
    (0..count).map(|_| one()).collect::<Vec<T>>().leak()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (what, times) = (args[1].as_str(), args[2].parse::<u32>().unwrap());
    let node = NodeId(0);
    let (start_pfn, pages) = (1 << 20, PAGES);
    let zone = ZoneSpec { node, kind: ZoneKind::Normal, start_pfn, spanned: pages, present: pages };
    let machine = Machine {
        distances: &[10],
        zones: some(1, || zone),
        cpus: some(1, || node),
        cache_slice_bytes: 1 << 20,
        caches: &[],
    };
    let policy = black_box(Policy::ZONAL);
    let layout = layout(&machine, &policy).unwrap();
    let metadata = Metadata {
        zones: some(layout.zones, Zone::default),
        pcps: some(layout.pcps, Pcp::default),
        words: some(layout.words, || AtomicU64::new(0)),
        blocks: some(layout.blocks, || AtomicU8::new(0)),
        slots: some(layout.slots, || AtomicU32::new(0)),
        nodes: some(layout.nodes, Node::default),
        zonelist: some(layout.zonelist, ZoneId::default),
        numa: some(layout.numa, NumaDeltas::default),
        owners: &mut [],
        owned: &mut [],
    };
    // SAFETY: (1) all records were made just now.
    let core = unsafe { start(&machine, &policy, metadata) }.unwrap();
    run(&core, what, times);
}

fn run(core: &Pages<'_>, what: &str, times: u32) {
    let pair = |order: u32| {
        let order = Order::new(order).unwrap();
        for _ in 0..times {
            let pfn = alloc(core, black_box(order), black_box(Gfp::KERNEL)).unwrap();
            assert!(free(core, black_box(pfn), black_box(order)));
        }
    };
    match what {
        "order0" => pair(0),
        "order3" => pair(3),
        "order9" => pair(9),
        // Refills and drains, splits and merges.
        "bulk" => batches(core, &mut [Pfn(0); BULK], times),
        "bulk4096" => batches(core, &mut [Pfn(0); MORE], times),
        "bulkcalls" => {
            let mut pages = [Pfn(0); BULK];
            for _ in 0..times {
                assert_eq!(core.alloc_bulk(Request::new(Order::ZERO), &mut pages), Ok(BULK));
                core.free_bulk(black_box(&pages), Order::ZERO).unwrap();
            }
        }
        // Exact ranges, as a kernel's segments: taken and given back whole.
        "range2" => ranges(core, 2, times),
        "range3" => ranges(core, 3, times),
        "range8" => ranges(core, 8, times),
        "range512" => ranges(core, 512, times),
        other => panic!("no call is named {other}"),
    }
}

/// One range at a time, and back.
fn ranges(core: &Pages<'_>, pages: u64, times: u32) {
    for _ in 0..times {
        let request = RangeRequest::new(black_box(pages)).gfp(black_box(Gfp::KERNEL));
        let pfn = core.ranges().alloc(request).unwrap();
        core.ranges().free(black_box(pfn)..Pfn(pfn.0 + pages)).unwrap();
    }
}

/// All pages one by one, then back.
fn batches(core: &Pages<'_>, pages: &mut [Pfn], times: u32) {
    for _ in 0..times {
        for page in &mut *pages {
            *page = alloc(core, black_box(Order::ZERO), black_box(Gfp::KERNEL)).unwrap();
        }
        for page in &*pages {
            assert!(free(core, black_box(*page), black_box(Order::ZERO)));
        }
    }
}
