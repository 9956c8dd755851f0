//! The core with one CPU and no operating system: what a kernel does at boot, and one page out and
//! back.
//!
//! ```text
//! cargo run -p zonal-core --example kernel
//! ```

use zonal_core::alloc::{Allocator, Request};
use zonal_core::machine::{Layout, Machine, Metadata, ZoneSpec};
use zonal_core::pcp::state::Pcp;
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::sync::{AtomicU8, AtomicU32, AtomicU64, LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

/// One CPU that is never interrupted: it never waits.
struct OneCpu;

impl Wait for OneCpu {
    fn wait(&self, _word: &LockWord, _value: u32) {
        core::hint::spin_loop();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for OneCpu {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

fn some<T>(count: usize, one: impl Fn() -> T) -> Vec<T> {
    (0..count).map(|_| one()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 64 MiB that start at 1 MiB, on one node.
    let (start_pfn, pages) = (256, 16 * 1024);
    let normal = ZoneSpec {
        node: NodeId(0),
        kind: ZoneKind::Normal,
        start_pfn,
        spanned: pages,
        present: pages,
    };
    let machine = Machine {
        distances: &[10],
        zones: &[normal],
        cpus: &[NodeId(0)],
        cache_slice_bytes: 0,
        caches: &[],
    };

    // The metadata. A kernel cuts it from memory that it does not hand over.
    let layout = Layout::of(&machine, &Policy::LINUX_6_18)?;
    let mut zones = some(layout.zones, Zone::default);
    let mut pcps = some(layout.pcps, Pcp::default);
    let mut nodes = some(layout.nodes, Node::default);
    let mut zonelist = some(layout.zonelist, ZoneId::default);
    let words = some(layout.words, || AtomicU64::new(0));
    let blocks = some(layout.blocks, || AtomicU8::new(0));
    let slots = some(layout.slots, || AtomicU32::new(0));
    let numa = some(layout.numa, NumaDeltas::default);
    let metadata = Metadata {
        zones: &mut zones,
        pcps: &mut pcps,
        words: &words,
        blocks: &blocks,
        slots: &slots,
        nodes: &mut nodes,
        zonelist: &mut zonelist,
        numa: &numa,
    };

    let allocator = Allocator::new(&machine, Policy::LINUX_6_18, metadata, OneCpu)?;
    allocator.online(ZoneId(0), Pfn(256)..Pfn(16640))?; // each range that is really there
    allocator.setup(); // watermarks, sizes of the lists, zonelists
    let frame = allocator.alloc(Request::new(Order::new(3).unwrap()))?; // 8 pages, aligned
    allocator.free(frame, Order::new(3).unwrap())?;

    assert!(allocator.free(frame, Order::new(3).unwrap()).is_err()); // free already
    assert_eq!((frame.0 % 8, allocator.free_pages()), (0, pages));
    allocator.validate()?;
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
