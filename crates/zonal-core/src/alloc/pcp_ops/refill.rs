//! Blocks out of a closed pcp: an empty list is filled, a popped block handed out (LB E.6).

use super::PcpOps;
use crate::alloc::zone_ops::Want;
use crate::buddy::Batch;
use crate::pcp::sink::Sink;
use crate::pcp::tune::{self, PcpParams};
use crate::platform::{Platform, Step};
use crate::policy::PcpPolicy;
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, PageCount, Pfn};
use crate::zone::state::LockedZone;

/// Parameters of a refill with blocks of an order, or of a free of one: `high` grows no further
/// than what the policy has for it, and sinks no faster than otherwise.
pub(super) fn grown_for(
    params: PcpParams,
    policy: &PcpPolicy,
    order: Order,
    high: u32,
) -> PcpParams {
    match policy.high_most(params.batch, order) {
        Some(most) => PcpParams { high_max: params.high_max.min(most.max(high)), ..params },
        None => params,
    }
}

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
                self.missed();
                return None;
            }
            let frame = self.closed.pop(list, true)?;
            if let Some(pfn) = self.hand_out(list, frame) {
                self.stay_ready();
                return Some(pfn);
            }
        }
    }

    /// Nothing filled a list that an allocation found empty.
    #[inline(never)]
    fn missed(&mut self) {
        let mut state = self.closed.state_without_factor();
        tune::on_take(&mut state);
        self.closed.set_state_without_factor(&state);
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
        let params = grown_for(ops.params(closed.pcp), &ops.on.policy().pcp, order, state.high);
        let wanted = tune::nr_alloc(&mut state, &params, ops.pressure(), order);
        closed.set_state_behind(&state, pushes);
        let (count, high) = (closed.count(), closed.high());
        let covered =
            self.cover(count.saturating_add(PageCount::of_blocks(wanted, order)).max(high));
        wanted.min(covered.saturating_sub(count).blocks(order))
    }

    /// Fills an empty list from the depot, or from the buddy (LB E.6). Returns the blocks got.
    #[inline]
    pub fn refill(&mut self, list: usize, want: Want) -> u32 {
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
        self.refill_here((list, wanted), want)
    }

    /// Fills an empty list from the buddy (LB E.6). Returns the blocks got.
    #[inline(never)]
    fn refill_here(&mut self, (list, wanted): (usize, u32), want: Want) -> u32 {
        let ops = self.ops;
        let mut sink = self.closed.refill(list, wanted);
        let mut batch = Batch::new(want.of_buddy(), &ops.on.fallback());
        let most = ops.on.policy().pcp.hold_blocks();
        loop {
            let asked = sink.room().min(most);
            // The next hold knows that no claim worked: each one that is tried boosts the marks.
            batch.ask(asked);
            let some = self.refill_part((list, &mut sink), want, &mut batch);
            if some < asked || sink.room() == 0 {
                break;
            }
        }
        let got = sink.got();
        self.closed.refilled(list, sink);
        ops.on.platform.cost(Step::Moved { zone: ops.zone.id, pages: got << want.order.get() });
        got
    }

    /// One hold of the zone lock of [`refill_here`](Self::refill_here).
    #[inline]
    fn refill_part(
        &self,
        (list, sink): (usize, &mut Sink<'_>),
        want: Want,
        batch: &mut Batch,
    ) -> u32 {
        let mut locked = self.ops.lock();
        let LockedZone { buddy, frames, .. } = &mut locked;
        let mut boosts = 0;
        let some = buddy.take_part(
            frames,
            (batch, self.ops.on.fallback()),
            &mut self.ops.on_fallback(&mut boosts),
            |idx, pieces| self.give_run(list, sink, idx, pieces),
        );
        let pcp = self.closed.pcp;
        let pages = pcp.lists[list].order().pages();
        locked.account(self.ops.on.free_diff(pcp), -(pages as i64), some);
        self.ops.boost(boosts, want.flags);
        pcp.events.refills.fetch_add(u64::from(some > 0), Relaxed);
        some
    }

    /// Gives blocks of the zone that follow one another to a list.
    #[inline(never)]
    fn give_run(&self, list: usize, sink: &mut Sink<'_>, idx: u32, pieces: u32) {
        let record = &self.closed.pcp.lists[list];
        let first = self.ops.zone.frame_base as u32 + idx;
        for frame in (0..pieces).map(|i| first + (i << record.order_bits)) {
            self.ops.on.word(frame).store(record.cached, Relaxed);
            sink.give(frame);
        }
    }
}
