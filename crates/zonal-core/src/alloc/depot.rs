//! Whole batches between stores and zones: what a full store leaves, an empty one takes, and what
//! nobody needs goes to the buddy (see [`crate::pcp::depot`]).

use super::Allocator;
use super::take::Want;
use crate::buddy::FreeFlags;
use crate::frame::PageWord;
use crate::machine::CPUS_MAX;
use crate::pcp::closed::Closed;
use crate::pcp::depot::{Batch, DEPOT, Depot};
use crate::pcp::store::{Pcp, PcpList};
use crate::pcp::tune::{self, BulkFree, PcpParams, SCALE_MAX_DEFAULT};
use crate::platform::{Platform, Step};
use crate::prefetch;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{CpuId, Order, Pfn, ZoneId};
use crate::zone::state::{BELOW_HIGH, LockedZone, RECLAIM_ACTIVE, Zone};

const _: () = assert!(DEPOT.cpu.0 as usize == CPUS_MAX);

/// Flags of a zone whose pages are wanted in its buddy.
const PRESSED: u32 = BELOW_HIGH | RECLAIM_ACTIVE;
/// Most batches that one refill leaves in a depot.
const FILL_MAX: usize = 16;
/// Most blocks that it takes out of the buddy.
const TAKEN_MAX: usize = 64;

/// Blocks out of the buddy that are nobody's yet: first frames and orders.
struct Taken {
    blocks: [(u32, Order); TAKEN_MAX],
    count: usize,
}

impl Taken {
    fn blocks(&self) -> &[(u32, Order)] {
        &self.blocks[..self.count]
    }

    /// Base pages.
    fn pages(&self) -> u32 {
        self.blocks().iter().map(|(_, order)| order.pages() as u32).sum()
    }

    /// First frames of the blocks of `bits` as their order that these are cut into.
    fn frames(&self, bits: u32) -> impl Iterator<Item = u32> + '_ {
        let cut = move |&(first, order): &(u32, Order)| {
            (first..first + order.pages() as u32).step_by(1 << bits)
        };
        self.blocks().iter().flat_map(cut)
    }
}

/// The word of a block of `list` in a depot (DEPOT-2).
fn depot_word(list: &PcpList) -> PageWord {
    PageWord::cached(list.order(), list.migratetype(), DEPOT)
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// The depot that a store uses.
    fn depot(&self, pcp: &Pcp) -> Option<&'a Depot> {
        let depot = &self.pcp(pcp.zone, pcp.depot_cpu).depot;
        depot.exists().then_some(depot)
    }

    /// What the tuning of a store goes by. A small `scale_max` is for stores with a depot behind
    /// them; under pressure there is none, and pages that go to the buddy in large chunks take its
    /// lock less often.
    pub(super) fn params(&self, zone: &Zone, pcp: &Pcp) -> PcpParams {
        let mut params = pcp.params(&self.fixed);
        if zone.has(PRESSED) && self.depot(pcp).is_some() {
            params.scale_max = params.scale_max.max(SCALE_MAX_DEFAULT);
        }
        params
    }

    /// A zone's depots, each with the CPU whose store has it.
    pub(super) fn depots(&self, zone: ZoneId) -> impl Iterator<Item = (CpuId, &'a Depot)> {
        let cpus = if self.policy.pcp.depot.batches == 0 { 0 } else { self.cpus() };
        let all = (0..cpus).map(move |cpu| CpuId(cpu as u32));
        let depots = all.map(move |cpu| (cpu, &self.pcp(zone, cpu).depot));
        depots.filter(|(_, depot)| depot.exists())
    }

    /// Base pages in the depots of a zone.
    pub fn depot_pages(&self, zone: ZoneId) -> u64 {
        self.depots(zone).map(|(_, depot)| u64::from(depot.pages())).sum()
    }

    /// As [`drain_pages`](Self::drain_pages), but whole batches go to the depot first. Then less
    /// than a batch stays; of a stream of large frees nothing does. Under pressure all goes to the
    /// buddy: who looks for memory looks there.
    pub(super) fn give_back(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        bulk: BulkFree,
        first: usize,
    ) -> u32 {
        let BulkFree { pages, forced } = bulk;
        let depot = self.depot(closed.pcp).filter(|_| !zone.has(PRESSED));
        let Some(depot) = depot else { return self.drain_pages(zone, closed, pages, first) };
        let (mut left, mut stayed) = (pages, false);
        let chunk = closed.pcp.batch();
        for list in (first..self.map.len()).chain(0..first) {
            let bits = closed.pcp.lists[list].order_bits;
            let whole = self.batch_blocks(closed.pcp, depot, list);
            // A stream of large frees spreads over lists that have less than a batch each.
            let least = if forced { 1 } else { whole };
            while closed.len(list) >= least && left > 0 {
                let blocks = closed.len(list).min(whole);
                let batch = blocks << bits;
                // Blocks larger than a chunk go one by one.
                if !forced && left < batch.min(chunk) {
                    stayed = left < pages;
                    break;
                }
                if depot.has_surplus(batch) {
                    left = left.saturating_sub(self.drain_pages(zone, closed, batch, list));
                    continue;
                }
                if !self.put_batch(zone, closed, depot, list, blocks) {
                    return pages - left + self.drain_pages(zone, closed, left, first);
                }
                left = left.saturating_sub(batch);
            }
        }
        match stayed {
            true => pages - left,
            false => pages - left + self.drain_pages(zone, closed, left, first),
        }
    }

    /// Leaves the `blocks` coldest blocks of a list. `false`: the depot has no room for them.
    fn put_batch(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        depot: &'a Depot,
        list: usize,
        blocks: u32,
    ) -> bool {
        let pcp = closed.pcp;
        let record = &pcp.lists[list];
        let Some(mut batch) = depot.reserve(self.slots, blocks << record.order_bits) else {
            return false;
        };
        let word = depot_word(record).0;
        let frames = closed.frames(list).unwrap_or_default().iter().take(blocks as usize);
        for slot in frames {
            let frame = slot.load(Relaxed);
            if self.words[frame as usize].load(Relaxed) == record.cached {
                self.words[frame as usize].store(word, Relaxed);
                batch.give(frame);
            } else {
                // A stray copy (PCP-3).
                pcp.events.double_frees.fetch_add(1, Relaxed);
            }
        }
        closed.drop_cold(list, blocks);
        depot.put(batch, list, record.block_pages);
        pcp.events.depot_puts.fetch_add(1, Relaxed);
        pcp.events.depot_put_pages.fetch_add(u64::from(blocks) << record.order_bits, Relaxed);
        self.platform.cost(Step::Depot { zone: zone.id, group: pcp.depot_cpu, blocks });
        true
    }

    /// Fills an empty list with a batch of the depot. Returns its blocks.
    pub(super) fn take_batch(&self, zone: &'a Zone, closed: &mut Closed<'a>, list: usize) -> u32 {
        let pcp = closed.pcp;
        let Some(depot) = self.depot(pcp).filter(|depot| depot.pages() > 0) else { return 0 };
        let record = &pcp.lists[list];
        let Some(batch) = depot.take(self.slots, list, record.block_pages) else { return 0 };
        let word = depot_word(record).0;
        let frames = batch.frames();
        // Their lines are in the cache of whoever left the batch. Asked for one after the other
        // they would come one after the other.
        for slot in frames.iter().rev() {
            prefetch::for_write(&self.words[slot.load(Relaxed) as usize]);
        }
        let held = closed.count() + ((frames.len() as u32) << record.order_bits);
        if closed.cover(held) < held {
            depot.put(batch, list, record.block_pages);
            return 0;
        }
        let mut state = closed.state_without_factor();
        let pages = (frames.len() as u32) << record.order_bits;
        tune::on_batch(&mut state, &pcp.params(&self.fixed), self.pressure(zone), pages);
        closed.set_state_without_factor(&state);
        let mut sink = closed.refill(list, frames.len() as u32);
        for slot in frames.iter().rev() {
            let frame = slot.load(Relaxed);
            debug_assert_eq!(self.words[frame as usize].load(Relaxed), word, "DEPOT-2");
            self.words[frame as usize].store(record.cached, Relaxed);
            sink.give(frame);
        }
        let blocks = frames.len() as u32;
        closed.refilled(list, sink);
        depot.emptied(self.slots, batch);
        pcp.events.depot_takes.fetch_add(1, Relaxed);
        pcp.events.depot_taken_pages.fetch_add(u64::from(blocks) << record.order_bits, Relaxed);
        self.platform.cost(Step::Depot { zone: zone.id, group: pcp.depot_cpu, blocks });
        blocks
    }

    /// Blocks of a list that make a batch.
    fn batch_blocks(&self, pcp: &Pcp, depot: &Depot, list: usize) -> u32 {
        (pcp.batch() >> pcp.lists[list].order_bits).clamp(1, depot.blocks())
    }

    /// Fills an empty list and the depot with whole blocks of the buddy. The zone lock is held for
    /// a few blocks; what they are split into is written without it. `wanted` blocks, and what
    /// makes no whole batch, go to the list, the rest is left for the group. Returns the list's
    /// blocks; 0 where no depot is filled so, under pressure, and if there is nothing of the type.
    pub(super) fn refill_whole(
        &self,
        zone: &'a Zone,
        closed: &mut Closed<'a>,
        (list, wanted): (usize, u32),
        want: Want,
    ) -> u32 {
        let pcp = closed.pcp;
        let record = &pcp.lists[list];
        let bits = record.order_bits;
        let most = Order::new(u32::from(self.policy.pcp.depot.block)).unwrap_or(Order::MAX);
        let depot = self.depot(pcp).filter(|_| most > want.order && !zone.has(PRESSED));
        let Some(depot) = depot else { return 0 };
        let blocks = self.batch_blocks(pcp, depot, list);
        let Some(list_room) = record.cap.checked_sub(blocks) else { return 0 };
        let wanted = wanted.min(list_room + 1);
        // What makes no whole batch goes to the list, too.
        let most_held = closed.count() + ((wanted + blocks) << bits);
        if closed.cover(most_held) < most_held {
            return 0;
        }
        // After the first of refills in a row as much again for the group as for the list.
        let again = u32::from(wanted > blocks);
        let whole = (wanted << bits << again).next_power_of_two().min(most.pages() as u32) >> bits;
        // Room first: what has been taken must go somewhere.
        let mut batches: [Option<Batch<'a>>; FILL_MAX] = [const { None }; FILL_MAX];
        let mut room = 0;
        for batch in batches.iter_mut().take((whole.saturating_sub(wanted) / blocks) as usize) {
            *batch = depot.reserve(self.slots, blocks << bits);
            if batch.is_none() {
                break;
            }
            room += 1;
        }
        let asked = whole.max(wanted).min(wanted + (room + 1) * blocks - 1);
        let taken = self.take_whole(zone, pcp, (want, most), asked << bits);
        let got = taken.pages() >> bits;
        let full = room.min(got.saturating_sub(wanted) / blocks);
        let mut frames = taken.frames(bits);
        let mut sink = closed.refill(list, got - full * blocks);
        let listed = sink.room();
        for frame in frames.by_ref().take(listed as usize) {
            self.words[frame as usize].store(record.cached, Relaxed);
            sink.give(frame);
        }
        closed.refilled(list, sink);
        let word = depot_word(record).0;
        for (at, mut batch) in batches.into_iter().flatten().enumerate() {
            if at as u32 >= full {
                depot.emptied(self.slots, batch);
                continue;
            }
            for frame in frames.by_ref().take(blocks as usize) {
                self.words[frame as usize].store(word, Relaxed);
                batch.give(frame);
            }
            depot.put(batch, list, record.block_pages);
            self.platform.cost(Step::Depot { zone: zone.id, group: pcp.depot_cpu, blocks });
        }
        pcp.events.refills.fetch_add(u64::from(got > 0), Relaxed);
        pcp.events.depot_fill_pages.fetch_add(u64::from(full * blocks) << bits, Relaxed);
        self.platform.cost(Step::Split { blocks: got });
        self.platform.cost(Step::Moved { zone: zone.id, pages: got << bits });
        listed
    }

    /// Takes whole blocks of the buddy in one hold of the zone lock.
    fn take_whole(
        &self,
        zone: &'a Zone,
        pcp: &Pcp,
        (want, most): (Want, Order),
        pages: u32,
    ) -> Taken {
        let mut taken = Taken { blocks: [(0, Order::ZERO); TAKEN_MAX], count: 0 };
        let base = zone.frame_base as u32;
        let request = (self.take_request(want), most);
        let mut locked = zone.lock(&self.platform, self.words, self.blocks);
        let LockedZone { buddy, frames, .. } = &mut locked;
        buddy.take_blocks(frames, request, &self.fallback, (pages, TAKEN_MAX), |idx, order| {
            taken.blocks[taken.count] = (base + idx, order);
            taken.count += 1;
        });
        for (_, order) in taken.blocks() {
            locked.account(self.free_diff(pcp), -(order.pages() as i64), 1);
        }
        taken
    }

    /// Empties the depots of a zone into its buddy. Returns the pages moved.
    pub(super) fn drain_depots(&self, zone: &'a Zone) -> u64 {
        self.depots(zone.id).map(|(cpu, depot)| self.empty(zone, cpu, depot, u32::MAX)).sum()
    }

    /// Moves batches to the buddy until at least `pages` pages are there or the depot is empty.
    /// Large blocks first. Returns the pages moved.
    fn empty(&self, zone: &'a Zone, cpu: CpuId, depot: &'a Depot, pages: u32) -> u64 {
        let mut moved = 0;
        let mut list = self.map.len();
        while moved < u64::from(pages) && list > 0 && !depot.is_empty() {
            if !depot.has(list - 1) {
                list -= 1;
                continue;
            }
            let record = &self.pcp(zone.id, cpu).lists[list - 1];
            // The lock first (DEPOT-1).
            let mut locked = zone.lock(&self.platform, self.words, self.blocks);
            match depot.take(self.slots, list - 1, record.block_pages) {
                Some(batch) => {
                    moved += self.free_batch(zone, &mut locked, record, &batch);
                    let blocks = batch.frames().len() as u32;
                    depot.emptied(self.slots, batch);
                    drop(locked);
                    self.platform.cost(Step::Depot { zone: zone.id, group: cpu, blocks });
                }
                None => list -= 1,
            }
        }
        moved
    }

    /// Merges the blocks of a batch into the locked buddy.
    fn free_batch(
        &self,
        zone: &'a Zone,
        locked: &mut LockedZone<'_, P>,
        record: &PcpList,
        batch: &Batch<'_>,
    ) -> u64 {
        let order = record.order();
        let pcp = self.pcp(zone.id, self.platform.cpu());
        let mut pages = 0;
        for slot in batch.frames() {
            let idx = slot.load(Relaxed) - zone.frame_base as u32;
            let LockedZone { buddy, frames, .. } = &mut *locked;
            if buddy.free_block(frames, idx, order, FreeFlags::default()).is_ok() {
                locked.account(&pcp.free_diff, order.pages() as i64, 1);
                pages += order.pages();
            } else {
                pcp.events.double_frees.fetch_add(1, Relaxed);
            }
        }
        pages
    }

    /// The part of a refresh that is about the depot in a CPU's store: what nobody needed since the
    /// last one goes to the buddy, under pressure all. The depot of a CPU that is gone is looked
    /// after by the others. Returns whether there was anything.
    pub(super) fn refresh_depot(&self, zone: &'a Zone, cpu: CpuId) -> bool {
        let group = self.pcp(zone.id, cpu).depot_cpu;
        let Some(depot) = self.depot(self.pcp(zone.id, cpu)) else { return false };
        if depot.is_empty() || (group != cpu && self.is_online(group)) {
            return false;
        }
        let pressed = zone.has(PRESSED);
        let unused = depot.unused();
        self.empty(zone, group, depot, if pressed { u32::MAX } else { unused });
        true
    }

    /// Whether a CPU's depot has a batch of a list.
    pub(super) fn depot_has(&self, zone: ZoneId, cpu: CpuId, list: usize) -> bool {
        self.depot(self.pcp(zone, cpu)).is_some_and(|depot| depot.has(list))
    }

    /// Whether a depot of the zone holds pages, or they are on their way.
    pub(super) fn depots_in_use(&self, zone: ZoneId) -> bool {
        self.depots(zone).any(|(_, depot)| !depot.is_empty())
    }

    /// How often batches came to the zone's depots or left them.
    pub(super) fn depot_changes(&self, zone: ZoneId) -> u64 {
        self.depots(zone).map(|(_, depot)| depot.changes()).fold(0, u64::wrapping_add)
    }

    /// Shows every block in a depot of the zone, with the word it must have, while nothing runs.
    pub(super) fn each_in_depots(&self, zone: ZoneId, mut see: impl FnMut(&AtomicU32, PageWord)) {
        for (cpu, depot) in self.depots(zone) {
            let lists = &self.pcp(zone, cpu).lists;
            depot.each(self.slots, |list, frames| {
                let word = depot_word(&lists[list]);
                frames.iter().for_each(|slot| see(slot, word));
            });
        }
    }

    /// The page in a slot of one of the zone's lists.
    pub(super) fn page_in(&self, zone: &Zone, slot: &AtomicU32) -> Pfn {
        let frame = u64::from(slot.load(Relaxed));
        Pfn((zone.start_pfn + frame).wrapping_sub(zone.frame_base as u64))
    }
}
