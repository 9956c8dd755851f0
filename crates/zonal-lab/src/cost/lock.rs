//! Locks in virtual time: who comes while one is held, waits.
//!
//! CPUs run one call after the other, in the order in which the calls began. A call that began
//! earlier may take the lock later than one that began after it, so the last hold is kept with its
//! beginning: who comes before that beginning was first, and does not wait for it.

/// Lock holds of one lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockClock {
    taken_at: u64,
    free_at: u64,
    /// Times taken.
    pub holds: u64,
    /// Times found taken.
    pub contended: u64,
    /// Cycles waited for it.
    pub waited: u64,
    /// Cycles held.
    pub held: u64,
}

impl LockClock {
    /// The cycles that taking the lock at `now` waits.
    pub fn take(&mut self, now: u64) -> u64 {
        let start = if now < self.taken_at { now } else { now.max(self.free_at) };
        self.holds += 1;
        self.contended += u64::from(start > now);
        self.waited += start - now;
        self.taken_at = start;
        start - now
    }

    /// The lock is given back at `now`.
    pub fn release(&mut self, now: u64) {
        self.held += now.saturating_sub(self.taken_at);
        self.free_at = self.free_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_during_a_hold_waits_for_its_end() {
        let mut lock = LockClock::default();
        assert_eq!(lock.take(100), 0);
        lock.release(300);
        assert_eq!(lock.take(250), 50);
        lock.release(400);
        assert_eq!(lock.take(400), 0);
        assert_eq!((lock.holds, lock.contended, lock.waited), (3, 1, 50));
    }

    #[test]
    fn who_was_first_does_not_wait_for_who_came_later() {
        let mut lock = LockClock::default();
        lock.take(100);
        lock.release(300);
        assert_eq!(lock.take(90), 0);
    }
}
