//! The process of DPDK's mempool; see `shim/dpdk.c`. Single pages only, bulk calls included.

use std::ffi::{c_char, c_int, c_uint, c_void};
use zonal_bench::{Bench, Cell, PAGE, Region, Sizing, Subject, Waiting, serve_subject};

#[link(name = "zonal_bench_dpdk", kind = "static")]
unsafe extern "C" {
    fn zb_dpdk_init(pages: *mut c_char, count: c_uint) -> c_int;
    safe fn zb_dpdk_thread_init() -> c_int;
    safe fn zb_dpdk_get() -> *mut c_void;
    fn zb_dpdk_put(page: *mut c_void);
    fn zb_dpdk_get_bulk(pages: *mut *mut c_void, count: c_uint) -> c_int;
    safe fn zb_dpdk_in_ring() -> c_uint;
    fn zb_dpdk_put_bulk(pages: *const *mut c_void, count: c_uint);
}

/// Pages that one bulk call moves at most: half of a cache, which is what such callers do.
const BULK: usize = 256;

struct Mempool {
    count: usize,
    _pages: Region,
}

impl Mempool {
    fn new() -> Result<Mempool, String> {
        let sizing = Sizing::of(&zonal_bench::Cpus::of_process());
        // What the threads hold and what their caches keep back (1.5 x 512 each); a ring holds one
        // entry less than a power of two. It is first in, first out, so all of its pages circulate:
        // they are backed beforehand, as DPDK's own memory is.
        let held = (Sizing::held_per_thread(0) + 768) * sizing.threads;
        let count = held.next_power_of_two() - 1;
        let pages = Region::new(count * PAGE).map_err(|error| error.to_string())?;
        pages.populate();
        // SAFETY: `count` pages that live as long as the process uses the pool.
        let code = unsafe { zb_dpdk_init(pages.start().cast(), count as c_uint) };
        if code != 0 {
            let error = std::io::Error::from_raw_os_error(-code);
            return Err(format!("the environment of DPDK did not start: {error}"));
        }
        Ok(Mempool { count, _pages: pages })
    }
}

// SAFETY: (1) pages of the region, which lives as long as the process uses the pool; of order 0
// only, as `supports` says. (2) what the mempool promises.
unsafe impl Subject for Mempool {
    const FOREIGN: bool = true;

    fn name(&self) -> &str {
        "dpdk-mempool"
    }

    #[inline(always)]
    unsafe fn alloc(&self, _order: u32) -> *mut u8 {
        zb_dpdk_get().cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, _order: u32) {
        // SAFETY: the caller passes a block of `alloc`, once.
        unsafe { zb_dpdk_put(block.cast()) }
    }

    fn has_bulk(&self) -> bool {
        true
    }

    unsafe fn alloc_bulk(&self, _order: u32, blocks: &mut [*mut u8]) -> usize {
        let mut filled = 0;
        for part in blocks.chunks_mut(BULK) {
            // SAFETY: room for `part.len()` pointers.
            let code = unsafe { zb_dpdk_get_bulk(part.as_mut_ptr().cast(), part.len() as c_uint) };
            if code != 0 {
                break;
            }
            filled += part.len();
        }
        filled
    }

    unsafe fn free_bulk(&self, blocks: &[*mut u8], _order: u32) {
        for part in blocks.chunks(BULK) {
            // SAFETY: the caller passes blocks of this subject, each once.
            unsafe { zb_dpdk_put_bulk(part.as_ptr().cast(), part.len() as c_uint) };
        }
    }

    fn supports(&self, cell: &Cell) -> Result<(), String> {
        if cell.order > 0 || cell.bench == Bench::Mix {
            return Err("a mempool has one size".into());
        }
        Ok(())
    }

    /// What is not in the ring waits in the caches.
    fn waiting(&self) -> Option<Waiting> {
        let lists = self.count.saturating_sub(zb_dpdk_in_ring() as usize) as u64;
        Some(Waiting { lists, depots: None })
    }

    fn thread_init(&self) {
        if zb_dpdk_thread_init() != 0 {
            eprintln!("dpdk: this thread gets no cache: there are more threads than lcores");
        }
    }
}

fn main() -> std::io::Result<()> {
    serve_subject(|_| Mempool::new())
}
