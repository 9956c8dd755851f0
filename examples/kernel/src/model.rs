//! Who has what: a bit for each page. A page that is handed out twice, or freed twice, or lies
//! askew, stops the kernel.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use crate::kernel;

/// Pages that the model knows: 72 GiB, which is 64 and a PC's hole.
const PAGES: usize = 18 << 20;
static TAKEN: [AtomicU64; PAGES / 64] = [const { AtomicU64::new(0) }; PAGES / 64];
pub static CALLS: AtomicU64 = AtomicU64::new(0);

fn mark(pfn: Pfn, order: Order, take: bool) {
    assert!(pfn.0.is_multiple_of(order.pages()), "{pfn:?} is not a multiple of {order:?}");
    let mut page = pfn.0;
    let end = pfn.0 + order.pages();
    while page < end {
        let (shift, many) = (page % 64, (end - page).min(64));
        let bits = if many == 64 { u64::MAX } else { ((1 << many) - 1) << shift };
        let word = TAKEN.get(page as usize / 64).expect("a page below 72 GiB");
        let (before, expected) = match take {
            true => (word.fetch_or(bits, SeqCst), 0),
            false => (word.fetch_and(!bits, SeqCst), bits),
        };
        assert!(before & bits == expected, "{pfn:?} {order:?} at {page:#x}, taken {take}");
        page += many;
    }
}

/// A block, noted, and written to: the memory is there and nobody else's.
pub fn get(order: Order, gfp: Gfp) -> Option<Pfn> {
    let pfn = kernel::alloc(order, gfp).ok()?;
    CALLS.fetch_add(1, SeqCst);
    mark(pfn, order, true);
    write(pfn, pfn.0);
    Some(pfn)
}

/// Gives a block back.
pub fn put(pfn: Pfn, order: Order) {
    mark(pfn, order, false);
    CALLS.fetch_add(1, SeqCst);
    if let Err(error) = kernel::free(pfn, order) {
        panic!("a block that was handed out is refused: {error}");
    }
}

/// Writes the first word of a page that the caller has.
pub fn write(pfn: Pfn, value: u64) {
    // SAFETY: (1) the page is memory, mapped at its own address; (2) the caller has it.
    unsafe { ((pfn.0 << 12) as *mut u64).write_volatile(value) }
}

/// Reads the first word of a page that the caller has.
pub fn read(pfn: Pfn) -> u64 {
    // SAFETY: (1) as above.
    unsafe { ((pfn.0 << 12) as *const u64).read_volatile() }
}
