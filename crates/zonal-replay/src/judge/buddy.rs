//! The buddies of every zone, block by block from where the kernel was.
//!
//! Before each block that the kernel takes, the core's buddy is asked which it would take: the head
//! of the smallest list that serves the request (LB B.6). Then the kernel's block is taken,
//! wherever it is. The kernel's frees are repeated here.
//!
//! # What the buddy cannot know
//! Files count the free blocks of the start, and nothing else: neither where they lie nor in which
//! order they are on their lists. So a free block of the start state is a guess, until the trace
//! moves it. A block that was split off or freed since is *known*: the trace says that it is free,
//! and when it joined its list. Choices between known blocks are where a wrong buddy would show.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use zonal_core::buddy::FreeFlags;
use zonal_core::frame::{PageState, PageWord};
use zonal_core::types::{Migratetype, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};
use zonal_core::zone::state::LockedZone;

use crate::build::{Rebuilt, Script};
use crate::facts::{Fact, FactKind, Shown};
use crate::program;
use crate::zones::ZoneMap;

/// How the buddies did, given the kernel's frees and takes before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BuddyVerdict {
    /// Blocks that the kernel took from a buddy.
    pub judged: u64,
    /// Of them, those that the core would have taken.
    pub same_pfn: u64,
    /// Blocks taken where both the kernel's choice and the core's had joined their lists in the
    /// trace, so that nothing of the start is in it.
    pub known_judged: u64,
    /// Of them, those that the core would have taken.
    pub known_same_pfn: u64,
    /// Why the others differ.
    pub differences: BuddyDifferences,
    /// Blocks thought free that the kernel passed over for a larger one: in use, or parts of a
    /// larger free block. The core is not given them again before the kernel takes from them.
    pub parked: u64,
    /// Frees of pages that were thought free.
    pub freed_twice: u64,
}

/// Reasons for differences at the buddies, the first that holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BuddyDifferences {
    /// The kernel's block was not free here: it was in use at the start, as far as is known.
    pub not_free_here: u64,
    /// The kernel's block was free since the start: its place on its list is not known.
    pub start_order: u64,
    /// The core's choice was free since the start, as far as is known.
    pub start_state: u64,
    /// Another CPU moved blocks of the zone within one step of the trace's clock.
    pub same_time: u64,
    /// The kernel took it from another type's blocks.
    pub fallback: u64,
    /// The kernel's block was on the list of another type here.
    pub block_type: u64,
    /// Both were known to be free: blocks that joined their lists in another order, or of another
    /// size because of a neighbour that is free without an event.
    pub order_or_size: u64,
}

impl BuddyVerdict {
    /// Every difference, in words.
    pub fn reasons(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let differences = &self.differences;
        let all = [
            (differences.not_free_here, "differ: in use at the start, as far as is known"),
            (differences.start_order, "differ: free since the start, place on its list not known"),
            (differences.start_state, "differ: the core's choice is free only by assumption"),
            (differences.same_time, "differ: another CPU's moves have the same time"),
            (differences.fallback, "differ: the kernel took it from another type's blocks"),
            (differences.block_type, "differ: its pageblock has another type here"),
            (differences.order_or_size, "differ: both known to be free"),
            (self.parked, "blocks thought free that the kernel passed over for larger ones"),
            (self.freed_twice, "blocks freed that were thought free"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

/// Judges the buddies of a machine that was brought into the state at the start.
pub struct BuddyJudge<'r, 'a> {
    shown: &'r Shown,
    map: &'r ZoneMap,
    rebuilt: &'r Rebuilt<'a>,
    /// Step of the trace's clock.
    step_ns: u64,
    /// First frames of free blocks that joined their lists in the trace.
    known: HashSet<u64>,
    /// Blocks taken out of the lists because the kernel passed them over: order, and whether they
    /// were known.
    parked: HashMap<u64, (Order, bool)>,
    /// By zone: time and CPU of the last move.
    last: Vec<(u64, u16)>,
    /// The last fallback, until the block comes again as a refill's.
    fallen: Option<Fact>,
    verdict: BuddyVerdict,
}

impl<'r, 'a> BuddyJudge<'r, 'a> {
    /// A judge on a machine in the state at the start of the replay.
    pub fn new(
        shown: &'r Shown,
        map: &'r ZoneMap,
        rebuilt: &'r Rebuilt<'a>,
        step_ns: u64,
    ) -> BuddyJudge<'r, 'a> {
        // Which part of a block comes back when is the trace's to say.
        for word in rebuilt.raw().words() {
            // Relaxed: one thread.
            let state = PageWord::from_bits(word.load(Relaxed)).state();
            if matches!(state, PageState::Allocated { .. } | PageState::Cached { .. }) {
                word.store(PageWord::NONE.bits(), Relaxed);
            }
        }
        let last = vec![(0, u16::MAX); map.zones().len()];
        let (known, parked) = (HashSet::new(), HashMap::new());
        let verdict = BuddyVerdict::default();
        let fallen = None;
        BuddyJudge { shown, map, rebuilt, step_ns, known, parked, last, fallen, verdict }
    }

    /// Judges the next fact; those before the start are left out.
    pub fn see(&mut self, at: usize, fact: &Fact) {
        if at < self.shown.start {
            return;
        }
        let again = self.fallen.is_some_and(|last| (last.cpu, last.pfn) == (fact.cpu, fact.pfn));
        match fact.kind {
            FactKind::Refill | FactKind::Direct if again => self.fallen = None,
            FactKind::Refill | FactKind::Direct => {
                // Up to 6.14 the fallback's own event may come behind.
                self.take(fact, self.shown.is_before_fallback(at));
            }
            FactKind::Fallback if fact.was != fact.is || !self.is_out(fact) => {
                self.take(fact, true);
                self.fallen = Some(*fact);
            }
            FactKind::Drain => self.free(fact),
            FactKind::Free if self.past_lists(fact) => self.free(fact),
            _ => {}
        }
    }

    /// What was judged so far.
    pub fn verdict(self) -> BuddyVerdict {
        self.verdict
    }

    fn lock(&self, zone: usize) -> LockedZone<'r, Script> {
        let locked = self.rebuilt.raw().lock_zone(zone);
        locked.expect("a fact's zone is one of the machine")
    }

    /// Whether a free block goes straight to the buddy: its order has no list.
    fn past_lists(&self, fact: &Fact) -> bool {
        let order = program::order(fact.order);
        self.rebuilt.allocator.tables().lists().get(order, Migratetype::Unmovable).is_none()
    }

    /// Whether a block that a fallback names was taken already by the event before.
    fn is_out(&self, fact: &Fact) -> bool {
        let Some(zone) = self.map.of(fact.pfn) else { return true };
        let locked = self.lock(zone);
        locked.frames.index(Pfn(fact.pfn)).is_none_or(|idx| find(&locked, idx).is_none())
    }

    fn take(&mut self, fact: &Fact, fallback: bool) {
        let Some(zone) = self.map.of(fact.pfn) else { return };
        let Some(order) = Order::new(fact.order.into()) else { return };
        let mt = Migratetype::new(fact.migratetype.into()).unwrap_or(Migratetype::Movable);
        let mut locked = self.lock(zone);
        let Some(idx) = locked.frames.index(Pfn(fact.pfn)) else { return };
        if fact.was != fact.is {
            claim(&mut locked, fact);
        }
        let choice = choice(&locked, order, mt);
        self.unpark(&mut locked, fact.pfn, fact.order);
        let from = find(&locked, idx).filter(|(_, of)| *of >= order);
        let verdict = &mut self.verdict;
        verdict.judged += 1;
        let is_known = |known: &HashSet<u64>, idx: u32| known.contains(&locked.frames.pfn(idx).0);
        let both = from.is_some_and(|(head, _)| is_known(&self.known, head))
            && choice.is_some_and(|head| is_known(&self.known, head));
        verdict.known_judged += u64::from(both);
        let (last_ns, last_cpu) = std::mem::replace(&mut self.last[zone], (fact.time_ns, fact.cpu));
        if choice == Some(idx) {
            verdict.same_pfn += 1;
            verdict.known_same_pfn += u64::from(both);
        } else {
            let differences = &mut verdict.differences;
            *match (from, choice) {
                (None, _) => &mut differences.not_free_here,
                (Some((head, _)), _) if !is_known(&self.known, head) => {
                    &mut differences.start_order
                }
                (_, Some(head)) if !is_known(&self.known, head) => &mut differences.start_state,
                _ if last_cpu != fact.cpu && fact.time_ns - last_ns <= self.step_ns => {
                    &mut differences.same_time
                }
                _ if fallback => &mut differences.fallback,
                (Some((head, _)), _) if locked.frames.pageblock_type(head) != mt => {
                    &mut differences.block_type
                }
                _ => &mut differences.order_or_size,
            } += 1;
        }
        if let Some(refuted) = choice.filter(|choice| *choice != idx)
            && let Some((_, smaller)) = find(&locked, refuted)
            && from.is_none_or(|(_, of)| of > smaller)
        {
            // The kernel takes the smallest block that fits (LB B.6), so this one is not on its
            // list: it is in use, or a part of a larger block.
            let LockedZone { buddy, frames, .. } = &mut locked;
            buddy.take_exact(frames, refuted, smaller);
            let pfn = frames.pfn(refuted).0;
            self.parked.insert(pfn, (smaller, self.known.remove(&pfn)));
            self.verdict.parked += 1;
        }
        let Some((head, of)) = from else { return };
        let LockedZone { buddy, frames, .. } = &mut locked;
        buddy.take_exact(frames, idx, order);
        // The halves that were cut off joined their lists now.
        self.known.remove(&frames.pfn(head).0);
        let mut block = (frames.pfn(head).0, of.get());
        while block.1 > order.get() {
            let half = 1 << (block.1 - 1);
            let upper = block.0 + half;
            let (kept, rest) = if fact.pfn < upper { (block.0, upper) } else { (upper, block.0) };
            self.known.insert(rest);
            block = (kept, block.1 - 1);
        }
    }

    /// Puts parked blocks back that the kernel takes from, or frees pages of.
    fn unpark(&mut self, locked: &mut LockedZone<'_, Script>, pfn: u64, order: u8) {
        let inside = Order::all().map(|of| (pfn & !(of.pages() - 1), of));
        let outer = inside.filter(|(head, of)| self.parked.get(head).is_some_and(|p| p.0 >= *of));
        let mut heads: Vec<u64> = outer.map(|(head, _)| head).take(1).collect();
        heads.extend((pfn + 1..pfn + (1 << order)).filter(|pfn| self.parked.contains_key(pfn)));
        for head in heads {
            let Some((order, known)) = self.parked.remove(&head) else { continue };
            let LockedZone { buddy, frames, .. } = &mut *locked;
            let Some(idx) = frames.index(Pfn(head)) else { continue };
            if buddy.free_block(frames, idx, order, FreeFlags { to_tail: true }).is_ok()
                && let Some((merged, _)) = find(locked, idx)
            {
                let merged = locked.frames.pfn(merged).0;
                if known && merged == head {
                    self.known.insert(merged);
                } else {
                    self.known.remove(&merged);
                }
            }
        }
    }

    fn free(&mut self, fact: &Fact) {
        let Some(zone) = self.map.of(fact.pfn) else { return };
        let Some(order) = Order::new(fact.order.into()) else { return };
        let mut locked = self.lock(zone);
        let LockedZone { buddy, frames, .. } = &mut locked;
        let Some(idx) = frames.index(Pfn(fact.pfn)) else { return };
        self.last[zone] = (fact.time_ns, fact.cpu);
        if buddy.free_block(frames, idx, order, FreeFlags::default()).is_err() {
            self.verdict.freed_twice += 1;
            return;
        }
        // What merged is one block now, and joined its list with this free.
        if let Some((head, of)) = find(&locked, idx) {
            let head = locked.frames.pfn(head).0;
            for order in order.get()..of.get() {
                let low = fact.pfn & !((1 << order) - 1);
                self.known.remove(&low);
                self.known.remove(&(low ^ (1 << order)));
            }
            self.known.insert(head);
        }
    }
}

/// Gives the pageblocks that a fallback claimed, and their free blocks, the type they have now.
fn claim(locked: &mut LockedZone<'_, Script>, fact: &Fact) {
    let Some(is) = Migratetype::new(fact.is.into()) else { return };
    let pages = PAGEBLOCK_PAGES << fact.broke.saturating_sub(PAGEBLOCK_ORDER.get() as u8);
    let first = fact.pfn & !(pages - 1);
    let LockedZone { buddy, frames, .. } = locked;
    let (Some(first), Some(_)) = (frames.index(Pfn(first)), frames.index(Pfn(first + pages - 1)))
    else {
        return;
    };
    let mut blocks = Vec::new();
    for idx in first..first + pages as u32 {
        if let PageState::Free { order, .. } = frames.load(idx).state() {
            blocks.push((idx, order));
            buddy.take_exact(frames, idx, order);
        }
    }
    (first..first + pages as u32).step_by(PAGEBLOCK_PAGES as usize).for_each(|idx| {
        frames.set_pageblock_type(idx, is);
    });
    for (idx, order) in blocks {
        // They were free a moment ago.
        let freed = buddy.free_block(frames, idx, order, FreeFlags { to_tail: true });
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

/// The block that the core would take.
fn choice(locked: &LockedZone<'_, Script>, order: Order, mt: Migratetype) -> Option<u32> {
    let orders = Order::all().filter(|of| *of >= order);
    orders.filter_map(|of| locked.buddy.list(&locked.frames, of, mt).next()).next()
}

/// The free block that holds a frame.
fn find(locked: &LockedZone<'_, Script>, idx: u32) -> Option<(u32, Order)> {
    let pfn = locked.frames.pfn(idx).0;
    Order::all().find_map(|of| {
        let head = locked.frames.index(Pfn(pfn & !(of.pages() - 1)))?;
        match locked.frames.load(head).state() {
            PageState::Free { order, .. } if order >= of => Some((head, order)),
            _ => None,
        }
    })
}
