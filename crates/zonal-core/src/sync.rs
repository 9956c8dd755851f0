//! Atomics and the zone lock. With `lanes`, `prefetch` and `machine::carve` the only module of the
//! crate with `unsafe` in it.
//!
//! Everything shared is either an atomic or inside a [`Lock`]. Waiting is the platform's business:
//! a process sleeps in a futex, a simulator advances its clock, a kernel spins. The lock therefore
//! asks its caller for a [`Wait`].
//!
//! # Invariants
//! - **LOCK-1** at most one [`Guard`] of a lock exists: it is made only by the thread that moved
//!   `state` from `FREE`, and `state` leaves the taken values only when the guard drops.
//! - **LOCK-2** a thread that sleeps in [`Wait::wait`] has set `CONTENDED`, so the next unlock
//!   wakes.
//! - **LOCK-3** only this module writes a lock word: a platform sees it as a [`LockWord`], which it
//!   can read and whose address it can give to a futex. So a wrong [`Wait`] can hang or spin, and
//!   nothing worse.
//!
//! # What it does not do
//! No poisoning, no fairness, no recursion. Nothing calls out of the crate under a lock.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

pub use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CONTENDED: u32 = 2;

/// How a platform waits for a lock word. The rules it must keep are those of a futex: `wait` looks
/// at the word and falls asleep as one step, seen from `wake_one`.
pub trait Wait {
    /// Tries before sleeping: a zone lock is held for 10 to 200 ns a page, so a short spin usually
    /// wins. The interleaving model (crates/zonal/tests/loom_lock.rs) makes do with one.
    const SPINS: u32 = 128;
    /// Whether an operation of the fast path, which has a gate for some ten nanoseconds, is masked
    /// too. Not where the mask only keeps the end of a thread's time off: that costs more than it
    /// saves.
    const MASKS_FAST: bool = true;
    /// Returns at some time after `word` was seen different from `value`; may return early.
    fn wait(&self, word: &LockWord, value: u32);
    /// Wakes one thread that waits on `word`.
    fn wake_one(&self, word: &LockWord);

    /// Keeps everything that may call the allocator off the running CPU, interrupt handlers above
    /// all, until [`unmask`](Self::unmask). Returns what that restores: the calls nest. The core
    /// masks for as long as it holds a zone lock or the gate of a pcp (but for
    /// [`MASKS_FAST`](Self::MASKS_FAST)), so that a handler never waits for what it interrupted. A
    /// platform whose handlers and signal handlers do not allocate has nothing to do.
    #[inline(always)]
    fn mask(&self) -> usize {
        0
    }
    /// Undoes a [`mask`](Self::mask).
    #[inline(always)]
    fn unmask(&self, _was: usize) {}
}

/// A mask, until it is dropped. It stays on its thread, and so does what holds one: another thread
/// may run on another CPU, on which nothing was masked.
#[derive(Debug)]
pub struct Masked<'a, W: Wait> {
    wait: &'a W,
    was: usize,
    stays: PhantomData<Stays>,
}

/// What no thread gives to another one.
#[derive(Debug)]
struct Stays(#[expect(dead_code, reason = "keeps it from being sent")] *const ());

// SAFETY: (1) there is no value of it, so a reference to one does nothing.
unsafe impl Sync for Stays {}

impl<'a, W: Wait> Masked<'a, W> {
    /// Masks.
    #[inline(always)]
    pub fn new(wait: &'a W) -> Masked<'a, W> {
        Masked { wait, was: wait.mask(), stays: PhantomData }
    }

    /// Masks for an operation of the fast path, if the platform wants that.
    #[inline(always)]
    pub(crate) fn for_fast(wait: &'a W) -> Option<Masked<'a, W>> {
        W::MASKS_FAST.then(|| Masked::new(wait))
    }
}

impl<W: Wait> Drop for Masked<'_, W> {
    #[inline(always)]
    fn drop(&mut self) {
        self.wait.unmask(self.was);
    }
}

/// The word of a lock, as a platform sees it: to be read, not written (LOCK-3).
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LockWord(AtomicU32);

impl LockWord {
    /// Its value now.
    #[inline]
    pub fn load(&self) -> u32 {
        // Relaxed: a waiter tests whether it may sleep; taking the lock orders.
        self.0.load(Ordering::Relaxed)
    }

    /// Its address, for a futex. A write through it takes locks that others hold.
    #[inline]
    pub fn as_ptr(&self) -> *const AtomicU32 {
        &raw const self.0
    }
}

/// A [`Wait`] that spins. For tests, simulators and kernels that cannot sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl Wait for Spin {
    fn wait(&self, _word: &LockWord, _value: u32) {
        core::hint::spin_loop();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

/// Data behind a lock word.
#[derive(Debug, Default)]
pub struct Lock<T> {
    state: LockWord,
    /// Times the lock was taken, for reports of lock holds. Written under the lock.
    holds: AtomicU64,
    /// Times the lock was found taken.
    contended: AtomicU64,
    data: UnsafeCell<T>,
}

// SAFETY: (1) `data` is reached only through a `Guard`, of which one exists at a time (LOCK-1), so
// sharing the lock moves `T` between threads but never aliases it; `T: Send` is what that needs.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock around `data`.
    pub fn new(data: T) -> Lock<T> {
        Lock {
            state: LockWord(AtomicU32::new(FREE)),
            holds: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock, waiting through `wait` while another thread has it.
    #[inline]
    pub fn lock<'a, W: Wait>(&'a self, wait: &'a W) -> Guard<'a, T, W> {
        let masked = Masked::new(wait);
        // Acquire: pairs with the Release in `Guard::drop`.
        if self.state.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            self.lock_contended(wait);
        }
        // Relaxed: only the holder writes it (LOCK-1); readers want a rough figure.
        self.holds.store(self.holds.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Guard { lock: self, masked, data: PhantomData }
    }

    #[cold]
    fn lock_contended<W: Wait>(&self, wait: &W) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        for _ in 0..W::SPINS {
            core::hint::spin_loop();
            // Acquire: pairs with the Release in `Guard::drop`.
            if self.state.0.load(Ordering::Relaxed) == FREE
                && self
                    .state
                    .0
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        // Acquire: pairs with the Release in `Guard::drop`. Taking it as CONTENDED keeps LOCK-2
        // for others that may sleep.
        while self.state.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait.wait(&self.state, CONTENDED);
        }
    }

    /// Times the lock was taken so far.
    pub fn holds(&self) -> u64 {
        self.holds.load(Ordering::Relaxed)
    }

    /// Times the lock was found taken.
    pub fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }

    /// The data, without locking: no other reference can exist.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

/// Exclusive access to the data of a [`Lock`].
#[derive(Debug)]
pub struct Guard<'a, T, W: Wait> {
    lock: &'a Lock<T>,
    /// Dropped behind the guard: nothing interrupts while the lock is held.
    masked: Masked<'a, W>,
    /// What a guard stands for: threads may share one only if they may share the data itself. The
    /// reference to the lock alone would say that it is enough if the data may move.
    data: PhantomData<&'a mut T>,
}

/// A guard of what threads must not share is not shared either:
///
/// ```compile_fail,E0277
/// use core::cell::Cell;
/// use zonal_core::sync::{Guard, Spin};
///
/// fn shared<T: Sync>() {}
/// shared::<Guard<'static, Cell<u32>, Spin>>();
/// ```
///
/// A guard does not leave its thread, whose interrupts it masks:
///
/// ```compile_fail,E0277
/// use zonal_core::sync::{Guard, Spin};
///
/// fn sent<T: Send>() {}
/// sent::<Guard<'static, u32, Spin>>();
/// ```
///
/// A platform does not write a lock's word:
///
/// ```compile_fail,E0308
/// use zonal_core::sync::{AtomicU32, LockWord, Wait};
///
/// struct Robber;
/// impl Wait for Robber {
///     fn wait(&self, word: &LockWord, _value: u32) {
///         let word: &AtomicU32 = word;
///         word.store(0, core::sync::atomic::Ordering::Relaxed);
///     }
///     fn wake_one(&self, _word: &LockWord) {}
/// }
/// ```
#[cfg(doctest)]
struct Unsound;

impl<T, W: Wait> Deref for Guard<'_, T, W> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: (1) this guard is the only one (LOCK-1) and is borrowed shared here.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, W: Wait> DerefMut for Guard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: (1) this guard is the only one (LOCK-1) and is borrowed exclusively here.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, W: Wait> Drop for Guard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next `lock`.
        if self.lock.state.0.swap(FREE, Ordering::Release) == CONTENDED {
            self.masked.wait.wake_one(&self.lock.state);
        }
    }
}
