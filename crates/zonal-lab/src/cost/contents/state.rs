//! Where each chunk is, and what moves it from one place to another.

use std::ops::Range;

use super::lines::{Access, Lines};
use crate::cost::bandwidth::Bandwidth;
use crate::cost::cache::{CHUNK_LINES, Cache, Home, PAGE_CHUNKS, Place, Set, Tag};
use crate::cost::words::{Word, Words};

/// A place where a chunk may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
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

impl At {
    fn is_memory(self) -> bool {
        matches!(self, At::Memory | At::MemoryRemote | At::MemoryFar)
    }
}

/// Cycles of a line by its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycles {
    pub own: u64,
    pub llc: u64,
    pub core: u64,
    pub socket: u64,
    pub remote: u64,
    pub memory: u64,
    pub memory_remote: u64,
    pub memory_far: u64,
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
    /// Its number, and its page frame.
    chunk: u64,
    pfn: u64,
    home: Home,
    /// Where the core's own caches have it.
    own: Own,
    word: Word,
}

/// Where a core's L2 and its last-level cache have a chunk.
#[derive(Clone, Copy, Debug)]
struct Own {
    l2: Set,
    /// `None`: the L2 is the last level.
    llc: Option<Set>,
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
    /// Of each core: its L2, its last-level cache, its socket, its node.
    pub places: Vec<[u32; 4]>,
    pub cycles: Cycles,
    pub in_flight: u64,
    pub memory: Vec<Bandwidth>,
    pub node_pages: u64,
    /// Page frames of the node that was asked for last, and that node.
    pub asked: (Range<u64>, usize),
    /// The first page frame of far memory, and its node.
    pub far_start: u64,
    pub far_node: usize,
    pub words: Words,
    /// Lines touched so far.
    pub lines: Lines,
}

impl State {
    /// Cycles until one line that `from` has changed is at `to`, without contention.
    #[inline]
    pub fn transfer(&self, from: u32, to: u32) -> u64 {
        let [[l2, llc, socket, _], other] = [from, to].map(|core| self.places[core as usize]);
        match (l2 == other[0], llc == other[1], socket == other[2]) {
            (true, ..) => 0,
            (_, true, _) => self.cycles.core,
            (.., true) => self.cycles.socket,
            _ => self.cycles.remote,
        }
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
            self.lines.written_back += CHUNK_LINES;
            self.memory_waits(self.words.pfn(chunk), CHUNK_LINES, when);
        }
    }

    /// Cycles that lines wait because their memory is busy.
    fn memory_waits(&mut self, pfn: u64, lines: u64, (now, reached): (u64, u64)) -> u64 {
        let node = self.node(pfn);
        self.memory.get_mut(node).map_or(0, |memory| memory.take(lines, now, reached))
    }

    fn counted(&mut self, at: At) -> (&mut u64, u64) {
        let (lines, cycles) = (&mut self.lines, &self.cycles);
        match at {
            At::Own => (&mut lines.own, cycles.own),
            At::Llc => (&mut lines.llc, cycles.llc),
            At::Core => (&mut lines.core, cycles.core),
            At::Socket => (&mut lines.socket, cycles.socket),
            At::Remote => (&mut lines.remote, cycles.remote),
            At::Memory => (&mut lines.memory, cycles.memory),
            At::MemoryRemote => (&mut lines.memory_remote, cycles.memory_remote),
            At::MemoryFar => (&mut lines.memory_remote, cycles.memory_far),
        }
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
        let home = Home::new(pfn);
        let sets = self.expect(state, core, (first, home), lines);
        let mut left = lines;
        for (part, own) in (0..).zip(sets) {
            if left == 0 {
                break;
            }
            let (chunk, home) = (first + part, home.part(part));
            let some = left.min(CHUNK_LINES);
            let touched = Touched { core, chunk, pfn, home, own, word: state.words.of(chunk) };
            let at = self.chunk(state, touched, access, when);
            let (count, cycles) = state.counted(at);
            *count += some;
            took.sum += some * cycles;
            took.longest = cycles.max(took.longest);
            if at.is_memory() {
                took.waits = state.memory_waits(pfn, some, when).max(took.waits);
            }
            left -= some;
        }
    }

    /// Where the core's caches have the chunks of a page. Of those that are not in its L2 it asks
    /// the host for all that will be looked at: one after the other each line would come from far
    /// away.
    #[inline(always)]
    fn expect(
        &self,
        state: &State,
        core: u32,
        (first, home): (u64, Home),
        lines: u64,
    ) -> [Own; PAGE_CHUNKS as usize] {
        let [l2, llc, ..] = state.places[core as usize];
        let (l2, llc) = (&self.l2[l2 as usize], self.llc.get(llc as usize));
        let own = |home| Own { l2: l2.set(home), llc: llc.map(|llc| llc.set(home)) };
        let mut sets = [own(home); PAGE_CHUNKS as usize];
        for part in 1..PAGE_CHUNKS {
            sets[part as usize] = own(home.part(part));
        }
        let chunks = lines.div_ceil(CHUNK_LINES).min(PAGE_CHUNKS);
        let mut comes = 0_u32;
        for part in 0..chunks {
            let word = state.words.of(first + part);
            comes |= u32::from(!word.is_held_by(core)) << part;
        }
        if comes == 0 {
            return sets;
        }
        let coming = || (0..chunks as usize).filter(|part| comes >> part & 1 != 0);
        for part in coming() {
            l2.prefetch(sets[part].l2);
            if let (Some(llc), Some(set)) = (llc, sets[part].llc) {
                llc.prefetch(set);
            }
        }
        for part in coming() {
            let gone = l2.last(sets[part].l2).chunk();
            if gone != 0 {
                state.words.prefetch(gone);
                if let Some(llc) = llc.filter(|_| self.victims) {
                    llc.prefetch(llc.set(state.words.home(gone)));
                }
            }
        }
        sets
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
        let Touched { core, chunk, home, own, word, .. } = touched;
        let l2 = state.places[core as usize][0] as usize;
        let looked = self.l2[l2].look(own.l2, word.tag(chunk));
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
    fn find(&mut self, state: &mut State, touched: Touched, mine: bool) -> At {
        let Touched { core, chunk, pfn, home, own, word } = touched;
        let tag = word.tag(chunk);
        let [_, llc, socket, node] = state.places[core as usize];
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
        let here = own.llc.is_some_and(|set| self.llc[llc as usize].find(set, tag));
        match here {
            true if !(mine && far(&self.llc)) => At::Llc,
            _ if !far(&self.llc) => state.memory_of(pfn, node),
            _ if other_socket == socket => At::Socket,
            _ => At::Remote,
        }
    }

    /// Puts a chunk that was at `at` into the caches of `core`, with its new tag. `looked`: what
    /// its L2 said to the old one.
    fn keep(
        &mut self,
        state: &mut State,
        touched: Touched,
        looked: Result<(), usize>,
        new: Tag,
        at: At,
        when: (u64, u64),
    ) {
        let Touched { core, chunk, own, word, .. } = touched;
        let old = word.tag(chunk);
        let [l2, llc, ..] = state.places[core as usize];
        let (l2, llc) = (l2 as usize, llc as usize);
        let gone = match looked {
            Ok(()) if old == new => None,
            // It is the latest used of its set.
            Ok(()) => self.l2[l2].put_at(own.l2, new, 0),
            Err(place) => self.l2[l2].put_at(own.l2, new, place),
        };
        // What is stale by now is nobody's loss.
        let gone = gone.filter(|gone| state.dropped(l2, *gone));
        let Some(set) = own.llc else {
            return gone.into_iter().for_each(|gone| state.write_back(gone, when));
        };
        let cache = &mut self.llc[llc];
        if self.victims {
            if at == At::Llc {
                cache.take_out(set, old);
            }
            // The last-level cache takes what the L2 let go.
            let gone =
                gone.and_then(|gone| cache.put(cache.set(state.words.home(gone.chunk())), gone));
            return gone.into_iter().for_each(|gone| state.write_back(gone, when));
        }
        match at {
            At::Own | At::Llc | At::Core if old == new => {}
            At::Own | At::Llc | At::Core => cache.change(set, old, new),
            _ => {
                let gone = cache.put(set, new);
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
