//! Free pages of one pageblock: counting, moving to another type, isolating.

use core::ops::Range;

use super::free::FreeFlags;
use super::list::End;
use super::{Buddy, MAX, PBO};
use crate::frame::Frames;
use crate::types::{Migratetype, PAGEBLOCK_PAGES};

/// How the pages of a pageblock are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    /// Base pages of free blocks.
    pub(super) free: u32,
    /// Base pages of held blocks whose word says Movable.
    ///
    /// Linux asks each page whether it is on a reclaim list or can be migrated. The core has no
    /// such lists; the migratetype of the request is the nearest answer. It counts pages on per-CPU
    /// lists and pages not yet on a reclaim list as movable, which Linux does not.
    pub(super) movable: u32,
}

/// Counts a pageblock's pages by walking its words, block by block.
pub(super) fn usage(frames: &Frames<'_>, range: Range<u32>) -> Usage {
    let mut usage = Usage::default();
    let mut at = range.start;
    while at < range.end {
        let word = frames.load(at);
        if word.is_none() {
            at += 1;
            continue;
        }
        // No block below order 9 leaves its pageblock; `min` keeps an overwritten order harmless.
        let pages = (1u32 << word.order_bits()).min(range.end - at);
        if word.is_free() {
            usage.free += pages;
        } else if word.is_held_movable() {
            usage.movable += pages;
        }
        at += pages;
    }
    usage
}

impl Buddy {
    /// Moves the free blocks of a whole pageblock from its type's lists to another type's, lowest
    /// address first, and retags it (LB B.7, B.8). Returns the free pages moved. No free block may
    /// reach beyond the pageblock.
    pub(super) fn move_free_pages(
        &mut self,
        frames: &Frames<'_>,
        range: Range<u32>,
        from: Migratetype,
        to: Migratetype,
        end: End,
    ) -> u64 {
        let mut moved = 0;
        let mut at = range.start;
        while at < range.end {
            let word = frames.load(at);
            if word.is_none() {
                at += 1;
                continue;
            }
            let order = word.order_bits();
            if word.is_free() && order <= PBO {
                self.unlink(frames, at, word, order, from);
                self.push(frames, at, order, to, end);
                moved += 1u64 << order;
            }
            at += 1 << order;
        }
        frames.set_pageblock_type(range.start, to);
        self.account_sub(from, moved);
        self.account_add(to, moved);
        moved
    }

    /// Takes a pageblock out of use: its free pages stop counting (LB B.2) and are never handed
    /// out, nor those that are freed into it later. Returns its type before, for
    /// [`unisolate`](Self::unisolate); `None`, and no change, if it is not wholly in the zone, is
    /// Isolate already, or is reserved for HighAtomic.
    pub fn isolate(&mut self, frames: &Frames<'_>, idx: u32) -> Option<Migratetype> {
        let range = frames.pageblock_range(idx)?;
        let from = frames.pageblock_type(idx);
        if !from.mergeable() {
            return None;
        }
        // A free block of two pageblocks comes apart, so that one can stay in use.
        let head = frames.index_at(frames.aligned(range.start) & !((1 << MAX) - 1));
        let word = frames.load(head);
        if word.is_free_of(MAX) {
            self.unlink(frames, head, word, MAX, from);
            self.account_sub(from, 1 << MAX);
            frames.set_pageblock_type(idx, Migratetype::Isolate);
            for half in [head, head + PAGEBLOCK_PAGES as u32] {
                let mt = frames.pageblock_type(half);
                self.free_one(frames, half, PBO, mt, FreeFlags { to_tail: false });
            }
        } else {
            self.move_free_pages(frames, range, from, Migratetype::Isolate, End::Tail);
        }
        Some(from)
    }

    /// Brings an isolated pageblock back as `to`. A pageblock that is free as a whole is put back
    /// at the list tail and merges (LB B.4 TO_TAIL). Returns false, and changes nothing, if it is
    /// not an Isolate pageblock wholly in the zone or `to` is not a type of its own.
    pub fn unisolate(&mut self, frames: &Frames<'_>, idx: u32, to: Migratetype) -> bool {
        let isolate = Migratetype::Isolate;
        let Some(range) = frames.pageblock_range(idx) else { return false };
        if frames.pageblock_type(idx) != isolate || !to.mergeable() {
            return false;
        }
        let head = frames.index_at(frames.aligned(range.start) & !((1 << MAX) - 1));
        for (block, order) in [(head, MAX), (range.start, PBO)] {
            let word = frames.load(block);
            if word.is_free_of(order) {
                self.unlink(frames, block, word, order, isolate);
                self.account_sub(isolate, 1 << order);
                frames.set_pageblock_type(idx, to);
                for piece in (block..block + (1 << order)).step_by(1 << PBO) {
                    let mt = frames.pageblock_type(piece);
                    self.free_one(frames, piece, PBO, mt, FreeFlags { to_tail: true });
                }
                return true;
            }
        }
        self.move_free_pages(frames, range, isolate, to, End::Tail);
        true
    }
}
