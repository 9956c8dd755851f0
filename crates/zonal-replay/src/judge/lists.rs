//! The lists of every CPU, in the core's own stores, with the kernel's pages on them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use zonal_core::pcp::closed::Closed;
use zonal_core::types::{CpuId, Migratetype, Order, ZoneId};

use crate::build::Rebuilt;
use crate::facts::Fact;
use crate::told::ListKey;
use crate::zones::ZoneMap;

/// Where in its list a page was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The next to be given out.
    Top,
    /// Below these, hottest first, which are gone.
    BelowGone(Vec<u64>),
    /// Below others that are there still.
    Below,
    /// Below many that the kernel passed by again and again, hottest first: they are off the list
    /// now, too.
    BelowStrangers(Vec<u64>),
    /// Not there.
    Missing,
}

/// From this many pages on, one walk of the list removes them all.
const MANY: usize = 8;
/// So many pages between a list's end and the one that the kernel took are many.
const FAR: usize = 256;
/// So many times in a row no thread lost its CPU between the list and the event: what lies between
/// is not there, most likely because its pageblock has another type than is known. Each time costs
/// a walk over it.
const IN_A_ROW: u8 = 16;

/// All lists of a machine.
pub struct Lists<'r, 'a> {
    rebuilt: &'r Rebuilt<'a>,
    /// How often in a row the kernel took a page far from the hot end, and from the cold one.
    far: HashMap<ListKey, [u8; 2]>,
}

impl<'r, 'a> Lists<'r, 'a> {
    /// The lists of a machine that nothing runs on.
    pub fn new(rebuilt: &'r Rebuilt<'a>) -> Lists<'r, 'a> {
        Lists { rebuilt, far: HashMap::new() }
    }

    /// The list for a block of this order and type, of this CPU, in the page's zone.
    pub fn of(&self, map: &ZoneMap, fact: &Fact) -> Option<ListKey> {
        let order = Order::new(fact.order.into())?;
        let mt = Migratetype::new(fact.migratetype.into())?;
        let mt =
            if self.rebuilt.allocator.tables().grouping() { mt } else { Migratetype::Unmovable };
        let list = self.rebuilt.allocator.tables().lists().get(order, mt)?;
        Some(ListKey { zone: map.of(fact.pfn)? as u16, cpu: fact.cpu, list: list as u8 })
    }

    /// Order and type of a list's blocks.
    pub fn holds(&self, key: ListKey) -> (u8, u8) {
        let (order, mt) = self.rebuilt.allocator.tables().lists().of(key.list.into());
        (order.get() as u8, mt.index() as u8)
    }

    fn closed(&self, key: ListKey) -> Option<Closed<'r>> {
        self.rebuilt.raw().close(ZoneId(key.zone), CpuId(key.cpu.into()))
    }

    /// The number of a page in the core's tables, and back.
    fn frame(&self, zone: u16, pfn: u64) -> u32 {
        let zone = &self.rebuilt.allocator.zones()[zone as usize];
        (zone.frame_base() as u64 + (pfn - zone.start_pfn().0)) as u32
    }
    fn pfn(&self, zone: u16, frame: u32) -> u64 {
        let zone = &self.rebuilt.allocator.zones()[zone as usize];
        zone.start_pfn().0 + (u64::from(frame) - zone.frame_base() as u64)
    }

    /// The pages of a list, hottest first.
    pub fn content(&self, key: ListKey) -> Vec<u64> {
        let Some(closed) = self.closed(key) else { return Vec::new() };
        let slots = closed.frames(key.list.into()).unwrap_or_default();
        self.pfns(slots, key.zone).collect()
    }

    /// Contents of every list that is not empty, hottest first.
    pub fn all(&self) -> BTreeMap<ListKey, Vec<u64>> {
        let allocator = &self.rebuilt.allocator;
        let mut all = BTreeMap::new();
        for zone in 0..allocator.zones().len() as u16 {
            for cpu in 0..allocator.cpus() as u16 {
                for list in 0..allocator.tables().lists().len() as u8 {
                    let key = ListKey { zone, cpu, list };
                    let content = self.content(key);
                    if !content.is_empty() {
                        all.insert(key, content);
                    }
                }
            }
        }
        all
    }

    /// Takes a page off its list, and tells whether the list would have given it.
    pub fn take(&mut self, key: ListKey, pfn: u64, is_gone: impl Fn(u64) -> bool) -> Outcome {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return Outcome::Missing };
        let slots = closed.frames(list).unwrap_or_default();
        let Some(index) = self.index(slots, key.zone, pfn) else { return Outcome::Missing };
        let above = &slots[index + 1..];
        // Most often the first one is there still, and the others are not looked at.
        let all_gone = !above.is_empty() && self.pfns(above, key.zone).all(is_gone);
        let strange = self.is_strange(key, 0, if all_gone { 0 } else { above.len() });
        let outcome = match above.is_empty() {
            true => Outcome::Top,
            false if all_gone => Outcome::BelowGone(self.pfns(above, key.zone).collect()),
            false if strange => Outcome::BelowStrangers(self.pfns(above, key.zone).collect()),
            false => Outcome::Below,
        };
        let taken = if strange { above.len() + 1 } else { 1 };
        if !strange {
            to_top(&slots[index..]);
        }
        for _ in 0..taken {
            closed.pop(list, false);
        }
        outcome
    }

    /// Where a page lies on a list.
    fn index(&self, slots: &[AtomicU32], zone: u16, pfn: u64) -> Option<usize> {
        let frame = self.frame(zone, pfn);
        slots.iter().rposition(|slot| slot.load(Relaxed) == frame)
    }

    /// The pages of these slots, the hottest first.
    fn pfns(&self, slots: &[AtomicU32], zone: u16) -> impl Iterator<Item = u64> {
        slots.iter().rev().map(move |slot| self.pfn(zone, slot.load(Relaxed)))
    }

    /// Counts pages that lay between the hot (0) or the cold end (1) and the one that was taken.
    /// Whether they were passed by often enough.
    fn is_strange(&mut self, key: ListKey, end: usize, between: usize) -> bool {
        if between <= FAR && self.far.is_empty() {
            return false;
        }
        let times = &mut self.far.entry(key).or_default()[end];
        *times = if between > FAR { *times + 1 } else { 0 };
        let is_strange = *times >= IN_A_ROW;
        *times %= IN_A_ROW;
        is_strange
    }

    /// Takes pages off their list, wherever they are; the hottest first.
    pub fn remove(&self, key: ListKey, pfns: &[u64]) {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return };
        if pfns.len() < MANY {
            for pfn in pfns {
                let slots = closed.frames(list).unwrap_or_default();
                if let Some(index) = self.index(slots, key.zone, *pfn) {
                    to_top(&slots[index..]);
                    closed.pop(list, false);
                }
            }
            return;
        }
        let slots = closed.frames(list).unwrap_or_default();
        let mut wanted = pfns.iter().rev().map(|pfn| self.frame(key.zone, *pfn)).peekable();
        let mut kept = 0;
        for slot in slots {
            let frame = slot.load(Relaxed);
            if wanted.next_if_eq(&frame).is_none() {
                slots[kept].store(frame, Relaxed);
                kept += 1;
            }
        }
        let removed = slots.len() - kept;
        debug_assert_eq!(removed, pfns.len(), "they are on the list, in this order");
        for _ in 0..removed {
            closed.pop(list, false);
        }
    }

    /// Puts a freed page on its list. `false`: there is no room.
    pub fn push(&self, key: ListKey, pfn: u64) -> bool {
        let frame = self.frame(key.zone, pfn);
        self.closed(key).is_some_and(|mut closed| closed.push(key.list.into(), frame))
    }

    /// Refills a list; its remaining blocks stay on top. Returns the blocks that did not fit.
    pub fn refill(&self, key: ListKey, pfns: &[u64]) -> Vec<u64> {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return pfns.to_vec() };
        let left: Vec<u32> = std::iter::from_fn(|| closed.pop(list, false)).collect();
        let mut sink = closed.refill(list, pfns.len() as u32);
        let (fits, rest) = pfns.split_at(pfns.len().min(sink.room() as usize));
        fits.iter().for_each(|pfn| sink.give(self.frame(key.zone, *pfn)));
        closed.refilled(list, sink);
        let mut lost = rest.to_vec();
        for frame in left.into_iter().rev() {
            if !closed.push(list, frame) {
                lost.push(self.pfn(key.zone, frame));
            }
        }
        lost
    }

    /// Takes a page off the cold end of its list, or wherever it is. Whether it was the coldest;
    /// and pages that the kernel passed by there again and again, which are off the list now, too.
    pub fn drain(&mut self, key: ListKey, pfn: u64) -> (bool, Vec<u64>) {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return (false, Vec::new()) };
        let slots = closed.frames(list).unwrap_or_default();
        let frame = self.frame(key.zone, pfn);
        // If it is not at that end it is near it, where other CPUs' pages came between.
        let Some(index) = slots.iter().position(|slot| slot.load(Relaxed) == frame) else {
            return (false, Vec::new());
        };
        if !self.is_strange(key, 1, index) {
            to_bottom(&slots[..=index]);
            closed.drop_cold(list, 1);
            return (index == 0, Vec::new());
        }
        let passed = slots[..index].iter().map(|slot| self.pfn(key.zone, slot.load(Relaxed)));
        let passed = passed.collect();
        closed.drop_cold(list, index as u32 + 1);
        (false, passed)
    }
}

/// Moves the first of these slots after the others.
fn to_top(slots: &[AtomicU32]) {
    let Some((last, _)) = slots.split_last() else { return };
    let moved = slots[0].load(Relaxed);
    slots.windows(2).for_each(|pair| pair[0].store(pair[1].load(Relaxed), Relaxed));
    last.store(moved, Relaxed);
}

/// Moves the last of these slots before the others.
fn to_bottom(slots: &[AtomicU32]) {
    let Some((last, _)) = slots.split_last() else { return };
    let moved = last.load(Relaxed);
    slots.windows(2).rev().for_each(|pair| pair[1].store(pair[0].load(Relaxed), Relaxed));
    slots[0].store(moved, Relaxed);
}
