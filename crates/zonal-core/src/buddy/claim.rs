//! Blocks of another type: which one serves a request, and what becomes of its pageblock (LB B.7).

use super::batch::Batch;
use super::fallback::{FallbackPolicy, FallbackRule, Fell, Found, How, fallbacks};
use super::list::End;
use super::request::{Mode, TakeRequest};
use super::{Buddy, MAX, PBO, free};
use crate::frame::Frames;
use crate::types::{Migratetype, PAGEBLOCK_PAGES};

impl Buddy {
    /// LB B.7 from step 4 on. In [`Mode::Steal`] claims are skipped. Looks only: what serves a
    /// request whose own type has no block, once [`end_claim`](Self::end_claim) has been called.
    /// Counts the [`Fallback::Boost`]s on the way. `false`: nothing does.
    #[cold]
    #[inline(never)]
    pub(super) fn fall_back(
        &self,
        frames: &Frames<'_>,
        batch: &mut Batch,
        policy: FallbackPolicy,
    ) -> bool {
        let fell = self.look_beside(frames, batch, policy);
        fell.inspect(|fell| batch.aim_at(*fell)).is_some()
    }

    #[inline]
    fn look_beside(
        &self,
        frames: &Frames<'_>,
        batch: &mut Batch,
        policy: FallbackPolicy,
    ) -> Option<Fell> {
        let request = batch.request;
        let floor = policy.floor(request).get();
        if policy.rule != FallbackRule::ClaimThenSteal {
            return self.look_beside_at_once(frames, batch, (policy, floor));
        }
        if batch.mode == Mode::Normal {
            for order in (floor..MAX + 1).rev() {
                let Some(found) = self.find_fallback(order, request.mt) else { continue };
                if !policy.can_steal(order, request.mt) {
                    break;
                }
                if self.may_claim(frames, found, (batch, policy)) {
                    return Some(Fell { found, how: How::Claimed });
                }
            }
        }
        if request.nofragment {
            return None;
        }
        let mut orders = request.order.get()..MAX + 1;
        let found = orders.find_map(|order| self.find_fallback(order, request.mt))?;
        Some(Fell { found, how: How::Single })
    }

    /// LB B.7 `find_fallback`.
    #[inline(never)]
    fn find_fallback(&self, order: u32, mt: Migratetype) -> Option<Found> {
        let has_block = |from: Migratetype| self.nonempty[from.index()] >> order & 1 != 0;
        let mt = fallbacks(mt).iter().copied().find(|&from| has_block(from))?;
        Some(Found { order, mt })
    }

    /// LB B.7 "6.12.0 and earlier".
    fn look_beside_at_once(
        &self,
        frames: &Frames<'_>,
        batch: &mut Batch,
        (policy, floor): (FallbackPolicy, u32),
    ) -> Option<Fell> {
        let TakeRequest { order: least, mt, .. } = batch.request;
        let order = (floor..=MAX).rev().find(|&order| self.find_fallback(order, mt).is_some())?;
        let mut found = self.find_fallback(order, mt)?;
        if !policy.can_steal(order, mt) {
            // No claim is possible, so break the smallest block and spare the large ones.
            found = (least.get()..=order).find_map(|k| self.find_fallback(k, mt))?;
        }
        if policy.can_steal(found.order, mt) {
            if self.may_claim(frames, found, (batch, policy)) {
                return Some(Fell { found, how: How::Claimed });
            }
        } else {
            batch.boosts += 1; // even though only a single page will be taken
        }
        // Up to 6.9 the free block changes lists, and its pageblock does not change its type.
        let moves = policy.rule == FallbackRule::MoveRemainder;
        Some(Fell { found, how: if moves { How::Moved } else { How::Single } })
    }

    /// LB B.7 `try_claim` of the block at the head of a list, as far as it decides.
    fn may_claim(
        &self,
        frames: &Frames<'_>,
        found: Found,
        (batch, policy): (&mut Batch, FallbackPolicy),
    ) -> bool {
        if found.order >= PBO {
            return true;
        }
        batch.boosts += 1;
        let head = self.head(found.order, found.mt);
        let Some(range) = frames.pageblock_range(head) else { return false };
        let usage = super::pageblock::usage(frames, range);
        let alike = match (batch.request.mt, frames.pageblock_type(head)) {
            (Migratetype::Movable, _) => usage.movable,
            // What is neither free nor movable in a Movable pageblock was unmovable all along.
            (_, Migratetype::Movable) => {
                (PAGEBLOCK_PAGES as u32).saturating_sub(usage.free + usage.movable)
            }
            _ => 0,
        };
        usage.free + alike >= PAGEBLOCK_PAGES as u32 / 2 || !policy.mobility_grouping
    }

    /// Does what [`fall_back`](Self::fall_back) decided, so that neither lies below the other on
    /// the stack: the block, and what else is free in a claimed pageblock, comes to the lists of
    /// the type asked for.
    #[cold]
    #[inline(never)]
    pub(super) fn end_claim(&mut self, frames: &Frames<'_>, batch: &Batch) {
        let Some(fell) = batch.fell() else { return };
        let (Fell { found: Found { order, mt: from }, how }, mt) = (fell, batch.request.mt);
        if how == How::Single {
            return;
        }
        if how == How::Claimed && order < PBO {
            if let Some(range) = frames.pageblock_range(self.head(order, from)) {
                self.move_free_pages(frames, range, from, mt, End::Tail);
            }
            return;
        }
        let Some(first) = self.pop(frames, order, from) else { return };
        let mut end = End::Head;
        if how == How::Moved {
            (self.mixed, end) = (true, End::Tail);
        } else {
            free::retag(frames, first, order, mt);
        }
        // Both types count as free pages and nothing else: no accounting moves.
        self.push(frames, first, order, mt, end);
    }
}
