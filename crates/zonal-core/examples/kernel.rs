//! The core with one CPU and no operating system: what a kernel does at boot, and one page out and
//! back.
//!
//! ```text
//! cargo run -p zonal-core --example kernel
//! ```

use std::mem::MaybeUninit;

use zonal_core::alloc::{Allocator, Request};
use zonal_core::early::{Early, Want};
use zonal_core::machine::{Layout, Machine, ZoneSpec};
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Order, ZoneKind};

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

    // What the firmware says, and what is in use: here the image, in the second MiB.
    let mut early = Early::<128>::new();
    early.add(0x10_0000..0x410_0000, NodeId(0))?;
    early.reserve(0x10_0000..0x20_0000)?;

    // The metadata. A kernel cuts it from early memory, at the address that `take` returns; in a
    // process that memory is not there, so the bytes are some of the process.
    let layout = Layout::of(&machine, &Policy::LINUX_6_18)?;
    early.take(&Want::bytes(layout.carve_bytes() as u64))?;
    let mut memory = vec![MaybeUninit::uninit(); layout.carve_bytes()];
    let metadata = layout.carve(&mut memory)?;

    let allocator = Allocator::new(&machine, Policy::LINUX_6_18, metadata, OneCpu)?;
    let handed = early.hand_over(&allocator)?; // all pages that are free
    allocator.setup(); // watermarks, sizes of the lists, zonelists
    let frame = allocator.alloc(Request::new(Order::new(3).unwrap()))?; // 8 pages, aligned
    allocator.free(frame, Order::new(3).unwrap())?;

    assert!(allocator.free(frame, Order::new(3).unwrap()).is_err()); // free already
    assert_eq!((frame.0 % 8, allocator.free_pages()), (0, handed.online));

    // Half of the image was for the boot only.
    let late = early.release_to(&allocator, 0x18_0000..0x20_0000)?;
    assert_eq!((late.online, late.outside), (128, 0));
    allocator.validate()?;
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
