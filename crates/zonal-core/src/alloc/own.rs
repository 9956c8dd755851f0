//! The CPU that a request is served on.

use super::tables::Tables;
use crate::platform::Platform;
use crate::types::{CpuId, NodeId};

/// The CPU whose pcp a fast operation may take a block from, for a request from this node.
#[inline(always)]
pub(super) fn cpu_for<P: Platform>(on: &Tables<'_, P>, node: Option<NodeId>) -> Option<CpuId> {
    let cpu = on.platform.cpu();
    if node.is_some_and(|node| node != on.node_of(cpu)) {
        return None;
    }
    Some(cpu)
}
