//! Where each chunk is, and what moves it from one place to another.

use std::ops::Range;

use super::lines::{Access, Lines};
use crate::cost::bandwidth::Bandwidth;
use crate::cost::cache::{CHUNK_LINES, Cache, Home, PAGE_CHUNKS, Place, Set, Tag};
use crate::cost::words::{Word, Words};
use crate::units::PAGE_LINES;

/// A place where a chunk may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum At {
    Own,
    Llc,
    Core,
    Socket,
    Remote,
    Memory,
    MemoryRemote,
    /// Memory of a node without CPUs.
    MemoryFar,
}

/// Places where a chunk may be.
const PLACES: usize = At::MemoryFar as usize + 1;

impl At {
    #[inline]
    fn is_memory(self) -> bool {
        self >= At::Memory
    }
}

/// What touching some lines took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// Cycles of all lines, one after the other.
    pub sum: u64,
    /// Cycles of the line that took longest.
    pub longest: u64,
    /// Cycles until a busy memory had room.
    pub waits: u64,
}

/// Of a core: its L2, its last-level cache, its socket, its node.
pub(super) type CorePlace = [u32; 4];

/// A page that a core touches.
#[derive(Clone, Copy, Debug)]
struct Page {
    core: u32,
    place: CorePlace,
    /// The number of its first chunk, and its page frame.
    first: u64,
    pfn: u64,
    home: Home,
    access: Access,
    /// The time, and what no CPU's clock is behind.
    when: (u64, u64),
}

/// What is done with a chunk that is touched, as far as its word tells.
#[derive(Clone, Copy, Debug)]
struct Plan {
    word: Word,
    /// Its version from now on.
    version: u64,
    /// Where it was if the L2 of the core has the true one, and if not. None: in which of several
    /// places must be looked for.
    if_mine: Option<At>,
    if_not: Option<At>,
}

/// Caches whose places are of one size.
#[derive(Debug)]
pub(super) struct Caches<P> {
    pub l2: Vec<Cache<P>>,
    /// Empty: the L2 is the last level.
    pub llc: Vec<Cache<P>>,
    /// A last-level cache takes what L2s let go, instead of all that comes.
    pub victims: bool,
}

/// All but the caches.
#[derive(Debug)]
pub(super) struct State {
    /// Of each core.
    pub places: Vec<CorePlace>,
    /// Cycles of a line by its place.
    pub cycles: [u64; PLACES],
    pub in_flight: u64,
    pub memory: Vec<Bandwidth>,
    pub node_pages: u64,
    /// Page frames of the node that was asked for last, and that node.
    pub asked: (Range<u64>, usize),
    /// The first page frame of far memory, and its node.
    pub far_start: u64,
    pub far_node: usize,
    pub words: Words,
    /// Lines touched so far, by their place.
    pub lines: [u64; PLACES],
    /// Changed lines that had to go to memory.
    pub written_back: u64,
}

impl State {
    /// Cycles until one line that `from` has changed is at `to`, without contention.
    #[inline]
    pub fn transfer(&self, from: u32, to: u32) -> u64 {
        let [[l2, llc, socket, _], other] = [from, to].map(|core| self.places[core as usize]);
        match (l2 == other[0], llc == other[1], socket == other[2]) {
            (true, ..) => 0,
            (_, true, _) => self.cycles_of(At::Core),
            (.., true) => self.cycles_of(At::Socket),
            _ => self.cycles_of(At::Remote),
        }
    }

    /// Cycles of a line that is there, without contention.
    #[inline]
    pub fn cycles_of(&self, at: At) -> u64 {
        self.cycles[at as usize]
    }

    /// Lines touched so far.
    pub fn lines(&self) -> Lines {
        let [own, llc, core, socket, remote, memory, memory_remote, memory_far] = self.lines;
        let (memory_remote, written_back) = (memory_remote + memory_far, self.written_back);
        Lines { own, llc, core, socket, remote, memory, memory_remote, written_back }
    }

    fn memory_of(&mut self, pfn: u64, node: u32) -> At {
        match self.node(pfn) {
            of if of == node as usize => At::Memory,
            of if of == self.far_node => At::MemoryFar,
            _ => At::MemoryRemote,
        }
    }

    fn node(&mut self, pfn: u64) -> usize {
        if !self.asked.0.contains(&pfn) {
            self.asked = match pfn / self.node_pages {
                _ if pfn >= self.far_start => (self.far_start..u64::MAX, self.far_node),
                node => {
                    let start = node * self.node_pages;
                    (start..self.far_start.min(start + self.node_pages), node as usize)
                }
            };
        }
        self.asked.1
    }

    /// An L2 has no room for a chunk any more. Returns whether it was the true one.
    fn dropped(&mut self, l2: usize, tag: Tag) -> bool {
        let chunk = tag.chunk();
        let word = self.words.of(chunk);
        let held = word.holder().filter(|_| word.is(Word::HELD));
        let true_one = word.tag(chunk) == tag;
        if true_one && held.is_some_and(|by| self.places[by as usize][0] as usize == l2) {
            self.words.set(chunk, Word(word.0 & !Word::HELD));
        }
        true_one
    }

    /// What was in the place that a chunk took in a last-level cache.
    #[inline]
    fn left(&mut self, left: Tag, chunk: Tag, when: (u64, u64)) {
        if left.chunk() != 0 && left.chunk() != chunk.chunk() {
            self.write_back(left, when);
        }
    }

    /// A last-level cache evicts a chunk: changed lines go to memory, without a wait.
    fn write_back(&mut self, tag: Tag, when: (u64, u64)) {
        let chunk = tag.chunk();
        let word = self.words.of(chunk);
        if word.tag(chunk) == tag && word.is(Word::DIRTY) {
            self.words.set(chunk, Word(word.0 & !Word::DIRTY));
            self.written_back += CHUNK_LINES;
            self.memory_waits(self.words.pfn(chunk), CHUNK_LINES, when);
        }
    }

    /// Cycles that lines wait because their memory is busy.
    fn memory_waits(&mut self, pfn: u64, lines: u64, (now, reached): (u64, u64)) -> u64 {
        let node = self.node(pfn);
        self.memory.get_mut(node).map_or(0, |memory| memory.take(lines, now, reached))
    }
}

impl<P: Place> Caches<P> {
    /// The same with wider places.
    pub fn widened<Q: Place>(&self) -> Caches<Q> {
        let all = |caches: &[Cache<P>]| caches.iter().map(Cache::with_places).collect();
        Caches { l2: all(&self.l2), llc: all(&self.llc), victims: self.victims }
    }

    /// `core` touches the first `lines` lines of the page whose first chunk and frame are given.
    #[inline(never)]
    pub fn page(
        &mut self,
        state: &mut State,
        (core, when): (u32, (u64, u64)),
        (first, pfn, lines): (u64, u64, u64),
        access: Access,
        took: &mut Took,
    ) {
        let place @ [l2, ..] = state.places[core as usize];
        let page = Page { core, place, first, pfn, home: Home::new(pfn), access, when };
        let words = state.words.of_page(first);
        let [word, ..] = words;
        if lines > PAGE_LINES - CHUNK_LINES
            && words.iter().all(|other| other.is_like(word))
            && let Some(set) = self.l2[l2 as usize].row(page.home)
            && let Some(plan) = self.plan(state, &page, word)
        {
            return self.row::<{ PAGE_CHUNKS as usize }>(state, &page, (0, set), plan, lines, took);
        }
        let mut left = lines;
        for part in 0..lines.div_ceil(CHUNK_LINES) {
            let some = left.min(CHUNK_LINES);
            let set = self.l2[l2 as usize].set(page.home.part(part));
            // The one before may have changed it.
            let word = state.words.of(first + part);
            let plan = self.plan(state, &page, word).unwrap_or_else(|| {
                let at = self.find(state, &page, (part, word, false));
                let same = at.is_memory();
                let version = if same { word.version() } else { word.next_version() };
                Plan { word, version, if_mine: None, if_not: Some(at) }
            });
            self.row::<1>(state, &page, (part, set), plan, some, took);
            left -= some;
        }
    }

    /// What will be done with chunks that have this word. None: a write of what nobody's L2 has and
    /// one last-level cache or none, so that it must be looked for first.
    #[inline(always)]
    fn plan(&self, state: &mut State, page: &Page, word: Word) -> Option<Plan> {
        let Page { core, place: [_, llc, _, node], pfn, access, .. } = *page;
        let own = if self.llc.is_empty() { At::Llc } else { At::Own };
        let Some(holder) = word.holder() else {
            let at = state.memory_of(pfn, node);
            return Some(Plan { word, version: 1, if_mine: None, if_not: Some(at) });
        };
        let (ours, shared) = (holder == core, word.is(Word::SHARED));
        let with_holder = !ours && word.is(Word::HELD);
        let near = state.places[holder as usize][1] == llc;
        let if_not = (with_holder && near).then_some(At::Core);
        let (version, if_mine) = match access {
            Access::Read => (word.version(), Some(own)),
            Access::Write if !shared => match (ours, with_holder) {
                (true, _) => (word.version(), Some(own)),
                (_, true) => (word.next_version(), Some(own)),
                _ => return None,
            },
            // Others may have copies: invalidate them before ours changes.
            Access::Write => (word.next_version(), if ours { Some(At::Llc) } else { if_not }),
        };
        Some(Plan { word, version, if_mine, if_not })
    }

    /// Chunks in a row with the same plan, from the `part`-th of a page on, the first in this set
    /// of the L2. All of them come into the L2 before anything else of them is looked at, so that
    /// the host fetches that for all at once.
    #[inline(always)]
    fn row<const N: usize>(
        &mut self,
        state: &mut State,
        page: &Page,
        (part, set): (u64, Set),
        plan: Plan,
        lines: u64,
        took: &mut Took,
    ) {
        let (l2, llc) = (page.place[0] as usize, page.place[1] as usize);
        let chunk = page.first + part;
        let (old, new) = (plan.word.tag(chunk), Tag::new(chunk, plan.version));
        let begins_again = plan.version < plan.word.version();
        if begins_again {
            (0..N as u64).for_each(|at| self.outdate(page.home.part(part + at), old.plus(at)));
        }
        let left: [Tag; N] = self.l2[l2].bring_row(set, new);
        let mut gone = [(Tag::default(), Set::default()); N];
        for ((behind, tag), (gone, in_llc)) in (0..).zip(left).zip(&mut gone) {
            // What is stale by now is nobody's loss.
            if tag.chunk() != chunk + behind && tag.chunk() != 0 && state.dropped(l2, tag) {
                *gone = tag;
                if let Some(cache) = self.llc.get(llc).filter(|_| self.victims) {
                    *in_llc = cache.set(state.words.home(tag.chunk()));
                    cache.prefetch(*in_llc);
                }
            }
        }
        let (mut lines, mut sum, mut longest) = (lines, took.sum, took.longest);
        for (behind, (left, gone)) in (0..).zip(left.into_iter().zip(gone)) {
            let (part, old, new) = (part + behind, old.plus(behind), new.plus(behind));
            let mine = left == old;
            let known = if mine { plan.if_mine } else { plan.if_not };
            let at = known.unwrap_or_else(|| {
                let found = self.find(state, page, (part, plan.word, mine));
                if mine && found.is_memory() { At::Llc } else { found }
            });
            self.came(state, page, (part, plan.word, at), (old, new), gone);
            let some = lines.min(CHUNK_LINES);
            lines -= some;
            let cycles = state.cycles_of(at);
            state.lines[at as usize] += some;
            sum += some * cycles;
            longest = cycles.max(longest);
            if at.is_memory() {
                took.waits = state.memory_waits(page.pfn, some, page.when).max(took.waits);
            }
        }
        (took.sum, took.longest) = (sum, longest);
        if begins_again {
            (0..N as u64).for_each(|at| self.outdate(page.home.part(part + at), new.plus(at)));
        }
    }

    /// A chunk that was at some place has come into the L2 of the core, and another had to go.
    #[inline(always)]
    fn came(
        &mut self,
        state: &mut State,
        page: &Page,
        (part, word, at): (u64, Word, At),
        (old, new): (Tag, Tag),
        (gone, gone_in_llc): (Tag, Set),
    ) {
        let Page { core, place: [_, llc, ..], home, access, when, .. } = *page;
        let chunk = page.first + part;
        // The line is ours alone if its only other holder has dropped it.
        let alone = !word.is(Word::SHARED) && (word.holder() == Some(core) || at.is_memory());
        let flags = match access {
            Access::Write => Word::DIRTY,
            Access::Read => {
                state.words.of(chunk).0 & Word::DIRTY | if alone { 0 } else { Word::SHARED }
            }
        };
        state.words.set(chunk, Word::new(new.version(), core, flags | Word::HELD));
        if at == At::Own {
            return;
        }
        let gone = (gone.chunk() != 0).then_some(gone);
        match self.llc.get_mut(llc as usize) {
            None => gone.into_iter().for_each(|gone| state.write_back(gone, when)),
            // The last-level cache takes what the L2 let go.
            Some(cache) if self.victims => {
                if at == At::Llc {
                    cache.take_out(cache.set(home.part(part)), old);
                }
                if let Some(gone) = gone {
                    let left = cache.bring(gone_in_llc, gone);
                    state.left(left, gone, when);
                }
            }
            Some(cache) => match at {
                At::Own | At::Llc | At::Core if old == new => {}
                At::Own | At::Llc | At::Core => cache.change(cache.set(home.part(part)), old, new),
                _ => {
                    let left = cache.bring(cache.set(home.part(part)), new);
                    state.left(left, new, when);
                }
            },
        }
    }

    /// Where a chunk is, beyond the L2 of the core. `mine`: this cache has it, but others may too,
    /// and must be invalidated.
    #[inline(never)]
    fn find(
        &mut self,
        state: &mut State,
        page: &Page,
        (part, word, mine): (u64, Word, bool),
    ) -> At {
        let Page { core, place: [_, llc, socket, node], pfn, .. } = *page;
        let (home, tag) = (page.home.part(part), word.tag(page.first + part));
        let Some(holder) = word.holder() else { return state.memory_of(pfn, node) };
        let [l2, other_llc, other_socket, _] = state.places[holder as usize];
        let with_holder = holder != core && word.is(Word::HELD);
        debug_assert!(
            l2 == page.place[0] || word.is(Word::HELD) == has(&self.l2[l2 as usize], home, tag),
            "CONT-3"
        );
        let near = other_llc == llc;
        if near && with_holder {
            return At::Core;
        }
        let far = |llcs: &[Cache<P>]| {
            let other = llcs.get(other_llc as usize);
            !near && (with_holder || other.is_some_and(|llc| has(llc, home, tag)))
        };
        let own = self.llc.get_mut(llc as usize);
        let here = own.is_some_and(|llc| llc.find(llc.set(home), tag));
        match here {
            true if !(mine && far(&self.llc)) => At::Llc,
            _ if !far(&self.llc) => state.memory_of(pfn, node),
            _ if other_socket == socket => At::Socket,
            _ => At::Remote,
        }
    }

    /// No cache has another version than this one of a chunk, whose versions begin again. Before
    /// they do so the last one stays, and behind it the first (CONT-4).
    #[cold]
    fn outdate(&mut self, home: Home, current: Tag) {
        for cache in self.l2.iter_mut().chain(&mut self.llc) {
            cache.outdate(cache.set(home), current);
        }
    }
}

/// Whether any cache has a chunk.
fn has<P: Place>(cache: &Cache<P>, home: Home, tag: Tag) -> bool {
    cache.has(cache.set(home), tag)
}
