//! The lists of pages that are in no CPU's cache, about 2.6.24 (LB E.11).

use super::tables::Tables;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::types::{CpuId, ZoneId};

impl<'a, P: Platform> Tables<'a, P> {
    /// The pcp for pages of a (zone, CPU) that are in no cache, where the policy has one.
    pub fn cold_pcp(&self, zone: ZoneId, cpu: CpuId) -> Option<&'a Pcp> {
        let exists = self.policy().pcp.free_lists.sets() > 1;
        exists.then(|| &self.pcps[self.pcp_index(1, zone, cpu)])
    }
}
