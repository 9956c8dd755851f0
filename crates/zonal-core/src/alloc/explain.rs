//! What would become of a request now, step by step: each zone the walk comes to, what it has, what
//! the request must leave behind, and the step that answers or refuses (LB D.3 to D.5).
//!
//! It is the walk of `alloc::search` itself with a visitor that only notes. Nothing is taken,
//! woken, reclaimed or remembered, and no lock is taken. The yield of node reclaim, direct reclaim,
//! memory still to come and drained pcps is not known before they run; the explanation says so.

use core::fmt;

use super::request::AllocError;
use super::search::{Search, Seen, Visit, Walk, reserve_flags, slow_flags, watermark_of};
use crate::buddy::TakeRequest;
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, NodeId, Order, ZoneId, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::Watermark;

/// A zone, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The zone.
    pub zone: ZoneId,
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
}

/// Where a block would come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The running CPU's list, which holds this many blocks.
    List(u32),
    /// A batch of the depot that this CPU shares.
    Depot,
    /// A pageblock that this CPU owns.
    Owned,
    /// A free block of this order, of the request's type.
    Free(Order),
    /// A free block of another type.
    OtherType,
    /// A block that is kept for atomic requests.
    Reserve,
}

/// The walk's decision about a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It gives the block.
    Gives(Source),
    /// It would fall below its watermark.
    BelowWatermark,
    /// It is above its watermark, but has no block that the request may take.
    NoBlock,
    /// It is below its watermark, or has no block, and memory is still to come to it.
    Grows,
}

/// One zone as a walk sees it; sizes in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Which zone.
    pub place: Place,
    /// Free pages, as the watermark test counts them.
    pub free: u64,
    /// Of these, pages that do not count for the request: the rest of its block, and the atomic
    /// reserve.
    pub unusable: u64,
    /// The mark that is asked, boost included, before what the request's rights take off.
    pub watermark: u64,
    /// Pages kept back from requests that could have been served from a higher zone (LB A.7).
    pub reserve: u64,
    /// More than this many must be usable.
    pub needed: u64,
    /// What follows.
    pub verdict: Verdict,
}

/// A step of the explanation, in the order things would happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// A walk over the zonelist begins.
    Walk {
        /// The watermark it asks; `None`: the request ignores the watermarks.
        watermark: Option<Watermark>,
        /// It takes no block of another type and does not leave the preferred node.
        apart: bool,
    },
    /// A zone is looked at.
    Zone(Look),
    /// A zone is passed, because it was found full less than a second ago (LB G.4).
    Passed(Place),
    /// A zone is passed: the page is for writing to, and the node has as much dirty as it may.
    Dirty(Place),
    /// The zone is passed without a look: the background reclaimer of its node is awake.
    Reclaiming(Place),
    /// The walk ends in front of this zone: it keeps types apart, and this is another node.
    Stops(Place),
    /// Node reclaim would run; its yield is not known. The walk goes on as if it gave nothing.
    NodeReclaim(Place),
    /// Base pages in depots that would go to the buddies, where the next walks may find them.
    Depots(u64),
    /// The background reclaimer of the node would be woken.
    Wakes(NodeId),
}

/// How the explanation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The block would come from here.
    Served(Place, Source),
    /// Direct reclaim would be asked, again and again while it frees pages.
    Reclaims,
    /// The pcps of all CPUs and the reserves would be emptied, and the zones asked again. For a
    /// request that must not wait only where it may win by it.
    Drains {
        /// Base pages on the pcps and in the depots of the zones the request may use.
        cached: u64,
        /// Base pages by which their watermarks would fall, lent to the background reclaimer so
        /// far.
        boost: u64,
        /// Base pages kept there for atomic requests.
        reserved: u64,
    },
    /// It must not fail: it would wait until others free pages, in a platform that can wait.
    Waits,
    /// It would be refused.
    Refused(AllocError),
}

/// An explanation's end, and whether it is certain while nothing else runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    /// What would happen.
    pub outcome: Outcome,
    /// `false`: node reclaim or memory to come was met on the way and may have served the request,
    /// the budget may not cover a magazine of the depot, or a zonelist cache would have remembered
    /// what an earlier walk found.
    pub certain: bool,
}

impl<'a, P: Platform> Search<'_, 'a, P> {
    /// Tells what would become of the request on the running CPU, and changes nothing.
    pub(super) fn explain(&self, note: &mut dyn FnMut(Note)) -> Explained {
        let mut noting = Noting { search: self, flags: AllocFlags::WMARK_MIN, note, certain: true };
        let outcome = self.explain_walks(&mut noting);
        Explained { outcome, certain: noting.certain }
    }

    fn explain_walks(&self, noting: &mut Noting<'_, '_, 'a, P>) -> Outcome {
        let served = |(place, source)| Outcome::Served(place, source);
        if let Some(found) = self.scan_with(noting, self.first_flags()) {
            return served(found);
        }
        let in_depots = self.allowed().map(|zone| self.zone_ops(zone).depot_pages()).sum();
        if in_depots > 0 {
            (noting.note)(Note::Depots(in_depots));
            noting.certain = false;
        }
        if self.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            self.each_node(|zone| (noting.note)(Note::Wakes(zone.node)));
        }
        let mut flags = slow_flags(self.gfp, self.order);
        // A zonelist cache remembers the zones that the first walk found full. The request passes
        // them on the next walk, and another zone may serve it; nothing is remembered here.
        #[cfg(feature = "history")]
        let forgets = self.cache.is_some();
        #[cfg(not(feature = "history"))]
        let forgets = false;
        if let Some(found) = self.scan_with(noting, flags) {
            noting.certain &= !forgets;
            return served(found);
        }
        if let Some(reserve) = reserve_flags(self.gfp, self.is_reclaiming()) {
            flags = reserve;
            if let Some(found) = self.scan_with(noting, flags) {
                noting.certain &= !forgets;
                return served(found);
            }
        }
        if self.may_reclaim_directly() {
            return Outcome::Reclaims;
        }
        self.explain_last(flags)
    }

    /// The end without a reclaimer.
    fn explain_last(&self, flags: AllocFlags) -> Outcome {
        let (mut cached, mut boost, mut reserved, mut deltas) = (0, 0, 0, false);
        for zone in self.allowed() {
            let ops = self.zone_ops(zone);
            boost += zone.boost();
            reserved += zone.snapshot(self.highest).highatomic_free;
            cached += ops.depot_pages() + ops.owned().pages();
            cached += ops.pcps().map(|pcp| u64::from(pcp.count())).sum::<u64>();
            let has_delta = |cpu| ops.pcp(cpu).free_diff.load(Relaxed) != 0;
            deltas |= self.on.each_cpu().any(has_delta);
        }
        let isolated = self.on.events.isolated.load(Relaxed) != 0;
        let may_wait = self.gfp.contains(Gfp::DIRECT_RECLAIM);
        let drains = cached + boost + reserved > 0 || deltas || isolated;
        if drains && (may_wait || self.draining_may_help(flags)) {
            return Outcome::Drains { cached, boost, reserved };
        }
        if self.waits() { Outcome::Waits } else { Outcome::Refused(self.refusal(flags)) }
    }

    /// Whether and from where a walk with these flags would serve the request.
    fn source(&self, flags: AllocFlags, zone: &'a Zone) -> Option<Source> {
        let on = self.on;
        let blocks = zone.snapshot(self.highest).blocks.by_type;
        let has = |mt: Migratetype| blocks[mt.index()] >> self.order.get() != 0;
        let list = on.map.get(self.order, self.mt);
        if let Some(list) = list {
            let cold = self.gfp.contains(Gfp::COLD);
            let cpu = on.platform.cpu();
            let listed = on.pcp_for(zone.id, cpu, cold).listed(list);
            if listed > 0 {
                return Some(Source::List(listed));
            }
            if self.zone_ops(zone).depot_has(cpu, list) {
                return Some(Source::Depot);
            }
        }
        let own = on.owns_pageblocks() && !flags.contains(AllocFlags::HIGHATOMIC);
        if own && self.zone_ops(zone).owned().serves(on.platform.cpu(), self.order, self.mt) {
            return Some(Source::Owned);
        }
        let reserve = || has(Migratetype::HighAtomic).then_some(Source::Reserve);
        let may_use = |rights: AllocFlags| flags.intersects(rights);
        if list.is_none()
            && may_use(AllocFlags::HIGHATOMIC)
            && let Some(reserve) = reserve()
        {
            return Some(reserve);
        }
        let nofragment = flags.contains(AllocFlags::NOFRAGMENT);
        let want = TakeRequest { order: self.order, mt: self.mt, nofragment };
        match on.fallback().would_take(&blocks, want) {
            Some((mt, order)) if mt == self.mt => Some(Source::Free(order)),
            Some(_) => Some(Source::OtherType),
            None if may_use(AllocFlags::RESERVES) => reserve(),
            None => None,
        }
    }
}

/// Records the steps of a walk and takes nothing.
struct Noting<'n, 's, 'a, P> {
    search: &'n Search<'s, 'a, P>,
    /// Those of the walk.
    flags: AllocFlags,
    note: &'n mut dyn FnMut(Note),
    certain: bool,
}

impl<'a, P: Platform> Noting<'_, '_, 'a, P> {
    fn look(&mut self, zone: &'a Zone, mut verdict: Verdict) {
        let (search, flags) = (self.search, self.flags);
        let snapshot = zone.snapshot(search.highest);
        let (watermarks, watermark) = (zone.watermarks(), watermark_of(flags));
        let grows = search.on.is_growing() && zone.deferred.left() > 0;
        if !matches!(verdict, Verdict::Gives(_)) && grows {
            verdict = Verdict::Grows;
            self.certain = false;
        }
        (self.note)(Note::Zone(Look {
            place: place(zone),
            free: snapshot.free,
            unusable: snapshot.unusable(search.order, flags),
            watermark: watermarks.of(watermark),
            reserve: snapshot.reserve,
            needed: snapshot.kept(search.order, &watermarks, watermark, flags),
            verdict,
        }));
    }
}

impl<'a, P: Platform> Visit<'a, P> for Noting<'_, '_, 'a, P> {
    type Block = (Place, Source);
    const DRY: bool = true;

    fn see(&mut self, step: Seen<'a>) {
        match step {
            Seen::Starts(flags) => {
                self.flags = flags;
                let ignores = flags.contains(AllocFlags::NO_WATERMARKS);
                let watermark = (!ignores).then(|| watermark_of(flags));
                let apart = flags.contains(AllocFlags::NOFRAGMENT);
                (self.note)(Note::Walk { watermark, apart });
            }
            Seen::BelowWatermark(zone) => self.look(zone, Verdict::BelowWatermark),
            Seen::NodeReclaim(zone) => {
                (self.note)(Note::NodeReclaim(place(zone)));
                self.certain = false;
            }
            #[cfg(feature = "history")]
            Seen::Passed(zone) => (self.note)(Note::Passed(place(zone))),
            Seen::Dirty(zone) => (self.note)(Note::Dirty(place(zone))),
            Seen::Reclaiming(zone) => (self.note)(Note::Reclaiming(place(zone))),
            Seen::Stops(zone) => (self.note)(Note::Stops(place(zone))),
        }
    }

    fn serve(&mut self, walk: &Walk<'_, '_, 'a, P>, zone: &'a Zone) -> Option<(Place, Source)> {
        let source = self.search.source(walk.flags, zone);
        if source == Some(Source::Depot) {
            // A magazine that the budget does not cover goes back, and the walk goes on.
            let on = self.search.on;
            let most = on.pcp_for(zone.id, on.platform.cpu(), false).batch_pages();
            self.certain &= !zone.budget.is_short(most);
        }
        self.look(zone, source.map_or(Verdict::NoBlock, Verdict::Gives));
        source.map(|source| (place(zone), source))
    }
}

fn place(zone: &Zone) -> Place {
    Place { zone: zone.id, node: zone.node, kind: zone.kind() }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, zone {}", self.node, self.kind)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::List(blocks) => write!(f, "this CPU's list ({blocks} blocks on it)"),
            Source::Depot => f.write_str("a batch of the depot that this CPU shares"),
            Source::Owned => f.write_str("a pageblock that this CPU owns"),
            Source::Free(order) => write!(f, "a free block of {order:?}"),
            Source::OtherType => f.write_str("a free block of another migratetype"),
            Source::Reserve => f.write_str("a block kept for atomic requests"),
        }
    }
}

impl Note {
    /// The section of `docs/linux` that has the rule of this step; `None` where no kernel has it.
    pub const fn rule(&self) -> Option<&'static str> {
        Some(match self {
            Note::Walk { .. } | Note::Dirty(_) | Note::Reclaiming(_) | Note::Stops(_) => "LB D.4",
            Note::Zone(_) => "LB C.5",
            Note::Passed(_) => "LB G.4",
            Note::NodeReclaim(_) => "LB G.3",
            Note::Wakes(_) => "LB D.6",
            Note::Depots(_) => return None,
        })
    }
}

impl Outcome {
    /// The section of `docs/linux` that has the rule of this end.
    pub const fn rule(&self) -> &'static str {
        match self {
            Outcome::Served(_, Source::List(_)) => "LB E.6",
            Outcome::Served(_, Source::Depot | Source::Owned) => "LB D.4",
            Outcome::Served(_, Source::Free(_)) => "LB B.6",
            Outcome::Served(_, Source::OtherType) => "LB B.7",
            Outcome::Served(_, Source::Reserve) => "LB B.8",
            Outcome::Reclaims => "LB H.4",
            Outcome::Drains { .. } => "LB E.9",
            Outcome::Waits | Outcome::Refused(_) => "LB D.5",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Walk { watermark, apart } => {
                match watermark {
                    Some(watermark) => write!(f, "walk, down to the {watermark} watermark")?,
                    None => f.write_str("walk, past all watermarks")?,
                }
                if *apart { f.write_str(", types kept apart") } else { Ok(()) }
            }
            Note::Zone(look) => write!(f, "  {look}"),
            Note::Passed(place) => write!(f, "  {place}: passed, it was found full lately"),
            Note::Reclaiming(place) => {
                write!(f, "  {place}: passed, the reclaimer of its node is awake")
            }
            Note::Dirty(place) => write!(f, "  {place}: passed, its node has enough to be written"),
            Note::Stops(place) => {
                write!(f, "  {place}: another node, and types are kept apart; the walk ends")
            }
            Note::NodeReclaim(place) => {
                write!(f, "  {place}: node reclaim would be asked; what it gives is not known")
            }
            Note::Depots(pages) => write!(f, "the depots are emptied ({pages} pages)"),
            Note::Wakes(node) => write!(f, "the background reclaimer of {node:?} is woken"),
        }?;
        self.rule().map_or(Ok(()), |rule| write!(f, " [{rule}]"))
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { place, free, unusable, watermark, reserve, needed, verdict } = self;
        let usable = free.saturating_sub(*unusable);
        write!(f, "{place}: {free} pages free, {usable} usable, more than {needed} needed ")?;
        write!(f, "(watermark {watermark}, reserve {reserve}): ")?;
        match verdict {
            Verdict::Gives(source) => write!(f, "gives {source}"),
            Verdict::BelowWatermark => f.write_str("refuses, it would fall below its watermark"),
            Verdict::NoBlock => f.write_str("has no block for the request"),
            Verdict::Grows => f.write_str("refuses; memory is still to come to it"),
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Served(place, source) => write!(f, "served from {place}: {source}")?,
            Outcome::Reclaims => f.write_str("direct reclaim is asked, then the zones again")?,
            Outcome::Drains { cached, boost, reserved } => write!(
                f,
                "the per-CPU lists are emptied ({cached} pages), the boost ({boost}) and the \
                 atomic reserve ({reserved}) given up; then the zones are asked again"
            )?,
            Outcome::Waits => f.write_str("must not fail: waits until others free pages")?,
            Outcome::Refused(error) => write!(f, "refused: {error}")?,
        }
        if !self.certain {
            f.write_str(", unless a step above made room")?;
        }
        write!(f, " [{}]", self.outcome.rule())
    }
}
