//! Where the sequences find things, for every processor that has sequences.

use super::{FAST_TO_WORDS, PCPS_TO_FAST};
use zonal_core::frame::{TAG_ALLOCATED, TAG_CACHED};
use zonal_core::pcp::offsets::{self, list};
use zonal_core::pcp::state::PCP_BYTES;
use zonal_core::pcp::word::{ACTIVE_MASK, POPS_PERIOD, POPS_SHIFT, SLOW};

pub(super) use list::{
    ACTIVE_BITS as ACTIVE, ALLOCATED, BLOCK_PAGES as PAGES, CACHED, CAP as LIST_CAP, HI, LEN, LO,
    ORDER_BITS, OTHERS, POPS, PREV_BITS, SLOTS_LO as SLOTS,
};
/// From a store to the first list's record; the offsets within a record count from there.
pub(super) use offsets::LISTS;
pub(super) use offsets::{
    FIRST_FRAME, FRAMES, FREE_COUNT_CAP as CAP, FREE_HIGH_THRESHOLD as THRESHOLD, LIMIT, LIST_BYTES,
};
/// From CPU 0's store to the first page word.
pub(super) const CPU0_TO_WORDS: usize = PCPS_TO_FAST + PCP_BYTES + FAST_TO_WORDS;
/// Set in a word that the hot list's operations leave alone.
pub(super) const STRAY_BITS: u64 = SLOW | ACTIVE_MASK as u64;

const _: () = assert!(TAG_ALLOCATED == TAG_CACHED + 1, "a mark is one decrement");
const _: () = assert!(1u64 << (64 - POPS_SHIFT - 1) == POPS_PERIOD as u64, "below the sign");
