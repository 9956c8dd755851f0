//! The process of LLFree, a lock-free page allocator for kernels and hypervisors.
//!
//! Compiled in a package that `src/llfree.rs` writes, against the checkout that the command line
//! names. Set up as its own bench does it: one local reservation for each CPU and class, and the
//! number of the thread's CPU with each request.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use llfree::{
    Alloc, Class, Classing, FRAME_SIZE, FrameId, HUGE_ORDER, Init, LLFree, MetaData, Request,
};
use zonal_bench::{Cpus, PAGE, Region, Sizing, Subject, serve_subject};

const _: () = assert!(FRAME_SIZE == PAGE);

thread_local! {
    /// The index that the thread passes with its requests.
    static INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Frames {
    allocator: LLFree<'static>,
    memory: Region,
    cpus: usize,
    threads: AtomicUsize,
}

impl Frames {
    fn new() -> Result<Frames, String> {
        let cpus = Cpus::of_process();
        let sizing = Sizing::of(&cpus);
        // Reserved subtrees hold frames back: twice of what the others need.
        let frames = sizing.pages() * 2;
        let memory = Region::new(frames * PAGE).map_err(|error| error.to_string())?;
        let (classing, _) = Classing::simple(cpus.count());
        let size = LLFree::metadata_size(&classing, frames);
        let allocator = LLFree::new(frames, Init::FreeAll, &classing, MetaData::alloc(&size));
        let allocator = allocator.map_err(|error| format!("it did not start: {error:?}"))?;
        Ok(Frames { allocator, memory, cpus: cpus.count(), threads: AtomicUsize::new(0) })
    }
}

#[inline(always)]
fn request(order: u32) -> Request {
    let order = order as usize;
    Request::new(order, Class(u8::from(order >= HUGE_ORDER)), Some(INDEX.get()))
}

// SAFETY: (1) frames of the region, which lives as long as the subject. (2) what LLFree promises.
unsafe impl Subject for Frames {
    fn name(&self) -> &str {
        "llfree"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        match self.allocator.get(None, request(order)) {
            Ok((frame, _)) => self.memory.page(frame.0),
            Err(_) => null_mut(),
        }
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let Some(frame) = self.memory.index_of(block) else { return };
        let freed = self.allocator.put(FrameId(frame), request(order));
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    fn thread_init(&self) {
        if INDEX.get() == usize::MAX {
            // Relaxed: only uniqueness matters. Workers come in the order of their CPUs.
            INDEX.set(self.threads.fetch_add(1, Relaxed) % self.cpus);
        }
    }
}

fn main() -> std::io::Result<()> {
    serve_subject(|_| Frames::new())
}
