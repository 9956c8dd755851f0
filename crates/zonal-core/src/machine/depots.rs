//! Which CPUs share a depot of a zone, and how large it is.

use super::spec::{Machine, ZoneSpec};
use crate::pcp::depot::{DepotGroup, DepotSize, ZONE_PART};
use crate::pcp::size;
use crate::policy::Policy;
use crate::types::{NodeId, PageCount};

/// The depots of one zone. Each lies in the pcp of the first CPU of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneDepots<'m> {
    machine: &'m Machine<'m>,
    zone: &'m ZoneSpec,
    policy: &'m Policy,
    /// No CPU is of the zone's node: it belongs to all.
    of_all: bool,
    /// The first of the CPUs that it belongs to, and the one behind the last; how many they are.
    first: usize,
    end: usize,
    count: usize,
    groups: usize,
}

impl<'m> ZoneDepots<'m> {
    pub(crate) fn new(machine: &'m Machine<'m>, zone: &'m ZoneSpec, policy: &'m Policy) -> Self {
        let is_own = |node: &NodeId| *node == zone.node;
        let first = machine.cpus.iter().position(is_own);
        let of_all = first.is_none();
        let end = machine.cpus.iter().rposition(is_own).map_or(machine.cpus.len(), |last| last + 1);
        let (first, count, groups) = (first.unwrap_or(0), 0, 0);
        let mut depots = ZoneDepots { machine, zone, policy, of_all, first, end, count, groups };
        depots.count = depots.own().count();
        depots.groups = depots.own().filter(|cpu| depots.has(*cpu)).count();
        depots
    }

    fn is_own(&self, cpu: usize) -> bool {
        self.of_all || self.machine.cpus[cpu] == self.zone.node
    }
    fn own(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (self.first..self.end).filter(|cpu| self.is_own(*cpu))
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
        !self.is_beside(cpu) && self.first_of_group(cpu) == cpu
    }

    /// Whether a CPU shares the depot of the one in front of it, as most do: then nobody needs to
    /// look for the first of the group.
    pub(crate) fn is_beside(&self, cpu: usize) -> bool {
        let before = cpu.checked_sub(1).filter(|before| self.is_own(*before) && self.is_own(cpu));
        before.is_some_and(|before| self.share(before, cpu))
    }

    /// The CPU whose pcp has the depot that `cpu` uses. CPUs of other nodes are spread over the
    /// depots, so that pages they free return in full magazines to the zone's own CPUs.
    pub(crate) fn of(&self, cpu: usize) -> usize {
        if self.groups == 0 || self.is_own(cpu) {
            return self.first_of_group(cpu);
        }
        let at = cpu % self.count.max(1);
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
