//! What locks cost: holds of zone locks, of locks of CPUs' own pageblocks and of other locks of the
//! kernel; and counters that are changed without one.

use zonal_core::types::{CpuId, ZoneId};

use super::Meter;
use crate::cost::lock::{HANDOVER_LINES, LockClock, lines_of_hold};
use crate::mechanism::Mechanism;
use crate::variant::{LOOKS_A_MERGE, PARTS_OF_A_BLOCK, Variant};

impl Meter {
    /// Cycles of a hold of a lock that is no zone's.
    pub(super) fn hold(
        &mut self,
        lock: &mut LockClock,
        (cpu, now): (u32, u64),
        (lines, cycles): (u64, u64),
    ) -> u64 {
        let core = self.core_of[cpu as usize];
        let line = lock.last.map_or(0, |last| self.contents.transfer(last, core));
        let lines = if self.without.has(Mechanism::HoldLines) { 0 } else { lines };
        let took = lines * line + self.boost.stretch(now, cycles);
        let waits = lock.hold(core, now, took, self.hand_over(line), self.free_of());
        self.waited((cpu, now), waits, false);
        self.waits.kernel += waits;
        self.apart.kernel += took;
        waits + took
    }

    /// Cycles of a locked instruction on a line that others change too. No lock is waited for: the
    /// line goes from one core to the next.
    pub(super) fn change(&mut self, line: &mut LockClock, (cpu, now): (u32, u64)) -> u64 {
        let core = self.core_of[cpu as usize];
        let comes = line.last.map_or(0, |last| self.comes(last, core));
        let took = comes + self.locked;
        let queues = !self.without.has(Mechanism::LineQueue);
        let waits = line.hold(core, now, took, 0, if queues { self.reached } else { u64::MAX });
        self.waits.kernel += waits;
        self.apart.kernel += took;
        waits + took
    }

    /// Cycles of a hold of a zone lock that moved pages, of which there were so many blocks of so
    /// many orders.
    pub(super) fn zone_hold(
        &mut self,
        zone: ZoneId,
        (cpu, now): (u32, u64),
        (pages, blocks, orders): (u32, u32, u32),
        frees: bool,
    ) -> u64 {
        let core = self.core_of[cpu as usize];
        let last = self.locks[zone.0 as usize].last;
        let line = last.map_or(0, |last| self.contents.transfer(last, core));
        self.block[cpu as usize] = self.work.page + self.lines_of_block(line);
        let singles = pages == blocks;
        let (block, outside) = self.block_of(line, frees, singles);
        let apart = singles && self.variant.singles_apart;
        let orders = if apart { 1 } else { orders };
        let took = self.lines_of_hold(orders) * line + u64::from(blocks) * block;
        let outside = u64::from(blocks) * outside;
        self.happened.pages_moved += u64::from(pages);
        self.spent.pages += took + outside;
        let (hand_over, free_of) = (self.hand_over(line), self.free_of());
        let waits = self.locks[zone.0 as usize].hold(core, now, took, hand_over, free_of);
        self.waited((cpu, now), waits, frees);
        outside + waits + took
    }

    /// Cycles of a hold of the lock of a CPU's own pageblocks. What comes with it and with each
    /// block is what comes with a zone lock: a list of one size, the block's structure.
    pub(super) fn owner_hold(
        &mut self,
        (zone, owner): (ZoneId, CpuId),
        (cpu, now): (u32, u64),
        (pages, blocks): (u32, u32),
        frees: bool,
    ) -> u64 {
        let (core, cpus) = (self.core_of[cpu as usize], self.core_of.len());
        self.owners.resize(self.locks.len() * cpus, LockClock::default());
        let at = usize::from(zone.0) * cpus + owner.0 as usize;
        let line = self.owners[at].last.map_or(0, |last| self.contents.transfer(last, core));
        let block = self.work.page + self.lines_of_block(line);
        let took = self.lines_of_hold(1) * line + u64::from(blocks) * block;
        self.happened.pages_moved += u64::from(pages);
        self.spent.pages += took;
        let (hand_over, free_of) = (self.hand_over(line), self.free_of());
        let waits = self.owners[at].hold(core, now, took, hand_over, free_of);
        self.waited((cpu, now), waits, frees);
        waits + took
    }

    /// Counts the wait of a hold, which `frees` pages or not.
    fn waited(&mut self, (cpu, now): (u32, u64), waits: u64, frees: bool) {
        self.shared.wait(cpu, now, now + waits);
        self.boost.wait(waits);
        if frees {
            self.waits.frees += waits;
            self.waits.frees_contended += u64::from(waits > 0);
        }
    }

    /// Cycles that a block takes in a hold, and beside it. `line`: until a line has come from who
    /// held the lock last.
    fn block_of(&self, line: u64, frees: bool, singles: bool) -> (u64, u64) {
        let (whole, lines) = (self.work.page, self.lines_of_block(line));
        let part = whole / PARTS_OF_A_BLOCK;
        let Variant { chosen_before, prefetched, singles_apart, .. } = self.variant;
        match () {
            // Neither a buddy that is looked at, nor a merge.
            () if singles && frees && singles_apart => (whole - part, 0),
            // The line of one buddy is here, but only to be read.
            () if frees && prefetched => {
                let fetched = line - line / LOOKS_A_MERGE;
                (whole - part + lines - fetched.min(lines), part + line / self.contents.in_flight())
            }
            () if frees && chosen_before => (whole - part + lines, part),
            () => (whole + lines, 0),
        }
    }

    /// Lines that come with a hold of blocks of so many sizes.
    fn lines_of_hold(&self, orders: u32) -> u64 {
        if self.without.has(Mechanism::HoldLines) { 0 } else { lines_of_hold(orders) }
    }

    /// Cycles until the lines of a block have come.
    fn lines_of_block(&self, line: u64) -> u64 {
        match self.without.has(Mechanism::BlockLines) {
            true => 0,
            false => self.variant.lines_of_block(line),
        }
    }

    /// Cycles until a lock is the next waiter's.
    fn hand_over(&self, line: u64) -> u64 {
        if self.without.has(Mechanism::HandOver) { 0 } else { HANDOVER_LINES * line }
    }

    /// Cycles until a line of a counter that `from` has changed is at `to`.
    pub(super) fn comes(&self, from: u32, to: u32) -> u64 {
        let far = self.contents.transfer(from, to);
        if self.without.has(Mechanism::LineDistance) { far.min(self.contents.llc()) } else { far }
    }

    /// Until when locks forget who held them.
    fn free_of(&self) -> u64 {
        if self.without.has(Mechanism::LockWaits) { u64::MAX } else { self.reached }
    }
}

#[cfg(test)]
mod tests {
    use crate::cost::lock::LockClock;
    use crate::machine::Machine;
    use crate::mechanism::{Mechanism, Mechanisms};
    use crate::platform::VirtualPlatform;

    /// What CPUs 0 and 1, on a core each, take for the same at the same time.
    fn two(off: Option<Mechanism>, takes: fn(&VirtualPlatform, &mut LockClock)) -> [u64; 2] {
        let without = off.map_or_else(Mechanisms::default, |off| Mechanisms::default().and(off));
        let machine = Machine { without, ..Machine::named("icelake-2023-128").unwrap() };
        let (platform, mut line) = (VirtualPlatform::new(&machine, 1), LockClock::default());
        [0, 1].map(|cpu| {
            platform.turn(cpu, 0);
            takes(&platform, &mut line);
            platform.clock()
        })
    }

    #[test]
    fn a_counter_that_all_change_waits_for_its_line_and_for_no_lock() {
        let change = |off| two(off, |platform, line| platform.change(line));
        let (all, comes) = (change(None), change(Some(Mechanism::LineQueue)));
        assert!(all[1] > comes[1], "the second waits until the first has changed it");
        assert_eq!(all[0], comes[0]);
        assert_eq!(change(Some(Mechanism::LockWaits)), all);
        assert_eq!(change(Some(Mechanism::HandOver)), all);
        let near = change(Some(Mechanism::LineDistance));
        assert!(near[1] < all[1], "its line comes from no further than the last-level cache");
    }

    #[test]
    fn a_lock_is_waited_for_and_its_lines_are_no_counter() {
        let hold = |off| two(off, |platform, lock| platform.hold(lock, 2, 1000));
        let all = hold(None);
        assert!(hold(Some(Mechanism::LockWaits))[1] < all[1]);
        assert!(hold(Some(Mechanism::HandOver))[1] < all[1]);
        assert!(hold(Some(Mechanism::HoldLines))[1] < all[1]);
        assert_eq!(hold(Some(Mechanism::LineQueue)), all);
        assert_eq!(hold(Some(Mechanism::LineDistance)), all);
    }
}
