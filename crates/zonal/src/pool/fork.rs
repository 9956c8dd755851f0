//! A forked child has only the thread that forked. Whatever lock or store another thread held at
//! that moment would stay held forever; so before a fork everything is held by the forking thread,
//! and afterwards parent and child each let go of it.
//!
//! ```text
//!  before    consumers are kept out ── those under way end, 1 s at most ── all locks
//!  in child  turns, steps and calls of other threads are over
//!  after     all locks are let go of ── consumers are let in
//! ```
//! Consumers come first: one may do anything that its pool allows, take any of these locks, and
//! fork. Once the locks are held, the fork waits only for threads that hold one briefly and call no
//! user code meanwhile. A fork from inside a consumer waits for no other call.
//!
//! The child's pool is a copy-on-write copy, complete and usable. Blocks that other threads of the
//! parent owned stay handed out in the child: no thread there can free them. Blocks that they were
//! about to take from a list or put on one stay out of use, too: [`Pool::validate`] counts those,
//! and from then on the child's [`HeldReport::elsewhere`] has them. Registered consumers are not
//! called there before [`Pool::restart_reclaim`]: another thread of the parent may have been in the
//! middle of what they do; those whose call did not end in time are not called at all. The refresh
//! thread does not exist in the child; [`Pool::restart_worker`] starts a new one.
//!
//! Nothing here has a destructor that a thread runs at its end, so a fork works in destructors of
//! thread-local values and in `atexit` too.
//!
//! [`Pool::restart_reclaim`]: super::Pool::restart_reclaim
//! [`Pool::restart_worker`]: super::Pool::restart_worker
//! [`Pool::validate`]: super::Pool::validate
//! [`HeldReport::elsewhere`]: super::HeldReport::elsewhere

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};

use zonal_core::alloc::{Held, forked};

use super::background::Paused;
use super::budget::Withheld;
use super::life::Orphan;
use super::poison::Poison;
use super::worker::Worker;
use super::{Shared, faults};
use crate::platform::ProcessPlatform;
use crate::process;
use crate::reclaim::{FrozenBells, HeldList, Pause, Registry, is_inside};
use crate::sys::at_fork;

/// How long a fork waits for calls of consumers under way.
const CALLS_WAIT: Duration = Duration::from_secs(1);

/// Pools of this process.
static POOLS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
static HANDLERS: Once = Once::new();

struct Registered(*const Shared);
// SAFETY: (1) a `Shared` is used by many threads anyway, and it leaves the list before it dies.
unsafe impl Send for Registered {}

impl Registered {
    /// The pool, while the list is locked.
    ///
    /// # Safety
    /// 1. The list stays locked while the result is used.
    unsafe fn shared(&self) -> &'static Shared {
        // SAFETY: (1) on the list, so alive: it leaves with the list locked.
        unsafe { &*self.0 }
    }
}

/// Everything that is held across a fork. Dropped from the first field to the last.
struct Frozen {
    pools: Vec<FrozenPool>,
    _list: MutexGuard<'static, Vec<Registered>>,
    consumers: Vec<Pause>,
}

/// The locks held of one pool.
struct FrozenPool {
    shared: &'static Shared,
    /// Stores, then zone locks.
    held: Vec<Held<'static, ProcessPlatform>>,
    /// No section is claimed: no thread of the child would bring it online.
    _growth: RwLockWriteGuard<'static, ()>,
    /// No block is out of its buddy to be trimmed: no thread of the child would put it back.
    _trim: MutexGuard<'static, ()>,
    _faults: Option<MutexGuard<'static, faults::State>>,
    _lost: Option<MutexGuard<'static, Vec<(u64, u64)>>>,
    bells: FrozenBells<'static>,
    consumers: HeldList<'static>,
    /// No thread starts or ends a refresh thread.
    _worker: MutexGuard<'static, Option<Worker>>,
    background: Paused<'static>,
    /// No block of an orphan is on its way back.
    _life: MutexGuard<'static, Orphan>,
    _budget: MutexGuard<'static, Withheld>,
}

impl FrozenPool {
    /// Lets go of the allocator: zone locks before pcps, the reverse of how they were taken.
    fn let_go(&mut self) {
        while self.held.pop().is_some() {}
    }
}

impl Drop for FrozenPool {
    fn drop(&mut self) {
        self.let_go();
    }
}

thread_local! {
    /// Made by `Box::into_raw`; null but between the handlers of a fork.
    static FROZEN: Cell<*mut Frozen> = const { Cell::new(std::ptr::null_mut()) };
}

/// Puts a new pool on the list.
pub(super) fn register(shared: &Shared) {
    HANDLERS.call_once(|| {
        at_fork(before, after, after_in_child);
    });
    list().push(Registered(shared));
}

/// Takes a pool off the list.
pub(super) fn unregister(shared: &Shared) {
    list().retain(|pool| !std::ptr::eq(pool.0, shared));
}

fn list() -> MutexGuard<'static, Vec<Registered>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the consumers of all pools out, and waits for calls under way unless this is one.
fn pause_consumers() -> Vec<Pause> {
    let pools = list();
    // SAFETY: (1) the list is locked.
    let registry = |pool: &Registered| unsafe { pool.shared() }.consumers().clone();
    let registries: Vec<Arc<Registry>> = pools.iter().map(registry).collect();
    drop(pools);
    let pauses: Vec<Pause> = registries.iter().map(|registry| registry.pause()).collect();
    if !is_inside() {
        let end = Instant::now() + CALLS_WAIT;
        pauses.iter().for_each(|pause| pause.wait_until(end));
    }
    pauses
}

fn freeze() -> Frozen {
    let mut consumers = pause_consumers();
    let list = list();
    // SAFETY: (1) the list stays locked until the result is dropped, the pools before it.
    let shared = list.iter().map(|pool| unsafe { pool.shared() });
    let pools = shared.map(|shared| {
        let registry = shared.consumers();
        // A pool that was made meanwhile.
        if !consumers.iter().any(|pause| pause.is_of(registry)) {
            consumers.push(registry.pause());
        }
        freeze_pool(shared)
    });
    let pools = pools.collect();
    Frozen { pools, _list: list, consumers }
}

fn freeze_pool(shared: &'static Shared) -> FrozenPool {
    let life = shared.life.lock();
    let budget = shared.budget.lock();
    let background = shared.background.pause();
    let worker = shared.worker();
    let platform = shared.allocator.platform();
    let consumers = platform.consumers().hold_list();
    let bells = platform.bells().freeze();
    let faults = shared.faults.as_ref().map(faults::Faults::lock);
    let lost = shared.poison.as_ref().map(Poison::lost);
    let trim = shared.trimming.lock().unwrap_or_else(PoisonError::into_inner);
    let growth = shared.growth.pause();
    let mut held = Vec::new();
    shared.allocator.hold_all(&mut |one| held.push(one));
    FrozenPool {
        shared,
        held,
        _growth: growth,
        _trim: trim,
        _faults: faults,
        _lost: lost,
        bells,
        consumers,
        _worker: worker,
        background,
        _life: life,
        _budget: budget,
    }
}

impl Frozen {
    /// In the child: what other threads of the parent were at is over.
    fn forked(&mut self) {
        for pool in &mut self.pools {
            let shared = pool.shared;
            shared.allocator.expect_strays();
            shared.budget.forked();
            shared.life.forked();
            shared.residency.forked();
            pool.consumers.forked();
            pool.bells.forked();
            pool.background.forked();
            shared.allocator.background_gone();
            forked::limits_gone(&shared.allocator);
        }
        self.consumers.iter_mut().for_each(Pause::forked);
        // Limits are computed under locks that a fork holds.
        for pool in &mut self.pools {
            pool.let_go();
            forked::catch_up(&pool.shared.allocator);
        }
    }
}

// A panic must not come out of a handler. Nothing below is known to panic; if something does, the
// locks are released, and the fork goes on without them.

extern "C" fn before() {
    let frozen = catch_unwind(freeze).map(Box::new);
    FROZEN.set(frozen.map_or(std::ptr::null_mut(), Box::into_raw));
}

fn frozen() -> Option<Box<Frozen>> {
    let frozen = FROZEN.replace(std::ptr::null_mut());
    // SAFETY: (1) from `Box::into_raw` in `before`, by this thread; (2) taken out once.
    (!frozen.is_null()).then(|| unsafe { Box::from_raw(frozen) })
}

extern "C" fn after() {
    let frozen = frozen();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(frozen)));
}

extern "C" fn after_in_child() {
    process::forked();
    let mut frozen = frozen();
    let done = AssertUnwindSafe(|| {
        frozen.iter_mut().for_each(|frozen| frozen.forked());
        drop(frozen);
    });
    let _ = catch_unwind(done);
}
