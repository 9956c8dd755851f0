//! The hot word of a pcp: all that one allocation or free changes, in 64 bits, so
//! that a single store commits the operation together with its tuning and its statistics.
//!
//! ```text
//!  63            46 45                    22 21  20   19  16 15            0
//! +----------------+------------------------+---+----+------+---------------+
//! | pops           | length of the active   |slw|prev|active| free_count    |
//! |                | list                   |   |    |      |               |
//! +----------------+------------------------+---+----+------+---------------+
//! ```
//! - `free_count`: the decaying measure of consecutive frees (LB E.7); halved by each pop. Below
//!   tuning level 9 the `free_factor` (LB E.10), which a pop halves too and a push leaves.
//! - `active`: which list `length` belongs to; other lists keep theirs in their own record.
//! - `prev`: the last free was of order 1 to 3 (LB E.7, `PREV_FREE_HIGH_ORDER`).
//! - `slw`: no fast operation may commit: the pcp is closed, or its zone is under pressure.
//! - `length`: blocks on the active list; the one to pop is at `length - 1` of its live slots.
//! - `pops`: low bits of the number of pops of the active list. Its highest bit is the word's sign
//!   and never stored: a pop that would set it goes through the core, which folds the others.
//!
//! Every transition is a pure function here. The userspace platform repeats two of them in
//! assembly, inside a restartable sequence; tests hold both against these.
//!
//! # Why nothing else needs to be in the word
//! - `count` (LB E.1) is `sum of length << order` over the lists.
//! - `alloc_factor` is halved by each push and read only by a refill; a refill knows how many
//!   pushes there were since the last one, because `pushes = pops + length + drained - refilled`.

/// One state of a pcp. See the module for the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcpWord(pub(crate) u64);

/// Lists a pcp can have; the index 15 means "no list is active".
pub const NR_LISTS: usize = 15;
/// Value of the word's `active` while no list is.
pub const NO_LIST: usize = 15;
/// Where the word says which list is active.
pub const ACTIVE_SHIFT: u32 = 16;
/// Bits of the active list's index.
pub const ACTIVE_MASK: u32 = 15 << ACTIVE_SHIFT;
/// Bit index of `prev`.
pub const PREV_BIT: u32 = 20;
/// Set if the last free was of order 1 to 3.
pub const PREV: u64 = 1 << PREV_BIT;
/// Set while no fast operation may commit.
pub const SLOW: u64 = 1 << 21;
/// Where the length of the active list is.
pub const LEN_SHIFT: u32 = 22;
/// The length, shifted down.
pub const LEN_MASK: u32 = SLOTS_MAX as u32;
/// Where the count of pops is.
pub const POPS_SHIFT: u32 = 46;
/// Blocks a list can have: the length has 24 bits.
pub const SLOTS_MAX: usize = (1 << 24) - 1;
/// Pops the word itself can count.
pub const POPS_PERIOD: u32 = 1 << 17;
/// Added by a pop, after `free_count` was halved: one pop more, one block less.
pub const POP_DELTA: u64 = (1u64 << POPS_SHIFT).wrapping_sub(1 << LEN_SHIFT);
/// Added by a push, besides its addition to `free_count`.
pub const PUSH_DELTA: u64 = 1 << LEN_SHIFT;

impl PcpWord {
    /// A word from its fields.
    pub const fn new(active: usize, len: u32, pops: u32, free_count: u32, prev: bool) -> PcpWord {
        PcpWord(
            ((pops & (2 * POPS_PERIOD - 1)) as u64) << POPS_SHIFT
                | ((len & LEN_MASK) as u64) << LEN_SHIFT
                | (prev as u64) << PREV_BIT
                | ((active & 15) as u64) << ACTIVE_SHIFT
                | (free_count & 0xffff) as u64,
        )
    }
    /// The word that a cell holds. Every combination of bits has a meaning.
    #[inline]
    pub const fn from_bits(bits: u64) -> PcpWord {
        PcpWord(bits)
    }
    /// The word as a cell holds it.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// Which list [`len`](Self::len) belongs to.
    #[inline]
    pub const fn active(self) -> usize {
        (self.0 >> ACTIVE_SHIFT) as usize & 15
    }
    /// Blocks on the active list.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a field, not a collection")]
    pub const fn len(self) -> u32 {
        (self.0 >> LEN_SHIFT) as u32 & LEN_MASK
    }
    /// Whether no fast operation may commit.
    #[inline]
    pub const fn is_slow(self) -> bool {
        self.0 & SLOW != 0
    }
    /// The word with or without leave for fast operations.
    #[inline]
    pub const fn with_slow(self, slow: bool) -> PcpWord {
        if slow { PcpWord(self.0 | SLOW) } else { PcpWord(self.0 & !SLOW) }
    }
    /// Low bits of the active list's pops, and their carry.
    #[inline]
    pub const fn pops(self) -> u32 {
        (self.0 >> POPS_SHIFT) as u32
    }
    /// Whether `pops` is more than a stored word may say.
    #[inline]
    pub const fn must_fold(self) -> bool {
        self.pops() >= POPS_PERIOD
    }
    /// The measure of consecutive frees, in pages.
    #[inline]
    pub const fn free_count(self) -> u32 {
        self.0 as u32 & 0xffff
    }
    /// Whether the last free was of order 1 to 3.
    #[inline]
    pub const fn prev_high_order(self) -> bool {
        self.0 & PREV != 0
    }

    /// The word after one pop from the active list (LB E.6: `free_count >>= 1`).
    ///
    /// The caller has checked that the list is not empty, and does not store the result if it
    /// [`must_fold`](Self::must_fold).
    #[inline]
    pub const fn popped(self) -> PcpWord {
        // What is left of `free_count` is taken off: shorter than to put the half in its place.
        let half = (self.free_count() as u64 + 1) >> 1;
        PcpWord(self.0.wrapping_sub(half).wrapping_add(POP_DELTA))
    }

    /// The word after one push of `pages` pages onto the active list (LB E.7): `free_count` grows
    /// while it is below `free_count_cap`; `prev` becomes `high_order`.
    #[inline]
    pub const fn pushed(self, pages: u32, free_count_cap: u32, high_order: bool) -> PcpWord {
        self.pushed_with(pages, free_count_cap, (high_order as u64) << PREV_BIT)
    }

    /// As [`pushed`](Self::pushed), where `prev` is in its place already.
    #[inline]
    pub(super) const fn pushed_with(self, pages: u32, free_count_cap: u32, prev: u64) -> PcpWord {
        let grow = if self.free_count() < free_count_cap { pages as u64 } else { 0 };
        let base = (self.0 & !PREV) | prev;
        PcpWord(base.wrapping_add(PUSH_DELTA).wrapping_add(grow))
    }

    /// The word after frees of `pages` pages to lists that are not active, the last of them with
    /// this `prev`, in its place.
    #[inline]
    pub(super) const fn freed(self, pages: u32, free_count_cap: u32, prev: u64) -> PcpWord {
        let pushed = self.pushed_with(pages, free_count_cap, prev);
        PcpWord(pushed.0.wrapping_sub(PUSH_DELTA))
    }

    /// The word once another list is active: `active`, with its own length and pops.
    #[inline]
    pub const fn switched(self, active: usize, len: u32, pops: u64) -> PcpWord {
        let pops = (pops & (POPS_PERIOD - 1) as u64) as u32;
        PcpWord::new(active, len, pops, self.free_count(), self.prev_high_order())
    }
}

const _: () = assert!(PcpWord::new(15, 7, 3, 9, true).active() == 15);
const _: () = assert!(PcpWord::new(1, 7, POPS_PERIOD - 1, 9, true).popped().must_fold());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pop_changes_length_pops_and_free_count_only() {
        for fc in [0u32, 1, 2, 3, 2016, 6655] {
            for len in [1u32, 2, 4096, SLOTS_MAX as u32] {
                for pops in [0u32, 1, POPS_PERIOD - 2, POPS_PERIOD - 1] {
                    let word = PcpWord::new(3, len, pops, fc, true);
                    let after = word.popped();
                    assert_eq!(after.len(), len - 1);
                    assert_eq!(after.pops(), pops + 1);
                    assert_eq!(after.free_count(), fc >> 1);
                    assert!(after.prev_high_order());
                    assert_eq!(after.active(), 3);
                    assert_eq!(after.must_fold(), pops == POPS_PERIOD - 1);
                    assert!(!after.is_slow());
                }
            }
        }
    }

    #[test]
    fn a_push_saturates_free_count_and_sets_prev() {
        let word = PcpWord::new(2, 10, 5, 2015, true);
        let after = word.pushed(8, 2016, true);
        assert_eq!((after.free_count(), after.len(), after.pops()), (2023, 11, 5));
        let again = after.pushed(8, 2016, false);
        assert_eq!(again.free_count(), 2023);
        assert!(!again.prev_high_order() && after.prev_high_order());
        assert_eq!(again.active(), 2);
    }

    #[test]
    fn another_list_brings_its_own_length_and_pops() {
        let word = PcpWord::new(2, 10, 5, 77, true);
        let after = word.switched(4, 3, u64::from(POPS_PERIOD) * 9 + 6);
        assert_eq!(after, PcpWord::new(4, 3, 6, 77, true));
    }
}
