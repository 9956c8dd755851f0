//! Per-CPU lists up to 5.17: the order of draining (LB E.8) and the sizes (LB E.11).

use crate::types::{Order, PageCount};

pub(crate) mod cold;

/// Largest chunk where `percpu_pagelist_fraction` fixes the lists, in pages (LB E.11).
const BATCH_FRACTION_MAX: u32 = 96;

/// Up to 5.12 (LB E.11): chunk and limit of one CPU's lists, in pages. Six raw chunks, or the
/// `fraction`-th part of the zone, which sets the chunk too.
pub(super) const fn six_batches(
    managed: u64,
    (batch, batch_raw): (u32, u32),
    fraction: u32,
) -> (u32, u32) {
    if fraction == 0 {
        return (batch, 6 * batch_raw);
    }
    let share = managed / fraction as u64;
    let high = if share > u32::MAX as u64 { u32::MAX } else { share as u32 };
    let quarter = if high / 4 > 1 { high / 4 } else { 1 };
    let batch = if quarter < BATCH_FRACTION_MAX { quarter } else { BATCH_FRACTION_MAX };
    (batch, high)
}

/// Up to 5.17 (LB E.8): the next list to take from, with one block more than the list before it.
/// `list` is where the walk is, `share` the blocks still due from there.
pub(super) fn next_growing(
    list: &mut usize,
    share: &mut u32,
    lists: usize,
    left: PageCount,
    len: impl Fn(usize) -> u32,
) -> Option<(usize, u32)> {
    if *share == 0 || len(*list) == 0 {
        let mut passed = 0;
        loop {
            if passed == lists {
                return None;
            }
            passed += 1;
            *share += 1;
            *list = (*list + 1) % lists;
            if len(*list) > 0 {
                break;
            }
        }
        // Only one list has anything: no need to go round.
        if *share as usize == lists {
            // Linux takes the pages for blocks: lists had single pages only.
            *share = left.blocks(Order::ZERO);
        }
    }
    Some((*list, (*share).min(len(*list))))
}
