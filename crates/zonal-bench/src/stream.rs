//! The stream: one thread allocates, another frees, a bounded ring of page pointers between them.
//!
//! The ring must not dominate the measurement, so it follows common practice: single producer and
//! single consumer, each side keeps a private copy of the other's index and publishes its own only
//! every [`PUBLISH`] pages, the two indices lie on lines of their own (128 bytes: the adjacent-line
//! prefetcher pairs lines), and the consumer empties the ring, up to a limit, before it frees any
//! page: the producer's lines of slots then arrive together, and not one for every eight frees.
//!
//! # Invariants
//! - **RING-1** `head <= tail <= head + SLOTS`, both only ever grow (slots are taken modulo SLOTS)
//! - **RING-2** a slot below the published tail is written before the tail is (Release, Acquire),
//!   and is not written again before the published head has passed it.
//! - **RING-3** a side publishes before it waits, so the two cannot wait for each other.

use crate::subject::{Probe, Subject};
use crate::words::{spread_word, touch};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Pages between the two CPUs at most. 512 pointers are one page, which stays in both L1 caches.
const SLOTS: usize = 512;
/// Pages between two writes of a shared index: one transfer of its line per 32 pages.
const PUBLISH: usize = 32;

const _: () = assert!(SLOTS.is_power_of_two(), "slots are indexed by a mask");
const _: () = assert!(PUBLISH * 4 <= SLOTS, "both sides need room to run ahead");

#[repr(align(128))]
struct OwnLine(AtomicUsize);

/// A bounded ring of page pointers for one producer and one consumer.
pub(crate) struct Ring {
    tail: OwnLine,
    head: OwnLine,
    slots: Box<[AtomicPtr<u8>]>,
}

impl Ring {
    pub(crate) fn new() -> Ring {
        let slots = (0..SLOTS).map(|_| AtomicPtr::default()).collect();
        Ring { tail: OwnLine(AtomicUsize::new(0)), head: OwnLine(AtomicUsize::new(0)), slots }
    }
}

/// Spins until `ready` holds; yields now and then in case the other side has no CPU.
#[inline(always)]
fn wait_until(mut ready: impl FnMut() -> bool) {
    let mut spins = 0u32;
    while !ready() {
        spins += 1;
        if spins.is_multiple_of(4096) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Allocates `pages` blocks and sends them; returns how many were refused. Null is sent in the
/// place of a refused block, so that both sides count the same.
pub(crate) fn produce<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    order: u32,
    pages: u64,
    ring: &Ring,
) -> u64 {
    let (mut refused, mut head) = (0, 0);
    for tail in 0..pages as usize {
        if tail - head == SLOTS {
            // Release: pairs with the consumer's Acquire of the tail (RING-2, RING-3).
            ring.tail.0.store(tail, Ordering::Release);
            wait_until(|| {
                // Acquire: pairs with the consumer's Release of the head (RING-2).
                head = ring.head.0.load(Ordering::Acquire);
                tail - head < SLOTS
            });
        }
        // SAFETY: (1) and (2) LOOP-1.
        let block = unsafe { probe.alloc(subject, order) };
        if block.is_null() {
            refused += 1;
        } else if TOUCH {
            touch(block, order);
        }
        // Relaxed: published by the Release of the tail.
        ring.slots[tail % SLOTS].store(block, Ordering::Relaxed);
        if (tail + 1).is_multiple_of(PUBLISH) {
            // Release: pairs with the consumer's Acquire of the tail (RING-2).
            ring.tail.0.store(tail + 1, Ordering::Release);
        }
    }
    // Release: pairs with the consumer's Acquire of the tail (RING-2).
    ring.tail.0.store(pages as usize, Ordering::Release);
    refused
}

/// Receives `pages` blocks and frees them.
pub(crate) fn consume<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    order: u32,
    pages: u64,
    ring: &Ring,
) -> u64 {
    let (mut head, mut tail, mut sum) = (0, 0, 0u64);
    let mut received = [std::ptr::null_mut(); PUBLISH];
    while head < pages as usize {
        if head == tail {
            wait_until(|| {
                // Acquire: pairs with the producer's Release of the tail (RING-2).
                tail = ring.tail.0.load(Ordering::Acquire);
                tail > head
            });
        }
        let received = &mut received[..(tail - head).min(PUBLISH)];
        for (i, block) in received.iter_mut().enumerate() {
            // Relaxed: ordered by the Acquire of the tail.
            *block = ring.slots[(head + i) % SLOTS].load(Ordering::Relaxed);
        }
        head += received.len();
        // Release: pairs with the producer's Acquire of the head (RING-2, RING-3). Before the
        // frees, so that the producer does not wait for them.
        ring.head.0.store(head, Ordering::Release);
        for &block in received.iter().filter(|block| !block.is_null()) {
            if TOUCH {
                sum = sum.wrapping_add(read_touched(block));
            }
            // SAFETY: (1) the producer allocated it with this order. (2) a slot's content is
            // received once (RING-1, RING-2) and freed only here.
            unsafe { probe.free(subject, block, order) };
        }
    }
    std::hint::black_box(sum);
    0
}

/// Reads the word that the producer wrote in the block's first page.
#[inline(always)]
fn read_touched(block: *mut u8) -> u64 {
    // SAFETY: the producer wrote this very word and handed the block over (RING-2); no other thread
    // has it.
    unsafe { spread_word(block, 0).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Direct;
    use std::sync::atomic::AtomicU64;

    /// Hands out the numbers 4096, 8192, ... and adds up what comes back.
    #[derive(Default)]
    struct Counting {
        next: AtomicU64,
        sum: AtomicU64,
    }

    // SAFETY: neither: the loops of these tests do not touch what they get.
    unsafe impl Subject for Counting {
        fn name(&self) -> &str {
            "counting"
        }
        unsafe fn alloc(&self, _order: u32) -> *mut u8 {
            let n = self.next.fetch_add(1, Ordering::Relaxed) + 1;
            std::ptr::without_provenance_mut((n * 4096) as usize)
        }
        unsafe fn free(&self, block: *mut u8, _order: u32) {
            self.sum.fetch_add(block as u64, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_page_sent_is_received_once() {
        for pages in [1u64, 31, 32, 33, 512, 513, 100_000] {
            let (subject, ring) = (Counting::default(), Ring::new());
            std::thread::scope(|scope| {
                let (s, r) = (&subject, &ring);
                scope.spawn(move || produce::<_, _, false>(s, &mut Direct, 0, pages, r));
                scope.spawn(move || consume::<_, _, false>(s, &mut Direct, 0, pages, r));
            });
            assert_eq!(subject.sum.into_inner(), 4096 * pages * (pages + 1) / 2, "{pages} pages");
        }
    }
}
