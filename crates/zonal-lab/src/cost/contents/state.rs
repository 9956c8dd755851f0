//! Where each chunk is, and what moves it from one place to another.

use std::ops::Range;

use super::lines::{Access, Lines};
use crate::cost::bandwidth::Bandwidth;
use crate::cost::cache::{CHUNK_LINES, Cache, Home, PAGE_CHUNKS, Place, Set, Tag};
use crate::cost::words::{Word, Words};

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

/// A chunk that a core touches, and what its word says.
#[derive(Clone, Copy, Debug)]
struct Touched {
    core: u32,
    place: CorePlace,
    /// Its number, and its page frame.
    chunk: u64,
    pfn: u64,
    home: Home,
    /// Where the core's L2 and its last-level cache have it.
    in_l2: Set,
    in_llc: Set,
    word: Word,
}

/// Of a core: its L2, its last-level cache, its socket, its node.
pub(super) type CorePlace = [u32; 4];

/// Where the chunks of a page are in a core's L2 and in its last-level cache.
#[derive(Clone, Copy, Debug)]
struct Own {
    l2: [Set; PAGE_CHUNKS as usize],
    /// Means nothing where the L2 is the last level.
    llc: [Set; PAGE_CHUNKS as usize],
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
        let (home, place) = (Home::new(pfn), state.places[core as usize]);
        let chunks = lines.div_ceil(CHUNK_LINES).min(PAGE_CHUNKS);
        let own = self.expect(state, (core, place), (first, home), chunks as usize);
        let (mut left, mut sum, mut longest) = (lines, took.sum, took.longest);
        for (part, (in_l2, in_llc)) in (0..chunks).zip(own.l2.into_iter().zip(own.llc)) {
            let (chunk, some) = (first + part, left.min(CHUNK_LINES));
            let (home, word) = (home.part(part), state.words.of(chunk));
            let touched = Touched { core, place, chunk, pfn, home, in_l2, in_llc, word };
            let at = self.chunk(state, touched, access, when);
            let cycles = state.cycles_of(at);
            state.lines[at as usize] += some;
            sum += some * cycles;
            longest = cycles.max(longest);
            if at.is_memory() {
                took.waits = state.memory_waits(pfn, some, when).max(took.waits);
            }
            left -= some;
        }
        (took.sum, took.longest) = (sum, longest);
    }

    /// Where the core's caches have the chunks of a page. Of the first `chunks` of them that are
    /// not in its L2 it asks the host for all that will be looked at: one after the other each line
    /// would come from far away.
    #[inline(always)]
    fn expect(
        &self,
        state: &State,
        (core, [l2, llc, ..]): (u32, CorePlace),
        (first, home): (u64, Home),
        chunks: usize,
    ) -> Own {
        let (l2, llc) = (&self.l2[l2 as usize], self.llc.get(llc as usize));
        let in_l2 = l2.sets_of_page(home);
        let own = Own { l2: in_l2, llc: llc.map_or(in_l2, |llc| llc.sets_of_page(home)) };
        let words = state.words.of_page(first);
        let held = Word::held_by(core);
        if words[..chunks].iter().all(|word| word.is_held_by(held)) {
            return own;
        }
        for (word, (in_l2, in_llc)) in words[..chunks].iter().zip(own.l2.iter().zip(own.llc)) {
            if !word.is_held_by(held) {
                l2.prefetch(*in_l2);
                if let Some(llc) = llc {
                    llc.prefetch(in_llc);
                }
            }
        }
        for (word, in_l2) in words[..chunks].iter().zip(own.l2) {
            let gone = l2.last(in_l2).chunk();
            if !word.is_held_by(held) && gone != 0 {
                state.words.prefetch(gone);
                if let Some(llc) = llc.filter(|_| self.victims) {
                    llc.prefetch(llc.set(state.words.home(gone)));
                }
            }
        }
        own
    }

    /// One chunk: where it was. Then the core has it.
    #[inline(always)]
    fn chunk(
        &mut self,
        state: &mut State,
        touched: Touched,
        access: Access,
        when: (u64, u64),
    ) -> At {
        let Touched { core, place: [l2, ..], chunk, home, in_l2, word, .. } = touched;
        let looked = self.l2[l2 as usize].look(in_l2, word.tag(chunk));
        let mine = looked.is_ok();
        let ours = word.holder() == Some(core);
        let at = match mine && (access == Access::Read || !word.is(Word::SHARED)) {
            true if self.llc.is_empty() => At::Llc,
            true => At::Own,
            // Others may have copies: invalidate them before ours changes.
            false if mine && ours => At::Llc,
            false => match self.find(state, touched, mine) {
                at if mine && at.is_memory() => At::Llc,
                at => at,
            },
        };
        let beyond = at.is_memory();
        // The line is ours alone if its only other holder has dropped it.
        let alone = !word.is(Word::SHARED) && (ours || beyond);
        let (version, flags) = match access {
            Access::Write if alone && word.version() != 0 => (word.version(), Word::DIRTY),
            Access::Write => (word.next_version(), Word::DIRTY),
            Access::Read => {
                let shared = if alone { 0 } else { Word::SHARED };
                (word.version().max(1), word.0 & Word::DIRTY | shared)
            }
        };
        let new = Word::new(version, core, flags | Word::HELD);
        if at == At::Own && new == word {
            return at;
        }
        state.words.set(chunk, new);
        let begins_again = version < word.version();
        if begins_again {
            self.outdate(home, word.tag(chunk));
        }
        self.keep(state, touched, looked, new.tag(chunk), at, when);
        if begins_again {
            self.outdate(home, new.tag(chunk));
        }
        at
    }

    /// Where a chunk is, beyond the L2 of `core`. `mine`: this cache has it, but others may too,
    /// and must be invalidated.
    #[inline(always)]
    fn find(&mut self, state: &mut State, touched: Touched, mine: bool) -> At {
        let Touched { core, place: [_, llc, socket, node], chunk, pfn, home, in_llc, word, .. } =
            touched;
        let tag = word.tag(chunk);
        let Some(holder) = word.holder() else { return state.memory_of(pfn, node) };
        let [l2, other_llc, other_socket, _] = state.places[holder as usize];
        let with_holder = holder != core && word.is(Word::HELD);
        debug_assert_eq!(word.is(Word::HELD), has(&self.l2[l2 as usize], home, tag), "CONT-3");
        let near = other_llc == llc;
        if near && with_holder {
            return At::Core;
        }
        let far = |llcs: &[Cache<P>]| {
            let other = llcs.get(other_llc as usize);
            !near && (with_holder || other.is_some_and(|llc| has(llc, home, tag)))
        };
        let here = self.llc.get_mut(llc as usize).is_some_and(|llc| llc.find(in_llc, tag));
        match here {
            true if !(mine && far(&self.llc)) => At::Llc,
            _ if !far(&self.llc) => state.memory_of(pfn, node),
            _ if other_socket == socket => At::Socket,
            _ => At::Remote,
        }
    }

    /// Puts a chunk that was at `at` into the caches of `core`, with its new tag. `looked`: what
    /// its L2 said to the old one.
    #[inline(always)]
    fn keep(
        &mut self,
        state: &mut State,
        touched: Touched,
        looked: Result<(), usize>,
        new: Tag,
        at: At,
        when: (u64, u64),
    ) {
        let Touched { place: [l2, llc, ..], chunk, in_l2, in_llc, word, .. } = touched;
        let (old, l2) = (word.tag(chunk), l2 as usize);
        let gone = match looked {
            Ok(()) if old == new => None,
            // It is the latest used of its set.
            Ok(()) => self.l2[l2].put_at(in_l2, new, 0),
            Err(place) => self.l2[l2].put_at(in_l2, new, place),
        };
        // What is stale by now is nobody's loss.
        let gone = gone.filter(|gone| state.dropped(l2, *gone));
        let Some(cache) = self.llc.get_mut(llc as usize) else {
            return gone.into_iter().for_each(|gone| state.write_back(gone, when));
        };
        if self.victims {
            if at == At::Llc {
                cache.take_out(in_llc, old);
            }
            // The last-level cache takes what the L2 let go.
            let gone =
                gone.and_then(|gone| cache.put(cache.set(state.words.home(gone.chunk())), gone));
            return gone.into_iter().for_each(|gone| state.write_back(gone, when));
        }
        match at {
            At::Own | At::Llc | At::Core if old == new => {}
            At::Own | At::Llc | At::Core => cache.change(in_llc, old, new),
            _ => {
                let gone = cache.put(in_llc, new);
                gone.into_iter().for_each(|gone| state.write_back(gone, when));
            }
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
