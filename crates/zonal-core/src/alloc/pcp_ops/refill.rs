//! Blocks out of a closed pcp: an empty list is filled, a popped block handed out (LB E.6).

use super::PcpOps;
use crate::alloc::zone_ops::Want;
use crate::buddy::Mode;
use crate::pcp::tune;
use crate::platform::{Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, PageCount, Pfn};
use crate::zone::state::LockedZone;

impl<P: Platform> PcpOps<'_, '_, P> {
    /// A block of `list`, or of a magazine of the depot.
    pub fn take_cached(mut self, list: usize) -> Option<Pfn> {
        if self.closed.len(list) == 0 && self.take_magazine(list) == 0 {
            return None;
        }
        let frame = self.closed.pop(list, true)?;
        self.stay_ready();
        self.hand_out(list, frame)
    }

    /// A block of `list`, which is filled if it is empty.
    pub fn take(&mut self, list: usize, want: Want) -> Option<Pfn> {
        loop {
            if self.closed.len(list) == 0 && self.refill(list, want) == 0 {
                let mut state = self.closed.state_without_factor();
                tune::on_take(&mut state);
                self.closed.set_state_without_factor(&state);
                return None;
            }
            let frame = self.closed.pop(list, true)?;
            if let Some(pfn) = self.hand_out(list, frame) {
                self.stay_ready();
                return Some(pfn);
            }
        }
    }

    /// Marks a popped frame as handed out. `None`: a racing double free had put it on two stacks,
    /// and it is the other copy that counts (PCP-3).
    #[inline]
    pub fn hand_out(&self, list: usize, frame: u32) -> Option<Pfn> {
        let word = self.ops.on.word(frame);
        let pcp = self.closed.pcp;
        let record = &pcp.lists[list];
        if word.load(Relaxed) != record.cached {
            pcp.events.double_frees.fetch_add(1, Relaxed);
            return None;
        }
        word.store(record.allocated, Relaxed);
        Some(self.ops.zone.page(frame))
    }

    /// How many blocks an empty list is to get (LB E.6), as far as the zone's budget covers them.
    /// It has a frame of its own: who asks goes on to take them.
    #[inline(never)]
    fn wanted(&mut self, order: Order) -> u32 {
        let (ops, closed) = (self.ops, &mut self.closed);
        let pushes = closed.pushes();
        let mut state = closed.state_behind(pushes);
        let wanted = tune::nr_alloc(&mut state, &ops.params(closed.pcp), ops.pressure(), order);
        closed.set_state_behind(&state, pushes);
        let pages = closed.count().saturating_add(PageCount::of_blocks(wanted, order));
        let covered = closed.cover(pages.max(closed.high()));
        wanted.min(covered.saturating_sub(closed.count()).blocks(order))
    }

    /// Fills an empty list from the depot, or from the buddy (LB E.6). Returns the blocks got.
    #[inline(never)]
    pub fn refill(&mut self, list: usize, want: Want) -> u32 {
        let ops = self.ops;
        let (zone, pcp) = (ops.zone, self.closed.pcp);
        let taken = self.take_magazine(list);
        if taken > 0 {
            return taken;
        }
        let wanted = self.wanted(want.order);
        if wanted == 0 {
            return 0;
        }
        let got = self.refill_whole((list, wanted), want);
        if got > 0 {
            return got;
        }
        let cached = pcp.lists[list].cached;
        let words = &ops.on.words[zone.frame_base..];
        let mut sink = self.closed.refill(list, wanted);
        let base = zone.frame_base as u32;
        let most = ops.on.policy().pcp.hold_blocks();
        let (mut got, mut mode) = (0, Mode::default());
        loop {
            let asked = sink.room().min(most);
            let mut locked = ops.lock();
            let LockedZone { buddy, frames, .. } = &mut locked;
            let mut boosts = 0;
            // The next hold knows that no claim worked: each one that is tried boosts the marks.
            let some = buddy.take_part(
                frames,
                want.of_buddy(),
                (asked, &mut mode),
                &ops.on.fallback(),
                &mut |event| ops.on_fallback(event, &mut boosts),
                |idx| {
                    words[idx as usize].store(cached, Relaxed);
                    sink.give(base + idx);
                },
            );
            locked.account(ops.on.free_diff(pcp), -(want.order.pages() as i64), some);
            ops.boost(boosts, want.flags);
            got += some;
            pcp.events.refills.fetch_add(u64::from(some > 0), Relaxed);
            if some < asked || sink.room() == 0 {
                break;
            }
        }
        self.closed.refilled(list, sink);
        ops.on.platform.cost(Step::Moved { zone: zone.id, pages: got << want.order.get() });
        got
    }
}
