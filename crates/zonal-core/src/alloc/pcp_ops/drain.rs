//! Blocks onto a closed pcp, and from it back to its zone (LB E.7 to E.9).

use super::PcpOps;
use super::depot::row_words;
use super::refill::grown_for;
use super::run::RUN;
use crate::buddy::FreeFlags;
use crate::frame::PageWord;
use crate::lanes::{WIDE, are_row, are_u64s, store_u64s};
use crate::pcp::drain::Walk;
use crate::pcp::tune::{self, BulkFree, PcpState};
use crate::platform::{Platform, Step};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{Order, PAGEBLOCK_ORDER, PageCount};
use crate::zone::state::LockedZone;

/// A drain: what it goes through, and what is left to do in this hold of the zone lock. In memory,
/// so that the frames above the buddy's own are small.
struct Drain<'a> {
    walk: Walk,
    /// Pages that are enough.
    pages: PageCount,
    /// Blocks that may still go.
    blocks: u32,
    /// Pages that went.
    freed: PageCount,
    /// The list that is drained.
    list: u8,
    /// Its blocks that may go, coldest first.
    slots: &'a [AtomicU32],
    /// Those of them that were taken; until they are dropped from the list they are stray copies
    /// (PCP-3).
    taken: u32,
    /// Those of them that the buddy took back.
    counted: u32,
    /// The next block: its first frame, its order, and the blocks of the list that it is made of,
    /// as a power of two.
    frame: u32,
    whole: Order,
    run: u8,
}

impl Drain<'_> {
    #[inline]
    fn goes_on(&self) -> bool {
        self.freed < self.pages && self.blocks > 0
    }
}

impl<'a, P: Platform> PcpOps<'_, 'a, P> {
    /// Takes back a block whose word the caller has claimed. `false`: the list has no room for it,
    /// and its word names no CPU, so that nobody frees it once more before the caller does.
    #[inline(never)]
    pub fn push_claimed(&mut self, list: usize, frame: u32, order: Order) -> bool {
        let record = &self.closed.pcp.lists[list];
        let word = self.ops.on.word(frame);
        // Relaxed: the word is the caller's between the claim and the push.
        word.store(record.cached, Relaxed);
        let pushed = self.push_block(list, frame, order);
        if !pushed {
            word.store(PageWord::moving(order, record.migratetype(), None).0, Relaxed);
        }
        pushed
    }

    /// Pushes a block whose word says it is on this pcp, and drains the excess. `false`: the stack
    /// is full and could not be drained, nothing was done.
    #[inline]
    fn push_block(&mut self, list: usize, frame: u32, order: Order) -> bool {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let pages = PageCount::of_blocks(1, order);
        let is_covered = self.covers(pages);
        // A push changes nothing of the state but `count`.
        let state = match is_covered && self.closed.push(list, frame) {
            true => Some(self.closed.state_without_factor()),
            false => self.push_short(list, frame, (pages, is_covered)),
        };
        let Some(mut state) = state else { return false };
        state.count = (self.closed.count() - pages).get();
        // Read here, where they are used: they are many.
        let params = ops.params(pcp);
        let params = grown_for(params, &ops.on.policy().pcp, order, state.high);
        let bulk = tune::commit_free(&mut state, &params, ops.pressure(), order);
        self.closed.set_state_without_factor(&state);
        if let Some(bulk) = bulk {
            pcp.events.forced.fetch_add(u64::from(bulk.forced), Relaxed);
            self.give_back(bulk, list);
            ops.clear_below_high();
        }
        // So that pushes to come need no decision.
        self.cover(self.closed.high());
        true
    }

    /// Whether the zone's budget covers so many pages more.
    #[inline]
    fn covers(&mut self, pages: PageCount) -> bool {
        let all = self.closed.count() + pages;
        self.cover(all) >= all
    }

    /// The push of a block that the zone's budget does not cover, or onto a stack that is full:
    /// something is drained first. Returns the state before that; `None`: in vain.
    #[cold]
    #[inline(never)]
    fn push_short(
        &mut self,
        list: usize,
        frame: u32,
        (pages, is_covered): (PageCount, bool),
    ) -> Option<PcpState> {
        let pcp = self.closed.pcp;
        let before = self.closed.state_without_factor();
        if !is_covered {
            // The budget is used up: what others may need more goes.
            let bulk = BulkFree { pages: pcp.batch_pages().max(pages), forced: false };
            self.give_back(bulk, list);
            if !self.covers(pages) {
                return None;
            }
        }
        if is_covered || !self.closed.push(list, frame) {
            pcp.events.overflows.fetch_add(1, Relaxed);
            self.drain_pages(PageCount::new(self.ops.params(pcp).bulk_max()), list);
            if !self.closed.push(list, frame) {
                return None;
            }
        }
        Some(before)
    }

    /// One bulk free: at least `pages` base pages (whole blocks), of each list the coldest first.
    /// `first` is the list freed to; which one is next is the policy's choice (LB E.8). Returns the
    /// pages freed.
    pub fn drain_pages(&mut self, pages: PageCount, first: usize) -> PageCount {
        let ops = self.ops;
        let mut left = pages.min(self.closed.count());
        let walk = Walk::new(ops.on.policy().pcp.drain.order, ops.on.map.len(), first);
        let mut drain = Drain {
            walk,
            pages: PageCount::ZERO,
            blocks: 0,
            freed: PageCount::ZERO,
            list: 0,
            slots: &[],
            taken: 0,
            counted: 0,
            frame: 0,
            whole: Order::ZERO,
            run: 0,
        };
        let mut freed = PageCount::ZERO;
        while !left.is_zero() {
            self.begin_hold(&mut drain, left);
            let mut locked = ops.lock();
            while self.next_list(&mut drain) {
                while self.next_block(&mut drain) {
                    let idx = drain.frame - ops.zone.frame_base as u32;
                    let LockedZone { buddy, frames, .. } = &mut locked;
                    if buddy.frees(frames, idx, drain.whole, FreeFlags::default()) {
                        drain.counted += 1 << drain.run;
                    } else {
                        self.closed.pcp.events.double_frees.fetch_add(1, Relaxed);
                    }
                }
                self.end_list(&mut drain, &mut locked);
            }
            drop(locked);
            if drain.freed.is_zero() {
                break;
            }
            freed += drain.freed;
            let held = ops.on.policy().pcp.held_pages(drain.pages, drain.freed);
            left = left.saturating_sub(held).min(self.closed.count());
        }
        ops.on.platform.cost(Step::Moved { zone: ops.zone.id, pages: freed.get() });
        freed
    }

    /// How much goes in the next hold of the zone lock, of `left` pages.
    #[inline(always)]
    fn begin_hold(&self, drain: &mut Drain<'_>, left: PageCount) {
        let policy = &self.ops.on.policy().pcp;
        drain.pages = policy.hold_pages(left, &self.ops.params(self.closed.pcp));
        drain.blocks = policy.hold_blocks();
        drain.freed = PageCount::ZERO;
        self.closed.pcp.events.drains.fetch_add(1, Relaxed);
    }

    /// Books what went of a list.
    #[inline(never)]
    fn end_list(&mut self, drain: &mut Drain<'_>, locked: &mut LockedZone<'_, P>) {
        let list = usize::from(drain.list);
        if drain.counted > 0 {
            let order = self.closed.pcp.lists[list].order();
            let diff = self.ops.on.free_diff(self.closed.pcp);
            locked.account(diff, order.pages() as i64, drain.counted);
        }
        self.closed.drop_cold(list, drain.taken);
        drain.walk.took(drain.taken);
    }

    /// The next list to drain, in a hold. `false`: the hold is over.
    #[inline(always)]
    fn next_list(&self, drain: &mut Drain<'a>) -> bool {
        if !drain.goes_on() {
            return false;
        }
        let next = drain.walk.next(drain.pages - drain.freed, |list| self.closed.len(list));
        let Some((list, share)) = next else { return false };
        let slots = self.closed.frames(list).unwrap_or_default();
        drain.list = list as u8;
        drain.slots = &slots[..slots.len().min(share as usize)];
        (drain.taken, drain.counted) = (0, 0);
        !drain.slots.is_empty()
    }

    /// The next block of the list, as long as the hold goes on: the largest that its coldest ones
    /// form, with the word of a cached block.
    #[inline(never)]
    fn next_block(&self, drain: &mut Drain<'_>) -> bool {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let record = &pcp.lists[usize::from(drain.list)];
        let order = record.order();
        while drain.goes_on()
            && let Some(slots) = drain.slots.get(drain.taken as usize..)
            && let Some(first) = slots.first()
        {
            let (frame, run) = match order {
                Order::ZERO => {
                    let most = (drain.pages - drain.freed).blocks(order);
                    self.cold_run(slots, record.cached, most)
                }
                _ => (first.load(Relaxed), 0),
            };
            drain.taken += 1 << run;
            // Pages that are freed as one block are one.
            drain.blocks -= 1;
            drain.freed += PageCount::of_blocks(1 << run, order);
            if ops.on.word(frame).load(Relaxed) != record.cached {
                pcp.events.double_frees.fetch_add(1, Relaxed);
                continue;
            }
            if run > 0 {
                self.join_words(frame, run);
            }
            (drain.frame, drain.run) = (frame, run as u8);
            drain.whole = Order::new(order.get() + run).unwrap_or(Order::MAX);
            return true;
        }
        false
    }

    /// The largest block that the coldest pages form, all of them as they should be: its first
    /// frame, and `k` if the first `2^k` slots hold its pages in ascending or descending order.
    ///
    /// Freed one by one, each of them but the last finds its buddy on the far side still held, so
    /// it only joins the half that is there; the last one completes the block. Free lists, order of
    /// lists included, end as if the block had been freed at once, which is what the caller does.
    #[inline]
    fn cold_run(&self, slots: &[AtomicU32], cached: u64, most: u32) -> (u32, u32) {
        let on = self.ops.on;
        let first = slots[0].load(Relaxed);
        let up = slots.get(1).is_none_or(|next| next.load(Relaxed) > first);
        let pfn = self.ops.zone.page(first).0;
        let most = slots.len().min(most as usize).ilog2();
        // The coldest page is the block's first, or its last.
        let aligned = if up { pfn.trailing_zeros() } else { pfn.trailing_ones() };
        let slots = &slots[..1 << aligned.min(most).min(PAGEBLOCK_ORDER.get())];
        let frame = |at: u32| if up { first.wrapping_add(at) } else { first.wrapping_sub(at) };
        let mut run = 0;
        let rows = if WIDE { slots.as_chunks::<RUN>().0 } else { &[] };
        for slots in rows {
            let words = row_words(on.words, frame(run), up);
            let follows = are_row(slots, frame(run), up)
                && words.is_some_and(|words| are_u64s(words, cached));
            if !follows {
                break;
            }
            run += RUN as u32;
        }
        if run == 0 {
            let follows = |slot: &&AtomicU32| {
                let next = slot.load(Relaxed);
                let follows = next == frame(run) && on.word(next).load(Relaxed) == cached;
                run += 1;
                follows
            };
            let most = if WIDE { RUN } else { slots.len() };
            run = slots.iter().take(most).take_while(follows).count() as u32;
        }
        let run = run.max(1).ilog2();
        (first.min(frame((1 << run) - 1)), run)
    }

    /// Makes the words of `2^run` cached pages those of one cached block.
    #[inline]
    fn join_words(&self, frame: u32, run: u32) {
        let head = PageWord(self.closed.pcp.lists[0].cached).with_order(run);
        let words = &self.ops.on.words[frame as usize..(frame as usize) + (1 << run)];
        let (runs, rest) = if WIDE { words.as_chunks::<RUN>() } else { (&[][..], words) };
        runs.iter().for_each(|words| store_u64s(words, PageWord::NONE.0));
        rest.iter().for_each(|word| word.store(PageWord::NONE.0, Relaxed));
        words[0].store(head.0, Relaxed);
    }

    /// Empties the pcp. Returns the pages moved.
    #[inline]
    pub fn drain(&mut self) -> u64 {
        let mut pages = 0;
        while !self.closed.is_empty() {
            pages += u64::from(self.drain_pages(self.chunk(), 0));
        }
        self.closed.release(PageCount::ZERO);
        pages
    }

    /// Pages of the next bulk free, where all go.
    #[inline(never)]
    fn chunk(&self) -> PageCount {
        let params = self.closed.pcp.params(&self.ops.on.fixed());
        self.ops.on.policy().pcp.drain.all.pages(self.closed.count(), &params)
    }

    /// Drains what a remote zone's store gives back when it was not used for three refreshes
    /// (LB F.4).
    pub fn drain_expired(&mut self) {
        let params = self.closed.pcp.params(&self.ops.on.fixed());
        let pages = tune::expired_pages(&self.closed.state_without_factor(), &params);
        self.drain_pages(pages, 0);
    }

    /// LB E.9 `decay`; returns the grant beyond `high` too. Returns whether there is more to decay.
    pub fn decay(&mut self) -> bool {
        let ops = self.ops;
        let pcp = self.closed.pcp;
        let mut state = self.closed.state_without_factor();
        let params = pcp.params(&ops.on.fixed());
        let decay = tune::decay(&mut state, &params);
        if ops.zone.budget.is_short(pcp.batch_pages()) {
            state.high = tune::halved(&state, &params);
        }
        self.closed.set_state_without_factor(&state);
        let mut left = decay.pages;
        while !left.is_zero() {
            let some = ops.on.policy().pcp.drain.decay.pages(left, &pcp.params(&ops.on.fixed()));
            self.drain_pages(some, 0);
            left -= some;
        }
        let keep = self.closed.high();
        self.closed.release(keep);
        decay.still_decaying
    }
}
