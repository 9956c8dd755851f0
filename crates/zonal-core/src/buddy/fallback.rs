//! When the type asked for has no block: take from another type (LB B.7).
//!
//! *Claiming* turns a whole pageblock to the new type; *stealing* takes one block and leaves the
//! pageblock, and the rest of a split block, to the old type. A steal mixes types in one pageblock,
//! which is what later keeps huge pages from forming, so claims come first.
//!
//! LB B.7's claim first asks whether the block's pageblock is HighAtomic. It never is: fallback
//! types are Unmovable, Movable and Reclaimable, and BUDDY-6 ties the list's type to the pageblock.

use super::list::End;
use super::request::{Cut, Mode, TakeRequest};
use super::{Buddy, MAX, PBO, free, list};
use crate::frame::Frames;
use crate::types::{Migratetype, NR_MIGRATETYPES, Order, PAGEBLOCK_PAGES, choice};

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

    /// What [`Buddy::take`] would find among `blocks` (the orders with free blocks, by
    /// migratetype): the type of the block, and for the request's own type its order. Every rule
    /// takes some block of another type if one is large enough.
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
    fn floor(&self, request: TakeRequest) -> Order {
        let order = request.order.get();
        list::order_of(if request.nofragment { order.max(PBO) } else { order })
    }

    /// LB B.7 `can_steal`: whether a block of this order is worth trying to claim. Pages that
    /// cannot move are kept together at any price; Movable ones may sit anywhere.
    fn can_steal(&self, order: u32, mt: Migratetype) -> bool {
        order >= PBO / 2 || mt != Migratetype::Movable || !self.mobility_grouping
    }
}

/// A free block of another type, at the head of its list.
#[derive(Clone, Copy)]
struct Found {
    order: u32,
    mt: Migratetype,
}

/// Where each type looks next, in order (LB B.7).
const fn fallbacks(mt: Migratetype) -> &'static [Migratetype] {
    use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    match mt {
        Unmovable => &[Reclaimable, Movable],
        Movable => &[Reclaimable, Unmovable],
        Reclaimable => &[Unmovable, Movable],
        HighAtomic | Isolate => &[],
    }
}

impl Buddy {
    /// LB B.7 from step 4 on. In `mode` [`Mode::Steal`] claims are skipped; the mode left behind is
    /// that of the step that worked.
    #[cold]
    pub(super) fn take_fallback(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        policy: &FallbackPolicy,
        mode: &mut Mode,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let floor = policy.floor(request).get();
        if policy.rule != FallbackRule::ClaimThenSteal {
            return self.take_at_once(frames, request, floor, policy, report);
        }
        if *mode == Mode::Normal
            && let Some(idx) = self.claim(frames, request, floor, policy, report)
        {
            return Some(idx);
        }
        if request.nofragment {
            return None;
        }
        let idx = self.steal(frames, request, report)?;
        *mode = Mode::Steal;
        Some(idx)
    }

    /// LB B.7 `find_fallback`.
    fn find_fallback(&self, order: u32, mt: Migratetype) -> Option<Found> {
        let has_block = |from: Migratetype| self.nonempty[from.index()] >> order & 1 != 0;
        let mt = fallbacks(mt).iter().copied().find(|&from| has_block(from))?;
        Some(Found { order, mt })
    }

    /// LB B.7 "Claim", the loop.
    fn claim(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        floor: u32,
        policy: &FallbackPolicy,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        for order in (floor..=MAX).rev() {
            let Some(found) = self.find_fallback(order, request.mt) else { continue };
            if !policy.can_steal(order, request.mt) {
                break;
            }
            if let Some(idx) = self.try_claim(frames, request, found, policy, report) {
                report(taken(idx, request, found, true));
                return Some(idx);
            }
        }
        None
    }

    /// LB B.7 "Steal", the loop.
    fn steal(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        for order in request.order.get()..=MAX {
            let Some(found) = self.find_fallback(order, request.mt) else { continue };
            if let Some(idx) = self.take_single(frames, request, found, report) {
                return Some(idx);
            }
        }
        None
    }

    /// LB B.7 "6.12.0 and earlier".
    fn take_at_once(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        floor: u32,
        policy: &FallbackPolicy,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let mt = request.mt;
        let order = (floor..=MAX).rev().find(|&order| self.find_fallback(order, mt).is_some())?;
        let mut found = self.find_fallback(order, mt)?;
        if !policy.can_steal(order, mt) {
            // No claim is possible, so break the smallest block and spare the large ones.
            found = (request.order.get()..=order).find_map(|k| self.find_fallback(k, mt))?;
        }
        if policy.can_steal(found.order, mt) {
            if let Some(idx) = self.try_claim(frames, request, found, policy, report) {
                report(taken(idx, request, found, true));
                return Some(idx);
            }
        } else {
            report(Fallback::Boost); // even though only a single page will be taken
        }
        if policy.rule == FallbackRule::MoveRemainder {
            return self.take_moved(frames, request, found, report);
        }
        self.take_single(frames, request, found, report)
    }

    /// LB B.7, up to 6.9: the free block changes lists, its pageblock does not change its type;
    /// then the request is tried again, which finds the block.
    fn take_moved(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        found: Found,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let first = self.pop(frames, found.order, found.mt)?;
        self.mixed = true;
        // Both types count as free pages and nothing else: no accounting moves.
        self.push(frames, first, found.order, request.mt, End::Tail);
        let idx = self.take_smallest(frames, request.order, request.mt)?;
        // A block that moved before may lie in a pageblock of the very type that asks.
        let claimed = frames.pageblock_type(idx) == request.mt;
        report(taken(idx, request, found, claimed));
        Some(idx)
    }

    /// LB B.7 `try_claim` of the block at the head of a list.
    fn try_claim(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        found: Found,
        policy: &FallbackPolicy,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let mt = request.mt;
        if found.order >= PBO {
            let first = self.pop(frames, found.order, found.mt)?;
            free::retag(frames, first, found.order, mt);
            // Both types count as free pages and nothing else, so only what leaves is accounted.
            return Some(self.cut_one(frames, first, request.order, Found { mt, ..found }));
        }
        report(Fallback::Boost);
        let head = self.head(found.order, found.mt);
        let range = frames.pageblock_range(head)?;
        let usage = super::pageblock::usage(frames, range.clone());
        let alike = match (mt, frames.pageblock_type(head)) {
            (Migratetype::Movable, _) => usage.movable,
            // What is neither free nor movable in a Movable pageblock was unmovable all along.
            (_, Migratetype::Movable) => {
                (PAGEBLOCK_PAGES as u32).saturating_sub(usage.free + usage.movable)
            }
            _ => 0,
        };
        if usage.free + alike < PAGEBLOCK_PAGES as u32 / 2 && policy.mobility_grouping {
            return None;
        }
        self.move_free_pages(frames, range, found.mt, mt, End::Tail);
        self.take_smallest(frames, request.order, mt)
    }

    /// Takes one block out of a block of another type, which keeps the remainder.
    fn take_single(
        &mut self,
        frames: &Frames<'_>,
        request: TakeRequest,
        found: Found,
        report: &mut impl FnMut(Fallback),
    ) -> Option<u32> {
        let first = self.pop(frames, found.order, found.mt)?;
        let idx = self.cut_one(frames, first, request.order, found);
        report(taken(idx, request, found, false));
        Some(idx)
    }

    /// Keeps the first piece of a popped block and puts the rest on the lists of `block.mt`.
    fn cut_one(&mut self, frames: &Frames<'_>, first: u32, order: Order, block: Found) -> u32 {
        let cut = Cut { first, from: block.order, order: order.get(), pieces: 1 };
        self.carve(frames, cut, block.mt);
        self.account_sub(block.mt, order.pages());
        first
    }
}

fn taken(idx: u32, request: TakeRequest, found: Found, claimed: bool) -> Fallback {
    Fallback::Taken(Taken {
        idx,
        order: request.order,
        fallback_order: super::list::order_of(found.order),
        mt: request.mt,
        fallback_mt: found.mt,
        claimed,
    })
}
