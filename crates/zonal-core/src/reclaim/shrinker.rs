//! How many objects of a cache a pass looks at (LB H.7). Arithmetic only; the platform keeps the
//! deferred count and calls the cache.
//!
//! A pass of priority `p` over lists of pages looks at a `2^p`-th part of them. A cache gives up as
//! large a part, weighed by how costly its objects are to make again. Parts smaller than a batch
//! are put off until they add up, so that a cache is not called for every few objects.

/// What an object costs to make again, where the cache does not say (`DEFAULT_SEEKS`).
pub const SEEKS_DEFAULT: u32 = 2;
/// Objects per call where the cache does not say (`SHRINK_BATCH`).
pub const BATCH_DEFAULT: u64 = 128;
/// Calls of one cache in one pass; the rest is put off. Linux has no such bound and trusts caches.
const CALLS_MAX: u32 = 1 << 12;

/// One pass over one cache.
///
/// ```
/// use zonal_core::reclaim::shrinker::ShrinkPass;
///
/// // 4096 objects at priority 12, 2 seeks: 2 objects, less than a batch. They are put off.
/// let pass = ShrinkPass::new(4096, 0, 12, 2, 0);
/// assert_eq!(pass.next(), None);
/// assert_eq!(pass.put_off(), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShrinkPass {
    freeable: u64,
    batch: u64,
    /// What earlier passes put off, and this pass' part.
    due: u64,
    /// Objects still to look at in this pass.
    left: u64,
    scanned: u64,
    freed: u64,
    calls: u32,
}

impl ShrinkPass {
    /// A pass of `priority` over a cache with `freeable` objects, of which earlier passes deferred
    /// `deferred`. A `batch` of 0 is [`BATCH_DEFAULT`].
    pub fn new(freeable: u64, deferred: u64, priority: u32, seeks: u32, batch: u64) -> ShrinkPass {
        let part = |of: u64| of.checked_shr(priority).unwrap_or(0);
        // The shift first, then the product, then the quotient (LB M.24).
        let delta = match seeks {
            0 => freeable / 2,
            seeks => part(freeable).saturating_mul(4) / u64::from(seeks),
        };
        let left = part(deferred).saturating_add(delta).min(freeable.saturating_mul(2));
        ShrinkPass {
            freeable,
            batch: if batch == 0 { BATCH_DEFAULT } else { batch },
            due: deferred.saturating_add(delta),
            left: if freeable == 0 { 0 } else { left },
            scanned: 0,
            freed: 0,
            calls: 0,
        }
    }

    /// Objects to ask the cache for next, if anything.
    pub fn next(&self) -> Option<u64> {
        let worth = self.left >= self.batch || self.left >= self.freeable;
        (worth && self.left > 0 && self.calls < CALLS_MAX).then(|| self.left.min(self.batch))
    }

    /// The cache looked at `scanned` objects and gave `freed` of them up.
    pub fn did(&mut self, scanned: u64, freed: u64) {
        self.calls += 1;
        self.scanned = self.scanned.saturating_add(scanned);
        self.freed = self.freed.saturating_add(freed);
        // A cache that looked at nothing would be asked for ever.
        self.left = self.left.saturating_sub(scanned.max(1));
    }

    /// Objects looked at so far.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }
    /// Objects freed so far.
    pub fn freed(&self) -> u64 {
        self.freed
    }
    /// Objects deferred to later passes: those due and not scanned, at most twice the freeable
    /// ones.
    pub fn put_off(&self) -> u64 {
        self.due.saturating_sub(self.scanned).min(self.freeable.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The sizes that a cache which does as it is asked sees.
    fn asks(mut pass: ShrinkPass) -> (Vec<u64>, u64) {
        let mut asked = Vec::new();
        while let Some(objects) = pass.next() {
            asked.push(objects);
            pass.did(objects, 0);
        }
        (asked, pass.put_off())
    }

    /// LB H.7, by hand.
    #[test]
    fn a_pass_looks_at_its_part_in_batches() {
        // 1 000 000 >> 10 = 976; * 4 / 2 = 1952 = 15 batches of 128 and 32 left.
        let (asked, left) = asks(ShrinkPass::new(1_000_000, 0, 10, 2, 0));
        assert_eq!(asked, [128; 15]);
        assert_eq!(left, 32);
        // Twice as costly: half.
        assert_eq!(asks(ShrinkPass::new(1_000_000, 0, 10, 4, 0)), ([128; 7].to_vec(), 976 - 896));
        // The product before the quotient: 3 * 4 / 8 is 1, not 0.
        assert_eq!(asks(ShrinkPass::new(3 << 12, 0, 12, 8, 1)), ([1].to_vec(), 0));
        // For nothing: half of all, whatever the priority.
        assert_eq!(asks(ShrinkPass::new(1000, 0, 12, 0, 100)), ([100; 5].to_vec(), 0));
    }

    #[test]
    fn what_was_put_off_comes_back_with_its_part_of_the_priority() {
        // 2 objects a pass; after 64 passes there is a batch, but the 64th priority-12 part of it
        // is 0: it comes at priority 0.
        let mut deferred = 0;
        for _ in 0..64 {
            let pass = ShrinkPass::new(4096, deferred, 12, 2, 0);
            assert_eq!(pass.next(), None);
            deferred = pass.put_off();
        }
        assert_eq!(deferred, 128);
        // (128 >> 0) + 4096 * 2 = 8320, at most 2 * 4096.
        let pass = ShrinkPass::new(4096, deferred, 0, 2, 0);
        let (asked, left) = asks(pass);
        assert_eq!(asked.iter().sum::<u64>(), 8192);
        assert_eq!(left, 8320 - 8192);
    }

    #[test]
    fn less_than_a_batch_is_asked_for_if_it_is_all_there_is() {
        // 100 objects at priority 0: 200, at most 200; 128 first, then 72 < 100: put off.
        assert_eq!(asks(ShrinkPass::new(100, 0, 0, 2, 0)), ([128].to_vec(), 72));
        // At priority 1 it is 100: all there is.
        assert_eq!(asks(ShrinkPass::new(100, 0, 1, 2, 0)), ([100].to_vec(), 0));
        assert!(asks(ShrinkPass::new(0, 5000, 0, 2, 0)).0.is_empty());
    }

    #[test]
    fn what_is_put_off_is_at_most_twice_what_is_there() {
        let pass = ShrinkPass::new(10, 1_000_000, 12, 2, 1000);
        assert_eq!(pass.put_off(), 20);
    }

    #[test]
    fn caches_that_lie_end_too() {
        for (scanned, freed) in [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX)] {
            let mut pass = ShrinkPass::new(u64::MAX, u64::MAX, 0, 0, 1);
            let mut calls = 0_u32;
            while pass.next().is_some() {
                pass.did(scanned, freed);
                calls += 1;
            }
            assert!(calls <= CALLS_MAX);
            let _ = pass.put_off();
        }
    }
}
