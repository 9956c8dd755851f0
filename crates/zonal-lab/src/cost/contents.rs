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
//! with, so copies that a change makes stale are never found again and need no search. Versions
//! are few, so that a tag takes four bytes: when they begin again, every cache is looked through
//! for stale copies of this one chunk.
//!
//! - **CONT-1** a chunk's copies with its current version are the true ones.
//! - **CONT-2** while a chunk is not shared, only its holder's caches have it.
//! - **CONT-3** a chunk's word is `HELD` while the L2 of its last holder has it, so that no other
//!   core's L2 is searched when it is touched: its tables are far away in the host's memory.
//! - **CONT-4** a copy with the version of its chunk's word is a true one, however often versions
//!   began again.
//!
//! Left out: the first-level cache (its lines count as those of the L2), the search of a last-level
//! cache that holds all its L2s have when it lets go of one, prefetching, and parts of a chunk: a
//! chunk is in one place as a whole.

mod lines;
mod state;

use super::bandwidth::Bandwidth;
use super::cache::{Cache, PAGE_CHUNKS, Place};
use crate::machine::Machine;
use crate::mechanism::Mechanism;
use crate::provenance::{Provenance, given};
use crate::units::{MIB_PAGES, PAGE_LINES};
pub use lines::{Access, Lines};
use state::{At, Caches, State, Took};

given! {
    /// Lines under way at a time where the machine does not say.
    IN_FLIGHT: u32 = 10,
        Provenance::sourced(
            "10 line fill buffers of a core, Nehalem to Broadwell (Intel 64 and IA-32 \
             Architectures Optimization Reference Manual)",
        );
}

/// The caches, by the room that a tag takes.
#[derive(Debug)]
enum Tables {
    Narrow(Caches<u32>),
    /// More was touched than narrow tags can tell apart.
    Wide(Caches<u64>),
}

/// The contents of all pages.
#[derive(Debug)]
pub struct Contents {
    tables: Tables,
    /// Chunks that narrow tags tell apart.
    narrow: u64,
    state: State,
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
        // In the order of `At`.
        let cycles = [
            line.l2,
            content.llc.unwrap_or(line.llc),
            content.core.unwrap_or(line.core),
            content.socket.unwrap_or(line.socket),
            content.remote.unwrap_or(line.remote),
            line.dram,
            line.dram_remote,
            machine.far.map_or(line.dram_remote, |far| far.line),
        ];
        let caches = Caches {
            l2: (0..=l2_of(cores - 1)).map(|_| Cache::new(cache.l2_kib)).collect(),
            llc: (0..if one_level { 0 } else { llcs }).map(|_| Cache::new(cache.llc_kib)).collect(),
            victims: cache.llc_victims,
        };
        Contents {
            tables: Tables::Narrow(caches),
            narrow: u32::CHUNKS,
            state: State {
                places: (0..cores).map(place).collect(),
                cycles,
                in_flight: u64::from(content.in_flight.unwrap_or(IN_FLIGHT)),
                memory: memories,
                node_pages: machine.memory_mib * MIB_PAGES,
                asked: (0..0, 0),
                far_start: machine.far.map_or(u64::MAX, |_| machine.far_start()),
                far_node: machine.nodes() as usize,
                words: Default::default(),
                lines: Default::default(),
                written_back: 0,
            },
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
        let (mut left, mut pfn, mut took) = (lines, pfn, Took::default());
        while left > 0 {
            let some = left.min(PAGE_LINES);
            let chunk = self.state.words.chunk(pfn);
            self.make_room(chunk + PAGE_CHUNKS);
            let (state, when) = (&mut self.state, (now, reached));
            let (who, page) = ((core, when), (chunk, pfn, some));
            match &mut self.tables {
                Tables::Narrow(caches) => caches.page(state, who, page, access, &mut took),
                Tables::Wide(caches) => caches.page(state, who, page, access, &mut took),
            }
            left -= some;
            pfn += 1;
        }
        (took.sum / self.state.in_flight).max(took.longest) + took.waits
    }

    /// Tags can tell chunks below `end` apart from now on.
    #[inline]
    fn make_room(&mut self, end: u64) {
        if end > self.narrow
            && let Tables::Narrow(caches) = &self.tables
        {
            self.tables = Tables::Wide(caches.widened());
        }
    }

    /// Lines touched so far.
    pub fn lines(&self) -> Lines {
        self.state.lines()
    }

    /// Lines that a core has under way at a time.
    pub fn in_flight(&self) -> u64 {
        self.state.in_flight
    }

    /// Cycles of a line of the last-level cache, without contention.
    pub fn llc(&self) -> u64 {
        self.state.cycles_of(At::Llc)
    }

    /// Cycles until one line that `from` has changed is at `to`, without contention.
    #[inline]
    pub fn transfer(&self, from: u32, to: u32) -> u64 {
        self.state.transfer(from, to)
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
        let lines = contents.lines();
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
        assert_eq!((contents.lines().llc, contents.lines().own), (64, 0));
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
                let before = contents.lines();
                all(&mut contents);
                let lines = contents.lines() - before;
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

    #[test]
    fn wide_tags_do_what_narrow_ones_do() {
        let mut machine = Machine::named("sapphire-2023-224").unwrap();
        (machine.cache.l2_kib, machine.cache.llc_kib) = (64, 256);
        let [mut narrow, mut wide] = [(); 2].map(|()| Contents::new(&machine));
        // Room for the first pages that are touched, and for none after them.
        wide.narrow = 2 * narrow.state.words.chunk(0);
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut below = |end: u64| random.next_u64() % end;
        for turn in 0..60_000 {
            let (pfn, core) = (below(150) + 700 * (turn / 20_000), below(8) as u32 * 14);
            let access = if below(3) == 0 { Write } else { Read };
            let [one, other] =
                [&mut narrow, &mut wide].map(|contents| page(contents, core, pfn, access));
            assert_eq!(one, other, "turn {turn}");
            assert_eq!(matches!(wide.tables, Tables::Wide(_)), turn >= 20_000);
        }
        assert_eq!(narrow.lines(), wide.lines());
        assert!(narrow.lines().written_back > 0 && narrow.lines().llc > 0);
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
                let before = contents.lines();
                page(&mut contents, core, pfn, access);
                let lines = contents.lines() - before;
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
