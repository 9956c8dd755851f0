//! What would become of a request now, step by step: each zone the walk comes to, what it has, what
//! the request must leave behind, and the step that answers or refuses (LB D.3 to D.5).
//!
//! It is the walk of `alloc::scan` itself with a hand that only notes. Nothing is taken, woken,
//! reclaimed or remembered, and no lock is taken. What node reclaim, direct reclaim, memory still
//! to come and emptied stores would give is not known before it is tried; a request that gets that
//! far is told so.

use core::fmt;

use super::scan::{Context, Hand, Walk, first_flags, mark_of};
use super::slow::{reserve_flags, slow_flags};
use super::{AllocError, Allocator, Request};
use crate::buddy::TakeRequest;
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::reclaim::NodeReclaim;
use crate::sync::Ordering::Relaxed;
use crate::types::{Migratetype, NodeId, Order, ZoneId, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::Mark;
use crate::zonelist::cache::ZonelistCache;

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
    /// A free block of this order, of the request's type.
    Free(Order),
    /// A free block of another type.
    OtherType,
    /// A block that is kept for atomic requests.
    Reserve,
}

/// What the walk makes of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It gives the block.
    Gives(Source),
    /// It would fall below its mark.
    BelowMark,
    /// It is above its mark, but has no block that the request may take.
    NoBlock,
    /// It is below its mark, or has no block, and memory is still to come to it.
    Grows,
}

/// One zone as a walk sees it; sizes in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Which zone.
    pub place: Place,
    /// Free pages, as the watermark test counts them.
    pub free: u64,
    /// Of these, pages that do not count for the request: the rest of its block, and what is kept
    /// for atomic requests.
    pub unusable: u64,
    /// The mark that is asked, boost included, before what the request's rights take off.
    pub mark: u64,
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
        /// The mark it asks; `None`: the request ignores the marks.
        mark: Option<Mark>,
        /// It takes no block of another type and does not leave the preferred node.
        apart: bool,
    },
    /// A zone is looked at.
    Zone(Look),
    /// A zone is passed, because it was found full less than a second ago (LB G.4).
    Passed(Place),
    /// A zone is passed: the page is for writing to, and the node has as much dirty as it may.
    Dirty(Place),
    /// The walk ends in front of this zone: it keeps types apart, and this is another node.
    Stops(Place),
    /// Node reclaim would be asked for room, and what it can give is not known. The walk goes on as
    /// if it gave nothing.
    NodeReclaim(Place),
    /// So many base pages in depots would go to the buddies, where the walks that follow may find
    /// them.
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
    /// The stores of all CPUs and the reserves would be emptied, and the zones asked again. For a
    /// request that must not wait only where it may win by it.
    Drains {
        /// Base pages on the stores and in the depots of the zones the request may use.
        cached: u64,
        /// Base pages by which their marks would fall, lent to the background reclaimer so far.
        boost: u64,
        /// Base pages kept there for atomic requests.
        reserved: u64,
    },
    /// It must not fail: it would wait until others free pages, in a home that can wait.
    Waits,
    /// It would be refused.
    Refused(AllocError),
}

/// An explanation's end, and whether it is certain while nothing else runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    /// What would happen.
    pub outcome: Outcome,
    /// `false`: node reclaim or memory to come was met on the way and may have served the request.
    pub certain: bool,
}

impl<'a, P: Platform> Allocator<'a, P> {
    /// Tells what would become of `request` on the running CPU, and changes nothing.
    pub fn explain(&self, request: &Request, note: &mut dyn FnMut(Note)) -> Explained {
        let ctx = match self.context(request) {
            Ok(ctx) => ctx,
            Err(error) => return Explained { outcome: Outcome::Refused(error), certain: true },
        };
        let mut noting = Noting { note, certain: true };
        let outcome = self.explain_walks(&mut noting, &ctx);
        Explained { outcome, certain: noting.certain }
    }

    fn explain_walks(&self, noting: &mut Noting<'_>, ctx: &Context<'a>) -> Outcome {
        let served = |(place, source)| Outcome::Served(place, source);
        if let Some(found) = self.scan_with(noting, ctx, first_flags(ctx)) {
            return served(found);
        }
        let in_depots = self.allowed(ctx).map(|zone| self.depot_pages(zone.id)).sum();
        if in_depots > 0 {
            (noting.note)(Note::Depots(in_depots));
            noting.certain = false;
        }
        if ctx.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            self.each_node(ctx, |zone| (noting.note)(Note::Wakes(zone.node)));
        }
        let mut flags = slow_flags(ctx);
        if let Some(found) = self.scan_with(noting, ctx, flags) {
            return served(found);
        }
        if let Some(reserve) = reserve_flags(ctx.gfp, self.is_reclaiming()) {
            flags = reserve;
            if let Some(found) = self.scan_with(noting, ctx, flags) {
                return served(found);
            }
        }
        if self.may_reclaim_directly(ctx) {
            return Outcome::Reclaims;
        }
        self.explain_last(ctx, flags)
    }

    /// What is left when nobody can reclaim.
    fn explain_last(&self, ctx: &Context<'a>, flags: AllocFlags) -> Outcome {
        let (mut cached, mut boost, mut reserved, mut deltas) = (0, 0, 0, false);
        for zone in self.allowed(ctx) {
            boost += zone.marks().boost;
            reserved += zone.snapshot(ctx.highest).highatomic_free;
            cached += self.depot_pages(zone.id);
            for cpu in self.each_cpu() {
                cached += self.stores(zone.id, cpu).map(|pcp| u64::from(pcp.count())).sum::<u64>();
                deltas |= self.pcp(zone.id, cpu).free_diff.load(Relaxed) != 0;
            }
        }
        let isolated = self.events.isolated.load(Relaxed) != 0;
        let may_wait = ctx.gfp.contains(Gfp::DIRECT_RECLAIM);
        let drains = cached + boost + reserved > 0 || deltas || isolated;
        if drains && (may_wait || self.draining_may_help(ctx, flags)) {
            return Outcome::Drains { cached, boost, reserved };
        }
        if self.waits(ctx) { Outcome::Waits } else { Outcome::Refused(self.refusal(ctx, flags)) }
    }

    /// Whether and from where [`rmqueue`](Self::rmqueue) would serve the request.
    fn source(&self, walk: &Walk<'_, 'a>, zone: &'a Zone) -> Option<Source> {
        let Walk { ctx, flags, .. } = *walk;
        let blocks = zone.snapshot(ctx.highest).blocks.by_type;
        let has = |mt: Migratetype| blocks[mt.index()] >> ctx.order.get() != 0;
        let list = self.map.get(ctx.order, ctx.mt);
        if let Some(list) = list {
            let cold = ctx.gfp.contains(Gfp::COLD);
            let listed = self.store_for(zone.id, self.platform.cpu(), cold).listed(list);
            if listed > 0 {
                return Some(Source::List(listed));
            }
            if self.depot_has(zone.id, self.platform.cpu(), list) {
                return Some(Source::Depot);
            }
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
        let want = TakeRequest { order: ctx.order, mt: ctx.mt, nofragment };
        match self.fallback.would_take(&blocks, want) {
            Some((mt, order)) if mt == ctx.mt => Some(Source::Free(order)),
            Some(_) => Some(Source::OtherType),
            None if may_use(AllocFlags::RESERVES) => reserve(),
            None => None,
        }
    }
}

/// The hand that takes nothing.
struct Noting<'n> {
    note: &'n mut dyn FnMut(Note),
    certain: bool,
}

impl Noting<'_> {
    fn look<'a, P: Platform>(
        &mut self,
        on: &Allocator<'a, P>,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
        mut verdict: Verdict,
    ) {
        let Walk { ctx, flags, .. } = *walk;
        let snapshot = zone.snapshot(ctx.highest);
        let (marks, mark) = (zone.marks(), mark_of(flags));
        if !matches!(verdict, Verdict::Gives(_)) && on.is_growing() && zone.deferred.left() > 0 {
            verdict = Verdict::Grows;
            self.certain = false;
        }
        (self.note)(Note::Zone(Look {
            place: place(zone),
            free: snapshot.free,
            unusable: snapshot.unusable(ctx.order, flags),
            mark: marks.mark(mark),
            reserve: snapshot.reserve,
            needed: snapshot.kept(ctx.order, &marks, mark, flags),
            verdict,
        }));
    }
}

impl<'a, P: Platform> Hand<'a, P> for Noting<'_> {
    type Block = (Place, Source);

    fn start(&mut self, walk: &Walk<'_, 'a>) {
        let ignores = walk.flags.contains(AllocFlags::NO_WATERMARKS);
        let mark = (!ignores).then(|| mark_of(walk.flags));
        (self.note)(Note::Walk { mark, apart: walk.flags.contains(AllocFlags::NOFRAGMENT) });
    }

    fn may_take(&mut self, on: &Allocator<'a, P>, walk: &Walk<'_, 'a>, zone: &'a Zone) -> bool {
        let may = on.standing(walk, zone).above || walk.flags.contains(AllocFlags::NO_WATERMARKS);
        if !may {
            self.look(on, walk, zone, Verdict::BelowMark);
        }
        may
    }

    fn reclaim(&mut self, _: &Allocator<'a, P>, _: &Walk<'_, 'a>, zone: &'a Zone) -> NodeReclaim {
        (self.note)(Note::NodeReclaim(place(zone)));
        self.certain = false;
        NodeReclaim::NoScan
    }

    fn serve(
        &mut self,
        on: &Allocator<'a, P>,
        walk: &Walk<'_, 'a>,
        zone: &'a Zone,
    ) -> Option<(Place, Source)> {
        let source = on.source(walk, zone);
        self.look(on, walk, zone, source.map_or(Verdict::NoBlock, Verdict::Gives));
        source.map(|source| (place(zone), source))
    }

    fn pass(&mut self, _: &Walk<'_, 'a>, zone: &'a Zone) {
        (self.note)(Note::Passed(place(zone)));
    }
    fn pass_dirty(&mut self, zone: &'a Zone) {
        (self.note)(Note::Dirty(place(zone)));
    }
    fn stop(&mut self, _: &Walk<'_, 'a>, zone: &'a Zone) {
        (self.note)(Note::Stops(place(zone)));
    }
    fn mark(&mut self, _: &ZonelistCache, _: usize) {}
    fn begin(&mut self, _: &ZonelistCache, _: u64) {}
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
            Source::Free(order) => write!(f, "a free block of {order:?}"),
            Source::OtherType => f.write_str("a free block of another migratetype"),
            Source::Reserve => f.write_str("a block kept for atomic requests"),
        }
    }
}

impl Note {
    /// The section of `docs/linux` that has the rule of this step; `None` where no kernel has it.
    pub const fn section(&self) -> Option<&'static str> {
        Some(match self {
            Note::Walk { .. } | Note::Dirty(_) | Note::Stops(_) => "LB D.4",
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
    pub const fn section(&self) -> &'static str {
        match self {
            Outcome::Served(_, Source::List(_)) => "LB E.6",
            Outcome::Served(_, Source::Depot) => "LB D.4",
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
            Note::Walk { mark, apart } => {
                match mark {
                    Some(mark) => write!(f, "walk, down to the {mark} mark")?,
                    None => f.write_str("walk, past all marks")?,
                }
                if *apart { f.write_str(", types kept apart") } else { Ok(()) }
            }
            Note::Zone(look) => write!(f, "  {look}"),
            Note::Passed(place) => write!(f, "  {place}: passed, it was found full lately"),
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
        self.section().map_or(Ok(()), |section| write!(f, " [{section}]"))
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { place, free, unusable, mark, reserve, needed, verdict } = self;
        let usable = free.saturating_sub(*unusable);
        write!(f, "{place}: {free} pages free, {usable} usable, more than {needed} needed ")?;
        write!(f, "(mark {mark}, reserve {reserve}): ")?;
        match verdict {
            Verdict::Gives(source) => write!(f, "gives {source}"),
            Verdict::BelowMark => f.write_str("refuses, it would fall below its mark"),
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
        write!(f, " [{}]", self.outcome.section())
    }
}
