//! The settings of node reclaim that can change while it runs (LB G.1, I.5).

use super::{MODE_ANY, ReclaimEvents, percent};
use crate::machine::Machine;
use crate::policy::walk::{DistanceRule, NodeReclaimMode, NodeReclaimPolicy, ReclaimUnit};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{NodeId, ZoneKind};
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// Settings and counts of reclaim.
#[derive(Debug)]
pub struct ReclaimControl {
    mode: AtomicU32,
    min_unmapped_ratio: AtomicU32,
    min_slab_ratio: AtomicU32,
    /// Which zones may be reclaimed.
    pub distance: DistanceRule,
    /// The unit of reclaim.
    pub unit: ReclaimUnit,
    /// Result.
    pub events: ReclaimEvents,
}

// Relaxed throughout: single values, no other data depends on them.
impl ReclaimControl {
    /// The settings of a machine at its start.
    pub fn new(machine: &Machine<'_>, policy: &NodeReclaimPolicy) -> ReclaimControl {
        let mode = match policy.mode {
            NodeReclaimMode::Bits(bits) => bits,
            NodeReclaimMode::Auto { above } => u32::from(farthest(machine) > above),
        };
        ReclaimControl {
            mode: AtomicU32::new(mode),
            min_unmapped_ratio: AtomicU32::new(policy.min_unmapped_ratio),
            min_slab_ratio: AtomicU32::new(policy.min_slab_ratio),
            distance: policy.distance,
            unit: policy.unit,
            events: ReclaimEvents::default(),
        }
    }

    /// `vm.zone_reclaim_mode`.
    pub fn mode(&self) -> u32 {
        self.mode.load(Relaxed)
    }
    /// Whether node reclaim is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.mode() & MODE_ANY != 0
    }
    /// Writes `vm.zone_reclaim_mode`.
    pub fn set_mode(&self, mode: u32) {
        self.mode.store(mode, Relaxed);
    }
    /// Writes `vm.min_unmapped_ratio`, in percent; [`set_limits`](Self::set_limits) must follow.
    pub fn set_min_unmapped_ratio(&self, percent: u32) {
        self.min_unmapped_ratio.store(percent, Relaxed);
    }
    /// Writes `vm.min_slab_ratio`, in percent; [`set_limits`](Self::set_limits) must follow.
    pub fn set_min_slab_ratio(&self, percent: u32) {
        self.min_slab_ratio.store(percent, Relaxed);
    }

    /// Computes below which sizes reclaim does not begin: for each zone of its present pages, as up
    /// to 4.7, and for each node of its zones' managed pages (LB G.2).
    pub fn set_limits(&self, zones: &[Zone], nodes: &[Node]) {
        let (unmapped, slab) =
            (self.min_unmapped_ratio.load(Relaxed), self.min_slab_ratio.load(Relaxed));
        for zone in zones {
            let present = zone.present();
            zone.reclaim.min_unmapped.store(percent(present, unmapped), Relaxed);
            zone.reclaim.min_slab.store(percent(present, slab), Relaxed);
        }
        for (id, node) in nodes.iter().enumerate() {
            let (mut least_unmapped, mut least_slab) = (0, 0);
            for zone in zones.iter().filter(|zone| zone.node() == NodeId(id as u16)) {
                least_unmapped += percent(zone.managed(), unmapped);
                least_slab += percent(zone.managed(), slab);
            }
            node.reclaim.min_unmapped.store(least_unmapped, Relaxed);
            node.reclaim.min_slab.store(least_slab, Relaxed);
        }
    }
}

/// The largest distance from a node to memory.
fn farthest(machine: &Machine<'_>) -> u8 {
    let nodes = machine.nodes();
    let memory = machine.zones.iter().filter(|zone| zone.kind != ZoneKind::Device);
    let to = |node: NodeId| {
        (0..nodes).map(move |from| machine.distances[from * nodes + node.0 as usize])
    };
    memory.flat_map(|zone| to(zone.node)).max().unwrap_or(0)
}
