//! Lists of free blocks and their accounting (LB B.2). Upholds BUDDY-1, -2, -3 and -8.

use super::Buddy;
use super::area::List;
use crate::frame::{Frames, NO_FRAME, PageWord};
use crate::types::{Migratetype, Order};

/// Which end of a list a block joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Handed out first.
    Head,
    /// Handed out last, so that it has time to merge.
    Tail,
}

/// A number already bounded by the buddy's own loops, as the type the word constructors take.
#[inline]
pub(super) fn order_of(order: u32) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

impl Buddy {
    /// Puts a block on a list and writes its word. Does not account pages.
    #[inline(never)]
    pub(super) fn push(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        order: u32,
        mt: Migratetype,
        end: End,
    ) {
        let area = &mut self.areas[order as usize];
        let list = &mut area.lists[mt.index()];
        area.nr_free += 1;
        match end {
            End::Head => {
                let next = core::mem::replace(&mut list.head, idx);
                frames.store(idx, PageWord::free(order_of(order), NO_FRAME, next));
                if next == NO_FRAME {
                    list.tail = idx;
                    self.nonempty[mt.index()] |= 1 << order;
                } else {
                    relink(&mut self.faults, frames, next, |word| word.with_prev(idx));
                }
            }
            End::Tail => {
                let prev = core::mem::replace(&mut list.tail, idx);
                frames.store(idx, PageWord::free(order_of(order), prev, NO_FRAME));
                if prev == NO_FRAME {
                    list.head = idx;
                    self.nonempty[mt.index()] |= 1 << order;
                } else {
                    relink(&mut self.faults, frames, prev, |word| word.with_next(idx));
                }
            }
        }
    }

    /// Takes a block off its list and sets its word to NONE. `word` is the block's word, which the
    /// caller has looked at: FREE of `order`; `mt` the type of its pageblock, or of its list. Does
    /// not account pages.
    #[inline(never)]
    pub(super) fn unlink(
        &mut self,
        frames: &Frames<'_>,
        idx: u32,
        word: PageWord,
        order: u32,
        mt: Migratetype,
    ) {
        debug_assert!(word.is_free_of(order), "frame {idx} is not a free block of order {order}");
        let (prev, next) = (word.prev(), word.next());
        let mt = if self.mixed { self.list_at(idx, word, order).unwrap_or(mt) } else { mt };
        let area = &mut self.areas[order as usize];
        let list = &mut area.lists[mt.index()];
        area.nr_free = area.nr_free.wrapping_sub(1);
        if prev == NO_FRAME {
            list.head = next;
        } else {
            relink(&mut self.faults, frames, prev, |word| word.with_next(next));
        }
        if next == NO_FRAME {
            list.tail = prev;
        } else {
            relink(&mut self.faults, frames, next, |word| word.with_prev(prev));
        }
        if list.head == NO_FRAME {
            self.nonempty[mt.index()] &= !(1 << order);
        }
        frames.store(idx, PageWord::NONE);
    }

    /// The type of the list that a block is the head or tail of. A block in the middle needs no
    /// list to be unlinked.
    #[cold]
    fn list_at(&self, idx: u32, word: PageWord, order: u32) -> Option<Migratetype> {
        let lists = &self.areas[order as usize].lists;
        Migratetype::ALL.iter().copied().find(|mt| {
            let list = lists[mt.index()];
            (word.prev() == NO_FRAME && list.head == idx)
                || (word.next() == NO_FRAME && list.tail == idx)
        })
    }

    /// Takes the head off a list. `None` if the list is empty, or if it did not lead to a free
    /// block of its order: then the list is dropped.
    #[inline(never)]
    pub(super) fn pop(&mut self, frames: &Frames<'_>, order: u32, mt: Migratetype) -> Option<u32> {
        let idx = self.areas[order as usize].lists[mt.index()].head;
        let word = frames.load(idx);
        if !word.is_free_of(order) {
            self.drop_list(order, mt);
            return None;
        }
        self.unlink(frames, idx, word, order, mt);
        Some(idx)
    }

    /// Forgets a list that leads nowhere (BUDDY-10). Its blocks leak; `nr_free` and the page counts
    /// keep them, since how many they were cannot be known.
    #[cold]
    fn drop_list(&mut self, order: u32, mt: Migratetype) {
        let list = &mut self.areas[order as usize].lists[mt.index()];
        if list.head != NO_FRAME {
            count(&mut self.faults);
        }
        *list = List::EMPTY;
        self.nonempty[mt.index()] &= !(1 << order);
    }

    /// The head of a list, left where it is.
    #[inline]
    pub(super) fn head(&self, order: u32, mt: Migratetype) -> u32 {
        self.areas[order as usize].lists[mt.index()].head
    }

    /// Counts pages that became free in a pageblock of this type (LB B.2).
    #[inline]
    pub(super) fn account_add(&mut self, mt: Migratetype, pages: u64) {
        if mt == Migratetype::Isolate {
            self.free_isolate += pages;
            return;
        }
        self.free_pages += pages;
        if mt == Migratetype::HighAtomic {
            self.free_highatomic += pages;
        }
    }

    /// The inverse of [`account_add`](Self::account_add).
    #[inline]
    pub(super) fn account_sub(&mut self, mt: Migratetype, pages: u64) {
        if mt == Migratetype::Isolate {
            self.free_isolate = self.free_isolate.saturating_sub(pages);
            return;
        }
        debug_assert!(self.free_pages >= pages);
        self.free_pages = self.free_pages.saturating_sub(pages);
        if mt == Migratetype::HighAtomic {
            self.free_highatomic = self.free_highatomic.saturating_sub(pages);
        }
    }
}

/// Changes a link in a neighbour's word; a neighbour that is not free is left alone and counted.
#[inline]
fn relink(
    faults: &mut u32,
    frames: &Frames<'_>,
    neighbour: u32,
    change: impl FnOnce(PageWord) -> PageWord,
) {
    let word = frames.load(neighbour);
    if word.is_free() {
        frames.store(neighbour, change(word));
    } else {
        count(faults);
    }
}

#[cold]
#[inline(never)]
fn count(faults: &mut u32) {
    *faults = faults.saturating_add(1);
}
