//! The consumers registered with a pool, and which of them a pass calls.
//!
//! No lock is held while a consumer is called, so it may call any safe function of its pool. A
//! consumer that registers or leaves takes the list's lock briefly; one that leaves waits only for
//! its own visits, and from inside a call for none.
//!
//! # Invariants
//! - **REG-1** a consumer is called only by a thread that visits it, and visits begin with the list
//!   locked: when a [`Registration`] was taken off the list and no visit is under way, no call is,
//!   and none will come.
//! - **REG-2** a thread inside a consumer, or other code of the user, calls no consumer: neither a
//!   request nor a report of that thread does.
//! - **REG-3** a forked child calls no consumer: their locks may be held there forever.

use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use zonal_core::machine::Machine;
use zonal_core::platform::reclaimer::{By, Holdings, OutOfMemory, Pass, Reclaimer, Shrunk, Unit};
use zonal_core::reclaim::lists::shrink_lists;
use zonal_core::reclaim::shrinker::ShrinkPass;
use zonal_core::types::{NodeId, PAGE_SIZE};

use super::calls::Calls;
use super::entry::{Called, Consumer, ConsumerReport, Entry, Visit};
use super::inside::{self, Call, Inside};
use super::last_resort::LastResort;
use super::lru::PageLru;
use super::shrinker::{ScanRequest, Scanned, Shrinker};
use crate::stalls::{self, Doing};

/// The smallest object that a count of objects can mean, in bytes.
const OBJECT_BYTES_MIN: u64 = 8;

/// How long one pass of a direct reclaim goes on with one shrinker.
const DIRECT_TIME: Duration = Duration::from_millis(20);

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
    /// Whether there is a consumer to call. Read by requests that find no zone.
    any: AtomicBool,
    /// Not in a forked child (REG-3).
    here: AtomicBool,
    next: AtomicU64,
    objects_scanned: AtomicU64,
    calls: Arc<Calls>,
    /// Ascending by number. Never locked while code of the user runs.
    entries: RwLock<Vec<Arc<Entry>>>,
}

/// A consumer's place in a pool, until dropped; then no call is under way, and none will come.
///
/// The drop waits for calls of this consumer that are under way: hold no lock that it takes.
/// Dropped inside a call of any consumer, it does not wait: calls in other threads run to their
/// end.
#[derive(Debug)]
#[must_use = "the consumer leaves when this is dropped"]
pub struct Registration {
    registry: Weak<Registry>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.remove(self.id);
        }
    }
}

/// A consumer that panics is not called again ([`Called`]), and no lock is held meanwhile.
impl RefUnwindSafe for Registry {}

impl Registry {
    pub(crate) fn new(place: Place, last_resort: Option<LastResort>) -> Arc<Registry> {
        let any = AtomicBool::new(last_resort.is_some());
        Arc::new(Registry {
            place,
            last_resort,
            any,
            here: AtomicBool::new(true),
            next: AtomicU64::new(1),
            objects_scanned: AtomicU64::new(0),
            calls: Arc::default(),
            entries: RwLock::default(),
        })
    }

    /// Whether a request may hope for consumers.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: who registers a consumer while others allocate cannot tell which was first.
        self.any.load(Relaxed)
    }

    /// Keeps consumers from being called until the result is dropped. Does not wait.
    pub(crate) fn pause(&self) -> Pause {
        self.calls.keep_out();
        Pause { calls: Arc::clone(&self.calls), is_over: false }
    }

    /// Keeps the list as it is, across a fork.
    pub(crate) fn hold_list(&self) -> HeldList<'_> {
        HeldList { registry: self, entries: self.write() }
    }

    /// In a forked child: consumers that the fork did not interrupt are called again.
    pub(crate) fn enable(&self) {
        self.here.store(true, Relaxed);
        self.look_whether_any(&self.read());
    }

    fn look_whether_any(&self, entries: &[Arc<Entry>]) {
        // Relaxed: as in `is_used`. A forked child stays without (REG-3).
        let any = self.last_resort.is_some() || !entries.is_empty();
        self.any.store(any && self.here.load(Relaxed), Relaxed);
    }

    pub(crate) fn add_lru(self: &Arc<Self>, lru: Arc<dyn PageLru>) -> Registration {
        self.add(lru.name().to_owned(), Consumer::Lru(lru))
    }

    pub(crate) fn add_shrinker(self: &Arc<Self>, shrinker: Shrinker) -> Registration {
        let by_node = || self.place.node_pages.iter().map(|_| AtomicU64::new(0)).collect();
        let (deferred, counted) = (by_node(), by_node());
        self.add(shrinker.name.clone(), Consumer::Shrinker { shrinker, deferred, counted })
    }

    fn add(self: &Arc<Self>, name: String, consumer: Consumer) -> Registration {
        let mut entries = self.write();
        // With the list locked, so that numbers ascend.
        let id = self.next.fetch_add(1, Relaxed);
        entries.push(Arc::new(Entry::new(id, name, consumer, Arc::clone(&self.calls))));
        self.look_whether_any(&entries);
        Registration { registry: Arc::downgrade(self), id }
    }

    fn remove(&self, id: u64) {
        let mut entries = self.write();
        let Ok(at) = entries.binary_search_by_key(&id, |entry| entry.id) else { return };
        let entry = entries.remove(at);
        self.look_whether_any(&entries);
        drop(entries);
        entry.leave();
        if !inside::is_inside() {
            // No call begins any more; this wakes the last sleeper.
            entry.visits.keep_out();
            entry.visits.wait_idle(|| Some(Duration::MAX));
        }
    }

    /// The record of each consumer.
    pub(crate) fn report(&self) -> Vec<ConsumerReport> {
        self.read().iter().map(|entry| entry.report()).collect()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits each consumer, in the order they came. Visits none inside a consumer (REG-2), and in
    /// a forked child (REG-3).
    fn visits(&self) -> impl Iterator<Item = Visit> + '_ {
        let mut last = 0;
        std::iter::from_fn(move || {
            if inside::is_inside() || !self.here.load(Relaxed) {
                return None;
            }
            let entries = self.read();
            let next = entries.partition_point(|entry| entry.id <= last);
            let visit = Visit::begin(entries.get(next)?);
            last = visit.id;
            Some(visit)
        })
    }

    /// Its name in messages.
    fn calls_address(&self) -> usize {
        Arc::as_ptr(&self.calls) as usize
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

    /// Objects that a shrinker could free on a node, limited to a plausible number.
    fn freeable(&self, entry: &Entry, shrinker: &Shrinker, node: NodeId) -> u64 {
        let all: u64 = self.place.node_pages.iter().sum();
        let most = all * (PAGE_SIZE as u64 / OBJECT_BYTES_MIN);
        entry.call(|| (shrinker.count)(node)).unwrap_or(0).min(most)
    }

    /// Pages of the pool in these objects.
    fn slab(
        &self,
        entry: &Entry,
        (shrinker, counted): (&Shrinker, &[AtomicU64]),
        node: NodeId,
    ) -> u64 {
        let Some(before) = counted.get(usize::from(node.0)) else { return 0 };
        let objects = entry.beside_others(before, || self.freeable(entry, shrinker, node));
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
        let most = self.pages_of(unit);
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more).min(most);
        for entry in self.visits() {
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
                Consumer::Shrinker { shrinker, counted, .. } => {
                    let node = self.node_of(unit);
                    if shrinker.node_aware || node == NodeId(0) {
                        add(&mut sum.slab, self.slab(&entry, (shrinker, counted), node));
                    }
                }
            }
        }
        sum
    }

    fn anywhere(&self) -> u64 {
        let slab = self.visits().map(|entry| match &entry.consumer {
            Consumer::Shrinker { shrinker, counted, .. } if !shrinker.node_aware => {
                self.slab(&entry, (shrinker, counted), NodeId(0))
            }
            _ => 0,
        });
        slab.fold(0, u64::saturating_add)
    }

    fn shrink(&self, pass: &Pass) -> Shrunk {
        let _span = stalls::span(Doing::Reclaim);
        let mut came = Shrunk::default();
        for entry in self.visits() {
            if let Consumer::Lru(lru) = &entry.consumer {
                let most = self.pages_of(pass.unit);
                let mut called = Called::new(&entry, &**lru, pass, most);
                came = came.plus(shrink_lists(&mut called, pass));
                entry.count_pass();
            }
        }
        // Where zones are reclaimed, node reclaim asks for the objects by themselves (LB G.3).
        if pass.by != By::NodeReclaim || matches!(pass.unit, Unit::Node(_)) {
            came = came.plus(Shrunk { slab: self.shrink_slab(pass), ..Shrunk::default() });
        }
        came
    }

    fn shrink_slab(&self, pass: &Pass) -> u64 {
        let freed = self.visits().map(|entry| match &entry.consumer {
            Consumer::Lru(_) => 0,
            Consumer::Shrinker { shrinker, deferred, .. } => {
                self.shrink_objects(&entry, shrinker, deferred, pass)
            }
        });
        freed.fold(0, u64::saturating_add)
    }

    fn out_of_memory(&self, request: &OutOfMemory) -> bool {
        let Some(last_resort) = &self.last_resort else { return false };
        if inside::is_inside() || !self.here.load(Relaxed) {
            return false;
        }
        self.calls.enter();
        let _under_way = LastResortUnderWay(self);
        let _inside = Inside::call(Call { registry: self.calls_address(), entry: 0 });
        last_resort.call(request)
    }

    fn objects_scanned(&self) -> u64 {
        self.objects_scanned.load(Relaxed)
    }

    fn is_reclaiming(&self) -> bool {
        inside::is_inside()
    }
}

/// A call of the last resort, until dropped.
struct LastResortUnderWay<'a>(&'a Registry);

impl Drop for LastResortUnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls.leave();
    }
}

/// Consumers are not called, until dropped.
#[derive(Debug)]
pub(crate) struct Pause {
    calls: Arc<Calls>,
    /// In a forked child [`HeldList::forked`] has let calls in.
    is_over: bool,
}

impl Pause {
    /// Whether it is this registry's.
    pub(crate) fn is_of(&self, registry: &Registry) -> bool {
        Arc::ptr_eq(&self.calls, &registry.calls)
    }

    /// Waits for calls under way, until `end` at the latest: not from inside one.
    pub(crate) fn wait_until(&self, end: Instant) {
        let left = || end.saturating_duration_since(Instant::now());
        self.calls.wait_idle(|| Some(left()).filter(|left| !left.is_zero()));
    }

    /// In a forked child.
    pub(crate) fn forked(&mut self) {
        self.is_over = true;
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if !self.is_over {
            self.calls.let_in();
        }
    }
}

/// The list of consumers, locked until dropped.
#[derive(Debug)]
pub(crate) struct HeldList<'a> {
    registry: &'a Registry,
    entries: RwLockWriteGuard<'a, Vec<Arc<Entry>>>,
}

impl HeldList<'_> {
    /// In a forked child: no consumer is called (REG-3), and only this thread's call is under way.
    pub(crate) fn forked(&self) {
        let registry = self.registry;
        registry.here.store(false, Relaxed);
        registry.any.store(false, Relaxed);
        let own = |call: &Call| call.registry == registry.calls_address();
        let current = inside::current().filter(own);
        registry.calls.forked(u32::from(current.is_some()));
        self.entries.iter().for_each(|entry| entry.forked(current));
        registry.last_resort.iter().for_each(LastResort::forked);
    }
}
