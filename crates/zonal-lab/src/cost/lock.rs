//! Locks in virtual time: who comes while one is held, waits.
//!
//! A hold begins with the lock's lines (`work.hold_lines` of the machine) on their way from the CPU
//! that held it last. How long it is
//! is known when it ends, so it is booked then.

use super::calendar::Calendar;

/// Lines of a per-CPU set that another CPU empties: its lock and counts, and the heads of its
/// lists, 13 or 14 of 16 bytes (LB E.1), each of which is looked at.
pub const LINES_PER_STORE: u64 = 4;

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
    /// The cycles that a hold of `length` cycles, asked for at `now` by `core`, waits. No CPU's
    /// clock is behind `reached`.
    pub fn hold(&mut self, core: u32, now: u64, length: u64, reached: u64) -> u64 {
        self.held.forget(reached);
        let waits = self.held.book(now, length) - now;
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
        assert_eq!(lock.hold(0, 100, 200, 0), 0);
        assert_eq!(lock.hold(1, 250, 100, 0), 50);
        assert_eq!(lock.hold(2, 400, 10, 400), 0);
        assert_eq!((lock.holds, lock.contended, lock.waited), (3, 1, 50));
    }

    #[test]
    fn who_was_first_does_not_wait_for_who_came_later() {
        let mut lock = LockClock::default();
        lock.hold(0, 10_000, 3000, 0);
        assert_eq!(lock.hold(1, 90, 500, 0), 0);
        assert_eq!(lock.last, Some(1));
    }
}
