//! A CPU's pcps back to their zones (LB E.8, E.9, F.4).

use super::CpuOps;
use crate::alloc::pcp_ops::PcpOps;
use crate::alloc::tables::Tables;
use crate::alloc::zone_ops::ZoneOps;
use crate::pcp::drain::IdleDrain;
use crate::pcp::state::Pcp;
use crate::platform::{Platform, Step};
use crate::sync::Ordering::Relaxed;
use crate::types::{ZoneId, ZoneKind};
use crate::zone::state::Zone;

/// Refreshes that a remote zone's store survives without use (LB F.4).
const EXPIRE_TICKS: u8 = 3;
/// Waits of a NOWAIT request for a pcp that another thread has closed: each yields the processor,
/// so they last microseconds on an idle one.
const CLOSED_WAITS_MAX: u32 = 16;

impl<'a, P: Platform> CpuOps<'_, 'a, P> {
    /// Whether a pcp of the zone holds pages, or is about to.
    pub fn holds_pages(self, zone: &'a Zone) -> bool {
        self.pcps(zone).any(|pcp| !pcp.seems_empty()) || self.zone_ops(zone).owned().owns(self.cpu)
    }

    /// Empties the CPU's pcps of a zone. Returns the pages moved; 0 also if the platform cannot
    /// fence that CPU.
    pub fn drain(self, zone: &'a Zone) -> u64 {
        self.drain_pcps(zone, false)
    }

    #[inline]
    fn drain_pcps(self, zone: &'a Zone, briefly: bool) -> u64 {
        let hot = self.drain_pcp(zone, self.on.pcp(zone.id, self.cpu), briefly);
        let cold = self.on.cold_pcp(zone.id, self.cpu);
        let cold = cold.map_or(0, |pcp| self.drain_pcp(zone, pcp, briefly));
        hot + cold + self.zone_ops(zone).owned().give_all_back(self.cpu)
    }

    /// The same by a work item of that CPU, where the policy has those.
    pub fn drain_work(self, zone: &'a Zone) -> u64 {
        if self.on.policy().pcp.drain.remote.queues_work() && self.holds_pages(zone) {
            self.on.platform.cost(Step::DrainWork(self.cpu));
        }
        self.drain(zone)
    }

    /// Empties a pcp. Waits while another thread has it closed, or (`briefly`) a bounded time: its
    /// owner may have lost the CPU.
    #[inline]
    fn drain_pcp(self, zone: &'a Zone, pcp: &'a Pcp, briefly: bool) -> u64 {
        let platform = &self.on.platform;
        let ops = self.zone_ops(zone);
        let remote = !briefly && !self.on.policy().pcp.drain.remote.queues_work();
        let mut waits = 0;
        // Pages may be on their way to a pcp that its owner has closed.
        while !pcp.seems_empty() {
            if waits == 0 && remote && pcp.cpu != platform.cpu() {
                platform.cost(Step::DrainRemote(zone.id, pcp.cpu));
            }
            // Opened at the end of this line, where it is: a copy would need room.
            let drained = PcpOps::close_if(ops, pcp, briefly).as_mut().map(PcpOps::drain);
            if let Some(pages) = drained {
                ops.clear_below_high();
                return pages;
            }
            if !briefly {
                break;
            }
            platform.relax();
            waits += 1;
            if waits == CLOSED_WAITS_MAX {
                break;
            }
        }
        0
    }

    /// Pages of a remote zone that was just used stay for three refreshes more.
    pub fn stay(self, zone: &Zone) {
        self.pcps(zone).for_each(|pcp| pcp.expire.store(EXPIRE_TICKS, Relaxed));
    }

    /// The part of a refresh that is about the CPU's lists of one zone (LB F.4, E.9). Returns
    /// whether anything changed.
    pub fn refresh_lists(self, zone: &'a Zone) -> bool {
        self.pcps(zone).fold(false, |changed, pcp| changed | self.refresh_pcp(zone, pcp))
            | self.zone_ops(zone).refresh_depot(self.cpu)
            | self.zone_ops(zone).owned().refresh(self.cpu)
    }

    fn refresh_pcp(self, zone: &'a Zone, pcp: &'a Pcp) -> bool {
        let mut changed = false;
        let remote = zone.node != self.on.node_of(pcp.cpu);
        let idle = pcp.count() == 0;
        if pcp.high() > pcp.high_min.load(Relaxed) || pcp.count() > pcp.high() {
            let closed = PcpOps::close(self.zone_ops(zone), pcp);
            changed |= closed.is_some_and(|mut closed| closed.decay());
        }
        // A range that nobody takes does not stay parked.
        let in_use = pcp.parked.is_in_use();
        if pcp.parked.pages() != 0 {
            if !in_use {
                drop(PcpOps::close(self.zone_ops(zone), pcp));
            }
            changed = true;
        }
        if !remote {
            pcp.expire.store(0, Relaxed);
            return changed;
        }
        if idle {
            return changed;
        }
        let expire = match pcp.expire.load(Relaxed) {
            _ if self.moved(pcp) => EXPIRE_TICKS,
            0 if self.on.policy().pcp.drain.idle == IdleDrain::Held => EXPIRE_TICKS,
            0 => return changed,
            expire => expire,
        };
        pcp.expire.store(expire - 1, Relaxed);
        if expire > 1 {
            return true;
        }
        if let Some(mut closed) = PcpOps::close(self.zone_ops(zone), pcp) {
            closed.drain_expired();
        }
        // Pages that leave so move counters, too; those are looked at by themselves.
        pcp.refreshed.store(pcp.count(), Relaxed);
        true
    }

    /// Whether pages came to the pcp, or left it, since the last refresh, where that counts. In
    /// Linux a counter of the zone has to move for it: those of pages of files and programs do.
    fn moved(self, pcp: &Pcp) -> bool {
        let count = pcp.count();
        self.on.policy().pcp.drain.idle == IdleDrain::Moved
            && pcp.refreshed.swap(count, Relaxed) != count
    }
}

/// Empties every pcp and depot of every zone into the buddies. Returns the pages moved. Waits for
/// pcps that other threads have closed.
#[inline(never)]
pub fn drain_all<P: Platform>(on: &Tables<'_, P>) -> u64 {
    on.events.drains_all.fetch_add(1, Relaxed);
    let cpus = || on.each_cpu().map(|cpu| CpuOps::new(on, cpu));
    if on.policy().pcp.drain.remote.queues_work() {
        let holds = |ops: &CpuOps<'_, '_, P>| on.zones.iter().any(|zone| ops.holds_pages(zone));
        let queue = |ops: CpuOps<'_, '_, P>| on.platform.cost(Step::DrainWork(ops.cpu));
        cpus().filter(holds).for_each(queue);
    }
    drain_lists(on, None)
}

/// Empties the pcps of every zone, and the depots; or those of a zonelist's zones up to a kind
/// alone, without a long wait. Returns the pages moved.
#[inline(never)]
pub fn drain_lists<P: Platform>(on: &Tables<'_, P>, of: Option<(&[ZoneId], ZoneKind)>) -> u64 {
    let (mut pages, mut at) = (0, 0);
    while let Some(zone) = match of {
        Some((list, _)) => list.get(at).map(|id| on.zone(*id)),
        None => on.zones.get(at),
    } {
        at += 1;
        if of.is_some_and(|(_, highest)| zone.kind() > highest) {
            continue;
        }
        for cpu in on.each_cpu() {
            pages += CpuOps::new(on, cpu).drain_pcps(zone, of.is_some());
        }
        if of.is_none() {
            pages += ZoneOps::new(on, zone).drain_depots();
        }
    }
    pages
}
