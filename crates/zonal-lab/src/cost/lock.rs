//! Locks in virtual time: who comes while one is held, waits.
//!
//! A hold begins with the lock's lines on their way from the CPU that held it last: what the lock
//! protects, and the free lists of each size of block that it moves; and for each block comes the
//! structure of one page that others changed last. How many they are follows from the kernel's
//! structures, so it is the same on all machines. How long a hold is is known when it ends, so it
//! is booked then.
//!
//! Who waits stands in a queue, of which the first reads the lock's word in a loop ("MCS locks and
//! qspinlocks", LWN, 2014). So a contended lock is not free for the next waiter as soon as it is
//! released: the lock word must come from the releasing core, and the waiter's queue node from its
//! predecessor. Profiles of kernels count this time as waiting, for the waiter and all after it.

use super::calendar::Calendar;
use crate::provenance::{Provenance, cells, given};

given! {
    /// Lines of a per-CPU set that another CPU empties: its lock and counts, and the heads of its
    /// lists, 13 or 14 of 16 bytes (LB E.1), each of which is looked at.
    pub LINES_PER_PCP: u64 = 4,
        Provenance::estimated("its lock and counts, and 13 or 14 list heads of 16 bytes");
    /// Lines that come with a zone lock from the core that held it last: counts of free pages,
    /// flags, the pageblock's bits, the tail of the list. One after the other, because whether a
    /// block is merged or split decides which is next, and no core guesses that well.
    pub HOLD_LINES: u64 = 4,
        Provenance::seen(
            "six lines for each hold, of which two bring the lock to one that waits; 7 to 11 would \
             bring pcp-unix's base row within its target. One after the other: together, \
             contention of that row was 7 instead of 51 percent",
            cells!["pcp-unix", "pcp-kbuild", "deferred-init"],
        );
    /// Lines that come with them for each size of block that a hold moves: the head of a free list
    /// and the count of an order's free blocks lie 96 bytes apart (six lists of 16 bytes and a
    /// count).
    pub ORDER_LINES: u64 = 2,
        Provenance::seen(
            "the head of a free list and the count of its order's blocks lie 96 bytes apart; first \
             counted with the table of pcp-unix in view",
            cells!["pcp-unix"],
        );
    /// Lines that come for each block, one block after the other, because a list is walked from
    /// block to block: of one that is taken its own structure, which whoever freed it changed last;
    /// of one that is freed that of its buddy.
    pub BLOCK_LINES: u64 = 1,
        Provenance::seen(
            "the structure of a block's first page when it is taken, of its buddy when it is \
             freed; two to three would suit pcp-unix, a third of one deferred-init",
            cells!["pcp-unix", "pcp-kbuild", "deferred-init"],
        );
    /// Lines that come, one after the other, when a lock goes to one that waits for it.
    pub HANDOVER_LINES: u64 = 2,
        Provenance::sourced(
            "MCS locks and qspinlocks, LWN, 2014: the lock's word and the waiter's node",
        );
    /// Lines that a lock of the kernel that is no zone's brings with it: its word, and what it
    /// protects.
    pub LINES_OF_A_LOCK: u64 = 2,
        Provenance::estimated("the lock's word, and the list's head or counts behind it");
}

/// Lines that come, one after the other, with a hold that moves blocks of `orders` sizes.
pub fn lines_of_hold(orders: u32) -> u64 {
    HOLD_LINES + ORDER_LINES * u64::from(orders)
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
