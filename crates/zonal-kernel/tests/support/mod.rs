//! A kernel of the tests: two nodes, two zones on the first, two CPUs; what its CPUs do is up to a
//! test.
#![allow(dead_code, reason = "each test program uses a part")]

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use zonal_core::alloc::Allocator;
use zonal_core::machine::{Layout, Machine, Metadata, ZoneSpec};
use zonal_core::pcp::state::Pcp;
use zonal_core::policy::Policy;
use zonal_core::sync::{AtomicU8, AtomicU32};
use zonal_core::types::{NodeId, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;
use zonal_kernel::fence::{FenceCell, Fences, Patience};
use zonal_kernel::{Kernel, KernelPlatform};

/// What happens in front of a mask, until it says that it did.
type Interrupt = Box<dyn FnMut() -> bool>;

thread_local! {
    /// The CPU that the thread plays.
    pub static CPU: Cell<u32> = const { Cell::new(0) };
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
    /// Masks of the thread that are not undone.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// From now on this happens in front of each mask of this thread that is not inside of another,
/// until it says that it did.
pub fn on_mask(interrupt: Interrupt) {
    INTERRUPT.set(Some(interrupt));
}

/// Whether it did. It does not happen any more.
pub fn came() -> bool {
    INTERRUPT.take().is_none()
}

/// An interrupt, if one is to come.
fn interrupt() {
    let Some(mut interrupt) = INTERRUPT.take() else { return };
    if !interrupt() {
        INTERRUPT.set(Some(interrupt));
    }
}

/// The kernel: remembers whom it interrupted.
#[derive(Default)]
pub struct TestKernel {
    pub interrupted: Mutex<Vec<u32>>,
    pub clock_ns: AtomicU64,
    pub masks: AtomicU64,
    pub has_sections: bool,
}

impl Kernel for TestKernel {
    fn cpu(&self) -> u32 {
        CPU.get()
    }
    fn mask(&self) -> usize {
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            interrupt();
        }
        self.masks.fetch_add(1, SeqCst);
        0
    }
    fn unmask(&self, _was: usize) {
        self.masks.fetch_sub(1, SeqCst);
        DEPTH.set(DEPTH.get() - 1);
    }
    fn has_sections(&self) -> bool {
        self.has_sections
    }
    fn interrupt(&self, cpu: u32) {
        self.interrupted.lock().unwrap().push(cpu);
    }
    fn now_ns(&self) -> u64 {
        self.clock_ns.fetch_add(1000, SeqCst)
    }
}

/// Its cells.
pub struct Machine2 {
    pub cells: Vec<FenceCell>,
}

impl Default for Machine2 {
    fn default() -> Machine2 {
        Machine2 { cells: vec![FenceCell::new(), FenceCell::new()] }
    }
}

/// Its allocator.
pub type Pages<'a> = Allocator<'a, KernelPlatform<'a, TestKernel>>;

impl Machine2 {
    /// Runs `body` with an allocator of 96 MiB on two nodes.
    pub fn with(&self, kernel: TestKernel, body: impl FnOnce(&Pages<'_>)) {
        // Policies that record each allocation have no sections.
        self.with_policy(kernel, Policy::ZONAL, body);
    }

    /// The same under this policy.
    pub fn with_policy(&self, kernel: TestKernel, policy: Policy, body: impl FnOnce(&Pages<'_>)) {
        let zone = |node, kind, start_pfn, pages| ZoneSpec {
            node: NodeId(node),
            kind,
            start_pfn,
            spanned: pages,
            present: pages,
        };
        let zones = [
            zone(0, ZoneKind::Dma32, 0x1000, 0x1000),
            zone(0, ZoneKind::Normal, 0x10_0000, 0x3000),
            zone(1, ZoneKind::Normal, 0x10_3000, 0x2000),
        ];
        let machine = Machine {
            distances: &[10, 20, 20, 10],
            zones: &zones,
            cpus: &[NodeId(0), NodeId(1)],
            cache_slice_bytes: 0,
            caches: &[],
        };
        let layout = Layout::of(&machine, &policy).unwrap();
        let mut zone_records: Vec<_> = (0..layout.zones).map(|_| Zone::default()).collect();
        let mut pcps: Vec<_> = (0..layout.pcps).map(|_| Pcp::default()).collect();
        let mut words: Vec<_> = (0..layout.words).map(|_| AtomicU64::new(0)).collect();
        let mut blocks: Vec<_> = (0..layout.blocks).map(|_| AtomicU8::new(0)).collect();
        let mut slots: Vec<_> = (0..layout.slots).map(|_| AtomicU32::new(0)).collect();
        let mut nodes: Vec<_> = (0..layout.nodes).map(|_| Node::default()).collect();
        let mut zonelist = vec![ZoneId::default(); layout.zonelist];
        let mut numa: Vec<_> = (0..layout.numa).map(|_| NumaDeltas::default()).collect();
        let metadata = Metadata {
            zones: &mut zone_records,
            pcps: &mut pcps,
            words: &mut words,
            blocks: &mut blocks,
            slots: &mut slots,
            nodes: &mut nodes,
            zonelist: &mut zonelist,
            numa: &mut numa,
            owners: &mut [],
            owned: &mut [],
        };
        let fences = Fences::new(&self.cells, Patience { ns: 1_000_000, looks: 1 << 40 });
        let platform = KernelPlatform::new(kernel, fences);
        let on = Allocator::new(&machine, policy, metadata, platform).unwrap();
        for (id, zone) in zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            on.online(ZoneId(id as u16), pages).unwrap();
        }
        on.setup();
        body(&on);
        assert_eq!(on.platform().kernel().masks.load(SeqCst), 0, "a mask was not undone");
        on.validate().unwrap();
    }
}
