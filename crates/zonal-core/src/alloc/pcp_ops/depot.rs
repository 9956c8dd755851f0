//! Whole magazines between a closed pcp and its depot: what a full pcp leaves, an empty one takes
//! (see [`crate::pcp::depot`]).

use core::ops::Range;

use super::PcpOps;
use super::refill::grown_for;
use super::run::RUN;
use crate::alloc::zone_ops::{PRESSED, Want, depot_word};
use crate::frame::LINE_PAGES;
use crate::lanes::{are_row, are_u64s, copy_u32s, store_u64s};
use crate::pcp::depot::{Depot, Magazine};
use crate::pcp::sink::Sink;
use crate::pcp::tune::{self, BulkFree};
use crate::platform::{Platform, Step};
use crate::prefetch;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::{Order, PageCount};
use crate::zone::state::LockedZone;

/// Most magazines that one refill leaves in a depot.
const FILL_MAX: usize = 16;
/// Most blocks that it takes out of the buddy.
const TAKEN_MAX: usize = 64;
/// Blocks that a list with twice as many leaves in one magazine at least.
const LARGE_BLOCKS: u32 = 8;

/// Overflows of other lists in a row, without a pop of its own, that make a list idle: more than
/// two bursts of 32 blocks, so that bursts of two orders by turns do not take each other's blocks.
const IDLE_OVERFLOWS: u8 = 64;

/// Blocks out of the buddy without an owner yet.
struct Taken {
    firsts: [u32; TAKEN_MAX],
    orders: [Order; TAKEN_MAX],
    count: usize,
    pages: PageCount,
}

impl Taken {
    /// First frames of the blocks of `bits` as their order that these are cut into.
    fn pieces(&self, bits: u32) -> Pieces<'_> {
        Pieces { taken: self, bits, at: 0, next: 0, end: 0 }
    }
}

/// The pieces of [`Taken`] blocks that are left.
struct Pieces<'t> {
    taken: &'t Taken,
    /// Order of a piece.
    bits: u32,
    /// The block behind the one that is being cut.
    at: usize,
    /// The frames of that one that are left.
    next: u32,
    end: u32,
}

impl Pieces<'_> {
    /// The pages of the next pieces, at most `most` pieces, all of one block.
    fn some(&mut self, most: u32) -> Range<u32> {
        if self.next == self.end && self.at < self.taken.count {
            self.next = self.taken.firsts[self.at];
            self.end = self.next + self.taken.orders[self.at].pages() as u32;
            self.at += 1;
        }
        let end = self.end.min(self.next.saturating_add(most << self.bits));
        core::mem::replace(&mut self.next, end)..end
    }

    /// Gives the next `count` pieces to `into`, with this word.
    #[inline]
    fn give(&mut self, count: u32, words: (&[AtomicU64], u64), into: &mut impl Receives) {
        let mut left = count;
        while left > 0 {
            let some = self.some(left);
            if some.is_empty() {
                return;
            }
            left -= (some.end - some.start) >> self.bits;
            if self.bits > 0 {
                some.step_by(1 << self.bits).for_each(|frame| give_one(frame, words, into));
                continue;
            }
            let (mut first, end) = (some.start, some.end);
            while end - first >= RUN as u32 && give_row(first, words, into) {
                first += RUN as u32;
            }
            (first..end).for_each(|frame| give_one(frame, words, into));
        }
    }
}

/// What gets blocks one after the other.
trait Receives {
    fn one(&mut self, frame: u32);
    /// Eight in a row, upward.
    fn row(&mut self, first: u32);
}

impl Receives for Sink<'_> {
    #[inline]
    fn one(&mut self, frame: u32) {
        self.give(frame);
    }
    #[inline]
    fn row(&mut self, first: u32) {
        self.give_row(first);
    }
}

impl Receives for Magazine<'_> {
    #[inline]
    fn one(&mut self, frame: u32) {
        self.give(frame);
    }
    #[inline]
    fn row(&mut self, first: u32) {
        self.give_row(first);
    }
}

#[inline]
fn give_one(frame: u32, (words, word): (&[AtomicU64], u64), into: &mut impl Receives) {
    words[frame as usize].store(word, Relaxed);
    into.one(frame);
}

/// The words of eight frames in a row, upward or not.
#[inline]
pub(super) fn row_words(words: &[AtomicU64], first: u32, up: bool) -> Option<&[AtomicU64; RUN]> {
    let lowest = if up { first } else { first.checked_sub(RUN as u32 - 1)? };
    words.get(lowest as usize..)?.first_chunk()
}

/// Gives eight blocks in a row. `false`: there are no such frames.
#[inline]
fn give_row(first: u32, (words, word): (&[AtomicU64], u64), into: &mut impl Receives) -> bool {
    let Some(words) = row_words(words, first, true) else { return false };
    store_u64s(words, word);
    into.row(first);
    true
}

/// The words of the frames that eight slots name, if those are a row.
#[inline]
fn words_of<'w>(slots: &[AtomicU32; RUN], words: &'w [AtomicU64]) -> Option<&'w [AtomicU64; RUN]> {
    let first = slots[0].load(Relaxed);
    let up = slots[1].load(Relaxed) > first;
    if are_row(slots, first, up) { row_words(words, first, up) } else { None }
}

/// The words of the frames that eight slots name.
#[inline]
fn cells_of<'w>(
    slots: &[AtomicU32; RUN],
    words: &'w [AtomicU64],
) -> impl Iterator<Item = &'w AtomicU64> {
    slots.iter().map(|slot| &words[slot.load(Relaxed) as usize])
}

/// Gives the frames of a magazine, hottest first, with this word.
#[inline]
fn give_magazine(frames: &[AtomicU32], to: (&[AtomicU64], u64), sink: &mut Sink<'_>) {
    let (rest, rows) = frames.as_rchunks::<RUN>();
    for (slots, places) in rows.iter().zip(sink.next_rows(rows.len())) {
        match words_of(slots, to.0) {
            Some(words) => store_u64s(words, to.1),
            None => cells_of(slots, to.0).for_each(|cell| cell.store(to.1, Relaxed)),
        }
        copy_u32s(slots, places);
    }
    rest.iter().rev().for_each(|slot| give_one(slot.load(Relaxed), to, sink));
}

/// Asks for the words of a magazine's frames. Their lines are in the cache of the CPU that left it;
/// asked for one after the other they would come one after the other.
#[inline]
fn prefetch_words(words: &[AtomicU64], frames: &[AtomicU32]) {
    let (_, rows) = frames.as_rchunks::<RUN>();
    // The words of eight pages are on one line, most often.
    for slots in rows.iter().rev() {
        for slot in [&slots[RUN - 1], &slots[0]] {
            prefetch::for_write(&words[slot.load(Relaxed) as usize]);
        }
    }
}

impl<P: Platform> PcpOps<'_, '_, P> {
    /// As [`drain_pages`](Self::drain_pages), but whole magazines go to the depot first. Then less
    /// than a magazine stays; of a stream of large frees nothing does. Under pressure everything
    /// goes to the buddy, where requests look for memory.
    pub fn give_back(&mut self, bulk: BulkFree, first: usize) -> PageCount {
        let ops = self.ops;
        let BulkFree { pages, forced } = bulk;
        let depot = ops.depot(self.closed.pcp).filter(|_| !ops.zone.has(PRESSED));
        let Some(depot) = depot else { return self.drain_pages(pages, first) };
        let (mut left, mut stayed) = (pages, false);
        let chunk = self.closed.pcp.batch_pages();
        let idle = if forced { None } else { self.idle_list(first) };
        for list in idle.into_iter().chain(first..ops.on.map.len()).chain(0..first) {
            if self.closed.len(list) == 0 {
                continue;
            }
            let record = &self.closed.pcp.lists[list];
            let whole = self.magazine_blocks(depot, list);
            // A stream of large frees spreads over lists that have less than a magazine each.
            let least = if forced { 1 } else { whole };
            let large = if forced { 1 } else { self.large_blocks(depot, list) };
            while self.closed.len(list) >= least && !left.is_zero() {
                let len = self.closed.len(list);
                // The hotter half of large blocks stays.
                let blocks = len.min(whole).max(large.min(len.div_ceil(2)));
                let magazine = record.pages_of(blocks);
                // Blocks larger than a chunk go one by one.
                if !forced && left < magazine.min(chunk) {
                    stayed = left < pages;
                    break;
                }
                if depot.has_surplus(magazine) {
                    let excess = record.pages_of(len.min(whole));
                    left = left.saturating_sub(self.drain_pages(excess, list));
                    continue;
                }
                if !self.put_magazine(depot, list, blocks) {
                    if idle != Some(list) {
                        return pages - left + self.drain_pages(left, first);
                    }
                    let most = left.min(record.pages_of(len));
                    left = left.saturating_sub(self.drain_pages(most, list));
                    break;
                }
                left = left.saturating_sub(magazine);
            }
        }
        match stayed {
            true => pages - left,
            false => pages - left + self.drain_pages(left, first),
        }
    }

    /// The list with most pages among those that were not used while other lists overflowed, if it
    /// has a batch of them; `first` has just overflowed. Blocks of orders that are no longer asked
    /// for would fill the lists, and send those of others through depot and buddy.
    #[inline(never)]
    fn idle_list(&self, first: usize) -> Option<usize> {
        let mut most = self.closed.pcp.batch_pages();
        let mut idle = None;
        for (list, record) in self.closed.pcp.lists[..self.ops.on.map.len()].iter().enumerate() {
            let pages = record.pages_of(self.closed.len(list));
            if list == first || pages.is_zero() {
                continue;
            }
            // Of a list that is not active these are all of its pops.
            let pops = record.pops.load(Relaxed) as u8;
            let before = record.overflows_idle.load(Relaxed);
            let overflows = match record.pops_seen.load(Relaxed) == pops {
                true => before.saturating_add(1),
                false => 0,
            };
            record.pops_seen.store(pops, Relaxed);
            record.overflows_idle.store(overflows, Relaxed);
            if overflows >= IDLE_OVERFLOWS && pages >= most {
                (most, idle) = (pages, Some(list));
            }
        }
        idle
    }

    /// Leaves the `blocks` coldest blocks of a list. `false`: the depot has no room for them.
    fn put_magazine(&mut self, depot: &Depot, list: usize, blocks: u32) -> bool {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let record = &pcp.lists[list];
        let Some(mut magazine) =
            depot.reserve(&mut self.closed, ops.on.slots, record.pages_of(blocks))
        else {
            return false;
        };
        let (cached, word) = (record.cached, depot_word(record).0);
        let slots = self.closed.frames(list).unwrap_or_default();
        let (rows, rest) = slots[..slots.len().min(blocks as usize)].as_chunks::<RUN>();
        let cells = ops.on.words;
        // Each word changes before the next is looked at: two copies of one page may be here.
        let claim = |slot: &AtomicU32| {
            let cell = ops.on.word(slot.load(Relaxed));
            let is_cached = cell.load(Relaxed) == cached;
            if is_cached {
                cell.store(word, Relaxed);
            }
            is_cached
        };
        let one = |slot: &AtomicU32, magazine: &mut Magazine<'_>| match claim(slot) {
            true => magazine.give(slot.load(Relaxed)),
            // A stray copy (PCP-3).
            false => _ = pcp.events.double_frees.fetch_add(1, Relaxed),
        };
        for slots in rows {
            match words_of(slots, cells).filter(|words| are_u64s(words, cached)) {
                Some(words) => {
                    store_u64s(words, word);
                    magazine.give_slots(slots);
                }
                None => match slots.iter().take_while(|slot| claim(slot)).count() {
                    RUN => magazine.give_slots(slots),
                    claimed => {
                        let (ours, others) = slots.split_at(claimed);
                        ours.iter().for_each(|slot| magazine.give(slot.load(Relaxed)));
                        others.iter().for_each(|slot| one(slot, &mut magazine));
                    }
                },
            }
        }
        rest.iter().for_each(|slot| one(slot, &mut magazine));
        self.closed.drop_cold(list, blocks);
        depot.put(&mut self.closed, magazine, list, record.order());
        pcp.events.depot_puts.fetch_add(1, Relaxed);
        pcp.events.depot_put_pages.fetch_add(record.pages_of(blocks).into(), Relaxed);
        ops.on.platform.cost(Step::Depot { zone: ops.zone.id, group: pcp.depot_cpu, blocks });
        true
    }

    /// Fills an empty list with a magazine of the depot. Returns its blocks.
    pub fn take_magazine(&mut self, list: usize) -> u32 {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let Some(depot) = ops.depot(pcp).filter(|depot| !depot.pages().is_zero()) else { return 0 };
        let record = &pcp.lists[list];
        let Some(magazine) = depot.take(&mut self.closed, ops.on.slots, list, record.order())
        else {
            return 0;
        };
        let word = depot_word(record).0;
        let frames = magazine.frames();
        let is_there = |slot: &AtomicU32| ops.on.word(slot.load(Relaxed)).load(Relaxed) == word;
        debug_assert!(frames.iter().all(is_there), "DEPOT-2");
        prefetch_words(ops.on.words, frames);
        let pages = record.pages_of(frames.len() as u32);
        let held = self.closed.count() + pages;
        // Lists of other nodes' CPUs may be shorter than those that fill a magazine.
        if frames.len() as u32 > record.cap || self.closed.cover(held) < held {
            depot.put(&mut self.closed, magazine, list, record.order());
            return 0;
        }
        let mut state = self.closed.state_without_factor();
        let (params, policy) = (pcp.params(&ops.on.fixed()), &ops.on.policy().pcp);
        let params = grown_for(params, policy, record.order(), state.high);
        tune::on_batch(&mut state, &params, ops.pressure(), pages.get());
        self.closed.set_state_without_factor(&state);
        let mut sink = self.closed.refill(list, frames.len() as u32);
        give_magazine(frames, (ops.on.words, record.cached), &mut sink);
        let blocks = frames.len() as u32;
        self.closed.refilled(list, sink);
        // What the next one needs comes while these are popped.
        prefetch_words(ops.on.words, depot.next_frames(ops.on.slots, list));
        depot.emptied(&mut self.closed, ops.on.slots, magazine);
        pcp.events.depot_takes.fetch_add(1, Relaxed);
        pcp.events.depot_taken_pages.fetch_add(record.pages_of(blocks).into(), Relaxed);
        ops.on.platform.cost(Step::Depot { zone: ops.zone.id, group: pcp.depot_cpu, blocks });
        blocks
    }

    /// Blocks of a list that make a magazine.
    fn magazine_blocks(&self, depot: &Depot, list: usize) -> u32 {
        let pcp = self.closed.pcp;
        pcp.lists[list].blocks_of(depot.magazine(pcp.batch_pages())).clamp(1, depot.blocks())
    }

    /// Blocks that go into one magazine where a batch of pages has fewer: an exchange for each
    /// would be most of what bursts of large blocks take. At most half of what the lists may hold,
    /// so that others can take them.
    fn large_blocks(&self, depot: &Depot, list: usize) -> u32 {
        let pcp = self.closed.pcp;
        let most = pcp.lists[list].blocks_of(PageCount::new(pcp.high_max.load(Relaxed) / 2));
        LARGE_BLOCKS.min(most).clamp(1, depot.blocks())
    }

    /// Fills an empty list and the depot with whole blocks of the buddy. The zone lock is held for
    /// a few blocks; their pieces are written without it. `wanted` blocks, and what makes no whole
    /// magazine, go to the list, the rest is left for the group. Returns the list's blocks; 0 where
    /// no depot is filled so, under pressure, and if there is nothing of the type.
    #[inline(never)]
    pub fn refill_whole(&mut self, (list, wanted): (usize, u32), want: Want) -> u32 {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let record = &pcp.lists[list];
        let bits = record.order_bits;
        let most = Order::new(u32::from(ops.on.policy().pcp.depot.block)).unwrap_or(Order::MAX);
        let depot = ops.depot(pcp).filter(|_| most > want.order && !ops.zone.has(PRESSED));
        let Some(depot) = depot else { return 0 };
        let blocks = self.magazine_blocks(depot, list);
        let Some(list_room) = record.cap.checked_sub(blocks) else { return 0 };
        let wanted = wanted.min(list_room + 1);
        // What makes no whole magazine goes to the list, too.
        let most_held = self.closed.count() + record.pages_of(wanted + blocks);
        if self.closed.cover(most_held) < most_held {
            return 0;
        }
        // After the first of refills in a row as much again for the group as for the list.
        let again = u32::from(wanted > blocks);
        let line = depot.magazine(pcp.batch_pages()).get().min(LINE_PAGES);
        let whole = (wanted << bits << again).next_power_of_two().max(line);
        let whole = whole.min(most.pages() as u32) >> bits;
        // Reserve room first: taken blocks need a place.
        let mut magazines: [Option<Magazine<'_>>; FILL_MAX] = [const { None }; FILL_MAX];
        let mut room = 0;
        for magazine in magazines.iter_mut().take((whole.saturating_sub(wanted) / blocks) as usize)
        {
            *magazine = depot.reserve(&mut self.closed, ops.on.slots, record.pages_of(blocks));
            if magazine.is_none() {
                break;
            }
            room += 1;
        }
        let asked = whole.max(wanted).min(wanted + (room + 1) * blocks - 1);
        let mut taken = Taken {
            firsts: [0; TAKEN_MAX],
            orders: [Order::ZERO; TAKEN_MAX],
            count: 0,
            pages: PageCount::ZERO,
        };
        self.take_whole((want, most), record.pages_of(asked), &mut taken);
        let got = record.blocks_of(taken.pages);
        let full = room.min(got.saturating_sub(wanted) / blocks);
        let mut pieces = taken.pieces(bits);
        let mut sink = self.closed.refill(list, got - full * blocks);
        let listed = sink.room();
        pieces.give(listed, (ops.on.words, record.cached), &mut sink);
        self.closed.refilled(list, sink);
        let word = depot_word(record).0;
        for (at, mut magazine) in magazines.iter_mut().map_while(Option::take).enumerate() {
            if at as u32 >= full {
                depot.emptied(&mut self.closed, ops.on.slots, magazine);
                continue;
            }
            pieces.give(blocks, (ops.on.words, word), &mut magazine);
            depot.put(&mut self.closed, magazine, list, record.order());
            ops.on.platform.cost(Step::Depot { zone: ops.zone.id, group: pcp.depot_cpu, blocks });
        }
        pcp.events.refills.fetch_add(u64::from(got > 0), Relaxed);
        pcp.events.depot_fill_pages.fetch_add(record.pages_of(full * blocks).into(), Relaxed);
        ops.on.platform.cost(Step::Split { blocks: got });
        ops.on.platform.cost(Step::Moved { zone: ops.zone.id, pages: record.pages_of(got).get() });
        listed
    }

    /// Takes whole blocks of the buddy.
    fn take_whole(&self, (want, most): (Want, Order), pages: PageCount, taken: &mut Taken) {
        let ops = self.ops;
        let diff = ops.on.free_diff(self.closed.pcp);
        let base = ops.zone.frame_base as u32;
        let request = (want.of_buddy(), most);
        let hold = ops.on.policy().pcp.hold_blocks() as usize;
        let (mut left, mut before) = (pages, 0);
        // Behind the first hold, the last pages of a line stay.
        while before < TAKEN_MAX && (before == 0 || left.get() >= LINE_PAGES) {
            let blocks = hold.min(TAKEN_MAX - before);
            let mut locked = ops.lock();
            let LockedZone { buddy, frames, .. } = &mut locked;
            buddy.take_blocks(frames, request, &ops.on.fallback(), (left, blocks), |idx, order| {
                (taken.firsts[taken.count], taken.orders[taken.count]) = (base + idx, order);
                taken.count += 1;
                taken.pages += PageCount::of_blocks(1, order);
            });
            let orders = taken.orders.get(before..taken.count).unwrap_or_default();
            // Most often several of one order come one after the other.
            for alike in orders.chunk_by(|one, next| one == next) {
                let pages = alike.first().map_or(0, |order| order.pages());
                locked.account(diff, -(pages as i64), alike.len() as u32);
            }
            drop(locked);
            if taken.count - before < hold {
                return;
            }
            before = taken.count;
            left = pages.saturating_sub(taken.pages);
        }
    }
}
