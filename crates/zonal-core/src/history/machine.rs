//! Zonelists sorted by zones: 2.6.24 to 4.13, by request (LB A.4).

use super::{Writer, kinds};
use crate::types::NodeId;

impl Writer<'_> {
    /// All zones, kind after kind.
    pub(super) fn by_zone(&mut self, order: &[NodeId]) {
        for kind in kinds() {
            for node in order {
                self.zone(*node, kind);
            }
        }
    }
}
