//! The walk of 2.6.20 to 4.3, which remembers zones found full (LB G.4 to G.6), with and without
//! the first of the two fixes of 3.1. The second, emptying the cache after direct reclaim, is in
//! `alloc::reclaim`.
//!
//! ```text
//!               first zone fails its mark      later zones            nothing found
//!  original     reclaimed; the cache comes     full ones are passed   once more, all zones,
//!               into use behind it             unseen                 without the cache
//!  first_zone   the cache comes into use;      the same               the same
//!               reclaimed unless full
//! ```
//! So in the original a request whose first zone stays below its mark reclaims it every time; with
//! the fix, once a second.

use super::{Hand, Walk};
use crate::alloc::Allocator;
use crate::platform::Platform;
use crate::policy::walk::CacheMark;
use crate::reclaim::NodeReclaim;
use crate::zone::state::Zone;
use crate::zonelist::cache::ZonelistCache;

/// What a walk makes of a zone.
enum Verdict {
    /// It may spare the block.
    Take,
    /// It is full: the cache is told.
    Full,
    /// It is passed.
    Next,
}

/// How one request uses the cache of its list: over two rounds at most.
struct Use<'a> {
    /// `None`: the list has no cache, and every zone is worth a look.
    cache: Option<&'a ZonelistCache>,
    /// Full zones are passed.
    active: bool,
    /// It came into use already; it does so once.
    begun: bool,
    mark: CacheMark,
}

impl Use<'_> {
    fn worth(&self, position: usize) -> bool {
        !self.active || self.cache.is_none_or(|cache| cache.worth(position))
    }

    /// The cache to tell of a full position, if it is to be told.
    fn told(&self) -> Option<&ZonelistCache> {
        self.cache.filter(|_| self.active || self.mark == CacheMark::Always)
    }

    /// After a round that found nothing: whether there is one more, which looks at every zone.
    fn again(&mut self) -> bool {
        core::mem::replace(&mut self.active, false)
    }
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// Up to 3.0 (LB G.5) the cache comes into use behind the first zone looked at; with
    /// `first_zone`, 3.1 to 4.3 (LB G.6, patch A), where that one fails its mark.
    pub(super) fn scan_cached<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        walk: &Walk<'_, 'a>,
        first_zone: bool,
    ) -> Result<H::Block, ()> {
        let mut cached = self.cache_use(walk);
        let mut judged = None;
        loop {
            for (position, zone) in self.usable(walk.ctx) {
                if !cached.worth(position) {
                    hand.pass(walk, zone);
                    continue;
                }
                if self.is_too_dirty(walk, zone, &mut judged) {
                    hand.pass_dirty(zone);
                    continue;
                }
                if self.leaves_node(walk, zone) {
                    hand.stop(walk, zone);
                    return Err(());
                }
                let verdict = match first_zone {
                    true => self.judge_first_zone(hand, walk, zone, position, &mut cached),
                    false => self.judge_original(hand, walk, zone),
                };
                let full = match verdict {
                    Verdict::Take => match hand.serve(self, walk, zone) {
                        Some(block) => return Ok(block),
                        None => true,
                    },
                    Verdict::Full => true,
                    Verdict::Next => false,
                };
                if full && let Some(cache) = cached.told() {
                    hand.mark(cache, position);
                }
                if !first_zone {
                    self.begin(hand, &mut cached);
                }
            }
            if !cached.again() {
                return Err(());
            }
        }
    }

    fn judge_original<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> Verdict {
        if hand.may_take(self, walk, zone) {
            return Verdict::Take;
        }
        if !self.reclaims(zone, walk.preferred) {
            return Verdict::Full;
        }
        match hand.reclaim(self, walk, zone) {
            NodeReclaim::NoScan => Verdict::Next,
            NodeReclaim::Full => Verdict::Full,
            NodeReclaim::Some | NodeReclaim::Success => self.judge_reclaimed(walk, zone),
        }
    }

    fn judge_first_zone<H: Hand<'a, P>>(
        &self,
        hand: &mut H,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
        position: usize,
        cached: &mut Use<'a>,
    ) -> Verdict {
        if hand.may_take(self, walk, zone) {
            return Verdict::Take;
        }
        self.begin(hand, cached);
        if !self.reclaims(zone, walk.preferred) {
            return Verdict::Full;
        }
        // The cache may have come into use just now: the first zone is asked about here.
        if !cached.worth(position) {
            hand.pass(walk, zone);
            return Verdict::Next;
        }
        match hand.reclaim(self, walk, zone) {
            // Nothing was scanned, so nothing is known.
            NodeReclaim::NoScan | NodeReclaim::Full => Verdict::Next,
            NodeReclaim::Some | NodeReclaim::Success => self.judge_reclaimed(walk, zone),
        }
    }

    fn judge_reclaimed(&self, walk: &Walk<'_, 'a>, zone: &Zone) -> Verdict {
        if self.above_mark(zone, walk.ctx, walk.flags) { Verdict::Take } else { Verdict::Full }
    }

    fn cache_use(&self, walk: &Walk<'_, 'a>) -> Use<'a> {
        let mark = self.policy.zonelist.cache_mark;
        Use { cache: walk.ctx.cache, active: false, begun: false, mark }
    }

    /// The cache comes into use, once in a request's walk, where there are several nodes.
    fn begin<H: Hand<'a, P>>(&self, hand: &mut H, cached: &mut Use<'a>) {
        if cached.begun || self.nodes.len() == 1 {
            return;
        }
        if let Some(cache) = cached.cache {
            hand.begin(cache, self.platform.now_ns());
        }
        (cached.active, cached.begun) = (true, true);
    }
}
