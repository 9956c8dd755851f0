//! Linux itself as the page allocator: every block is asked from the kernel and given back to it.
//!
//! | name | an allocation | a free |
//! |--|--|--|
//! | `mmap` | `mmap`; the first touch of each page is a fault | `munmap` |
//! | `mmap-populate` | `mmap(MAP_POPULATE)`: in memory when the call returns | `munmap` |
//! | `populate-write` | `madvise(MADV_POPULATE_WRITE)` in a mapping that stays | `MADV_DONTNEED` |
//!
//! What the kernel's page allocator costs a program that asks it directly, with address space,
//! page tables and zeroes (`mmap` pays for these in the touched loops only). The first two ask for
//! a mapping for each block; the third takes addresses from a list behind a lock.

use super::depot::Depot;
use crate::error::BenchError;
use crate::region::Region;
use crate::subject::{ORDER_MAX, Sizing, Subject, Waiting, block_bytes};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::null_mut;

/// A mapping for each block; `POPULATED` in memory at once.
pub struct Mmap<const POPULATED: bool>;

// SAFETY: (1) and (2) a mapping of its own for each block.
unsafe impl<const POPULATED: bool> Subject for Mmap<POPULATED> {
    fn name(&self) -> &str {
        if POPULATED { "mmap-populate" } else { "mmap" }
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let populate = if POPULATED { MapFlags::POPULATE } else { MapFlags::empty() };
        let (bytes, flags) = (block_bytes(order), MapFlags::PRIVATE | populate);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let map =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        map.map_or(null_mut(), <*mut _>::cast)
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: (1) the caller passes a block of `alloc` with its order, so this is the whole
        // mapping. (2) it is no longer in use. It cannot fail for such a mapping.
        let _ = unsafe { munmap(block.cast(), block_bytes(order)) };
    }

    /// It has no lists besides its memory.
    fn waiting(&self) -> Option<Waiting> {
        Some(Waiting::default())
    }
}

/// Memory that comes into a mapping and leaves it.
pub struct PopulateWrite {
    addresses: Vec<Depot>,
    _blocks: Vec<Region>,
}

impl PopulateWrite {
    /// Addresses for `sizing`.
    ///
    /// # Errors
    /// If they cannot be mapped, or the kernel has no such call (before 5.14).
    pub fn new(sizing: Sizing) -> Result<PopulateWrite, BenchError> {
        let (mut addresses, mut blocks) = (Vec::new(), Vec::new());
        for order in 0..=ORDER_MAX {
            let held = Sizing::held_per_thread(order) * sizing.threads;
            let region = Region::new(held * block_bytes(order))?;
            let address = |block| region.start() as usize + block * block_bytes(order);
            addresses.push(Depot::new((0..held).rev().map(address).collect()));
            blocks.push(region);
        }
        let what = "madvise(MADV_POPULATE_WRITE)";
        let filled = populate(blocks[0].start(), 0);
        filled.map_err(|errno| BenchError::Os { what, source: errno.into() })?;
        Ok(PopulateWrite { addresses, _blocks: blocks })
    }
}

#[inline]
fn populate(block: *mut u8, order: u32) -> rustix::io::Result<()> {
    // SAFETY: a block of a private mapping that nobody else uses; contents are kept.
    unsafe { madvise(block.cast(), block_bytes(order), Advice::LinuxPopulateWrite) }
}

// SAFETY: (1) blocks of the regions, which live as long as the subject; one whose memory left it
// has zeroes. (2) a block is in its list once.
unsafe impl Subject for PopulateWrite {
    fn name(&self) -> &str {
        "populate-write"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let addresses = &self.addresses[order as usize];
        let mut address = [0];
        if addresses.take(&mut address) == 0 {
            return null_mut();
        }
        let block = address[0] as *mut u8;
        if populate(block, order).is_ok() {
            return block;
        }
        addresses.put(&address);
        null_mut()
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: the caller passes a whole block of a private mapping, no longer in use. It cannot
        // fail for such a one.
        let _ = unsafe { madvise(block.cast(), block_bytes(order), Advice::LinuxDontNeed) };
        self.addresses[order as usize].put(&[block as usize]);
    }

    /// Only addresses wait, without memory.
    fn waiting(&self) -> Option<Waiting> {
        Some(Waiting::default())
    }
}
