//! Which CPUs share a depot of a zone, and how large it is.

use super::spec::{Machine, ZoneSpec};
use crate::pcp::depot::{DepotGroup, DepotSize, ZONE_PART};
use crate::pcp::size;
use crate::policy::Policy;
use crate::types::PageCount;

/// The depots of one zone. Each lies in the pcp of the first CPU of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneDepots<'m> {
    machine: &'m Machine<'m>,
    zone: &'m ZoneSpec,
    policy: &'m Policy,
    /// No CPU is of the zone's node: it belongs to all.
    of_all: bool,
    groups: usize,
}

impl<'m> ZoneDepots<'m> {
    pub(crate) fn new(machine: &'m Machine<'m>, zone: &'m ZoneSpec, policy: &'m Policy) -> Self {
        let of_all = machine.node_cpus(zone.node) == 0;
        let mut depots = ZoneDepots { machine, zone, policy, of_all, groups: 0 };
        depots.groups = depots.own().filter(|cpu| depots.has(*cpu)).count();
        depots
    }

    fn is_own(&self, cpu: usize) -> bool {
        self.of_all || self.machine.cpus[cpu] == self.zone.node
    }
    fn own(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.machine.cpus.len()).filter(|cpu| self.is_own(*cpu))
    }

    /// Whether two CPUs that the zone belongs to share a depot of it.
    fn share(&self, one: usize, other: usize) -> bool {
        let Machine { caches, cpus, .. } = self.machine;
        match (self.policy.pcp.depot.group, caches.get(one), caches.get(other)) {
            (DepotGroup::Cache, Some(one), Some(other)) => one == other,
            (DepotGroup::Cache, ..) => cpus[one] == cpus[other],
            (DepotGroup::Node, ..) => true,
        }
    }

    fn first_of_group(&self, cpu: usize) -> usize {
        self.own().find(|other| self.share(*other, cpu)).unwrap_or(cpu)
    }
    fn has(&self, cpu: usize) -> bool {
        self.first_of_group(cpu) == cpu
    }

    /// The CPU whose pcp has the depot that `cpu` uses. CPUs of other nodes are spread over the
    /// depots, so that pages they free return in full magazines to the zone's own CPUs.
    pub(crate) fn of(&self, cpu: usize) -> usize {
        if self.groups == 0 || self.is_own(cpu) {
            return self.first_of_group(cpu);
        }
        let at = cpu % self.own().count().max(1);
        self.first_of_group(self.own().nth(at).unwrap_or(cpu))
    }

    /// The size of the depot in a CPU's pcp; none in most.
    pub(crate) fn size(&self, cpu: usize) -> DepotSize {
        if self.groups == 0 || !self.is_own(cpu) || !self.has(cpu) {
            return DepotSize::default();
        }
        let cpus = self.own().filter(|other| self.share(*other, cpu)).count();
        let batch = size::batch(self.zone.present, self.policy.pcp.batch_cap_pages);
        let part = ZONE_PART.max(2 * u64::from(self.policy.pcp.budget_fraction));
        let pages = self.zone.present / part;
        DepotSize::new(self.policy.pcp.depot, cpus, self.groups, pages, PageCount::new(batch))
    }

    /// Base pages that all of them may hold.
    pub(crate) fn pages(&self) -> PageCount {
        self.sizes().map(DepotSize::pages).sum()
    }

    fn sizes(&self) -> impl Iterator<Item = DepotSize> + '_ {
        let cpus = if self.groups == 0 { 0 } else { self.machine.cpus.len() };
        (0..cpus).map(|cpu| self.size(cpu))
    }

    /// Slots of all of them.
    pub(crate) fn slots(&self) -> usize {
        self.sizes().map(DepotSize::slots).sum()
    }
}
