//! How long a pool lives: its handles, and blocks that outlive the last of them.
//!
//! An [`OwnedPages`](super::OwnedPages) holds no reference count: a count that every block of every
//! CPU moves would cost more than the block. The handed-out block itself keeps the pool alive.
//! While a handle lives that costs nothing. The last handle to go counts the blocks that are
//! handed out, once, and leaves the pool to them:
//!
//! ```text
//!  last handle        threads end ── ORPHAN is set ── slow frees under way end ──
//!                     fast path retires ── blocks are counted ── none: the pool goes
//!                                                             └─ some: `this` keeps it
//!  free of a block    fast path ────────────────────────────────────► done
//!                       └ left ── not ORPHAN: count in, free, count out ► done
//!                              └─ ORPHAN: lock, free, subtract ── 0: `this` is dropped
//! ```
//!
//! # Invariants
//! - **LIFE-1** while a block that an `OwnedPages` owns is handed out, the pool's shared part is
//!   alive: a handle refers to it, or [`Orphan::this`] does.
//! - **LIFE-2** a fast free touches nothing of the pool behind its commit, and a slow free nothing
//!   behind the subtraction in [`Entered::drop`]; whoever counts waits for both. So each free is
//!   either done when blocks are counted, or its block is counted and subtracted afterwards. A fast
//!   free that is aborted between its mark (the block's word says "cached") and its commit is not
//!   done, so a block that says "cached" counts unless a list or depot has it.
//! - **LIFE-3** `handles` is the number of `Pool`s of the shared part; [`Life::let_go`] is `true`
//!   once.
//!
//! Blocks that nobody owns any more ([`std::mem::forget`], raw ones, those that a forked child
//! inherits from other threads, and its strays) are handed out for ever, and so keep a pool whose
//! blocks were owned in memory. A pool of which no `OwnedPages` was ever made goes with its last
//! handle, raw blocks or not.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal_core::types::Order;

use super::{FreedBy, Misuse, Pool, Shared};
use crate::error::FreeError;

/// In `entered`: no handle is left.
const ORPHAN: usize = 1 << (usize::BITS - 1);
/// Handles at most: a program that forgets one in a loop must not wrap the count.
const HANDLES_MAX: usize = usize::MAX >> 1;

/// What keeps a pool alive.
pub(super) struct Life {
    /// Handles (LIFE-3).
    handles: AtomicUsize,
    /// An `OwnedPages` was made.
    owned: AtomicBool,
    /// Slow frees of owned blocks under way, and [`ORPHAN`].
    entered: AtomicUsize,
    orphan: Mutex<Orphan>,
}

/// A pool without handles.
#[derive(Default)]
pub(super) struct Orphan {
    /// The pool, while blocks of it are handed out.
    this: Option<Arc<Shared>>,
    /// Base pages that are handed out.
    pages: u64,
}

impl Life {
    /// A pool with one handle.
    pub(super) fn new() -> Life {
        Life {
            handles: AtomicUsize::new(1),
            owned: AtomicBool::new(false),
            entered: AtomicUsize::new(0),
            orphan: Mutex::default(),
        }
    }

    /// Another handle, by one that lives.
    fn share(&self) {
        // Relaxed: as in `Arc::clone`, the caller has a handle.
        let before = self.handles.fetch_add(1, Relaxed);
        assert!(before < HANDLES_MAX, "{before} handles of one pool: some are forgotten in a loop");
    }

    /// A handle goes. `true`: it was the last one.
    pub(super) fn let_go(&self) -> bool {
        // AcqRel: pairs with itself; the last one sees what was done by the others.
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Notes that blocks may outlive the handles. The caller has a handle.
    #[inline]
    pub(super) fn note_owned(&self) {
        // Relaxed: the last handle is let go of behind this, by an AcqRel (`let_go`).
        if !self.owned.load(Relaxed) {
            self.owned.store(true, Relaxed);
        }
    }

    fn was_owned(&self) -> bool {
        self.owned.load(Relaxed)
    }

    /// Also keeps blocks from being subtracted, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, Orphan> {
        self.orphan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a forked child: the slow frees of other threads are nobody's. Their blocks stay handed
    /// out.
    pub(super) fn forked(&self) {
        // Relaxed: the child has one thread.
        self.entered.fetch_and(ORPHAN, Relaxed);
    }

    /// Keeps slow frees out and waits for those under way (LIFE-2). They are short: none calls
    /// code of the user.
    fn close(&self) -> MutexGuard<'_, Orphan> {
        let orphan = self.lock();
        // AcqRel: pairs with the AcqRel of `enter`, which then sees the flag, and with the Release
        // of `Entered::drop`, below.
        self.entered.fetch_or(ORPHAN, Ordering::AcqRel);
        // Acquire: pairs with the Release of `Entered::drop`; what was freed is seen as free.
        while self.entered.load(Ordering::Acquire) & !ORPHAN != 0 {
            std::thread::yield_now();
        }
        orphan
    }
}

impl Clone for Pool {
    /// Another handle of the same pool. The pool goes with the last one, and with the last
    /// [`OwnedPages`](super::OwnedPages).
    fn clone(&self) -> Pool {
        self.shared.life.share();
        Pool { fast: self.fast, shared: Arc::clone(&self.shared) }
    }
}

/// The last handle has gone and the pool's threads with it: leaves the pool to the blocks that are
/// handed out, if there are any.
pub(super) fn orphan(shared: &Arc<Shared>) {
    if !shared.life.was_owned() {
        return;
    }
    let mut orphan = shared.life.close();
    let retired = shared.allocator.retire();
    let pages = if retired { shared.handed_out_pages() } else { None };
    if pages == Some(0) {
        return;
    }
    // Where a CPU could not be fenced a block may still go back unseen, and where a page word is
    // corrupt nobody knows how many blocks are out: the pool stays for good.
    orphan.pages = pages.unwrap_or(u64::MAX);
    orphan.this = Some(Arc::clone(shared));
}

/// A slow free under way, of a pool that is no orphan.
struct Entered(NonNull<Shared>);

impl Entered {
    /// `None`: the pool is an orphan, and stays alive for as long as the caller's block is handed
    /// out.
    ///
    /// # Safety
    /// 1. The pool is alive (LIFE-1).
    unsafe fn enter(shared: NonNull<Shared>) -> Option<Entered> {
        // SAFETY: (1) alive, by this function's contract.
        let entered = unsafe { &shared.as_ref().life.entered };
        // AcqRel: pairs with the AcqRel in `Life::close`.
        let before = entered.fetch_add(1, Ordering::AcqRel);
        let this = Entered(shared);
        (before & ORPHAN == 0).then_some(this)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: (1) the block was handed out when this was made, so the pool was alive (LIFE-1),
        // and whoever ends it waits for this subtraction (LIFE-2).
        let entered = unsafe { &raw const (*self.0.as_ptr()).life.entered };
        // SAFETY: (1) as above. The pool may be gone when this returns; nothing follows.
        // Release: pairs with the Acquire in `Life::close`.
        unsafe { (*entered).fetch_sub(1, Ordering::Release) };
    }
}

/// Frees a block that the fast path did not take, and tells of it where that is refused.
///
/// # Safety
/// 1. The block is an `OwnedPages`' of this pool, which goes here; nobody uses its memory any more.
#[cold]
#[inline(never)]
pub(super) unsafe fn free_by_core(shared: NonNull<Shared>, start: NonNull<u8>, order: Order) {
    // SAFETY: (1) the block is handed out, so the pool is alive (LIFE-1).
    let refused = match unsafe { Entered::enter(shared) } {
        Some(entered) => {
            // SAFETY: (1) alive while `entered` is (LIFE-2).
            let pool = unsafe { shared.as_ref() };
            let refused = pool.free_by_core(start, order).err();
            // SAFETY: (1) as above, and always within an `Arc`.
            let refused = refused.map(|error| (error, unsafe { reference(shared) }));
            drop(entered);
            refused
        }
        // SAFETY: (1) the block is handed out, so the pool is alive (LIFE-1).
        None => free_of_orphan(unsafe { reference(shared) }, start, order),
    };
    if let Some((error, pool)) = refused {
        pool.misuses.tell(&Misuse { start, order, error, by: FreedBy::Drop });
    }
}

/// Frees a block of a pool without handles; the last one takes the pool with it.
fn free_of_orphan(
    pool: Arc<Shared>,
    start: NonNull<u8>,
    order: Order,
) -> Option<(FreeError, Arc<Shared>)> {
    let mut orphan = pool.life.lock();
    if let Err(error) = pool.free_by_core(start, order) {
        drop(orphan);
        return Some((error, pool));
    }
    orphan.pages = orphan.pages.saturating_sub(order.pages());
    let last = if orphan.pages == 0 { orphan.this.take() } else { None };
    drop(orphan);
    drop(last);
    None
}

/// A reference of its own to a pool that is alive.
///
/// # Safety
/// 1. `shared` is the content of an `Arc` that is alive.
unsafe fn reference(shared: NonNull<Shared>) -> Arc<Shared> {
    // SAFETY: (1) this function's contract (1).
    unsafe { Arc::increment_strong_count(shared.as_ptr()) };
    // SAFETY: (1) the reference that was just counted.
    unsafe { Arc::from_raw(shared.as_ptr()) }
}

impl Shared {
    /// Base pages that users have, of a pool whose fast path has ended and whose slow frees are
    /// kept out. `None`: a page word is corrupt, so nobody knows.
    fn handed_out_pages(&self) -> Option<u64> {
        // Locks in the order that a fork takes them: the budget's before those of the lists.
        let withheld = self.withheld_pages();
        let mut held = Vec::new();
        self.allocator.hold_all(&mut |one| held.push(one));
        let pages = self.allocator.stats().handed_out_pages(&held);
        // Zone locks before pcps: the reverse of how they were taken.
        while held.pop().is_some() {}
        pages.map(|pages| pages.saturating_sub(withheld))
    }
}
