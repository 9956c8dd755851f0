//! Numbers out of an allocator.

use zonal_core::alloc::{Allocator, FreeAreas, ZoneStats};
use zonal_core::platform::Platform;
use zonal_core::platform::reclaimer::{Holdings, Reclaimer, Unit};
use zonal_core::reclaim::ReclaimStats;
use zonal_core::types::{CpuId, NodeId, ZoneKind};
use zonal_core::zone::reclaim::Scans;
use zonal_core::zone::state::Zone;
use zonal_core::zone::watermark::Watermarks;
use zonal_core::zonelist::Node;

/// A reading of an allocator: all that the kernel's texts tell of it.
///
/// Each number is right for some moment during the read; while nothing runs, all are exact.
#[derive(Debug, Clone)]
pub struct State {
    /// Nodes of the machine, with memory or without.
    pub(super) nodes: usize,
    pub(super) whole: WholeState,
    /// By node.
    pub(super) reclaim: Vec<NodeState>,
    /// Populated zones, by node, then by kind.
    pub(super) zones: Vec<ZoneState>,
}

/// What the users of a node's pages hold, and what reclaim took from them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeState {
    pub(super) held: Holdings,
    pub(super) scans: Scans,
}

/// What happened in no zone in particular.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeState {
    pub(super) reclaim: ReclaimStats,
    pub(super) objects_scanned: u64,
    pub(super) slow_paths: u64,
    pub(super) failures: u64,
    pub(super) whole_drains: u64,
    pub(super) claims: u64,
    pub(super) steals: u64,
    pub(super) misuses: u64,
}

/// One populated zone.
#[derive(Debug, Clone)]
pub(super) struct ZoneState {
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    pub(super) start_pfn: u64,
    pub(super) spanned: u64,
    pub(super) present: u64,
    pub(super) managed: u64,
    pub(super) watermarks: Watermarks,
    /// Pages kept back, by the highest kind that a request could use.
    pub(super) protection: Vec<u64>,
    pub(super) stat_threshold: u32,
    pub(super) stats: ZoneStats,
    pub(super) areas: FreeAreas,
    pub(super) pagesets: Vec<PagesetState>,
}

/// The lists of one CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct PagesetState {
    pub(super) cpu: u32,
    pub(super) count: u32,
    pub(super) high: u32,
    pub(super) batch: u32,
    pub(super) high_min: u32,
    pub(super) high_max: u32,
}

impl State {
    /// Reads `allocator`. Takes each zone's lock twice, and walks the free lists under it.
    pub fn of<P: Platform>(allocator: &Allocator<'_, P>) -> State {
        let zones = allocator.zones().iter();
        let mut zones: Vec<ZoneState> = zones.map(|zone| read(allocator, zone)).collect();
        zones.sort_by_key(|zone| (zone.node, zone.kind));
        let (slow_paths, failures) = allocator.stats().slow_paths();
        let (claims, steals) = allocator.stats().fallbacks();
        let whole_drains = allocator.stats().whole_drains();
        let reclaimer = allocator.platform().reclaimer();
        let whole = WholeState {
            reclaim: allocator.reclaim_stats(),
            objects_scanned: reclaimer.map_or(0, Reclaimer::objects_scanned),
            slow_paths,
            failures,
            whole_drains,
            claims,
            steals,
            misuses: 0,
        };
        let node = |(id, node): (usize, &Node)| {
            let unit = Unit::Node(NodeId(id as u16));
            let held = reclaimer.map_or_else(Holdings::default, |one| one.holdings(unit));
            NodeState { held, scans: node.scans() }
        };
        let reclaim = allocator.nodes().iter().enumerate().map(node).collect();
        State { nodes: allocator.nodes().len(), whole, reclaim, zones }
    }

    /// With the misuses of the pool, which its allocator does not know.
    pub(crate) fn with_misuses(mut self, misuses: u64) -> State {
        self.whole.misuses = misuses;
        self
    }

    /// Nodes of the machine, with memory or without.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes).map(|node| NodeId(node as u16))
    }

    /// The populated zones of a node, lowest kind first.
    pub(super) fn zones_of(&self, node: NodeId) -> impl Iterator<Item = &ZoneState> + Clone {
        self.zones.iter().filter(move |zone| zone.node == node)
    }
}

fn read<P: Platform>(allocator: &Allocator<'_, P>, zone: &Zone) -> ZoneState {
    let (batch, high_min, high_max) = zone.pcp_sizes();
    let cpus = (0..allocator.cpus() as u32).map(|cpu| {
        let lists = allocator.pcp(zone.id(), CpuId(cpu));
        // The pages of a depot are shown on the lists of the first CPU that shares it: the kernel's
        // text has no other place for them.
        let (count, high) = (allocator.stats().kept_pages(zone.id(), CpuId(cpu)), lists.high());
        PagesetState { cpu, count, high, batch, high_min, high_max }
    });
    ZoneState {
        node: zone.node(),
        kind: zone.kind(),
        start_pfn: zone.start_pfn().0,
        spanned: zone.spanned(),
        present: zone.present(),
        managed: zone.managed(),
        watermarks: zone.watermarks(),
        protection: ZoneKind::ALL.map(|kind| zone.reserve(kind)).to_vec(),
        stat_threshold: zone.stat_threshold(),
        stats: allocator.zone_stats(zone.id()),
        areas: allocator.stats().free_areas(zone.id()),
        pagesets: cpus.collect(),
    }
}
