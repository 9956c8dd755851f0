//! A forked child has only the thread that forked. Whatever lock or store another thread held at
//! that moment would stay held forever; so before a fork everything is held by the forking thread,
//! and afterwards parent and child each let go of it.
//!
//! The child's pool is a copy-on-write copy, complete and usable. Blocks that other threads of the
//! parent owned stay handed out in the child: nobody there can free them. So do blocks that they
//! were about to take from a list or put on one; [`Pool::validate`] books those. Registered
//! consumers are not called there: another thread of the parent may have been in the middle of
//! what they do. The refresh thread does not exist in the child; [`Pool::restart_worker`] starts a
//! new one.
//!
//! [`Pool::restart_worker`]: super::Pool::restart_worker
//! [`Pool::validate`]: super::Pool::validate

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, RwLockWriteGuard};

use zonal_core::alloc::Held;

use super::Shared;
use super::background::Paused;
use super::budget::Withheld;
use super::worker::Worker;
use crate::home::Home;
use crate::process;
use crate::reclaim::{FrozenBells, Pause, Registry};

/// Pools of this process.
static POOLS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
static HANDLERS: Once = Once::new();

struct Registered(*const Shared);
// SAFETY: (1) a `Shared` is used by many threads anyway, and it leaves the list before it dies.
unsafe impl Send for Registered {}

/// Everything that is held across a fork.
struct Frozen {
    held: Vec<Held<'static, Home>>,
    _bells: Vec<FrozenBells<'static>>,
    /// Nobody is inside a consumer: what it has locked would stay so.
    _consumers: Vec<Pause<'static>>,
    /// The background reclaimers stand still.
    _steps: Vec<Vec<MutexGuard<'static, ()>>>,
    backgrounds: Vec<Paused<'static>>,
    /// Nobody starts or ends a refresh thread.
    _workers: Vec<MutexGuard<'static, Option<Worker>>>,
    /// Nobody changes a budget.
    _budgets: Vec<MutexGuard<'static, Withheld>>,
    /// No block is out of its buddy to be trimmed: nobody would put it back.
    _trims: Vec<MutexGuard<'static, ()>>,
    /// No section is claimed: nobody would bring it online.
    _growths: Vec<RwLockWriteGuard<'static, ()>>,
    pools: MutexGuard<'static, Vec<Registered>>,
}

thread_local! {
    static FROZEN: RefCell<Option<Frozen>> = const { RefCell::new(None) };
}

/// Puts a new pool on the list.
pub(super) fn register(shared: &Shared) {
    HANDLERS.call_once(|| {
        // SAFETY: (1) the handlers are plain functions that live as long as the program.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
    });
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.push(Registered(shared));
}

/// Takes a pool off the list.
pub(super) fn unregister(shared: &Shared) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| !std::ptr::eq(pool.0, shared));
}

extern "C" fn before() {
    let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut held, mut trims, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut budgets, mut backgrounds, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut consumers, mut bells, mut workers) = (Vec::new(), Vec::new(), Vec::new());
    for pool in pools.iter() {
        // SAFETY: (1) on the list, so alive, and it stays so while the list is locked.
        let shared: &'static Shared = unsafe { &*pool.0 };
        budgets.push(shared.budget.lock());
        backgrounds.push(shared.background.pause());
        workers.push(shared.worker());
        let home = shared.allocator.platform();
        // A consumer that forks may be called by a reclaimer's step.
        steps.extend((!Registry::is_inside()).then(|| home.bells().hold_steps()));
        consumers.push(home.consumers().pause());
        bells.push(home.bells().freeze());
        trims.push(shared.trimming.lock().unwrap_or_else(PoisonError::into_inner));
        growths.push(shared.growth.pause());
        shared.allocator.hold_all(&mut |one| held.push(one));
    }
    FROZEN.with_borrow_mut(|frozen| {
        *frozen = Some(Frozen {
            held,
            _consumers: consumers,
            _bells: bells,
            _steps: steps,
            backgrounds,
            _workers: workers,
            _budgets: budgets,
            _trims: trims,
            _growths: growths,
            pools,
        })
    });
}

extern "C" fn after_in_child() {
    process::forked();
    FROZEN.with_borrow_mut(|frozen| {
        for background in frozen.iter_mut().flat_map(|frozen| &mut frozen.backgrounds) {
            background.forget();
        }
        for pool in frozen.iter().flat_map(|frozen| frozen.pools.iter()) {
            // SAFETY: (1) on the list, which is still locked, so alive.
            let shared = unsafe { &*pool.0 };
            shared.strays.store(true, Relaxed);
            shared.allocator.platform().consumers().disable();
            shared.allocator.background_gone();
        }
    });
    after();
}

extern "C" fn after() {
    FROZEN.with_borrow_mut(|frozen| {
        if let Some(frozen) = frozen {
            // Zone locks before stores: the reverse of how they were taken.
            while frozen.held.pop().is_some() {}
        }
        *frozen = None;
    });
}
