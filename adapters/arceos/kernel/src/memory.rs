//! What of the machine's memory nobody uses.

use core::ops::Range;

use axplat::mem::{self, PhysAddr, RawRange, VirtAddr};

/// Free ranges that there is room for.
const MOST: usize = 16;
/// What the platform maps when it boots.
const MAPPED: usize = 1 << 30;

/// Free ranges of memory.
#[derive(Debug, Default)]
pub struct Free([Range<usize>; MOST], usize);

impl Free {
    /// Each, by addresses as the kernel sees them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> + Clone {
        self.0.iter().take(self.1)
    }

    fn push(&mut self, (start, bytes): RawRange) {
        let end = (start + bytes).min(MAPPED);
        if start < end {
            let at = mem::phys_to_virt(PhysAddr::from_usize(start)).as_usize();
            *self.0.get_mut(self.1).expect("room for a range") = at..at + (end - start);
            self.1 += 1;
        }
    }
}

unsafe extern "C" {
    static _skernel: u8;
    static _ebss: u8;
}

/// All memory but the image and what the platform reserves.
pub fn free() -> Free {
    let at = |symbol: *const u8| mem::virt_to_phys(VirtAddr::from_usize(symbol as usize));
    let start = at(&raw const _skernel).as_usize();
    let image = (start, at(&raw const _ebss).as_usize() - start);
    // The platform reserves the first MiB, below the image.
    let mut used = [(0, 0); MOST];
    let reserved = mem::reserved_phys_ram_ranges();
    used[..reserved.len()].copy_from_slice(reserved);
    used[reserved.len()] = image;
    let used = &used[..=reserved.len()];
    let mut free = Free::default();
    let done = mem::ranges_difference(mem::phys_ram_ranges(), used, |range| free.push(range));
    done.expect("what is used does not overlap");
    free
}
