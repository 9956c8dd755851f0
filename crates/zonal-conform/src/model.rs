//! A machine in the core that has nothing but what limits follow from: nodes, CPUs, and zones that
//! manage as many pages as the kernel's did.
//!
//! No limit depends on where a zone's frames are, so each zone here has one frame, and the pages
//! that it manages are withheld from its buddy ([`Allocator::withhold`]). A machine of any size
//! costs a few KiB, and can be computed again with other sizes.

use zonal_core::machine::{Layout, Machine, MachineError, ZoneSpec};
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NR_ZONE_KINDS, NodeId, ZoneId, ZoneKind};
use zonal_core::zone::state::Zone;
use zonal_core::zone::watermark::Watermarks;
use zonal_lab::records::Records;

use crate::error::{Error, ensure};
use crate::settings::Write;

/// Metadata that one machine may ask for: a damaged text must not take all memory.
const METADATA_BYTES_MAX: usize = 2 << 30;

/// What limits follow from, sizes and sysctls apart.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Distances, row by row.
    pub distances: Vec<u8>,
    /// Online CPUs of each node, by id. With `numa=fake` a CPU may be on several nodes.
    pub node_cpus: Vec<Vec<u32>>,
    /// Node and kind of each zone.
    pub zones: Vec<(NodeId, ZoneKind)>,
    /// Whether movable zones stand for HighMem, and those of devices for empty movable ones.
    pub has_high: bool,
}

/// The core's values for a machine.
#[derive(Debug, Clone)]
pub struct Computed {
    /// By zone, in the order of the shape.
    pub zones: Vec<Limits>,
    /// `min_free_kbytes` by the rule, without later writes.
    pub min_free_kbytes: u32,
    /// Pages available while all watermarks are still zero.
    pub pages: u64,
    /// Whether pageblocks are grouped by mobility.
    pub grouping: bool,
}

/// The core's values for a zone.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Its marks, without a boost.
    pub watermarks: Watermarks,
    /// Pages kept back from requests that could go higher, by the highest kind.
    pub protection: [u64; NR_ZONE_KINDS],
    /// Pages of a refill.
    pub batch: u32,
    /// Bounds of a list.
    pub high: (u32, u32),
    /// Threshold of the counters.
    pub threshold: u32,
}

/// A node for each CPU, so that some nodes have the CPUs that they have in the shape.
#[derive(Debug)]
struct Placement {
    /// The node of each CPU, by position.
    cpus: Vec<NodeId>,
    /// Whether a node has its own CPUs here and no others.
    holds: Vec<bool>,
}

/// Never called: setup asks for no CPU and does not wait.
#[derive(Debug)]
struct Still;

impl Wait for Still {
    fn wait(&self, _word: &LockWord, _value: u32) {
        std::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for Still {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Shape {
    /// Ids of the online CPUs, ascending, each once.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus = self.node_cpus.concat();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Boots the machine with these managed pages by zone, and writes the sysctls.
    ///
    /// In the core a CPU is on one node. Where nodes share CPUs, the machine is booted several
    /// times, with the CPUs placed differently, and each zone's limits come from a machine where
    /// its node has its own CPUs. Only the limits of lists follow from the CPUs of a node (LB E.4).
    ///
    /// # Errors
    /// If the machine cannot be, or a sysctl is refused: then with its file and line.
    pub fn compute(
        &self,
        policy: &Policy,
        managed: &[u64],
        writes: &[Write],
    ) -> Result<Computed, Error> {
        let mut placements = self.placements().into_iter();
        let first = placements.next().ok_or(MachineError::NoMemory)?;
        let mut computed = self.compute_placed(&first, policy, managed, writes)?;
        for placement in placements {
            let other = self.compute_placed(&placement, policy, managed, writes)?;
            for (zone, (node, _)) in self.zones.iter().enumerate() {
                if placement.holds[usize::from(node.0)] {
                    computed.zones[zone] = other.zones[zone];
                }
            }
        }
        Ok(computed)
    }

    /// Placements of the CPUs, so that each node has its own CPUs in one of them: a single one
    /// where no CPU is on two nodes.
    fn placements(&self) -> Vec<Placement> {
        let cpus = self.cpus();
        let position = |cpu: &u32| cpus.binary_search(cpu).unwrap_or(0);
        let node = |index: usize| NodeId(index as u16);
        let mut left: Vec<usize> = (0..self.node_cpus.len()).collect();
        let mut placements = Vec::new();
        while !left.is_empty() {
            let mut placed: Vec<Option<NodeId>> = vec![None; cpus.len()];
            let mut holds = vec![false; self.node_cpus.len()];
            left.retain(|index| {
                let own = &self.node_cpus[*index];
                let taken = own.iter().any(|cpu| placed[position(cpu)].is_some());
                if !taken {
                    own.iter().for_each(|cpu| placed[position(cpu)] = Some(node(*index)));
                    holds[*index] = true;
                }
                taken
            });
            // The nodes of a CPU that is not placed yet do not hold here, so it may be on any.
            let any = |cpu: &u32| {
                let of = self.node_cpus.iter().position(|own| own.contains(cpu));
                node(of.unwrap_or(0))
            };
            let placed = placed.into_iter().zip(&cpus);
            let cpus = placed.map(|(placed, cpu)| placed.unwrap_or_else(|| any(cpu))).collect();
            placements.push(Placement { cpus, holds });
        }
        placements
    }

    fn compute_placed(
        &self,
        placement: &Placement,
        policy: &Policy,
        managed: &[u64],
        writes: &[Write],
    ) -> Result<Computed, Error> {
        let specs: Vec<ZoneSpec> = self.zones.iter().zip(0..).map(spec).collect();
        let machine = Machine {
            distances: &self.distances,
            zones: &specs,
            cpus: &placement.cpus,
            cache_slice_bytes: 0,
            caches: &[],
        };
        let layout = Layout::of(&machine, policy)?;
        let bytes = layout.bytes();
        let most = METADATA_BYTES_MAX;
        ensure(bytes <= most, || Error::TooLarge { bytes, most })?;
        let mut records = Records::new(&layout);
        let allocator = records.allocator(&machine, *policy, Still)?;
        for (zone, pages) in managed.iter().enumerate() {
            allocator.withhold(ZoneId(zone as u16), *pages)?;
        }
        // LB A.5: decided before any mark is computed.
        let pages = allocator.stats().allocatable_pages();
        let grouping = policy.mobility_grouping.resolve(pages, policy.page);
        allocator.setup();
        let min_free_kbytes = allocator.stats().min_free_kbytes();
        for Write { sysctl, value, place } in writes {
            let refused = |source| Error::Sysctl { place: place.clone(), source };
            allocator.set(*sysctl, *value).map_err(refused)?;
        }
        let mut zones: Vec<Limits> = allocator.zones().iter().map(limits).collect();
        if self.has_high {
            let movable_min = policy.watermark.movable_min;
            let empty = Watermarks::unpopulated(ZoneKind::Movable, movable_min);
            let stands = zones.iter_mut().zip(&self.zones);
            stands
                .filter(|(_, (_, kind))| *kind == ZoneKind::Device)
                .for_each(|(zone, _)| zone.watermarks = empty);
        }
        Ok(Computed { zones, min_free_kbytes, pages, grouping })
    }
}

/// A zone of one frame.
fn spec(((node, kind), index): (&(NodeId, ZoneKind), u64)) -> ZoneSpec {
    ZoneSpec { node: *node, kind: *kind, start_pfn: index, spanned: 1, present: 1 }
}

fn limits(zone: &Zone) -> Limits {
    let (batch, high_min, high_max) = zone.pcp_sizes();
    Limits {
        watermarks: zone.watermarks(),
        protection: ZoneKind::ALL.map(|kind| zone.reserve(kind)),
        batch,
        high: (high_min, high_max),
        threshold: zone.stat_threshold(),
    }
}
