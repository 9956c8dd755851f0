//! The core's platform with a page cache: the virtual machine and its reclaim.
//!
//! The core decides who reclaims which zone, when and how hard. Here is what a pass over the lists
//! finds, by the rules of the kernels of 2011 (LB H): what is dirty, being written, or mapped where
//! it may not be unmapped, goes to the new end of its list; only the background reclaimer writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use zonal_core::alloc::Allocator;
use zonal_core::gfp::Gfp;
use zonal_core::platform::reclaimer::{By, Holdings, Pass, Reclaimer, Shrunk, Unit};
use zonal_core::platform::{Platform, Step};
use zonal_core::reclaim::lists::{FileLists, Lists, shrink_lists};
use zonal_core::reclaim::{PASS_PAGES_MIN, PRIORITY_GENTLE};
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId};

use super::frames::Flag;
use super::model::Model;
use crate::cost::kernel::{EVICT_PAGE_NS, LOOK_PAGE_NS};
use crate::machine::Machine;
use crate::platform::VirtualPlatform;
use crate::provenance::{Provenance, cells, given};

given! {
    /// Passes whose priority is more than so much below the first wait for the disk (LB H.4).
    PATIENCE: u32 = 2,
        Provenance::sourced("reference of Linux' behaviour, H.4");
    /// A zone is exhausted after this many fruitless scans of all its pages (LB G.3).
    FRUITLESS_TIMES: u64 = 6,
        Provenance::sourced("reference of Linux' behaviour, G.3");
    /// Longest wait for the disk: a tenth of a second.
    pub CONGESTION_WAIT_NS: u64 = 100_000_000,
        Provenance::sourced("congestion_wait(HZ/10)");
    /// Default wait of a request for others.
    RELAX_NS: u64 = 1_000_000,
        Provenance::estimated("the granularity of sleeps");
    /// Thousandths of the memory for files that may be dirty before writers wait: `vm.dirty_ratio`,
    /// 20 percent.
    pub DIRTY_PERMILLE: u64 = 200,
        Provenance::seen(
            "the default of vm.dirty_ratio",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
}

/// The allocator on this platform.
pub type CacheAllocator<'a> = Allocator<'a, CachePlatform<'a>>;

/// The platform.
#[derive(Debug)]
pub struct CachePlatform<'a> {
    inner: VirtualPlatform,
    model: Mutex<Model>,
    allocator: OnceLock<Weak<CacheAllocator<'a>>>,
    /// Node of each zone.
    node_of: Vec<NodeId>,
    /// Background reclaimers that were woken.
    woken: Vec<AtomicBool>,
    /// The background reclaimer that runs now waits for the disk before its next pass.
    naps: AtomicBool,
    reclaiming: AtomicBool,
    /// Node reclaim of the step that is being made: of what, and until when.
    tries: Mutex<Vec<(Unit, u64)>>,
    scale: u64,
    ghz: f64,
    /// Wake-ups of background reclaimers so far.
    pub wakes: AtomicU64,
}

// Relaxed throughout: one thread uses it.
impl<'a> CachePlatform<'a> {
    /// A machine with zones on these nodes and this cache.
    pub fn new(
        machine: &Machine,
        node_of: Vec<NodeId>,
        model: Model,
        scale: u64,
    ) -> CachePlatform<'a> {
        CachePlatform {
            inner: VirtualPlatform::new(machine, node_of.len()),
            model: Mutex::new(model),
            allocator: OnceLock::new(),
            node_of,
            woken: (0..machine.nodes()).map(|_| AtomicBool::new(false)).collect(),
            naps: AtomicBool::new(false),
            reclaiming: AtomicBool::new(false),
            tries: Mutex::new(Vec::new()),
            scale,
            ghz: machine.ghz,
            wakes: AtomicU64::new(0),
        }
    }

    /// Pages are freed into this allocator.
    pub fn serves(&self, allocator: Weak<CacheAllocator<'a>>) {
        self.allocator.get_or_init(|| allocator);
    }

    /// The cache.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is this CPU's turn, at this time.
    pub fn turn_ns(&self, cpu: u32, now_ns: u64) {
        self.inner.turn(cpu, (now_ns as f64 * self.ghz).ceil() as u64);
    }

    /// Whether what follows takes time.
    pub fn charge(&self, charges: bool) {
        self.inner.charge(charges);
    }

    /// The running CPU works on pages of the model, with a time for each page of the machine that
    /// they stand for.
    pub fn work_on_pages(&self, pages: u64, ns_each: u64) {
        self.pass_ns(pages * self.scale * ns_each);
    }

    /// Advances the running CPU's clock.
    pub fn pass_ns(&self, ns: u64) {
        self.inner.work((ns as f64 * self.ghz) as u64);
    }

    /// Whether a node's background reclaimer was woken since this was asked.
    pub fn was_woken(&self, node: NodeId) -> bool {
        self.woken[usize::from(node.0)].swap(false, Relaxed)
    }

    /// What node reclaim did since this was asked: of what, and until when.
    pub fn tries(&self) -> Vec<(Unit, u64)> {
        std::mem::take(&mut *self.tries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count_try(&self, pass: &Pass) {
        if pass.by == By::NodeReclaim {
            let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
            tries.retain(|(unit, _)| *unit != pass.unit);
            tries.push((pass.unit, self.now_ns()));
        }
    }

    /// Whether the last pass waits for the disk afterwards.
    pub fn takes_nap(&self) -> bool {
        self.naps.swap(false, Relaxed)
    }

    /// Frees these frames, and those of heads no longer needed.
    pub fn give_back(&self, frames: &[u32]) {
        let Some(allocator) = self.allocator.get().and_then(Weak::upgrade) else { return };
        let mut model = self.model();
        let heads: Vec<u32> = std::iter::from_fn(|| model.spare_head()).collect();
        drop(model);
        for frame in frames.iter().chain(&heads) {
            let freed = allocator.free(Pfn(u64::from(*frame)), Order::ZERO);
            freed.expect("the cache holds pages that were handed out");
        }
    }

    fn in_unit(&self, unit: Unit, zone: usize) -> bool {
        match unit {
            Unit::Node(node) => self.node_of[zone] == node,
            Unit::Zone(id) => usize::from(id.0) == zone,
        }
    }

    /// The lists of a unit: of a node, where nodes are reclaimed, those that its zones share.
    fn lists_of(&self, unit: Unit) -> Vec<usize> {
        self.lists_in(&self.model(), unit)
    }

    fn lists_in(&self, model: &Model, unit: Unit) -> Vec<usize> {
        let zones = (0..self.node_of.len()).filter(|zone| self.in_unit(unit, *zone));
        let mut lists: Vec<usize> = zones.map(|zone| model.list_of[zone]).collect();
        lists.dedup();
        lists
    }

    /// One look at the old end of an inactive list.
    fn shrink_inactive(&self, list: usize, pages: u64, pass: &Pass) -> Shrunk {
        let now_ns = self.now_ns();
        let mut model = self.model();
        model.advance(now_ns);
        let mut free = Vec::new();
        let mut scanned = 0;
        while scanned < pages {
            let Some(at) = model.lists[list].inactive.oldest() else { break };
            scanned += 1;
            match look_at(&mut model, at, pass, now_ns) {
                Verdict::Give => {
                    model.remove(at);
                    free.push(at);
                }
                Verdict::Keep => {
                    model.take_off(at);
                    model.put(at, false);
                }
                Verdict::Activate => {
                    model.take_off(at);
                    model.put(at, true);
                }
            }
        }
        if free.is_empty() {
            model.lists[list].fruitless += scanned;
        }
        drop(model);
        self.work_on_pages(scanned, LOOK_PAGE_NS);
        self.work_on_pages(free.len() as u64, EVICT_PAGE_NS);
        self.give_back(&free);
        Shrunk { scanned, reclaimed: free.len() as u64, slab: 0 }
    }

    /// Old active pages become inactive.
    fn shrink_active(&self, list: usize, pages: u64) {
        let mut model = self.model();
        let mut moved = 0;
        while moved < pages {
            let Some(at) = model.lists[list].active.oldest() else { break };
            model.frames.of(at).clear(Flag::Young);
            model.take_off(at);
            model.put(at, false);
            moved += 1;
        }
        drop(model);
        self.work_on_pages(moved, LOOK_PAGE_NS);
    }

    /// One pass over the objects. Returns the reclaimed ones, and the pages. A file system's
    /// objects are left alone by who may be in the file system itself.
    fn shrink_objects(&self, pass: &Pass, priority: u32) -> (u64, u64) {
        if !pass.gfp.contains(Gfp::FS) {
            return (0, 0);
        }
        let mut model = self.model();
        let before = model.slab.scanned;
        let (objects, pages, stolen) = model.prune(priority);
        let looked = model.slab.scanned - before;
        drop(model);
        // Objects are not scaled.
        self.pass_ns(looked * LOOK_PAGE_NS);
        self.work_on_pages(stolen.len() as u64, EVICT_PAGE_NS);
        self.give_back(&pages);
        self.give_back(&stolen);
        (objects, pages.len() as u64)
    }

    /// The end of a pass (LB H.4): it starts write-back of dirty pages, and at low priorities waits
    /// for the disk, as kernels did in 2011.
    fn throttle(&self, pass: &Pass, came: Shrunk) {
        let mut model = self.model();
        if pass.by == By::Background {
            for list in self.lists_in(&model, pass.unit) {
                let lists = &mut model.lists[list];
                let most = FRUITLESS_TIMES * (lists.inactive.len + lists.active.len);
                lists.given_up |= lists.fruitless >= most;
            }
        }
        if pass.by == By::NodeReclaim || came.scanned == 0 {
            return;
        }
        if pass.by == By::Direct && came.scanned > PASS_PAGES_MIN * 3 / 2 {
            model.kicked = (model.kicked + came.scanned).min(model.dirty);
            model.progress = true;
        }
        if pass.priority + PATIENCE >= PRIORITY_GENTLE {
            return;
        }
        match pass.by {
            By::Background => self.naps.store(true, Relaxed),
            _ if model.disk.is_congested() => {
                let until = self.now_ns() + CONGESTION_WAIT_NS;
                while let Some(done) = model.disk.done_at_ns().filter(|done| *done <= until) {
                    model.advance(done);
                    if !model.disk.is_congested() {
                        break;
                    }
                }
                let done = if model.disk.is_congested() { until } else { self.now_ns() };
                let waited = done.saturating_sub(self.now_ns());
                drop(model);
                self.pass_ns(waited);
            }
            _ => {}
        }
    }
}

/// What becomes of a page that was looked at.
enum Verdict {
    Give,
    Keep,
    Activate,
}

/// LB H.6: whether the oldest inactive page is reclaimed.
fn look_at(model: &mut Model, at: u32, pass: &Pass, now_ns: u64) -> Verdict {
    let frame = model.frames.of(at);
    if frame.has(Flag::Reading) || (frame.has(Flag::Mapped) && !pass.may_unmap) {
        return Verdict::Keep;
    }
    if frame.has(Flag::Writeback) {
        frame.set(Flag::Rotate);
        return if model.moves_unwritten() { Verdict::Activate } else { Verdict::Keep };
    }
    if frame.has(Flag::Mapped) && frame.clear(Flag::Young) {
        return if frame.set(Flag::Referenced) { Verdict::Activate } else { Verdict::Keep };
    }
    model.unmap(at);
    if model.frames.get(at).has(Flag::Dirty) {
        // Only the background reclaimer writes, and node reclaim if its mode allows it.
        if pass.may_write && pass.by != By::Direct {
            model.frames.of(at).set(Flag::Rotate);
            model.vmscan_writes += u64::from(model.start_write(at, now_ns));
        } else if model.moves_unwritten() {
            model.frames.of(at).set(Flag::Rotate);
            return Verdict::Activate;
        }
        return Verdict::Keep;
    }
    Verdict::Give
}

/// The lists of one pass.
struct Scan<'s, 'a> {
    platform: &'s CachePlatform<'a>,
    list: usize,
    pass: &'s Pass,
}

impl Lists for Scan<'_, '_> {
    fn lengths(&mut self) -> FileLists {
        let model = self.platform.model();
        let lists = &model.lists[self.list];
        FileLists { inactive: lists.inactive.len, active: lists.active.len }
    }
    fn inactive_is_low(&mut self) -> bool {
        self.platform.model().inactive_is_low(self.list)
    }
    fn shrink_inactive(&mut self, pages: u64) -> Shrunk {
        self.platform.shrink_inactive(self.list, pages, self.pass)
    }
    fn shrink_active(&mut self, pages: u64) {
        self.platform.shrink_active(self.list, pages);
    }
}

impl Reclaimer for CachePlatform<'_> {
    fn holdings(&self, unit: Unit) -> Holdings {
        let model = self.model();
        let mut held = Holdings { all_unreclaimable: true, ..Holdings::default() };
        for zone in (0..self.node_of.len()).filter(|zone| self.in_unit(unit, *zone)) {
            let sizes = model.sizes[zone];
            held.inactive_file += sizes.listed[0];
            held.active_file += sizes.listed[1];
            held.file_mapped += sizes.mapped;
            held.file_dirty += sizes.dirty;
            held.slab += model.slab.by_zone[zone];
            held.all_unreclaimable &= model.lists[model.list_of[zone]].given_up;
        }
        held.file = held.inactive_file + held.active_file;
        held
    }

    fn may_dirty(&self, node: NodeId, free: u64) -> bool {
        let model = self.model();
        let sizes = model.sizes.iter().zip(&self.node_of).filter(|(_, of)| **of == node);
        let (mut dirtyable, mut unwritten) = (free, 0);
        for (sizes, _) in sizes {
            dirtyable += sizes.listed[0] + sizes.listed[1];
            unwritten += sizes.dirty + sizes.writeback;
        }
        unwritten <= dirtyable * DIRTY_PERMILLE / 1000
    }

    fn shrink(&self, pass: &Pass) -> Shrunk {
        self.reclaiming.store(true, Relaxed);
        let mut came = Shrunk::default();
        for list in self.lists_of(pass.unit) {
            came = came.plus(shrink_lists(&mut Scan { platform: self, list, pass }, pass));
        }
        // Node reclaim of zones asks for objects apart.
        if pass.by != By::NodeReclaim || matches!(pass.unit, Unit::Node(_)) {
            came.slab += self.shrink_objects(pass, pass.priority).1;
        }
        self.throttle(pass, came);
        self.reclaiming.store(false, Relaxed);
        self.count_try(pass);
        came
    }

    fn shrink_slab(&self, pass: &Pass) -> u64 {
        let objects = self.shrink_objects(pass, 0).0;
        self.count_try(pass);
        objects
    }

    fn objects_scanned(&self) -> u64 {
        self.model().slab.scanned
    }

    fn is_reclaiming(&self) -> bool {
        self.reclaiming.load(Relaxed)
    }
}

impl Wait for CachePlatform<'_> {
    fn wait(&self, word: &LockWord, value: u32) {
        self.inner.wait(word, value);
    }
    fn wake_one(&self, word: &LockWord) {
        self.inner.wake_one(word);
    }
}

impl Platform for CachePlatform<'_> {
    const CHARGES: bool = true;

    fn cpu(&self) -> CpuId {
        self.inner.cpu()
    }
    fn fence(&self, cpu: CpuId) -> bool {
        self.inner.fence(cpu)
    }
    fn uses_gates(&self) -> bool {
        self.inner.uses_gates()
    }
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }
    fn relax(&self) {
        self.pass_ns(RELAX_NS);
    }
    fn wake_reclaim(&self, node: NodeId, _zone: ZoneId, _order: u32) {
        self.wakes.fetch_add(1, Relaxed);
        self.woken[usize::from(node.0)].store(true, Relaxed);
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        Some(self)
    }
    fn cost(&self, step: Step) {
        let before = self.inner.clock();
        self.inner.cost(step);
        // A page of the model stands for `scale` pages of the machine.
        self.inner.work((self.inner.clock() - before) * (self.scale - 1));
    }
}
