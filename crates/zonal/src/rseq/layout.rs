//! Where the sections find things, for every processor that has sections.

use std::mem::offset_of;

use super::STORES_TO_FAST;
use zonal_core::frame::{TAG_ALLOCATED, TAG_CACHED};
use zonal_core::pcp::store::{PCP_BYTES, Pcp, PcpList};
use zonal_core::pcp::word::{ACTIVE_MASK, POPS_PERIOD, POPS_SHIFT, SLOW};

/// From a store to the first list's record; the offsets within a record count from there.
pub(super) const LISTS: usize = offset_of!(Pcp, lists);
pub(super) const CAP: usize = offset_of!(Pcp, free_count_cap);
pub(super) const THRESHOLD: usize = offset_of!(Pcp, free_high_threshold);
pub(super) const SLOTS: usize = offset_of!(PcpList, slots_lo);
pub(super) const HI: usize = offset_of!(PcpList, hi);
pub(super) const ACTIVE: usize = offset_of!(PcpList, active_bits);
pub(super) const PREV_BITS: usize = offset_of!(PcpList, prev_bits);
pub(super) const PAGES: usize = offset_of!(PcpList, block_pages);
pub(super) const CACHED: usize = offset_of!(PcpList, cached);
pub(super) const ALLOCATED: usize = offset_of!(PcpList, allocated);
/// From CPU 0's store to [`Fast`](super::Fast).
pub(super) const CPU0_TO_FAST: usize = STORES_TO_FAST + PCP_BYTES;
/// Set in a word that the hot list's operations leave alone.
pub(super) const STRAY_BITS: u64 = SLOW | ACTIVE_MASK as u64;

const _: () = assert!(offset_of!(Pcp, word) == 0, "the hot word leads its line");
const _: () = assert!(TAG_ALLOCATED == TAG_CACHED + 1, "a mark is one decrement");
const _: () = assert!(1u64 << (64 - POPS_SHIFT - 1) == POPS_PERIOD as u64, "below the sign");
