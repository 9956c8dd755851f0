//! Which pages the per-CPU lists of a zone hold when a replay starts.
//!
//! Files say how many pages each CPU's lists hold, not which, nor on which list. Told
//! (`--use-recorded lists`): the pages that leave a list without having been seen to come there,
//! in their order. Guessed:
//! - *Lists of orders above 0*, where the recorder had emptied the lists before (`cold_pcp_start`):
//!   what the allocations and frees before the start leave there, refilled by the rule of LB E.6.
//! - *Lists of order 0*: the first pages that the CPU allocates, up to the missing number.
//!
//! Pages still missing never leave: they come from the end of the zone, where no refill takes them.

use std::collections::BTreeMap;

use zonal_core::pcp::lists::ListMap;
use zonal_core::types::{Migratetype, Order};
use zonal_trace::Pageset;

use crate::program::{Origin, Program};
use crate::told::{FirstDrain, ListKey, StartList, Told};
use crate::zones::ZoneMap;

/// Frees after which nothing is left of any exponent: it has no more bits than this.
const SHIFT_MAX: u32 = 8;

/// A block on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// First frame; `None`: any that the trace does not name.
    pub pfn: Option<u64>,
    /// Its order.
    pub order: u8,
    /// Number of the list.
    pub list: usize,
}

/// Chooses for one store after the other.
#[derive(Clone, Copy)]
pub struct Chooser<'a> {
    /// The trace.
    pub program: &'a Program,
    /// The zones.
    pub map: &'a ZoneMap,
    /// The lists of a store.
    pub lists: &'a ListMap,
    /// Contents of the lists, and what led to them, if known.
    pub told: Option<&'a Told>,
}

impl Chooser<'_> {
    /// The blocks of the store of `set` in `zone`, each list hottest first.
    pub fn choose(&self, zone: usize, set: &Pageset) -> Vec<Cached> {
        match self.told {
            Some(told) => self.told(&told.lists, zone, set),
            None => self.guessed(zone, set),
        }
    }

    /// How often the store's refills of single pages had doubled: what its first one fetched tells,
    /// with the frees before that, each of which halves this number (LB E.7). The least that leads
    /// there; 0 where nothing tells.
    pub fn alloc_factor(&self, zone: usize, set: &Pageset) -> u32 {
        let single = |list: &usize| self.lists.of(*list).0 == Order::ZERO;
        let first = |list: usize| {
            let key = ListKey { zone: zone as u16, cpu: set.cpu as u16, list: list as u8 };
            self.told?.lists.get(&key)?.first_refill
        };
        let lists = (0..self.lists.len()).filter(single);
        let Some(first) = lists.filter_map(first).min_by_key(|first| first.at) else { return 0 };
        match first.pages.checked_div(set.batch).and_then(u64::checked_ilog2) {
            None | Some(0) => 0,
            Some(doubled) => doubled.saturating_mul(1 << first.frees_before.min(SHIFT_MAX)),
        }
    }

    /// The first drain of the store by a free, where it is known.
    pub fn first_drain(&self, zone: usize, set: &Pageset) -> Option<FirstDrain> {
        self.told?.drains.get(&(zone as u16, set.cpu as u16)).copied()
    }

    fn told(&self, told: &BTreeMap<ListKey, StartList>, zone: usize, set: &Pageset) -> Vec<Cached> {
        let of = |list: usize| {
            let (zone, cpu, list) = (zone as u16, set.cpu as u16, list as u8);
            told.get(&ListKey { zone, cpu, list })
        };
        let order = |list: usize| self.lists.of(list).0.get() as u8;
        let known = |list: usize| of(list).map_or(0, |known| known.hot.len() + known.cold.len());
        let all: u64 = (0..self.lists.len()).map(|list| (known(list) as u64) << order(list)).sum();
        let mut missing = set.count.saturating_sub(all);
        // What never leaves is on lists that never ran empty, between what was taken off the two
        // ends; single pages more likely than others.
        let idle = |list: &usize| of(*list).is_none_or(|known| !known.ran_empty);
        let quiet = (0..self.lists.len())
            .filter(idle)
            .min_by_key(|list| (order(*list), std::cmp::Reverse(known(*list))));
        let mut chosen = Vec::new();
        for list in 0..self.lists.len() {
            let order = order(list);
            let cached = |pfn: Option<u64>| Cached { pfn, order, list };
            let empty = StartList::default();
            let known = of(list).unwrap_or(&empty);
            chosen.extend(known.hot.iter().map(|pfn| cached(Some(*pfn))));
            if quiet == Some(list) {
                chosen.extend((0..missing >> order).map(|_| cached(None)));
                missing = 0;
            }
            chosen.extend(known.cold.iter().rev().map(|pfn| cached(Some(*pfn))));
        }
        chosen
    }

    fn guessed(&self, zone: usize, set: &Pageset) -> Vec<Cached> {
        let mut chosen = Vec::new();
        for (place, left) in &self.program.early {
            if (place.zone, place.cpu) != (zone, set.cpu) || place.order == 0 {
                continue;
            }
            let Some(list) = self.list(place.order, place.migratetype) else { continue };
            let order = place.order;
            let mut pages = self.fresh(zone, set.cpu).filter(|cached| cached.list == list);
            for _ in 0..*left {
                let pfn = pages.next().and_then(|cached| cached.pfn);
                chosen.push(Cached { pfn, order, list });
            }
        }
        // More than were recorded cannot have been there.
        let mut room = set.count;
        chosen.retain(|cached| {
            let fits = room >= 1 << cached.order;
            room -= if fits { 1 << cached.order } else { 0 };
            fits
        });
        let single = self.fresh(zone, set.cpu).filter(|cached| cached.order == 0);
        let before = chosen.len();
        chosen.extend(single.take(room as usize));
        let missing = room - (chosen.len() - before) as u64;
        let list = self.idle_list(zone, set.cpu, &chosen);
        chosen.extend((0..missing).map(|_| Cached { pfn: None, order: 0, list }));
        chosen
    }

    /// Pages not seen before that the CPU allocates.
    fn fresh(&self, zone: usize, cpu: u32) -> impl Iterator<Item = Cached> {
        let slots = self.program.slots.iter().filter(move |slot| {
            slot.origin == Origin::Fresh
                && u32::from(slot.cpu) == cpu
                && self.map.of(slot.pfn) == Some(zone)
        });
        slots.filter_map(|slot| {
            let list = self.list(slot.order, slot.migratetype)?;
            Some(Cached { pfn: Some(slot.pfn), order: slot.order, list })
        })
    }

    fn list(&self, order: u8, migratetype: u8) -> Option<usize> {
        let mt = Migratetype::new(migratetype.into())?;
        let mt = if mt.mergeable() { mt } else { Migratetype::Movable };
        self.lists.get(Order::new(order.into())?, mt)
    }

    /// A list of single pages for those that never leave: one from which the CPU takes nothing, so
    /// that its refills are unaffected.
    fn idle_list(&self, zone: usize, cpu: u32, chosen: &[Cached]) -> usize {
        let types = [Migratetype::Reclaimable, Migratetype::Unmovable, Migratetype::Movable];
        let lists = types.map(|mt| self.lists.get(Order::ZERO, mt));
        let used = |list: &usize| {
            chosen.iter().any(|cached| cached.list == *list)
                || self.fresh(zone, cpu).any(|cached| cached.list == *list)
        };
        let movable = self.lists.get(Order::ZERO, Migratetype::Movable);
        lists.into_iter().flatten().find(|list| !used(list)).or(movable).unwrap_or(0)
    }
}
