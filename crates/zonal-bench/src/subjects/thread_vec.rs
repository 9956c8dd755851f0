//! `thread-vec`: a thread-local `Vec` of free blocks per order over a locked depot.
//!
//! What an application writes first, and about as fast as anything can be while blocks are freed
//! where they were allocated: no lock, no atomic, no rseq. Not solved: blocks freed on another
//! thread pile up there until a batch is returned, and an idle thread keeps its blocks.

use super::depot::Depot;
use crate::error::BenchError;
use crate::region::Region;
use crate::subject::{Sizing, Subject, Waiting, block_bytes};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

const ORDERS: usize = 10;

/// Blocks of `order` that a thread keeps at most: two rounds of `singles4096`.
const fn keep(order: usize) -> usize {
    match order {
        0 => 8192,
        1..=4 => 512,
        _ => 8,
    }
}

/// Blocks of an order that a thread of a crowd holds and keeps at most. Such loops are of small
/// orders.
const fn of_crowd(order: usize) -> usize {
    if order > 4 { 0 } else { 512 + keep(order) + batch(order) }
}

/// Blocks that move to or from the depot at once.
const fn batch(order: usize) -> usize {
    match order {
        0 => 512,
        1..=4 => 256,
        _ => 4,
    }
}

/// A thread's lists, and the instance they belong to.
struct Own {
    instance: u64,
    lists: [Vec<usize>; ORDERS],
}

thread_local! {
    static OWN: UnsafeCell<Own> = const {
        UnsafeCell::new(Own { instance: 0, lists: [const { Vec::new() }; ORDERS] })
    };
}

/// Runs `work` on this thread's lists. Not a `RefCell`: its borrow flag is written four times per
/// pair and makes this subject, the reference for the fastest possible, three times slower.
#[inline(always)]
fn with_own<R>(work: impl FnOnce(&mut Own) -> R) -> R {
    // SAFETY: (1) no other thread sees it. (2) not reentrant: the closures in this file call only
    // Vec and the depot, which do not come back here; this function is private.
    OWN.with(|own| work(unsafe { &mut *own.get() }))
}

/// Thread-local lists of blocks; see the module's essay.
pub struct ThreadVec {
    instance: u64,
    depots: Vec<Depot>,
    _blocks: Vec<Region>,
}

impl ThreadVec {
    /// Blocks for `sizing`.
    ///
    /// # Errors
    /// If the memory cannot be mapped.
    pub fn new(sizing: Sizing) -> Result<ThreadVec, BenchError> {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let (mut depots, mut blocks) = (Vec::new(), Vec::new());
        for order in 0..ORDERS {
            let held = Sizing::held_per_thread(order as u32);
            let count = (held + keep(order) + batch(order)) * sizing.threads
                + of_crowd(order) * sizing.crowd();
            let bytes = block_bytes(order as u32);
            let region = Region::new(count.saturating_mul(bytes))?;
            let start = region.start() as usize;
            depots.push(Depot::new((0..count).rev().map(|i| start + i * bytes).collect()));
            blocks.push(region);
        }
        // Relaxed: only uniqueness matters.
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(ThreadVec { instance, depots, _blocks: blocks })
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, list: &mut Vec<usize>, order: usize) -> *mut u8 {
        list.reserve(keep(order) + 1);
        list.resize(batch(order), 0);
        let got = self.depots[order].take(list);
        list.truncate(got);
        list.pop().map_or(std::ptr::null_mut(), |block| block as *mut u8)
    }

    #[cold]
    #[inline(never)]
    fn drain(&self, list: &mut Vec<usize>, order: usize) {
        let rest = list.len() - batch(order);
        self.depots[order].put(&list[rest..]);
        list.truncate(rest);
    }
}

// SAFETY: (1) blocks of the regions, which live as long as the subject: `thread_init` has emptied
// the lists of any other. (2) a block is in one list or in the depot, once.
unsafe impl Subject for ThreadVec {
    fn name(&self) -> &str {
        "thread-vec"
    }

    #[inline]
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        with_own(|own| {
            let list = &mut own.lists[order as usize];
            match list.pop() {
                Some(block) => block as *mut u8,
                None => self.refill(list, order as usize),
            }
        })
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, order: u32) {
        with_own(|own| {
            let list = &mut own.lists[order as usize];
            list.push(block as usize);
            if list.len() > keep(order as usize) {
                self.drain(list, order as usize);
            }
        });
    }

    fn waiting(&self) -> Option<Waiting> {
        Some(Depot::waiting(&self.depots))
    }

    /// Empties lists that another instance filled: its blocks are not ours to hand out.
    fn thread_init(&self) {
        with_own(|own| {
            if own.instance != self.instance {
                own.lists.iter_mut().for_each(Vec::clear);
                own.instance = self.instance;
            }
        });
    }
}
