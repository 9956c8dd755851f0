//! A platform of plain threads for integration tests: no restartable sequences, locks that yield.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use zonal_core::alloc::Allocator;
use zonal_core::machine::{Layout, Machine, Metadata, ZoneSpec};
use zonal_core::pcp::state::Pcp;
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

thread_local!(static CPU: Cell<u32> = const { Cell::new(0) });

/// The calling thread runs on this CPU from now on.
pub fn on_cpu(cpu: u32) {
    CPU.set(cpu);
}

/// Threads of this process; each says itself which CPU it is on.
#[derive(Debug, Default)]
pub struct Threads;

impl Wait for Threads {
    fn wait(&self, _word: &LockWord, _value: u32) {
        std::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for Threads {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn relax(&self) {
        std::thread::yield_now();
    }
}

/// A machine and its policy. Records live as long as the process: tests are short.
pub struct TestMachine {
    zones: Vec<ZoneSpec>,
    cpus: Vec<NodeId>,
    distances: Vec<u8>,
    policy: Policy,
}

impl TestMachine {
    /// `nodes` nodes of one Normal zone of `pages` pages, each with `cpus` CPUs.
    pub fn uniform(nodes: usize, pages: u64, cpus: usize) -> TestMachine {
        let zone = |node: usize| ZoneSpec {
            node: NodeId(node as u16),
            kind: ZoneKind::Normal,
            start_pfn: node as u64 * pages,
            spanned: pages,
            present: pages,
        };
        let distance = |i: usize| if i / nodes == i % nodes { 10 } else { 20 };
        TestMachine {
            zones: (0..nodes).map(zone).collect(),
            cpus: (0..nodes * cpus).map(|cpu| NodeId((cpu / cpus) as u16)).collect(),
            distances: (0..nodes * nodes).map(distance).collect(),
            policy: Policy::ZONAL,
        }
    }

    pub fn policy(self, policy: Policy) -> TestMachine {
        TestMachine { policy, ..self }
    }

    /// An allocator with all memory online.
    pub fn boot(self) -> Allocator<'static, Threads> {
        let parts: &'static TestMachine = Box::leak(Box::new(self));
        let machine = Machine {
            distances: &parts.distances,
            zones: &parts.zones,
            cpus: &parts.cpus,
            cache_slice_bytes: 0,
            caches: &[],
        };
        fn some<T>(len: usize, zero: impl Fn() -> T) -> &'static mut [T] {
            Vec::leak((0..len).map(|_| zero()).collect())
        }
        let layout = Layout::of(&machine, &parts.policy).unwrap();
        let metadata = Metadata {
            zones: some(layout.zones, Zone::default),
            pcps: some(layout.pcps, Pcp::default),
            words: some(layout.words, || AtomicU64::new(0)),
            blocks: some(layout.blocks, || AtomicU8::new(0)),
            slots: some(layout.slots, || AtomicU32::new(0)),
            nodes: some(layout.nodes, Node::default),
            zonelist: some(layout.zonelist, || ZoneId(0)),
            numa: some(layout.numa, NumaDeltas::default),
        };
        let allocator = Allocator::new(&machine, parts.policy, metadata, Threads).unwrap();
        for (id, zone) in parts.zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            allocator.online(ZoneId(id as u16), pages).unwrap();
        }
        allocator.setup();
        allocator
    }
}
