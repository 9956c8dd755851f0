//! Blocks of real memory in a table by slot: the only unsafe code of this crate.
//!
//! ```text
//!  thread 0   alloc 7 ─► stamp each page ─► entries[7] = address and order
//!  thread 1                                 entries[7] ─► look for the stamps ─► free
//! ```
//!
//! # Invariants
//! - **REAL-1** an entry goes from empty to a block or to "refused" by the thread that allocates
//!   for the slot, after it stamped the block (Release). It goes back to empty by an exchange
//!   (Acquire), so one thread alone gets the block out of it. So a block has one user at a time.
//!
//! # Ownership
//! The user of a block writes one word, from slot and page, to each of its pages, and checks it
//! before the free. A missing word means that the page had a second user.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use zonal::{Gfp, Order, PAGE_SIZE, Pool};

use super::latency::Stopwatch;

/// Memory that threads allocate blocks of.
///
/// # Safety
/// 1. A block that [`alloc`](Self::alloc) returns is `order` pages of memory that can be read and
///    written, begins at a page, and has no other user until it is freed.
pub unsafe trait Memory: Sync {
    /// A block of `order`, or the refusal.
    ///
    /// # Errors
    /// The refusal, in words.
    fn alloc(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, String>;

    /// Takes a block back.
    ///
    /// # Safety
    /// 1. The block came from [`alloc`](Self::alloc) with this order, and is no longer in use.
    ///
    /// # Errors
    /// The refusal, in words.
    unsafe fn free(&self, start: NonNull<u8>, order: Order) -> Result<(), String>;
}

// SAFETY: (1) that is what a pool is for: blocks are aligned to their size, mapped, and given to
// one owner at a time.
unsafe impl Memory for Pool {
    #[inline]
    fn alloc(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, String> {
        self.alloc_pages(order, gfp).map_err(|error| error.to_string())
    }

    #[inline]
    unsafe fn free(&self, start: NonNull<u8>, order: Order) -> Result<(), String> {
        // SAFETY: (1) the block is this pool's, of this order and unused: this function's own
        // contract (1).
        unsafe { self.free_pages(start, order) }.map_err(|error| error.to_string())
    }
}

/// Address of the entry of a slot whose allocation was refused. Empty slot.
const REFUSED: usize = 1;
/// Bits of an entry that hold the order of its block, plus [`ORDER_BIAS`].
const ORDER_BITS: usize = PAGE_SIZE - 1;
/// No block's entry looks like [`REFUSED`].
const ORDER_BIAS: usize = 2;

const _: () = assert!(Order::MAX.get() as usize + ORDER_BIAS <= ORDER_BITS);

/// The blocks of all slots.
pub struct Blocks<'m, M> {
    memory: &'m M,
    entries: Vec<AtomicPtr<u8>>,
}

impl<'m, M: Memory> Blocks<'m, M> {
    /// A table of `slots` empty entries over `memory`.
    pub fn new(memory: &'m M, slots: usize) -> Blocks<'m, M> {
        let entries = (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Blocks { memory, entries }
    }

    /// Whether the slot was not allocated yet, or is freed again. Advice, while threads run.
    #[inline]
    pub fn is_empty(&self, slot: u32) -> bool {
        // Relaxed: who takes the block out synchronises in `free`.
        self.entries[slot as usize].load(Ordering::Relaxed).is_null()
    }

    /// Allocates the block of a slot and stamps its pages.
    ///
    /// # Errors
    /// The refusal, which the entry remembers.
    pub fn alloc(
        &self,
        slot: u32,
        order: Order,
        gfp: Gfp,
        watch: &mut Stopwatch,
    ) -> Result<(), String> {
        let entry = &self.entries[slot as usize];
        let block = match watch.time(|| self.memory.alloc(order, gfp)) {
            Ok(block) => block,
            Err(error) => {
                // Release: pairs with the Acquire in `free`, as below (REAL-1).
                entry.store(ptr::without_provenance_mut(REFUSED), Ordering::Release);
                return Err(error);
            }
        };
        for page in 0..order.pages() as usize {
            // SAFETY: (1) the block is `order` pages long: (1) of `Memory`.
            let word = unsafe { block.add(page * PAGE_SIZE) }.cast::<u64>();
            // SAFETY: (1) the page is writable and this thread's alone: (1) of `Memory`; blocks
            // begin at a page, so the word is aligned.
            unsafe { word.write(stamp(slot, page)) };
        }
        let tag = order.get() as usize + ORDER_BIAS;
        let tagged = block.as_ptr().map_addr(|address| address | tag);
        // Release: pairs with the Acquire in `free`; the stamps are written (REAL-1).
        entry.store(tagged, Ordering::Release);
        Ok(())
    }

    /// Frees the block of a slot; calls `wrong` for each page that lost its stamp, with the word
    /// found. `None`: the slot has no block, because it was refused or never allocated.
    pub fn free(
        &self,
        slot: u32,
        watch: &mut Stopwatch,
        mut wrong: impl FnMut(usize, u64),
    ) -> Option<(Order, Result<(), String>)> {
        // Acquire: pairs with the Release in `alloc` (REAL-1).
        let tagged = self.entries[slot as usize].swap(ptr::null_mut(), Ordering::Acquire);
        let tag = tagged.addr() & ORDER_BITS;
        let order = Order::new(tag.checked_sub(ORDER_BIAS)? as u32)?;
        let block = NonNull::new(tagged.map_addr(|address| address & !ORDER_BITS))?;
        for page in 0..order.pages() as usize {
            // SAFETY: (1) the entry held a block of this memory, `order` pages long (REAL-1).
            let word = unsafe { block.add(page * PAGE_SIZE) }.cast::<u64>();
            // SAFETY: (1) as above; `alloc` wrote the word, and the exchange made the block this
            // thread's alone.
            let found = unsafe { word.read() };
            if found != stamp(slot, page) {
                wrong(page, found);
            }
        }
        // SAFETY: (1) the block came from this memory with this order, and the exchange took it out
        // of the table, so no other thread reaches it (REAL-1).
        Some((order, watch.time(|| unsafe { self.memory.free(block, order) })))
    }
}

/// The stamp of a page.
pub fn stamp(slot: u32, page: usize) -> u64 {
    // Never zero, and unlike what fresh or zeroed memory holds.
    (u64::from(slot) << 16 | page as u64) ^ 0xa5a5_0000_0000_5a5a
}
