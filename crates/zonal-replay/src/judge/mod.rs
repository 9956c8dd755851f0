//! One step at a time: what the per-CPU lists and the buddy would do from where the kernel was.
//!
//! A replay that runs by itself soon holds other pages than the kernel did: the order of the free
//! lists at the start is in no file, and one block taken otherwise moves all that follow. So it
//! cannot say whether a list gave out the *right* page. This judge can. It keeps the lists of every
//! CPU and the buddies of every zone as the kernel had them, on a second machine in the core; asks
//! the core for its choice at each event; compares it with the kernel's; and then does what the
//! kernel did:
//!
//! | event | given | asked of the core | judged against |
//! |--|--|--|--|
//! | allocation | CPU, zone, order, type | the page that the list gives | `mm_page_alloc` |
//! | free | page, CPU | nothing: it goes on the list of its pageblock's type | the later ones |
//! | refill | CPU, order, type, how many | the blocks that the buddy gives | `zone_locked` |
//! | drain | CPU, list, how many | the pages that the list gives up | `pcpu_drain` |
//!
//! When refills and drains happen and how large they are is not judged here: the replay itself is
//! left alone for that, and its totals stand beside the kernel's.
//!
//! | file | does |
//! |--|--|
//! | `pages` | where each page is, as the trace tells |
//! | `lists` | the per-CPU lists |
//! | `gone` | what must have left a list without an event |
//! | `streams` | the first drain of each CPU's lists by a free |
//! | `buddy` | the buddies of the zones |

mod buddy;
mod gone;
mod lists;
mod pages;
mod streams;

use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_trace::{Event, MachineDescription};

use self::buddy::BuddyJudge;
pub use self::buddy::{BuddyDifferences, BuddyVerdict};
use self::gone::Gone;
use self::lists::{Lists, Outcome};
use self::pages::{Pages, Place};
use self::streams::{Drained, Streams};
use crate::build::{Plan, Rebuilt};
use crate::error::ReplayError;
use crate::facts::{BlockTypes, Fact, FactKind, Facts, LookedAt, Next, Scope, Shown, Stream};
use crate::program::Program;
use crate::read;
use crate::start::{self, Known};
use crate::told::{FirstRefill, ListKey, StartList, Told, Untraced};
use crate::zones::ZoneMap;

/// The verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The per-CPU lists.
    pub lists: ListVerdict,
    /// The buddies.
    pub buddy: BuddyVerdict,
}

/// How the per-CPU lists did, given the kernel's refills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ListVerdict {
    /// Allocations of a page that the trace had shown going to a list.
    pub judged: u64,
    /// Of them, those where the list gives that page.
    pub same_pfn: u64,
    /// Why the others differ.
    pub differences: ListDifferences,
    /// Allocations of pages that were on a list since before the trace.
    pub unseen: u64,
    /// Allocations past the lists.
    pub past_lists: u64,
    /// Drained pages that the trace had shown going to a list.
    pub drained_judged: u64,
    /// Of them, those that the list would give at that moment.
    pub drained_same_pfn: u64,
    /// Pages that were on a list and were next seen freed: an allocation without event took them.
    pub untraced_allocations: u64,
    /// Frees into pageblocks whose type the trace never tells, taken to be Movable.
    pub unknown_block_type: u64,
    /// Blocks whose free went past the lists to their buddy, as an interrupt's does that came while
    /// its CPU used them (LB E.2); pages from the buddy that were thought to be on a list.
    pub freed_past_lists: u64,
    /// Pages dropped because a list had no room.
    pub no_room: u64,
}

/// Reasons for differences at the per-CPU lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ListDifferences {
    /// Allocations without event had taken the pages on top of it.
    pub after_untraced: u64,
    /// It was on the same list of another CPU: the thread moved between the list and the event.
    pub other_cpu: u64,
    /// It was on another list of the CPU: the type of its pageblock is another than told.
    pub other_list: u64,
    /// Others were on top of it, and still are: an interrupt came between list and event.
    pub below_others: u64,
    /// The trace shows it free, or in use.
    pub not_on_a_list: u64,
}

impl ListVerdict {
    /// Every count that is not plain agreement, in words.
    pub fn reasons(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let differences = &self.differences;
        let all = [
            (differences.after_untraced, "differ: allocations without event came between"),
            (differences.other_cpu, "differ: it was on another CPU's list"),
            (differences.other_list, "differ: it was on the list of another type"),
            (differences.below_others, "differ: other pages were on top of it"),
            (differences.not_on_a_list, "differ: the trace does not show it on a list"),
            (self.unseen, "not judged: on a list since before the trace"),
            (self.past_lists, "not judged: past the lists"),
            (self.untraced_allocations, "pages left a list by an allocation without event"),
            (self.unknown_block_type, "frees into pageblocks of unknown type"),
            (self.freed_past_lists, "freed past the lists, or came from the buddy unexpectedly"),
            (self.no_room, "pages dropped: a list was full"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

/// Judges the core's choices one at a time, each from the kernel's state; also finds what no event
/// says.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn lists(
    description: &MachineDescription,
    map: &ZoneMap,
    cpus: u32,
    looked: &LookedAt<'_>,
    policy: Policy,
) -> Result<(ListVerdict, Told), ReplayError> {
    let plan = Plan::new(description, map, cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    Ok(Judge::new(looked, map, &rebuilt).run())
}

/// Judges the choices of the buddies in the same way, with everything else told.
///
/// # Errors
/// If the machine cannot be rebuilt; what `each` returns, which is given a function to call for
/// each event.
pub fn buddies(
    (description, map): (&MachineDescription, &ZoneMap),
    program: &Program,
    policy: Policy,
    (told, shown): (&Told, &Shown),
    each: impl FnOnce(&mut dyn FnMut(&Event)) -> Result<(), ReplayError>,
) -> Result<BuddyVerdict, ReplayError> {
    let plan = Plan::new(description, map, program.cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    let known = Known { program, shown: Some(shown), told: Some(told) };
    start::bring_up(&rebuilt, description, map, &known)?;
    let step_ns = description.clock.step_ns.into();
    let mut judge = BuddyJudge::new(shown, map, &rebuilt, step_ns);
    let mut stream = Stream::new(read::frees_rows(description));
    each(&mut |event| {
        if let Some((at, fact)) = stream.see(event) {
            judge.see(at, &fact);
        }
    })?;
    Ok(judge.verdict())
}

/// Runs all of `facts`; counts from their start on.
struct Judge<'r, 'a> {
    facts: &'r Facts,
    scope: Scope,
    drains: bool,
    next: &'r [Next],
    types: &'r BlockTypes,
    map: &'r ZoneMap,
    pages: Pages,
    lists: Lists<'r, 'a>,
    gone: Gone,
    verdict: ListVerdict,
    told: Told,
    /// By CPU: position of the last event that a refill or a drain already used.
    done: Vec<usize>,
    /// By zone and CPU: frees to its lists since the start.
    frees: Vec<u32>,
    /// By zone and CPU: what leads to its first drain by a free.
    streams: Streams,
    /// By CPU: the first of the frees of pages that nobody was seen to allocate, since an
    /// allocation was.
    together: Vec<Option<usize>>,
}

impl<'r, 'a> Judge<'r, 'a> {
    /// A judge on its own machine, with empty lists.
    fn new(
        LookedAt { facts, scope, drains, types, next }: &'r LookedAt<'r>,
        map: &'r ZoneMap,
        rebuilt: &'r Rebuilt<'a>,
    ) -> Judge<'r, 'a> {
        let stores = rebuilt.allocator.zones().len() * rebuilt.allocator.cpus();
        Judge {
            facts,
            scope: *scope,
            drains: *drains,
            next,
            types,
            map,
            pages: Pages::default(),
            lists: Lists::new(rebuilt),
            gone: Gone::default(),
            verdict: ListVerdict::default(),
            told: Told::default(),
            done: vec![0; rebuilt.allocator.cpus()],
            frees: vec![0; stores],
            streams: Streams::new(stores, rebuilt.allocator.cpus()),
            together: vec![None; rebuilt.allocator.cpus()],
        }
    }

    /// Judges everything, and finds what no event says.
    fn run(mut self) -> (ListVerdict, Told) {
        for at in 0..self.facts.len() {
            if at == self.facts.start() {
                self.begin();
            }
            let fact = self.facts.get(at);
            if !self.scope.has(&fact) {
                continue;
            }
            if !matches!(fact.kind, FactKind::Drain | FactKind::Part) {
                self.streams.other(&fact);
            }
            match fact.kind {
                FactKind::Alloc => self.alloc(at, &fact),
                FactKind::Free => self.free(at, &fact),
                FactKind::Batched => self.batched(at, &fact),
                FactKind::Refill | FactKind::Fallback => self.refill(at, &fact),
                FactKind::Direct => self.direct(&fact),
                FactKind::Drain => self.drain(at, &fact),
                FactKind::Refresh | FactKind::Part => {}
            }
        }
        self.told.past_lists.sort_unstable();
        // Those of one moment stay in their order.
        self.told.untraced.sort_by_key(|untraced| untraced.at);
        (self.verdict, self.told)
    }

    /// Here the replay starts.
    fn begin(&mut self) {
        self.verdict = ListVerdict::default();
        let known = |(key, hot)| (key, StartList { hot, ..StartList::default() });
        let lists = self.lists.all().into_iter().map(known).collect();
        self.told = Told { lists, ..Told::default() };
        self.frees.fill(0);
        self.streams.begin();
        self.together.fill(None);
    }

    fn alloc(&mut self, at: usize, fact: &Fact) {
        self.together[usize::from(fact.cpu)] = None;
        let place = self.pages.replace(fact.pfn, Place::Held);
        let from = self.lists.of(self.map, fact);
        let Some(from) = from.filter(|_| place != Place::Direct) else {
            self.verdict.past_lists += 1;
            if from.is_some() {
                self.told.past_lists.push(at);
            }
            return;
        };
        self.streams.allocated(self.store(from));
        match place {
            Place::Listed(key) => self.listed_alloc(at, fact, (key, from)),
            Place::Aside(key) => {
                self.verdict.judged += 1;
                self.differs(key, from);
            }
            Place::Unseen => {
                self.verdict.unseen += 1;
                let list = self.told.lists.entry(from).or_default();
                if !list.ran_empty {
                    list.hot.push(fact.pfn);
                }
                // Had a page been on top of it, that page would have come.
                let gone = self.gone.take_all(from, &self.pages);
                self.drop_untraced(at, from, &gone);
            }
            _ => {
                let verdict = &mut self.verdict;
                verdict.judged += 1;
                verdict.differences.not_on_a_list += 1;
            }
        }
    }

    /// An allocation of a page that is on a list, and perhaps on another than it asks.
    fn listed_alloc(&mut self, at: usize, fact: &Fact, (key, from): (ListKey, ListKey)) {
        let (next, pages) = (self.next, &self.pages);
        let outcome = self.lists.take(key, fact.pfn, |above| is_gone(next, pages, above));
        if let Outcome::BelowStrangers(above) = &outcome {
            self.set_aside(key, above);
        }
        self.verdict.judged += 1;
        match outcome {
            Outcome::Top if key == from => self.verdict.same_pfn += 1,
            Outcome::BelowGone(above) if (key.list, key.cpu) == (from.list, from.cpu) => {
                self.verdict.differences.after_untraced += 1;
                self.drop_untraced(at, key, &above);
            }
            _ => self.differs(key, from),
        }
    }

    /// The page came from this list, and not from the hot end of the one that was asked.
    fn differs(&mut self, key: ListKey, from: ListKey) {
        let differences = &mut self.verdict.differences;
        match key {
            _ if key.list != from.list => differences.other_list += 1,
            _ if key.cpu != from.cpu => differences.other_cpu += 1,
            _ => differences.below_others += 1,
        }
    }

    /// Pages that were thought to be on a list are off it, and nobody knows where.
    fn set_aside(&mut self, key: ListKey, pfns: &[u64]) {
        if pfns.is_empty() {
            return;
        }
        for &pfn in pfns {
            self.pages.replace(pfn, Place::Aside(key));
        }
        self.gone.left(key, pfns.len(), &self.pages);
    }

    /// A page came to the hot end of a list, by this event.
    fn listed(&mut self, key: ListKey, pfn: u64, at: usize) {
        self.pages.replace(pfn, Place::Listed(key));
        self.pages.set_last(pfn, at);
        if is_gone(self.next, &self.pages, pfn) {
            self.gone.push(key, pfn, at);
        }
    }

    /// Pages of one list, the hottest first, left it by allocations without event.
    fn drop_untraced(&mut self, at: usize, key: ListKey, pfns: &[u64]) {
        for &pfn in pfns {
            debug_assert_eq!(self.pages.get(pfn), Place::Listed(key));
            self.tell_untraced(at, key, pfn);
        }
        self.lists.remove(key, pfns);
        self.gone.left(key, pfns.len(), &self.pages);
    }

    /// A page of one list was allocated without event.
    fn tell_untraced(&mut self, at: usize, key: ListKey, pfn: u64) {
        let (order, migratetype) = self.lists.holds(key);
        self.pages.replace(pfn, Place::Held);
        let freed = self.next[self.pages.last(pfn)] == Next::Is(FactKind::Free);
        let cpu = key.cpu.into();
        self.told.untraced.push(Untraced { at, pfn, cpu, order, migratetype, freed });
        self.verdict.untraced_allocations += 1;
    }

    fn free(&mut self, at: usize, fact: &Fact) {
        match self.pages.get(fact.pfn) {
            Place::Listed(key) => {
                let at = self.allocated_before(at, key, fact);
                self.drop_untraced(at, key, &[fact.pfn]);
            }
            Place::Aside(key) => {
                let at = self.allocated_before(at, key, fact);
                self.tell_untraced(at, key, fact.pfn);
            }
            _ => {}
        }
        self.pages.set_last(fact.pfn, at);
        if self.next[at] == Next::Is(FactKind::Batched) {
            self.pages.replace(fact.pfn, Place::Pending(fact.order));
        } else {
            self.push(at, fact);
        }
    }

    /// When a page that is freed now was allocated without event: the bulk allocator hands out many
    /// pages at once, which are freed one after the other. So it was before the first free of
    /// those that are freed together, if the page was on a list by then.
    fn allocated_before(&mut self, at: usize, key: ListKey, fact: &Fact) -> usize {
        if key.cpu != fact.cpu {
            return at;
        }
        let first = &mut self.together[usize::from(fact.cpu)];
        match *first {
            Some(first) if self.pages.last(fact.pfn) < first => first,
            _ => *first.insert(at),
        }
    }

    /// Whether a block that is freed now never was on a list: its buddy gives it out next, and no
    /// drain brought it there. Frees do so that find the lists of their CPU in use (LB E.2): an
    /// interrupt came while a thread was at them.
    fn is_past_lists(&self, at: usize) -> bool {
        use FactKind::{Direct, Fallback, Refill};
        self.drains && matches!(self.next[at], Next::Is(Refill | Direct | Fallback))
    }

    fn batched(&mut self, at: usize, fact: &Fact) {
        // Without its free, which came before the trace, its order is not known.
        if let Place::Pending(order) = self.pages.get(fact.pfn) {
            self.push(at, &Fact { order, ..*fact });
        }
    }

    /// Which of `frees` counts those to the lists of this one's CPU in its zone.
    fn store(&self, key: ListKey) -> usize {
        usize::from(key.zone) * self.done.len() + usize::from(key.cpu)
    }

    /// A freed block reaches the list of its pageblock's type, or its buddy.
    fn push(&mut self, at: usize, fact: &Fact) {
        let mt = self.types.at(fact.pfn, at);
        self.verdict.unknown_block_type += u64::from(mt.is_none());
        let mt = mt.map_or(Fact::MOVABLE, |mt| mt.index() as u8);
        let to = self.lists.of(self.map, &Fact { migratetype: mt, ..*fact });
        match to {
            Some(_) if self.is_past_lists(at) => {
                self.verdict.freed_past_lists += 1;
                self.told.past_lists.push(self.pages.last(fact.pfn));
            }
            Some(key) => {
                let store = self.store(key);
                self.frees[store] = self.frees[store].saturating_add(1);
                self.streams.freed(store, fact);
                if self.lists.push(key, fact.pfn) {
                    self.listed(key, fact.pfn, at);
                    return;
                }
                self.verdict.no_room += 1;
            }
            None => {}
        }
        self.pages.replace(fact.pfn, Place::Free);
        self.pages.set_last(fact.pfn, at);
    }

    /// The first event of a refill: all of it happens now, under one hold of the zone lock.
    fn refill(&mut self, at: usize, first: &Fact) {
        if at < self.done[first.cpu as usize] {
            return;
        }
        let Some(key) = self.lists.of(self.map, first) else {
            self.direct(first);
            return;
        };
        let mut blocks: Vec<(u64, usize)> = Vec::new();
        let mut end = at;
        for (index, fact) in (at..).zip(self.facts.from(at)) {
            if fact.cpu != first.cpu {
                continue;
            }
            let goes_on = matches!(fact.kind, FactKind::Refill | FactKind::Fallback)
                && self.lists.of(self.map, &fact) == Some(key);
            if !goes_on {
                break;
            }
            end = index + 1;
            // A fallback's block may come again as a refill's, or have come.
            match blocks.last_mut() {
                Some((pfn, last)) if *pfn == fact.pfn => *last = index,
                _ => blocks.push((fact.pfn, index)),
            }
        }
        self.done[first.cpu as usize] = end;
        let frees_before = self.frees[self.store(key)];
        let list = self.told.lists.entry(key).or_default();
        list.ran_empty = true;
        list.first_refill.get_or_insert(FirstRefill {
            at,
            pages: (blocks.len() as u64) << first.order,
            frees_before,
        });
        for (pfn, _) in &blocks {
            self.buddy_gave(*pfn);
        }
        // A list is refilled when it is empty: what is thought to be there has left.
        let gone = self.gone.take_all(key, &self.pages);
        self.drop_untraced(at, key, &gone);
        let pfns: Vec<u64> = blocks.iter().map(|(pfn, _)| *pfn).collect();
        // The first block is the hottest.
        for (pfn, index) in blocks.iter().rev() {
            self.listed(key, *pfn, *index);
        }
        for pfn in self.lists.refill(key, &pfns) {
            self.verdict.no_room += 1;
            self.pages.replace(pfn, Place::Free);
        }
    }

    fn direct(&mut self, fact: &Fact) {
        self.buddy_gave(fact.pfn);
    }

    /// Takes note of the first drain of a CPU's lists that a free causes.
    fn first_drain(&mut self, at: usize, fact: &Fact) {
        let Some(key) = self.lists.of(self.map, fact) else { return };
        let store = self.store(key);
        let first = match self.streams.drained(store, at, fact) {
            Drained::First(first) => self.told.drains.entry((key.zone, key.cpu)).or_insert(first),
            Drained::GoesOn => match self.told.drains.get_mut(&(key.zone, key.cpu)) {
                Some(first) => first,
                None => return,
            },
            Drained::Other => return,
        };
        first.pages += 1 << fact.order;
    }

    /// The buddy gave out a block, so it was not on the list where it was thought to be.
    fn buddy_gave(&mut self, pfn: u64) {
        let place = self.pages.replace(pfn, Place::Direct);
        if let Place::Listed(key) = place {
            self.lists.remove(key, &[pfn]);
        }
        let is_thought_listed = matches!(place, Place::Listed(_) | Place::Aside(_));
        self.verdict.freed_past_lists += u64::from(is_thought_listed);
    }

    fn drain(&mut self, at: usize, fact: &Fact) {
        self.first_drain(at, fact);
        let key = match self.pages.replace(fact.pfn, Place::Free) {
            Place::Listed(key) => key,
            Place::Aside(_) => {
                self.verdict.drained_judged += 1;
                return;
            }
            Place::Unseen => {
                let Some(key) = self.lists.of(self.map, fact) else { return };
                let list = self.told.lists.entry(key).or_default();
                if !list.ran_empty {
                    list.cold.push(fact.pfn);
                }
                return;
            }
            _ => return,
        };
        let (is_coldest, passed) = self.lists.drain(key, fact.pfn);
        self.set_aside(key, &passed);
        self.verdict.drained_judged += 1;
        self.verdict.drained_same_pfn += u64::from(is_coldest);
    }
}

/// Whether a page that is thought to be on a list must have left it without an event: the next that
/// the trace shows of it is that it is freed, or nothing.
fn is_gone(next: &[Next], pages: &Pages, pfn: u64) -> bool {
    matches!(next[pages.last(pfn)], Next::Nothing | Next::Is(FactKind::Free))
}

#[cfg(test)]
mod tests;
