//! The platform of all tests of this crate, and machines in vectors.
//!
//! A test chooses the CPU it runs as ([`on_cpu`]). One thread plays all CPUs, unless the stage is
//! [for threads](Stage::for_threads). What a test's platform does besides, such as reclaim, is a
//! [`Behaviour`].
//!
//! Unit tests compile this file too: they are in the crate and name it as integration tests do.
#![allow(dead_code, unreachable_pub, reason = "no test uses all of it")]

extern crate std;

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::time::{Duration, Instant};
use std::vec::Vec;

use zonal_core::alloc::Allocator;
use zonal_core::machine::{Layout, Machine, MachineError, Metadata, ZoneSpec};
use zonal_core::pcp::owner::{OwnedBlock, Owner};
use zonal_core::pcp::state::Pcp;
use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::platform::{FixedPolicy, Platform, Step};
use zonal_core::policy::{PcpPolicy, Policy};
use zonal_core::sync::{
    AtomicU8, AtomicU32, AtomicU64, LockWord, Ordering, Ordering::Relaxed, Wait,
};
use zonal_core::types::{CpuId, NodeId, Pfn, ZoneId, ZoneKind};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

/// Ours without depots: lists that go to the buddy themselves, as Linux' do.
pub const LISTS_ALONE: Policy = Policy {
    pcp: PcpPolicy { orders: Policy::ZONAL.pcp.orders, ..Policy::LINUX_6_18.pcp },
    ..Policy::ZONAL
};

/// A thread that makes no step for so long is gone.
pub const HUNG: Duration = Duration::from_secs(180);

/// What another CPU does at some moment.
type Meanwhile = Box<dyn FnOnce()>;
type Look = Box<dyn Fn()>;

std::thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static RELAXED: Cell<u32> = const { Cell::new(0) };
    static AT_RELAX: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    static AT_LOCK: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    static AT_UNLOCK: RefCell<Option<Look>> = const { RefCell::new(None) };
    static MASKS: Cell<Masks> = const { Cell::new(Masks { made: 0, depth: 0, at_unlock: 0 }) };
    static STEPS: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
    static FENCES: Cell<Fences> = const { Cell::new(Fences::ALL) };
}

/// Fences that are granted.
#[derive(Clone, Copy, Debug)]
pub struct Fences {
    /// So many more; then the platform ends sequences.
    pub left: u64,
    /// Whether another way is left afterwards.
    pub else_by_visit: bool,
}

impl Fences {
    const ALL: Fences = Fences { left: u64::MAX, else_by_visit: true };
}

/// Grants so many fences from now on.
pub fn fences(granted: Fences) {
    FENCES.set(granted);
}

/// What a test's platform does besides serving as one: nothing, if it does not say so.
pub trait Behaviour: Sync {
    /// As [`Platform::POLICY`].
    const POLICY: Option<FixedPolicy> = None;
    /// As [`Platform::CHARGES`].
    const CHARGES: bool = false;

    /// The time.
    fn now_ns(&self) -> u64 {
        0
    }
    /// As [`Platform::reclaimer`].
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        None
    }
    /// As [`Platform::wake_reclaim`].
    fn wake_reclaim(&self, _node: NodeId, _zone: ZoneId) {}
    /// As [`Platform::reclaim_progress`].
    fn reclaim_progress(&self) {}
    /// As [`Platform::wait_for_progress`].
    fn wait_for_progress(&self, _most_ns: u64) {}
    /// As [`Platform::wait_for_memory`].
    fn wait_for_memory(&self) -> bool {
        false
    }
}

/// Nothing besides.
#[derive(Debug, Default)]
pub struct Plain;

impl Behaviour for Plain {}

/// It charges for steps.
#[derive(Debug, Default)]
pub struct Charging;

impl Behaviour for Charging {
    const CHARGES: bool = true;
}

/// A stage that behaves in no special way.
pub type Script = Stage<Plain>;

/// The platform.
#[derive(Debug, Default)]
pub struct Stage<B> {
    pub woken: AtomicU64,
    /// `None`: there are sequences, which the tests play. Else whether the core uses gates.
    pub gates: Option<bool>,
    /// Sequences, and gates where none runs.
    pub both: bool,
    /// Work items queued, and pcps emptied by another CPU.
    pub drains: [AtomicU64; 2],
    /// A fence failed.
    pub refused: AtomicU8,
    /// CPUs are threads, which wait for each other.
    pub threads: bool,
    /// Waits for locks that were taken.
    pub waits: AtomicU64,
    pub own: B,
}

impl<B: Default> Stage<B> {
    /// A platform without sequences that behaves in this way.
    pub fn with(own: B) -> Stage<B> {
        Stage { gates: Some(true), own, ..Stage::default() }
    }

    /// The same where threads wait for each other; each says itself which CPU it is on.
    pub fn for_threads(own: B) -> Stage<B> {
        Stage { threads: true, ..Stage::with(own) }
    }
}

impl<B> Deref for Stage<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.own
    }
}

impl<B: Sync> Wait for Stage<B> {
    fn wait(&self, _word: &LockWord, _value: u32) {
        assert!(self.threads, "one thread never waits for itself");
        self.waits.fetch_add(1, Relaxed);
        std::thread::yield_now();
    }
    fn wake_one(&self, _word: &LockWord) {}
    fn mask(&self) -> usize {
        let Masks { made, depth, .. } = MASKS.get();
        MASKS.set(Masks { made: made + 1, depth: depth + 1, ..MASKS.get() });
        depth
    }
    fn unmask(&self, was: usize) {
        assert_eq!(MASKS.get().depth, was + 1, "masks nest");
        MASKS.set(Masks { depth: was, ..MASKS.get() });
        if let Some(look) = AT_UNLOCK.take() {
            look();
            AT_UNLOCK.set(Some(look));
        }
    }
}

/// What was masked so far.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    pub made: u64,
    /// Masks now.
    pub depth: usize,
    /// The same the last time that a zone lock was about to be given back.
    pub at_unlock: usize,
}

pub fn masks() -> Masks {
    MASKS.get()
}

impl<B: Behaviour> Platform for Stage<B> {
    const POLICY: Option<FixedPolicy> = B::POLICY;
    const CHARGES: bool = B::CHARGES;

    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn fence(&self, cpu: CpuId) -> bool {
        let granted = FENCES.get();
        if cpu == self.cpu() {
            return true;
        }
        if let Some(left) = granted.left.checked_sub(1) {
            FENCES.set(Fences { left, ..granted });
            return true;
        }
        self.refused.store(1, Relaxed);
        granted.else_by_visit
    }
    fn has_sequences(&self) -> bool {
        self.gates.is_none()
    }
    fn uses_gates(&self) -> bool {
        self.gates == Some(true) || self.both
    }
    fn ends_sequences(&self) -> bool {
        self.refused.load(Relaxed) != 0
    }
    fn now_ns(&self) -> u64 {
        self.own.now_ns()
    }
    fn relax(&self) {
        if self.threads {
            return std::thread::yield_now();
        }
        RELAXED.set(RELAXED.get() + 1);
        assert!(RELAXED.get() < 1_000_000, "one thread waits for itself");
        if let Some(meanwhile) = AT_RELAX.take() {
            run_as_other(meanwhile);
        }
    }
    fn cost(&self, step: Step) {
        STEPS.with_borrow_mut(|steps| steps.iter_mut().for_each(|steps| steps.push(step)));
        if let Step::ZoneLock(_) = step
            && let Some(meanwhile) = AT_LOCK.take()
        {
            run_as_other(meanwhile);
        }
        if let Step::ZoneUnlock { .. } = step {
            MASKS.set(Masks { at_unlock: MASKS.get().depth, ..MASKS.get() });
        }
        match step {
            Step::DrainWork(_) => self.drains[0].fetch_add(1, Relaxed),
            Step::DrainRemote(..) => self.drains[1].fetch_add(1, Relaxed),
            _ => 0,
        };
    }
    fn wake_reclaim(&self, node: NodeId, zone: ZoneId, _order: u32) {
        self.woken.fetch_add(1, Relaxed);
        self.own.wake_reclaim(node, zone);
    }
    fn reclaim_progress(&self, _node: NodeId) {
        self.own.reclaim_progress();
    }
    fn wait_for_progress(&self, _node: NodeId, most_ns: u64) {
        self.own.wait_for_progress(most_ns);
    }
    fn wait_for_memory(&self) -> bool {
        self.own.wait_for_memory()
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        self.own.reclaimer()
    }
}

/// Runs as this CPU from now on.
pub fn on_cpu(cpu: u32) {
    CPU.set(cpu);
}

/// Runs `meanwhile` when the core next waits for a pcp that somebody has closed.
pub fn while_waiting(meanwhile: impl FnOnce() + 'static) {
    AT_RELAX.set(Some(Box::new(meanwhile)));
}

/// Runs `meanwhile` just before the core next takes a zone lock.
pub fn before_the_next_lock(meanwhile: impl FnOnce() + 'static) {
    AT_LOCK.set(Some(Box::new(meanwhile)));
}

/// Runs `look` whenever this thread has given back a lock or a gate, from now on.
pub fn at_each_unlock(look: impl Fn() + 'static) {
    AT_UNLOCK.set(Some(Box::new(look)));
}

/// What the core asks to be charged for while `work` runs.
pub fn steps_of(work: impl FnOnce()) -> Vec<Step> {
    STEPS.set(Some(Vec::new()));
    work();
    STEPS.take().unwrap_or_default()
}

fn run_as_other(meanwhile: Meanwhile) {
    let cpu = CPU.get();
    meanwhile();
    CPU.set(cpu);
}

/// A machine in vectors.
#[derive(Clone, Debug)]
pub struct Shape {
    pub distances: Vec<u8>,
    pub zones: Vec<ZoneSpec>,
    pub cpus: Vec<NodeId>,
    /// LB E.5.
    pub cache_slice_bytes: u64,
    /// The last-level cache of each CPU; empty: not known.
    pub caches: Vec<u16>,
}

/// The metadata of a machine, in vectors.
struct Records {
    zones: Vec<Zone>,
    pcps: Vec<Pcp>,
    words: Vec<AtomicU64>,
    blocks: Vec<AtomicU8>,
    slots: Vec<AtomicU32>,
    nodes: Vec<Node>,
    zonelist: Vec<ZoneId>,
    numa: Vec<NumaDeltas>,
    owners: Vec<Owner>,
    owned: Vec<OwnedBlock>,
}

impl Records {
    /// As the layout says, and `spare` more of each.
    fn new(layout: &Layout, spare: usize) -> Records {
        fn vec<T>(len: usize, zero: impl Fn() -> T) -> Vec<T> {
            (0..len).map(|_| zero()).collect()
        }
        Records {
            zones: vec(layout.zones + spare, Zone::default),
            pcps: vec(layout.pcps + spare, Pcp::default),
            words: vec(layout.words + spare, || AtomicU64::new(0)),
            blocks: vec(layout.blocks + spare, || AtomicU8::new(0)),
            slots: vec(layout.slots + spare, || AtomicU32::new(0)),
            nodes: vec(layout.nodes + spare, Node::default),
            zonelist: vec(layout.zonelist + spare, || ZoneId(0)),
            numa: vec(layout.numa + spare, NumaDeltas::default),
            owners: vec(layout.owners + spare, Owner::default),
            owned: vec(layout.owned + spare, OwnedBlock::default),
        }
    }

    fn metadata(&mut self) -> Metadata<'_> {
        Metadata {
            zones: &mut self.zones,
            pcps: &mut self.pcps,
            words: &mut self.words,
            blocks: &mut self.blocks,
            slots: &mut self.slots,
            nodes: &mut self.nodes,
            zonelist: &mut self.zonelist,
            numa: &mut self.numa,
            owners: &mut self.owners,
            owned: &mut self.owned,
        }
    }
}

impl Shape {
    /// `nodes` nodes of one Normal zone of `pages` pages, each with `cpus` CPUs.
    pub fn uniform(nodes: usize, pages: u64, cpus: usize) -> Shape {
        Shape {
            distances: distances(nodes),
            zones: (0..nodes)
                .map(|node| zone(node as u16, ZoneKind::Normal, node as u64 * pages, pages))
                .collect(),
            cpus: (0..nodes * cpus).map(|cpu| NodeId((cpu / cpus) as u16)).collect(),
            cache_slice_bytes: 0,
            caches: Vec::new(),
        }
    }

    pub fn machine(&self) -> Machine<'_> {
        Machine {
            distances: &self.distances,
            zones: &self.zones,
            cpus: &self.cpus,
            cache_slice_bytes: self.cache_slice_bytes,
            caches: &self.caches,
        }
    }

    /// An allocator with all memory online. Its records live as long as the process: tests are
    /// short.
    pub fn boot(self, policy: Policy) -> Allocator<'static, Script> {
        let shape: &'static Shape = Box::leak(Box::new(self));
        shape.boot_on(policy, Script::default())
    }

    /// The same on another platform.
    pub fn boot_on<P: Platform>(
        &'static self,
        policy: Policy,
        platform: P,
    ) -> Allocator<'static, P> {
        let layout = Layout::of(&self.machine(), &policy).expect("the shape is a machine");
        let records = Box::leak(Box::new(Records::new(&layout, 0)));
        self.start(policy, records, platform)
    }

    /// An allocator that starts with the first section of each node's highest zone. Holes are at
    /// the start of a zone; behind them `reserved` pages, at most half, never come online.
    pub fn boot_deferred<P: Platform>(
        self,
        policy: Policy,
        platform: P,
        reserved: u64,
    ) -> Allocator<'static, P> {
        let shape: &'static Shape = Box::leak(Box::new(self));
        let layout = Layout::of(&shape.machine(), &policy).expect("the shape is a machine");
        let records = Box::leak(Box::new(Records::new(&layout, 0)));
        let allocator = shape.make(policy, records, platform);
        for (id, zone) in shape.zones.iter().enumerate() {
            let holes = zone.spanned - zone.present;
            let start = zone.start_pfn + holes + reserved.min(zone.present / 2);
            let pages = Pfn(start)..Pfn(zone.start_pfn + zone.spanned);
            allocator.online_deferred(ZoneId(id as u16), pages).expect("fresh memory");
        }
        allocator.setup();
        allocator
    }

    /// Runs `test` on an allocator whose records have `spare` entries too many and are gone
    /// afterwards: for tests that make thousands of allocators.
    pub fn scoped<R>(
        &self,
        policy: Policy,
        spare: usize,
        test: impl FnOnce(&Allocator<'_, Script>) -> R,
    ) -> R {
        self.scoped_on(policy, spare, Script::default(), test)
    }

    /// The same on another platform.
    pub fn scoped_on<P: Platform, R>(
        &self,
        policy: Policy,
        spare: usize,
        platform: P,
        test: impl FnOnce(&Allocator<'_, P>) -> R,
    ) -> R {
        let layout = Layout::of(&self.machine(), &policy).expect("the shape is a machine");
        let mut records = Records::new(&layout, spare);
        test(&self.start(policy, &mut records, platform))
    }

    /// Two allocators without memory, one after the other over the same records.
    pub fn one_after_the_other<P: Platform>(
        &self,
        policy: Policy,
        platforms: [P; 2],
        mut test: impl FnMut(&Allocator<'_, P>),
    ) {
        let layout = Layout::of(&self.machine(), &policy).expect("the shape is a machine");
        let mut records = Records::new(&layout, 0);
        for platform in platforms {
            test(&self.make(policy, &mut records, platform));
        }
    }

    fn start<'a, P: Platform>(
        &'a self,
        policy: Policy,
        records: &'a mut Records,
        platform: P,
    ) -> Allocator<'a, P> {
        let allocator = self.make(policy, records, platform);
        for (id, zone) in self.zones.iter().enumerate() {
            let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
            allocator.online(ZoneId(id as u16), pages).expect("fresh memory");
        }
        allocator.setup();
        allocator
    }

    /// An allocator without memory, or why there is none.
    pub fn try_make<P: Platform>(
        &'static self,
        policy: Policy,
        layout: &Layout,
        platform: P,
    ) -> Result<Allocator<'static, P>, MachineError> {
        let records = Box::leak(Box::new(Records::new(layout, 0)));
        Allocator::new(&self.machine(), policy, records.metadata(), platform)
    }

    /// An allocator without memory.
    fn make<'a, P: Platform>(
        &'a self,
        policy: Policy,
        records: &'a mut Records,
        platform: P,
    ) -> Allocator<'a, P> {
        on_cpu(0);
        fences(Fences::ALL);
        let machine = self.machine();
        Allocator::new(&machine, policy, records.metadata(), platform)
            .expect("the metadata is as large as the layout says")
    }
}

/// 10 to itself, 20 to others.
pub fn distances(nodes: usize) -> Vec<u8> {
    (0..nodes * nodes).map(|i| if i / nodes == i % nodes { 10 } else { 20 }).collect()
}

/// A zone without holes.
pub fn zone(node: u16, kind: ZoneKind, start_pfn: u64, pages: u64) -> ZoneSpec {
    ZoneSpec { node: NodeId(node), kind, start_pfn, spanned: pages, present: pages }
}

/// Does `first` and waits until `turn` has reached `until`.
pub fn meet(turn: &AtomicU32, until: u32, first: impl FnOnce()) {
    first();
    turn.fetch_add(1, Ordering::SeqCst);
    let start = Instant::now();
    while turn.load(Ordering::SeqCst) < until {
        // Spin for a while, so that both leave at the same moment.
        for _ in 0..200 {
            if turn.load(Ordering::SeqCst) >= until {
                return;
            }
            std::hint::spin_loop();
        }
        assert!(start.elapsed() < HUNG, "the other thread is gone");
        std::thread::yield_now();
    }
}

/// Waits for a moment: which of two CPUs comes first, and by how much, changes from round to round.
pub fn stagger(round: u32, cpu: u32) {
    for _ in 0..round.wrapping_mul(0x9e37_79b9 ^ cpu << 20) >> 24 {
        std::hint::black_box(());
    }
}

/// Runs `steps` steps of a delta from 0, where a step gives the next delta and what it folded. For
/// each fold: the step's number, the folded value and the remaining delta.
pub fn folds(steps: usize, step: impl Fn(i64) -> (i64, i64)) -> Vec<(usize, i64, i64)> {
    let mut diff = 0;
    let mut seen = Vec::new();
    for i in 1..=steps {
        let (next, fold) = step(diff);
        diff = next;
        if fold != 0 {
            seen.push((i, fold, diff));
        }
    }
    seen
}
