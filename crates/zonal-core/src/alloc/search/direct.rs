//! Direct reclaim: a request frees pages itself when no zone has room (LB D.5, H.4).

use super::Search;
use super::next::Next;
use crate::alloc::node_ops::reclaim::{pages_freed, reclaimable, slab_of};
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::platform::reclaimer::{By, Pass, Reclaimer, Unit};
use crate::policy::walk::ReclaimUnit;
use crate::reclaim::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use crate::types::{Order, ZoneKind};
use crate::zone::watermark::{Watermark, ZoneSnapshot};

/// Direct reclaims in a row that freed nothing before a request gives up (LB D.5).
const NO_PROGRESS_MAX: u16 = 16;
/// The same in time: consumers may be slow, and the answer is to come all the same.
const NO_PROGRESS_NS: u64 = 1_000_000_000;
/// Longest wait of a request for the background reclaimer, before it reclaims itself (LB H.5).
const THROTTLE_NS: u64 = 1_000_000_000;
/// The same in waits, for platforms whose clock stands still.
const THROTTLE_WAITS_MAX: u32 = 64;
/// Most direct reclaims of one request: others may take all freed pages each time.
const DIRECT_MAX: u16 = 1 << 12;

/// Direct reclaims of a request: each is followed by walks, as long as that may help (LB D.5).
#[derive(Clone, Copy, Default)]
pub(super) struct Reclaims {
    at: At,
    /// Direct reclaims so far, and those in a row that freed nothing.
    tries: u16,
    fruitless: u16,
    /// Whether the last one freed pages.
    freed: bool,
    /// When one freed pages, or the first began.
    progress_ns: u64,
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Begins,
    Reclaims,
    /// Pages were freed, and the walk behind that found nothing.
    Freed,
    /// The lists are drained behind that.
    Drained,
    /// Nothing helped.
    Judges,
}

impl Reclaims {
    /// What is next; `None`: reclaim helps no more. `flags`: the rights of its walks.
    pub fn next<P: Platform>(
        &mut self,
        search: &Search<'_, '_, P>,
        flags: AllocFlags,
    ) -> Option<Next> {
        let platform = &search.on.platform;
        let reclaimer = platform.reclaimer()?;
        loop {
            match self.at {
                At::Begins => {
                    // Linux waits before each direct reclaim, and has no bound on an answer.
                    search.throttle(reclaimer);
                    // From here on: that others were slow says nothing about what reclaim can free.
                    self.progress_ns = platform.now_ns();
                    self.at = At::Reclaims;
                }
                At::Reclaims => {
                    if self.tries == DIRECT_MAX {
                        return None;
                    }
                    self.tries += 1;
                    self.freed = search.direct(flags, reclaimer) > 0;
                    self.at = At::Judges;
                    if self.freed {
                        #[cfg(feature = "history")]
                        reconsider(search);
                        self.at = At::Freed;
                        return Some(Next::Walk(flags));
                    }
                }
                At::Freed => {
                    search.unreserve_highatomic(false);
                    self.at = At::Drained;
                    return Some(Next::DrainAll);
                }
                At::Drained => {
                    self.at = At::Judges;
                    return Some(Next::Walk(flags));
                }
                At::Judges => {
                    if !self.goes_on(search, flags, reclaimer) {
                        return None;
                    }
                    platform.relax();
                    self.at = At::Reclaims;
                }
            }
        }
    }

    /// Whether another direct reclaim may help.
    fn goes_on<P: Platform>(
        &mut self,
        search: &Search<'_, '_, P>,
        flags: AllocFlags,
        reclaimer: &dyn Reclaimer,
    ) -> bool {
        let Search { gfp, order, .. } = *search;
        let costly = order > Order::COSTLY;
        let may_repeat = !gfp.contains(Gfp::NORETRY)
            && (!costly || gfp.contains(Gfp::RETRY_MAYFAIL))
            && search.may_help(flags, reclaimer);
        self.fruitless = if self.freed && !costly { 0 } else { self.fruitless + 1 };
        let now_ns = search.on.platform.now_ns();
        if self.freed {
            self.progress_ns = now_ns;
        }
        let slow = now_ns.saturating_sub(self.progress_ns) > NO_PROGRESS_NS;
        self.fruitless <= NO_PROGRESS_MAX && !slow && may_repeat
    }
}

impl<P: Platform> Search<'_, '_, P> {
    /// Whether the request may reclaim and the platform can.
    pub fn may_reclaim_directly(&self) -> bool {
        let idle = |reclaimer: &dyn Reclaimer| !reclaimer.is_reclaiming();
        self.gfp.contains(Gfp::DIRECT_RECLAIM) && self.on.platform.reclaimer().is_some_and(idle)
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
            snapshot.ok(self.order, zone.watermark(Watermark::Min), flags)
        })
    }
}

/// Before the first walk behind a direct reclaim that freed pages.
#[cfg(feature = "history")]
fn reconsider<P: Platform>(search: &Search<'_, '_, P>) {
    if search.on.policy().zonelist.cache.reconsiders()
        && let Some(cache) = search.cache
    {
        // The zones were marked before there was this progress (LB G.6, patch B).
        cache.reconsider(search.on.platform.now_ns());
    }
}
