//! Who is registered with a pool, and how each is called.
//!
//! # Invariants
//! - **REG-1** a consumer is called only under a shared lock of the list, and leaves the list only
//!   under an exclusive one: when a [`Registration`] is gone, no call is under way.
//! - **REG-2** a thread inside a consumer ([`Inside`]) takes no lock of the list again: neither a
//!   request nor a report of that thread calls consumers.
//! - **REG-3** a forked child calls nobody: locks of consumers may be held there for ever.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
};
use std::time::{Duration, Instant};

use zonal_core::machine::Machine;
use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::reclaim::lists::{FileLists, Lists, shrink_lists};
use zonal_core::reclaim::shrinker::ShrinkPass;
use zonal_core::types::{NodeId, PAGE_SIZE};

use super::isolation::{self, Isolation};
use super::last_resort::LastResort;
use super::{
    By, Holdings, OutOfMemory, PageLru, Pass, ScanRequest, Scanned, Shrinker, Shrunk, Unit,
};

/// The smallest object that a count of objects can mean, in bytes.
const OBJECT_BYTES_MIN: u64 = 8;

/// How long one pass of a direct reclaim goes on with one shrinker.
const DIRECT_TIME: Duration = Duration::from_millis(20);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread calls a consumer, until dropped (`PF_MEMALLOC`).
struct Inside {
    before: bool,
}

impl Inside {
    fn enter() -> Inside {
        Inside { before: INSIDE.replace(true) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// What a pool's zones and nodes have, for bounds on what consumers say.
#[derive(Debug)]
pub(crate) struct Place {
    /// The node of each zone.
    zone_nodes: Vec<NodeId>,
    /// Pages of each node.
    node_pages: Vec<u64>,
}

impl Place {
    pub(crate) fn of(machine: &Machine<'_>) -> Place {
        let zone_nodes: Vec<NodeId> = machine.zones.iter().map(|zone| zone.node).collect();
        let mut node_pages = vec![0; machine.nodes()];
        machine.zones.iter().for_each(|zone| node_pages[usize::from(zone.node.0)] += zone.present);
        Place { zone_nodes, node_pages }
    }
}

/// The consumers of a pool.
#[derive(Debug)]
pub(crate) struct Registry {
    place: Place,
    last_resort: Option<LastResort>,
    /// Whether there is anybody to call. Read by requests that find no zone.
    any: AtomicBool,
    process: AtomicU32,
    next: AtomicU64,
    objects_scanned: AtomicU64,
    entries: RwLock<Vec<Entry>>,
}

enum Consumer {
    Lru(Arc<dyn PageLru>),
    Shrinker {
        shrinker: Shrinker,
        /// Objects put off, by node (`nr_deferred`).
        deferred: Vec<AtomicU64>,
    },
}

struct Entry {
    id: u64,
    name: String,
    consumer: Consumer,
    /// Not called any more: it panicked, or it left during a call.
    gone: Arc<AtomicBool>,
    panicked: Mutex<Option<String>>,
    passes: AtomicU64,
    scanned: AtomicU64,
    freed: AtomicU64,
    isolation: Isolation,
}

/// A consumer's place in a pool, until dropped; then no call is under way, and none will come.
///
/// The drop waits for calls under way: hold no lock that the consumer takes. Dropped inside a call,
/// it waits for nobody, and the consumer is forgotten when the next one comes or goes.
#[derive(Debug)]
#[must_use = "the consumer leaves when this is dropped"]
pub struct Registration {
    registry: Weak<Registry>,
    id: u64,
    gone: Arc<AtomicBool>,
}

/// What a consumer did so far.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Its name.
    pub name: String,
    /// Whether it is a [`Shrinker`], which counts objects, or a [`PageLru`], which counts pages.
    pub objects: bool,
    /// Passes over it.
    pub passes: u64,
    /// Objects or pages looked at.
    pub scanned: u64,
    /// Objects or pages given up.
    pub freed: u64,
    /// Times that a request waited because others had too many of its pages in hand.
    pub stalls: u64,
    /// What it said when it panicked. It is not called since.
    pub panicked: Option<String>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if Registry::is_inside() {
            // REG-2: this thread, or one that it may wait for, has the list locked.
            self.gone.store(true, Relaxed);
        } else if let Some(registry) = self.registry.upgrade() {
            registry.remove(self.id);
        }
    }
}

impl Registry {
    pub(crate) fn new(place: Place, last_resort: Option<LastResort>) -> Arc<Registry> {
        let any = AtomicBool::new(last_resort.is_some());
        Arc::new(Registry {
            place,
            last_resort,
            any,
            process: AtomicU32::new(std::process::id()),
            next: AtomicU64::new(0),
            objects_scanned: AtomicU64::new(0),
            entries: RwLock::default(),
        })
    }

    /// Whether a request may hope for consumers.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: who registers a consumer while others allocate cannot tell which was first.
        self.any.load(Relaxed)
    }

    /// This thread calls a consumer (REG-2).
    pub(crate) fn is_inside() -> bool {
        INSIDE.get()
    }

    /// Keeps consumers from being called, and waits for calls under way. For a fork.
    pub(crate) fn pause(&self) -> Pause<'_> {
        // A consumer that forks is inside a call: its thread has the shared lock (REG-2).
        Pause { _list: (!Registry::is_inside()).then(|| self.write()) }
    }

    /// In a forked child: nobody is called (REG-3).
    pub(crate) fn disable(&self) {
        self.any.store(false, Relaxed);
    }

    /// In a forked child: everybody is called again.
    pub(crate) fn enable(&self) {
        self.process.store(std::process::id(), Relaxed);
        self.any.store(self.last_resort.is_some() || !self.write().is_empty(), Relaxed);
    }

    fn is_here(&self) -> bool {
        self.process.load(Relaxed) == std::process::id()
    }

    pub(super) fn add_lru(self: &Arc<Self>, lru: Arc<dyn PageLru>) -> Registration {
        self.add(lru.name().to_owned(), Consumer::Lru(lru))
    }

    pub(super) fn add_shrinker(self: &Arc<Self>, shrinker: Shrinker) -> Registration {
        let deferred = self.place.node_pages.iter().map(|_| AtomicU64::new(0)).collect();
        self.add(shrinker.name.clone(), Consumer::Shrinker { shrinker, deferred })
    }

    fn add(self: &Arc<Self>, name: String, consumer: Consumer) -> Registration {
        let id = self.next.fetch_add(1, Relaxed);
        let gone = Arc::new(AtomicBool::new(false));
        let entry = Entry {
            id,
            name,
            consumer,
            gone: Arc::clone(&gone),
            panicked: Mutex::default(),
            passes: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            isolation: Isolation::default(),
        };
        let mut entries = self.write();
        entries.push(entry);
        drop(entries);
        self.any.store(self.is_here(), Relaxed);
        Registration { registry: Arc::downgrade(self), id, gone }
    }

    fn remove(&self, id: u64) {
        let mut entries = self.write();
        let stays = |entry: &Entry| {
            entry.id != id && !(entry.gone.load(Relaxed) && entry.panic_message().is_none())
        };
        let leaving: Vec<Entry> = entries.extract_if(.., |entry| !stays(entry)).collect();
        let any = self.last_resort.is_some() || !entries.is_empty();
        // A forked child stays without (REG-3).
        self.any.store(any && self.is_here(), Relaxed);
        drop(entries);
        // Out of the lock: what it owns may come back here.
        drop(leaving);
    }

    /// What each consumer did so far. Empty inside a consumer's own call.
    pub(super) fn report(&self) -> Vec<ConsumerReport> {
        self.read().iter().flat_map(|entries| entries.iter().map(Entry::report)).collect()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` inside a consumer (REG-2), and in a forked child (REG-3).
    fn read(&self) -> Option<RwLockReadGuard<'_, Vec<Entry>>> {
        if Registry::is_inside() || !self.is_here() {
            return None;
        }
        Some(self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn node_of(&self, unit: Unit) -> NodeId {
        match unit {
            Unit::Node(node) => node,
            Unit::Zone(zone) => {
                self.place.zone_nodes.get(usize::from(zone.0)).copied().unwrap_or_default()
            }
        }
    }

    fn pages_of(&self, unit: Unit) -> u64 {
        let node = usize::from(self.node_of(unit).0);
        self.place.node_pages.get(node).copied().unwrap_or(0)
    }

    /// Objects that a shrinker could give up on a node, as far as it can be believed.
    fn freeable(&self, entry: &Entry, shrinker: &Shrinker, node: NodeId) -> u64 {
        let all: u64 = self.place.node_pages.iter().sum();
        let most = all * (PAGE_SIZE as u64 / OBJECT_BYTES_MIN);
        entry.call(|| (shrinker.count)(node)).unwrap_or(0).min(most)
    }

    /// Pages of the pool in these objects.
    fn slab(&self, entry: &Entry, shrinker: &Shrinker, node: NodeId) -> u64 {
        let objects = self.freeable(entry, shrinker, node);
        objects.saturating_mul(shrinker.object_bytes as u64) / PAGE_SIZE as u64
    }

    /// One pass over one shrinker (LB H.7). Returns the pages freed.
    fn shrink_objects(
        &self,
        entry: &Entry,
        shrinker: &Shrinker,
        deferred: &[AtomicU64],
        pass: &Pass,
    ) -> u64 {
        let unit_node = self.node_of(pass.unit);
        // One that is not node-aware has all its objects under node 0, and is asked for some of
        // them whichever node is short: they may be there. Not by node reclaim, which is about one
        // node's own, and goes on to the next one instead.
        if !shrinker.node_aware && unit_node != NodeId(0) && pass.by == By::NodeReclaim {
            return 0;
        }
        let node = if shrinker.node_aware { unit_node } else { NodeId(0) };
        let Some(deferred) = deferred.get(usize::from(node.0)) else { return 0 };
        let freeable = self.freeable(entry, shrinker, node);
        if freeable == 0 {
            return 0;
        }
        let put_off = deferred.swap(0, Relaxed);
        let (seeks, batch) = (shrinker.seeks, shrinker.batch);
        let mut work = ShrinkPass::new(freeable, put_off, pass.priority, seeks, batch);
        let start = Instant::now();
        while let Some(objects) = work.next() {
            // The rest is put off: a request that waits for it is to have its answer.
            if pass.by == By::Direct && start.elapsed() > DIRECT_TIME {
                break;
            }
            let ask = ScanRequest { objects, node, by: pass.by };
            let (scanned, freed) = match entry.call(|| (shrinker.scan)(&ask)) {
                Some(Scanned::Freed(freed)) => (objects, freed),
                Some(Scanned::Some { scanned, freed }) => (scanned, freed),
                Some(Scanned::Stop) | None => break,
            };
            let before = (work.scanned(), work.freed());
            work.did(scanned, freed.min(freeable));
            entry.count(work.scanned() - before.0, work.freed() - before.1);
        }
        deferred.fetch_add(work.put_off(), Relaxed);
        entry.count_pass();
        self.objects_scanned.fetch_add(work.scanned(), Relaxed);
        let bytes = work.freed().saturating_mul(shrinker.object_bytes as u64);
        (bytes / PAGE_SIZE as u64).min(self.place.node_pages.iter().sum())
    }
}

impl Reclaimer for Registry {
    fn holdings(&self, unit: Unit) -> Holdings {
        let mut sum = Holdings::default();
        let Some(entries) = self.read() else { return sum };
        let most = self.pages_of(unit);
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more).min(most);
        for entry in entries.iter().filter(|entry| !entry.gone.load(Relaxed)) {
            match &entry.consumer {
                Consumer::Lru(lru) => {
                    let held = entry.call(|| lru.holdings(unit)).unwrap_or_default();
                    add(&mut sum.file, held.file);
                    add(&mut sum.inactive_file, held.inactive_file);
                    add(&mut sum.active_file, held.active_file);
                    add(&mut sum.file_mapped, held.file_mapped);
                    add(&mut sum.file_dirty, held.file_dirty);
                    add(&mut sum.anon, held.anon);
                    add(&mut sum.slab, held.slab);
                }
                Consumer::Shrinker { shrinker, .. } => {
                    let node = self.node_of(unit);
                    if shrinker.node_aware || node == NodeId(0) {
                        add(&mut sum.slab, self.slab(entry, shrinker, node));
                    }
                }
            }
        }
        sum
    }

    fn anywhere(&self) -> u64 {
        let Some(entries) = self.read() else { return 0 };
        let live = entries.iter().filter(|entry| !entry.gone.load(Relaxed));
        let slab = live.map(|entry| match &entry.consumer {
            Consumer::Shrinker { shrinker, .. } if !shrinker.node_aware => {
                self.slab(entry, shrinker, NodeId(0))
            }
            _ => 0,
        });
        slab.fold(0, u64::saturating_add)
    }

    fn shrink(&self, pass: &Pass) -> Shrunk {
        let mut came = Shrunk::default();
        let Some(entries) = self.read() else { return came };
        let live = || entries.iter().filter(|entry| !entry.gone.load(Relaxed));
        for entry in live() {
            if let Consumer::Lru(lru) = &entry.consumer {
                let most = self.pages_of(pass.unit);
                let mut called = Called::new(entry, &**lru, pass, most);
                came = came.plus(shrink_lists(&mut called, pass));
                entry.count_pass();
            }
        }
        // Where zones are reclaimed, node reclaim asks for the objects by themselves (LB G.3).
        if pass.by != By::NodeReclaim || matches!(pass.unit, Unit::Node(_)) {
            for entry in live() {
                if let Consumer::Shrinker { shrinker, deferred } = &entry.consumer {
                    let slab = self.shrink_objects(entry, shrinker, deferred, pass);
                    came = came.plus(Shrunk { slab, ..Shrunk::default() });
                }
            }
        }
        came
    }

    fn shrink_slab(&self, pass: &Pass) -> u64 {
        let Some(entries) = self.read() else { return 0 };
        let live = entries.iter().filter(|entry| !entry.gone.load(Relaxed));
        let freed = live.map(|entry| match &entry.consumer {
            Consumer::Lru(_) => 0,
            Consumer::Shrinker { shrinker, deferred } => {
                self.shrink_objects(entry, shrinker, deferred, pass)
            }
        });
        freed.fold(0, u64::saturating_add)
    }

    fn out_of_memory(&self, request: &OutOfMemory) -> bool {
        let Some(last_resort) = &self.last_resort else { return false };
        let _inside = Inside::enter();
        last_resort.call(request)
    }

    fn objects_scanned(&self) -> u64 {
        self.objects_scanned.load(Relaxed)
    }

    fn is_reclaiming(&self) -> bool {
        Registry::is_inside()
    }
}

/// One cache's lists, called with care.
struct Called<'a> {
    entry: &'a Entry,
    lru: &'a dyn PageLru,
    pass: &'a Pass,
    /// Pages it can hold at most.
    most: u64,
    /// Pages on its inactive list when the pass began.
    inactive: u64,
    /// Others had too many of its pages in hand, and kept them: the pass is over.
    stalled: bool,
}

impl<'a> Called<'a> {
    fn new(entry: &'a Entry, lru: &'a dyn PageLru, pass: &'a Pass, most: u64) -> Called<'a> {
        Called { entry, lru, pass, most, inactive: 0, stalled: false }
    }
}

impl Lists for Called<'_> {
    fn lengths(&mut self) -> FileLists {
        let held = self.entry.call(|| self.lru.holdings(self.pass.unit)).unwrap_or_default();
        self.inactive = held.inactive_file.min(self.most);
        FileLists { inactive: self.inactive, active: held.active_file.min(self.most) }
    }
    fn shrink_inactive(&mut self, pages: u64) -> Shrunk {
        if self.stalled {
            return Shrunk::default();
        }
        // Only requests wait: the background reclaimer is who makes room (LB H.4).
        let direct = self.pass.by == By::Direct;
        let limit = direct.then(|| isolation::limit(self.inactive, self.pass.gfp));
        let Some(_isolated) = self.entry.isolation.take(pages, limit) else {
            self.stalled = true;
            return Shrunk::default();
        };
        let call = || self.lru.shrink_inactive(pages, self.pass);
        let came = self.entry.call(call).unwrap_or_default();
        // More than it was asked for, or than it looked at, cannot be.
        let reclaimed = came.reclaimed.min(pages);
        self.entry.count(came.scanned.min(pages).max(reclaimed), reclaimed);
        came
    }
    fn shrink_active(&mut self, pages: u64) {
        self.entry.call(|| self.lru.shrink_active(pages, self.pass));
    }
}

impl Entry {
    /// Calls the consumer. `None`: it panicked, now or before.
    fn call<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        if self.gone.load(Relaxed) {
            return None;
        }
        let _inside = Inside::enter();
        // AssertUnwindSafe: after a panic the consumer is not called again, and nothing of the
        // pool is in the middle of a change while it is called.
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => Some(answer),
            Err(panic) => {
                let said = message(&*panic);
                // Others may be in the middle of it, and panic too.
                if !self.gone.swap(true, Relaxed) {
                    eprintln!(
                        "zonal: the consumer \"{}\" panicked: {said}. It is not called any more.",
                        self.name
                    );
                }
                // What the panic carries may panic again when it is dropped.
                std::mem::forget(panic);
                let mut panicked = self.panicked.lock().unwrap_or_else(PoisonError::into_inner);
                *panicked = Some(said);
                None
            }
        }
    }

    fn count_pass(&self) {
        self.passes.fetch_add(1, Relaxed);
    }

    /// Counts what one call came to: a pass may take long, and reports are not to lag behind it.
    fn count(&self, scanned: u64, freed: u64) {
        self.scanned.fetch_add(scanned, Relaxed);
        self.freed.fetch_add(freed, Relaxed);
    }

    fn panic_message(&self) -> Option<String> {
        match self.panicked.try_lock() {
            Ok(said) => said.clone(),
            Err(TryLockError::Poisoned(said)) => said.into_inner().clone(),
            Err(TryLockError::WouldBlock) => Some(String::new()),
        }
    }

    fn report(&self) -> ConsumerReport {
        ConsumerReport {
            name: self.name.clone(),
            objects: matches!(self.consumer, Consumer::Shrinker { .. }),
            passes: self.passes.load(Relaxed),
            scanned: self.scanned.load(Relaxed),
            freed: self.freed.load(Relaxed),
            stalls: self.isolation.stalls(),
            panicked: self.panic_message(),
        }
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Consumers stand still, until dropped.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    _list: Option<RwLockWriteGuard<'a, Vec<Entry>>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("id", &self.id).field("gone", &self.gone).finish()
    }
}
