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
const PREV_BIT: u32 = 20;
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
/// What the length's 24 bits can say. Lists are made for half as many (`PushLimits`).
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
        self.popped_by(POP_DELTA)
    }

    /// As [`popped`](Self::popped), where [`POP_DELTA`] is at hand.
    #[inline(always)]
    pub(super) const fn popped_by(self, pop_delta: u64) -> PcpWord {
        // What is left of `free_count` is taken off: shorter than to put the half in its place.
        let half = (self.free_count() as u64 + 1) >> 1;
        PcpWord(self.0.wrapping_sub(half).wrapping_add(pop_delta))
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

    /// Which of these limits the word has reached: a bit for each, 0 where a push has nothing to
    /// decide.
    /// `tops`: [`PUSH_TOPS`].
    #[inline(always)]
    pub(super) const fn reached(self, limits: PushLimits, tops: u64) -> u64 {
        self.0.wrapping_add(limits.0) & tops
    }

    /// The word once another list is active: `active`, with its own length and pops.
    #[inline]
    pub const fn switched(self, active: usize, len: u32, pops: u64) -> PcpWord {
        let pops = (pops & (POPS_PERIOD - 1) as u64) as u32;
        PcpWord::new(active, len, pops, self.free_count(), self.prev_high_order())
    }
}

/// What a push adds to the hot word to ask three things at once: whether the active list is
/// shorter than its limit, whether `free_count` is below its own, and whether `prev` is what the
/// push would make of it. A field that reaches its limit carries into its highest bit, and `prev`
/// with its like into the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PushLimits(pub(super) u64);

/// From here on `free_count` grows no more, whatever the policy says: the free that finds it below
/// adds at most the largest block, which stays below the field's highest bit. So it never carries
/// into `active`, and [`PushLimits`] has that bit to ask with.
pub(super) const FREE_COUNT_CAP_MAX: u32 = FREE_COUNT_TOP as u32 - 1024;
/// The highest bit of `free_count`: that limit is reached.
pub(super) const FREE_COUNT_TOP: u64 = 1 << 15;
/// The highest bit of the length, which no word has ([`BLOCKS_MAX`]): that limit is reached.
const LEN_TOP: u64 = 1 << (POPS_SHIFT - 1);
/// Where a push sees which limits it has reached.
pub(super) const PUSH_TOPS: u64 = FREE_COUNT_TOP | LEN_TOP | PREV;
/// Blocks that a list is made for: all bits of the length but the highest.
pub(super) const BLOCKS_MAX: usize = SLOTS_MAX / 2;

impl PushLimits {
    /// For a list that may be `hi` long, from `word` on: pops and pushes below the limits keep them
    /// right. `free_count` is to stay below `cap` and a block's pages; `prev` is the list's
    /// `prev_bits`. Every word reaches the length's where `free_count` has no bit to spare, and
    /// that of `free_count` where `cap` is 0, as it grows by no push.
    pub(super) const fn new(word: PcpWord, hi: u32, cap: u32, prev: u32) -> PushLimits {
        let (top, spare) = (FREE_COUNT_TOP as u32, word.0 & FREE_COUNT_TOP == 0);
        if cap > FREE_COUNT_CAP_MAX || !spare {
            return PushLimits(LEN_TOP);
        }
        let hi = (hi as u64) << LEN_SHIFT;
        PushLimits(LEN_TOP.wrapping_sub(hi) | prev as u64 | (top - cap) as u64)
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
    fn a_word_has_reached_the_limits_of_exactly_those_fields_that_have() {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        for (hi, cap) in [(0, 1), (1, 1), (7, 0), (7, 15), (4096, 2016), (1 << 22, 31744)] {
            for (len, fc) in [(0, 0), (1, 1), (6, 14), (7, 15), (4095, 2015), (1 << 22, 31743)] {
                for bits in 0..8 {
                    let [is, wants, slow] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let word = PcpWord::new(14, len, POPS_PERIOD - 1, fc, is).with_slow(slow);
                    let limits = PushLimits::new(word, hi, cap, bit(wants, PREV) as u32);
                    // Behind `prev` twice `slow` carries, too: the length seems one more.
                    let len = len + u32::from(slow && is && wants);
                    let all = bit(len >= hi, LEN_TOP)
                        | bit(fc >= cap, FREE_COUNT_TOP)
                        | bit(is != wants, PREV);
                    assert_eq!(word.reached(limits, PUSH_TOPS), all, "{word:?} {hi} {cap} {wants}");
                }
            }
        }
    }

    #[test]
    fn a_free_count_without_a_bit_to_spare_is_left_to_the_exact_way() {
        for (fc, cap) in [(1 << 15, 9), (0xffff, 9), (0, 32000), (1 << 15, 0)] {
            let word = PcpWord::new(0, 0, 0, fc, false);
            let limits = PushLimits::new(word, 9, cap, 0);
            for fc in [0, fc, 0x7fff, 0x8000, 0xffff] {
                let word = PcpWord::new(0, 0, 0, fc, false);
                assert_ne!(word.reached(limits, PUSH_TOPS) & LEN_TOP, 0, "{word:?} {cap}");
            }
        }
    }

    #[test]
    fn another_list_brings_its_own_length_and_pops() {
        let word = PcpWord::new(2, 10, 5, 77, true);
        let after = word.switched(4, 3, u64::from(POPS_PERIOD) * 9 + 6);
        assert_eq!(after, PcpWord::new(4, 3, 6, 77, true));
    }
}
