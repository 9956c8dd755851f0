//! `bitmap-allocator`: the crate's tree of 16-bit maps behind a std Mutex.

use crate::error::BenchError;
use crate::region::Region;
use crate::subject::{PAGE, Sizing, Subject, Waiting};
use bitmap_allocator::{BitAlloc, BitAlloc1M, BitAlloc16M};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// A million pages are enough below about 60 CPUs, and a deeper tree is slower: take the smaller.
enum Map {
    Pages1M(Box<BitAlloc1M>),
    Pages16M(Box<BitAlloc16M>),
}

impl Map {
    fn with(pages: usize) -> Map {
        if pages <= BitAlloc1M::CAP {
            // SAFETY: as `empty` asks for: the crate's maps are arrays of u16.
            Map::Pages1M(unsafe { empty(pages) })
        } else {
            // SAFETY: the same.
            Map::Pages16M(unsafe { empty(pages.min(BitAlloc16M::CAP)) })
        }
    }
}

/// A map with the first `pages` free, made in place: `Box::new(DEFAULT)` would build megabytes on
/// the stack first.
///
/// # Safety
/// All bytes zero is a valid `T`, the one with nothing free.
unsafe fn empty<T: BitAlloc>(pages: usize) -> Box<T> {
    // SAFETY: the caller's guarantees.
    let mut map: Box<T> = unsafe { Box::new_zeroed().assume_init() };
    map.insert(0..pages);
    map
}

fn take(map: &mut impl BitAlloc, order: u32) -> Option<usize> {
    if order == 0 { map.alloc() } else { map.alloc_contiguous(None, 1 << order, order as usize) }
}

fn give(map: &mut impl BitAlloc, page: usize, order: u32) {
    if order == 0 {
        map.dealloc(page);
    } else {
        map.dealloc_contiguous(page, 1 << order);
    }
}

/// `bitmap_allocator` behind a lock.
pub struct BitmapAllocator {
    map: Mutex<Map>,
    memory: Region,
}

impl BitmapAllocator {
    /// A map of the pages that `sizing` needs.
    ///
    /// # Errors
    /// If the memory cannot be mapped.
    pub fn new(sizing: Sizing) -> Result<BitmapAllocator, BenchError> {
        let memory = Region::new(sizing.pages() * PAGE)?;
        let map = Map::with(memory.bytes() / PAGE);
        Ok(BitmapAllocator { map: Mutex::new(map), memory })
    }
}

// SAFETY: (1) pages of the region, which lives as long as the subject; an alloc of 2^order pages
// in a row. (2) the map has one bit for each page.
unsafe impl Subject for BitmapAllocator {
    fn name(&self) -> &str {
        "bitmap-allocator"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match &mut *map {
            Map::Pages1M(map) => take(&mut **map, order),
            Map::Pages16M(map) => take(&mut **map, order),
        };
        page.map_or(null_mut(), |page| self.memory.page(page))
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        let Some(page) = self.memory.index_of(block) else { return };
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *map {
            Map::Pages1M(map) => give(&mut **map, page, order),
            Map::Pages16M(map) => give(&mut **map, page, order),
        }
    }

    /// It has no lists besides its memory.
    fn waiting(&self) -> Option<Waiting> {
        Some(Waiting::default())
    }
}
