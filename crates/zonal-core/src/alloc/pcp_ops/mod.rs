//! What is done with one pcp that is closed for us: filled, drained, pushed to, and its
//! blocks handed out.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `refill` | an empty list filled from the depot or the buddy; blocks handed out | E.6 |
//! | `drain` | pushes, and what is too much back to the zone | E.7, E.8, E.9 |
//! | `depot` | whole magazines between the pcp and its depot | |
//! | `blocks` | whole blocks in the bulk calls | |
//! | `bulk` | many order-0 pages to and from a list | D.9 |
//! | `run` | page words of neighbouring frames | |

mod blocks;
mod bulk;
mod depot;
mod drain;
mod refill;
pub(super) mod run;

use super::zone_ops::ZoneOps;
use crate::pcp::closed::Closed;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::Masked;

/// A closed pcp and its zone. Opens the pcp when dropped.
#[derive(Debug)]
pub(super) struct PcpOps<'s, 'a, P: Platform> {
    pub ops: ZoneOps<'s, 'a, P>,
    pub closed: Closed<'a>,
    /// Dropped behind the closed pcp: nothing interrupts while it is closed.
    _masked: Masked<'s, P>,
}

impl<'s, 'a, P: Platform> PcpOps<'s, 'a, P> {
    /// Closes a pcp of the zone, unless another thread has it closed or the platform cannot fence.
    #[inline]
    pub fn try_close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        let _masked = Masked::new(&ops.on.platform);
        let closed = pcp.try_close(&ops.on.platform, ops.zone, ops.on.slots)?;
        Some(PcpOps { ops, closed, _masked })
    }

    /// The same, waiting while another thread has it closed. `None` only if the platform cannot
    /// fence.
    pub fn close(ops: ZoneOps<'s, 'a, P>, pcp: &'a Pcp) -> Option<Self> {
        let _masked = Masked::new(&ops.on.platform);
        let closed = pcp.close(&ops.on.platform, ops.zone, ops.on.slots)?;
        Some(PcpOps { ops, closed, _masked })
    }
}
