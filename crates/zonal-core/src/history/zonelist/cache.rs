//! The zonelist cache of 2.6.20 to 4.3 (LB G.4): which positions of a list were found full lately,
//! so that the next walk passes them without a look.
//!
//! Advice only: a wrong bit costs a request its best zone for at most a second, and a walk that
//! finds nothing with the cache walks again without it.
//!
//! The reference also keeps which node each position is on, for tasks bound to nodes; requests here
//! are not bound.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Most positions of a list: the number of an allocator's zones.
pub const POSITIONS_MAX: usize = 1 << 12;
/// How long a position stays full, in nanoseconds.
const ZAP_AFTER_NS: u64 = 1_000_000_000;

/// One list's cache.
#[derive(Debug)]
pub struct ZonelistCache {
    /// `last_full_zap`, in the platform's nanoseconds.
    zapped_ns: AtomicU64,
    full: [AtomicU64; POSITIONS_MAX / 64],
    events: CacheEvents,
}

#[derive(Debug, Default)]
struct CacheEvents {
    marks: AtomicU64,
    passes: AtomicU64,
    expiries: AtomicU64,
    reconsiders: AtomicU64,
}

/// Counters of a zonelist cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Positions that became full.
    pub marks: u64,
    /// Times that a walk passed a full position without a look.
    pub passes: u64,
    /// Times that all was forgotten because a second had gone by.
    pub expiries: u64,
    /// Times that all was forgotten because direct reclaim had made progress.
    pub reconsiders: u64,
}

impl Default for ZonelistCache {
    fn default() -> ZonelistCache {
        let full = [const { AtomicU64::new(0) }; POSITIONS_MAX / 64];
        ZonelistCache { zapped_ns: AtomicU64::new(0), full, events: CacheEvents::default() }
    }
}

// Relaxed throughout: each bit is advice that stands alone.
impl ZonelistCache {
    /// Begins the use of the cache by a walk: forgets everything once a second.
    pub fn setup(&self, now_ns: u64) {
        if now_ns.saturating_sub(self.zapped_ns.load(Relaxed)) > ZAP_AFTER_NS {
            self.events.expiries.fetch_add(1, Relaxed);
            self.clear(now_ns);
        }
    }

    /// Whether the position is not known to be full.
    pub fn worth(&self, position: usize) -> bool {
        self.full[position / 64].load(Relaxed) >> (position % 64) & 1 == 0
    }

    /// The position is full.
    pub fn mark(&self, position: usize) {
        let bit = 1 << (position % 64);
        if self.full[position / 64].fetch_or(bit, Relaxed) & bit == 0 {
            self.events.marks.fetch_add(1, Relaxed);
        }
    }

    /// A walk passed a full position.
    pub fn count_pass(&self) {
        self.events.passes.fetch_add(1, Relaxed);
    }

    /// Direct reclaim has made progress: no position is full (LB G.6, patch B).
    pub fn reconsider(&self, now_ns: u64) {
        self.events.reconsiders.fetch_add(1, Relaxed);
        self.clear(now_ns);
    }

    /// What happened so far.
    pub fn stats(&self) -> CacheStats {
        let CacheEvents { marks, passes, expiries, reconsiders } = &self.events;
        CacheStats {
            marks: marks.load(Relaxed),
            passes: passes.load(Relaxed),
            expiries: expiries.load(Relaxed),
            reconsiders: reconsiders.load(Relaxed),
        }
    }

    /// Clears all positions and restarts the second.
    pub fn clear(&self, now_ns: u64) {
        self.full.iter().for_each(|word| word.store(0, Relaxed));
        self.zapped_ns.store(now_ns, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_position_is_forgotten_strictly_after_a_second() {
        let cache = ZonelistCache::default();
        for position in [0, 63, 64, POSITIONS_MAX - 1] {
            assert!(cache.worth(position));
            cache.mark(position);
            assert!(!cache.worth(position));
        }
        assert!(cache.worth(1) && cache.worth(62) && cache.worth(65));
        cache.setup(1_000_000_000);
        assert!(!cache.worth(64), "exactly a second is not enough");
        cache.setup(1_000_000_001);
        assert!([0, 63, 64, POSITIONS_MAX - 1].into_iter().all(|position| cache.worth(position)));
        cache.mark(5);
        cache.setup(2_000_000_001);
        assert!(!cache.worth(5), "the second began when the cache was emptied");
        cache.clear(2_000_000_001);
        cache.mark(6);
        cache.setup(3_000_000_001);
        assert!(cache.worth(5) && !cache.worth(6));
        cache.setup(7);
        assert!(!cache.worth(6), "a clock that went back empties nothing");
        cache.mark(6);
        cache.reconsider(3_000_000_002);
        assert!(cache.worth(6));
        let stats = CacheStats { marks: 6, passes: 0, expiries: 1, reconsiders: 1 };
        assert_eq!(cache.stats(), stats, "a position is marked once until all is forgotten");
    }
}
