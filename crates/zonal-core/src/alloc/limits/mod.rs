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
use crate::sync::Ordering::Relaxed;
use crate::zone::state::Zone;

pub(super) use watermarks::total_reserve_of;

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
        let growing = self.on.is_growing();
        if self.on.sized.swap(1, Relaxed) == 0 && (growing || !self.sizes_follow_watermarks()) {
            self.set_sizes(0);
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

    /// What follows from memory that came online while requests were served.
    pub fn setup_grown(self) {
        #[cfg(feature = "history")]
        if self.on.policy().pcp.recompute == Recompute::DeferredInit {
            self.set_sizes(0);
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
