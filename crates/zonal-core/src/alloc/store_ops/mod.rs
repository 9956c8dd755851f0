//! What is done with one per-CPU store that is closed for us: filled, drained, pushed to, and its
//! blocks handed out.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `refill` | an empty list filled from the depot or the buddy; blocks handed out | E.6 |
//! | `drain` | pushes, and what is too much back to the zone | E.7, E.8, E.9 |
//! | `depot` | whole batches between the store and its depot | |
//! | `blocks` | whole blocks in the bulk calls | |
//! | `bulk` | many order-0 pages to and from a list | D.9 |
//! | `run` | page words of neighbouring frames | |

mod blocks;
mod bulk;
mod depot;
mod drain;
mod refill;
mod run;

use super::zone_ops::ZoneOps;
use crate::pcp::closed::Closed;
use crate::pcp::store::Pcp;
use crate::platform::Platform;

/// A closed store and its zone. Opens the store when dropped.
#[derive(Debug)]
pub(super) struct StoreOps<'s, 'a, P> {
    pub ops: ZoneOps<'s, 'a, P>,
    pub closed: Closed<'a>,
}

impl<'s, 'a, P: Platform> StoreOps<'s, 'a, P> {
    /// Closes a store of the zone, unless somebody else has it closed or the home cannot fence.
    #[inline]
    pub fn try_close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        let closed = pcp.try_close(&ops.on.platform, ops.zone, ops.on.slots)?;
        Some(StoreOps { ops, closed })
    }

    /// The same, waiting while somebody else has it closed. `None` only if the home cannot fence.
    pub fn close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        let closed = pcp.close(&ops.on.platform, ops.zone, ops.on.slots)?;
        Some(StoreOps { ops, closed })
    }
}
