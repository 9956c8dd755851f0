//! Page frames: one 64-bit word per page of a zone, and one byte per pageblock.
//!
//! The word says who has the block that starts at this frame. Only the *first* frame of a block
//! carries a state; the words of its other frames stay zero. One load therefore answers "is this
//! what the caller says it is", and metadata of memory that was never split stays untouched: lazily
//! zeroed metadata pages cost nothing until they are needed.
//!
//! ```text
//!  bit   0    2       6              35              63
//!        | 00 | 0                                     |  NONE       interior, reserved, hole
//!        | 01 | order | prev (29)    | next (29)      |  FREE       in the buddy, on a list
//!        | 10 | order | mt 3 | rank 12 | cpu 16 | 0   |  CACHED     on a list of that pcp
//!        | 11 | order | mt 3 | rank 12 | cpu 16 | 0   |  ALLOCATED  in somebody's hands
//!        | 11 | order | mt 3 | rank 12 | cpu 16 | f1  |  RANGE      in a range; f: its first
//! ```
//! A *range* is a run of pages of any length that was handed out as one and may be freed in parts
//! (`alloc/range`). It is tiled by blocks, each with a word of its own: bit 37 is set in all of
//! them, bit 38 (`f`) in that of the first, which may tell in the 9 bits above how many pages the
//! range has (RANGE-6).
//!
//! A pcp is named by its CPU and by the rank its zone has for that CPU ([`PcpId`]). An
//! allocated block keeps the name of the pcp it was last on, or of the one it went past: the word
//! that a CPU gives out differs from the one it takes back by the tag alone, and a block that comes
//! back to the CPU it came from is known by one compare.
//!
//! Words are pure values ([`PageWord`]); [`Frames`] is a zone's view of the arrays.
//!
//! # Invariants
//! - **FRAME-1** encodings are canonical: unused bits are zero, so that two words are equal iff
//!   their states are equal, and a fast path checks a page with one 64-bit compare. What the first
//!   word of a range tells of its length is no part of its state.
//! - **FRAME-2** `index = pfn - start_pfn`, `index < 2^29 - 1`: a zone spans less than 2 TiB.
//! - **FRAME-3** `block(pfn) = (pfn >> 9) - (start_pfn >> 9)`: zones whose start is not pageblock
//!   aligned share no byte with another zone (each zone has an array of its own).
//!
//! # Why every access is `Relaxed`
//! A word is written only by the owner of its block, and a block changes hands under the zone
//! lock or inside a per-CPU critical section; those order the accesses. Readers that do not own
//! the block (a racing double free, a statistics walk) need a word that is not torn, nothing
//! more: what they decide is decided again by the compare-and-exchange or the lock that follows.
//!
//! # What this module does not do
//! It keeps no lists and knows no lock: see [`crate::buddy`]. It does not know which frames are
//! holes; a hole is never freed, so its word stays NONE and nothing merges with it.

pub(crate) mod claim;
mod parts;

use core::ops::Range;

use crate::sync::{AtomicU8, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};

/// The bits that tell the states apart.
pub const TAG_MASK: u64 = 0b11;
const TAG_FREE: u64 = 1;
/// Tag of a block on a per-CPU list.
pub const TAG_CACHED: u64 = 2;
/// Tag of an allocated block: the tag of a cached one and one bit more.
pub const TAG_ALLOCATED: u64 = 3;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u64 = 0xf;
const LINK_BITS: u32 = 29;
const LINK_MASK: u64 = (1 << LINK_BITS) - 1;
const PREV_SHIFT: u32 = 6;
const NEXT_SHIFT: u32 = PREV_SHIFT + LINK_BITS;
const MT_SHIFT: u32 = 6;
const MT_MASK: u64 = 0b111;
/// Where the word of a held block begins to name the pcp. The bits below describe the block.
pub const PCP_SHIFT: u32 = 9;
const RANK_SHIFT: u32 = PCP_SHIFT;
const RANK_MASK: u64 = 0xfff;
/// Where the word of a held block names the CPU. An order-0 block without a type of its own, on or
/// from the list of the zone that the CPU prefers, has nothing else in its word but the tag.
pub const CPU_SHIFT: u32 = 21;
const CPU_MASK: u64 = 0xffff;
/// Where it ends. Above it are the bits of ranges, which are zero in every other word.
pub const PCP_END: u32 = CPU_SHIFT + CPU_MASK.count_ones();
/// Set in the word of a block that is part of a range. Fast paths compare all bits from
/// [`PCP_END`] up, so none of them takes such a block for one that stands alone.
pub(crate) const RANGE: u64 = 1 << PCP_END;
/// Set besides in the word of a range's first block.
const RANGE_FIRST: u64 = 1 << (PCP_END + 1);
/// Where it may tell how many pages the range has, fewer than a pageblock's.
const TOLD_SHIFT: u32 = PCP_END + 2;
const TOLD_MASK: u64 = PAGEBLOCK_PAGES - 1;
const TOLD: u64 = TOLD_MASK << (TOLD_SHIFT - PCP_END);
/// What the word of a block that is a whole range has besides that of a block of its own.
pub(crate) const WHOLE_RANGE: u64 = RANGE | RANGE_FIRST;
/// Pages whose words are on a line of 64 bytes.
pub(crate) const LINE_PAGES: u32 = 64 / size_of::<PageWord>() as u32;
/// The link value for "no frame": all ones.
pub const NO_FRAME: u32 = LINK_MASK as u32;
/// Frames a zone may span at most, so that [`NO_FRAME`] is never an index.
pub const MAX_ZONE_FRAMES: usize = NO_FRAME as usize;

const _: () = assert!(NEXT_SHIFT + LINK_BITS == 64);
const _: () = assert!(Order::MAX.get() as u64 <= ORDER_MASK);
const _: () = assert!(core::mem::size_of::<PageWord>() == 8);

/// The state word of one page frame. Equal words are equal states (FRAME-1).
///
/// Words are made by the constructor of their state. [`from_bits`](Self::from_bits) is for what a
/// cell in memory says, which may be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct PageWord(pub(crate) u64);

/// The name of a pcp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcpId {
    /// The owning CPU.
    pub cpu: CpuId,
    /// Which of that CPU's zones, below 4096: 0 is the one it prefers; the others follow by number,
    /// wrapping around.
    pub rank: u16,
}

impl PcpId {
    // No machine has this CPU. Rank 1 is `pcp::depot::DEPOT`.
    const fn nobody(rank: u16) -> PcpId {
        PcpId { cpu: CpuId(CPU_MASK as u32), rank }
    }
    /// In the CACHED word of a block that is on its way from an owner to a list, or to the buddy.
    pub(crate) const MOVING: PcpId = PcpId::nobody(0);
    /// The same of a block that continues a range, until it has left that (RANGE-4).
    pub(crate) const MOVING_ON: PcpId = PcpId::nobody(2);
    /// In the CACHED word of a block that was taken out of the buddy for nobody.
    pub const ISOLATED: PcpId = PcpId::nobody(3);
    /// In the CACHED word of the first block of a range that a CPU keeps (PARK-3).
    pub(crate) const PARKED: PcpId = PcpId::nobody(4);
}

/// The state in a [`PageWord`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Inside a block, reserved, or never seen.
    None,
    /// First frame of a free block on a list of the buddy.
    Free {
        /// The block's order.
        order: Order,
        /// Frame index of the block before it on the list, or [`NO_FRAME`].
        prev: u32,
        /// Frame index of the next block on the list, or [`NO_FRAME`].
        next: u32,
    },
    /// First frame of a block on a per-CPU list.
    Cached {
        /// The block's order.
        order: Order,
        /// Migratetype of the list it is on.
        mt: Migratetype,
        /// The pcp it is on.
        pcp: PcpId,
    },
    /// First frame of an allocated block.
    Allocated {
        /// The block's order.
        order: Order,
        /// Migratetype it was asked for with.
        mt: Migratetype,
        /// The pcp it came from.
        pcp: PcpId,
    },
    /// First frame of a block that is part of a range in somebody's hands.
    Range {
        /// The block's order.
        order: Order,
        /// Migratetype it was asked for with.
        mt: Migratetype,
        /// The pcp of the CPU that asked.
        pcp: PcpId,
        /// The range begins here.
        first: bool,
    },
    /// No constructor makes this word: the metadata was overwritten.
    Corrupt(u64),
}

impl PageWord {
    /// Interior of a block, reserved, or never seen.
    pub const NONE: PageWord = PageWord(0);

    /// A free block on a list; links are frame indexes or [`NO_FRAME`].
    #[inline]
    pub const fn free(order: Order, prev: u32, next: u32) -> PageWord {
        debug_assert!(prev <= NO_FRAME);
        debug_assert!(next <= NO_FRAME);
        PageWord(
            TAG_FREE
                | (order.get() as u64) << ORDER_SHIFT
                | (prev as u64 & LINK_MASK) << PREV_SHIFT
                | (next as u64) << NEXT_SHIFT,
        )
    }

    /// A block on a per-CPU list. The pcp's rank must be below 4096, its CPU below 65536.
    #[inline]
    pub const fn cached(order: Order, mt: Migratetype, pcp: PcpId) -> PageWord {
        PageWord(TAG_CACHED | PageWord::owned_bits(order, mt, pcp))
    }

    /// An allocated block; bounds as for [`cached`](Self::cached).
    #[inline]
    pub const fn allocated(order: Order, mt: Migratetype, pcp: PcpId) -> PageWord {
        PageWord(TAG_ALLOCATED | PageWord::owned_bits(order, mt, pcp))
    }

    /// A block between its owner and what becomes of it; `first` as for [`range`](Self::range).
    #[inline]
    pub(crate) const fn moving(order: Order, mt: Migratetype, first: Option<bool>) -> PageWord {
        let to = if let Some(false) = first { PcpId::MOVING_ON } else { PcpId::MOVING };
        PageWord::cached(order, mt, to)
    }

    /// A block of a range in somebody's hands, the range's `first` or a later one; bounds as for
    /// [`cached`](Self::cached).
    #[inline]
    pub const fn range(order: Order, mt: Migratetype, pcp: PcpId, first: bool) -> PageWord {
        let flags = if first { RANGE | RANGE_FIRST } else { RANGE };
        PageWord(TAG_ALLOCATED | flags | PageWord::owned_bits(order, mt, pcp))
    }

    #[inline]
    const fn owned_bits(order: Order, mt: Migratetype, pcp: PcpId) -> u64 {
        debug_assert!(pcp.rank as u64 <= RANK_MASK);
        debug_assert!(pcp.cpu.0 as u64 <= CPU_MASK);
        (order.get() as u64) << ORDER_SHIFT
            | (mt as u64) << MT_SHIFT
            | (pcp.rank as u64 & RANK_MASK) << RANK_SHIFT
            | (pcp.cpu.0 as u64 & CPU_MASK) << CPU_SHIFT
    }

    /// What a cell of the words says. Bits that no constructor makes decode as
    /// [`PageState::Corrupt`].
    #[inline]
    pub const fn from_bits(bits: u64) -> PageWord {
        PageWord(bits)
    }

    /// The word as a cell holds it.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether two words of held blocks differ in nothing but the pcp.
    #[inline]
    pub const fn same_but_pcp(self, other: PageWord) -> bool {
        (self.0 ^ other.0) & !(RANK_MASK << RANK_SHIFT | CPU_MASK << CPU_SHIFT) == 0
    }

    /// The word of a cached block once it is handed out. A sum is one instruction with its copy.
    #[inline]
    pub const fn taken(self) -> PageWord {
        PageWord(self.0.wrapping_add(TAG_ALLOCATED - TAG_CACHED))
    }

    /// Decodes the word.
    pub const fn state(self) -> PageState {
        let order = Order::new(self.order_bits());
        let mt = Migratetype::new((self.0 >> MT_SHIFT & MT_MASK) as u32);
        let rank = (self.0 >> RANK_SHIFT & RANK_MASK) as u16;
        let pcp = PcpId { cpu: CpuId((self.0 >> CPU_SHIFT & CPU_MASK) as u32), rank };
        match (self.0 & TAG_MASK, order, mt) {
            (0, ..) if self.0 == 0 => PageState::None,
            (TAG_FREE, Some(order), _) => {
                PageState::Free { order, prev: self.prev(), next: self.next() }
            }
            (TAG_CACHED, Some(order), Some(mt)) if self.0 >> PCP_END == 0 => {
                PageState::Cached { order, mt, pcp }
            }
            (TAG_ALLOCATED, Some(order), Some(mt)) => match self.0 >> PCP_END {
                0 => PageState::Allocated { order, mt, pcp },
                1 => PageState::Range { order, mt, pcp, first: false },
                bits if bits & !TOLD == 3 => PageState::Range { order, mt, pcp, first: true },
                _ => PageState::Corrupt(self.0),
            },
            _ => PageState::Corrupt(self.0),
        }
    }

    /// Whether no block starts here.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether a free block starts here.
    #[inline]
    pub const fn is_free(self) -> bool {
        self.0 & TAG_MASK == TAG_FREE
    }

    /// Whether a free block of exactly this order starts here: the test for a usable buddy.
    #[inline]
    pub(crate) const fn is_free_of(self, order: u32) -> bool {
        self.0 & (TAG_MASK | ORDER_MASK << ORDER_SHIFT) == TAG_FREE | (order as u64) << ORDER_SHIFT
    }

    /// Whether a cached or allocated block starts here.
    #[inline]
    pub const fn is_held(self) -> bool {
        self.0 & TAG_CACHED != 0
    }

    /// Whether the block is held and was requested as Movable.
    #[inline]
    pub(crate) const fn is_held_movable(self) -> bool {
        self.is_held() && self.0 >> MT_SHIFT & MT_MASK == Migratetype::Movable as u64
    }

    /// The raw order field; meaningful unless [`is_none`](Self::is_none).
    #[inline]
    pub(crate) const fn order_bits(self) -> u32 {
        (self.0 >> ORDER_SHIFT & ORDER_MASK) as u32
    }

    /// Link towards the list head; meaningful only if [`is_free`](Self::is_free).
    #[inline]
    pub(crate) const fn prev(self) -> u32 {
        (self.0 >> PREV_SHIFT & LINK_MASK) as u32
    }

    /// Link towards the list tail; meaningful only if [`is_free`](Self::is_free).
    #[inline]
    pub(crate) const fn next(self) -> u32 {
        (self.0 >> NEXT_SHIFT) as u32
    }

    /// The same free word with another `prev`.
    #[inline]
    pub(crate) const fn with_prev(self, prev: u32) -> PageWord {
        PageWord(self.0 & !(LINK_MASK << PREV_SHIFT) | (prev as u64) << PREV_SHIFT)
    }

    /// The same free word with another `next`.
    #[inline]
    pub(crate) const fn with_next(self, next: u32) -> PageWord {
        PageWord(self.0 & !(LINK_MASK << NEXT_SHIFT) | (next as u64) << NEXT_SHIFT)
    }
}

/// Type of a pageblock, by the pageblock bytes of its zone (FRAME-3).
///
/// A byte that is no migratetype, and a page outside the zone, read as Isolate: of all types the
/// one that is never handed out.
#[inline]
fn type_at(blocks: &[AtomicU8], index: usize) -> Migratetype {
    // Relaxed: written under the zone lock; a reader without it wants a hint.
    let byte = blocks.get(index).map_or(u8::MAX, |byte| byte.load(Relaxed));
    Migratetype::new(u32::from(byte)).unwrap_or(Migratetype::Isolate)
}

/// One zone's view of its page words and pageblock types.
///
/// Reads outside the span answer NONE, which no block ever is: a buddy beyond the zone's edge is
/// thus unusable without a test of its own (LB B.3, "same zone").
#[derive(Clone, Copy)]
pub struct Frames<'a> {
    words: &'a [AtomicU64],
    blocks: &'a [AtomicU8],
    start_pfn: u64,
    /// `start_pfn mod 1024`. `index + skew` has the low bits of the real pfn, which is all that
    /// buddy arithmetic looks at, and it fits 32 bits.
    skew: u32,
}

impl<'a> Frames<'a> {
    /// The view, or `None` if there are more than [`MAX_ZONE_FRAMES`] words or fewer pageblock
    /// bytes than [`pageblocks_for`](Self::pageblocks_for) asks for.
    ///
    /// Words must be all NONE at first. Pageblock bytes hold migratetype indexes; zero is
    /// Unmovable, so a caller that wants Linux' initial state fills them with Movable
    /// ([`fill_pageblock_types`](Self::fill_pageblock_types)).
    pub fn new(
        words: &'a [AtomicU64],
        blocks: &'a [AtomicU8],
        start_pfn: u64,
    ) -> Option<Frames<'a>> {
        let fits = Frames::fit(words, blocks, start_pfn);
        fits.then(|| Frames::of_checked(words, blocks, start_pfn))
    }

    fn fit(words: &[AtomicU64], blocks: &[AtomicU8], start_pfn: u64) -> bool {
        words.len() <= MAX_ZONE_FRAMES
            && start_pfn.checked_add(words.len() as u64).is_some()
            && blocks.len() >= Frames::pageblocks_for(start_pfn, words.len() as u64)
    }

    /// As [`new`](Self::new), of what fits: the caller has looked.
    #[inline]
    pub(crate) fn of_checked(
        words: &'a [AtomicU64],
        blocks: &'a [AtomicU8],
        start_pfn: u64,
    ) -> Frames<'a> {
        debug_assert!(Frames::fit(words, blocks, start_pfn));
        let skew = (start_pfn & (Order::MAX.pages() - 1)) as u32;
        Frames { words, blocks, start_pfn, skew }
    }

    /// Pageblock bytes needed for `pages` pages from `start_pfn` on (FRAME-3).
    pub const fn pageblocks_for(start_pfn: u64, pages: u64) -> usize {
        let end = start_pfn.saturating_add(pages);
        (end.div_ceil(PAGEBLOCK_PAGES) - (start_pfn >> PAGEBLOCK_ORDER.get())) as usize
    }

    /// Spanned pages, holes included.
    #[inline]
    pub fn spanned(&self) -> u32 {
        self.words.len() as u32
    }

    /// The first pfn of the span.
    #[inline]
    pub fn start_pfn(&self) -> u64 {
        self.start_pfn
    }

    /// The page frame number of a frame index.
    #[inline]
    pub fn pfn(&self, idx: u32) -> Pfn {
        Pfn(self.start_pfn.wrapping_add(idx as u64))
    }

    /// The frame index of a page frame number, if it is inside the span.
    #[inline]
    pub fn index(&self, pfn: Pfn) -> Option<u32> {
        let idx = pfn.0.wrapping_sub(self.start_pfn);
        (idx < self.words.len() as u64).then_some(idx as u32)
    }

    /// The word's cell, for paths that compare and exchange.
    #[inline]
    pub fn word(&self, idx: u32) -> Option<&'a AtomicU64> {
        self.words.get(idx as usize)
    }

    /// Reads a word; NONE outside the span.
    #[inline]
    pub fn load(&self, idx: u32) -> PageWord {
        // Relaxed: see the module's essay.
        self.words.get(idx as usize).map_or(PageWord::NONE, |word| PageWord(word.load(Relaxed)))
    }

    /// Writes a word. The caller owns the block that starts or started here. Ignored outside the
    /// span.
    #[inline]
    pub fn store(&self, idx: u32, word: PageWord) {
        debug_assert!((idx as usize) < self.words.len(), "frame {idx} is outside the zone");
        if let Some(cell) = self.words.get(idx as usize) {
            cell.store(word.0, Relaxed); // Relaxed: see the module's essay.
        }
    }

    /// Type of the pageblock that holds a frame.
    #[inline]
    pub fn pageblock_type(&self, idx: u32) -> Migratetype {
        type_at(self.blocks, self.pageblock_index(idx))
    }

    /// Tags the pageblock that holds this frame, and nothing more: free blocks in it stay on the
    /// lists they are on, so once the zone is seeded only the buddy may call this.
    #[inline]
    pub fn set_pageblock_type(&self, idx: u32, mt: Migratetype) {
        if let Some(byte) = self.blocks.get(self.pageblock_index(idx)) {
            byte.store(mt as u8, Relaxed); // Relaxed: under the zone lock.
        }
    }

    /// Tags every pageblock of the zone, before it is seeded.
    pub fn fill_pageblock_types(&self, mt: Migratetype) {
        for byte in self.blocks {
            byte.store(mt as u8, Relaxed); // Relaxed: the zone is not shared yet.
        }
    }

    /// Position of a frame's pageblock in the zone (FRAME-3).
    #[inline]
    pub fn pageblock_index(&self, idx: u32) -> usize {
        let offset = self.skew & (PAGEBLOCK_PAGES as u32 - 1);
        (idx.wrapping_add(offset) >> PAGEBLOCK_ORDER.get()) as usize
    }

    /// Pageblocks that the span touches.
    pub fn pageblocks(&self) -> usize {
        Frames::pageblocks_for(self.start_pfn, self.words.len() as u64)
    }

    /// Frame indexes of the pageblock that holds this frame, if all of it is inside the span.
    pub fn pageblock_range(&self, idx: u32) -> Option<Range<u32>> {
        let pages = PAGEBLOCK_PAGES as u32;
        let start = (self.aligned(idx) & !(pages - 1)).checked_sub(self.skew)?;
        let end = start + pages;
        (end <= self.spanned()).then_some(start..end)
    }

    /// The frame's number for buddy arithmetic: congruent to the pfn modulo 1024.
    #[inline]
    pub(crate) fn aligned(&self, idx: u32) -> u32 {
        idx.wrapping_add(self.skew)
    }

    /// The inverse of [`aligned`](Self::aligned); below the span it wraps to an index beyond it.
    #[inline]
    pub(crate) fn index_at(&self, at: u32) -> u32 {
        at.wrapping_sub(self.skew)
    }
}

impl core::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Frames({:#x} + {:#x} pages)", self.start_pfn, self.words.len())
    }
}

#[cfg(test)]
mod tests;
