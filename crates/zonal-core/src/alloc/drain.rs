//! Per-CPU stores back to their zones (LB E.8, E.9, F.4).

use super::Allocator;
use super::scan::Context;
use crate::buddy::FreeFlags;
use crate::frame::PageWord;
use crate::gfp::AllocFlags;
use crate::pcp::closed::Closed;
use crate::pcp::drain::Walk;
use crate::pcp::store::Pcp;
use crate::pcp::tune;
use crate::platform::{Platform, Step};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, Order, PAGEBLOCK_ORDER, Pfn, ZoneId, ZoneKind};
use crate::zone::state::{BELOW_HIGH, LockedZone, Zone};
use crate::zone::watermark::Mark;

/// Refreshes that a remote zone's store survives without use (LB F.4).
const EXPIRE_TICKS: u8 = 3;
/// Waits of a request that must not wait for a store that somebody has closed: microseconds, where
/// each gives the processor to others and nobody wants it.
const CLOSED_WAITS_MAX: u32 = 16;

impl<'a, P: Platform> Allocator<'a, P> {
    /// One bulk free: at least `pages` base pages (whole blocks), of each list the coldest first.
    /// `first` is the list freed to; which one is next is the policy's choice (LB E.8). Returns the
    /// pages freed.
    pub(super) fn drain_pages(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        pages: u32,
        first: usize,
    ) -> u32 {
        let mut left = pages.min(closed.count());
        let policy = &self.policy.pcp.drain;
        let params = self.params(zone, closed.pcp);
        let mut walk = Walk::new(policy.order, self.map.len(), first);
        let mut freed = 0;
        while left > 0 {
            let hold = policy.bulk.pages(left, &params);
            let done = self.drain_hold(zone, closed, hold, &mut walk);
            if done == 0 {
                break;
            }
            freed += done;
            left = left.saturating_sub(done);
        }
        self.platform.cost(Step::Moved { zone: zone.id, pages: freed });
        freed
    }

    /// One hold of the zone lock of [`drain_pages`](Self::drain_pages).
    fn drain_hold(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        pages: u32,
        walk: &mut Walk,
    ) -> u32 {
        let pcp = closed.pcp;
        pcp.events.drains.fetch_add(1, Relaxed);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let mut freed = 0;
        while freed < pages {
            let Some((list, most)) = walk.next(pages - freed, |list| closed.len(list)) else {
                break;
            };
            let slots = closed.frames(list).unwrap_or_default();
            if slots.is_empty() {
                break;
            }
            let record = &pcp.lists[list];
            let order = record.order();
            let run = match order {
                Order::ZERO => {
                    let most = most.min(pages - freed);
                    self.cold_run(zone, slots, record.cached, most)
                }
                _ => 0,
            };
            let frame = slots[0].load(Relaxed);
            closed.drop_cold(list, 1 << run);
            walk.took(1 << run);
            freed += (order.pages() << run) as u32;
            if self.words[frame as usize].load(Relaxed) != record.cached {
                pcp.events.double_frees.fetch_add(1, Relaxed);
                continue;
            }
            if run > 0 {
                self.join_words(zone, pcp, frame, run);
            }
            let whole = Order::new(order.get() + run).unwrap_or(Order::MAX);
            let idx = frame - zone.frame_base as u32;
            let LockedZone { buddy, frames, .. } = &mut locked;
            if buddy.free_block(frames, idx, whole, FreeFlags::default()).is_ok() {
                locked.account(self.free_diff(pcp), order.pages() as i64, 1 << run);
            } else {
                pcp.events.double_frees.fetch_add(1, Relaxed);
            }
        }
        freed
    }

    /// How large a block the coldest pages form: `k` if the first `2^k` slots hold the pages of an
    /// aligned block in ascending order, all as they should be.
    ///
    /// Freed one by one, each of them but the last finds its upper buddy still held, so it only
    /// joins the lower half that is there; the last one completes the block. Free lists, order of
    /// lists included, end as if the block had been freed at once, which is what the caller does.
    fn cold_run(&self, zone: &Zone, slots: &[AtomicU32], cached: u64, pages: u32) -> u32 {
        let first = slots[0].load(Relaxed);
        let pfn = zone.start_pfn + (u64::from(first) - zone.frame_base as u64);
        let most = slots.len().min(pages as usize).ilog2();
        let order = pfn.trailing_zeros().min(most).min(PAGEBLOCK_ORDER.get());
        let follows = |(index, slot): &(usize, &AtomicU32)| {
            let frame = slot.load(Relaxed);
            frame == first + *index as u32 && self.words[frame as usize].load(Relaxed) == cached
        };
        let run = slots[..1 << order].iter().enumerate().take_while(follows).count();
        run.max(1).ilog2()
    }

    /// Makes the words of `2^run` cached pages those of one cached block.
    fn join_words(&self, zone: &Zone, pcp: &Pcp, frame: u32, run: u32) {
        let record = &pcp.lists[0];
        let whole = Order::new(run).unwrap_or(Order::MAX);
        let store = self.store_id(zone.id, pcp.cpu());
        let head = PageWord::cached(whole, record.migratetype(), store);
        let words = &self.words[frame as usize..(frame as usize) + (1 << run)];
        words[1..].iter().for_each(|word| word.store(PageWord::NONE.0, Relaxed));
        words[0].store(head.0, Relaxed);
    }

    /// After pages went back: the zone may be above its high mark again (LB E.7).
    pub(super) fn clear_below_high(&self, zone: &Zone) {
        if !zone.has(BELOW_HIGH) {
            return;
        }
        let snapshot = zone.snapshot(ZoneKind::Movable);
        if snapshot.ok(Order::ZERO, zone.marks().mark(Mark::High), AllocFlags::WMARK_MIN) {
            zone.clear_flag(BELOW_HIGH);
            zone.refresh_fast();
        }
    }

    /// Empties every store and depot of every zone into the buddies. Returns the pages moved. Waits
    /// for stores that somebody else has closed.
    pub fn drain_all(&self) -> u64 {
        self.events.drains_all.fetch_add(1, Relaxed);
        let cpus = || (0..self.cpus()).map(|cpu| CpuId(cpu as u32));
        if self.policy.pcp.drain.remote.queues_work() {
            let holds = |cpu| self.zones.iter().any(|zone| self.holds_pages(zone.id, cpu));
            let queue = |cpu| self.platform.cost(Step::DrainWork(cpu));
            cpus().filter(|cpu| holds(*cpu)).for_each(queue);
        }
        let zones = self.zones.iter();
        let stores = |zone| cpus().map(|cpu| self.drain_stores(zone, cpu)).sum::<u64>();
        zones.map(|zone| stores(zone) + self.drain_depots(zone)).sum()
    }

    /// Empties the stores of a request's zones. A store that somebody has closed is waited for, but
    /// not for long: its owner may have lost the CPU. Returns the pages moved.
    pub(super) fn drain_open(&self, ctx: &Context<'a>) -> u64 {
        self.events.drains_all.fetch_add(1, Relaxed);
        let mut pages = 0;
        for zone in self.allowed(ctx) {
            for pcp in self.each_cpu().flat_map(|cpu| self.stores(zone.id, cpu)) {
                let tries = (0..CLOSED_WAITS_MAX).take_while(|_| !pcp.seems_empty());
                let closed = tries.map(|_| {
                    let closed = pcp.try_close(&self.platform, zone, self.slots);
                    closed.or_else(|| {
                        self.platform.relax();
                        None
                    })
                });
                pages += closed.flatten().next().map_or(0, |store| self.drain_closed(zone, store));
            }
        }
        pages
    }

    /// Empties one store. Returns the pages moved; 0 also if the home cannot fence that CPU.
    pub fn drain(&self, zone: ZoneId, cpu: CpuId) -> u64 {
        if self.policy.pcp.drain.remote.queues_work() && self.holds_pages(zone, cpu) {
            self.platform.cost(Step::DrainWork(cpu));
        }
        self.drain_stores(self.zone(zone), cpu)
    }

    fn holds_pages(&self, zone: ZoneId, cpu: CpuId) -> bool {
        self.stores(zone, cpu).any(|pcp| !pcp.seems_empty())
    }

    fn drain_stores(&self, zone: &'a Zone, cpu: CpuId) -> u64 {
        self.stores(zone.id, cpu).map(|pcp| self.drain_store(zone, pcp)).sum()
    }

    fn drain_store(&self, zone: &'a Zone, pcp: &'a Pcp) -> u64 {
        // Pages may be on their way to a store that its owner has closed.
        if pcp.seems_empty() {
            return 0;
        }
        let remote = !self.policy.pcp.drain.remote.queues_work();
        if remote && pcp.cpu != self.platform.cpu() {
            self.platform.cost(Step::DrainRemote(zone.id, pcp.cpu));
        }
        match pcp.close(&self.platform, zone, self.slots) {
            Some(closed) => self.drain_closed(zone, closed),
            None => 0,
        }
    }

    fn drain_closed(&self, zone: &'a Zone, mut closed: Closed<'a>) -> u64 {
        let mut pages = 0;
        let chunk = self.policy.pcp.drain.all;
        let params = closed.pcp.params(&self.fixed);
        while !closed.is_empty() {
            let some = chunk.pages(closed.count(), &params);
            pages += u64::from(self.drain_pages(zone, &mut closed, some, 0));
        }
        closed.release(0);
        drop(closed);
        self.clear_below_high(zone);
        pages
    }

    /// Pages of a remote zone that was just used stay for three refreshes more.
    pub(super) fn stay(&self, zone: &Zone, cpu: CpuId) {
        self.stores(zone.id, cpu).for_each(|pcp| pcp.expire.store(EXPIRE_TICKS, Relaxed));
    }

    /// The part of a refresh that is about a CPU's lists of one zone (LB F.4, E.9). Returns whether
    /// anything changed.
    pub(super) fn refresh_lists(&self, zone: &'a Zone, cpu: CpuId) -> bool {
        self.stores(zone.id, cpu)
            .fold(false, |changed, pcp| changed | self.refresh_store(zone, pcp))
            | self.refresh_depot(zone, cpu)
    }

    fn refresh_store(&self, zone: &'a Zone, pcp: &'a Pcp) -> bool {
        let mut changed = false;
        let remote = zone.node != self.node_of(pcp.cpu);
        let idle = pcp.count() == 0;
        if pcp.high() > pcp.high_min.load(Relaxed) || pcp.count() > pcp.high() {
            changed |= self.decay(zone, pcp);
        }
        if !remote {
            pcp.expire.store(0, Relaxed);
            return changed;
        }
        if idle {
            return changed;
        }
        // Linux waits for a counter to move before it counts down. There each page freed moves
        // some counter; here a store that only got pages by frees moves none.
        let expire = match pcp.expire.load(Relaxed) {
            0 => EXPIRE_TICKS,
            expire => expire,
        };
        pcp.expire.store(expire - 1, Relaxed);
        if expire > 1 {
            return true;
        }
        if let Some(mut closed) = pcp.close(&self.platform, zone, self.slots) {
            let pages =
                tune::expired_pages(&closed.state_without_factor(), &pcp.params(&self.fixed));
            self.drain_pages(zone, &mut closed, pages, 0);
        }
        true
    }

    /// LB E.9 `decay`; what the lists were granted beyond `high` goes back too.
    fn decay(&self, zone: &'a Zone, pcp: &'a Pcp) -> bool {
        let Some(mut closed) = pcp.close(&self.platform, zone, self.slots) else { return false };
        let mut state = closed.state_without_factor();
        let params = pcp.params(&self.fixed);
        let decay = tune::decay(&mut state, &params);
        if zone.budget.is_short(params.batch) {
            state.high = tune::halved(&state, &params);
        }
        closed.set_state_without_factor(&state);
        let mut left = decay.pages;
        while left > 0 {
            let some = self.policy.pcp.drain.decay.pages(left, &pcp.params(&self.fixed));
            self.drain_pages(zone, &mut closed, some, 0);
            left -= some;
        }
        let keep = closed.high();
        closed.release(keep);
        decay.still_decaying
    }

    /// Takes a free block out of a zone's buddy, whatever the watermarks say, for a moment in which
    /// nobody may see it. `None` if there is none of this order. Requests that find nothing else
    /// wait for [`restore_block`](Self::restore_block): it must follow soon.
    pub fn isolate_block(&self, zone: ZoneId, order: Order) -> Option<Pfn> {
        let zone = self.zone(zone);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        let has = |mt: &Migratetype| buddy.nonempty_orders(*mt) & (1 << order.get()) != 0;
        let mt = types.into_iter().find(has)?;
        let idx = buddy.take_smallest(frames, order, mt)?;
        let cpu = self.platform.cpu();
        frames.store(idx, PageWord::allocated(order, mt, self.store_id(zone.id, cpu)));
        let pcp = self.pcp(zone.id, cpu);
        let pfn = frames.pfn(idx);
        locked.account(&pcp.free_diff, -(order.pages() as i64), 1);
        // Relaxed: under the zone lock, so who finds the block missing finds it counted.
        self.events.isolated.fetch_add(1, Relaxed);
        Some(pfn)
    }

    /// Puts back what [`isolate_block`](Self::isolate_block) took, at the end of its list.
    pub fn restore_block(&self, zone: ZoneId, pfn: Pfn, order: Order) {
        let zone = self.zone(zone);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let Some(idx) = frames.index(pfn) else { return };
        if buddy.free_block(frames, idx, order, FreeFlags { to_tail: true }).is_ok() {
            let pcp = self.pcp(zone.id, self.platform.cpu());
            locked.account(&pcp.free_diff, order.pages() as i64, 1);
        }
        // Relaxed: as above.
        self.events.isolated.fetch_sub(1, Relaxed);
    }

    /// Closes every store and takes every zone lock, handing each to `keep`. Nothing moves until
    /// all of them are dropped, the last one first.
    pub fn hold_all<'s>(&'s self, keep: &mut impl FnMut(Held<'s, P>)) {
        for pcp in self.pcps {
            if let Some(closed) = pcp.close(&self.platform, self.zone(pcp.zone), self.slots) {
                keep(Held::Store(closed));
            }
        }
        for zone in self.zones {
            keep(Held::Zone(zone.lock(&self.platform, self.words, self.blocks)));
        }
    }
}

/// Something that [`Allocator::hold_all`] holds.
#[derive(Debug)]
pub enum Held<'s, P: Platform> {
    /// A closed store.
    Store(Closed<'s>),
    /// A locked zone.
    Zone(LockedZone<'s, P>),
}
