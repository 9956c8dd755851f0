//! The background reclaimer of a recorded kernel, for replays: feature `history`.
//!
//! A recording says when it ran, and its frees are among the others. So nothing is played but what
//! a run does to lists and watermarks.

use super::node_ops::NodeOps;
use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::platform::Platform;
use crate::types::{NR_ZONE_KINDS, NodeId, ZoneKind};

/// One run of a node's recorded reclaimer (LB H.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedRun {
    node: NodeId,
    /// Boosts when it began, by zone kind.
    boosts: [u64; NR_ZONE_KINDS],
}

impl RecordedRun {
    /// It begins: until it ends, lists of the node's zones are kept short (LB E.7).
    pub fn begin<P: Platform>(on: &Tables<'_, P>, node: NodeId) -> RecordedRun {
        let node_ops = NodeOps::new(on, node);
        let mut boosts = [0; NR_ZONE_KINDS];
        for zone in node_ops.zones(ZoneKind::Device) {
            boosts[zone.kind().index()] = zone.boost();
        }
        node_ops.set_reclaim_active(ZoneKind::Device, true);
        RecordedRun { node, boosts }
    }

    /// It is over: the boosts that it began with are worked off.
    pub fn end<P: Platform>(self, on: &Tables<'_, P>) {
        let node_ops = NodeOps::new(on, self.node);
        node_ops.set_reclaim_active(ZoneKind::Device, false);
        for zone in node_ops.zones(ZoneKind::Device) {
            let _locked = ZoneOps::new(on, zone).lock();
            let mut watermarks = zone.watermarks();
            watermarks.lower_boost(self.boosts[zone.kind().index()]);
            zone.set_watermarks(&watermarks);
        }
    }
}
