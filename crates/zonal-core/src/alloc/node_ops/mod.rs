//! What is done about one node when it is short of pages: it is reclaimed before another node is
//! asked, its background reclaimer is woken and runs, its watermarks move apart.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `wake` | whether the node is balanced, and its background reclaimer woken | H.2 |
//! | `reclaim` | node reclaim, and what counts as progress | D.4, G.3, H.5 |
//! | `background` | the background reclaimer, step by step | H.2, H.3 |
//! | `widen` | watermarks further apart while the node is short again and again | C.2 |

pub mod background;
pub mod reclaim;
mod wake;
pub mod widen;

use super::tables::Tables;
use super::zone_ops::ZoneOps;
use crate::platform::Platform;
use crate::types::{NodeId, ZoneKind};
use crate::zone::background::Background;
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// One node of the tables.
#[derive(Debug)]
pub(super) struct NodeOps<'s, 'a, P> {
    pub on: &'s Tables<'a, P>,
    pub node: NodeId,
}

impl<P> Clone for NodeOps<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for NodeOps<'_, '_, P> {}

impl<'s, 'a, P: Platform> NodeOps<'s, 'a, P> {
    pub fn new(on: &'s Tables<'a, P>, node: NodeId) -> Self {
        NodeOps { on, node }
    }

    /// The node's record.
    pub fn record(self) -> &'a Node {
        self.on.node(self.node)
    }
    /// What its background reclaimer knows and was asked for.
    pub fn background(self) -> &'a Background {
        &self.record().background
    }
    /// Its zones with memory, up to this kind.
    pub fn zones(self, highest: ZoneKind) -> impl Iterator<Item = &'a Zone> + use<'a, P> {
        self.on.zones_up_to(self.node, highest)
    }

    fn zone_ops(self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, zone)
    }
}
