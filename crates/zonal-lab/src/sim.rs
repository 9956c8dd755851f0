//! Runs a workload on a virtual machine: the CPU whose clock is behind all others makes its next
//! call, on the unchanged core. Same machine, policy, workload and seed: same run, to the last
//! cycle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};
use zonal_core::alloc::Allocator;
use zonal_core::machine::{self as core_machine, Layout, ZoneSpec};
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, NodeId, Pfn, ZoneId, ZoneKind};

use crate::LabError;
use crate::experiment::hex;
use crate::home::{Happened, Spent, VirtualHome};
use crate::machine::Machine;
use crate::records::Records;

/// Page frames below 16 MiB, for ISA devices (LB A.2).
const DMA_END: u64 = 4096;
/// Page frames below 4 GiB.
const DMA32_END: u64 = 1 << 20;
/// Pages of a MiB.
const MIB_PAGES: u64 = 256;

/// What a run is made of. Its printed form is the whole of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// What random choices start from.
    pub seed: u64,
}

/// A virtual machine with all its memory online.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The core, with the virtual machine as its home.
    pub allocator: Allocator<'a, VirtualHome>,
    /// The machine.
    pub machine: &'a Machine,
    random: Pcg64Mcg,
    turns: BinaryHeap<Reverse<(u64, u32)>>,
    /// When each CPU's statistics are refreshed next, in cycles.
    refresh_at: Vec<u64>,
    refresh_every: u64,
    calls: u64,
    /// The highest clock so far.
    latest: u64,
}

/// What a CPU does: one call at a time.
pub trait Workload {
    /// The next call of `cpu`, whose turn it is. `false`: it has nothing more to do.
    fn call(&mut self, lab: &Lab<'_>, cpu: u32) -> bool;
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Calls of all CPUs.
    pub calls: u64,
    /// Cycles of all CPUs together.
    pub cycles: u64,
    /// Cycles until the last CPU was done.
    pub elapsed: u64,
    /// Where they went.
    pub spent: Spent,
    /// What happened.
    pub happened: Happened,
    /// Hash of all of the above and every CPU's clock.
    pub hash: String,
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
        let machine = &self.machine;
        let zones = zones(machine);
        let nodes = machine.nodes();
        let distances: Vec<u8> =
            (0..nodes * nodes).map(|at| machine.distance(at / nodes, at % nodes)).collect();
        let node = |cpu| NodeId(machine.node_of_core(machine.core_of(cpu)) as u16);
        let cpus: Vec<NodeId> = (0..machine.cpus()).map(node).collect();
        let described = core_machine::Machine {
            distances: &distances,
            zones: &zones,
            cpus: &cpus,
            cache_slice_bytes: machine.cache_slice_bytes(),
        };
        let layout = Layout::of(&described, &self.policy)?;
        let mut records = Records::new(&layout);
        let home = VirtualHome::new(machine, zones.len());
        let allocator = Allocator::new(&described, self.policy, records.metadata(), home)?;
        for (id, zone) in zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            allocator.online(ZoneId(id as u16), pages)?;
        }
        allocator.setup();
        let second = (machine.ghz * 1e9) as u64;
        let mut lab = Lab {
            allocator,
            machine,
            random: Pcg64Mcg::seed_from_u64(self.seed),
            turns: BinaryHeap::new(),
            refresh_at: vec![0; machine.cpus() as usize],
            refresh_every: second,
            calls: 0,
            latest: 0,
        };
        for cpu in 0..machine.cpus() {
            // Each CPU's timer started at its own time.
            lab.refresh_at[cpu as usize] = lab.random_below(second.max(1));
        }
        run(&mut lab)
    }
}

impl Lab<'_> {
    /// A random number below `end`.
    pub fn random_below(&mut self, end: u64) -> u64 {
        // The bias is below 2^-32 for every end used here.
        ((u128::from(self.random.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Lets one CPU make `calls` calls before anything is measured; its clock starts at 0.
    pub fn warm<W: Workload>(&mut self, workload: &mut W, cpu: u32, calls: u64) {
        self.allocator.platform().turn(cpu, 0);
        for _ in 0..calls {
            workload.call(self, cpu);
        }
        self.latest = self.latest.max(self.allocator.platform().clock());
    }

    /// A time that no clock has reached yet.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Lets the CPUs `0..cpus` call `workload` until each clock is at `until` cycles or has
    /// nothing more to do. Clocks start at `from`, a little apart.
    pub fn play<W: Workload>(
        &mut self,
        workload: &mut W,
        cpus: u32,
        from: u64,
        until: u64,
    ) -> Outcome {
        let before = self.allocator.platform().totals();
        let calls_before = self.calls;
        self.turns.clear();
        for cpu in 0..cpus {
            let start = from + self.random_below(START_APART);
            self.turns.push(Reverse((start, cpu)));
        }
        let mut hash = Sha256::new();
        let (mut cycles, mut elapsed) = (0, 0);
        while let Some(Reverse((clock, cpu))) = self.turns.pop() {
            let home = self.allocator.platform();
            home.turn(cpu, clock);
            let due = &mut self.refresh_at[cpu as usize];
            if clock >= *due {
                *due = clock + self.refresh_every;
                self.allocator.refresh(CpuId(cpu));
            }
            let more = workload.call(self, cpu);
            self.calls += u64::from(more);
            let clock = self.allocator.platform().clock();
            if more && clock < until {
                self.turns.push(Reverse((clock, cpu)));
                continue;
            }
            cycles += clock - from;
            elapsed = elapsed.max(clock - from);
            self.latest = self.latest.max(clock);
            hash.update(cpu.to_le_bytes());
            hash.update(clock.to_le_bytes());
        }
        let (spent, happened) = self.allocator.platform().totals();
        let (spent, happened) = (spent.since(&before.0), happened.since(&before.1));
        let calls = self.calls - calls_before;
        hash.update(format!("{calls} {spent:?} {happened:?}"));
        let hash = hex(&hash.finalize());
        Outcome { calls, cycles, elapsed, spent, happened, hash }
    }
}

/// CPUs begin this many cycles apart at most: nobody starts 88 threads in one cycle.
const START_APART: u64 = 1000;

/// The zones of a machine: DMA and DMA32 on node 0, Normal above 4 GiB, as x86-64 has them.
pub fn zones(machine: &Machine) -> Vec<ZoneSpec> {
    let mut zones = Vec::new();
    let mut start = 0;
    for node in 0..machine.nodes() {
        let end = start + machine.memory_mib * MIB_PAGES;
        for (kind, from, to) in [
            (ZoneKind::Dma, 0, DMA_END),
            (ZoneKind::Dma32, DMA_END, DMA32_END),
            (ZoneKind::Normal, DMA32_END, u64::MAX),
        ] {
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                let pages = to - from;
                let node = NodeId(node as u16);
                zones.push(ZoneSpec {
                    node,
                    kind,
                    start_pfn: from,
                    spanned: pages,
                    present: pages,
                });
            }
        }
        start = end;
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
}
