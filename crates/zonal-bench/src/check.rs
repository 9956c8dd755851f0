//! The checked pass: the same loops with every block verified and the work hashed (FAIR-7).
//!
//! # Invariants
//! - **CHECK-1** the intervals in `Ledger::held` do not overlap: a block that overlaps another held
//!   block was handed out twice. A block leaves the ledger *before* it is freed, or another thread
//!   could be given it while it is still listed.
//! - **CHECK-2** the hash is a function of the calls and of whether they were answered, never of
//!   addresses or timing, so it is equal for all correct subjects, on every run and machine.

use crate::subject::{PAGE, Probe, Subject, block_bytes, call_alloc, call_free};
use crate::words::{mix_hash, spread_word};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The blocks held by all threads of a checked pass: address to (end, tag).
#[derive(Default)]
pub(crate) struct Ledger {
    held: Mutex<BTreeMap<usize, (usize, u64)>>,
    fault: Mutex<Option<String>>,
}

impl Ledger {
    /// The first fault, if any; blocks still held are a fault.
    pub(crate) fn verdict(&self) -> Option<String> {
        let left = self.lock_held().len();
        let leak = (left > 0).then(|| format!("{left} blocks were never freed"));
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take().or(leak)
    }

    fn lock_held(&self) -> MutexGuard<'_, BTreeMap<usize, (usize, u64)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blame(&self, what: String) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    fn insert(&self, block: usize, order: u32, tag: u64) -> bool {
        let end = block.saturating_add(block_bytes(order));
        if !block.is_multiple_of(PAGE) {
            self.blame(format!("block {block:#x} of order {order} is not aligned to a page"));
            return false;
        }
        let mut held = self.lock_held();
        let below = held.range(..end).next_back().map(|(&start, &(end, _))| (start, end));
        if let Some((other, other_end)) = below.filter(|&(_, other_end)| other_end > block) {
            drop(held);
            let other = format!("{other:#x}..{other_end:#x}");
            self.blame(format!("block {block:#x}..{end:#x} overlaps {other}, which is held"));
            return false;
        }
        held.insert(block, (end, tag));
        true
    }
}

/// The probe of the checked pass.
pub(crate) struct Checked {
    ledger: Arc<Ledger>,
    hash: u64,
    calls: u64,
}

impl Checked {
    /// A probe for worker `index`.
    pub(crate) fn new(ledger: Arc<Ledger>, index: usize) -> Checked {
        Checked { ledger, hash: index as u64, calls: 0 }
    }

    /// The hash of this worker's calls.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    fn note(&mut self, kind: u64, order: u32, answered: bool) {
        self.calls += 1;
        let word = kind << 32 | u64::from(order) << 8 | u64::from(answered);
        self.hash = mix_hash(self.hash, word);
    }

    /// Enters a new block and marks its first and last page.
    fn take(&mut self, block: *mut u8, order: u32) {
        self.note(1, order, !block.is_null());
        if block.is_null() {
            return;
        }
        let tag = mix_hash(block as u64, self.calls);
        if self.ledger.insert(block as usize, order, tag) {
            for word in marked_words(block, order) {
                // SAFETY: in a block that is ours and overlaps no other held one (CHECK-1).
                unsafe { word.write_volatile(tag) };
            }
        }
    }

    /// Verifies the marks and strikes the block off; false if it must not be freed.
    fn give(&mut self, block: *mut u8, order: u32) -> bool {
        self.note(2, order, true);
        let Some((_, tag)) = self.ledger.lock_held().remove(&(block as usize)) else {
            self.ledger.blame(format!("block {:#x} is freed but was not held", block as usize));
            return false;
        };
        for word in marked_words(block, order) {
            // The loop's own touching may have written the page's number there since.
            // SAFETY: the block was in the ledger until just now, so it is still ours.
            let found = unsafe { word.read_volatile() };
            let touched = found < 1 << order;
            if found != tag && !touched {
                let block = block as usize;
                self.ledger.blame(format!("{word:p} of block {block:#x}, order {order}, changed"));
            }
        }
        true
    }
}

/// The marked words of a block: those that touching writes, in its first and last page.
fn marked_words(block: *mut u8, order: u32) -> [*mut u64; 2] {
    [spread_word(block, 0), spread_word(block, (1 << order) - 1)]
}

impl<S: Subject> Probe<S> for Checked {
    unsafe fn alloc(&mut self, subject: &S, order: u32) -> *mut u8 {
        // SAFETY: the caller keeps `Subject::alloc`'s contract; PROBE-1.
        let block = unsafe { call_alloc(subject, order) };
        self.take(block, order);
        block
    }

    unsafe fn free(&mut self, subject: &S, block: *mut u8, order: u32) {
        if self.give(block, order) {
            // SAFETY: the caller keeps `Subject::free`'s contract, and the ledger agreed.
            unsafe { call_free(subject, block, order) }
        }
    }

    unsafe fn alloc_bulk(&mut self, subject: &S, order: u32, blocks: &mut [*mut u8]) -> usize {
        // SAFETY: the caller keeps `Subject::alloc_bulk`'s contract; PROBE-1.
        let got = unsafe { subject.alloc_bulk(order, blocks) };
        blocks[..got].iter().for_each(|&block| self.take(block, order));
        got
    }

    unsafe fn free_bulk(&mut self, subject: &S, blocks: &[*mut u8], order: u32) {
        let mut fine = true;
        for &block in blocks {
            fine &= self.give(block, order);
        }
        if fine {
            // SAFETY: the caller keeps `Subject::free_bulk`'s contract, and the ledger agreed.
            unsafe { subject.free_bulk(blocks, order) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_blocks_are_found() {
        let ledger = Ledger::default();
        assert!(ledger.insert(0x10000, 1, 1));
        assert!(ledger.insert(0x12000, 0, 2));
        assert!(!ledger.insert(0x11000, 0, 3));
        let fault = ledger.verdict().unwrap();
        assert!(fault.contains("0x11000..0x12000 overlaps 0x10000..0x12000"), "{fault}");
    }

    #[test]
    fn a_block_below_a_held_one_that_reaches_into_it_is_found() {
        let ledger = Ledger::default();
        assert!(ledger.insert(0x12000, 0, 1));
        assert!(!ledger.insert(0x10000, 2, 2));
        assert!(ledger.insert(0x10000, 1, 3));
    }

    #[test]
    fn what_is_never_freed_is_reported() {
        let ledger = Ledger::default();
        ledger.insert(0x1000, 0, 1);
        assert_eq!(ledger.verdict().unwrap(), "1 blocks were never freed");
    }
}
