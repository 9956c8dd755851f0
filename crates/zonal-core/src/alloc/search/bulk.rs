//! Many order-0 pages in one hold of the pcp (LB D.9).

use super::Search;
use crate::alloc::cpu_ops::CpuOps;
use crate::alloc::pcp_ops::PcpOps;
use crate::alloc::pcp_ops::run::PageName;
use crate::alloc::zone_ops::Want;
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::types::{Order, Pfn};
use crate::zone::watermark::Watermark;

impl<P: Platform> Search<'_, '_, P> {
    /// Fills `pages` from the front with what `make` makes of each page, from one pcp of the
    /// preferred node, while its zone can spare them all. Returns how many it got.
    #[inline]
    pub fn many<T: PageName>(&self, pages: &mut [T], make: &impl Fn(Pfn) -> T) -> usize {
        let on = self.on;
        let preferred = self.preferred;
        let wanted = pages.len() as u64;
        let enough = self.zonelist.iter().map(|id| on.zone(*id)).find(|zone| {
            let snapshot = zone.snapshot(self.highest);
            let watermark = zone.watermark(Watermark::Low) + wanted;
            zone.node == preferred.node
                && self.allows(zone)
                && (snapshot.ok(Order::ZERO, watermark, AllocFlags::WMARK_LOW)
                    || self.zone_ops(zone).grew(Order::ZERO))
        });
        let Some(zone) = enough else { return 0 };
        let Some(list) = on.map.get(Order::ZERO, self.mt) else { return 0 };
        let running = CpuOps::running(on);
        let cold = self.gfp.contains(Gfp::COLD);
        let pcp = on.pcp_for(zone.id, running.cpu, cold);
        let Some(mut closed) = PcpOps::try_close(self.zone_ops(zone), pcp) else { return 0 };
        let mut flags = AllocFlags::WMARK_LOW;
        if self.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            flags |= AllocFlags::KSWAPD;
        }
        let want = Want { order: Order::ZERO, mt: self.mt, flags, preferred: preferred.id, cold };
        let got = closed.take_many(list, want, pages, make);
        drop(closed);
        running.count_event(zone, want, got as u64);
        got
    }
}
