//! The parts of an allocator: the caller's records, the policy, the values that sysctls change, and
//! the counts of rare events.
//!
//! The tables find things and decide nothing. Every other role of the allocator works on them
//! through a reference, and no lookup calls one of those roles.

use core::fmt;

use super::plain::Plain;
use super::tunables::Tunables;
use crate::buddy::FallbackPolicy;
use crate::frame::{PageState, PageWord, PcpId};
use crate::gfp::ZoneKinds;
use crate::machine::PcpOrder;
use crate::pcp::closed::Look;
use crate::pcp::lists::ListMap;
use crate::pcp::owner::{OwnedBlock, Owner, Pageblocks};
use crate::pcp::state::{OFFLINE, Pcp};
use crate::pcp::tune::PcpParams;
use crate::platform::Platform;
use crate::policy::{Grouping, Policy};
use crate::reclaim::ReclaimControl;
use crate::sync::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed,
};
use crate::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::vmstat::numa::NumaDeltas;
use crate::zone::background::Background;
use crate::zone::epoch::FastEpoch;
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// Events that happen too rarely to need a counter per CPU.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub slow_paths: AtomicU64,
    pub failures: AtomicU64,
    pub drains_all: AtomicU64,
    pub claims: AtomicU64,
    pub steals: AtomicU64,
    /// Not an event but a state: blocks that `isolate_block` has out.
    pub isolated: AtomicU64,
    /// Blocks that it had out and has no more.
    pub restored: AtomicU64,
    /// Not an event but a time: when a failed atomic request may boost the watermarks again.
    pub boosts_from_ns: AtomicU64,
}

impl Events {
    /// A block that `isolate_block` had out is back, or handed out.
    pub fn end_isolation(&self) {
        // Relaxed, both: the zone lock orders them, as when the block went out.
        self.isolated.fetch_sub(1, Relaxed);
        self.restored.fetch_add(1, Relaxed);
    }
}

/// The records of one machine, by key. What most calls read comes first: it is found by short
/// instructions, and what rare events write lies behind it.
#[repr(C)]
pub struct Tables<'a, P> {
    pub(super) zones: &'a [Zone],
    pub(super) pcps: &'a [Pcp],
    pub(super) words: &'a [AtomicU64],
    pub(super) blocks: &'a [AtomicU8],
    pub(super) slots: &'a [AtomicU32],
    pub(super) nodes: &'a [Node],
    pub(super) zonelist: &'a [ZoneId],
    pub(super) cpu_nodes: &'a [NodeId],
    /// Of all zones' `fast`.
    pub(super) epoch: FastEpoch,
    pub(super) plain: Plain,
    pub(super) map: ListMap,
    pub(super) grouping: bool,
    pub(super) kinds: ZoneKinds,
    pub(super) platform: P,
    /// Constants of the tuning; the rest is each pcp's own.
    pub(super) fixed: PcpParams,
    /// [`policy`](Self::policy) is the one in force, and the same for the next ones.
    pub(super) policy: Policy,
    pub(super) distances: &'a [u8],
    pub(super) cache_slice_bytes: u64,
    /// Deltas of NUMA events, a CPU's zones side by side; empty where none are recorded.
    pub(super) numa: &'a [NumaDeltas],
    /// CPUs' pageblocks, a zone's CPUs side by side; empty unless CPUs own them.
    pub(super) owners: &'a [Owner],
    /// What is known of each pageblock, as `blocks`; empty unless CPUs own them.
    pub(super) owned: &'a [OwnedBlock],
    pub(super) tunables: Tunables,
    pub(super) reclaim: ReclaimControl,
    /// Zones with memory to come; 0 once all is online.
    pub(super) growing: AtomicU32,
    /// 1 once the pcps have sizes.
    pub(super) sized: AtomicU32,
    /// Limits that are to be computed, and whether somebody is at it (`Limits::follow`).
    pub(super) limits: AtomicU32,
    /// The node of the CPU that came last.
    pub(super) coming: AtomicU32,
    pub(super) events: Events,
}

/// A line that does not grow with the machine.
impl<P> fmt::Debug for Tables<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("policy", &self.policy.name)
            .field("nodes", &self.nodes.len())
            .field("zones", &self.zones.len())
            .field("cpus", &self.cpu_nodes.len())
            .field("frames", &self.words.len())
            .finish_non_exhaustive()
    }
}

impl<'a, P: Platform> Tables<'a, P> {
    /// Whether pageblocks are grouped by mobility.
    #[inline]
    pub fn grouping(&self) -> bool {
        match Policy::fixed_for::<P>().map(|policy| policy.mobility_grouping) {
            Some(Grouping::On) => true,
            Some(Grouping::Off) => false,
            Some(Grouping::Auto) | None => self.grouping,
        }
    }
    /// Whether fast operations of the core enter the pcp: no sequence runs on it (GATE-2).
    #[inline(always)]
    pub(super) fn enters(&self, pcp: &Pcp) -> bool {
        self.platform.uses_gates() && !pcp.may_have_sequences(&self.platform)
    }
    /// Whether a free has to look at its pageblock's type: always with grouping. A policy that is
    /// compiled in and may group is not asked again whether it does.
    #[inline(always)]
    pub(super) fn looks_at_types(&self) -> bool {
        match Policy::fixed_for::<P>().map(|policy| policy.mobility_grouping) {
            Some(Grouping::On | Grouping::Auto) => true,
            Some(Grouping::Off) => false,
            None => self.grouping,
        }
    }
    /// Takes the gate of a pcp and nothing else: sequences of its CPU go on, and whoever needs the
    /// gate waits. `None`: there is no such pcp, or somebody has the gate.
    pub fn look(&self, zone: ZoneId, cpu: CpuId) -> Option<Look<'a>> {
        let known = self.has_zone(zone) && self.has_cpu(cpu);
        let pcp = known.then(|| self.pcp(zone, cpu))?;
        pcp.try_look(self.zone(zone), self.slots)
    }
    /// The policy in force.
    #[inline]
    pub(super) fn policy(&self) -> &Policy {
        Policy::fixed_for::<P>().unwrap_or(&self.policy)
    }
    /// Constants of the tuning; each pcp has the other parameters.
    #[inline]
    pub(super) fn fixed(&self) -> PcpParams {
        Policy::fixed_for::<P>().map_or(self.fixed, |policy| policy.pcp.fixed())
    }
    /// How a zone falls back.
    #[inline]
    pub(super) fn fallback(&self) -> FallbackPolicy {
        let rule = self.policy().fallback;
        FallbackPolicy { rule, mobility_grouping: self.grouping() }
    }
    /// CPUs of the machine.
    pub(super) fn cpus(&self) -> usize {
        self.cpu_nodes.len()
    }
    /// Whether the machine has this CPU.
    pub fn has_cpu(&self, cpu: CpuId) -> bool {
        (cpu.0 as usize) < self.cpus()
    }
    /// Whether the machine has this node.
    pub fn has_node(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.nodes.len()
    }
    /// Whether the machine has this zone.
    pub fn has_zone(&self, zone: ZoneId) -> bool {
        usize::from(zone.0) < self.zones.len()
    }
    /// Panics without this zone: its pcps would be those of another one.
    #[track_caller]
    pub(super) fn expect_zone(&self, zone: ZoneId) {
        assert!(self.has_zone(zone), "no {zone:?} of {}", self.zones.len());
    }
    /// All CPUs of the machine.
    pub fn each_cpu(&self) -> impl Iterator<Item = CpuId> + use<'a, P> {
        (0..self.cpus()).map(|cpu| CpuId(cpu as u32))
    }
    /// The node of each CPU.
    pub fn cpu_nodes(&self) -> &'a [NodeId] {
        self.cpu_nodes
    }
    /// The node of a CPU.
    pub(super) fn node_of(&self, cpu: CpuId) -> NodeId {
        self.cpu_nodes[cpu.0 as usize]
    }
    /// Whether a CPU is online. All are when an allocator is made. One that does not exist is not.
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.has_cpu(cpu)
            && self.pcp(self.preferred_zone(cpu), cpu).flags.load(Relaxed) & OFFLINE == 0
    }
    /// CPUs that are online, on one node or in all.
    pub fn online_cpus(&self, node: Option<NodeId>) -> u32 {
        let mut online = 0;
        for (cpu, of) in self.cpu_nodes.iter().enumerate() {
            let counts = node.is_none_or(|node| *of == node) && self.is_online(CpuId(cpu as u32));
            online += u32::from(counts);
        }
        online
    }

    /// Distance between two nodes (LB A.3).
    ///
    /// # Panics
    /// If there is no such node.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        assert!(self.has_node(to), "no {to:?} of {}", self.nodes.len());
        self.distances[from.0 as usize * self.nodes.len() + to.0 as usize]
    }
    /// The zones that requests of a node try, in order.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn zonelist(&self, node: NodeId, this_node: bool) -> &'a [ZoneId] {
        self.nodes[node.0 as usize].zonelist(self.zonelist, this_node)
    }
    /// The zone that ordinary requests (`GFP_KERNEL`) of a CPU try first.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn preferred_zone(&self, cpu: CpuId) -> ZoneId {
        self.nodes[self.node_of(cpu).0 as usize].preferred()
    }
    /// A node's record.
    pub(super) fn node(&self, node: NodeId) -> &'a Node {
        &self.nodes[usize::from(node.0)]
    }
    /// State and request of a node's background reclaimer.
    pub(super) fn background(&self, node: NodeId) -> &'a Background {
        &self.node(node).background
    }

    #[inline]
    pub(super) fn zone(&self, id: ZoneId) -> &'a Zone {
        &self.zones[id.0 as usize]
    }
    /// The zone of a page, by search: zones are sorted and do not overlap.
    #[inline]
    pub(super) fn zone_of(&self, pfn: Pfn) -> Option<&'a Zone> {
        let after = self.zones.partition_point(|zone| zone.start_pfn <= pfn.0);
        let zone = &self.zones[after.checked_sub(1)?];
        zone.contains(pfn).then_some(zone)
    }
    /// The zones of a node.
    pub(super) fn zones_of(&self, node: NodeId) -> impl Iterator<Item = &'a Zone> + use<'a, P> {
        self.zones.iter().filter(move |zone| zone.node == node)
    }
    /// The node's zones with memory, up to this kind.
    pub(super) fn zones_up_to(
        &self,
        node: NodeId,
        highest: ZoneKind,
    ) -> impl Iterator<Item = &'a Zone> + use<'a, P> {
        let zones = self.zones;
        let mut at = 0;
        core::iter::from_fn(move || next_up_to(zones, &mut at, (node, highest)))
    }
    /// Whether memory is still to come online.
    #[inline]
    pub(super) fn is_growing(&self) -> bool {
        // Acquire: pairs with the Release in `Growth::finish`.
        self.growing.load(Acquire) != 0
    }

    /// The list that blocks of an (order, migratetype) wait on.
    pub fn lists(&self) -> &ListMap {
        &self.map
    }
    /// A CPU's pcp of the zone that it prefers, if there is such a CPU: that of rank 0
    /// (`PcpOrder::position`).
    #[inline(always)]
    pub(super) fn own(&self, cpu: CpuId) -> Option<&'a Pcp> {
        let (at, pcps) = (cpu.0 as usize, self.pcps);
        pcps.get(if P::PCPS_FROM_END { pcps.len().wrapping_sub(1).wrapping_sub(at) } else { at })
    }
    /// The pcp of a (zone, CPU).
    #[inline(never)]
    pub(super) fn pcp(&self, zone: ZoneId, cpu: CpuId) -> &'a Pcp {
        // Most ask for that of the zone which the CPU prefers, of which the number of the CPU alone
        // says where it is.
        match self.own(cpu) {
            Some(pcp) if pcp.zone == zone && pcp.owner == cpu => pcp,
            _ => &self.pcps[self.pcp_index(0, zone, cpu)],
        }
    }
    /// A build without history has no policy with lists of cold pages.
    #[cfg(not(feature = "history"))]
    #[inline]
    pub(super) fn cold_pcp(&self, _: ZoneId, _: CpuId) -> Option<&'a Pcp> {
        None
    }
    /// All pcps of a (zone, CPU).
    ///
    /// # Panics
    /// If there is no such zone or CPU.
    pub fn pcps(&self, zone: ZoneId, cpu: CpuId) -> impl Iterator<Item = &'a Pcp> + use<'a, P> {
        self.expect_zone(zone);
        core::iter::once(self.pcp(zone, cpu)).chain(self.cold_pcp(zone, cpu))
    }
    /// All pcps of a zone.
    #[cfg(feature = "history")]
    pub(super) fn pcps_of(&self, zone: ZoneId) -> impl Iterator<Item = &'a Pcp> {
        self.each_cpu().flat_map(move |cpu| self.pcps(zone, cpu))
    }
    /// All pcps of a zone: one for each CPU.
    #[cfg(not(feature = "history"))]
    pub(super) fn pcps_of(&self, zone: ZoneId) -> impl Iterator<Item = &'a Pcp> {
        self.each_cpu().map(move |cpu| self.pcp(zone, cpu))
    }
    /// The pcp for a page that is in a cache or not.
    #[inline]
    pub(super) fn pcp_for(&self, zone: ZoneId, cpu: CpuId, cold: bool) -> &'a Pcp {
        let pcp = if cold { self.cold_pcp(zone, cpu) } else { None };
        pcp.unwrap_or_else(|| self.pcp(zone, cpu))
    }
    #[inline]
    pub(super) fn pcp_index(&self, set: usize, zone: ZoneId, cpu: CpuId) -> usize {
        let sets = self.policy().pcp.free_lists.sets();
        let (cpus, zones) = (self.cpu_nodes.len(), self.zones.len());
        let order = PcpOrder { sets, cpus, zones, from_end: P::PCPS_FROM_END };
        order.position(set, cpu.0 as usize, self.rank(zone, cpu))
    }
    /// How many zones lie between the one that a CPU prefers and this one, going round.
    #[inline]
    fn rank(&self, zone: ZoneId, cpu: CpuId) -> usize {
        let preferred = self.preferred_zone(cpu).0 as usize;
        let zone = zone.0 as usize;
        if zone >= preferred { zone - preferred } else { zone + self.zones.len() - preferred }
    }
    /// The name of a (zone, CPU)'s store.
    pub(super) fn pcp_id(&self, zone: ZoneId, cpu: CpuId) -> PcpId {
        PcpId { cpu, rank: self.rank(zone, cpu) as u16 }
    }
    /// The delta of the free-page counter that a pcp's moves are booked on: its CPU's.
    #[inline]
    pub(super) fn free_diff<'p>(&self, pcp: &'p Pcp) -> &'p AtomicI64
    where
        'a: 'p,
    {
        // Pages that are in no cache have a pcp of another owner.
        if pcp.owner == pcp.cpu {
            return &pcp.free_diff;
        }
        &self.pcp(pcp.zone, pcp.cpu).free_diff
    }
    /// The deltas of a (zone, CPU), where the policy records events.
    pub(super) fn numa_deltas(&self, zone: &Zone, cpu: CpuId) -> &'a NumaDeltas {
        &self.numa[cpu.0 as usize * self.zones.len() + zone.id.0 as usize]
    }

    /// Whether CPUs own pageblocks.
    #[inline]
    pub(super) fn owns_pageblocks(&self) -> bool {
        self.policy().pcp.pageblocks == Pageblocks::Owned
    }
    /// The word of a frame.
    #[inline]
    pub(super) fn word(&self, frame: u32) -> &'a AtomicU64 {
        &self.words[frame as usize]
    }
    /// The word of a frame, if there is such a frame.
    #[inline]
    pub(super) fn word_at(&self, frame: u64) -> Option<&'a AtomicU64> {
        self.words.get(usize::try_from(frame).ok()?)
    }
    /// Whether exactly this block is handed out.
    pub fn is_allocated(&self, pfn: Pfn, order: Order) -> bool {
        let Some(zone) = self.zone_of(pfn) else { return false };
        let word = PageWord(self.word(zone.frame(pfn)).load(Relaxed));
        matches!(word.state(), PageState::Allocated { order: held, .. } if held == order)
    }
}

/// The next zone with memory of a node, up to this kind, from a position on.
#[inline(never)]
fn next_up_to<'a>(
    zones: &'a [Zone],
    at: &mut usize,
    (node, highest): (NodeId, ZoneKind),
) -> Option<&'a Zone> {
    loop {
        let zone = zones.get(*at)?;
        *at += 1;
        if zone.node == node && zone.kind() <= highest && zone.managed() > 0 {
            return Some(zone);
        }
    }
}
