//! When the type asked for has no block: take from another type (LB B.7).
//!
//! *Claiming* turns a whole pageblock to the new type; *stealing* takes one block and leaves the
//! pageblock, and the rest of a split block, to the old type. A steal mixes types in one pageblock,
//! which is what later keeps huge pages from forming, so claims come first.
//!
//! LB B.7's claim first asks whether the block's pageblock is HighAtomic. It never is: fallback
//! types are Unmovable, Movable and Reclaimable, and BUDDY-6 ties the list's type to the pageblock.

use super::request::TakeRequest;
use super::{PBO, list};
use crate::frame::Frames;
use crate::types::{Migratetype, NR_MIGRATETYPES, Order, choice};

choice! {
    /// Which release's fallback is followed (LB B.7, LB L "fallback").
    pub enum FallbackRule {
        /// As before, but where no claim works the whole free block moves to the lists of the new
        /// type, while its pageblock keeps the old one (up to 6.9). Lists and pageblocks then
        /// differ.
        MoveRemainder = "move-remainder",
        /// Decide at the first, largest, fallback block: claim its pageblock or take a single page
        /// from it, remainder left to the old type (6.10 to 6.14, 6.12.0).
        SinglePage612 = "single-page",
        /// Try to claim at every order from the largest down; steal the smallest block only when no
        /// claim works (6.15+, 6.12 stable).
        ClaimThenSteal = "claim-then-steal",
    }
}

/// How a zone falls back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FallbackPolicy {
    /// The release's rule.
    pub rule: FallbackRule,
    /// Whether pageblocks have types of their own (LB A.5, last lines). Without, all requests are
    /// served as Unmovable. A zone whose pageblocks are all Unmovable, as they should be then,
    /// never falls back; should others be left over, any of their blocks is claimed.
    pub mobility_grouping: bool,
}

/// Something that happened on the way to a block of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// Boost the zone's watermarks (LB C.4; if that succeeds and the request may wake kswapd, set
    /// BOOSTED_WATERMARK). Comes once for each block below a pageblock that a claim looks at,
    /// before it is known whether the claim works.
    Boost,
    /// A block was taken: the trace event `mm_page_alloc_extfrag`.
    Taken(Taken),
}

/// The fields of the trace event `mm_page_alloc_extfrag` (LB B.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// First frame of the block that was handed out.
    pub idx: u32,
    /// Order asked for.
    pub order: Order,
    /// Order of the free block it came from.
    pub fallback_order: Order,
    /// Type asked for.
    pub mt: Migratetype,
    /// Type of the free block.
    pub fallback_mt: Migratetype,
    /// The pageblock now has the type asked for (`change_ownership`): a claim, not a steal.
    pub claimed: bool,
}

impl Taken {
    /// Whether the block was smaller than a pageblock, so that types may now be mixed in one.
    pub const fn fragmenting(&self) -> bool {
        self.fallback_order.get() < PBO
    }
}

impl FallbackPolicy {
    /// The newest rule, pageblocks grouped by mobility.
    pub const DEFAULT: FallbackPolicy =
        FallbackPolicy { rule: FallbackRule::ClaimThenSteal, mobility_grouping: true };

    /// The request as this policy serves it.
    #[inline]
    pub(super) fn effective(&self, request: TakeRequest) -> TakeRequest {
        if self.mobility_grouping || !request.mt.mergeable() {
            return request;
        }
        TakeRequest { mt: Migratetype::Unmovable, ..request }
    }

    /// What [`Buddy::take`](super::Buddy::take) would find among `blocks` (the orders with free
    /// blocks, by migratetype): the type of the block, and for the request's own type its order.
    /// Every rule takes some block of another type if one is large enough.
    pub fn would_take(
        &self,
        blocks: &[u16; NR_MIGRATETYPES],
        request: TakeRequest,
    ) -> Option<(Migratetype, Order)> {
        let request = self.effective(request);
        let from = |mt: Migratetype, order: Order| {
            let orders = blocks[mt.index()] >> order.get() << order.get();
            (orders != 0).then(|| (mt, list::order_of(orders.trailing_zeros())))
        };
        let floor = self.floor(request);
        let others = || fallbacks(request.mt).iter().find_map(|&mt| from(mt, floor));
        from(request.mt, request.order).or_else(others)
    }

    /// The smallest block of another type that the request may break: a pageblock at least, if
    /// types must not mix.
    pub(super) fn floor(&self, request: TakeRequest) -> Order {
        let order = request.order.get();
        list::order_of(if request.nofragment { order.max(PBO) } else { order })
    }

    /// LB B.7 `can_steal`: whether a block of this order is worth trying to claim. Pages that
    /// cannot move are kept together at any price; Movable ones may sit anywhere.
    pub(super) fn can_steal(&self, order: u32, mt: Migratetype) -> bool {
        order >= PBO / 2 || mt != Migratetype::Movable || !self.mobility_grouping
    }
}

/// A free block of another type, at the head of its list.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub order: u32,
    pub mt: Migratetype,
}

/// Where each type looks next, in order (LB B.7).
pub(super) const fn fallbacks(mt: Migratetype) -> &'static [Migratetype] {
    use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    match mt {
        Unmovable => &[Reclaimable, Movable],
        Movable => &[Reclaimable, Unmovable],
        Reclaimable => &[Unmovable, Movable],
        HighAtomic | Isolate => &[],
    }
}

/// How a request fell back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The block's pageblocks get the request's type, and what is free in them comes to its lists.
    Claimed,
    /// The block alone comes to a list of that type.
    Moved,
    /// One block is to be taken from it, and the rest left to its type.
    Single,
}

/// A block of another type that serves a request.
#[derive(Clone, Copy)]
pub(super) struct Fell {
    pub found: Found,
    pub how: How,
}

impl Fell {
    /// Whether it is on a list of the request's type, once its claim is at an end.
    pub(super) fn becomes_own(self) -> bool {
        self.how != How::Single
    }

    /// The type and the order of its list, before it fell.
    pub(super) fn block(self) -> (Migratetype, Order) {
        (self.found.mt, list::order_of(self.found.order))
    }

    /// The event, once a block that begins with frame `idx` was taken from it.
    pub(super) fn taken(self, frames: &Frames<'_>, idx: u32, request: TakeRequest) -> Fallback {
        Fallback::Taken(Taken {
            idx,
            order: request.order,
            fallback_order: list::order_of(self.found.order),
            mt: request.mt,
            fallback_mt: self.found.mt,
            // A block that moved before may lie in a pageblock of the very type that asks.
            claimed: self.becomes_own() && frames.pageblock_type(idx) == request.mt,
        })
    }
}
