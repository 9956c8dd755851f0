//! The lists of every CPU, in the core's own stores, with the kernel's pages on them.

use std::collections::BTreeMap;
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
    /// Not there.
    Missing,
}

/// From this many pages on, one walk of the list removes them all.
const MANY: usize = 8;

/// All lists of a machine.
pub struct Lists<'r, 'a> {
    rebuilt: &'r Rebuilt<'a>,
}

impl<'r, 'a> Lists<'r, 'a> {
    /// The lists of a machine that nothing runs on.
    pub fn new(rebuilt: &'r Rebuilt<'a>) -> Lists<'r, 'a> {
        Lists { rebuilt }
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
        slots.iter().rev().map(|slot| self.pfn(key.zone, slot.load(Relaxed))).collect()
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
    pub fn take(&self, key: ListKey, pfn: u64, is_gone: impl Fn(u64) -> bool) -> Outcome {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return Outcome::Missing };
        let frame = self.frame(key.zone, pfn);
        let slots = closed.frames(list).unwrap_or_default();
        let Some(index) = slots.iter().rposition(|slot| slot.load(Relaxed) == frame) else {
            return Outcome::Missing;
        };
        let above =
            slots[index + 1..].iter().rev().map(|slot| self.pfn(key.zone, slot.load(Relaxed)));
        let outcome = match index + 1 == slots.len() {
            true => Outcome::Top,
            // Most often the first one is there still, and the others are not looked at.
            false if above.clone().all(is_gone) => Outcome::BelowGone(above.collect()),
            false => Outcome::Below,
        };
        to_top(&slots[index..]);
        let popped = closed.pop(list, false);
        debug_assert_eq!(popped, Some(frame));
        outcome
    }

    /// Takes pages off their list, wherever they are; the hottest first.
    pub fn remove(&self, key: ListKey, pfns: &[u64]) {
        if pfns.len() < MANY {
            for pfn in pfns {
                self.take(key, *pfn, |_| false);
            }
            return;
        }
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return };
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

    /// Takes a page off the cold end of its list, or wherever it is. Whether it was the coldest.
    pub fn drain(&self, key: ListKey, pfn: u64) -> bool {
        let list = usize::from(key.list);
        let Some(mut closed) = self.closed(key) else { return false };
        let slots = closed.frames(list).unwrap_or_default();
        let frame = self.frame(key.zone, pfn);
        if slots.first().is_some_and(|slot| slot.load(Relaxed) == frame) {
            closed.drop_cold(list, 1);
            return true;
        }
        // It is near that end, where other CPUs' pages came between.
        if let Some(index) = slots.iter().position(|slot| slot.load(Relaxed) == frame) {
            to_bottom(&slots[..=index]);
            closed.drop_cold(list, 1);
        }
        false
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
