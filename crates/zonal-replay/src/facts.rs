//! The recorded kernel's actions on each block, and what a second pass over a trace shows.
//!
//! A trace is read once; [`Facts`] keeps 24 bytes of each event about a page. Together they show
//! two things that no event says:
//!
//! - **What happens to the page next** ([`Facts::next`]). A free whose page comes again as
//!   `mm_page_free_batched` reached its list then and not before. A free of a page that is on a
//!   list was preceded by an allocation without event: the bulk allocator has none (LB D.9), and
//!   thread stacks come from it.
//! - **The type of a pageblock** at any time ([`BlockTypes`]). A refill, a drain and a fallback say
//!   it; so does a page that is freed and allocated again without leaving its list, because the
//!   list that it was freed to is that of its pageblock's type (LB E.7).

use std::collections::HashMap;

use zonal_core::types::Migratetype;
use zonal_trace::{Event, EventKind};

/// One event about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// When.
    pub time_ns: u64,
    /// First frame; 0 for a refresh.
    pub pfn: u64,
    /// The CPU that did it.
    pub cpu: u16,
    /// What happened.
    pub kind: FactKind,
    /// The block's order.
    pub order: u8,
    /// The migratetype that the event names; of a fallback, the one asked for.
    pub migratetype: u8,
    /// The type of its pageblock before, as far as the event tells.
    pub was: u8,
    /// The same, after.
    pub is: u8,
    /// Of a fallback: order of the free block that it broke.
    pub broke: u8,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// Handed out.
    Alloc,
    /// Given back; on a list now, unless [`Batched`](Self::Batched) comes next.
    Free,
    /// Reached its list.
    Batched,
    /// From the buddy to a list.
    Refill,
    /// From the buddy to its user.
    Direct,
    /// From a list to the buddy.
    Drain,
    /// From another type's free blocks.
    Fallback,
    /// The CPU's statistics worker ran.
    Refresh,
}

const _: () = assert!(size_of::<Fact>() == 24, "facts are what a long trace keeps in memory");

/// The next event of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing that the trace shows.
    Nothing,
    /// An event of this kind.
    Is(FactKind),
}

/// All events about blocks, in the order of the trace.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    list: Vec<Fact>,
    /// Position of the first event that is replayed.
    start: usize,
}

impl Fact {
    /// The type of pageblocks without events.
    pub const MOVABLE: u8 = 1;

    /// What an event says about a block, if it does.
    pub fn of(event: &Event) -> Option<Fact> {
        use FactKind::{Alloc, Batched, Direct, Drain, Fallback, Free, Refill, Refresh};
        let (kind, pfn, order, mt) = match event.kind {
            EventKind::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                (Alloc, pfn, order, migratetype)
            }
            EventKind::Free { pfn, order } => (Free, pfn, order, 0),
            EventKind::FreeBatched { pfn } => (Batched, pfn, 0, 0),
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
                (if percpu_refill { Refill } else { Direct }, pfn, order, migratetype)
            }
            EventKind::PcpuDrain { pfn, order, migratetype } => (Drain, pfn, order, migratetype),
            EventKind::Extfrag { pfn, alloc_order, alloc_migratetype, .. } => {
                (Fallback, pfn, alloc_order, alloc_migratetype)
            }
            EventKind::VmstatUpdate => (Refresh, 0, 0, 0),
            _ => return None,
        };
        let (was, is, broke) = match event.kind {
            EventKind::Extfrag {
                change_ownership,
                alloc_migratetype: asked,
                fallback_migratetype: found,
                fallback_order,
                ..
            } => (found, if change_ownership { asked } else { found }, fallback_order),
            _ => (mt, mt, order),
        };
        let (time_ns, cpu) = (event.time_ns, event.cpu as u16);
        Some(Fact { time_ns, pfn, cpu, kind, order, migratetype: mt, was, is, broke })
    }
}

/// Which facts are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Allocations and frees alone.
    Users,
}

impl Scope {
    /// Whether a fact is one of them.
    pub fn has(self, fact: &Fact) -> bool {
        let of_users = matches!(fact.kind, FactKind::Alloc | FactKind::Free | FactKind::Batched);
        self == Scope::All || of_users
    }
}

impl Facts {
    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        self.list.extend(Fact::of(event));
    }

    /// Makes this moment the start.
    pub fn begin(&mut self) {
        self.start = self.list.len();
    }

    /// The events.
    pub fn list(&self) -> &[Fact] {
        &self.list
    }

    /// Position of the first event that is replayed.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Keeps the position of the start alone.
    pub fn forget(&mut self) {
        self.list = Vec::new();
    }

    /// For each event, what comes next for its page. Repetitions of a free count: the event before
    /// a [`FactKind::Batched`] has that as its next. Facts outside the scope have nothing.
    pub fn next(&self, scope: Scope) -> Vec<Next> {
        let mut coming: HashMap<u64, FactKind> = HashMap::new();
        let mut next = vec![Next::Nothing; self.list.len()];
        for (index, fact) in self.list.iter().enumerate().rev() {
            if fact.kind == FactKind::Refresh || !scope.has(fact) {
                continue;
            }
            next[index] = coming.insert(fact.pfn, fact.kind).map_or(Next::Nothing, Next::Is);
        }
        next
    }
}

/// Pages of a pageblock, as a shift.
const BLOCK_SHIFT: u32 = 9;

/// A pageblock's type, as a trace shows it, from one event on.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: u32,
    was: u8,
    is: u8,
}

/// The types of pageblocks, as a whole trace tells them.
#[derive(Debug, Default)]
pub struct BlockTypes {
    blocks: HashMap<u64, Vec<Seen>>,
}

impl BlockTypes {
    /// What `facts` tell.
    pub fn new(facts: &Facts, scope: Scope) -> BlockTypes {
        let mut types = BlockTypes::default();
        // Where each page was last put on a list.
        let mut listed: HashMap<u64, usize> = HashMap::new();
        // The block that the last fallback of a CPU named: its other event tells the type that was
        // asked for, not the pageblock's.
        let mut fallen: HashMap<u16, u64> = HashMap::new();
        let in_scope = facts.list.iter().enumerate().filter(|(_, fact)| scope.has(fact));
        for (at, fact) in in_scope {
            match fact.kind {
                FactKind::Free | FactKind::Batched => {
                    listed.insert(fact.pfn, at);
                }
                FactKind::Alloc => {
                    if let Some(freed) = listed.remove(&fact.pfn) {
                        types.add(fact.pfn, freed, fact.was, fact.is);
                    }
                }
                FactKind::Refill | FactKind::Direct => {
                    listed.remove(&fact.pfn);
                    if fallen.get(&fact.cpu) != Some(&fact.pfn) {
                        types.add(fact.pfn, at, fact.was, fact.is);
                    }
                }
                FactKind::Drain => {
                    listed.remove(&fact.pfn);
                    types.add(fact.pfn, at, fact.was, fact.is);
                }
                FactKind::Fallback => {
                    fallen.insert(fact.cpu, fact.pfn);
                    types.take_back(fact.pfn, at);
                    // A block above the pageblock order is claimed whole.
                    let pages = 1_u64 << fact.broke.max(BLOCK_SHIFT as u8);
                    let first = fact.pfn & !(pages - 1);
                    for block in (first..first + pages).step_by(1 << BLOCK_SHIFT) {
                        types.add(block, at, fact.was, fact.is);
                    }
                }
                FactKind::Refresh => {}
            }
        }
        for seen in types.blocks.values_mut() {
            seen.sort_by_key(|seen| seen.at);
        }
        types
    }

    fn add(&mut self, pfn: u64, at: usize, was: u8, is: u8) {
        let seen = Seen { at: at as u32, was, is };
        self.blocks.entry(pfn >> BLOCK_SHIFT).or_default().push(seen);
    }

    /// Up to 6.14 a refill's event may stand before that of its fallback.
    fn take_back(&mut self, pfn: u64, at: usize) {
        let Some(seen) = self.blocks.get_mut(&(pfn >> BLOCK_SHIFT)) else { return };
        if seen.last().is_some_and(|last| last.at as usize + 1 == at) {
            seen.pop();
        }
    }

    /// The type of the pageblock of `pfn` right after event `at`; before its first event, the type
    /// that this event names as the former one. `None` if the trace never tells.
    pub fn at(&self, pfn: u64, at: usize) -> Option<Migratetype> {
        let seen = self.blocks.get(&(pfn >> BLOCK_SHIFT))?;
        let later = seen.partition_point(|seen| seen.at as usize <= at);
        let number = match later.checked_sub(1) {
            Some(last) => seen[last].is,
            None => seen.first()?.was,
        };
        Migratetype::new(number.into())
    }

    /// Every pageblock that the trace tells about, with its type at event `at`.
    pub fn all_at(&self, at: usize) -> impl Iterator<Item = (u64, Migratetype)> {
        self.blocks.keys().filter_map(move |block| {
            let pfn = block << BLOCK_SHIFT;
            self.at(pfn, at).map(|mt| (pfn, mt))
        })
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
