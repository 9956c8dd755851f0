//! Holders of cache lines, and the cost of the next access.
//!
//! A write leaves the line with the writer's core alone; each other core's next read fetches it
//! again. The home of a line serves one fetch after the other, so cores that want one line at once
//! wait in turn: that, not the write itself, is the cost of a hot counter.
//!
//! ```text
//!  read:   own copy ──────────────────────────────► free (part of the work's own cost)
//!          fetch under way for the same core ─────► wait until it is there
//!          otherwise: wait for the home, then llc / core / socket / remote / dram
//!  write:  only copy is ours ─────────────────────► free
//!          otherwise: wait for the home, fetch, all other copies are gone
//! ```
//! Calls are played in the order in which they begin, so a long call writes ahead of CPUs whose
//! turn is later. Each line therefore remembers when it was changed, back to the CPU that is
//! furthest behind: an access sees the state of its own time. Changes and copies are in the order
//! in which the home serves them, as on a machine.
//!
//! - **DIR-1** `changes` is sorted by time, and only its first entry may lie before `reached`.
//! - **DIR-2** a core has a copy at a time if its last fetch was served at or after the last change
//!   before that time, or if it made that change.

use std::collections::VecDeque;

use super::calendar::Calendar;
use crate::machine::{LineCosts, Machine};
use crate::mechanism::Mechanism;

/// A line, by its position in the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineId(pub u32);

/// A write.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: u64,
    core: u32,
    /// When another core was first served the written line.
    shared_from: u64,
}

/// The last fetch of one core.
#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    asked: u64,
    /// None: it never fetched.
    served: Option<u64>,
    arrives: u64,
}

/// A line that several cores use.
#[derive(Clone, Debug)]
struct Line {
    changes: VecDeque<Change>,
    cores: Vec<Copy>,
    /// When a core under each last-level cache was last served.
    llcs: Vec<Option<u64>>,
    home: Calendar,
}

/// All lines that several cores use.
#[derive(Clone, Debug)]
pub struct Directory {
    lines: Vec<Line>,
    costs: LineCosts,
    /// Last-level cache of each core.
    llc: Vec<u32>,
    /// Socket of each core.
    socket: Vec<u32>,
    /// No CPU's clock is behind this.
    reached: u64,
    fetches: u64,
}

impl Line {
    /// The last change at or before `now`.
    #[inline]
    fn changed(&mut self, now: u64) -> Option<&mut Change> {
        let last = self.changes.back()?;
        let count = match last.at <= now {
            true => self.changes.len(),
            false => self.changes.partition_point(|change| change.at <= now),
        };
        self.changes.get_mut(count.checked_sub(1)?)
    }

    /// Keeps DIR-1.
    fn forget(&mut self, reached: u64) {
        while self.changes.get(1).is_some_and(|second| second.at <= reached) {
            self.changes.pop_front();
        }
        self.home.forget(reached);
    }
}

impl Directory {
    /// A directory of `lines` lines without holders.
    pub fn new(machine: &Machine, lines: u32) -> Directory {
        let cores = machine.cores();
        let llc: Vec<u32> = (0..cores).map(|core| machine.llc_of_core(core)).collect();
        let llcs = llc.iter().max().map_or(0, |last| last + 1);
        let line = Line {
            changes: VecDeque::new(),
            cores: vec![Copy::default(); cores as usize],
            llcs: vec![None; llcs as usize],
            home: Calendar::default(),
        };
        let lines = vec![line; lines as usize];
        let socket = (0..cores).map(|core| machine.socket_of_core(core)).collect();
        let mut costs = machine.line;
        if machine.without.has(Mechanism::LineQueue) {
            costs.serve = 0;
        }
        if machine.without.has(Mechanism::LineDistance) {
            (costs.core, costs.socket, costs.remote) = (costs.llc, costs.llc, costs.llc);
        }
        Directory { lines, costs, llc, socket, reached: 0, fetches: 0 }
    }

    /// No CPU's clock is behind `reached` any more.
    #[inline]
    pub fn reach(&mut self, reached: u64) {
        self.reached = reached;
    }

    /// Cycles that a read of `line` by `core` takes at `now`.
    #[inline]
    pub fn read(&mut self, line: LineId, core: u32, now: u64) -> u64 {
        let entry = &mut self.lines[line.0 as usize];
        let (copy, change) = (entry.cores[core as usize], entry.changed(now));
        let valid = match change {
            Some(change) => change.core == core || copy.served >= Some(change.at),
            None => copy.served.is_some(),
        };
        if valid { copy.wait(now) } else { self.fetch(line, core, now).1 }
    }

    /// Cycles that a locked read-modify-write of `line` by `core` takes at `now`.
    pub fn update(&mut self, line: LineId, core: u32, now: u64) -> u64 {
        let entry = &mut self.lines[line.0 as usize];
        let copy = entry.cores[core as usize];
        if let Some(change) = entry.changed(now)
            && change.core == core
            && change.shared_from > now
        {
            return copy.wait(now) + self.costs.locked;
        }
        let (at, took) = self.fetch(line, core, now);
        let reached = self.reached;
        let entry = &mut self.lines[line.0 as usize];
        entry.forget(reached);
        let position = entry.changes.partition_point(|change| change.at <= at);
        entry.changes.insert(position, Change { at, core, shared_from: u64::MAX });
        took + self.costs.locked
    }

    /// Cycles of a locked read-modify-write of a line that the core has.
    pub fn locked(&self) -> u64 {
        self.costs.locked
    }

    /// Cycles until a line that `from` has changed is at `to`.
    pub fn transfer(&self, from: u32, to: u32) -> u64 {
        let same = |domain: &[u32]| domain[from as usize] == domain[to as usize];
        match (same(&self.llc), same(&self.socket)) {
            _ if from == to => 0,
            (true, _) => self.costs.core,
            (false, true) => self.costs.socket,
            (false, false) => self.costs.remote,
        }
    }

    /// When the home serves a fetch requested at `now`, and the cycles until it arrives.
    fn fetch(&mut self, line: LineId, core: u32, now: u64) -> (u64, u64) {
        let llc = self.llc[core as usize];
        let entry = &mut self.lines[line.0 as usize];
        let served = entry.home.book(now, self.costs.serve);
        let near = entry.llcs[llc as usize];
        entry.llcs[llc as usize] = near.max(Some(served));
        let distance = match entry.changed(served) {
            Some(change) => {
                change.shared_from = change.shared_from.min(served);
                let (at, from) = (change.at, change.core);
                // Unless a neighbour has fetched it already, it is as the changer left it.
                if near > Some(at) { self.costs.llc } else { self.transfer(from, core) }
            }
            None if near.is_some() => self.costs.llc,
            None => self.costs.dram,
        };
        let arrives = served + distance;
        let copy = &mut self.lines[line.0 as usize].cores[core as usize];
        // A sibling may have asked ahead of us.
        if copy.asked <= now {
            *copy = Copy { asked: now, served: Some(served), arrives };
        }
        self.fetches += 1;
        (served, arrives - now)
    }

    /// Fetches so far.
    pub fn fetches(&self) -> u64 {
        self.fetches
    }
}

impl Copy {
    /// Cycles until a copy that was requested before `now` arrives: another thread of the core may
    /// have requested it.
    #[inline]
    fn wait(self, now: u64) -> u64 {
        if self.asked <= now { self.arrives.saturating_sub(now) } else { 0 }
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
        assert_eq!(directory.read(LINE, 0, 1000), machine.line.dram);
        assert_eq!(directory.read(LINE, 0, 2000), 0);
        assert_eq!(directory.update(LINE, 1, 3000), machine.line.llc + machine.line.locked);
        assert_eq!(directory.update(LINE, 1, 4000), machine.line.locked);
        assert_eq!(directory.read(LINE, 0, 5000), machine.line.core, "changed by a neighbour");
        assert_eq!(directory.read(LINE, 30, 6000), machine.line.remote, "the other socket");
        assert_eq!(directory.read(LINE, 1, 7000), 0, "the writer still has a copy");
        assert_eq!(directory.fetches(), 4);
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
    fn sockets_with_several_caches_have_a_distance_of_their_own() {
        let machine = Machine::named("rome-2019-256").unwrap();
        let mut directory = Directory::new(&machine, 1);
        directory.update(LINE, 0, 0);
        assert_eq!(directory.read(LINE, 1, 1000), machine.line.core, "the same cache");
        assert_eq!(directory.read(LINE, 4, 2000), machine.line.socket, "the next cache");
        assert_eq!(directory.read(LINE, 5, 3000), machine.line.llc, "there by now");
        assert_eq!(directory.read(LINE, 64, 4000), machine.line.remote, "the other socket");
    }

    #[test]
    fn a_thread_waits_for_the_fetch_of_its_sibling() {
        let (machine, mut directory) = directory();
        let took = directory.read(LINE, 3, 100);
        assert_eq!(took, machine.line.dram);
        assert_eq!(directory.read(LINE, 3, 120), took - 20);
        assert_eq!(directory.read(LINE, 3, 100 + took), 0);
    }

    #[test]
    fn a_change_ahead_of_a_core_is_not_there_yet() {
        let (machine, mut directory) = directory();
        directory.read(LINE, 0, 100);
        directory.update(LINE, 1, 50_000);
        assert_eq!(directory.read(LINE, 0, 20_000), 0, "the copy of 100 holds until 50,000");
        assert_eq!(directory.read(LINE, 0, 60_000), machine.line.core);
        directory.update(LINE, 2, 30_000);
        assert_eq!(directory.update(LINE, 1, 55_000), machine.line.locked, "core 1 wrote last");
        assert_eq!(directory.read(LINE, 3, 40_000), machine.line.core, "core 2 wrote first");
    }

    #[test]
    fn a_line_remembers_no_more_than_somebody_may_ask_for() {
        let (_, mut directory) = directory();
        for turn in 0..10_000_u64 {
            directory.reach(turn * 1000);
            directory.update(LINE, turn as u32 % 22, turn * 1000 + 5000);
        }
        assert!(directory.lines[0].changes.len() < 10);
    }
}
