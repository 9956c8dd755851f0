//! The poller of a recorder allocates nothing: what it allocated would be in its own recording.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use zonal_trace::record::Sampler;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is the system allocator's; counting touches no memory that it gives.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_sample_allocates_nothing() {
    let zoneinfo = std::path::Path::new("/proc/zoneinfo");
    let mut sampler = match Sampler::new(zoneinfo, 1 << 20) {
        Ok(sampler) => sampler,
        Err(error) => {
            eprintln!("SKIPPED: {}: {error}", zoneinfo.display());
            return;
        }
    };
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counter counts");
    for _ in 0..50 {
        sampler.sample();
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!((sampler.counts.samples, sampler.counts.failed), (50, 0));
    let text = std::str::from_utf8(sampler.lines()).unwrap();
    let samples = zonal_trace::parse_polls(text).unwrap();
    assert_eq!(samples.len(), 50);
    assert!(samples.iter().all(|sample| !sample.zones.is_empty()));
    assert!(samples.is_sorted_by_key(|sample| sample.t_end_ns));
}
