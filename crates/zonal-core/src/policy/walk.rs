//! How zones are found: the order of zonelists (LB A.4, A.5), and what a walk over one does with a
//! zone that is below its mark (LB D.3, G).

use crate::types::Choice;

/// Zonelists (LB A.4, A.5).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ZonelistPolicy {
    /// How the first place among equally near nodes goes round.
    pub load: NodeLoad,
    /// Whether all zones of a node come before the next node.
    pub order: ZonelistOrder,
}

/// How the first place among equally near nodes goes round (LB A.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeLoad {
    /// Up to 5.15: a node put first gets as load how many places the list has left, whatever it had
    /// before. Lists of machines that are not symmetric pile up on some nodes.
    Countdown,
    /// Since 5.16: a node put first gets one more.
    Accumulated,
}

/// The order of the zones of one list (LB A.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZonelistOrder {
    /// All zones of a node, then the next node's.
    Node,
    /// 2.6.24 to 4.13, by request: all nodes' zones of the highest kind, then of the next one. Low
    /// zones last longer, and more pages come from far away.
    Zone,
}

impl Choice for NodeLoad {
    const ALL: &'static [(&'static str, NodeLoad)] =
        &[("countdown", NodeLoad::Countdown), ("accumulated", NodeLoad::Accumulated)];
}

impl Choice for ZonelistOrder {
    const ALL: &'static [(&'static str, ZonelistOrder)] =
        &[("node", ZonelistOrder::Node), ("zone", ZonelistOrder::Zone)];
}

impl ZonelistPolicy {
    /// As Linux has it since 5.16.
    pub const LINUX: ZonelistPolicy =
        ZonelistPolicy { load: NodeLoad::Accumulated, order: ZonelistOrder::Node };
}
