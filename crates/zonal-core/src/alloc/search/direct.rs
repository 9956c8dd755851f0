//! Direct reclaim: a request frees pages itself when no zone has room (LB D.5, H.4).

use super::Search;
use crate::alloc::cpu_ops::drain_all;
use crate::alloc::node_ops::reclaim::{pages_freed, reclaimable, slab_of};
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Pass, Reclaimer, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use crate::types::{Order, ZoneKind};
use crate::zone::watermark::{Watermark, ZoneSnapshot};

/// Direct reclaims in a row that freed nothing before a request gives up (LB D.5).
const NO_PROGRESS_MAX: u32 = 16;
/// The same in time: consumers may be slow, and the answer is to come all the same.
const NO_PROGRESS_NS: u64 = 1_000_000_000;
/// Longest wait of a request for the background reclaimer, before it reclaims itself (LB H.5).
const THROTTLE_NS: u64 = 1_000_000_000;
/// The same in waits, for platforms whose clock stands still.
const THROTTLE_WAITS_MAX: u32 = 64;
/// Most direct reclaims of one request: others may take all freed pages each time.
const DIRECT_MAX: u32 = 1 << 12;
impl<P: Platform> Search<'_, '_, P> {
    /// Whether the request may reclaim and the platform can.
    pub fn may_reclaim_directly(&self) -> bool {
        let idle = |reclaimer: &dyn Reclaimer| !reclaimer.is_reclaiming();
        self.gfp.contains(Gfp::DIRECT_RECLAIM) && self.on.platform.reclaimer().is_some_and(idle)
    }

    /// Reclaims directly and asks `again`, as long as that may help (LB D.5).
    pub fn reclaim_and_retry<T>(
        &self,
        flags: AllocFlags,
        again: &mut impl FnMut(AllocFlags) -> Option<T>,
    ) -> Option<T> {
        let reclaimer = self.on.platform.reclaimer().filter(|_| self.may_reclaim_directly())?;
        let gfp = self.gfp;
        let costly = self.order > Order::COSTLY;
        let mut fruitless = 0;
        // Linux waits before each direct reclaim, and has no bound on an answer.
        self.throttle(reclaimer);
        // From here on: that others were slow says nothing about what reclaim can free.
        let mut progress_ns = self.on.platform.now_ns();
        for _ in 0..DIRECT_MAX {
            let freed = self.direct(flags, reclaimer);
            if freed > 0
                && let Some(got) = self.retry(flags, again)
            {
                return Some(got);
            }
            let may_repeat = !gfp.contains(Gfp::NORETRY)
                && (!costly || gfp.contains(Gfp::RETRY_MAYFAIL))
                && self.may_help(flags, reclaimer);
            fruitless = if freed > 0 && !costly { 0 } else { fruitless + 1 };
            let now_ns = self.on.platform.now_ns();
            if freed > 0 {
                progress_ns = now_ns;
            }
            let slow = now_ns.saturating_sub(progress_ns) > NO_PROGRESS_NS;
            if fruitless > NO_PROGRESS_MAX || slow || !may_repeat {
                return None;
            }
            self.on.platform.relax();
        }
        None
    }

    /// Before a request reclaims: where the reserve is half gone, it waits for the background
    /// reclaimer, which knows better what to free (LB H.5).
    fn throttle(&self, reclaimer: &dyn Reclaimer) {
        let mut zones = self.allowed();
        let Some(zone) = zones.find(|zone| zone.kind() <= ZoneKind::Normal && zone.managed() > 0)
        else {
            return;
        };
        let node = self.node_ops(zone.node);
        // No reclaimer to wait for, or waiting is pointless.
        if !node.background().is_present() || node.allows(reclaimer) {
            return;
        }
        self.on.reclaim.events.count_throttled();
        let start_ns = self.on.platform.now_ns();
        for _ in 0..THROTTLE_WAITS_MAX {
            node.wake(zone, Order::ZERO, ZoneKind::Normal);
            let waited = self.on.platform.now_ns().saturating_sub(start_ns);
            let Some(left) = THROTTLE_NS.checked_sub(waited).filter(|left| *left > 0) else {
                return;
            };
            self.on.platform.wait_for_progress(zone.node, left);
            if node.allows(reclaimer) {
                return;
            }
        }
    }

    /// One direct reclaim (LB H.4): passes over all nodes of the request, harder and harder, until
    /// 32 pages are free. Returns the pages freed.
    fn direct(&self, flags: AllocFlags, reclaimer: &dyn Reclaimer) -> u64 {
        let (mut freed, mut ready) = (0_u64, false);
        for priority in (0..=PRIORITY_GENTLE).rev() {
            let mut last = None;
            for zone in self.allowed() {
                let unit = match self.on.reclaim.unit {
                    #[cfg(feature = "history")]
                    ReclaimUnit::Zone => Unit::Zone(zone.id),
                    ReclaimUnit::Node => Unit::Node(zone.node),
                };
                // Once for each run of zones of one node.
                if last == Some(unit) {
                    continue;
                }
                // Others freed such a block meanwhile: no need for more.
                if self.order > Order::COSTLY && self.above_watermark(zone, flags) {
                    ready = true;
                    continue;
                }
                last = Some(unit);
                let pass = Pass {
                    by: By::Direct,
                    unit,
                    priority,
                    wanted: self.order.pages().max(PASS_PAGES_MIN),
                    gfp: self.gfp,
                    order: self.order,
                    highest: self.highest,
                    may_write: true,
                    may_unmap: true,
                    may_swap: true,
                };
                let before = pages_freed(self.on);
                let came = reclaimer.shrink(&pass);
                let came = self.node_ops(zone.node).count_reclaimed(By::Direct, came, before);
                freed = freed.saturating_add(came.freed());
            }
            if freed >= PASS_PAGES_MIN || ready {
                break;
            }
        }
        self.on.reclaim.events.count_direct(freed, self.highest);
        freed.max(u64::from(ready))
    }

    /// Walks again after reclaim freed pages; the second time with the pcps emptied.
    fn retry<T>(
        &self,
        flags: AllocFlags,
        again: &mut impl FnMut(AllocFlags) -> Option<T>,
    ) -> Option<T> {
        #[cfg(feature = "history")]
        if self.on.policy().zonelist.cache.reconsiders()
            && let Some(cache) = self.cache
        {
            // The zones were marked before there was this progress (LB G.6, patch B).
            cache.reconsider(self.on.platform.now_ns());
        }
        again(flags).or_else(|| {
            self.unreserve_highatomic(false);
            drain_all(self.on);
            again(flags)
        })
    }

    /// Whether some zone would have room if all reclaimable pages were free (LB D.5,
    /// `should_reclaim_retry`).
    fn may_help(&self, flags: AllocFlags, reclaimer: &dyn Reclaimer) -> bool {
        self.allowed().any(|zone| {
            // Linux leaves objects out, and refuses while caches of them could still give way.
            let slab = slab_of(reclaimer, Unit::Zone(zone.id), zone.node);
            let available = self
                .zone_ops(zone)
                .free_snapshot()
                .saturating_add(reclaimable(zone, reclaimer))
                .saturating_add(slab)
                .min(zone.managed());
            let snapshot = ZoneSnapshot { free: available, ..zone.snapshot(self.highest) };
            snapshot.ok(self.order, zone.watermarks().of(Watermark::Min), flags)
        })
    }
}
