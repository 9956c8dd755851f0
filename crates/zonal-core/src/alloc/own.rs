//! The CPU that a request is served on, and its pcp of the zone that it prefers.

use super::tables::Tables;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::types::{CpuId, NodeId};

/// A CPU's pcp of the zone that it prefers: that of rank 0 (`PcpOrder::position`).
#[inline(always)]
pub(super) fn own<'a, P: Platform>(on: &Tables<'a, P>, cpu: CpuId) -> Option<&'a Pcp> {
    on.own(cpu)
}

/// The CPU whose pcp a fast operation may take a block from, for a request from this node.
#[inline(always)]
pub(super) fn cpu_for<P: Platform>(on: &Tables<'_, P>, node: Option<NodeId>) -> Option<CpuId> {
    let cpu = on.platform.cpu();
    if node.is_some_and(|node| node != on.node_of(cpu)) {
        return None;
    }
    Some(cpu)
}
