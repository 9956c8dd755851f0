//! Zonelists sorted by zones: 2.6.24 to 4.13, by request (LB A.4).

use super::{Writer, kinds};

impl Writer<'_> {
    /// All zones of the nodes at the first places, kind after kind.
    pub(super) fn by_zone(&mut self, places: usize) {
        for kind in kinds() {
            for place in 0..places {
                if let Some(node) = self.public(place) {
                    self.zone(node, kind);
                }
            }
        }
    }
}
