//! What one CPU does with the pcps that it has in each zone: blocks taken and given back, pcps
//! drained, counters refreshed.
//!
//! | file | does | LB |
//! |--|--|--|
//! | `free` | one block back, and many | E.7 |
//! | `drain` | the CPU's pcps back to their zones | E.8, E.9, F.4 |
//! | `counters` | deltas folded, the CPU's statistics worker | F.4 |
//! | `numa` | NUMA events of allocations | F.6, F.7 |

mod counters;
mod drain;
mod free;
mod numa;

pub(super) use drain::{drain_all, drain_lists};

use super::pcp_ops::PcpOps;
use super::tables::Tables;
use super::zone_ops::{Want, ZoneOps};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::types::{CpuId, Pfn};
use crate::zone::state::Zone;

/// One CPU of the tables.
#[derive(Debug)]
pub(super) struct CpuOps<'s, 'a, P> {
    pub on: &'s Tables<'a, P>,
    pub cpu: CpuId,
}

impl<P> Clone for CpuOps<'_, '_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for CpuOps<'_, '_, P> {}

impl<'s, 'a, P: Platform> CpuOps<'s, 'a, P> {
    #[inline]
    pub fn new(on: &'s Tables<'a, P>, cpu: CpuId) -> Self {
        CpuOps { on, cpu }
    }

    /// The running CPU.
    #[inline]
    pub fn running(on: &'s Tables<'a, P>) -> Self {
        CpuOps { on, cpu: on.platform.cpu() }
    }

    #[inline]
    pub fn zone_ops(self, zone: &'a Zone) -> ZoneOps<'s, 'a, P> {
        ZoneOps::new(self.on, zone)
    }

    /// The CPU's pcps of a zone.
    pub fn pcps(self, zone: &Zone) -> impl Iterator<Item = &'a Pcp> + use<'a, P> {
        self.on.pcps(zone.id, self.cpu)
    }

    /// A block of a list of the CPU's pcp of a zone. `None`: it has none, or no such list, or
    /// another thread has it closed.
    #[inline]
    pub fn take_listed(self, zone: &'a Zone, want: Want) -> Option<Pfn> {
        let list = self.on.map.get(want.order, want.mt)?;
        let pcp = self.on.pcp_for(zone.id, self.cpu, want.cold);
        let mut closed = PcpOps::try_close(self.zone_ops(zone), pcp);
        // Where it is: a copy would need room.
        closed.as_mut()?.take(list, want)
    }
}
