//! How long a pool lives: its handles, and blocks that outlive the last of them.
//!
//! An [`OwnedPages`](super::OwnedPages) holds no reference count: a count that every block of every
//! CPU moves would cost more than the block. The handed-out block itself keeps the pool alive; an
//! [`OwnedRange`](super::OwnedRange) is one of several blocks. While a handle lives that costs
//! nothing. The last handle to go counts the blocks that are handed out, once, and leaves the pool
//! to them:
//!
//! ```text
//!  last handle        threads end ── ORPHAN is set ── slow frees under way end ──
//!                     fast path retires ── blocks are counted ── none: the pool goes
//!                                                             └─ some: `this` keeps it
//!  free of a block    fast path ────────────────────────────────────► done
//!                       └ left ── not ORPHAN: count in, free, count out ► done
//!                              └─ ORPHAN: lock, free, subtract ── 0: `this` is dropped
//!  a range is freed, or grows, as a block that the fast path left
//! ```
//!
//! # Invariants
//! - **LIFE-1** while pages that an `OwnedPages` or `OwnedRange` owns are handed out, the pool's
//!   shared part is alive: a handle refers to it, or `Orphan::this` does.
//! - **LIFE-2** a fast free touches nothing of the pool behind its commit, and a slow free nothing
//!   behind the subtraction in [`Entries::leave`]; whoever counts waits for both. So each free is
//!   either done when blocks are counted, or its block is counted and subtracted afterwards, and a
//!   range that grows is counted as it is then, or is added to afterwards. A fast free that is
//!   aborted between its mark (the block's word says "cached") and its commit is not done, so a
//!   block that says "cached" counts unless a list or depot has it.
//! - **LIFE-3** `handles` is the number of `Pool`s of the shared part; [`Life::let_go`] is `true`
//!   once.
//!
//! Blocks that nobody owns any more ([`std::mem::forget`], raw ones, those that a forked child
//! inherits from other threads, and its strays) are handed out for ever, and so keep a pool whose
//! blocks were owned in memory. A pool of which nothing was ever owned so goes with its last
//! handle, raw blocks or not.

mod entries;
mod sync;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};

use zonal_core::types::Order;

use super::poison::Poison;
use super::{FreedBy, Misuse, Pool, Shared};
use entries::Entries;

/// A pool without handles.
pub(super) type Orphan = entries::Orphan<Arc<Shared>>;

/// Handles at most: a program that forgets one in a loop must not wrap the count.
const HANDLES_MAX: usize = usize::MAX >> 1;

/// What keeps a pool alive.
pub(super) struct Life {
    /// Handles (LIFE-3).
    handles: AtomicUsize,
    /// An owner that needs no handle was made.
    owned: AtomicBool,
    /// Slow frees of owned pages under way, and what is left without handles.
    entries: Entries<Arc<Shared>>,
}

impl Life {
    /// A pool with one handle.
    pub(super) fn new() -> Life {
        Life {
            handles: AtomicUsize::new(1),
            owned: AtomicBool::new(false),
            entries: Entries::new(),
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

    /// Keeps pages of an orphan from being subtracted, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, Orphan> {
        self.entries.lock()
    }

    /// In a forked child: the slow frees of other threads have no owner. Their blocks stay handed
    /// out.
    pub(super) fn forked(&self) {
        self.entries.forked();
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

/// The pool of a new owner that needs no handle.
#[inline]
pub(super) fn owner(pool: &Pool) -> NonNull<Shared> {
    pool.shared.life.note_owned();
    // From the `Arc`, not from a reference: it may be counted again (`reference`).
    let shared = Arc::as_ptr(&pool.shared).cast_mut();
    // SAFETY: (1) the content of an `Arc` has an address.
    unsafe { NonNull::new_unchecked(shared) }
}

/// Whether an owner's pool is this one.
#[inline]
pub(super) fn is_of(shared: NonNull<Shared>, pool: &Pool) -> bool {
    std::ptr::eq(shared.as_ptr(), Arc::as_ptr(&pool.shared))
}

/// The last handle has gone and the pool's threads with it: leaves the pool to the blocks that are
/// handed out, if there are any.
pub(super) fn orphan(shared: &Arc<Shared>) {
    if !shared.life.was_owned() {
        return;
    }
    let mut orphan = shared.life.entries.close();
    let retired = shared.allocator.retire();
    let pages = if retired { shared.handed_out_pages() } else { None };
    if pages == Some(0) {
        return;
    }
    // Where a CPU could not be fenced a block may still go back unseen, and where a page word is
    // corrupt nobody knows how many blocks are out: the pool stays for good.
    orphan.keep(Arc::clone(shared), pages.unwrap_or(u64::MAX));
}

/// A thread inside a pool that is no orphan.
struct Entered(NonNull<Shared>);

impl Entered {
    /// `None`: the pool is an orphan, and stays alive for as long as the caller's pages are handed
    /// out.
    ///
    /// # Safety
    /// 1. The pool is alive (LIFE-1).
    unsafe fn enter(shared: NonNull<Shared>) -> Option<Entered> {
        // SAFETY: (1) alive, by this function's contract.
        let entries = unsafe { &shared.as_ref().life.entries };
        entries.enter().then(|| Entered(shared))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: (1) the caller's pages were handed out when this was made, so the pool was alive
        // (LIFE-1), and whoever ends it waits for this one to leave (LIFE-2).
        let entries = unsafe { &raw const (*self.0.as_ptr()).life.entries };
        // SAFETY: (1) as above; it came in when it was made, and leaves here.
        unsafe { Entries::leave(entries) };
    }
}

/// Calls `work` with the pool of somebody's pages, whether there are handles or not. It returns by
/// how many pages more, or fewer, are handed out then; after the last the pool goes.
///
/// # Safety
/// 1. Pages of the pool are handed out to the caller until `work` begins.
/// 2. `work` calls no code of the user, which might drop the last handle and wait for itself, or
///    take the orphan's lock again.
///
/// # Errors
/// That of `work`, which changed nothing then, and the pool.
pub(super) unsafe fn visit<T, E>(
    shared: NonNull<Shared>,
    work: impl FnOnce(&Shared) -> Result<(T, i64), E>,
) -> Result<T, (E, Arc<Shared>)> {
    // SAFETY: (1) pages are handed out, so the pool is alive (LIFE-1).
    let Some(entered) = (unsafe { Entered::enter(shared) }) else {
        // SAFETY: (1) as above.
        return visit_orphan(unsafe { reference(shared) }, work);
    };
    // SAFETY: (1) alive while `entered` is (LIFE-2).
    let done = work(unsafe { shared.as_ref() });
    // SAFETY: (1) as above, and always within an `Arc`.
    let done = done.map_err(|error| (error, unsafe { reference(shared) }));
    drop(entered);
    done.map(|(value, _)| value)
}

/// The same for a pool without handles.
fn visit_orphan<T, E>(
    pool: Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<(T, i64), E>,
) -> Result<T, (E, Arc<Shared>)> {
    let mut orphan = pool.life.lock();
    let (value, pages) = match work(&pool) {
        Ok(done) => done,
        Err(error) => {
            drop(orphan);
            return Err((error, pool));
        }
    };
    let last = orphan.moved(pages);
    drop(orphan);
    drop(last);
    Ok(value)
}

/// Frees a block that the fast path did not take, and tells of it where that is refused.
///
/// # Safety
/// 1. The block is an `OwnedPages`' of this pool, which goes here; nobody uses its memory any more.
#[cold]
#[inline(never)]
pub(super) unsafe fn free_by_core(shared: NonNull<Shared>, start: NonNull<u8>, order: Order) {
    let pages = -(order.pages() as i64);
    // SAFETY: (1) the block is handed out; (2) a free calls nobody.
    let freed =
        unsafe { visit(shared, |pool| pool.free_by_core(start, order).map(|()| ((), pages))) };
    if let Err((error, pool)) = freed {
        pool.misuses.tell(&Misuse { start, order, error, by: FreedBy::Drop });
    }
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
        // What is out of use for good is nobody's to free.
        let lost = self.poison.as_ref().map_or(0, Poison::lost_pages);
        pages.map(|pages| pages.saturating_sub(withheld + lost))
    }
}
