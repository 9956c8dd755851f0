//! Runs a workload on a virtual machine: the CPU whose clock is behind all others makes its next
//! call, on the unchanged core. Same machine, policy, workload and seed: same run, to the last
//! cycle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};
use zonal_core::alloc::{Allocator, Request};
use zonal_core::machine::{self as core_machine, Layout, ZoneSpec};
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};

use crate::LabError;
use crate::cost::contents::Access;
use crate::experiment::hex;
use crate::home::{Happened, Spent, VirtualHome};
use crate::machine::Machine;
use crate::records::Records;
use crate::workload::{Program, Turn};

/// Page frames below 16 MiB, for ISA devices (LB A.2).
const DMA_END: u64 = 4096;
/// Page frames below 4 GiB.
const DMA32_END: u64 = 1 << 20;
/// Pages of a MiB.
pub(crate) const MIB_PAGES: u64 = 256;
/// Lines of a page.
pub const PAGE_LINES: u64 = 64;

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
    /// The CPUs that have something to do, by their clocks.
    turns: BinaryHeap<Reverse<(u64, u32)>>,
    /// Clock of each CPU that is idle until another wakes it.
    idle: Vec<Option<u64>>,
    /// CPUs that were woken by the step that is being made.
    woken: Vec<u32>,
    /// Until when the last play went, and when the steps end that went beyond it.
    played: u64,
    beyond: Vec<u64>,
    /// When each CPU's statistics are refreshed next, in cycles.
    refresh_at: Vec<u64>,
    refresh_every: u64,
    count: Count,
    /// Base pages that are handed out.
    pages: u64,
}

/// What programs have asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What was asked for.
    pub count: Count,
    /// Cycles that all steps took that began in it.
    pub cycles: u64,
    /// Cycles within it in which CPUs were not idle, of all together: with what steps that began
    /// before still took, without what those that go on take beyond it.
    pub busy: u64,
    /// Cycles from the beginning to the last CPU's last step.
    pub elapsed: u64,
    /// Where they went.
    pub spent: Spent,
    /// What happened.
    pub happened: Happened,
    /// Hash of all of the above and every CPU's clock.
    pub hash: String,
}

impl Outcome {
    /// What `next`, which followed, came to as well. The hash is the first one's.
    pub fn add(&mut self, next: &Outcome) {
        self.count = self.count.plus(&next.count);
        self.cycles += next.cycles;
        self.busy += next.busy;
        self.elapsed += next.elapsed;
        self.spent = self.spent.plus(&next.spent);
        self.happened = self.happened.plus(&next.happened);
    }
}

counts!(Count: allocs, frees, refused);

impl Count {
    /// Blocks allocated and freed, and requests refused.
    pub fn calls(&self) -> u64 {
        self.allocs + self.frees + self.refused
    }
}

/// What the core is told of a machine.
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
        let nodes = machine.nodes();
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
    /// [`finish_growth`](Allocator::finish_growth).
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
        let mut records = Records::new(&layout);
        let home = VirtualHome::new(machine, described.zones.len());
        let allocator = Allocator::new(&described, self.policy, records.metadata(), home)?;
        for (id, zone) in described.zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            match deferred {
                true => allocator.online_deferred(ZoneId(id as u16), pages)?,
                false => allocator.online(ZoneId(id as u16), pages)?,
            }
        }
        allocator.setup();
        let second = (machine.ghz * 1e9) as u64;
        let mut lab = Lab {
            allocator,
            machine,
            random: Pcg64Mcg::seed_from_u64(self.seed),
            turns: BinaryHeap::new(),
            idle: vec![None; machine.cpus() as usize],
            woken: Vec::new(),
            played: 0,
            beyond: Vec::new(),
            refresh_at: vec![0; machine.cpus() as usize],
            refresh_every: second,
            count: Count::default(),
            pages: 0,
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

    /// A block for the CPU whose turn it is; `None` if it was refused.
    pub fn alloc(&mut self, order: Order) -> Option<Pfn> {
        self.request(Request::new(order))
    }

    /// What is asked for, for the CPU whose turn it is; `None` if it was refused.
    pub fn request(&mut self, request: Request) -> Option<Pfn> {
        self.allocator.platform().work(self.machine.work.alloc);
        let block = self.allocator.alloc(request).ok();
        self.pages += block.map_or(0, |_| request.order.pages());
        self.count.allocs += u64::from(block.is_some());
        self.count.refused += u64::from(block.is_none());
        block
    }

    /// A block back from the CPU whose turn it is.
    ///
    /// # Panics
    /// If the block is not handed out.
    pub fn free(&mut self, block: Pfn, order: Order) {
        self.allocator.platform().work(self.machine.work.free);
        self.allocator.free(block, order).expect("a program frees what it was given");
        self.count.frees += 1;
        self.pages -= order.pages();
    }

    /// Base pages that programs hold.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The CPU whose turn it is touches the first `lines` lines of a block (all 64 of each page, if
    /// it has no more) for the kernel: zeroes, copies or looks at them.
    pub fn touch(&mut self, block: Pfn, order: Order, lines: u64, access: Access) {
        self.allocator.platform().touch(block, lines.min(PAGE_LINES << order.get()), access, false);
    }

    /// The same for a program, as part of its user time.
    pub fn user_touch(&mut self, block: Pfn, order: Order, lines: u64, access: Access) {
        self.allocator.platform().touch(block, lines.min(PAGE_LINES << order.get()), access, true);
    }

    /// The CPU whose turn it is works for a program, for as long as this takes alone.
    pub fn user_ns(&mut self, ns: u64) {
        let cycles = (ns as f64 * self.machine.ghz) as u64;
        self.allocator.platform().shared_work(cycles, true);
    }

    /// The same for the kernel.
    pub fn kernel_ns(&mut self, ns: u64) {
        let cycles = (ns as f64 * self.machine.ghz) as u64;
        self.allocator.platform().shared_work(cycles, false);
    }

    /// Lets a CPU that waits go on from now. Does nothing to one that does not wait.
    pub fn wake(&mut self, cpu: u32) {
        if self.idle[cpu as usize].is_some() {
            self.woken.push(cpu);
        }
    }

    /// Lets one CPU make `steps` steps that take no time.
    pub fn warm(&mut self, program: &mut dyn Program, cpu: u32, steps: u64) {
        self.allocator.platform().charge(false);
        self.allocator.platform().turn(cpu, 0);
        for _ in 0..steps {
            program.step(self, cpu);
        }
        self.allocator.platform().charge(true);
    }

    /// A time at which every CPU that has something to do has come to its next step.
    pub fn latest(&self) -> u64 {
        self.turns.iter().map(|turn| turn.0.0).max().unwrap_or(0)
    }

    /// The CPUs `0..cpus` start, each at a random time within `apart` cycles from `from` on.
    pub fn start(&mut self, cpus: u32, from: u64, apart: u64) {
        self.turns.clear();
        self.idle.fill(None);
        (self.played, self.beyond) = (from, Vec::new());
        for cpu in 0..cpus {
            let start = from + self.random_below(apart.max(1));
            self.turns.push(Reverse((start, cpu)));
        }
    }

    /// Lets the CPUs that were started make steps until each clock is at `until` cycles or there is
    /// nothing more to do. May be called again with a later time.
    pub fn play(&mut self, program: &mut dyn Program, until: u64) -> Outcome {
        let before = self.allocator.platform().totals();
        let count_before = self.count;
        let first = self.turns.peek().map_or(until, |turn| turn.0.0);
        let mut hash = Sha256::new();
        let (mut cycles, mut last) = (0, first);
        let from = self.played;
        let mut busy: u64 =
            self.beyond.iter().map(|end| (*end).min(until).saturating_sub(from)).sum();
        self.beyond.retain(|end| *end > until);
        while let Some(Reverse((clock, cpu))) = self.turns.peek().copied() {
            if clock >= until {
                break;
            }
            let (took, turn) = self.step(program, cpu, clock);
            cycles += took;
            busy += took.min(until - clock);
            let clock = clock + took;
            if clock > until {
                self.beyond.push(clock);
            }
            last = last.max(clock);
            let next = match turn {
                Turn::More => Some(clock),
                Turn::Until(at) => Some(at.max(clock)),
                Turn::Wait | Turn::Done => None,
            };
            if let Some(next) = next {
                if let Some(mut top) = self.turns.peek_mut() {
                    *top = Reverse((next, cpu));
                }
            } else {
                self.turns.peek_mut().map(PeekMut::pop);
                self.idle[cpu as usize] = (turn == Turn::Wait).then_some(clock);
                hash.update(cpu.to_le_bytes());
                hash.update(clock.to_le_bytes());
            }
            while let Some(woken) = self.woken.pop() {
                if let Some(asleep) = self.idle[woken as usize].take() {
                    self.allocator.platform().forgive(woken);
                    self.turns.push(Reverse((asleep.max(clock), woken)));
                }
            }
        }
        self.played = until.max(from);
        let mut ends: Vec<(u32, u64)> = self.turns.iter().map(|t| (t.0.1, t.0.0)).collect();
        ends.sort_unstable();
        let (spent, happened) = self.allocator.platform().totals();
        let (spent, happened) = (spent.since(&before.0), happened.since(&before.1));
        let count = self.count.since(&count_before);
        hash.update(format!("{ends:?} {count:?} {spent:?} {happened:?}"));
        let hash = hex(&hash.finalize());
        Outcome { count, cycles, busy, elapsed: last - first, spent, happened, hash }
    }

    /// One step of one CPU: the cycles it took, and what comes next.
    fn step(&mut self, program: &mut dyn Program, cpu: u32, clock: u64) -> (u64, Turn) {
        let home = self.allocator.platform();
        home.turn(cpu, clock);
        home.reach(clock);
        let due = &mut self.refresh_at[cpu as usize];
        if clock >= *due {
            *due = clock + self.refresh_every;
            self.allocator.refresh(CpuId(cpu));
        }
        let turn = program.step(self, cpu);
        (self.allocator.platform().clock() - clock, turn)
    }
}

/// The zones of a machine: DMA and DMA32 on node 0, Normal above 4 GiB, as x86-64 has them. Where
/// less than 4 GiB lie below, the rest of those addresses are devices'.
pub fn zones(machine: &Machine) -> Vec<ZoneSpec> {
    let low_end = machine.low_memory_mib.map_or(DMA32_END, |mib| mib * MIB_PAGES);
    let mut zones = Vec::new();
    let mut start = 0;
    for node in 0..machine.nodes() {
        let end = start + machine.memory_mib * MIB_PAGES;
        for (kind, from, to, moved) in [
            (ZoneKind::Dma, 0, DMA_END, 0),
            (ZoneKind::Dma32, DMA_END, low_end, 0),
            (ZoneKind::Normal, low_end, u64::MAX, DMA32_END - low_end),
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
        assert_eq!(zones[2].start_pfn, DMA32_END);
        assert_eq!(zones[3].start_pfn, zones[2].start_pfn + zones[2].present);
        let pages: u64 = zones.iter().map(|zone| zone.present).sum();
        assert_eq!(pages, 2 * machine.memory_mib * MIB_PAGES);
    }
}
