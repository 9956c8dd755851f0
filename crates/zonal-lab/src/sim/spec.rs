//! Parameters of a run, and the machine at its start.

use zonal_core::machine::{self as core_machine, Layout, ZoneSpec};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, Pfn, ZoneId, ZoneKind};

use super::lab::Lab;
use crate::LabError;
use crate::machine::Machine;
use crate::platform::VirtualPlatform;
use crate::records::Records;
use crate::units::{LOW_END, MIB_PAGES};

/// Page frames below 16 MiB, for ISA devices (LB A.2).
const DMA_END: u64 = 4096;

/// Parameters of a run. Its printed form is the whole of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// What random choices start from.
    pub seed: u64,
}

/// The machine as the core sees it.
#[derive(Debug)]
pub(crate) struct Described {
    distances: Vec<u8>,
    zones: Vec<ZoneSpec>,
    cpus: Vec<NodeId>,
    caches: Vec<u16>,
    cache_slice_bytes: u64,
}

impl Described {
    /// The machine with these zones.
    pub(crate) fn new(machine: &Machine, zones: Vec<ZoneSpec>) -> Described {
        let nodes = machine.all_nodes();
        let node = |cpu| NodeId(machine.node_of_core(machine.core_of(cpu)) as u16);
        let cache = |cpu| machine.llc_of_core(machine.core_of(cpu)) as u16;
        Described {
            distances: (0..nodes * nodes)
                .map(|at| machine.distance(at / nodes, at % nodes))
                .collect(),
            zones,
            cpus: (0..machine.cpus()).map(node).collect(),
            caches: (0..machine.cpus()).map(cache).collect(),
            cache_slice_bytes: machine.cache_slice_bytes(),
        }
    }

    /// As the core takes it.
    pub(crate) fn as_core(&self) -> core_machine::Machine<'_> {
        core_machine::Machine {
            distances: &self.distances,
            zones: &self.zones,
            cpus: &self.cpus,
            cache_slice_bytes: self.cache_slice_bytes,
            caches: &self.caches,
        }
    }
}

impl Spec {
    /// Sets the machine up, brings its memory online and hands it to `run`.
    ///
    /// # Errors
    /// A machine that the core does not take, or what `run` returns.
    pub fn run<T>(
        &self,
        run: impl FnOnce(&mut Lab<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        self.boot(false, run)
    }

    /// As [`run`](Self::run) on a machine of which each node's highest zone has only its first
    /// section when it starts (LB A.8). The rest comes on demand and by
    /// [`finish_growth`](zonal_core::alloc::Allocator::finish_growth).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_deferred<T>(
        &self,
        run: impl FnOnce(&mut Lab<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        self.boot(true, run)
    }

    fn boot<T>(
        &self,
        deferred: bool,
        run: impl FnOnce(&mut Lab<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let machine = &self.machine;
        let described = Described::new(machine, zones(machine));
        let described = described.as_core();
        let layout = Layout::of(&described, &self.policy)?;
        let mut records = Records::try_new(&layout)?;
        let platform = VirtualPlatform::new(machine, described.zones.len());
        let allocator = records.allocator(&described, self.policy, platform)?;
        for (id, zone) in described.zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            match deferred {
                true => allocator.online_deferred(ZoneId(id as u16), pages)?,
                false => allocator.online(ZoneId(id as u16), pages)?,
            }
        }
        allocator.setup();
        let mut lab = Lab::new(allocator, machine, self.seed);
        run(&mut lab)
    }
}

/// The zones of a machine: DMA and DMA32 on node 0, Normal above 4 GiB, as x86-64 has them. Where
/// less than 4 GiB lie below, the rest of those addresses are devices'.
pub fn zones(machine: &Machine) -> Vec<ZoneSpec> {
    let low_end = machine.low_memory_mib.map_or(LOW_END, |mib| mib * MIB_PAGES);
    let mut zones = Vec::new();
    let mut start = 0;
    for node in 0..machine.nodes() {
        let end = start + machine.memory_mib * MIB_PAGES;
        for (kind, from, to, moved) in [
            (ZoneKind::Dma, 0, DMA_END, 0),
            (ZoneKind::Dma32, DMA_END, low_end, 0),
            (ZoneKind::Normal, low_end, u64::MAX, LOW_END - low_end),
        ] {
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                let pages = to - from;
                let node = NodeId(node as u16);
                zones.push(ZoneSpec {
                    node,
                    kind,
                    start_pfn: from + moved,
                    spanned: pages,
                    present: pages,
                });
            }
        }
        start = end;
    }
    if let Some(far) = &machine.far {
        let pages = far.memory_mib * MIB_PAGES;
        zones.push(ZoneSpec {
            node: NodeId(machine.nodes() as u16),
            kind: ZoneKind::Normal,
            start_pfn: machine.far_start(),
            spanned: pages,
            present: pages,
        });
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_split_into_zones_as_on_x86() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        let zones = zones(&machine);
        let kinds: Vec<(u16, ZoneKind)> = zones.iter().map(|z| (z.node.0, z.kind)).collect();
        use ZoneKind::{Dma, Dma32, Normal};
        assert_eq!(kinds, [(0, Dma), (0, Dma32), (0, Normal), (1, Normal)]);
        let pages: u64 = zones.iter().map(|zone| zone.present).sum();
        assert_eq!(pages, 2 * machine.memory_mib * MIB_PAGES);
    }

    #[test]
    fn memory_that_does_not_lie_below_4_gib_lies_above_and_none_is_lost() {
        let mut machine = Machine::named("broadwell-2017-88").unwrap();
        machine.low_memory_mib = Some(3072);
        let zones = zones(&machine);
        assert_eq!((zones[1].start_pfn, zones[1].present), (DMA_END, 3072 * MIB_PAGES - DMA_END));
        assert_eq!(zones[2].start_pfn, LOW_END);
        assert_eq!(zones[3].start_pfn, zones[2].start_pfn + zones[2].present);
        let pages: u64 = zones.iter().map(|zone| zone.present).sum();
        assert_eq!(pages, 2 * machine.memory_mib * MIB_PAGES);
    }
}
