//! Whether a node has enough free, and its background reclaimer woken if it has not (LB H.2).

use super::NodeOps;
use super::reclaim::slab_of;
use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::platform::reclaimer::{Reclaimer, Unit};
use crate::types::{Order, ZoneKind};
use crate::zone::background::{FAILURES_MAX, Found, Wanted};
use crate::zone::state::Zone;
use crate::zone::watermark::Watermark;

impl<P: Platform> NodeOps<'_, '_, P> {
    /// Whether some zone up to `highest` is above its high watermark (LB H.2 `balanced`).
    pub fn is_balanced(self, order: Order, highest: ZoneKind) -> bool {
        let mut has_zones = false;
        for zone in self.zones(highest) {
            has_zones = true;
            let snapshot = self.zone_ops(zone).safe_snapshot(highest);
            if snapshot.ok(order, zone.watermark(Watermark::High), AllocFlags::WMARK_MIN) {
                return true;
            }
        }
        !has_zones
    }

    /// Asks for background reclaim because a zone of the node is short (LB H.2 `wakeup`).
    pub fn wake(self, zone: &Zone, order: Order, highest: ZoneKind) {
        if zone.managed() == 0 {
            return;
        }
        let record = self.background();
        let found = record.request(Wanted { order, highest: Some(highest) });
        let wakes = match found {
            Found::Nobody => true,
            Found::Awake => false,
            // Without compaction there is nothing to wake for a node that has given up or is
            // balanced.
            Found::Asleep => {
                let well = || {
                    self.is_balanced(order, highest)
                        && !self.zones(highest).any(|zone| zone.boost() != 0)
                };
                !record.is_hopeless() && !well() && record.wake()
            }
        };
        if wakes {
            self.on.platform.wake_reclaim(zone.node, zone.id, order.get());
        }
    }

    /// The platform's clock says that the reclaimer slept long: wakes it if the node is below the
    /// high watermark and consumers hold pages. Returns whether it was woken.
    pub fn check(self) -> bool {
        let record = self.background();
        let highest = ZoneKind::Movable;
        if !record.is_asleep() || self.is_balanced(Order::ZERO, highest) {
            return false;
        }
        if self.could_free() == 0 {
            return false;
        }
        // A node that has given up gets one more try.
        record.set_failures(record.failures().min(FAILURES_MAX - 1));
        record.request(Wanted { order: Order::ZERO, highest: Some(highest) });
        record.wake()
    }

    /// Pages of the node that consumers hold and could free.
    pub fn could_free(self) -> u64 {
        let held = |reclaimer: &dyn Reclaimer| {
            let held = reclaimer.holdings(Unit::Node(self.node));
            let pages = held.inactive_file.saturating_add(held.active_file);
            pages.saturating_add(slab_of(reclaimer, Unit::Node(self.node), self.node))
        };
        self.on.platform.reclaimer().map_or(0, held)
    }
}
