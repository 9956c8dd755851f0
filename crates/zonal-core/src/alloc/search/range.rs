//! Pages in a row: anywhere, at a place, or behind a range (see [`crate::alloc::range`]).
//!
//! The order of escalation is that of a block (LB D.5): low watermark, background reclaim woken,
//! min watermark, reserves, direct reclaim, pcps and depots drained. A zone may spare `n` pages if
//! it may spare one after `n - 1` are gone. At a place, what is in the way is drained first, and
//! nothing is reclaimed for it.
//!
//! The search for a place is first fit by address. A window of `n` pages is looked through from its
//! end; at a page that is not free the window moves behind that page's block, and what was found
//! free behind it is not looked at again. So a zone costs one look for each free block and one for
//! each `n` pages that are not free.

use core::cell::Cell;
use core::ops::Range;

use super::slow::Slow;
use super::{Search, reserve_flags, slow_flags, watermark_of};
use crate::alloc::cpu_ops::CpuOps;
use crate::alloc::range::{Obstacle, RangeRefusal, Then};
use crate::alloc::request::Refusal;
use crate::alloc::zone_ops::{Want, ZoneOps};
use crate::buddy::largest_blocks;
use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::sync::Ordering::Relaxed;
use crate::types::{Order, Pfn};
use crate::zone::state::{LockedZone, Zone};
use crate::zone::watermark::ZoneSnapshot;

/// Looks at blocks in one hold of the zone lock, before others get a turn: tens of microseconds.
/// The window that is looked through at that moment is finished.
const HOLD_LOOKS: u32 = 1 << 10;

impl<'s, 'a, P: Platform> Search<'s, 'a, P> {
    /// `pages` pages that begin at a multiple of `align`, of the first zone that has them. This
    /// search's order is that of a block which would hold them, as far as there is one.
    pub fn range(&self, pages: u64, align: u64) -> Result<Pfn, RangeRefusal> {
        let single = Search { order: Order::ZERO, ..*self };
        let mut last = AllocFlags::WMARK_LOW;
        let got = self.escalate(|flags| {
            last = flags;
            single.allowed().find_map(|zone| single.range_in(zone, flags, pages, align))
        });
        got.ok_or_else(|| RangeRefusal::Refused(single.range_refusal(last, pages)))
    }

    /// Pages of the longest run that begins at a multiple of `align` in a zone that the request may
    /// use, if all of its memory were free.
    pub fn longest_possible(&self, align: u64) -> u64 {
        let room = |zone: &Zone| {
            let (start, end) = (zone.start_pfn, zone.start_pfn + zone.spanned);
            start.checked_next_multiple_of(align).map_or(0, |start| end.saturating_sub(start))
        };
        self.allowed().map(room).max().unwrap_or(0)
    }

    /// Exactly these frames of a zone.
    pub fn range_at(
        &self,
        ops: ZoneOps<'s, 'a, P>,
        frames: Range<u32>,
        then: Then<'s, 'a, P>,
    ) -> Result<(), RangeRefusal> {
        let node = ops.zone.node;
        if !self.allowed().any(|zone| zone.id == ops.zone.id) {
            return Err(RangeRefusal::Refused(Refusal::NoZone(node)));
        }
        let pages = u64::from(frames.end - frames.start);
        let refusal = Cell::new(None);
        let mut attempt = |flags| {
            let tried = self.try_at(ops, frames.clone(), &then, flags);
            refusal.set(tried.err());
            match refusal.get() {
                None => Some(Ok(())),
                Some(Refused::Watermark) => None,
                Some(Refused::Taken { pfn, what, may_end: false }) => {
                    Some(Err(RangeRefusal::InTheWay(pfn, what)))
                }
                Some(Refused::Taken { .. }) => None,
                Some(Refused::NotARange(error)) => Some(Err(RangeRefusal::NotARange(error))),
            }
        };
        let is_taken = || matches!(refusal.get(), Some(Refused::Taken { .. }));
        let got = attempt(self.first_flags()).or_else(|| {
            let cleared = is_taken().then(|| self.clear_place(&mut attempt)).flatten();
            // Pages are missing elsewhere in the zone: those may be reclaimed.
            cleared.or_else(|| if is_taken() { None } else { self.escalate_slow(attempt) })
        });
        got.unwrap_or_else(|| {
            self.on.events.failures.fetch_add(1, Relaxed);
            Err(match refusal.get() {
                Some(Refused::Taken { pfn, what, .. }) => RangeRefusal::InTheWay(pfn, what),
                Some(Refused::NotARange(error)) => RangeRefusal::NotARange(error),
                _ => {
                    let flags = slow_flags(self.gfp, self.order);
                    RangeRefusal::Refused(self.range_refusal_of(ops.zone, flags, pages))
                }
            })
        })
    }

    /// Asks `take` for a place with something in it that is nobody's: lists and depots are drained,
    /// and isolated blocks and memory to come waited for. Nothing is reclaimed, since that would
    /// free other pages.
    fn clear_place<T>(&self, take: &mut impl FnMut(AllocFlags) -> Option<T>) -> Option<T> {
        self.allowed().for_each(|zone| _ = self.zone_ops(zone).drain_depots());
        let flags = reserve_flags(self.gfp, self.is_reclaiming());
        let flags = flags.unwrap_or(slow_flags(self.gfp, Order::ZERO));
        take(flags).or_else(|| self.go_slowly(Slow::of_drains(flags), take))
    }

    /// Asks `take` with the rights of each step of LB D.5, until it has what it wants.
    fn escalate<T>(&self, mut take: impl FnMut(AllocFlags) -> Option<T>) -> Option<T> {
        let single = Search { order: Order::ZERO, nofragment: false, ..*self };
        take(single.first_flags()).or_else(|| self.escalate_slow(take))
    }

    fn escalate_slow<T>(&self, mut take: impl FnMut(AllocFlags) -> Option<T>) -> Option<T> {
        self.go_slowly(Slow::of_range(self), &mut take)
    }

    fn go_slowly<T>(
        &self,
        mut slow: Slow,
        take: &mut impl FnMut(AllocFlags) -> Option<T>,
    ) -> Option<T> {
        while let Some(flags) = slow.walk(self) {
            if let Some(got) = take(flags) {
                return Some(got);
            }
        }
        None
    }

    /// The zone as it is once all but one of `pages` are gone.
    fn without(&self, zone: &Zone, free: u64, pages: u64) -> ZoneSnapshot {
        ZoneSnapshot { free: free.saturating_sub(pages - 1), ..zone.snapshot(self.highest) }
    }

    /// Whether the zone may spare `pages` pages.
    fn may_spare(&self, zone: &Zone, flags: AllocFlags, pages: u64) -> bool {
        let watermark = watermark_of(flags);
        let left = self.without(zone, zone.free_counter(), pages);
        flags.contains(AllocFlags::NO_WATERMARKS)
            || left.ok_fast(Order::ZERO, &zone.watermarks(), watermark, flags)
    }

    fn want(&self, flags: AllocFlags) -> Want {
        let preferred = self.preferred.id;
        Want { order: Order::ZERO, mt: self.mt, flags, preferred, cold: false }
    }

    /// Pages were taken from a zone.
    fn took(&self, ops: ZoneOps<'s, 'a, P>, flags: AllocFlags) {
        let running = CpuOps::running(self.on);
        running.count_event(ops.zone, self.want(flags), 1);
        ops.note_below_high();
    }

    /// Pages in a row of one zone, which is brought online as far as it must be.
    fn range_in(&self, zone: &'a Zone, flags: AllocFlags, pages: u64, align: u64) -> Option<Pfn> {
        let ops = self.zone_ops(zone);
        loop {
            if let Some(pfn) = self.find(ops, flags, pages, align) {
                self.took(ops, flags);
                return Some(pfn);
            }
            if !ops.grew(Order::MAX) {
                return None;
            }
        }
    }

    /// First fit by address. `None` also if the zone cannot spare the pages.
    fn find(
        &self,
        ops: ZoneOps<'s, 'a, P>,
        flags: AllocFlags,
        pages: u64,
        align: u64,
    ) -> Option<Pfn> {
        let zone = ops.zone;
        let words = ops.frames();
        let aligned = |frame: u64| {
            let pfn = (zone.start_pfn + frame).checked_next_multiple_of(align)?;
            Some(pfn - zone.start_pfn)
        };
        let mut from = aligned(0)?;
        // All frames from `from` to here are free.
        let mut known = from;
        loop {
            let mut locked = ops.lock();
            if !self.may_spare(zone, flags, pages) {
                return None;
            }
            let mut looks = 0;
            while looks < HOLD_LOOKS {
                let end = from.checked_add(pages)?;
                if end > zone.spanned {
                    return None;
                }
                let window = known.max(from) as u32..end as u32;
                let (taken, some) = locked.buddy.last_taken(&words, window);
                looks += some;
                let Some(behind) = taken else {
                    return self.take_window(ops, &mut locked, from as u32..end as u32, flags);
                };
                from = aligned(u64::from(behind))?;
                known = end.max(from);
            }
            known = from;
        }
    }

    fn take_window(
        &self,
        ops: ZoneOps<'s, 'a, P>,
        locked: &mut LockedZone<'_, P>,
        window: Range<u32>,
        flags: AllocFlags,
    ) -> Option<Pfn> {
        let start = locked.frames.pfn(window.start);
        ops.take_range(locked, window, self.want(flags), true).ok().map(|()| start)
    }

    /// One try to take frames at a place. What is in the way is looked at with the zone lock held.
    fn try_at(
        &self,
        ops: ZoneOps<'s, 'a, P>,
        frames: Range<u32>,
        then: &Then<'s, 'a, P>,
        flags: AllocFlags,
    ) -> Result<(), Refused> {
        let pages = u64::from(frames.end - frames.start);
        loop {
            let mut locked = ops.lock();
            if let Then::Behind(owned) = then {
                owned.check_whole().map_err(Refused::NotARange)?;
            }
            let words = locked.frames;
            let taken = locked.buddy.first_taken(&words, frames.clone());
            let Some(taken) = taken else {
                if !self.may_spare(ops.zone, flags, pages) {
                    return Err(Refused::Watermark);
                }
                let want = self.want(flags);
                let done = match then {
                    Then::Range => ops.take_range(&mut locked, frames.clone(), want, true),
                    Then::Behind(owned) => {
                        let add = || ops.take_range(&mut locked, frames.clone(), want, false);
                        owned.lengthen(add).map_err(Refused::NotARange)?
                    }
                    Then::Absent => take_out(ops, &mut locked, frames.clone()),
                };
                drop(locked);
                if !matches!(then, Then::Absent) {
                    self.took(ops, flags);
                }
                let (what, may_end) = (Obstacle::Corrupt, false);
                return done.map_err(|at| Refused::Taken { pfn: words.pfn(at), what, may_end });
            };
            let what = ops.obstacle(taken);
            let stays = matches!(what, Obstacle::Held(..) | Obstacle::Corrupt);
            let may_end = !stays && what != Obstacle::WrittenWhileFree;
            drop(locked);
            if what != Obstacle::Absent || !ops.grew(Order::MAX) {
                return Err(Refused::Taken { pfn: words.pfn(taken), what, may_end });
            }
        }
    }

    /// Why no zone gave the pages, from the last zone that the request may use.
    fn range_refusal(&self, flags: AllocFlags, pages: u64) -> Refusal {
        let zone = self.allowed().last().unwrap_or(self.preferred);
        self.range_refusal_of(zone, flags, pages)
    }

    fn range_refusal_of(&self, zone: &'a Zone, flags: AllocFlags, pages: u64) -> Refusal {
        let all = self.zone_ops(zone).free_or_cached();
        let now = self.without(zone, all, 1);
        let watermark = watermark_of(flags);
        let (id, node, kind) = (zone.id, zone.node, zone.kind());
        let free = now.free.saturating_sub(now.unusable(Order::ZERO, flags));
        let kept = now.kept(Order::ZERO, &zone.watermarks(), watermark, flags);
        let needed = kept.saturating_add(pages - 1);
        if free <= needed && !flags.contains(AllocFlags::NO_WATERMARKS) {
            Refusal::Watermark { zone: id, node, kind, watermark, free, needed }
        } else {
            Refusal::Fragmented { zone: id, node, kind, free: all }
        }
    }
}

/// Why a try at a place failed.
#[derive(Clone, Copy)]
enum Refused {
    Watermark,
    /// A page is not free; `may_end`: draining, waiting or background work may free it.
    Taken {
        pfn: Pfn,
        what: Obstacle,
        may_end: bool,
    },
    NotARange(crate::alloc::request::FreeError),
}

/// Takes free frames out of the locked buddy and out of the zone: nobody has them.
///
/// # Errors
/// As [`ZoneOps::take_range`].
fn take_out<P: Platform>(
    ops: ZoneOps<'_, '_, P>,
    locked: &mut LockedZone<'_, P>,
    range: Range<u32>,
) -> Result<(), u32> {
    let (pcp, words) = (ops.pcp(ops.on.platform.cpu()), locked.frames);
    locked.buddy.take_range(&words, range.clone())?;
    for (_, order) in largest_blocks(&words, range.clone()) {
        locked.account(ops.on.free_diff(pcp), -(order.pages() as i64), 1);
    }
    ops.zone.leave(range.end - range.start);
    Ok(())
}
