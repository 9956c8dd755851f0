//! The walk of 2.6.20 to 4.3, which remembers zones found full (LB G.4 to G.6), with and without
//! the first of the two fixes of 3.1. The second, emptying the cache after direct reclaim, is in
//! `direct`.
//!
//! ```text
//!               first zone fails its watermark      later zones            nothing found
//!  original     reclaimed; the cache comes     full ones are passed   once more, all zones,
//!               into use behind it             unseen                 without the cache
//!  first_zone   the cache comes into use;      the same               the same
//!               reclaimed unless full
//! ```
//! So in the original a request whose first zone stays below its watermark reclaims it every time;
//! with the fix, once a second.

use super::Search;
use super::walk::{Seen, Visit, Walk, fewer};
use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::policy::walk::{CacheMark, ZonelistCaching};
use crate::reclaim::NodeReclaim;
use crate::zone::state::Zone;
use crate::zonelist::cache::ZonelistCache;

/// A walk's decision about a zone.
enum Verdict {
    /// It may spare the block.
    Take,
    /// Full: record it in the cache.
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

    /// The cache in which to record a full position, if any.
    fn told(&self) -> Option<&ZonelistCache> {
        self.cache.filter(|_| self.active || self.mark == CacheMark::Always)
    }

    /// After a round that found nothing: whether there is one more, which looks at every zone.
    fn again(&mut self) -> bool {
        core::mem::replace(&mut self.active, false)
    }
}

/// The walk, as often as it takes, under a policy with caches.
pub fn scan_cached<'a, P: Platform, V: Visit<'a, P>>(
    search: &Search<'_, 'a, P>,
    visit: &mut V,
    mut flags: AllocFlags,
) -> Option<V::Block> {
    loop {
        visit.see(Seen::Starts(flags));
        let walk = Walk { search, flags };
        let block = match search.on.policy().zonelist.cache {
            ZonelistCaching::Original | ZonelistCaching::Reconsider => {
                rounds(&walk, visit, |visit, cached, at| original(&walk, visit, cached, at))
            }
            ZonelistCaching::None
            | ZonelistCaching::FirstZone
            | ZonelistCaching::FirstZoneReconsider => {
                rounds(&walk, visit, |visit, cached, at| first_zone(&walk, visit, cached, at))
            }
        };
        match block {
            Ok(block) => return Some(block),
            Err(()) => flags = fewer(flags)?,
        }
    }
}

/// Walks over the zones that are worth a look, and does `one` at each.
fn rounds<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    one: impl Fn(&mut V, &mut Use<'a>, (usize, &'a Zone)) -> Option<V::Block>,
) -> Result<V::Block, ()> {
    let mark = walk.search.on.policy().zonelist.cache_mark;
    let mut cached = Use { cache: walk.search.cache, active: false, begun: false, mark };
    let mut dirty = None;
    loop {
        for (position, zone) in walk.search.usable() {
            if !cached.worth(position) {
                pass(walk, visit, zone);
                continue;
            }
            if walk.passes_dirty(visit, zone, &mut dirty) {
                continue;
            }
            walk.stays_on_node(visit, zone)?;
            if let Some(block) = one(visit, &mut cached, (position, zone)) {
                return Ok(block);
            }
        }
        if !cached.again() {
            return Err(());
        }
    }
}

/// One zone up to 3.0 (LB G.5): the cache comes into use after the first zone looked at.
fn original<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    cached: &mut Use<'a>,
    (position, zone): (usize, &'a Zone),
) -> Option<V::Block> {
    let verdict = if walk.may_take(visit, zone) {
        Verdict::Take
    } else if !walk.reclaims(zone) {
        Verdict::Full
    } else {
        match walk.reclaim(visit, zone) {
            NodeReclaim::NoScan => Verdict::Next,
            NodeReclaim::Full => Verdict::Full,
            NodeReclaim::Some | NodeReclaim::Success => judge_reclaimed(walk, zone),
        }
    };
    let block = act(walk, visit, cached, (position, zone), verdict);
    if block.is_none() {
        begin::<P, V>(walk, cached);
    }
    block
}

/// One zone of 3.1 to 4.3 (LB G.6, patch A): the cache comes into use where the first zone fails
/// its watermark.
fn first_zone<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    cached: &mut Use<'a>,
    (position, zone): (usize, &'a Zone),
) -> Option<V::Block> {
    let verdict = if walk.may_take(visit, zone) {
        Verdict::Take
    } else {
        begin::<P, V>(walk, cached);
        judge_short(walk, visit, cached, (position, zone))
    };
    act(walk, visit, cached, (position, zone), verdict)
}

/// What becomes of a zone below its watermark, with the cache in use.
fn judge_short<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    cached: &Use<'a>,
    (position, zone): (usize, &'a Zone),
) -> Verdict {
    if !walk.reclaims(zone) {
        return Verdict::Full;
    }
    // The cache may have come into use just now: the first zone is asked about here.
    if !cached.worth(position) {
        pass(walk, visit, zone);
        return Verdict::Next;
    }
    match walk.reclaim(visit, zone) {
        // Nothing was scanned, so the zone's state is unknown.
        NodeReclaim::NoScan | NodeReclaim::Full => Verdict::Next,
        NodeReclaim::Some | NodeReclaim::Success => judge_reclaimed(walk, zone),
    }
}

fn judge_reclaimed<P: Platform>(walk: &Walk<'_, '_, '_, P>, zone: &Zone) -> Verdict {
    if walk.above_watermark(zone) { Verdict::Take } else { Verdict::Full }
}

/// Takes the block, or tells the cache that the zone is full.
fn act<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    cached: &Use<'a>,
    (position, zone): (usize, &'a Zone),
    verdict: Verdict,
) -> Option<V::Block> {
    let block = match verdict {
        Verdict::Take => visit.serve(walk, zone),
        Verdict::Full => None,
        Verdict::Next => return None,
    };
    if block.is_none()
        && !V::DRY
        && let Some(cache) = cached.told()
    {
        cache.mark(position);
    }
    block
}

/// The zone is passed without a look.
fn pass<'a, P: Platform, V: Visit<'a, P>>(
    walk: &Walk<'_, '_, 'a, P>,
    visit: &mut V,
    zone: &'a Zone,
) {
    visit.see(Seen::Passed(zone));
    if !V::DRY {
        walk.search.cache.into_iter().for_each(ZonelistCache::count_pass);
    }
}

/// The cache comes into use, once in a request's walk, where there are several nodes.
fn begin<'a, P: Platform, V: Visit<'a, P>>(walk: &Walk<'_, '_, 'a, P>, cached: &mut Use<'a>) {
    let on = walk.search.on;
    if cached.begun || on.nodes.len() == 1 {
        return;
    }
    if let Some(cache) = cached.cache
        && !V::DRY
    {
        cache.setup(on.platform.now_ns());
    }
    (cached.active, cached.begun) = (true, true);
}
