//! Where pages' contents are, and what touching them costs.
//!
//! Each core has its second-level cache, each group of cores its last-level cache, and what is in
//! none of them is in memory. Who touches a page finds its chunks in one of these places:
//!
//! ```text
//!  own L2 ─ own last-level cache ─ L2 of a neighbour ─ caches of the socket ─ of another socket
//!                                                    └ memory of the node ─ of another node
//! ```
//! A core has a limited number of lines under way. So `n` lines take `n / in_flight` times as long
//! as one, but no less than one; writes too, because a line comes before it is changed. Zeroing a
//! cold page on `sapphire-2023-224` takes 440 ns by this, and 434 ns were measured on a server
//! Xeon.
//!
//! Per chunk there is one word: who had it last, whether others may have copies, and a version,
//! which a change by another core makes the next one. Tags in caches hold the version they came
//! with, so copies that a change makes stale are never found again and need no search.
//!
//! - **CONT-1** a chunk's copies with its current version are the true ones.
//! - **CONT-2** while a chunk is not shared, only its holder's caches have it.
//! - **CONT-3** a chunk's word is `HELD` while the L2 of its last holder has it, so that no other
//!   core's L2 is ever searched: its tables are far away in the host's memory.
//!
//! Left out: the first-level cache (its lines count as those of the L2), the search of a last-level
//! cache that holds all its L2s have when it lets go of one, prefetching, and parts of a chunk: a
//! chunk is in one place as a whole.

use std::ops::Range;

use super::bandwidth::Bandwidth;
use super::cache::{CHUNK_LINES, Cache, PAGE_CHUNKS, Tag};
use super::words::{Word, Words};
use crate::machine::Machine;
use crate::mechanism::Mechanism;
use crate::provenance::{Provenance, given};
use crate::units::MIB_PAGES;

given! {
    /// Lines under way at a time where the machine does not say.
    IN_FLIGHT: u32 = 10,
        Provenance::sourced(
            "10 line fill buffers of a core, Nehalem to Broadwell (Intel 64 and IA-32 \
             Architectures Optimization Reference Manual)",
        );
}

/// Kinds of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// They are looked at.
    Read,
    /// They are changed.
    Write,
}

/// Lines touched, by where they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// In the core's own L2.
    pub own: u64,
    /// In its last-level cache.
    pub llc: u64,
    /// In the L2 of another core under the same last-level cache.
    pub core: u64,
    /// Under another last-level cache of the socket.
    pub socket: u64,
    /// In another socket's caches.
    pub remote: u64,
    /// In memory of the core's node.
    pub memory: u64,
    /// In memory of another node.
    pub memory_remote: u64,
    /// Changed lines that had to go to memory to make room.
    pub written_back: u64,
}

counts!(Lines: own, llc, core, socket, remote, memory, memory_remote, written_back);

impl Lines {
    /// Lines that were asked of the last-level cache.
    pub fn references(&self) -> u64 {
        self.llc + self.core + self.misses()
    }

    /// Of these, lines that came from beyond it: what `perf` counts as cache misses.
    pub fn misses(&self) -> u64 {
        self.socket + self.remote + self.memory + self.memory_remote
    }
}

/// A place where a chunk may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
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

impl Place {
    fn is_memory(self) -> bool {
        matches!(self, Place::Memory | Place::MemoryRemote | Place::MemoryFar)
    }
}

/// Cycles of a line by its place.
#[derive(Clone, Copy, Debug)]
struct Cycles {
    own: u64,
    llc: u64,
    core: u64,
    socket: u64,
    remote: u64,
    memory: u64,
    memory_remote: u64,
    memory_far: u64,
}

/// The contents of all pages.
#[derive(Debug)]
pub struct Contents {
    l2: Vec<Cache>,
    /// Empty: the L2 is the last level.
    llc: Vec<Cache>,
    /// Of each core: its L2, its last-level cache, its socket, its node.
    places: Vec<[u32; 4]>,
    /// A last-level cache takes what L2s let go, instead of all that comes.
    victims: bool,
    cycles: Cycles,
    in_flight: u64,
    memory: Vec<Bandwidth>,
    node_pages: u64,
    /// Page frames of the node that was asked for last, and that node.
    asked: (Range<u64>, usize),
    /// The first page frame of far memory, and its node.
    far_start: u64,
    far_node: usize,
    words: Words,
    /// Lines touched so far.
    pub lines: Lines,
}

impl Contents {
    /// A machine of which no page was touched.
    pub fn new(machine: &Machine) -> Contents {
        let cores = machine.cores();
        let cache = &machine.cache;
        let one_level = cache.llc_kib == cache.l2_kib;
        let llcs = machine.llc_of_core(cores - 1) + 1;
        let l2_of = |core| if one_level { machine.llc_of_core(core) } else { core };
        let place = |core| {
            let llc = machine.llc_of_core(core);
            [l2_of(core), llc, machine.socket_of_core(core), machine.node_of_core(core)]
        };
        let content = machine.content.unwrap_or_default();
        let line = &machine.line;
        let limit = content.gb_s.filter(|_| !machine.without.has(Mechanism::Bandwidth));
        let memory = limit.map(|gb_s| Bandwidth::new(gb_s, machine.ghz));
        let mut memories = memory.map_or_else(Vec::new, |m| vec![m; machine.nodes() as usize]);
        if let Some(far) = machine.far.filter(|_| !memories.is_empty()) {
            memories.push(Bandwidth::new(far.gb_s, machine.ghz));
        }
        let node_pages = machine.memory_mib * MIB_PAGES;
        Contents {
            l2: (0..=l2_of(cores - 1)).map(|_| Cache::new(cache.l2_kib)).collect(),
            llc: (0..if one_level { 0 } else { llcs }).map(|_| Cache::new(cache.llc_kib)).collect(),
            places: (0..cores).map(place).collect(),
            victims: cache.llc_victims,
            cycles: Cycles {
                own: line.l2,
                llc: content.llc.unwrap_or(line.llc),
                core: content.core.unwrap_or(line.core),
                socket: content.socket.unwrap_or(line.socket),
                remote: content.remote.unwrap_or(line.remote),
                memory: line.dram,
                memory_remote: line.dram_remote,
                memory_far: machine.far.map_or(line.dram_remote, |far| far.line),
            },
            in_flight: u64::from(content.in_flight.unwrap_or(IN_FLIGHT)),
            memory: memories,
            node_pages,
            asked: (0..0, 0),
            far_start: machine.far.map_or(u64::MAX, |_| machine.far_start()),
            far_node: machine.nodes() as usize,
            words: Words::default(),
            lines: Lines::default(),
        }
    }

    /// Cycles that it takes `core` at `now` to touch the first `lines` lines of what begins at page
    /// frame `pfn`. No CPU's clock is behind `reached`.
    pub fn touch(
        &mut self,
        (core, now, reached): (u32, u64, u64),
        pfn: u64,
        lines: u64,
        access: Access,
    ) -> u64 {
        let (mut left, mut chunk) = (lines, pfn * PAGE_CHUNKS);
        let (mut sum, mut longest, mut waits) = (0, 0, 0);
        while left > 0 {
            let some = left.min(CHUNK_LINES);
            let place = self.chunk(core, chunk, access, (now, reached));
            let (count, cycles) = self.counted(place);
            *count += some;
            sum += some * cycles;
            longest = cycles.max(longest);
            if place.is_memory() {
                waits = self.memory_waits(chunk, some, now, reached).max(waits);
            }
            left -= some;
            chunk += 1;
        }
        (sum / self.in_flight).max(longest) + waits
    }

    /// Lines that a core has under way at a time.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Cycles of a line of the last-level cache, without contention.
    pub fn llc(&self) -> u64 {
        self.cycles.llc
    }

    /// Cycles until one line that `from` has changed is at `to`, without contention.
    pub fn transfer(&self, from: u32, to: u32) -> u64 {
        let [[l2, llc, socket, _], other] = [from, to].map(|core| self.places[core as usize]);
        match (l2 == other[0], llc == other[1], socket == other[2]) {
            (true, ..) => 0,
            (_, true, _) => self.cycles.core,
            (.., true) => self.cycles.socket,
            _ => self.cycles.remote,
        }
    }

    /// One chunk: where it was. Then the core has it.
    fn chunk(&mut self, core: u32, chunk: u64, access: Access, when: (u64, u64)) -> Place {
        let word = self.words.of(chunk);
        let l2 = self.places[core as usize][0] as usize;
        let looked = self.l2[l2].look(word.tag(chunk));
        let mine = looked.is_ok();
        let ours = word.holder() == Some(core);
        let place = match mine && (access == Access::Read || !word.is(Word::SHARED)) {
            true if self.llc.is_empty() => Place::Llc,
            true => Place::Own,
            // Others may have copies: invalidate them before ours changes.
            false if mine && ours => Place::Llc,
            false => match self.find((core, mine), chunk, word) {
                place if mine && place.is_memory() => Place::Llc,
                place => place,
            },
        };
        let beyond = place.is_memory();
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
        if place == Place::Own && new == word {
            return place;
        }
        self.words.set(chunk, new);
        self.keep((core, looked), (word.tag(chunk), new.tag(chunk)), place, when);
        place
    }

    /// Where a chunk is, beyond the L2 of `core`. `mine`: this cache has it, but others may too,
    /// and must be invalidated.
    fn find(&mut self, (core, mine): (u32, bool), chunk: u64, word: Word) -> Place {
        let tag = word.tag(chunk);
        let [_, llc, socket, node] = self.places[core as usize];
        let Some(holder) = word.holder() else { return self.memory_of(chunk, node) };
        let [l2, other_llc, other_socket, _] = self.places[holder as usize];
        let with_holder = holder != core && word.is(Word::HELD);
        debug_assert_eq!(word.is(Word::HELD), self.l2[l2 as usize].has(tag), "CONT-3");
        let near = other_llc == llc;
        if near && with_holder {
            return Place::Core;
        }
        let far = |llcs: &mut Vec<Cache>| {
            !near && (with_holder || llcs.get_mut(other_llc as usize).is_some_and(|c| c.has(tag)))
        };
        let here = self.llc.get_mut(llc as usize).is_some_and(|cache| cache.find(tag));
        match here {
            true if !(mine && far(&mut self.llc)) => Place::Llc,
            _ if !far(&mut self.llc) => self.memory_of(chunk, node),
            _ if other_socket == socket => Place::Socket,
            _ => Place::Remote,
        }
    }

    fn memory_of(&mut self, chunk: u64, node: u32) -> Place {
        match self.node(chunk) {
            of if of == node as usize => Place::Memory,
            of if of == self.far_node => Place::MemoryFar,
            _ => Place::MemoryRemote,
        }
    }

    fn node(&mut self, chunk: u64) -> usize {
        let pfn = chunk / PAGE_CHUNKS;
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

    /// Puts a chunk that was at `place` into the caches of `core`, with its new tag. `looked`: what
    /// its L2 said to the old one.
    fn keep(
        &mut self,
        (core, looked): (u32, Result<(), usize>),
        (old, new): (Tag, Tag),
        place: Place,
        when: (u64, u64),
    ) {
        let [l2, llc, ..] = self.places[core as usize];
        let (l2, llc) = (l2 as usize, llc as usize);
        let gone = match looked {
            Ok(()) if old == new => None,
            // It is the latest used of its set.
            Ok(()) => self.l2[l2].put_at(new, 0),
            Err(at) => self.l2[l2].put_at(new, at),
        };
        // What is stale by now is nobody's loss.
        let gone = gone.filter(|gone| self.dropped(l2, *gone));
        let Some(cache) = self.llc.get_mut(llc) else {
            return gone.into_iter().for_each(|gone| self.write_back(gone, when));
        };
        if self.victims {
            if place == Place::Llc {
                cache.take_out(old);
            }
            return gone.into_iter().for_each(|gone| self.let_go(llc, gone, when));
        }
        match place {
            Place::Own | Place::Llc | Place::Core if old == new => {}
            Place::Own | Place::Llc | Place::Core => cache.change(old, new),
            _ => {
                let gone = cache.put(new);
                gone.into_iter().for_each(|gone| self.write_back(gone, when));
            }
        }
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

    /// The last-level cache takes a chunk that an L2 let go.
    fn let_go(&mut self, llc: usize, tag: Tag, when: (u64, u64)) {
        if let Some(gone) = self.llc[llc].put(tag) {
            self.write_back(gone, when);
        }
    }

    /// A last-level cache evicts a chunk: changed lines go to memory, without a wait.
    fn write_back(&mut self, tag: Tag, (now, reached): (u64, u64)) {
        let chunk = tag.chunk();
        let word = self.words.of(chunk);
        if word.tag(chunk) == tag && word.is(Word::DIRTY) {
            self.words.set(chunk, Word(word.0 & !Word::DIRTY));
            self.lines.written_back += CHUNK_LINES;
            self.memory_waits(chunk, CHUNK_LINES, now, reached);
        }
    }

    /// Cycles that lines wait because their memory is busy.
    fn memory_waits(&mut self, chunk: u64, lines: u64, now: u64, reached: u64) -> u64 {
        let node = self.node(chunk);
        self.memory.get_mut(node).map_or(0, |memory| memory.take(lines, now, reached))
    }

    fn counted(&mut self, place: Place) -> (&mut u64, u64) {
        let (lines, cycles) = (&mut self.lines, &self.cycles);
        match place {
            Place::Own => (&mut lines.own, cycles.own),
            Place::Llc => (&mut lines.llc, cycles.llc),
            Place::Core => (&mut lines.core, cycles.core),
            Place::Socket => (&mut lines.socket, cycles.socket),
            Place::Remote => (&mut lines.remote, cycles.remote),
            Place::Memory => (&mut lines.memory, cycles.memory),
            Place::MemoryRemote => (&mut lines.memory_remote, cycles.memory_remote),
            Place::MemoryFar => (&mut lines.memory_remote, cycles.memory_far),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use Access::{Read, Write};

    fn contents(name: &str) -> (Machine, Contents) {
        let machine = Machine::named(name).unwrap();
        let contents = Contents::new(&machine);
        (machine, contents)
    }

    /// A page that `core` touches at a quiet time.
    fn page(contents: &mut Contents, core: u32, pfn: u64, access: Access) -> u64 {
        contents.touch((core, 0, 0), pfn, 64, access)
    }

    #[test]
    fn a_page_costs_what_its_distance_says() {
        let (machine, mut contents) = contents("rome-2019-256");
        let (line, flight) = (machine.line, u64::from(machine.content.unwrap().in_flight.unwrap()));
        let mut costs = |core, pfn, access| page(&mut contents, core, pfn, access);
        assert_eq!(costs(0, 5, Write), 64 * line.dram / flight, "from memory");
        assert_eq!(costs(0, 5, Write), 64 * line.l2 / flight, "again");
        assert_eq!(costs(1, 5, Read), 64 * line.core / flight, "a neighbour under the same cache");
        assert_eq!(costs(4, 5, Read), 64 * line.socket / flight, "the next cache");
        assert_eq!(costs(70, 5, Read), 64 * line.remote / flight, "the other socket");
        assert_eq!(costs(0, 5, Read), 64 * line.l2 / flight, "the first still has it");
        assert_eq!(costs(0, 5, Write), 64 * line.llc / flight, "and tells the others");
        assert_eq!(costs(70, 5, Read), 64 * line.remote / flight, "whose copies are stale");
        let other = machine.memory_mib * MIB_PAGES;
        assert_eq!(costs(0, other, Read), 64 * line.dram_remote / flight, "the other node");
        let lines = contents.lines;
        assert_eq!((lines.own, lines.llc, lines.core, lines.socket), (128, 64, 64, 64));
        assert_eq!((lines.remote, lines.memory, lines.memory_remote), (128, 64, 64));
        assert_eq!((lines.references(), lines.misses()), (448, 320));
    }

    #[test]
    fn a_few_lines_take_as_long_as_one_and_many_as_long_as_the_core_can_ask_for_them() {
        let (machine, mut contents) = contents("broadwell-2017-88");
        let dram = machine.line.dram;
        assert_eq!(contents.touch((0, 0, 0), 1, 1, Read), dram);
        assert_eq!(contents.touch((0, 0, 0), 2, 10, Read), dram);
        assert_eq!(contents.touch((0, 0, 0), 3, 64, Read), 64 * dram / 10);
        assert_eq!(contents.touch((0, 0, 0), 3, 0, Read), 0);
        let quiet = machine.content.unwrap();
        assert_eq!(page(&mut contents, 1, 3, Read), 64 * quiet.core.unwrap() / 10);
    }

    #[test]
    fn an_l2_shared_by_two_cores_is_the_last_level() {
        let (machine, mut contents) = contents("xeon-2007-8");
        page(&mut contents, 0, 1, Write);
        assert_eq!(page(&mut contents, 1, 1, Read), 64 * machine.line.llc / 8);
        assert_eq!(page(&mut contents, 2, 1, Read), 64 * machine.line.socket / 8);
        assert_eq!((contents.lines.llc, contents.lines.own), (64, 0));
    }

    #[test]
    fn what_does_not_fit_goes_down_one_level_after_the_other() {
        for name in ["broadwell-2017-88", "sapphire-2023-224"] {
            let mut machine = Machine::named(name).unwrap();
            (machine.cache.l2_kib, machine.cache.llc_kib) = (128, 2048);
            let mut contents = Contents::new(&machine);
            let in_llc = machine.cache.llc_kib / 4 / 2;
            let in_l2 = machine.cache.l2_kib / 4 / 4;
            for (pages, at) in [(in_l2, "own"), (in_llc, "llc"), (8 * in_llc, "memory")] {
                let all = |contents: &mut Contents| {
                    (0..pages).map(|pfn| page(contents, 0, pfn, Write)).sum::<u64>()
                };
                all(&mut contents);
                let before = contents.lines;
                all(&mut contents);
                let lines = contents.lines - before;
                let most = match at {
                    "own" => lines.own,
                    "llc" => lines.llc,
                    _ => lines.memory,
                };
                assert!(most > pages * 64 * 9 / 10, "{name}: {pages} pages, {at}: {lines:?}");
                let back = lines.written_back > 0;
                assert_eq!(back, at == "memory", "{name}: changed pages go to memory {lines:?}");
            }
        }
    }

    #[test]
    fn a_busy_memory_makes_those_wait_who_ask_for_more() {
        let (machine, mut contents) = contents("sapphire-2023-224");
        let lines_each = 64 * 16;
        let quiet = lines_each * machine.line.dram / 16;
        let mut costs = (0..56)
            .map(|core| contents.touch((core, 0, 0), u64::from(core) * 100, lines_each, Read));
        assert_eq!(costs.next(), Some(quiet));
        let last = costs.last().unwrap();
        let gb_s = machine.content.unwrap().gb_s.unwrap();
        let needed = 56.0 * lines_each as f64 * 64.0 / gb_s * machine.ghz;
        assert!((needed * 0.9..needed + quiet as f64 + 2000.0).contains(&(last as f64)), "{last}");
    }

    /// Reference model: caches that never evict, as the set of holders of a valid copy.
    #[derive(Default)]
    struct Naive {
        cores: BTreeSet<u32>,
        llcs: BTreeSet<u32>,
        last: Option<u32>,
    }

    #[test]
    fn copies_are_where_a_list_of_owners_says() {
        for name in ["broadwell-2017-88@16", "rome-2019-256"] {
            let (machine, mut contents) = contents(name);
            let victims = machine.cache.llc_victims;
            let mut naive: BTreeMap<u64, Naive> = BTreeMap::new();
            let mut random = Pcg64Mcg::seed_from_u64(9);
            let mut below = |end: u64| random.next_u64() % end;
            for _ in 0..20_000 {
                let (pfn, core) = (below(6), below(8) as u32 * machine.cores() / 8);
                let access = if below(3) == 0 { Write } else { Read };
                let known = naive.entry(pfn).or_default();
                let llc = |core: u32| machine.llc_of_core(core);
                let alone = known.cores.len() == 1 && known.cores.contains(&core);
                let before = contents.lines;
                page(&mut contents, core, pfn, access);
                let lines = contents.lines - before;
                let near = known.last.is_some_and(|last| llc(last) == llc(core));
                if known.cores.contains(&core) && (access == Read || alone) {
                    assert_eq!(lines.own, 64, "{name}");
                } else if known.last.is_none() {
                    assert_eq!(lines.memory + lines.memory_remote, 64, "{name}");
                } else if near && known.last != Some(core) {
                    assert_eq!(lines.core, 64, "{name}");
                } else if near || (!known.cores.contains(&core) && known.llcs.contains(&llc(core)))
                {
                    assert_eq!(lines.llc, 64, "{name}");
                } else {
                    assert_eq!(lines.socket + lines.remote, 64, "{name}");
                }
                if access == Write {
                    *known = Naive::default();
                }
                known.cores.insert(core);
                known.last = Some(core);
                if !victims {
                    known.llcs.insert(llc(core));
                }
            }
        }
    }
}
