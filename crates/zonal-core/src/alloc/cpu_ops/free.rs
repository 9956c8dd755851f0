//! Blocks back (LB E.7): onto the CPU's pcp of their zone, or to the zone's buddy.

use super::CpuOps;
use crate::alloc::pcp_ops::PcpOps;
use crate::alloc::pcp_ops::run::PageName;
use crate::alloc::request::FreeError;
use crate::alloc::zone_ops::ZoneOps;
use crate::platform::Platform;
use crate::types::{Order, Pfn};

impl<P: Platform> CpuOps<'_, '_, P> {
    /// Takes back the block of `order` that starts at `pfn`; `cold`: it is in no cache.
    #[inline]
    pub fn free(self, pfn: Pfn, order: Order, cold: bool) -> Result<(), FreeError> {
        let on = self.on;
        let zone = on.zone_of(pfn).ok_or(FreeError::Foreign(pfn))?;
        let ops = self.zone_ops(zone);
        // Two frees of one block at the same time: the exchange lets one of them through.
        ops.claim_word(pfn, zone.frame(pfn), order)?;
        self.free_claimed(ops, (pfn, order), cold);
        Ok(())
    }

    /// Takes back a block that the caller has claimed.
    #[inline]
    pub fn free_claimed(self, ops: ZoneOps<'_, '_, P>, (pfn, order): (Pfn, Order), cold: bool) {
        let on = ops.on;
        let frame = ops.zone.frame(pfn);
        let pcp = on.pcp_for(ops.zone.id, self.cpu, cold);
        if let Some(list) = on.map.get(order, ops.pageblock_type(pfn)) {
            let mut closed = PcpOps::try_close(ops, pcp);
            // Where it is: a copy takes as much as the push.
            if let Some(closed) = closed.as_mut()
                && closed.push_claimed(list, frame, order)
            {
                closed.stay_ready();
                return;
            }
        }
        ops.free_direct(pcp, pfn, order);
    }

    /// Frees blocks of one zone and list in one hold of the pcp; at least one of `pages`, which
    /// are not none.
    #[inline]
    pub fn free_hold<T: PageName>(
        self,
        pages: &[T],
        order: Order,
        pfn: &impl Fn(&T) -> Pfn,
        page: &impl Fn(Pfn) -> T,
    ) -> Result<usize, (usize, FreeError)> {
        let first = pfn(&pages[0]);
        let zone = self.on.zone_of(first).ok_or((0, FreeError::Foreign(first)))?;
        let ops = self.zone_ops(zone);
        let list = self.on.map.get(order, ops.pageblock_type(first));
        let closed = list.and_then(|_| PcpOps::try_close(ops, ops.pcp(self.cpu)));
        let done = match (list, closed) {
            (Some(list), Some(mut closed)) => closed.free_many(list, pages, order, pfn, page)?,
            _ => 0,
        };
        if done == 0 {
            // The list of the first one is closed, or another.
            self.free(first, order, false).map_err(|error| (0, error))?;
        }
        Ok(done.max(1))
    }
}
