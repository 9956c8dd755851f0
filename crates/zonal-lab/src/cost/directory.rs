//! Who has which cache line, and what the next access costs.
//!
//! A write leaves the line with the writer's core alone; each other core's next read fetches it
//! again. The home of a line serves one fetch after the other, so a line that many cores want at
//! once makes them wait in turn: that, and not the write itself, is what a hot counter costs.
//!
//! ```text
//!  read:   own copy ──────────────────────────────► free (part of the work's own cost)
//!          fetch under way for the same core ─────► wait until it is there
//!          otherwise: wait for the home, then llc / core / remote
//!  write:  only copy is ours ─────────────────────► free
//!          otherwise: wait for the home, fetch, all other copies are gone
//! ```
//! - **DIR-1** a line is changed by at most one core (`changed`), and if so `holders` is that core.
//! - **DIR-2** `serves_until` and every `arrives` never go back.

use crate::machine::{LineCosts, Machine};

/// A line, by its position in the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineId(pub u32);

/// Which cores have a copy.
#[derive(Clone, Debug, Default)]
struct Cores {
    words: Vec<u64>,
}

/// A line that several cores use.
#[derive(Clone, Debug)]
struct Line {
    holders: Cores,
    changed: Option<u32>,
    /// The core that has or had it last; who fetches asks there.
    last: Option<u32>,
    serves_until: u64,
    /// When the copy of each core is or was there.
    arrives: Vec<u64>,
}

/// All lines that several cores use.
#[derive(Clone, Debug)]
pub struct Directory {
    lines: Vec<Line>,
    cores: u32,
    costs: LineCosts,
    /// Last-level cache of each core.
    llc: Vec<u32>,
    fetches: u64,
    waited: u64,
}

impl Cores {
    fn with_room(cores: u32) -> Cores {
        Cores { words: vec![0; cores.div_ceil(64) as usize] }
    }
    fn has(&self, core: u32) -> bool {
        self.words[core as usize / 64] & 1 << (core % 64) != 0
    }
    fn add(&mut self, core: u32) {
        self.words[core as usize / 64] |= 1 << (core % 64);
    }
    fn only(&mut self, core: u32) {
        self.words.fill(0);
        self.add(core);
    }
}

impl Directory {
    /// A directory of `lines` lines that nobody has yet.
    pub fn new(machine: &Machine, lines: u32) -> Directory {
        let cores = machine.cores();
        let line = Line {
            holders: Cores::with_room(cores),
            changed: None,
            last: None,
            serves_until: 0,
            arrives: vec![0; cores as usize],
        };
        Directory {
            lines: vec![line; lines as usize],
            cores,
            costs: machine.line,
            llc: (0..cores).map(|core| machine.llc_of_core(core)).collect(),
            fetches: 0,
            waited: 0,
        }
    }

    /// Cycles that a read of `line` by `core` takes at `now`.
    pub fn read(&mut self, line: LineId, core: u32, now: u64) -> u64 {
        let entry = &mut self.lines[line.0 as usize];
        if entry.holders.has(core) {
            // Another thread of the core may have asked for it a moment ago.
            return entry.arrives[core as usize].saturating_sub(now);
        }
        let took = self.fetch(line, core, now);
        let entry = &mut self.lines[line.0 as usize];
        entry.holders.add(core);
        entry.changed = None;
        took
    }

    /// Cycles that a locked read-modify-write of `line` by `core` takes at `now`.
    pub fn update(&mut self, line: LineId, core: u32, now: u64) -> u64 {
        let entry = &self.lines[line.0 as usize];
        let own = entry.changed == Some(core);
        let took = match own {
            true => entry.arrives[core as usize].saturating_sub(now),
            false => self.fetch(line, core, now),
        };
        let entry = &mut self.lines[line.0 as usize];
        entry.holders.only(core);
        entry.changed = Some(core);
        took + self.costs.locked
    }

    fn fetch(&mut self, line: LineId, core: u32, now: u64) -> u64 {
        let entry = &mut self.lines[line.0 as usize];
        let starts = entry.serves_until.max(now);
        let distance = match (entry.changed, entry.last) {
            (Some(from), _) if self.llc[from as usize] == self.llc[core as usize] => {
                self.costs.core
            }
            (None, Some(from)) if self.llc[from as usize] == self.llc[core as usize] => {
                self.costs.llc
            }
            (None, None) => self.costs.llc,
            _ => self.costs.remote,
        };
        entry.serves_until = starts + self.costs.serve;
        entry.last = Some(core);
        let there = starts + distance;
        entry.arrives[core as usize] = there;
        self.fetches += 1;
        self.waited += starts - now;
        there - now
    }

    /// Fetches so far, and the cycles they waited for a line's home.
    pub fn totals(&self) -> (u64, u64) {
        (self.fetches, self.waited)
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u32 {
        self.cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LineId = LineId(0);

    fn directory() -> (Machine, Directory) {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        let directory = Directory::new(&machine, 1);
        (machine, directory)
    }

    #[test]
    fn a_line_costs_once_until_somebody_writes_it() {
        let (machine, mut directory) = directory();
        assert_eq!(directory.read(LINE, 0, 1000), machine.line.llc);
        assert_eq!(directory.read(LINE, 0, 2000), 0);
        assert_eq!(directory.update(LINE, 1, 3000), machine.line.llc + machine.line.locked);
        assert_eq!(directory.update(LINE, 1, 4000), machine.line.locked);
        assert_eq!(directory.read(LINE, 0, 5000), machine.line.core, "changed by a neighbour");
        assert_eq!(directory.read(LINE, 30, 6000), machine.line.remote, "the other socket");
        assert_eq!(directory.read(LINE, 1, 7000), 0, "the writer still has a copy");
        assert_eq!(directory.totals().0, 4);
    }

    #[test]
    fn readers_at_the_same_time_are_served_in_turn() {
        let (machine, mut directory) = directory();
        directory.update(LINE, 0, 0);
        let costs: Vec<u64> = (1..6).map(|core| directory.read(LINE, core, 1000)).collect();
        let expected = (0..5).map(|turn| {
            let distance = if turn == 0 { machine.line.core } else { machine.line.llc };
            turn * machine.line.serve + distance
        });
        assert_eq!(costs, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_waits_for_the_fetch_of_its_sibling() {
        let (machine, mut directory) = directory();
        let took = directory.read(LINE, 3, 100);
        assert_eq!(took, machine.line.llc);
        assert_eq!(directory.read(LINE, 3, 120), took - 20);
        assert_eq!(directory.read(LINE, 3, 100 + took), 0);
    }
}
