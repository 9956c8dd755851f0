//! How much a node's memory delivers: lines over its share of time wait.
//!
//! Time is cut into slots of a microsecond. Lines take the rest of the slot in which they are
//! requested, then of the next ones: a request that is played later, but is earlier in time, finds
//! the room of its time.
//!
//! Behind a busy memory thousands of slots are full. So a full slot tells how far on the next one
//! with room may be, and who passes learns from all those behind it.
//!
//! - **BAND-1** no slot gives more lines than it has.
//! - **BAND-2** a full slot passes on no further than to the first slot behind it that has room.

use std::collections::VecDeque;

use crate::provenance::{Provenance, given};

given! {
    /// Nanoseconds of a slot.
    SLOT_NS: f64 = 1000.0,
        Provenance::estimated("longer than what comes between two requests, shorter than a hold");
}
/// Bytes of a line.
const LINE_BYTES: f64 = 64.0;

/// What a slot has given.
#[derive(Clone, Copy, Debug)]
struct Slot {
    lines: u64,
    /// When it is full: slots from here that are full in a row, itself among them.
    full: usize,
}

impl Slot {
    const NEW: Slot = Slot { lines: 0, full: 1 };
}

/// The memory of one node.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// Cycles of a slot.
    slot: u64,
    /// Lines of a slot.
    lines: u64,
    /// What slots have given, from slot number `first` on.
    given: VecDeque<Slot>,
    first: u64,
    /// When slot `first` ends.
    first_ends: u64,
}

impl Bandwidth {
    /// Memory with a bandwidth in gigabytes (10^9 bytes) a second, beside a clock in GHz.
    pub fn new(gb_s: f64, ghz: f64) -> Bandwidth {
        let slot = ((SLOT_NS * ghz) as u64).max(1);
        let lines = (slot as f64 / ghz * gb_s / LINE_BYTES) as u64;
        Bandwidth { slot, lines: lines.max(1), given: VecDeque::new(), first: 0, first_ends: slot }
    }

    /// Takes `lines` lines from `now` on; returns the cycles until the last of them arrives, beyond
    /// those without contention. No CPU's clock is behind `reached`.
    pub fn take(&mut self, lines: u64, now: u64, reached: u64) -> u64 {
        // Divisions are what this takes longest for, so they are left out where nothing changes.
        if reached >= self.first_ends {
            self.forget(reached / self.slot);
            self.first_ends = (self.first + 1) * self.slot;
        }
        debug_assert!(lines > 0, "somebody asks for something");
        let mut left = lines;
        let asked = if now < self.first_ends { self.first } else { now / self.slot };
        let mut at = (asked - self.first) as usize;
        loop {
            at = self.with_room(at);
            let slot = &mut self.given[at];
            let gives = left.min(self.lines - slot.lines);
            slot.lines += gives;
            left -= gives;
            if left == 0 {
                break;
            }
        }
        let served = self.first + at as u64;
        let alone = match lines <= self.lines {
            true => asked,
            false => asked + (lines - 1) / self.lines,
        };
        if served > alone { (served * self.slot).saturating_sub(now) } else { 0 }
    }

    /// The first slot that has room, from this one on.
    #[inline]
    fn with_room(&mut self, mut at: usize) -> usize {
        loop {
            if at >= self.given.len() {
                self.given.resize(at + 1, Slot::NEW);
            }
            let slot = self.given[at];
            if slot.lines < self.lines {
                return at;
            }
            let next = at + slot.full;
            if let Some(behind) = self.given.get(next).filter(|next| next.lines == self.lines) {
                self.given[at].full += behind.full;
            }
            at = next;
        }
    }

    fn forget(&mut self, slot: u64) {
        while self.first < slot && !self.given.is_empty() {
            self.given.pop_front();
            self.first += 1;
        }
        if self.given.is_empty() {
            self.first = self.first.max(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_room_does_not_wait_and_who_does_not_waits_for_the_next_slot() {
        // 64 GB/s are 1000 lines in a microsecond of 2000 cycles.
        let mut memory = Bandwidth::new(64.0, 2.0);
        assert_eq!(memory.take(900, 2500, 0), 0);
        assert_eq!(memory.take(200, 2600, 0), 1400, "the second hundred comes from 4000 on");
        assert_eq!(memory.take(1000, 100, 0), 0, "earlier, there was room");
        assert_eq!(memory.take(1, 0, 0), 6000 - 2000, "two slots are full, the third has 100");
        assert_eq!(memory.take(899, 4100, 4000), 0);
        assert_eq!(memory.take(1, 5000, 4000), 1000);
        assert_eq!(memory.take(2500, 100_000, 100_000), 0, "as long as it takes alone");
    }

    #[test]
    fn who_passes_full_slots_finds_what_a_walk_through_all_of_them_finds() {
        let (mut memory, mut given) = (Bandwidth::new(6.4, 1.0), vec![0_u64; 8000]);
        let (mut random, mut waited) = (9_u64, 0);
        for turn in 0..4_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (lines, now) = (1 + random % 250, 50 * turn / 2 + random / 256 % 30_000);
            let (mut at, mut left) = ((now / 1000) as usize, lines);
            loop {
                let gives = left.min(100 - given[at]);
                given[at] += gives;
                left -= gives;
                if left == 0 {
                    break;
                }
                at += 1;
            }
            let alone = now / 1000 + (lines - 1) / 100;
            let waits = if at as u64 > alone { at as u64 * 1000 - now } else { 0 };
            assert_eq!(memory.take(lines, now, 50 * turn / 2), waits, "turn {turn}");
            waited += u64::from(waits > 100_000);
        }
        assert!(waited > 2_000, "the memory was busy: {waited}");
    }

    #[test]
    fn a_slot_gives_what_it_has() {
        let mut memory = Bandwidth::new(6.4, 1.0);
        let last = (0..1000).map(|_| memory.take(10, 0, 0)).max();
        assert_eq!(last, Some(99_000), "10,000 lines of 100 in a microsecond of 1000 cycles");
    }
}
