//! Blocks that change CPUs: what hours of a program's life do to an allocator's lists, in a moment.
//!
//! Each thread takes blocks; all of them are dealt at random; each thread frees what it was dealt.
//! Neighbouring pages are then on different CPUs, wherever an allocator leaves a page with the CPU
//! that freed it.

use crate::crew::Gate;
use crate::subject::{Subject, call_alloc, call_free};
use crate::words::split_mix;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Base pages that each thread takes.
const PAGES: usize = 1024;

/// Where the threads of one burst exchange their blocks.
pub(crate) struct Shuffle {
    hands: Vec<Mutex<Vec<AtomicPtr<u8>>>>,
    dealt: Gate,
    freed: Gate,
}

impl Shuffle {
    /// For as many threads.
    pub(crate) fn new(threads: usize) -> Shuffle {
        let hands = (0..threads).map(|_| Mutex::default()).collect();
        Shuffle { hands, dealt: Gate::new(threads), freed: Gate::new(threads) }
    }

    /// The part of thread `index`, which keeps LOOP-1; returns once all have freed. A block that is
    /// refused is left out.
    pub(crate) fn run<S: Subject>(&self, subject: &S, order: u32, index: usize, seed: u64) {
        let mut random = seed ^ index as u64;
        for _ in 0..PAGES >> order {
            // SAFETY: (1) and (2) LOOP-1.
            let block = unsafe { call_alloc(subject, order) };
            if !block.is_null() {
                let to = split_mix(&mut random) as usize % self.hands.len();
                self.hand(to).push(AtomicPtr::new(block));
            }
        }
        self.dealt.wait();
        let mut mine = std::mem::take(&mut *self.hand(index));
        for at in (1..mine.len()).rev() {
            mine.swap(at, split_mix(&mut random) as usize % (at + 1));
        }
        for block in mine {
            // SAFETY: (1) allocated above with this order, by some thread. (2) each block is in one
            // hand, and a hand is taken once, behind the gate.
            unsafe { call_free(subject, block.load(Relaxed), order) };
        }
        self.freed.wait();
    }

    fn hand(&self, index: usize) -> std::sync::MutexGuard<'_, Vec<AtomicPtr<u8>>> {
        self.hands[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Hands out the numbers 4096, 8192, ... and notes who frees what.
    #[derive(Default)]
    struct Noting {
        freed: Mutex<Vec<(std::thread::ThreadId, usize)>>,
        next: Mutex<usize>,
    }

    // SAFETY: neither: nothing here touches what it gets.
    unsafe impl Subject for Noting {
        fn name(&self) -> &str {
            "noting"
        }
        unsafe fn alloc(&self, _order: u32) -> *mut u8 {
            let mut next = self.next.lock().unwrap();
            *next += 4096;
            std::ptr::without_provenance_mut(*next)
        }
        unsafe fn free(&self, block: *mut u8, _order: u32) {
            self.freed.lock().unwrap().push((std::thread::current().id(), block.addr()));
        }
    }

    #[test]
    fn each_block_is_freed_once_and_each_thread_frees_about_a_half() {
        let (subject, shuffle) = (Noting::default(), Shuffle::new(2));
        std::thread::scope(|scope| {
            for index in 0..2 {
                let (subject, shuffle) = (&subject, &shuffle);
                scope.spawn(move || shuffle.run(subject, 0, index, 7));
            }
        });
        let freed = subject.freed.into_inner().unwrap();
        let blocks: BTreeSet<usize> = freed.iter().map(|(_, block)| *block).collect();
        assert_eq!((freed.len(), blocks.len()), (2 * PAGES, 2 * PAGES));
        let first = freed[0].0;
        let of_first = freed.iter().filter(|(thread, _)| *thread == first).count();
        assert!((PAGES / 2..3 * PAGES / 2).contains(&of_first), "{of_first}");
    }
}
