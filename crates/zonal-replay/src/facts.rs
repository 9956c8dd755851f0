//! The recorded kernel's actions on each block, and what a second pass over a trace shows.
//!
//! [`Facts`] keeps 16 bytes of each event about a page while a trace is judged; [`Shown`] is what
//! stays of them. Together they show two things that no event says:
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
use zonal_trace::{Event, MachineDescription};

use self::alone::Alone;
use self::fact::Packed;
pub use self::fact::{Fact, FactKind};
use self::rows::Rows;
use crate::by_page::ByPage;
use crate::zones::ZoneMap;

pub(crate) mod alone;
mod fact;
mod rows;

/// The next event of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing that the trace shows.
    #[default]
    Nothing,
    /// An event of this kind.
    Is(FactKind),
}

/// All events about blocks, in the order of the trace.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    list: Vec<Packed>,
    packer: Packer,
    alone: Alone,
    /// Position of the first event that is replayed.
    start: usize,
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
    /// None yet. `rows`: pages of a block that are freed in a row are one free of it. A block that
    /// went past the lists of one of these zones is [`Direct`](FactKind::Direct); a simulation's
    /// events do not say so.
    pub fn new(rows: bool, zones: ZoneMap, is_simulated: bool) -> Facts {
        let (packer, alone) = (Packer::new(rows), Alone::new(zones, is_simulated));
        Facts { packer, alone, ..Facts::default() }
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        let Some(mut fact) = Fact::of(event) else { return };
        let at = self.list.len();
        for part in self.packer.whole(at, &mut fact) {
            let is = Fact { kind: FactKind::Part, ..self.get(part) };
            self.list[part] = self.packer.pack(&is);
        }
        if let Some(past) = self.alone.see(at, event) {
            let is = Fact { kind: FactKind::Direct, ..self.get(past) };
            self.list[past] = self.packer.pack(&is);
        }
        self.list.push(self.packer.pack(&fact));
    }

    /// Whether drains are among the events: one is, or the recorder is `zonal record`, which asks
    /// for all moves.
    pub fn shows_drains(&self, machine: &MachineDescription) -> bool {
        let is_ours = machine.flags.lock_waits.is_some();
        is_ours || self.from(0).any(|fact| fact.kind == FactKind::Drain)
    }

    /// Whether refills and drains name the blocks that they move. Those of the lab name the block
    /// of the call, as often as blocks moved: of most, the one before on the CPU was the same.
    pub fn names_moved(&self) -> bool {
        let mut last: Vec<Option<(FactKind, u64)>> = Vec::new();
        let (mut moved, mut again) = (0, 0);
        for fact in self.from(0) {
            let cpu = usize::from(fact.cpu);
            last.resize(last.len().max(cpu + 1), None);
            let now = matches!(fact.kind, FactKind::Refill | FactKind::Drain)
                .then_some((fact.kind, fact.pfn));
            moved += usize::from(now.is_some());
            again += usize::from(now.is_some() && now == last[cpu]);
            last[cpu] = now;
        }
        again * 2 <= moved
    }

    /// The zones of the kernel.
    pub(crate) fn zones(&self) -> &ZoneMap {
        self.alone.zones()
    }

    /// Makes this moment the start.
    pub fn begin(&mut self) {
        self.start = self.list.len();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// One of them.
    pub fn get(&self, at: usize) -> Fact {
        self.packer.unpack(self.list[at])
    }

    /// Those from one on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = Fact> {
        self.list[at..].iter().map(|packed| self.packer.unpack(*packed))
    }

    /// Position of the first event that is replayed.
    pub fn start(&self) -> usize {
        self.start
    }

    /// For each event, what comes next for its page. Repetitions of a free count: the event before
    /// a [`FactKind::Batched`] has that as its next. Facts outside the scope have nothing.
    pub fn next(&self, scope: Scope) -> Vec<Next> {
        let mut coming: ByPage<Next> = ByPage::default();
        let mut next = vec![Next::Nothing; self.list.len()];
        for index in (0..self.list.len()).rev() {
            let fact = self.get(index);
            if matches!(fact.kind, FactKind::Refresh | FactKind::Part) || !scope.has(&fact) {
                continue;
            }
            next[index] = coming.replace(fact.pfn, Next::Is(fact.kind));
        }
        next
    }
}

/// Facts, and what those of a scope show together.
#[derive(Debug)]
pub struct LookedAt<'f> {
    /// All of them.
    pub facts: &'f Facts,
    /// Those that are looked at.
    pub scope: Scope,
    /// No drain is missing: a block that was freed and comes from its buddy next never was on a
    /// list.
    pub drains: bool,
    /// The types of pageblocks.
    pub types: BlockTypes,
    /// For each event, what comes next for its page.
    pub next: Vec<Next>,
}

impl<'f> LookedAt<'f> {
    /// Looks at facts. `drains`: all drains are among them.
    pub fn new(facts: &'f Facts, scope: Scope, drains: bool) -> LookedAt<'f> {
        let (types, next) = (BlockTypes::new(facts, scope), facts.next(scope));
        LookedAt { facts, scope, drains, types, next }
    }
}

/// What stays of facts that were judged: they take more memory than the program that is made next.
#[derive(Debug, Default)]
pub struct Shown {
    /// The types of pageblocks.
    pub types: BlockTypes,
    /// Position of the first event that is replayed.
    pub start: usize,
    /// Positions of events that took a block from a buddy, and whose page a fallback names next.
    before_fallback: Vec<usize>,
}

impl Shown {
    /// What all facts show.
    pub fn new(LookedAt { facts, types, next, .. }: LookedAt<'_>) -> Shown {
        let is_taken =
            |at: usize| matches!(facts.get(at).kind, FactKind::Refill | FactKind::Direct);
        let named = (0..next.len()).filter(|at| next[*at] == Next::Is(FactKind::Fallback));
        Shown {
            types,
            start: facts.start,
            before_fallback: named.filter(|at| is_taken(*at)).collect(),
        }
    }

    /// Whether a fallback names the page next that this event took from a buddy.
    pub fn is_before_fallback(&self, at: usize) -> bool {
        self.before_fallback.binary_search(&at).is_ok()
    }
}

/// The facts of events that come one by one, as [`Facts`] would have kept them; but that a page was
/// freed as a [`FactKind::Part`], or came as a [`FactKind::Direct`], is not known yet.
#[derive(Debug)]
pub struct Stream {
    packer: Packer,
    len: usize,
}

impl Stream {
    /// None yet. `rows` as for [`Facts::new`].
    pub fn new(rows: bool) -> Stream {
        Stream { packer: Packer::new(rows), len: 0 }
    }

    /// The fact of the next event, with its position.
    pub fn see(&mut self, event: &Event) -> Option<(usize, Fact)> {
        let mut fact = Fact::of(event)?;
        self.packer.whole(self.len, &mut fact);
        self.len += 1;
        let packed = self.packer.pack(&fact);
        Some((self.len - 1, self.packer.unpack(packed)))
    }
}

/// What facts are packed by: the time of the first. And what is known of the blocks in use.
#[derive(Clone, Debug, Default)]
struct Packer {
    first_ns: Option<u64>,
    rows: Option<Rows>,
}

impl Packer {
    fn new(rows: bool) -> Packer {
        Packer { first_ns: None, rows: rows.then(Rows::default) }
    }

    /// Makes the free of a block's last page that of the block. Returns where its other pages were
    /// freed.
    fn whole(&mut self, at: usize, fact: &mut Fact) -> Vec<usize> {
        self.rows.as_mut().map(|rows| rows.see(at, fact)).unwrap_or_default()
    }

    /// The next fact, packed.
    fn pack(&mut self, fact: &Fact) -> Packed {
        let first_ns = *self.first_ns.get_or_insert(fact.time_ns);
        Packed::new(fact, first_ns)
    }

    fn unpack(&self, packed: Packed) -> Fact {
        packed.fact(self.first_ns.unwrap_or_default())
    }
}

/// A pageblock's type, as a trace shows it, from one event on.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: u32,
    was: u8,
    is: u8,
}

/// The blocks that fallbacks named, by CPU. The other event of a fallback tells the type that was
/// asked for, not the pageblock's.
struct Fallen {
    /// Position and block, by CPU and time.
    all: HashMap<u16, Vec<(usize, u64)>>,
}

impl Fallen {
    fn new(facts: &Facts, scope: Scope) -> Fallen {
        let mut all: HashMap<u16, Vec<(usize, u64)>> = HashMap::new();
        let fallbacks = facts.from(0).enumerate().filter(|(_, fact)| scope.has(fact));
        for (at, fact) in fallbacks.filter(|(_, fact)| fact.kind == FactKind::Fallback) {
            all.entry(fact.cpu).or_default().push((at, fact.pfn));
        }
        Fallen { all }
    }

    /// Whether the last fallback of a fact's CPU named its block. Ask from the last fact to the
    /// first.
    fn is_last(&mut self, fact: &Fact, at: usize) -> bool {
        let Some(all) = self.all.get_mut(&fact.cpu) else { return false };
        while all.pop_if(|(last, _)| *last > at).is_some() {}
        all.last().is_some_and(|(_, pfn)| *pfn == fact.pfn)
    }
}

/// The types of pageblocks, as a whole trace tells them.
#[derive(Debug, Default)]
pub struct BlockTypes {
    /// Of each pageblock, what says something new, the last first.
    blocks: HashMap<u64, Vec<Seen>>,
    /// Order of a pageblock in the recorded kernel.
    order: u8,
}

impl BlockTypes {
    /// What `facts` tell. They are looked at from the last to the first, so that what a page is
    /// allocated as is known where it was freed.
    pub fn new(facts: &Facts, scope: Scope) -> BlockTypes {
        let order = facts.zones().block_order();
        let mut types = BlockTypes { blocks: HashMap::new(), order };
        // The type that a page is next allocated as, without having left its list.
        let mut allocated: ByPage<Option<(u8, u8)>> = ByPage::default();
        let mut fallen = Fallen::new(facts, scope);
        // The block of the fallback right behind.
        let mut behind = None;
        for at in (0..facts.len()).rev() {
            let fact = facts.get(at);
            // Up to 6.14 a refill's event may stand before that of its fallback.
            let is_before_fallback = behind.take() == Some(fact.pfn >> order);
            if !scope.has(&fact) {
                continue;
            }
            match fact.kind {
                FactKind::Alloc => *allocated.of(fact.pfn) = Some((fact.was, fact.is)),
                FactKind::Free | FactKind::Batched => {
                    if let Some((was, is)) = allocated.replace(fact.pfn, None) {
                        types.add(fact.pfn, at, was, is);
                    }
                }
                FactKind::Refill | FactKind::Direct | FactKind::Drain => {
                    allocated.replace(fact.pfn, None);
                    let again = fact.kind != FactKind::Drain && fallen.is_last(&fact, at);
                    if !again && !is_before_fallback {
                        types.add(fact.pfn, at, fact.was, fact.is);
                    }
                }
                FactKind::Fallback => {
                    behind = Some(fact.pfn >> order);
                    // A block above the pageblock order is claimed whole.
                    let pages = 1_u64 << fact.broke.max(order);
                    let first = fact.pfn & !(pages - 1);
                    for block in (first..first + pages).step_by(1 << order) {
                        types.add(block, at, fact.was, fact.is);
                    }
                }
                FactKind::Refresh | FactKind::Part => {}
            }
        }
        types
    }

    /// The type of a pageblock at an event before all those that it was told of so far.
    fn add(&mut self, pfn: u64, at: usize, was: u8, is: u8) {
        let seen = Seen { at: at as u32, was, is };
        let all = self.blocks.entry(pfn >> self.order).or_default();
        match all.last_mut() {
            // What comes after says nothing new.
            Some(next) if next.is == is => *next = seen,
            _ => all.push(seen),
        }
    }

    /// The type of the pageblock of `pfn` right after event `at`; before its first event, the type
    /// that this event names as the former one. `None` if the trace never tells.
    pub fn at(&self, pfn: u64, at: usize) -> Option<Migratetype> {
        let seen = &self.blocks.get(&(pfn >> self.order))?;
        let later = seen.partition_point(|seen| seen.at as usize > at);
        let number = match seen.get(later) {
            Some(before) => before.is,
            None => seen.last()?.was,
        };
        Migratetype::new(number.into())
    }

    /// Order of a pageblock.
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Every pageblock that the trace tells about, with its type at event `at`.
    pub fn all_at(&self, at: usize) -> impl Iterator<Item = (u64, Migratetype)> {
        self.blocks.keys().filter_map(move |block| {
            let pfn = block << self.order;
            self.at(pfn, at).map(|mt| (pfn, mt))
        })
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
