//! Locks in virtual time: who comes while one is held, waits.
//!
//! A hold begins with the lock's lines (`work.hold_lines` of the machine) on their way from the CPU
//! that held it last. How long it is is known when it ends, so it is booked then.
//!
//! Who waits stands in a queue, of which the first reads the lock's word in a loop ("MCS locks and
//! qspinlocks", LWN, 2014). So a contended lock is not free for the next waiter as soon as it is
//! released: the lock word must come from the releasing core, and the waiter's queue node from its
//! predecessor. Profiles of kernels count this time as waiting, for the waiter and all after it.

use super::calendar::Calendar;
use crate::provenance::{Provenance, given};

given! {
    /// Lines of a per-CPU set that another CPU empties: its lock and counts, and the heads of its
    /// lists, 13 or 14 of 16 bytes (LB E.1), each of which is looked at.
    pub LINES_PER_PCP: u64 = 4,
        Provenance::estimated("its lock and counts, and 13 or 14 list heads of 16 bytes");
    /// Lines that come, one after the other, when a lock goes to one that waits for it.
    pub HANDOVER_LINES: u64 = 2,
        Provenance::sourced(
            "MCS locks and qspinlocks, LWN, 2014: the lock's word and the waiter's node",
        );
}

/// Lock holds of one lock.
#[derive(Clone, Debug, Default)]
pub struct LockClock {
    held: Calendar,
    /// The core that held it last.
    pub last: Option<u32>,
    /// Times taken.
    pub holds: u64,
    /// Times found taken.
    pub contended: u64,
    /// Cycles waited for it.
    pub waited: u64,
}

impl LockClock {
    /// The cycles that a hold of `length` cycles, asked for at `now` by `core`, waits. `handover`:
    /// cycles until a waiter gets the lock from the holder before. No CPU's clock is behind
    /// `reached`.
    pub fn hold(&mut self, core: u32, now: u64, length: u64, handover: u64, reached: u64) -> u64 {
        self.held.forget(reached);
        let waits = match self.held.is_free(now, length) {
            true => self.held.book(now, length) - now,
            false => self.held.book(now, handover + length) + handover - now,
        };
        self.last = Some(core);
        self.holds += 1;
        self.contended += u64::from(waits > 0);
        self.waited += waits;
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_during_a_hold_waits_for_its_end() {
        let mut lock = LockClock::default();
        assert_eq!(lock.hold(0, 100, 200, 30, 0), 0);
        assert_eq!(lock.hold(1, 250, 100, 30, 0), 50 + 30);
        assert_eq!(lock.hold(2, 430, 10, 30, 430), 0);
        assert_eq!((lock.holds, lock.contended, lock.waited), (3, 1, 80));
    }

    #[test]
    fn who_was_first_does_not_wait_for_who_came_later() {
        let mut lock = LockClock::default();
        lock.hold(0, 10_000, 3000, 30, 0);
        assert_eq!(lock.hold(1, 90, 500, 30, 0), 0);
        assert_eq!(lock.last, Some(1));
    }
}
