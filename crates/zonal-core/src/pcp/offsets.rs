//! Where a platform's fast path finds the fields of a pcp and of a list's record, in bytes.
//!
//! This is all that the core says of its records' insides. The fields themselves are private: a
//! platform that runs a fast path owns the memory of the records
//! ([`Metadata`](crate::machine::Metadata)), and reads and writes it by its own `unsafe` code,
//! within the limits of [`state`](super::state) (PCP-1 to PCP-6). Code that has a reference to a
//! pcp cannot change what a fast path follows.

use core::mem::offset_of;

use super::ready::Ready;
use super::state::{Pcp, PcpList};
use crate::zone::state::Zone;

/// The hot word: a `u64`, the first of the pcp.
pub const WORD: usize = offset_of!(Pcp, word);
/// Where `free_count` stops growing: a `u32`.
pub const FREE_COUNT_CAP: usize = offset_of!(Pcp, free_count_cap);
/// From this `free_count` on a free of order 1 to 3 behind another may be a stream: a `u32`.
pub const FREE_HIGH_THRESHOLD: usize = offset_of!(Pcp, free_high_threshold);
/// What a list's limit is made of when it becomes active: a `u32`.
pub const LIMIT: usize = offset_of!(Pcp, limit);
/// The first list's record; the next one lies [`LIST_BYTES`] behind it.
pub const LISTS: usize = offset_of!(Pcp, lists);
/// From one list's record to the next.
pub const LIST_BYTES: usize = size_of::<PcpList>();
/// The first frame of the zone: a `u32`.
pub const FIRST_FRAME: usize = offset_of!(Pcp, first_frame);
/// The zone's frames: a `u32`.
pub const FRAMES: usize = offset_of!(Pcp, frames);

/// What a pop adds to the hot word besides halving `free_count`: a `u64`, constant.
pub const POP_DELTA: usize = offset_of!(Pcp, ready) + offset_of!(Ready, pop);
/// What a frame's number lacks to its page's, for pages of the pcp's zone: a `u64`, constant.
pub const PAGE_SHIFT: usize = offset_of!(Pcp, ready) + offset_of!(Ready, page_shift);
/// What a page's pageblock number lacks to its place in the table of all pageblocks, for pages of
/// the pcp's zone: a `u64`, constant.
pub const BLOCK_SHIFT: usize = offset_of!(Pcp, ready) + offset_of!(Ready, block_shift);
/// Within a [`Zone`]: what it lets fast operations do, [`Zone::has`]: a `u32`.
pub const ZONE_FAST: usize = offset_of!(Zone, fast);

/// Within a list's record.
pub mod list {
    use super::{PcpList, offset_of};

    /// Address of the slot of the coldest block: a `u64`.
    pub const SLOTS_LO: usize = offset_of!(PcpList, slots_lo);
    /// The length from which on a push goes through the core: a `u32`.
    pub const HI: usize = offset_of!(PcpList, hi);
    /// Blocks, while the list is not active: a `u32`.
    pub const LEN: usize = offset_of!(PcpList, len);
    /// Base pages on all other lists, while it is active: a `u32`.
    pub const OTHERS: usize = offset_of!(PcpList, others);
    /// The cold end: a `u32`.
    pub const LO: usize = offset_of!(PcpList, lo);
    /// Slots: a `u32`, constant.
    pub const CAP: usize = offset_of!(PcpList, cap);
    /// Binary logarithm of a block's base pages: a `u32`, constant.
    pub const ORDER_BITS: usize = offset_of!(PcpList, order_bits);
    /// The word's `active` bits while this list is the active one: a `u32`, constant.
    pub const ACTIVE_BITS: usize = offset_of!(PcpList, active_bits);
    /// The word's `prev` bit after a push to this list: a `u32`, constant.
    pub const PREV_BITS: usize = offset_of!(PcpList, prev_bits);
    /// Base pages of a block: a `u32`, constant.
    pub const BLOCK_PAGES: usize = offset_of!(PcpList, block_pages);
    /// The page word of a block on this list: a `u64`, constant.
    pub const CACHED: usize = offset_of!(PcpList, cached);
    /// The page word of a block popped from it: a `u64`, constant.
    pub const ALLOCATED: usize = offset_of!(PcpList, allocated);
    /// Pops so far; while the list is active, the low bits are in the word: a `u64`.
    pub const POPS: usize = offset_of!(PcpList, pops);
}

const _: () = assert!(WORD == 0, "the hot word leads its line");
