//! Whether a CPU gives pages back that another one handed out (`alloc/pcp_ops/row.rs` does it), or
//! keeps them.
//!
//! # Invariants
//! - **ROW-1** a magazine on a row's shelf in some pcp is an array of the depot that this pcp uses,
//!   so rows go to CPUs of the sender's group only. Whoever empties it gives the array back there.
//! - **ROW-2** no page in a row is handed out: it leaves to a shelf, or to the buddy.

use super::ready::CLOSED;
use super::state::{Pcp, ROWS_IDLE};
use super::word::PcpWord;
use crate::frame::PageWord;
use crate::sync::Ordering::Relaxed;

/// The row's word before a page says whose pages it takes: sequences ask the core.
pub(crate) const UNBOUND: u64 = PageWord::NONE.0;
/// The row's word where a page came from a CPU that takes no rows: sequences do not ask. No page
/// has this word.
pub(crate) const NOBODY: u64 = u64::MAX;

/// Pages that a CPU hands out meanwhile which does not only free.
const ROW_POPS: u64 = 64;

impl Pcp {
    /// Says to sequences whether pages of other CPUs go to the row; `word`: the pcp's.
    #[inline]
    pub(super) fn set_near(&self, word: PcpWord) {
        if !self.has_row {
            return;
        }
        let pops = self.lists[0].pops_with((word.active() == 0).then_some(word));
        if pops.wrapping_sub(self.row_pops.load(Relaxed)) >= ROW_POPS {
            self.row_pops.store(pops, Relaxed);
            self.rows_idle.store(0, Relaxed);
        }
        // Relaxed: advice; pages of other CPUs may be on either list.
        self.near_frames.store(if self.fills_row() { 0 } else { self.frames }, Relaxed);
    }

    /// Base pages in its row. Exact only while nothing runs on the CPU.
    pub(crate) fn row_pages(&self) -> u32 {
        // The row is the last list, of order 0.
        let row = usize::from(self.lists_used).checked_sub(1).filter(|_| self.has_row);
        row.map_or(0, |row| self.listed(row))
    }

    /// Whether pages that other CPUs handed out go to the row. A CPU that only frees keeps them: it
    /// hands out none of them, so their lines have one writer less as they are, and whole magazines
    /// of them go to the depot.
    #[inline]
    pub(crate) fn fills_row(&self) -> bool {
        self.has_row && self.rows_idle.load(Relaxed) < ROWS_IDLE
    }

    /// In a refresh: the row takes the pages of any CPU again, or none if this one only frees now.
    pub(crate) fn unbind_row(&self) {
        // Relaxed: advice.
        self.row_word.store(UNBOUND, Relaxed);
        // Who holds the gate says the rest as it opens it.
        if self.gate.load(Relaxed) != CLOSED {
            self.set_near(PcpWord(self.word.load(Relaxed)));
        }
    }

    /// A row leaves.
    pub(crate) fn row_left(&self) {
        let idle = self.rows_idle.load(Relaxed) + 1;
        self.rows_idle.store(idle.min(ROWS_IDLE), Relaxed);
    }
}
