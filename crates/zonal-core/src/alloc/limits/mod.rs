//! What follows from the amount of memory, the CPUs that are online and the sysctls: watermarks,
//! reserves, thresholds of the counters, sizes of the pcps (LB A.7, C, E.4, F.2).
//!
//! | file | does | LB |
//! |--|--|--|
//! | `watermarks` | `min_free_kbytes`, watermarks, reserves | A.7, C.1, C.2 |
//! | `sizes` | sizes of the pcps; CPUs come and go | E.4, E.11 |
//! | `counters` | thresholds of the counters; NUMA events on and off | F.2, F.7 |
//! | `sysctl` | values that are written while the allocator runs | I.5 |

mod counters;
mod sizes;
mod sysctl;
mod watermarks;

use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::platform::Platform;
use crate::policy::recompute::Recompute;
use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::types::NodeId;
use crate::zone::state::Zone;

/// In `Tables::limits`, what is to be computed: all that follows from the memory,
const SETUP: u32 = 1;
/// the same, of memory that came while requests were served,
const GROWN: u32 = 1 << 1;
/// watermarks, and what follows from them,
pub(super) const WATERMARKS: u32 = 1 << 2;
/// reserves,
const RESERVES: u32 = 1 << 3;
/// sizes of the pcps,
const SIZES: u32 = 1 << 4;
/// thresholds of the counters,
const THRESHOLDS: u32 = 1 << 5;
/// limits of node reclaim,
const RECLAIM: u32 = 1 << 6;
/// sizes of the pcps, of which a CPU has just come to the node `Tables::coming`.
const COMING: u32 = 1 << 7;
/// Each of these,
const ASKED: u32 = (1 << UNDER_WAY) - 1;
/// and so many bits up what is being computed.
pub(super) const UNDER_WAY: u32 = 8;
/// Somebody is at it.
pub(super) const BUSY: u32 = 1 << 31;

pub(super) use watermarks::total_reserve_of;

/// Dropped where computing ended in the middle, because the platform panicked or the thread is not
/// in this process: whoever computes next does what is missing, and nobody waits for this one.
struct Interrupted<'a>(&'a AtomicU32);

impl Drop for Interrupted<'_> {
    fn drop(&mut self) {
        let asked = |all: u32| Some((all | all >> UNDER_WAY) & ASKED);
        // Release: pairs with the Acquire of who comes next, and of `setup_grown`. Never refused.
        let _ = self.0.fetch_update(Release, Relaxed, asked);
    }
}

/// The limits of all zones and pcps.
#[derive(Debug)]
pub(super) struct Limits<'s, 'a, P> {
    pub on: &'s Tables<'a, P>,
}

impl<P> Clone for Limits<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Limits<'_, '_, P> {}

impl<'s, 'a, P: Platform> Limits<'s, 'a, P> {
    pub fn new(on: &'s Tables<'a, P>) -> Self {
        Limits { on }
    }

    fn zone_ops(self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, zone)
    }

    /// Computes what follows from the memory that is online (LB C.3). While memory is still to
    /// come, there are no watermarks yet.
    pub fn setup(self) {
        self.follow(SETUP);
    }

    /// What follows from memory that came online while requests were served. All of it is computed
    /// when this returns.
    pub fn setup_grown(self) {
        self.follow(GROWN);
        // Acquire: pairs with the Release in `follow`.
        while self.on.limits.load(Acquire) & BUSY != 0 {
            self.on.platform.relax();
        }
    }

    /// Has some of it computed: here, or by whoever computes limits at this moment, who does it
    /// once more. Nobody waits, and once all who asked have returned, limits are as the last of
    /// them found the machine.
    pub(super) fn follow(self, what: u32) {
        let asked = &self.on.limits;
        // Release: pairs with the Acquire of the exchange below, so what is computed follows from
        // all that the caller wrote before. Acquire: pairs with the Release of who computed last.
        if asked.fetch_or(what | BUSY, AcqRel) & BUSY != 0 {
            return;
        }
        let interrupted = Interrupted(asked);
        loop {
            let begin = |all: u32| Some(BUSY | (all & ASKED) << UNDER_WAY);
            // Acquire: pairs with the Release of who asked. It is never refused.
            let what = asked.fetch_update(Acquire, Relaxed, begin).unwrap_or_default() & ASKED;
            if what != 0 {
                self.compute(what);
                // Release: pairs with the Acquire of who comes next, and of `setup_grown`.
            } else if asked.compare_exchange(BUSY, 0, Release, Relaxed).is_ok() {
                core::mem::forget(interrupted);
                return;
            }
        }
    }

    /// In a forked child: nobody computes limits. What the parent's thread was at is asked for once
    /// more. Takes no lock.
    pub(super) fn gone(self) {
        drop(Interrupted(&self.on.limits));
    }

    /// Has computed what was asked for and is not.
    pub(super) fn catch_up(self) {
        // Relaxed: a look; a caller that asks by `follow` sees to it.
        if self.on.limits.load(Relaxed) & ASKED != 0 {
            self.follow(0);
        }
    }

    fn compute(self, what: u32) {
        if what & GROWN != 0 {
            self.compute_grown();
        } else if what & SETUP != 0 {
            self.compute_all();
        }
        self.compute_parts(what);
    }

    fn compute_parts(self, what: u32) {
        if what & WATERMARKS != 0 {
            self.set_watermarks();
        } else if what & RESERVES != 0 {
            self.set_reserves();
            self.refresh_zones();
        }
        if what & SIZES != 0 {
            self.set_sizes(None);
        } else if what & COMING != 0 {
            let node = NodeId(self.on.coming.load(Relaxed) as u16);
            self.set_sizes(Some(node));
        }
        if what & THRESHOLDS != 0 {
            self.set_thresholds();
        }
        if what & RECLAIM != 0 {
            self.on.reclaim.set_limits(self.on.zones, self.on.nodes);
        }
    }

    fn compute_all(self) {
        let growing = self.on.is_growing();
        if self.on.sized.swap(1, Relaxed) == 0 && (growing || !self.sizes_follow_watermarks()) {
            self.set_sizes(None);
        }
        if growing {
            self.set_thresholds();
            self.on.reclaim.set_limits(self.on.zones, self.on.nodes);
        } else {
            self.setup_complete();
        }
    }

    fn setup_complete(self) {
        let tunables = &self.on.tunables;
        tunables.set_min_free_kbytes(self.compute_min_free());
        self.set_watermarks();
        self.set_thresholds();
        self.adjust_min_free();
        self.on.reclaim.set_limits(self.on.zones, self.on.nodes);
    }

    fn compute_grown(self) {
        #[cfg(feature = "history")]
        if self.on.policy().pcp.recompute == Recompute::DeferredInit {
            self.set_sizes(None);
        }
        self.setup_complete();
    }

    fn sizes_follow_watermarks(self) -> bool {
        self.on.policy().pcp.recompute >= Recompute::Watermarks
    }

    /// Publishes the flags that fast paths read.
    fn refresh_zones(self) {
        for zone in self.on.zones {
            // Taking and giving back the lock publishes.
            drop(self.zone_ops(zone).lock());
        }
    }
}
