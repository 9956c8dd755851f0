//! The short way where CPUs own pageblocks: a block of the running CPU's own ones, where a search
//! would find nothing else to decide, and a free without a look for lists.
//!
//! What is served here is what the search would have served: its first zone is the one that the
//! CPU prefers, that zone says at once that it may spare the block, and what follows is the
//! search's own last step. A platform that charges for steps has none of it.

use super::cpu_ops::CpuOps;
use super::own::cpu_for;
use super::request::{FreeError, Request};
use super::tables::Tables;
use super::zone_ops::{Want, ZoneOps};
use crate::gfp::{AllocFlags, Gfp};
use crate::platform::Platform;
use crate::policy::walk::ReclaimingNodes;
use crate::types::{Order, Pfn};

/// A block for the request. `None`: there is something to decide.
#[inline]
pub(super) fn take<P: Platform>(on: &Tables<'_, P>, request: &Request) -> Option<Pfn> {
    let Request { order, gfp, node } = *request;
    let passes_nodes = on.policy().zonelist.reclaiming == ReclaimingNodes::Passed;
    if P::CHARGES || !on.platform.uses_gates() || passes_nodes && on.nodes.len() > 1 {
        return None;
    }
    let mt = on.plain.type_of_request(gfp)?;
    let cpu = cpu_for(on, node)?;
    let pcp = on.own(cpu)?;
    let zone = on.zones.get(usize::from(pcp.zone.0))?;
    if !zone.has(1 << order.get()) {
        return None;
    }
    let cold = gfp.contains(Gfp::COLD);
    let want = Want { order, mt, flags: AllocFlags::WMARK_LOW, preferred: zone.id, cold };
    let pfn = ZoneOps::new(on, zone).owned().take_own(pcp, want)?;
    CpuOps::new(on, cpu).count_event(zone, want, 1);
    Some(pfn)
}

/// Takes a block back, to the owner of its pageblock or to its zone.
pub(super) fn put<P: Platform>(
    on: &Tables<'_, P>,
    (pfn, order): (Pfn, Order),
) -> Result<(), FreeError> {
    let zone = on.zone_of(pfn).ok_or(FreeError::Foreign(pfn))?;
    let (ops, cpu) = (ZoneOps::new(on, zone), on.platform.cpu());
    // Two frees of one block at the same time: the exchange lets one of them through.
    ops.claim_word(pfn, zone.frame(pfn), order)?;
    // Mostly the one that is at hand: the zone is the one that the CPU prefers.
    let own = on.own(cpu).filter(|pcp| pcp.zone == zone.id);
    ops.free_direct(own.unwrap_or_else(|| on.pcp(zone.id, cpu)), pfn, order);
    Ok(())
}
